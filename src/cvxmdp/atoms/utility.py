"""Utilities as a user writes them: expressions with an algebra, checked for curvature.

    linear("reward") + 0.1 * entropy()          sums, multiples by numbers, negation, differences
    linear("cost", per="step") <= 0.05          a comparison with a number is a constraint

A utility knows nothing of a model until ``lower(space)`` makes a shape of it (``shapes``). Constraints stand
here, too: utilities make them, and they hold utilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NoReturn

import numpy as np

from cvxmdp.atoms.curvature import Curvature, curvature_of_sum
from cvxmdp.atoms.shapes import LinearShape, Shape, SumShape
from cvxmdp.atoms.walks import Tree, walk
from cvxmdp.base.errors import CurvatureError, UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space


class Utility(Tree["Utility"]):
    """A function of the occupancy, not yet bound to a model. Immutable."""

    word: ClassVar[str] = ""  # what files call it
    bends: ClassVar[Curvature]  # the curvature of atoms that always have the same
    # NumPy scalars on the left (np.float64(2) * utility) must leave the operation to us.
    __array_ufunc__ = None

    @property
    def curvature(self) -> Curvature:
        """Whether it is affine, concave, convex or neither by the rules."""
        return self.bends

    def lower(self, space: Space) -> Shape:
        """The function of occupancies of this model; names become arrays, sizes are checked."""
        raise NotImplementedError

    def signals(self) -> tuple[str, ...]:
        """Names of signals that this utility itself, not a child, reads."""
        return ()

    def factor(self, space: Space) -> float:
        """What a named signal is multiplied with: one over the unit for sums per step."""
        return 1.0

    # Whether the best objective is no concave function of a budget for it.
    bends_in_budget: ClassVar[bool] = False

    def check_comparison(self, sense: str, shown: str) -> None:
        """An error unless it can be compared this way, "<=" or ">="; ``shown`` begins the message."""
        wanted = Curvature.CONVEX if sense == "<=" else Curvature.CONCAVE
        require_curvature(self, wanted, f"{shown}: {sense}")

    def slack(self, sense: str, budget: float) -> Utility:
        """The paper's g: concave, at least zero where the comparison holds."""
        return budget - self if sense == "<=" else self - budget

    @property
    def nonnegative(self) -> bool:
        """Whether it is known to be at least zero, whatever the model."""
        return False

    def measured(self, bind: Callable[[Utility], Shape], x: np.ndarray) -> float:
        """Its value at an occupancy, for people; ``bind`` makes functions of utilities."""
        return float(bind(self).value(x))

    def target_occupancy(self, space: Space) -> np.ndarray | None:
        """The occupancy that a distance is taken to, (S, A); None for all else."""
        return None

    def inside(self) -> tuple[Utility, ...]:
        """What people want to see the value of beside its own: the groups of a minimum, say."""
        return self.children()

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
                "by a number; for sums of logarithms see log_sum, for squares see square."
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


def read_unit(unit: Any) -> float | None:
    """What occupancies are divided by, a positive number; None where the model says it."""
    if unit is None:
        return None
    if isinstance(unit, bool) or not isinstance(unit, Real) or not 0.0 < float(unit) < math.inf:
        raise UtilityError(
            f"unit must be a positive number, such as a number of steps; got {unit!r}"
        )
    return float(unit)


def scale_of(unit: float | None, space: Space) -> float:
    """What makes distributions of occupancies: one over the unit, or over the model's own."""
    return space.scale if unit is None else 1.0 / unit


def require_curvature(utility: Any, wanted: Curvature, role: str, rule: str = "") -> Utility:
    """The utility itself, or an error that names the term that bends the wrong way, and the fix.

    Args:
        utility: what the user gave.
        wanted: CONCAVE or CONVEX; affine utilities are both.
        role: where the user gave it, to begin the message with.
        rule: of composition, to end it with.
    """
    if not isinstance(utility, Utility):
        named = f"A signal's return is linear({utility!r})."
        own = "Wrap your own function with @concave or @convex."
        raise UtilityError(
            f"{role} needs a utility such as linear('reward') or entropy(); got {utility!r}. "
            + (named if isinstance(utility, str) else own)
        )
    if utility.curvature in (wanted, Curvature.AFFINE):
        return utility
    raise CurvatureError(
        f"{role} needs a {wanted.value} utility, but {utility!r} is {utility.curvature.value}: "
        + _explain_terms(utility, wanted)
        + (f" The rule: {rule}." if rule else "")
    )


