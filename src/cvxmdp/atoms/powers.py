"""power(u, p) and sqrt(u): roots of returns, of which alpha-fairness is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import linear
from cvxmdp.atoms.shapes import PowerShape, Shape
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space


def power(given: Any, exponent: float) -> Utility:
    """A return to a power between 0 and 1. Concave, and minus infinity where the return is negative.

    Alpha-fairness with 0 < alpha < 1 is the sum of power(r, 1 - alpha) / (1 - alpha) over the returns r.

    Args:
        given: the name of a signal, an array (S,) or (S, A), or a concave utility.
        exponent: p, more than 0 and less than 1.
    """
    if isinstance(exponent, bool) or not isinstance(exponent, Real) or not 0.0 < exponent < 1.0:
        raise UtilityError(
            f"the exponent of a power is more than 0 and less than 1; got {exponent!r}. For squares see "
            "quadratic, for sums of logarithms log_sum."
        )
    utility = given if isinstance(given, Utility) else linear(given)
    return Power(require_curvature(utility, Curvature.CONCAVE, "power"), float(exponent))


def sqrt(given: Any) -> Utility:
    """The square root of a return: ``power(given, 0.5)``."""
    return power(given, 0.5)


@dataclass(frozen=True, eq=False, repr=False)
class Power(Utility):
    """A power of a concave utility."""

    inner: Utility
    exponent: float
    word: ClassVar[str] = "power"
    bends: ClassVar[Curvature] = Curvature.CONCAVE  # as such a power is concave and increasing

    def lower(self, space: Space) -> Shape:
        return PowerShape((self.inner.lower(space),), self.exponent)

    def children(self) -> tuple[Utility, ...]:
        return (self.inner,)

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, inner=children[0])

    def __repr__(self) -> str:
        if self.exponent == 0.5:
            return f"sqrt({self.inner!r})"
        return f"power({self.inner!r}, {exact(self.exponent)})"
