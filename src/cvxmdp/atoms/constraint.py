"""Constraints: a utility compared with a budget. Slack is signed; violation is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError


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
        wanted = Curvature.CONVEX if self.sense == "<=" else Curvature.CONCAVE
        require_curvature(self.utility, wanted, f"{self!r}: {self.sense}")

    @property
    def slack(self) -> Utility:
        """The paper's g: concave, at least zero where the constraint holds."""
        return self.budget - self.utility if self.sense == "<=" else self.utility - self.budget

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
        return f"{self.utility!r} {self.sense} {self.budget:g}"
