"""entropy() = -sum d log d of the state distribution: exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.function import Array, Constants, OccupancyFunction, Space, namespace
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError, require

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP

FLOOR = 0.01  # of the uniform share, below which the extension for sampling is linear


def entropy(of: str = "state") -> Utility:
    """The entropy of where the policy spends its (discounted) time. Concave.

    With d(s) = (1 - discount) * sum_a x(s,a), it is -sum_s d log d, in nats; 0 log 0 = 0. Nothing
    is renormalised when episodes end, so there d sums to less than one.

    Args:
        of: "state", or "state-action" for the same of (1 - discount) * x.
    """
    if of not in ("state", "state-action"):
        raise UtilityError(f'entropy is of "state" or "state-action"; got {of!r}')
    return Entropy(of)


@dataclass(frozen=True, eq=False, repr=False)
class Entropy(Utility):
    """Entropy as written."""

    of: str

    @property
    def curvature(self) -> Curvature:
        """Concave."""
        return Curvature.CONCAVE

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """The scale 1 - discount comes from the model."""
        return EntropyFunction(1.0 - mdp.discount, self.of)

    def __repr__(self) -> str:
        return "entropy()" if self.of == "state" else f'entropy(of="{self.of}")'


@dataclass(frozen=True, eq=False)
class EntropyFunction(OccupancyFunction):
    """-sum p log p with p = scale * x, summed over actions first for the states' entropy.

    The gradient -scale * (log p + 1) is unbounded at p = 0. There it is evaluated at the smallest
    normal number: finite, so that 0 * gradient is 0 at states no policy reaches, which are the only
    ones where a softmax policy has p = 0. Below zero the value is -infinity.
    """

    scale: float
    of: str
    static: ClassVar[tuple[str, ...]] = ("of",)

    def _distribution(self, x: Array) -> Array:
        return self.scale * (x.sum(axis=1) if self.of == "state" else x)

    def value(self, x: Array) -> Any:
        """The entropy at x."""
        xp = namespace(x)
        p = self._distribution(x)
        inside = p > 0
        terms = -p * xp.log(xp.where(inside, p, 1.0))
        border = xp.where(p < 0, -xp.inf, 0.0 * p)  # zero, or NaN where p is
        return xp.where(inside, terms, border).sum()

    def gradient(self, x: Array) -> Array:
        """-scale * (log p + 1)."""
        xp = namespace(x)
        p = self._distribution(x)
        slope = -self.scale * (xp.log(xp.maximum(p, xp.finfo(p.dtype).tiny)) + 1.0)
        return slope[:, None] + 0.0 * x if self.of == "state" else slope

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """A sum of CVXPY's entr, -p log p."""
        cp = require("cvxpy", "convex")
        p = self.scale * (x.state_sums if self.of == "state" else x.pairs)
        return cp.sum(cp.entr(p))

    def extended(self) -> OccupancyFunction:
        """Linear where p is below ``FLOOR`` of the uniform share."""
        return ExtendedEntropyFunction(self.scale, self.of)

    def constants(self, space: Space) -> Constants:
        """|f| <= log n, or n/e for n < 3 cells; neither Lipschitz nor smooth at the border."""
        # Where episodes end the mass m is below one; m log(n / m) is largest at m = min(1, n / e).
        cells = space.n_states * (1 if self.of == "state" else space.n_actions)
        return Constants(None, None, math.log(cells) if cells > math.e else cells / math.e)


@dataclass(frozen=True, eq=False)
class ExtendedEntropyFunction(EntropyFunction):
    """The entropy with each -p log p continued along its tangent below a floor.

    The floor is ``FLOOR`` divided by the number of cells: a hundredth of what the uniform distribution
    gives a cell. Slopes are then at most scale * log(cells / FLOOR).
    """

    def _raised(self, x: Array) -> tuple[Array, Array]:
        p = self._distribution(x)
        return p, namespace(x).maximum(p, FLOOR / p.size)

    def value(self, x: Array) -> Any:
        """-q log q - (log q + 1)(p - q) with q = max(p, floor)."""
        p, q = self._raised(x)
        logs = namespace(x).log(q)
        return (-q * logs - (logs + 1.0) * (p - q)).sum()

    def gradient(self, x: Array) -> Array:
        """-scale * (log q + 1)."""
        _, q = self._raised(x)
        slope = -self.scale * (namespace(x).log(q) + 1.0)
        return slope[:, None] + 0.0 * x if self.of == "state" else slope

    def extended(self) -> OccupancyFunction:
        """Itself."""
        return self
