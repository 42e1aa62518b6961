r"""The long run in exact arithmetic; the proofs are those of ``checked_average``.

<r, x> <= max (r + P h - h) over the pairs of the one part that can be stayed in, for any h. A policy's
occupancy is the shares of time in each class that it may settle in, times the chance that it does, which the
visits of the states before say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.checked_average import CheckedAverage
from cvxmdp.checker.checked_flow import Proof
from cvxmdp.checker.exact_chain import ExactChain
from cvxmdp.checker.exact_flow import ExactFlow, exact_policy
from cvxmdp.checker.exact_numbers import Ball, add_up, ball, balls, greatest


class ExactAverage(ExactFlow):
    """The exact counterpart of ``CheckedAverage``."""

    def __init__(self, flow: CheckedAverage, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.flow = flow

    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        h = balls(self.flow.per_state(proof, "values"))
        left = reward + self.transition.times(h) - h[self.owner]
        return greatest(left[self.flow.usable.ravel()])

    def visited(self, policy: Any) -> np.ndarray:
        floats, exact = exact_policy(self.flow, policy)
        classes, before = self.flow.classes(floats)
        chain = self.flow.chain(floats)
        found = balls(np.zeros(self.initial.size))
        chances = self._chances(exact, chain, classes, before)
        for places, chance in zip(classes, chances, strict=True):
            shares = ExactChain(self.transition, exact, chain, self._among(places)).shares()
            found = found + shares * chance
        return np.asarray(found[self.owner] * exact)

    def _among(self, places: np.ndarray) -> np.ndarray:
        inside = np.zeros(self.initial.size, dtype=bool)
        inside[places] = True
        return inside

    def _chances(
        self, policy: np.ndarray, chain: sp.csr_array, classes: list[np.ndarray], before: np.ndarray
    ) -> list[Ball]:
        """Of each class, that the policy settles there."""
        if len(classes) == 1:
            return [ball(1.0)]
        reached = self.initial
        if before.size:
            passing = ExactChain(self.transition, policy, chain, self._among(before))
            reached = reached + passing.arriving(passing.visits(self.initial, 1.0))
        whole = add_up(self.initial)
        return [add_up(reached[places]) / whole for places in classes]
