"""Convex sets in the space of a norm's argument: the nearest point, the support, and CVXPY's description."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from cvxmdp.atoms.shapes.shape import TINY, Parameters, Plain
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.pytrees import Pytree


class NormSet(Pytree):
    """A convex set of vectors u: what a norm takes the distance to."""

    kind: ClassVar[str]

    def project(self, u: Array) -> Array:
        """The nearest point of the set in the Euclidean norm."""
        raise NotImplementedError

    def departing(self, u: np.ndarray, images: np.ndarray) -> np.ndarray:
        """How u - project(u) moves when u moves by each of these rows, (K, rows): all of it, for a point.

        The derivative D of the residual is symmetric, and the Hessian of half the squared distance: zero inside
        a set, where the distance is flat.
        """
        return images

    def rounded(self, u: np.ndarray, edge: float) -> np.ndarray:
        """Of sets that are products: distances row by row, kinks made round, and two derivatives, (3, rows)."""
        raise NotImplementedError

    def inside(self, cp: Any, z: Any) -> list[Any]:
        """CVXPY constraints that say that z lies in the set."""
        raise NotImplementedError

    def size(self) -> float:
        """The norm of some point of the set, which bounds how far it lies from anywhere."""
        raise NotImplementedError

    def parameters(self, residual: np.ndarray) -> Parameters:
        """Parameters of the direction of a residual u - project(u)."""
        return {"v": residual}

    def direction(self, parameters: Parameters) -> np.ndarray:
        """The direction v that the parameters stand for."""
        return np.asarray(parameters["v"], dtype=np.float64)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> float:
        """max <v, z> over the set (or an upper bound); ``scale`` is what the direction was scaled by."""
        raise NotImplementedError

    def plain(self) -> Plain:
        """The kind and the numbers."""
        numbers = {one.name: np.asarray(getattr(self, one.name), float) for one in fields(self)}  # type: ignore[arg-type]
        plain = {name: array if array.ndim else float(array) for name, array in numbers.items()}
        return {"kind": self.kind, **plain}

    def point(self) -> np.ndarray | None:
        """The only point of the set, None where there are more."""
        return None


@dataclass(frozen=True, eq=False)
class Singleton(NormSet):
    """A single point: a vector, or the number of all its entries."""

    target: Array
    kind: ClassVar[str] = "point"

    def project(self, u: Array) -> Array:
        return self.target

    def rounded(self, u: np.ndarray, edge: float) -> np.ndarray:
        """sqrt(r^2 + e^2)."""
        away = u - self.target
        sizes = np.maximum(np.sqrt(away**2 + edge**2), TINY)
        return np.array([sizes, away / sizes, (edge / sizes) ** 2 / sizes])

    def inside(self, cp: Any, z: Any) -> list[Any]:
        return [z == self.target]

    def size(self) -> float:
        return float(np.linalg.norm(self.target))

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> float:
        return float((v * self.target).sum())

    def point(self) -> np.ndarray:
        return np.asarray(self.target, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Ball(NormSet):
    """A Euclidean ball."""

    center: Array
    radius: Array
    kind: ClassVar[str] = "ball"

    def project(self, u: Array) -> Array:
        """On the way to the center, where u lies outside."""
        xp = namespace(u)
        away = u - self.center
        square = (away * away).sum()
        outside = square > self.radius**2
        length = xp.sqrt(xp.where(outside, square, 1.0))
        return xp.where(outside, self.center + self.radius / length * away, u)

    def departing(self, u: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Along the way to the center, and across it what the sphere does not turn away: I - (r/L)(I - aa')."""
        away = u - self.center
        length = float(np.linalg.norm(away))
        if length <= self.radius:
            return np.zeros_like(images)
        share, along = self.radius / length, images @ (away / length)
        return (1.0 - share) * images + share * np.outer(along, away / length)

    def inside(self, cp: Any, z: Any) -> list[Any]:
        return [cp.norm(z - self.center) <= self.radius]

    def size(self) -> float:
        return float(np.linalg.norm(self.center))

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> float:
        return float(v @ self.center + self.radius * np.linalg.norm(v))


@dataclass(frozen=True, eq=False)
class Box(NormSet):
    """Entry by entry between two bounds."""

    lower: Array
    upper: Array
    kind: ClassVar[str] = "box"

    def project(self, u: Array) -> Array:
        return namespace(u).clip(u, self.lower, self.upper)

    def departing(self, u: np.ndarray, images: np.ndarray) -> np.ndarray:
        return np.where((u < self.lower) | (u > self.upper), images, 0.0)

    def rounded(self, u: np.ndarray, edge: float) -> np.ndarray:
        """max(0, t) at each side is (t + |t|) / 2; a box without width is a point again."""
        total = np.zeros((3, *u.shape))
        for side, sign in ((self.upper, 1.0), (self.lower, -1.0)):
            ends = np.isfinite(side)
            away = np.where(ends, sign * (u - np.where(ends, side, 0.0)), -1.0)
            sizes, slopes, bends = Singleton(0.0).rounded(away, edge)
            total += np.where(ends, [away + sizes, sign * (1.0 + slopes), bends], 0.0)
        return 0.5 * total

    def inside(self, cp: Any, z: Any) -> list[Any]:
        below, above = np.isfinite(self.lower), np.isfinite(self.upper)
        sides = [z[below] >= self.lower[below]] if below.any() else []
        return sides + ([z[above] <= self.upper[above]] if above.any() else [])

    def size(self) -> float:
        """The norm of the point of the box nearest to zero."""
        return float(np.linalg.norm(np.clip(0.0, self.lower, self.upper)))

    def direction(self, parameters: Parameters) -> np.ndarray:
        """A direction along which the box ends; elsewhere the support would be infinite."""
        v = super().direction(parameters)
        endless = ((v > 0) & ~np.isfinite(self.upper)) | ((v < 0) & ~np.isfinite(self.lower))
        return np.where(endless, 0.0, v)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> float:
        corner = np.where(v > 0, self.upper, self.lower)
        return float((v * np.where(v == 0, 0.0, corner)).sum())


