"""A norm of the distance of u = M x to a convex set. Convex."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.maps import FirstRows, Map
from cvxmdp.atoms.shapes.norm_sets import NormSet
from cvxmdp.atoms.shapes.shape import (
    TINY,
    ConicProgram,
    Constants,
    Form,
    Parameters,
    Plain,
    Shape,
    Tangent,
)
from cvxmdp.atoms.shapes.softened import SoftNorm
from cvxmdp.base.arrays import Array, detached, namespace
from cvxmdp.models.space import Space


@dataclass(frozen=True, eq=False)
class NormShape(Shape):
    """A norm ("l1", "l2" or "l2-squared") of u - projection(u).

    Where the norm has a kink (l1 at equal entries, l2 at distance zero) the gradient is the
    subgradient with zeros there.
    """

    map: Map
    set: NormSet
    norm: str
    static: ClassVar[tuple[str, ...]] = ("norm",)
    kind: ClassVar[str] = "norm"
    roughness: ClassVar[str] = "its gradient jumps at the target; the norm 'l2-squared' is smooth"

    def _residual(self, x: Array) -> Array:
        # By the envelope theorem the projection may be held fixed while differentiating.
        u = self.map.apply(x)
        return u - self.set.project(detached(u))

    def value(self, x: Array) -> Any:
        """The norm of the residual."""
        xp = namespace(x)
        residual = self._residual(x)
        if self.norm == "l1":
            # |r|, but with derivative 0 at r = 0 (jnp.abs has 1 there): inside a box it is flat
            return (residual * xp.sign(residual)).sum()
        square = (residual * residual).sum()
        if self.norm == "l2-squared":
            return square
        # sqrt has no derivative at zero; the inner where keeps automatic differentiation finite.
        return xp.where(square == 0, 0.0, xp.sqrt(xp.where(square == 0, 1.0, square)))

    def _slope(self, residual: Array) -> Array:
        """The gradient in u: sign, direction, or twice the residual."""
        xp = namespace(residual)
        if self.norm == "l1":
            return xp.sign(residual)
        if self.norm == "l2-squared":
            return 2.0 * residual
        length = xp.sqrt((residual * residual).sum())
        return residual / xp.where(length > 0, length, 1.0)

    def gradient(self, x: Array) -> Array:
        """M' of the slope."""
        return self.map.pull_back(self._slope(self._residual(x)))

    def softened(self, x: np.ndarray) -> Shape:
        """Weights that start at zero; the sharpness by the typical size of u."""
        if self.norm == "l2-squared":
            return self
        # Of a row for l1, whose weights are separate, else a tenth of the whole.
        u = self.map.apply(x)
        size = float(np.abs(u).mean() if self.norm == "l1" else 0.1 * np.linalg.norm(u))
        return SoftNorm(self.map, self.set, np.zeros(u.shape), 1.0 / max(size, 1e-9), self.norm)

    def conic(self, program: ConicProgram) -> Form:
        """The norm of u - z, with z a variable of the program that lies in the set."""
        cp, u = program.cp, program.argument(self.map, whole=True)
        nearest = self.set.point()
        if nearest is None:
            nearest = cp.Variable(self.map.rows)
            program.require(*self.set.inside(cp, nearest))
        norms = {"l1": cp.norm1, "l2": cp.norm2, "l2-squared": cp.sum_squares}

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            slope = u.slope(factor)
            return self.at(x) if slope is None else self.from_slope(slope)

        return Form(norms[self.norm](u.expression - nearest), parameters)

    def tangent(self, parameters: Parameters) -> Tangent:
        """<v, u> - support(v) with |v| <= 1 in the dual norm; for squares 2 <v, u> - 2 support(v) - |v|^2."""
        v, scale = self.set.direction(parameters), 1.0
        if self.norm == "l1":
            scale = 1.0 / max(1.0, float(np.abs(v).max(initial=0.0)))
        elif self.norm == "l2":
            scale = 1.0 / max(1.0, float(np.linalg.norm(v)))
        v = scale * v
        support = self.set.support(v, parameters, scale)
        if self.norm == "l2-squared":
            return Tangent(self.map.pull_back(2.0 * v), -2.0 * support - float(v @ v))
        return Tangent(self.map.pull_back(v), -support)

    def at(self, x: np.ndarray) -> Parameters:
        """The residual's sign, direction, or itself."""
        residual = self._residual(x)
        if self.norm == "l1":
            residual = np.sign(residual)
        elif self.norm == "l2":
            residual = residual / max(float(np.linalg.norm(residual)), TINY)
        return self.set.parameters(residual)

    def from_slope(self, slope: np.ndarray) -> Parameters:
        """V is the slope, or half of it for squares."""
        return self.set.parameters(slope / 2.0 if self.norm == "l2-squared" else slope)

    def constants(self, space: Space) -> Constants:
        """l1: sqrt(rows)-Lipschitz; l2: 1-Lipschitz; squared: 2-smooth, strong for a point; times |M|."""
        largest, least = self.map.singular()
        reach = largest * space.max_mass + self.set.size()  # no occupancy is further away
        if self.norm == "l1":
            steep = math.sqrt(self.map.rows)
            return Constants(steep * largest, None, steep * reach)
        if self.norm == "l2":
            return Constants(largest, None, reach)
        strength = 0.0 if self.set.point() is None else 2.0 * least**2
        return Constants(2.0 * largest * reach, 2.0 * largest**2, reach**2, strength)

    def plain(self) -> Plain:
        """Norm, map and set."""
        matrix, described = self.map.to_sparse(), self.set.plain()
        offset = np.zeros(matrix.shape[0])
        if self.set.point() is not None:
            described["target"] = np.broadcast_to(described["target"], offset.shape).copy()
        return {
            "kind": self.kind,
            "norm": self.norm,
            "map": matrix,
            "offset": offset,
            "set": described,
        }

    def on_first_rows(self, shape: tuple[int, int]) -> Shape:
        """Under another map."""
        return replace(self, map=FirstRows(self.map, shape))

    def target(self) -> np.ndarray | None:
        """The point, where the distance is that of the occupancy itself."""
        point = self.set.point()
        if point is None or not self.map.is_identity:
            return None
        return point.reshape(-1, self.map.shape[1])
