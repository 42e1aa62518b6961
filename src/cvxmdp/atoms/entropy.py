"""entropy() = -sum d log d of the state distribution, or of the decisions taken there: exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import Entries, ExpectedActions, StateSums
from cvxmdp.atoms.shapes import EntropyShape, LinearShape, RelativeEntropyShape, Shape, SumShape
from cvxmdp.atoms.utility import Utility, read_unit, scale_of
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space


def entropy(of: str = "state", *, unit: float | None = None) -> Utility:
    """The entropy of where the policy spends its (discounted) time. Concave.

    With d(s) = (1 - discount) * sum_a x(s,a), it is -sum_s d log d, in nats; 0 log 0 = 0. Nothing
    is renormalised when episodes end, so there d sums to less than one.

    Args:
        of: "state"; "state-action" for the same of (1 - discount) * x; or "actions" for the conditional entropy
            sum_s d(s) H(pi(.|s)), how undecided the policy is where it goes.
        unit: what x is divided by instead of 1 / (1 - discount), or of the longest stay with discount=1, for
            those who compare models.
    """
    if of not in ("state", "state-action", "actions"):
        raise UtilityError(f'entropy is of "state", "state-action" or "actions"; got {of!r}')
    return Entropy(of, read_unit(unit))


@dataclass(frozen=True, eq=False, repr=False)
class Entropy(Utility):
    """Entropy as written."""

    of: str
    unit: float | None = None
    word: ClassVar[str] = "entropy"
    bends: ClassVar[Curvature] = Curvature.CONCAVE

    def lower(self, space: Space) -> Shape:
        """The scale comes from the model."""
        scale = scale_of(self.unit, space)
        if self.of == "actions":
            return _of_actions(space, scale)
        kind = StateSums if self.of == "state" else Entries
        return EntropyShape(kind(scale, space.shape))

    def __repr__(self) -> str:
        of = "" if self.of == "state" else f'of="{self.of}"'
        unit = "" if self.unit is None else f"unit={exact(self.unit)}"
        return f"entropy({', '.join(part for part in (of, unit) if part)})"


def _of_actions(space: Space, scale: float) -> Shape:
    """With n(s) actions available, H(pi(.|s)) = log n(s) - KL(pi(.|s) || uniform)."""
    count = space.actions.sum(axis=1, keepdims=True)
    most = LinearShape(np.where(space.actions, scale * np.log(count), 0.0))
    uniform = ExpectedActions(space.actions / count, scale, space.shape)
    lost = RelativeEntropyShape(Entries(scale, space.shape), uniform, None)
    return SumShape((most, lost), (1.0, -1.0), 0.0)
