"""The occupancy as a CVXPY variable, over the pairs that some policy can take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.maps import Map
from cvxmdp.base.errors import require


class Rows(NamedTuple):
    """u = M x as an expression."""

    expression: Any
    rows: np.ndarray

    def slope(self, factor: float) -> np.ndarray | None:
        """There is no equation to read it from."""
        return None


class OccupancyVariable:
    """What ``Shape.conic`` is written in.

    Pairs that no policy can take are left out: they are zero anyway, and a logarithm of a variable
    that cannot be positive has no interior for an interior-point method to walk in.

    Attributes:
        usable: boolean (S, A), the pairs that are variables.
        pairs: the CVXPY variable, one number per usable pair, in row-major order.
        side_constraints: on further variables that a form needs; part of the program.
    """

    def __init__(self, usable: np.ndarray) -> None:
        self.cp = require("cvxpy", "convex")
        self.usable = usable
        self.places = np.flatnonzero(usable)
        self.pairs = self.cp.Variable(self.places.size, nonneg=True)
        self.side_constraints: list[Any] = []

    def inner(self, reward: np.ndarray) -> Any:
        """<reward, x>."""
        return reward[self.usable] @ self.pairs

    def argument(self, map: Map, whole: bool = False) -> Rows:
        """U = M x, over rows that can be positive, or over all of them."""
        matrix = map.to_sparse()[:, self.places]
        rows = np.arange(matrix.shape[0]) if whole else np.flatnonzero(np.diff(matrix.indptr))
        return Rows(matrix[rows] @ self.pairs, rows)

    def require(self, *constraints: Any) -> None:
        """Add constraints to the program."""
        self.side_constraints.extend(constraints)
