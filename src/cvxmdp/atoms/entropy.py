"""entropy() = -sum d log d of the state distribution: exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import Entries, StateSums
from cvxmdp.atoms.shapes import EntropyShape, Shape
from cvxmdp.atoms.utility import Utility, read_unit, scale_of
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space


def entropy(of: str = "state", *, unit: float | None = None) -> Utility:
    """The entropy of where the policy spends its (discounted) time. Concave.

    With d(s) = (1 - discount) * sum_a x(s,a), it is -sum_s d log d, in nats; 0 log 0 = 0. Nothing
    is renormalised when episodes end, so there d sums to less than one.

    Args:
        of: "state", or "state-action" for the same of (1 - discount) * x.
        unit: what x is divided by instead of 1 / (1 - discount), or of the longest stay with discount=1, for
            those who compare models.
    """
    if of not in ("state", "state-action"):
        raise UtilityError(f'entropy is of "state" or "state-action"; got {of!r}')
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
        kind = StateSums if self.of == "state" else Entries
        return EntropyShape(kind(scale_of(self.unit, space), space.shape))

    def __repr__(self) -> str:
        of = "" if self.of == "state" else f'of="{self.of}"'
        unit = "" if self.unit is None else f"unit={exact(self.unit)}"
        return f"entropy({', '.join(part for part in (of, unit) if part)})"
