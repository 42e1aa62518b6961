r"""The softmax table, the paper's eq. (soft_max_policy): pi(a | s) = exp(theta_sa) / sum exp.

The parameters are logits of shape (S, A); actions that are not available have probability zero
whatever their logit. A table has M_pi1 = 1 and M_pi2 = 0 in the paper's assumption on
parameterisations, but it does not satisfy the rest of it: adding a constant to a row of logits
changes nothing, and near the border the inverse map is not Lipschitz.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from cvxmdp.base.errors import PolicyError
from cvxmdp.base.storage import write_arrays
from cvxmdp.models.validation import numbers
from cvxmdp.policies.tables import TabularPolicy


class SoftmaxTable(TabularPolicy):
    """A softmax policy with one logit per state and action. Immutable.

    Args:
        params: the logits theta, shape (S, A), finite where the action is available.
        actions: boolean (S, A), which actions are available; all of them when not given.
    """

    kind = "softmax table"

    def __init__(self, params: Any, actions: Any = None) -> None:
        logits = numbers(params, "the logits of a softmax table", PolicyError)
        if logits.ndim != 2 or 0 in logits.shape:
            raise PolicyError(f"the logits of a softmax table are (S, A); got shape {logits.shape}")
        mask = np.ones(logits.shape, dtype=bool) if actions is None else np.array(actions)
        if mask.shape != logits.shape or mask.dtype != bool or not mask.any(axis=1).all():
            raise PolicyError(
                f"actions must be boolean of shape {logits.shape} with an action in every state; "
                f"got shape {mask.shape} of type {mask.dtype}"
            )
        wrong = mask & ~np.isfinite(logits)
        if wrong.any():
            state, action = np.argwhere(wrong)[0]
            raise PolicyError(
                f"the logit of action {action} in state {state} is {logits[state, action]}. A "
                "softmax gives every action a positive probability; for policies with zeros use "
                "TabularPolicy(probabilities)."
            )
        self.params = np.where(mask, logits, 0.0)
        self.actions = mask
        for array in (self.params, self.actions):
            array.flags.writeable = False
        super().__init__(softmax(np.where(mask, logits, -np.inf), axis=1))

    @classmethod
    def uniform(cls, actions: Any) -> SoftmaxTable:
        """The policy with all logits zero: uniform over the available actions."""
        return cls(np.zeros(np.shape(actions)), actions)

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        arrays = {"params": self.params, "actions": self.actions}
        write_arrays(path, "policy", arrays, {"kind": self.kind})

    def __repr__(self) -> str:
        return f"SoftmaxTable({self.n_states:,} states; {self.n_actions} actions)"
