"""Convex sets that a distance is measured to: the nearest point, and the support, max <v, z> over the set."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog, nnls

from cvxmdp.checker.arithmetic import (
    EPS,
    CertificateError,
    NotVerifiableError,
    Number,
    Parameters,
    numbers,
)
from cvxmdp.checker.scalars import FLOATS, ScalarKind


class PointSet:
    """A single point. The base of the others."""

    promises: tuple[str, ...] = ()
    splits = True  # into coordinates: the nearest point is nearest in every norm

    def __init__(self, point: np.ndarray, scalars: ScalarKind = FLOATS) -> None:
        self.centre, self.point, self.scalars = point, scalars.array(point), scalars

    def nearest(self, u: np.ndarray) -> np.ndarray:
        """The point of the set nearest to u, in floats."""
        return self.centre

    def distance(self, u: np.ndarray, norm: str) -> Number:
        """Of u to the set, in the norm."""
        return self.measured(u - self.point, norm)

    def measured(self, way: np.ndarray, norm: str) -> Number:
        """A norm, by its name."""
        if norm == "l1":
            return self.scalars.total(np.abs(way))[0]
        square = self.scalars.total(way * way)[0]
        return square if norm == "l2-squared" else self.scalars.sqrt(square)

    def astray(self, u: np.ndarray) -> float:
        """How far the computed nearest point may be outside the set, beyond rounding its entries."""
        return 0.0

    def outside(self, z: np.ndarray) -> Number:
        """How far z, a point that ``nearest`` gave, is from the set at most."""
        if self.scalars.exact:
            return self.distance(self.scalars.array(z), "l2")
        return self.astray(z) + 16 * EPS * float(np.linalg.norm(z))

    def direction(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """The direction v that the parameters stand for, and the sizes of what was added up in it."""
        v = self.scalars.array(numbers(parameters, "v", (rows,)))
        return v, np.abs(v)

    def support(
        self, v: np.ndarray, parameters: Parameters, scale: Number
    ) -> tuple[Number, Number]:
        """max <v, z> over the set (or an upper bound), and the size of the terms."""
        return self.scalars.total(v * self.point)


class BallSet(PointSet):
    """A Euclidean ball."""

    splits = False

    def __init__(self, center: np.ndarray, radius: float, scalars: ScalarKind = FLOATS) -> None:
        super().__init__(center, scalars)
        self.radius = radius

    def nearest(self, u: np.ndarray) -> np.ndarray:
        away = u - self.centre
        length = float(np.linalg.norm(away))
        return u if length <= self.radius else self.centre + away * (self.radius / length)

    def distance(self, u: np.ndarray, norm: str) -> Number:
        """|u - center| beyond the radius."""
        of = self.scalars
        beyond = of.nonnegative(of.length(u - self.point) - of.number(self.radius))
        return beyond * beyond if norm == "l2-squared" else beyond

    def astray(self, u: np.ndarray) -> float:
        """Rounding of the way to the center, which can be much longer than u."""
        return (8 + u.size) * EPS * (float(np.abs(self.centre).sum()) + self.radius)

    def support(
        self, v: np.ndarray, parameters: Parameters, scale: Number
    ) -> tuple[Number, Number]:
        """<v, center> + radius |v|."""
        of = self.scalars
        value, size = of.total(v * self.point)
        reach = self.radius * of.length(v) * (1 + (v.size + 2) * of.eps)
        return value + reach, size + reach


class BoxSet(PointSet):
    """lower <= z <= upper; sides may be infinite."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray, scalars: ScalarKind = FLOATS) -> None:
        self.lower, self.upper, self.scalars = lower, upper, scalars

    def nearest(self, u: np.ndarray) -> np.ndarray:
        return np.clip(u, self.lower, self.upper)

    def distance(self, u: np.ndarray, norm: str) -> Number:
        """Beyond the sides; an infinite one is never reached."""
        of, way = self.scalars, self.scalars.array(np.zeros(u.shape))
        below, above = np.isfinite(self.lower), np.isfinite(self.upper)
        way[below] = way[below] + of.nonnegative(of.array(self.lower[below]) - u[below])
        way[above] = way[above] + of.nonnegative(u[above] - of.array(self.upper[above]))
        return self.measured(way, norm)

    def direction(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """A direction along which the box ends; elsewhere the support would be infinite."""
        v = numbers(parameters, "v", (rows,))
        endless = ((v > 0) & ~np.isfinite(self.upper)) | ((v < 0) & ~np.isfinite(self.lower))
        return self.scalars.array(np.where(endless, 0.0, v)), self.scalars.array(np.abs(v))

    def support(
        self, v: np.ndarray, parameters: Parameters, scale: Number
    ) -> tuple[Number, Number]:
        """Each coordinate on its own."""
        corner = np.where(v > 0, self.upper, np.where(v < 0, self.lower, 0.0))
        return self.scalars.total(v * self.scalars.array(corner))


class PolytopeSet(PointSet):
    """matrix @ z <= bounds; the direction is matrix' w with w >= 0, its support at most <w, bounds>."""

    splits = False

    def __init__(
        self, matrix: np.ndarray, bounds: np.ndarray, scalars: ScalarKind = FLOATS
    ) -> None:
        self.matrix, self.bounds, self.scalars = matrix, bounds, scalars
        self.inside = self._deep_inside()
        self.promises = (
            ()
            if (self._excess(self.inside) < 0).all()
            else ("a polytope has no interior, and the projection on it is computed to rounding",)
        )

    def _deep_inside(self) -> np.ndarray:
        """The point furthest from all faces, up to a distance of one; what it is worth is measured."""
        size = self.matrix.shape[1]
        found = linprog(
            np.append(np.zeros(size), -1.0),
            A_ub=np.column_stack([self.matrix, np.linalg.norm(self.matrix, axis=1)]),
            b_ub=self.bounds,
            bounds=[(None, None)] * size + [(None, 1.0)],
        )
        return np.zeros(size) if found.x is None else np.asarray(found.x[:-1])

    def _excess(self, z: np.ndarray) -> np.ndarray:
        """An upper bound on matrix @ z - bounds, z floats."""
        of = self.scalars
        beyond = of.array(self.matrix) @ of.array(z) - of.array(self.bounds)
        sizes = np.abs(self.matrix) @ np.abs(z) + np.abs(self.bounds)
        return np.asarray(beyond + (z.size + 4) * of.eps * sizes)

    def _share(self, z: np.ndarray) -> Number:
        """From z, which may be outside by e_i > 0 at face i, towards a point inside by -s_i > 0, the share
        e_i / (e_i - s_i) of the way is enough.
        """
        out = self.scalars.nonnegative(self._excess(z))
        return self.scalars.greatest(out / (out - self._excess(self.inside)))

    def distance(self, u: np.ndarray, norm: str) -> Number:
        """To the computed projection; exactly, to a point near it that is surely in the set."""
        of = self.scalars
        z = self.nearest(of.rough(u))
        if not of.exact:
            return self.measured(u - z, norm)
        if self.promises:
            raise NotVerifiableError("a polytope has no interior: no point is surely in it")
        inside = of.array(self.inside)
        return self.measured(u - of.array(z) - self._share(z) * (inside - of.array(z)), norm)

    def astray(self, u: np.ndarray) -> float:
        """How far the computed projection has to go towards the inside to be surely in the set."""
        if self.promises:
            return 0.0
        z = self.nearest(u)
        way = float(np.linalg.norm(z - self.inside))
        return float(self._share(z)) * way * (1 + (z.size + 8) * EPS)

    def nearest(self, u: np.ndarray) -> np.ndarray:
        """The projection, from its dual: non-negative least squares (Lawson and Hanson)."""
        excess = self.matrix @ u - self.bounds
        if (excess <= 0).all():
            return u
        scale = float(np.abs(excess).max())
        stacked = np.vstack([-self.matrix.T, excess[None, :] / scale])
        wanted = np.concatenate([np.zeros(u.size), [1.0]])
        weights, _ = nnls(stacked, wanted, maxiter=100 * len(self.bounds))
        weights = scale * weights / max(1.0 - float(stacked[-1] @ weights), 1e-300)
        return np.asarray(u - self.matrix.T @ weights)

    def direction(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, np.ndarray]:
        weights = np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0)
        sizes = np.abs(self.matrix).T @ weights * (1 + weights.size / 8)
        of = self.scalars
        return of.array(self.matrix.T) @ of.array(weights), of.array(sizes)

    def support(
        self, v: np.ndarray, parameters: Parameters, scale: Number
    ) -> tuple[Number, Number]:
        """<w, bounds>."""
        of = self.scalars
        weights = of.array(np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0))
        return of.total(scale * weights * of.array(self.bounds))


