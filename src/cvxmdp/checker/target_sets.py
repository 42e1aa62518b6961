"""Convex sets that a distance is measured to: the nearest point, and the support, max <v, z> over the set."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog, nnls

from cvxmdp.checker.arithmetic import (
    EPS,
    CertificateError,
    Parameters,
    numbers,
    total,
)


class PointSet:
    """A single point. The base of the others."""

    promises: tuple[str, ...] = ()
    splits = True  # into coordinates: the nearest point is nearest in every norm

    def __init__(self, point: np.ndarray) -> None:
        self.point = point

    def nearest(self, u: np.ndarray) -> np.ndarray:
        """The point of the set nearest to u."""
        return self.point

    def astray(self, u: np.ndarray) -> float:
        """How far the computed nearest point may be outside the set, beyond rounding its entries."""
        return 0.0

    def direction(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """The direction v that the parameters stand for, and the sizes of what was added up in it."""
        v = numbers(parameters, "v", (rows,))
        return v, np.abs(v)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """max <v, z> over the set (or an upper bound), and the size of the terms."""
        return total(v * self.point)


class BallSet(PointSet):
    """A Euclidean ball."""

    splits = False

    def __init__(self, center: np.ndarray, radius: float) -> None:
        super().__init__(center)
        self.radius = radius

    def nearest(self, u: np.ndarray) -> np.ndarray:
        away = u - self.point
        length = float(np.linalg.norm(away))
        return u if length <= self.radius else self.point + away * (self.radius / length)

    def astray(self, u: np.ndarray) -> float:
        """Rounding of the way to the center, which can be much longer than u."""
        return (8 + u.size) * EPS * (float(np.abs(self.point).sum()) + self.radius)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """<v, center> + radius |v|."""
        value, size = total(v * self.point)
        reach = self.radius * float(np.linalg.norm(v)) * (1 + v.size * EPS)
        return value + reach, size + reach


class BoxSet(PointSet):
    """lower <= z <= upper."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.lower, self.upper = lower, upper

    def nearest(self, u: np.ndarray) -> np.ndarray:
        return np.clip(u, self.lower, self.upper)

    def direction(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """A direction along which the box ends; elsewhere the support would be infinite."""
        v, sizes = super().direction(parameters, rows)
        endless = ((v > 0) & ~np.isfinite(self.upper)) | ((v < 0) & ~np.isfinite(self.lower))
        return np.where(endless, 0.0, v), sizes

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """Each coordinate on its own."""
        corner = np.where(v > 0, self.upper, np.where(v < 0, self.lower, 0.0))
        return total(np.where(v == 0, 0.0, v * np.where(v == 0, 0.0, corner)))


class PolytopeSet(PointSet):
    """matrix @ z <= bounds; the direction is matrix' w with w >= 0, its support at most <w, bounds>."""

    splits = False

    def __init__(self, matrix: np.ndarray, bounds: np.ndarray) -> None:
        self.matrix, self.bounds = matrix, bounds
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
        """An upper bound on matrix @ z - bounds."""
        sizes = np.abs(self.matrix) @ np.abs(z) + np.abs(self.bounds)
        return np.asarray(self.matrix @ z - self.bounds + (z.size + 4) * EPS * sizes)

    def astray(self, u: np.ndarray) -> float:
        """How far the computed projection has to go towards the inside to be surely in the set."""
        if self.promises:
            return 0.0
        z = self.nearest(u)
        out = np.maximum(self._excess(z), 0.0)
        share = float((out / (out - self._excess(self.inside))).max())
        return share * float(np.linalg.norm(z - self.inside)) * (1 + (z.size + 8) * EPS)

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
        return self.matrix.T @ weights, sizes

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """<w, bounds>."""
        weights = np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0)
        return total(scale * weights * self.bounds)


def read_set(plain: Any, rows: int) -> PointSet:
    """A set from plain data, refused unless it is one in R^rows that is not obviously empty."""
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if kind == "point":
        return PointSet(_array(plain, "target", (rows,)))
    if kind == "ball":
        radius = float(_array(plain, "radius", ()))
        if radius < 0:
            raise CertificateError("the radius of a ball in the problem is negative")
        return BallSet(_array(plain, "center", (rows,)), radius)
    if kind == "box":
        lower, upper = (_array(plain, side, (rows,), infinite=True) for side in ("lower", "upper"))
        if not (lower <= upper).all():
            raise CertificateError("a box in the problem is empty")
        return BoxSet(lower, upper)
    if kind == "polytope":
        bounds = np.asarray(plain["bounds"], dtype=np.float64)
        if bounds.ndim != 1:
            raise CertificateError("the bounds of a polytope in the problem are not a vector")
        return PolytopeSet(
            _array(plain, "matrix", (bounds.size, rows)), _array(plain, "bounds", (bounds.size,))
        )
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
