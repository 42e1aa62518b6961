"""minimum(u_1, ..., u_n): max-min fairness, the worst of several concave utilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.function import Array, Constants, OccupancyFunction, Space, namespace
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError, require

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP


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

    @property
    def curvature(self) -> Curvature:
        """Concave."""
        return Curvature.CONCAVE

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """Bind each."""
        return MinimumFunction(tuple(utility.bind(mdp) for utility in self.utilities))

    def __repr__(self) -> str:
        return f"minimum({', '.join(repr(utility) for utility in self.utilities)})"


@dataclass(frozen=True, eq=False)
class MinimumFunction(OccupancyFunction):
    """min_k functions[k](x). At a kink the gradient is that of the first smallest one."""

    functions: tuple[OccupancyFunction, ...]

    def _values(self, x: Array) -> Array:
        return namespace(x).stack([function.value(x) for function in self.functions])

    def value(self, x: Array) -> Any:
        """The smallest value."""
        return self._values(x).min()

    def gradient(self, x: Array) -> Array:
        """The gradient of the smallest."""
        xp = namespace(x)
        smallest = self._values(x).argmin()
        return xp.stack([function.gradient(x) for function in self.functions])[smallest]

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """CVXPY's minimum."""
        cp = require("cvxpy", "convex")
        forms = [function.to_cvxpy(x) for function in self.functions]
        if any(form is None for form in forms):
            return None
        return cp.minimum(*forms) if len(forms) > 1 else forms[0]

    def extended(self) -> OccupancyFunction:
        """Each function extended."""
        return MinimumFunction(tuple(part.extended() for part in self.functions))

    def constants(self, space: Space) -> Constants:
        """As Lipschitz and as large as the worst of them; not smooth; as strong as the weakest."""
        parts = [function.constants(space) for function in self.functions]
        if len(parts) == 1:
            return parts[0]

        def largest(values: list[float | None]) -> float | None:
            known = [value for value in values if value is not None]
            return max(known) if len(known) == len(values) else None

        return Constants(
            largest([part.lipschitz for part in parts]),
            None,
            largest([part.bound for part in parts]),
            min(part.strength for part in parts),
        )
