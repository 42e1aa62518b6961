r"""One policy over a finite number of steps in every model of a set.

Returns come from a recursion that is run here, backwards, rounding taken off: with V_T = 0

    V_t(s) = sum_a pi_t(a|s) (r_t(s,a) + gamma min_p p.V_{t+1}),      <r, y> >= min_rho rho.V_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import EPS, largest
from cvxmdp.checker.checked_finite_models import CheckedFiniteModels
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.exact_models import ExactModels
from cvxmdp.checker.policy_anywhere import PolicyAnywhere, Values


class PolicyOverTime(PolicyAnywhere):
    """See ``PolicyAnywhere``; values are not looked up."""

    models: CheckedFiniteModels

    def _at_least(self, rewards: np.ndarray) -> np.ndarray:
        models, count = self.models, len(rewards)
        chosen = self.played.reshape(models.steps, models.states, -1)
        gained = rewards.reshape(count, models.steps, models.states)
        values = np.zeros((models.states + 1, count))
        for time in range(models.steps - 1, -1, -1):
            least = -models.rows.largest(-values, (chosen[time] > 0).ravel())
            after = np.einsum("sa,saj->sj", chosen[time], least.reshape(*chosen[time].shape, count))
            sizes = largest(gained[:, time]) + largest(values)
            found = gained[:, time].T + models.discount * after
            values[:-1] = found - (models.shape[1] + 16) * EPS * sizes
        return np.asarray(-models.start(-values))


def policy_in(
    models: CheckedModels | CheckedFiniteModels | ExactModels, policy: Any, values: Values
) -> PolicyAnywhere:
    """A policy in every model of a set, whatever its horizon."""
    kind = PolicyOverTime if isinstance(models, CheckedFiniteModels) else PolicyAnywhere
    return kind(models, policy, values)
