r"""A finite number of steps in exact arithmetic: backwards for what no return exceeds, forwards for visits.

V_t = max_a (r_t + gamma P V_{t+1}) over the pairs that can be reached at time t, and out(x_{t+1}) = gamma
P'x_t are sums and products of balls, which carry their own rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.checker.checked_finite import CheckedFinite
from cvxmdp.checker.checked_flow import Proof
from cvxmdp.checker.exact_flow import ExactFlow, exact_policy
from cvxmdp.checker.exact_numbers import Ball, add_up, ball, greatest


class ExactFinite(ExactFlow):
    """The exact counterpart of ``CheckedFinite``."""

    def __init__(self, flow: CheckedFinite, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.flow, self.discount = flow, ball(flow.discount)

    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        pairs = (self.flow.steps, self.flow.states, -1)
        rewards, usable = reward.reshape(pairs), self.flow.usable.reshape(pairs)
        values = np.full(self.flow.states, ball(0.0))
        for time in range(self.flow.steps - 1, -1, -1):
            after = (self.transition.times(values) * self.discount).reshape(pairs[1:])
            reached = rewards[time] + after
            values = np.full(self.flow.states, ball(0.0))  # where nobody is, nothing counts
            for state in np.flatnonzero(usable[time].any(axis=1)):
                values[state] = greatest(reached[state][usable[time, state]])
        return add_up(self.initial * values)

    def visited(self, policy: Any) -> np.ndarray:
        _, exact = exact_policy(self.flow, policy)
        visits, x = self.initial, []
        for chosen in exact.reshape(self.flow.steps, -1):
            x.append(visits[self.owner] * chosen)
            visits = self.transition.transposed_times(x[-1]) * self.discount
        return np.concatenate(x)
