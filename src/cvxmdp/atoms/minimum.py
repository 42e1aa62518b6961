"""minimum(u_1, ..., u_n): max-min fairness, the worst of several concave utilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.shapes import MinimumShape, Shape
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.space import Space


def minimum(*utilities: Utility) -> Utility:
    """The smallest of several concave utilities. Concave, with kinks where two are equal."""
    if not utilities:
        raise UtilityError("minimum needs at least one utility")
    for utility in utilities:
        require_curvature(utility, Curvature.CONCAVE, "minimum")
    return Minimum(tuple(utilities))


@dataclass(frozen=True, eq=False, repr=False)
class Minimum(Utility):
    """A minimum as written."""

    utilities: tuple[Utility, ...]
    word: ClassVar[str] = "minimum"
    bends: ClassVar[Curvature] = Curvature.CONCAVE

    def lower(self, space: Space) -> Shape:
        return MinimumShape(tuple(utility.lower(space) for utility in self.utilities))

    def children(self) -> tuple[Utility, ...]:
        return self.utilities

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return Minimum(tuple(children))

    def __repr__(self) -> str:
        return f"minimum({', '.join(repr(utility) for utility in self.utilities)})"
