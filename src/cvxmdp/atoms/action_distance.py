"""distance(policy, of="actions"): how often decisions differ from those of a policy. Convex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import ActionChange, Entries, ExpectedActions
from cvxmdp.atoms.shapes import NormShape, RelativeEntropyShape, Shape
from cvxmdp.atoms.shapes.norm_sets import Singleton
from cvxmdp.atoms.utility import Utility, scale_of
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space
from cvxmdp.models.table import model_of
from cvxmdp.policies import Policy
from cvxmdp.policies.occupancies import as_policy

NORMS = ("l1", "kl")


@dataclass(frozen=True, eq=False, repr=False)
class ActionDistance(Utility):
    """sum_s d(s) |pi(.|s) - pi_0(.|s)|_1, or the same with KL(pi(.|s) || pi_0(.|s)).

    With d(s) = (1 - discount) sum_a x(s,a) both are functions of x(s,a) and pi_0(a|s) sum_b x(s,b) alone.
    """

    policy: Policy
    norm: str
    smoothing: float
    unit: float | None = None
    word: ClassVar[str] = "action distance"
    bends: ClassVar[Curvature] = Curvature.CONVEX
    nonnegative: ClassVar[bool] = True

    def lower(self, space: Space) -> Shape:
        """A norm of the change, or the divergence between actions and those that were expected."""
        mdp = model_of(space, 'distance(..., of="actions")')
        chosen = as_policy(mdp, self.policy).probabilities()
        uniform = space.actions / space.actions.sum(axis=1, keepdims=True)
        chosen = (1.0 - self.smoothing) * chosen + self.smoothing * uniform
        scale = scale_of(self.unit, space)
        if self.norm == "l1":
            return NormShape(ActionChange(chosen, scale, space.shape), Singleton(0.0), "l1")
        never = space.reachable_pairs & (chosen <= 0)
        if never.any():
            state, action = np.argwhere(never)[0]
            raise UtilityError(
                f"the policy of the kl distance never takes action {space.action_label(action)} in "
                f"state {space.state_label(state)}, and {int(never.sum()) - 1} more that are available: "
                'the distance of almost every policy is infinite. Use distance(..., norm="kl", '
                'of="actions", smoothing=0.01), which mixes a share of uniform actions into it.'
            )
        expected = ExpectedActions(chosen, scale, space.shape)
        return RelativeEntropyShape(Entries(scale, space.shape), expected, None)

    def __repr__(self) -> str:
        smoothing = f", smoothing={exact(self.smoothing)}" if self.smoothing else ""
        unit = "" if self.unit is None else f", unit={exact(self.unit)}"
        return f'distance(<policy>, norm="{self.norm}"{smoothing}, of="actions"{unit})'
