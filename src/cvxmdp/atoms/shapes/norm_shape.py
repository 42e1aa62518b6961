"""A norm of the distance of u = M x to a convex set. Convex."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from cvxmdp.base.interval import Interval
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
        return self._norm(self._residual(x))

    def _norm(self, residual: Array) -> Any:
        xp = namespace(residual)
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
        if self.norm == "l1":
            return float(self.set.rounded(at.u[0], rounding / at.u[0].size)[0].sum())
        square = float(((at.u[0] - self.set.project(at.u[0])) ** 2).sum())
        return square if self.norm == "l2-squared" else math.sqrt(square + rounding**2)

    def second(self, at: Mixed, rounding: float) -> Local:
        """The Hessian of the squared distance, seen through the norm; of l1 row by row."""
        (images,), (u,), _ = at
        value = self.mixed_value(at, rounding)
        if self.norm == "l1":
            _, slopes, bends = self.set.rounded(u, rounding / u.size)
            return Local(
                value, images @ slopes, (images * bends) @ images.T, self.set.parameters(slopes)
            )
        residual, departing = u - self.set.project(u), self.set.departing(u, images)
        if self.norm == "l2-squared":
            parameters = self.set.parameters(residual)
            return Local(value, images @ (2.0 * residual), 2.0 * images @ departing.T, parameters)
        length = max(value, TINY)  # zero where rounding underflows: then the residual is zero, too
        direction = residual / length
        along = images @ direction
        hessian = (images @ departing.T - np.outer(along, along)) / length
        return Local(value, along, hessian, self.set.parameters(direction))

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        """At u itself, where that is a vector of returns."""
        u = np.asarray(values, dtype=np.float64)
        return float(self._norm(u - self.set.project(u)))

    def combined_interval(self, parts: Sequence[Interval]) -> tuple[float, float]:
        """A distance changes by no more than u moves."""
        u = [part.value for part in parts]
        room = np.array([max(one.upper - one.value, one.value - one.lower) for one in parts])
        squared = self.norm == "l2-squared"
        value = self.combined_value(u)
        distance = math.sqrt(value) if squared else value
        moved = float(room.sum() if self.norm == "l1" else np.linalg.norm(room))
        ends = max(distance - moved, 0.0), distance + moved
        return (ends[0] ** 2, ends[1] ** 2) if squared else ends

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
