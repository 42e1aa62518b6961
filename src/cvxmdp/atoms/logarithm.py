"""Logarithms of concave utilities: plain ones, log barriers (safe learning) and proportional fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import utility_of
from cvxmdp.atoms.shapes import LogShape, Shape
from cvxmdp.atoms.utility import Constraint, Utility, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.space import Space

RULE = "the logarithm is concave and increasing, so of a concave utility it is concave"


def log(given: Any) -> Utility:
    """The logarithm of a return. Concave, and minus infinity where the return is not positive.

    Args:
        given: the name of a signal, an array (S,) or (S, A), or a concave utility.
    """
    utility = require_curvature(utility_of(given), Curvature.CONCAVE, "log", RULE)
    return Log(utility, f"log({utility!r})")


def log_barrier(constraint: Constraint) -> Utility:
    """The logarithm of a constraint's slack: concave, and minus infinity where it is violated.

    The paper's safe learning maximises ``linear("reward") + eta * log_barrier(linear("cost") <= b)``.
    """
    if not isinstance(constraint, Constraint):
        raise UtilityError(
            f"log_barrier takes a constraint such as linear('cost') <= 1.0; got {constraint!r}"
        )
    return Log(constraint.slack, f"log_barrier({constraint!r})")


def log_sum(*returns: Any) -> Utility:
    """Proportional fairness: the sum of the logarithms of several returns. Concave.

    Args:
        *returns: names of signals, arrays (S,) or (S, A), or concave utilities.
    """
    if not returns:
        raise UtilityError("log_sum needs at least one return")
    parts = []
    for given in returns:
        utility = require_curvature(utility_of(given), Curvature.CONCAVE, "log_sum", RULE)
        parts.append(Log(utility, f"log_sum({utility!r})"))
    total: Utility = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@dataclass(frozen=True, eq=False, repr=False)
class Log(Utility):
    """The logarithm of a concave utility."""

    inner: Utility
    written: str
    word: ClassVar[str] = "log"
    bends: ClassVar[Curvature] = Curvature.CONCAVE  # as the logarithm is concave and increasing

    def lower(self, space: Space) -> Shape:
        return LogShape((self.inner.lower(space),))

    def children(self) -> tuple[Utility, ...]:
        return (self.inner,)

    def positive(self) -> tuple[Utility, ...]:
        return (self.inner,)

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, inner=children[0])

    def __repr__(self) -> str:
        return self.written
