"""Logarithms of concave utilities: log barriers (safe learning) and proportional fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cvxmdp.atoms.constraint import Constraint
from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.function import Array, OccupancyFunction, namespace
from cvxmdp.atoms.linear import linear
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError, require

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP

FLOOR = 0.01  # of the argument, below which the extension for sampling is linear


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
        utility = given if isinstance(given, Utility) else linear(given)
        require_curvature(utility, Curvature.CONCAVE, "log_sum")
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

    @property
    def curvature(self) -> Curvature:
        """Concave: the logarithm is concave and increasing."""
        return Curvature.CONCAVE

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """Bind what is inside."""
        return LogFunction(self.inner.bind(mdp))

    def __repr__(self) -> str:
        return self.written


@dataclass(frozen=True, eq=False)
class LogFunction(OccupancyFunction):
    """log(inner(x)); minus infinity where inner is not positive.

    The gradient is gradient(inner) / inner, unbounded towards the border. Outside the domain there is
    none, and NaN is returned: a solver that gets there stops and says so.
    """

    inner: OccupancyFunction

    def value(self, x: Array) -> Any:
        """The logarithm of the inner value."""
        xp = namespace(x)
        inside = self.inner.value(x)
        outside = inside <= 0  # false for NaN, which must not pass for minus infinity
        return xp.where(outside, -xp.inf, xp.log(xp.where(outside, 1.0, inside)))

    def gradient(self, x: Array) -> Array:
        """gradient(inner) / inner."""
        xp = namespace(x)
        inside = self.inner.value(x)
        return self.inner.gradient(x) / xp.where(inside > 0, inside, xp.nan)

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """CVXPY's log."""
        cp = require("cvxpy", "convex")
        form = self.inner.to_cvxpy(x)
        # The sum of one number is that number: CVXPY 1.9 gives log(number - sum_squares) a wrong shape.
        return None if form is None else cp.log(cp.sum(form))

    def extended(self) -> OccupancyFunction:
        """Linear where the inside is below ``FLOOR``."""
        return ExtendedLogFunction(self.inner.extended())


@dataclass(frozen=True, eq=False)
class ExtendedLogFunction(LogFunction):
    """The logarithm continued along its tangent at ``FLOOR``."""

    def value(self, x: Array) -> Any:
        """log q + (u - q) / q with q = max(u, floor)."""
        xp = namespace(x)
        inside = self.inner.value(x)
        raised = xp.maximum(inside, FLOOR)
        return xp.log(raised) + (inside - raised) / raised

    def gradient(self, x: Array) -> Array:
        """gradient(inner) / q."""
        return self.inner.gradient(x) / namespace(x).maximum(self.inner.value(x), FLOOR)

    def extended(self) -> OccupancyFunction:
        """Itself."""
        return self