@dataclass(frozen=True, eq=False)
class Polytope(NormSet):
    """matrix @ z <= bounds; directions are matrix' w with w >= 0, their support at most <w, bounds>."""

    matrix: Array
    bounds: Array
    kind: ClassVar[str] = "polytope"

    def project(self, u: Array) -> Array:
        """Exactly for NumPy; under JAX by Hildreth's dual coordinate ascent, to rounding."""
        step = _least_distance if isinstance(u, np.ndarray) else _hildreth
        return u + step(self.matrix, self.bounds - self.matrix @ u)

    def departing(self, u: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Across the faces that hold the nearest point; along them nothing."""
        pull = self.parameters(u - self.project(u))["w"] * np.linalg.norm(self.matrix, axis=1)
        holds = pull > 1e-9 * max(float(pull.max()), TINY)  # others are rounding
        across = np.linalg.svd(self.matrix[holds], full_matrices=False)
        independent = 1e-12 * across.S.max(initial=0.0) < across.S
        normals = across.Vh[independent]
        return images @ normals.T @ normals

    def inside(self, cp: Any, z: Any) -> list[Any]:
        return [self.matrix @ z <= self.bounds]

    def size(self) -> float:
        """The norm of the point nearest to zero."""
        return float(np.linalg.norm(_least_distance(self.matrix, self.bounds)))

    def parameters(self, residual: np.ndarray) -> Parameters:
        """Weights w with matrix' w nearest to the residual."""
        return {"w": nnls(self.matrix.T, residual, maxiter=100 * len(self.bounds))[0]}

    def direction(self, parameters: Parameters) -> np.ndarray:
        return np.asarray(self.matrix.T @ np.maximum(parameters["w"], 0.0))

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> float:
        return float(scale * (np.maximum(parameters["w"], 0.0) @ self.bounds))


def _least_distance(matrix: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The shortest u with matrix @ u <= room: Lawson and Hanson's reduction to NNLS."""
    if (room >= 0).all():
        return np.zeros(matrix.shape[1])
    if not np.isfinite(room).all():
        return np.full(matrix.shape[1], np.nan)
    # Scaling room does not change the direction of u, and keeps the last row comparable.
    scale = np.abs(room).max()
    stacked = np.vstack([-matrix.T, -room[None, :] / scale])
    wanted = np.zeros(stacked.shape[0])
    wanted[-1] = 1.0
    weights, _ = nnls(stacked, wanted, maxiter=100 * matrix.shape[0])
    residual = stacked @ weights - wanted
    return -scale * residual[:-1] / residual[-1]


def _hildreth(matrix: Array, room: Array, sweeps: int = 20_000) -> Array:
    """The same under JAX: raise one multiplier at a time until none moves any more.

    Where they still move after the last sweep (many nearly dependent rows, a point far away) there is
    no answer, and NaN is returned: a solver that gets there stops and says so.
    """
    matrix = jnp.asarray(matrix, room.dtype)  # a loop's index cannot reach into NumPy
    squares = (matrix * matrix).sum(axis=1)
    tolerance = 4.0 * float(np.finfo(room.dtype).eps) * (1.0 + jnp.abs(room).max())

    def correct(index: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, weights, moved = carry
        excess = matrix[index] @ step - room[index]
        raised = jnp.maximum(0.0, weights[index] + excess / squares[index])
        change = raised - weights[index]
        moved = jnp.maximum(moved, jnp.abs(change) * jnp.sqrt(squares[index]))
        return step - change * matrix[index], weights.at[index].set(raised), moved

    def sweep(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, step, weights, _ = state
        still = jnp.zeros((), room.dtype)
        step, weights, moved = jax.lax.fori_loop(0, len(room), correct, (step, weights, still))
        return count + 1, step, weights, moved

    def unfinished(state: tuple[Array, ...]) -> Array:
        return (state[3] > tolerance) & (state[0] < sweeps)

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros(matrix.shape[1], room.dtype),
        jnp.zeros_like(room),
        jnp.full((), jnp.inf, room.dtype),
    )
    _, step, _, moved = jax.lax.while_loop(unfinished, sweep, start)
    return jnp.where(moved <= 1e3 * tolerance, step, jnp.nan)
