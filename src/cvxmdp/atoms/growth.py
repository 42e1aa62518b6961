"""exp(u) and huber(u): convex and increasing functions of a convex utility."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import utility_of
from cvxmdp.atoms.powers import never_negative
from cvxmdp.atoms.returns import NormOfReturns
from cvxmdp.atoms.shapes import ExponentialShape, HuberShape, Shape
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space


def exp(given: Any) -> Utility:
    """The exponential of a return. Convex.

    Args:
        given: the name of a signal, an array (S,) or (S, A), or a convex utility.
    """
    rule = "the exponential is convex and increasing, so of a convex utility it is convex"
    return Exponential(require_curvature(utility_of(given), Curvature.CONVEX, "exp", rule))


def huber(given: Any, width: float = 1.0) -> Utility:
    """Huber's function: u^2 where |u| is at most ``width``, 2 width |u| - width^2 beyond. Convex.

    Args:
        given: the name of a signal, an array (S,) or (S, A), an affine utility, or a convex one that is never
            negative.
        width: where the square goes over into a line.
    """
    utility = utility_of(given)
    if utility.curvature is Curvature.AFFINE:
        utility = NormOfReturns.of(utility, "l1")
    if isinstance(width, bool) or not isinstance(width, Real) or not 0.0 < float(width) < math.inf:
        raise UtilityError(f"the width of huber is a positive number; got {width!r}")
    return Huber(never_negative(utility, "huber"), float(width))


@dataclass(frozen=True, eq=False, repr=False)
class ConvexIncreasing(Utility):
    """A convex and increasing function of a convex utility."""

    inner: Utility
    bends: ClassVar[Curvature] = Curvature.CONVEX
    nonnegative: ClassVar[bool] = True

    def children(self) -> tuple[Utility, ...]:
        return (self.inner,)

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, inner=children[0])


@dataclass(frozen=True, eq=False, repr=False)
class Exponential(ConvexIncreasing):
    """An exponential as written."""

    word: ClassVar[str] = "exp"

    def lower(self, space: Space) -> Shape:
        return ExponentialShape((self.inner.lower(space),))

    def __repr__(self) -> str:
        return f"exp({self.inner!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Huber(ConvexIncreasing):
    """Huber's function of something that is never negative, such as an absolute value."""

    width: float
    word: ClassVar[str] = "huber"

    def lower(self, space: Space) -> Shape:
        return HuberShape((self.inner.lower(space),), self.width)

    def __repr__(self) -> str:
        single = isinstance(self.inner, NormOfReturns) and len(self.inner.rewards) == 1
        inside = self.inner.argument if single and self.inner.norm == "l1" else self.inner  # type: ignore[attr-defined]
        return f"huber({inside!r}, {exact(self.width)})"
