"""Utilities as a user writes them: expressions with an algebra, checked for curvature.

    linear("reward") + 0.1 * entropy()          sums, multiples by numbers, negation, differences
    linear("cost", per="step") <= 0.05          a comparison with a number is a constraint

A utility knows nothing of a model until ``bind(mdp)`` makes an ``OccupancyFunction`` of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cvxmdp.atoms.curvature import Curvature, curvature_of_sum
from cvxmdp.atoms.function import (
    Affine,
    Array,
    Constants,
    OccupancyFunction,
    Space,
)
from cvxmdp.base.errors import CurvatureError, UtilityError

if TYPE_CHECKING:
    from cvxmdp.atoms.constraint import Constraint
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP


class Utility:
    """A function of the occupancy, not yet bound to a model. Immutable."""

    # NumPy scalars on the left (np.float64(2) * utility) must leave the operation to us.
    __array_ufunc__ = None

    @property
    def curvature(self) -> Curvature:
        """Whether it is affine, concave, convex or neither by the rules."""
        raise NotImplementedError

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """The function of occupancies of this model; names become arrays, shapes are checked."""
        raise NotImplementedError

    def terms(self) -> tuple[tuple[float, Utility], ...]:
        """The utility as a weighted sum of atoms."""
        return ((1.0, self),)

    @property
    def offset(self) -> float:
        """The constant that is added to the terms."""
        return 0.0

    def __add__(self, other: Any) -> Utility:
        if isinstance(other, Utility):
            return WeightedSum.of(self.terms() + other.terms(), self.offset + other.offset)
        return WeightedSum.of(self.terms(), self.offset + _number(other, self, "added to"))

    __radd__ = __add__

    def __neg__(self) -> Utility:
        return self * -1.0

    def __sub__(self, other: Any) -> Utility:
        return self + (
            -other if isinstance(other, Utility) else -_number(other, self, "taken from")
        )

    def __rsub__(self, other: Any) -> Utility:
        return -self + other

    def __mul__(self, other: Any) -> Utility:
        if isinstance(other, Utility):
            raise CurvatureError(
                f"the product of {self!r} and {other!r} has no known curvature. Multiply a utility "
                "by a number; for sums of logarithms see log_sum, for squares see quadratic."
            )
        weight = _number(other, self, "multiplied with")
        scaled = tuple((weight * factor, term) for factor, term in self.terms())
        return WeightedSum.of(scaled, weight * self.offset)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Utility:
        divisor = _number(other, self, "divided by")
        if divisor == 0:
            raise UtilityError(f"{self!r} is divided by zero")
        return self * (1.0 / divisor)

    def __le__(self, other: Any) -> Constraint:
        return self._compare("<=", other)

    def __ge__(self, other: Any) -> Constraint:
        return self._compare(">=", other)

    def _compare(self, sense: str, other: Any) -> Constraint:
        from cvxmdp.atoms.constraint import Constraint

        if isinstance(other, Utility):
            return Constraint(self - other, sense, 0.0)
        return Constraint(self, sense, _number(other, self, "compared with"))

    def _no_strict_comparison(self, other: Any) -> NoReturn:
        raise UtilityError(f"{self!r}: write <= or >= instead of < or >")

    __lt__ = __gt__ = _no_strict_comparison

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real):
            raise UtilityError(
                f"{self!r} == {other}: equalities are not supported (no policy satisfies one "
                "strictly). Write two constraints with room between them, one <= and one >=."
            )
        return self is other

    __hash__ = object.__hash__


def _number(given: Any, utility: Utility, action: str) -> float:
    if isinstance(given, np.ndarray) and given.shape == ():
        given = given[()]
    if isinstance(given, bool) or not isinstance(given, Real):
        raise UtilityError(
            f"{utility!r} is {action} {given!r}; expected a number, whose sign is known"
        )
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UtilityError(f"{utility!r} is {action} {given}; expected a finite number")
    return number


def require_curvature(utility: Any, wanted: Curvature, role: str) -> Utility:
    """The utility itself, or an error that names the term that bends the wrong way, and the fix.

    Args:
        utility: what the user gave.
        wanted: CONCAVE or CONVEX; affine utilities are both.
        role: where the user gave it, to begin the message with.
    """
    if not isinstance(utility, Utility):
        raise UtilityError(
            f"{role} needs a utility such as linear('reward') or entropy(); got {utility!r}. "
            "Wrap your own function with @concave or @convex."
        )
    if utility.curvature in (wanted, Curvature.AFFINE):
        return utility
    raise CurvatureError(
        f"{role} needs a {wanted.value} utility, but {utility!r} is {utility.curvature.value}: "
        + _explain_terms(utility, wanted)
    )


def _explain_terms(utility: Utility, wanted: Curvature) -> str:
    """Name the first term that bends the wrong way, and how to use it rightly."""
    for weight, term in utility.terms():
        bent = term.curvature.times(weight)
        if bent not in (wanted, Curvature.AFFINE):
            written = f"{term!r}" if weight == 1 else f"{weight:g} * {term!r}"
            if bent is Curvature.UNKNOWN:
                return f"the term {written} is {bent.value}."
            fix = (
                "Convex utilities are minimised (minimize=), subtracted, or bounded from above "
                "(<= number)."
                if wanted is Curvature.CONCAVE
                else "Concave utilities are maximised (maximize=) or bounded from below "
                "(>= number)."
            )
            return f"the term {written} is {bent.value}. {fix}"
    return "no term explains it."


@dataclass(frozen=True, eq=False, repr=False)
class WeightedSum(Utility):
    """sum_k weight_k * term_k + offset."""

    parts: tuple[tuple[float, Utility], ...]
    constant: float

    @classmethod
    def of(cls, parts: tuple[tuple[float, Utility], ...], constant: float) -> Utility:
        """A sum without zero weights; a single atom stays itself."""
        kept = tuple((weight, term) for weight, term in parts if weight != 0)
        if not all(math.isfinite(number) for number in (constant, *(w for w, _ in kept))):
            raise UtilityError(
                f"a weight or the constant of {cls(kept, constant)!r} is too large for a float"
            )
        if len(kept) == 1 and kept[0][0] == 1.0 and constant == 0:
            return kept[0][1]
        return cls(kept, constant)

    @property
    def curvature(self) -> Curvature:
        """The curvature of the terms where they agree."""
        return curvature_of_sum(term.curvature.times(weight) for weight, term in self.parts)

    def terms(self) -> tuple[tuple[float, Utility], ...]:
        """The weighted atoms."""
        return self.parts

    @property
    def offset(self) -> float:
        """The constant."""
        return self.constant

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """Bind every term."""
        if not self.parts:  # a constant still knows the shape of its argument
            from cvxmdp.atoms.linear import LinearFunction

            zero = LinearFunction(np.zeros((mdp.n_states, mdp.n_actions)))
            return SumFunction((0.0,), (zero,), self.constant)
        weights = tuple(weight for weight, _ in self.parts)
        return SumFunction(weights, tuple(term.bind(mdp) for _, term in self.parts), self.constant)

    def __repr__(self) -> str:
        text = ""
        for weight, term in self.parts:
            sign = " - " if weight < 0 else " + "
            factor = "" if abs(weight) == 1 else f"{abs(weight):g} * "
            text += (sign if text else sign.strip(" +")) + factor + repr(term)
        if self.constant or not text:
            sign = " - " if self.constant < 0 else " + "
            text += (sign if text else sign.strip(" +")) + f"{abs(self.constant):g}"
        return text


@dataclass(frozen=True, eq=False)
class SumFunction(OccupancyFunction):
    """sum_k weights[k] * functions[k](x) + offset. Weights and offset are numbers, not structure."""

    weights: tuple[float, ...]
    functions: tuple[OccupancyFunction, ...]
    offset: float

    def value(self, x: Array) -> Any:
        """The weighted sum of the values."""
        total = self.offset
        for weight, function in zip(self.weights, self.functions, strict=True):
            total = total + weight * function.value(x)
        return total

    def gradient(self, x: Array) -> Array:
        """The weighted sum of the gradients."""
        total = 0.0 * x
        for weight, function in zip(self.weights, self.functions, strict=True):
            total = total + weight * function.gradient(x)
        return total

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """The weighted sum of the CVXPY forms."""
        total = self.offset
        for weight, function in zip(self.weights, self.functions, strict=True):
            form = function.to_cvxpy(x)
            if form is None:
                return None
            total = total + weight * form
        return total

    def extended(self) -> OccupancyFunction:
        """Each term extended."""
        return replace(self, functions=tuple(part.extended() for part in self.functions))

    def constants(self, space: Space) -> Constants:
        """Constants add up with the absolute weights."""
        parts = [function.constants(space) for function in self.functions]
        sizes = [abs(weight) for weight in self.weights]

        def total(values: list[float | None], start: float = 0.0) -> float | None:
            if any(value is None for value in values):
                return None
            return start + sum(s * v for s, v in zip(sizes, values, strict=True) if v is not None)

        return Constants(
            total([part.lipschitz for part in parts]),
            total([part.smoothness for part in parts]),
            total([part.bound for part in parts], abs(self.offset)),
            total([part.strength for part in parts]) or 0.0,
        )

    def affine_part(self) -> Affine | None:
        """The sum of the affine parts, when all are affine."""
        parts = [function.affine_part() for function in self.functions]
        if any(part is None for part in parts):
            return None
        pairs = [(w, part) for w, part in zip(self.weights, parts, strict=True) if part is not None]
        reward = sum(weight * part.reward for weight, part in pairs)
        offset = self.offset + sum(weight * part.offset for weight, part in pairs)
        return Affine(np.asarray(reward), float(offset))
