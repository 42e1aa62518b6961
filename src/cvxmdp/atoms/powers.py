"""Powers of returns: roots and negative powers, of which alpha-fairness is made, and squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import utility_of
from cvxmdp.atoms.returns import NormOfReturns
from cvxmdp.atoms.shapes import HingePowerShape, PowerShape, Shape
from cvxmdp.atoms.utility import NamedSum, Utility, require_curvature
from cvxmdp.base.errors import CurvatureError, UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space

BELOW_ONE = "powers below one are concave and increasing, so of a concave utility they are concave"
BELOW_ZERO = "negative powers are convex and decreasing, so of a concave utility they are convex"


def power(given: Any, exponent: float) -> Utility:
    """A return to a power.

    Between 0 and 1 it is concave, and minus infinity where the return is negative; below 0 it is convex, and
    infinite where the return is not positive; above 1 it is convex, of what is never negative.

    Alpha-fairness is the sum of power(r, 1 - alpha) / (1 - alpha) over the returns r; with alpha = 1 it is
    log_sum.

    Args:
        given: the name of a signal, an array (S,) or (S, A), or a utility: a concave one for exponents below 1,
            an affine or a convex one that is never negative above.
        exponent: p, neither 0 nor 1.
    """
    if isinstance(exponent, bool) or not isinstance(exponent, Real) or not np.isfinite(exponent):
        raise UtilityError(f"the exponent of a power is a number; got {exponent!r}")
    if exponent in (0, 1):
        raise UtilityError(
            f"the exponent of a power is neither 0 nor 1; got {exponent!r}. With 0 it is a constant, with 1 "
            "the return itself; in alpha-fairness 0 stands for the logarithm: log_sum."
        )
    utility, p = utility_of(given), float(exponent)
    if p == 2.0:
        return square(utility)
    if p < 0:
        require_curvature(utility, Curvature.CONCAVE, "power", BELOW_ZERO)
        text = f"power({utility!r}, {exact(p)})"
        return NamedSum(((-1.0, Power(utility, p)),), 0.0, text, (utility,), True)
    if p < 1:
        return Power(require_curvature(utility, Curvature.CONCAVE, "power", BELOW_ONE), p)
    return Power(never_negative(utility, f"power(u, {exact(p)})"), p)


def sqrt(given: Any) -> Utility:
    """The square root of a return: ``power(given, 0.5)``."""
    return power(given, 0.5)


def square(given: Any) -> Utility:
    """The square of a return, of either sign. Convex.

    Args:
        given: the name of a signal, an array (S,) or (S, A), an affine utility, or a convex one that is never
            negative.
    """
    utility = utility_of(given)
    if utility.curvature is Curvature.AFFINE:
        return NormOfReturns.of(utility, "l2-squared")
    return Power(never_negative(utility, "square"), 2.0)


def never_negative(utility: Utility, name: str) -> Utility:
    """A convex utility that is at least zero, or an affine one, which is looked at once the model is known."""
    rule = (
        f"{name} is convex and increases from zero on, so of a convex utility u >= 0 it is convex"
    )
    require_curvature(utility, Curvature.CONVEX, name, rule)
    if utility.curvature is Curvature.AFFINE or utility.nonnegative:
        return utility
    raise CurvatureError(
        f"{name} of {utility!r}, which is convex but may be negative, is neither concave nor convex by "
        f"the rules. The rule: {rule}. Where what is below zero counts as zero, write maximum(..., 0) inside."
    )


def _check_sign(function: Shape, what: Utility) -> None:
    """An error where an affine function can be negative."""
    affine = function.affine()
    if affine is None:
        return
    if affine.offset < 0 or (affine.reward < 0).any():
        raise UtilityError(
            f"{what!r} is convex where its argument is at least 0, and in this model it can be negative. Where "
            "what is below zero counts as zero, write maximum(..., 0) inside; square takes either sign."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Power(Utility):
    """A power of a concave utility, minus one that is negative, or above one of what is never negative."""

    inner: Utility
    exponent: float
    word: ClassVar[str] = "power"

    @property
    def curvature(self) -> Curvature:
        return Curvature.CONCAVE if self.exponent < 1 else Curvature.CONVEX

    @property
    def nonnegative(self) -> bool:
        return self.exponent > 0

    def lower(self, space: Space) -> Shape:
        part = self.inner.lower(space)
        if self.exponent < 1:
            return PowerShape((part,), self.exponent)
        _check_sign(part, self)
        return HingePowerShape((part,), self.exponent)

    def children(self) -> tuple[Utility, ...]:
        return (self.inner,)

    def positive(self) -> tuple[Utility, ...]:
        return (self.inner,) if self.exponent < 1 else ()

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, inner=children[0])

    def __repr__(self) -> str:
        if self.exponent in (0.5, 2.0):
            return f"{'sqrt' if self.exponent == 0.5 else 'square'}({self.inner!r})"
        sign = "-" if self.exponent < 0 else ""
        return f"{sign}power({self.inner!r}, {exact(self.exponent)})"