def read_set(plain: Any, rows: int, scalars: ScalarKind = FLOATS) -> PointSet:
    """A set from plain data, refused unless it is one in R^rows that is not obviously empty."""
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if kind == "point":
        return PointSet(_array(plain, "target", (rows,)), scalars)
    if kind == "ball":
        radius = float(_array(plain, "radius", ()))
        if radius < 0:
            raise CertificateError("the radius of a ball in the problem is negative")
        return BallSet(_array(plain, "center", (rows,)), radius, scalars)
    if kind == "box":
        lower, upper = (_array(plain, side, (rows,), infinite=True) for side in ("lower", "upper"))
        if not (lower <= upper).all():
            raise CertificateError("a box in the problem is empty")
        return BoxSet(lower, upper, scalars)
    if kind == "polytope":
        bounds = np.asarray(plain["bounds"], dtype=np.float64)
        if bounds.ndim != 1:
            raise CertificateError("the bounds of a polytope in the problem are not a vector")
        matrix = _array(plain, "matrix", (bounds.size, rows))
        return PolytopeSet(matrix, _array(plain, "bounds", (bounds.size,)), scalars)
    raise CertificateError(f"there is no closed form to certify the distance to a {kind!r}")


def _array(
    plain: dict[str, Any], name: str, shape: tuple[int, ...], infinite: bool = False
) -> np.ndarray:
    array = np.asarray(plain[name], dtype=np.float64)
    wrong = np.isnan(array).any() if infinite else not np.isfinite(array).all()
    if array.shape != shape or wrong:
        raise CertificateError(
            f"{name!r} of a set in the problem has shape {array.shape}; expected finite numbers of "
            f"shape {shape}"
        )
    return array
