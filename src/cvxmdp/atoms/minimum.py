"""The worst and the best of several utilities, and how far they are apart: fairness between groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import utility_of
from cvxmdp.atoms.shapes import MinimumShape, Shape
from cvxmdp.atoms.utility import NamedSum, Utility, WeightedSum, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.space import Space


def minimum(*utilities: Any) -> Utility:
    """The smallest of several concave utilities. Concave, with kinks where two are equal.

    Maximised it is max-min fairness; ``minimum("north", "south") >= 2`` is a floor for each.

    Args:
        *utilities: concave utilities, names of signals, arrays (S,) or (S, A), or numbers.
    """
    rule = "the minimum is concave and increasing, so of concave utilities it is concave"
    parts = _read(utilities, Curvature.CONCAVE, "minimum", rule)
    # A minimum of minima is one minimum: loops that build one part by part leave no tower.
    flat = [part.utilities if isinstance(part, Minimum) else (part,) for part in parts]
    return Minimum(tuple(one for group in flat for one in group))


def maximum(*utilities: Any) -> Utility:
    """The largest of several convex utilities. Convex, with kinks where two are equal.

    Args:
        *utilities: convex utilities, names of signals, arrays (S,) or (S, A), or numbers.
    """
    rule = "the maximum is convex and increasing, so of convex utilities it is convex"
    parts = _read(utilities, Curvature.CONVEX, "maximum", rule)
    known = any(part.nonnegative for part in parts)
    return NamedSum((_largest(parts),), 0.0, _called("maximum", parts), parts, known)


def spread(*utilities: Any) -> Utility:
    """The largest of several affine utilities less the smallest. Convex: parity is ``spread(...) <= margin``.

    Args:
        *utilities: affine utilities, such as the returns of groups: names of signals, arrays (S,) or (S, A), or
            sums of ``linear``.
    """
    rule = "a maximum is convex and a minimum concave, so both are taken of affine utilities only"
    parts = _read(utilities, Curvature.CONVEX, "spread", rule)
    least = Minimum(_read(parts, Curvature.CONCAVE, "spread", rule))
    return NamedSum((_largest(parts), (-1.0, least)), 0.0, _called("spread", parts), parts, True)


def _largest(parts: Sequence[Utility]) -> tuple[float, Utility]:
    """max u_k as -min -u_k."""
    return -1.0, Minimum(tuple(-part for part in parts))


def _called(name: str, parts: Sequence[Utility]) -> str:
    return f"{name}({', '.join(repr(part) for part in parts)})"


def _read(given: Sequence[Any], wanted: Curvature, name: str, rule: str) -> tuple[Utility, ...]:
    if not given:
        raise UtilityError(f"{name} needs at least one utility")
    parts = [WeightedSum((), 0.0) + one if _is_number(one) else utility_of(one) for one in given]
    return tuple(require_curvature(part, wanted, name, rule) for part in parts)


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)


@dataclass(frozen=True, eq=False, repr=False)
class Minimum(Utility):
    """A minimum as written."""

    utilities: tuple[Utility, ...]
    word: ClassVar[str] = "minimum"
    bends: ClassVar[Curvature] = Curvature.CONCAVE

    @property
    def nonnegative(self) -> bool:
        return all(utility.nonnegative for utility in self.utilities)

    def lower(self, space: Space) -> Shape:
        return MinimumShape(tuple(utility.lower(space) for utility in self.utilities))

    def children(self) -> tuple[Utility, ...]:
        return self.utilities

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return Minimum(tuple(children))

    def __repr__(self) -> str:
        return _called("minimum", self.utilities)