def _weighted(weight: float, term: Utility) -> str:
    """A term with its weight as it is read back; divided by a number where that was written and is shorter."""
    if weight == 1:
        return repr(term)
    if float(f"{weight:g}") != weight and 1.0 / float(f"{1.0 / weight:g}") == weight:
        return f"{term!r} / {1.0 / weight:g}"
    return f"{exact(weight)} * {term!r}"


def _explain_terms(utility: Utility, wanted: Curvature) -> str:
    """Name the first term that bends the wrong way, and how to use it rightly."""
    for weight, term in utility.terms():
        bent = term.curvature.times(weight)
        if bent not in (wanted, Curvature.AFFINE):
            written = _weighted(weight, term)
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


def signal_names(utility: Utility) -> set[str]:
    """The signals that a utility speaks of by name."""
    return {name for step in walk(utility) for name in step.node.signals()}


@dataclass(frozen=True, eq=False, repr=False)
class WeightedSum(Utility):
    """sum_k weight_k * term_k + offset."""

    parts: tuple[tuple[float, Utility], ...]
    constant: float
    word: ClassVar[str] = "sum"

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
        return curvature_of_sum(term.curvature.times(weight) for weight, term in self.parts)

    def terms(self) -> tuple[tuple[float, Utility], ...]:
        return self.parts

    @property
    def offset(self) -> float:
        return self.constant

    @property
    def nonnegative(self) -> bool:
        known = all(weight >= 0 and term.nonnegative for weight, term in self.parts)
        return known and self.constant >= 0

    def lower(self, space: Space) -> Shape:
        if not self.parts:  # a constant still knows the shape of its argument
            zero = LinearShape(np.zeros(space.shape))
            return SumShape((zero,), (0.0,), self.constant)
        terms = tuple(term.lower(space) for _, term in self.parts)
        return SumShape(terms, self.factors(), self.constant)

    def children(self) -> tuple[Utility, ...]:
        return tuple(term for _, term in self.parts)

    def factors(self) -> tuple[float, ...]:
        return tuple(weight for weight, _ in self.parts)

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return WeightedSum(tuple(zip(self.factors(), children, strict=True)), self.constant)

    def __repr__(self) -> str:
        text = ""
        for weight, term in self.parts:
            sign = " - " if weight < 0 else " + "
            text += (sign if text else sign.strip(" +")) + _weighted(abs(weight), term)
        if self.constant or not text:
            sign = " - " if self.constant < 0 else " + "
            text += (sign if text else sign.strip(" +")) + f"{exact(abs(self.constant))}"
        return text


@dataclass(frozen=True, eq=False, repr=False)
class NamedSum(WeightedSum):
    """A sum that was written by a name: it is printed so, and is one term of other sums.

    Attributes:
        text: as written.
        shown: what stands inside, for people.
        at_least_zero: whether it is known to be.
    """

    text: str
    shown: tuple[Utility, ...]
    at_least_zero: bool
    word: ClassVar[str] = "named sum"

    @property
    def nonnegative(self) -> bool:
        return self.at_least_zero

    def inside(self) -> tuple[Utility, ...]:
        return self.shown

    def terms(self) -> tuple[tuple[float, Utility], ...]:
        return ((1.0, self),)

    @property
    def offset(self) -> float:
        return 0.0

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, parts=tuple(zip(self.factors(), children, strict=True)))

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class Constraint:
    """``utility <= budget`` (convex utility) or ``utility >= budget`` (concave utility).

    Written by comparing a utility with a number. The paper's g(lambda) >= 0 is ``slack``:
    budget - utility for <=, utility - budget for >=.
    """

    utility: Utility
    sense: str
    budget: float

    def __post_init__(self) -> None:
        if self.sense not in ("<=", ">="):
            raise UtilityError(f"the sense of a constraint is '<=' or '>='; got {self.sense!r}")
        if not isinstance(self.utility, Utility):
            raise UtilityError(f"a constraint compares a utility; got {self.utility!r}")
        self.utility.check_comparison(self.sense, repr(self))

    @property
    def slack(self) -> Utility:
        """The paper's g: concave, at least zero where the constraint holds."""
        return self.utility.slack(self.sense, self.budget)

    def with_budget(self, budget: float) -> Constraint:
        """The same constraint with another budget."""
        compare = self.utility.__le__ if self.sense == "<=" else self.utility.__ge__
        return compare(budget)

    def __bool__(self) -> NoReturn:
        raise UtilityError(
            f"{self!r} has no truth value. A two-sided chain such as 0.1 <= u <= 0.2 is two "
            "constraints: write them one by one, each under its own name."
        )

    def __repr__(self) -> str:
        return f"{self.utility!r} {self.sense} {exact(self.budget)}"
