"""A norm of the distance of u = M x to a convex set. Convex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.norm_sets import NormSet
from cvxmdp.atoms.shapes.shape import (
    TINY,
    Affine,
    ConicForm,
    ConicProgram,
    Constants,
    Local,
    MappedShape,
    Mixed,
    Modulus,
    Parameters,
    Plain,
    Shape,
    slope_of,
)
from cvxmdp.atoms.shapes.softened import SoftNorm
from cvxmdp.base.arrays import Array, detached, namespace
from cvxmdp.models.space import Space


@dataclass(frozen=True, eq=False)
class NormShape(MappedShape):
    """A norm ("l1", "l2" or "l2-squared") of u - projection(u).

    Where the norm has a kink (l1 at equal entries, l2 at distance zero) the gradient is the
    subgradient with zeros there.
    """

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
        return self.map.pull_back(self._slope(self._residual(x)))

    def softened(self, x: np.ndarray) -> Shape:
        """Weights that start at zero; the sharpness by the typical size of u."""
        if self.norm == "l2-squared":
            return self
        # Terms may cancel at this x, as a change of decisions does at the policy itself; their sizes do not.
        u = abs(self.map.to_sparse()) @ np.abs(x).ravel()
        # Of a row for l1, whose weights are separate, else a tenth of the whole.
        size = float(u.mean() if self.norm == "l1" else 0.1 * np.linalg.norm(u))
        return SoftNorm(self.map, self.set, np.zeros(u.shape), 1.0 / max(size, 1e-9), self.norm)

    def conic(self, program: ConicProgram) -> ConicForm:
        """The norm of u - z, with z a variable of the program that lies in the set; in units of its size.

        The duals of its cones are the slope; of a square, that of the equation r = u - z.
        """
        cp, nearest = program.cp, self.set.point()
        if nearest is None:
            nearest = cp.Variable(self.map.rows)
            program.require(*self.set.inside(cp, nearest))
        unit = program.size(self._residual)
        residual = (program.image(self.map) - nearest) / unit
        t = cp.Variable(1 if self.norm == "l2" else self.map.rows)
        squared = self.norm == "l2-squared"
        value = unit**2 * cp.sum_squares(t) if squared else unit * cp.sum(t)
        sides = self._sides(cp, t, residual)
        program.require(*sides)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            slope = slope_of(self._dual([side.dual_value for side in sides]), unit * factor)
            return self.at(x) if slope is None else self.set.parameters(slope)

        return ConicForm(value, parameters)

    def _sides(self, cp: Any, t: Any, residual: Any) -> list[Any]:
        """T is at least the norm, or for squares the residual itself."""
        if self.norm == "l1":
            return [residual <= t, -residual <= t]
        return [cp.SOC(t, residual)] if self.norm == "l2" else [t == residual]

    def _dual(self, duals: list[Any]) -> Any:
        """Of the residual, from those of the program; half of it for squares."""
        if duals[0] is None:
            return None
        if self.norm == "l1":
            return duals[1] - duals[0]
        return duals[0][1] if self.norm == "l2" else 0.5 * duals[0]

    def tangent(self, parameters: Parameters) -> Affine:
        """<v, u> - support(v) with |v| <= 1 in the dual norm; for squares 2 <v, u> - 2 support(v) - |v|^2."""
        v, scale = self.set.direction(parameters), 1.0
        if self.norm == "l1":
            scale = 1.0 / max(1.0, float(np.abs(v).max(initial=0.0)))
        elif self.norm == "l2":
            scale = 1.0 / max(1.0, float(np.linalg.norm(v)))
        v = scale * v
        support = self.set.support(v, parameters, scale)
        if self.norm == "l2-squared":
            return Affine(self.map.pull_back(2.0 * v), -2.0 * support - float(v @ v))
        return Affine(self.map.pull_back(v), -support)

    def at(self, x: np.ndarray) -> Parameters:
        """The residual's sign, direction, or itself."""
        residual = self._residual(x)
        if self.norm == "l1":
            residual = np.sign(residual)
        elif self.norm == "l2":
            residual = residual / max(float(np.linalg.norm(residual)), TINY)
        return self.set.parameters(residual)

    def mixed_value(self, at: Mixed, rounding: float) -> float:
        """The norm, with |r| rounded to sqrt(r^2 + e^2)."""
        residual = at.u[0] - self.set.project(at.u[0])
        if self.norm == "l2-squared":
            return float((residual**2).sum())
        if self.norm == "l1":
            return float(np.sqrt(residual**2 + (rounding / residual.size) ** 2).sum())
        return math.sqrt(float((residual**2).sum()) + rounding**2)

    def second(self, at: Mixed, rounding: float) -> Local:
        """The projection counts as fixed in the Hessian, which then bends at least as much."""
        (images,), (u,), _ = at
        residual = u - self.set.project(u)
        value = self.mixed_value(at, rounding)
        if self.norm == "l2-squared":
            parameters = self.set.parameters(residual)
            return Local(value, images @ (2.0 * residual), 2.0 * images @ images.T, parameters)
        if self.norm == "l1":
            edge = rounding / residual.size
            sizes = np.sqrt(residual**2 + edge**2)
            direction = residual / sizes
            bent = images * (edge / sizes**1.5)
            hessian = bent @ bent.T
        else:
            length = max(
                value, TINY
            )  # zero where rounding underflows: then the residual is zero, too
            direction = residual / length
            along = images @ direction
            hessian = (images @ images.T - np.outer(along, along)) / length
        return Local(value, images @ direction, hessian, self.set.parameters(direction))

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
        """Distances change by no more than u moves."""
        absolute, longest = self.map.column_norms()
        if self.norm == "l1":
            return Modulus(lambda step: absolute * step.l1)
        spectral = self.map.singular()[0]
        squared = self.norm == "l2-squared"
        return Modulus(lambda step: min(spectral * step.l2, longest * step.l1), squared)

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
        matrix, described = self.map.to_sparse(), self.set.plain()
        offset = np.zeros(matrix.shape[0])
        if self.set.point() is not None:
            described["target"] = np.broadcast_to(described["target"], offset.shape).copy()
        fixed = {"kind": self.kind, "norm": self.norm}
        return {**fixed, "map": matrix, "offset": offset, "set": described}

    def closest(self, x: np.ndarray) -> np.ndarray | None:
        u = self.map.apply(x)
        return self.map.towards(np.broadcast_to(self.set.project(u), u.shape), x)

    def target(self) -> np.ndarray | None:
        """The point, where the distance is that of the occupancy itself."""
        point = self.set.point()
        if point is None or not self.map.is_identity:
            return None
        return point.reshape(-1, self.map.shape[1])
