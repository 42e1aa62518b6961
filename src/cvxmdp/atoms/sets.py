"""Convex sets of occupancies and the Euclidean projection on them, for ``distance``.

Like utilities, sets are written without a model and bound to one: ``bind`` checks shapes and turns
policies into their occupancies.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog, nnls

from cvxmdp.atoms.function import Array, namespace, real_array
from cvxmdp.base.errors import UtilityError, require
from cvxmdp.base.pytrees import Record
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.occupancies import occupancy_of
from cvxmdp.policies.policy import Policy


def ball(center: Any, radius: float) -> ConvexSet:
    """All points within a Euclidean distance ``radius`` of ``center`` (an occupancy or a policy)."""
    if not isinstance(radius, Real) or not 0 <= radius < np.inf:
        raise UtilityError(f"the radius of a ball must be finite and not negative; got {radius!r}")
    return ConvexSet("ball", (point_like(center, "center"), float(radius)))


def box(lower: Any, upper: Any) -> ConvexSet:
    """All points between ``lower`` and ``upper``, entry by entry; infinite bounds are allowed.

    Args:
        lower, upper: numbers or arrays of shape (S, A).
    """
    low, high = real_array(lower, "lower of a box"), real_array(upper, "upper of a box")
    shapes = {side.shape for side in (low, high) if side.ndim}
    if len(shapes) > 1 or any(len(shape) != 2 for shape in shapes):
        raise UtilityError(
            f"the bounds of a box are numbers or arrays (S, A); got shapes {low.shape} and {high.shape}"
        )
    if np.isnan(low).any() or np.isnan(high).any():
        raise UtilityError("a bound of the box is NaN")
    if (low > high).any():
        where = tuple(int(index) for index in np.argwhere(low > high)[0])
        raise UtilityError(
            "the box is empty: lower is above upper" + (f" at entry {where}" if where else "")
        )
    if (low == np.inf).any() or (high == -np.inf).any():
        raise UtilityError("the box is empty: no number is above lower = inf or below upper = -inf")
    return ConvexSet("box", (low, high))


def polytope(matrix: Any, bounds: Any) -> ConvexSet:
    """All points z with ``<matrix[i], z> <= bounds[i]`` for every i.

    Args:
        matrix: shape (m, S, A), or (m, S*A) in row-major order.
        bounds: shape (m,).
    """
    rows = real_array(matrix, "the matrix of a polytope")
    limits = real_array(bounds, "the bounds of a polytope")
    if rows.ndim not in (2, 3) or limits.shape != rows.shape[:1] or 0 in rows.shape:
        raise UtilityError(
            f"a polytope needs a matrix (m, S, A) or (m, S*A) and bounds (m,); got {rows.shape} and "
            f"{limits.shape}"
        )
    if not (np.isfinite(rows).all() and np.isfinite(limits).all()):
        raise UtilityError("the polytope's matrix and bounds must be finite; leave out free rows")
    flat = rows.reshape(rows.shape[0], -1)
    empty_rows = ~flat.any(axis=1)
    impossible = empty_rows & (limits < 0)
    if impossible.any():
        raise UtilityError(
            f"the polytope is empty: row {np.argmax(impossible)} reads 0 <= a negative"
        )
    if empty_rows.all():
        raise UtilityError("every row of the polytope is zero, so that it contains every point")
    rows, flat, limits = rows[~empty_rows], flat[~empty_rows], limits[~empty_rows]
    found = linprog(np.zeros(flat.shape[1]), A_ub=flat, b_ub=limits, bounds=(None, None))
    if found.status == 2:
        raise UtilityError("the polytope is empty: no point satisfies all its inequalities")
    return ConvexSet("polytope", (rows, limits))


@dataclass(frozen=True, eq=False, repr=False)
class ConvexSet:
    """A convex set as written."""

    kind: str
    arguments: tuple[Any, ...]

    def bind(self, mdp: TabularMDP) -> BoundSet:
        """The set for this model."""
        shape = (mdp.n_states, mdp.n_actions)
        if self.kind == "ball":
            center, radius = self.arguments
            return Ball(as_occupancy(center, mdp, "the center of the ball"), radius)
        if self.kind == "box":
            try:
                low, high = (np.broadcast_to(side, shape).copy() for side in self.arguments)
            except ValueError as error:
                shapes = [side.shape for side in self.arguments]
                raise UtilityError(
                    f"the box has bounds of shape {shapes}; expected {shape}"
                ) from error
            return Box(low, high)
        matrix, bounds = self.arguments
        if matrix.shape[1:] not in (shape, (shape[0] * shape[1],)):
            raise UtilityError(
                f"the polytope's rows have shape {matrix.shape[1:]}; expected (S, A) = {shape} or "
                f"S*A = {shape[0] * shape[1]}"
            )
        return Polytope(matrix.reshape(matrix.shape[0], -1), bounds)

    def __repr__(self) -> str:
        if self.kind == "ball":
            return f"ball(..., {self.arguments[1]:g})"
        if self.kind == "box":
            return "box(...)"
        return f"polytope(<{self.arguments[0].shape[0]} inequalities>)"


def point_like(given: Any, what: str) -> Any:
    """A policy as it is, or an (S, A) array of numbers."""
    if isinstance(getattr(given, "policy", None), Policy):
        return given.policy
    if isinstance(given, Policy):
        return given
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UtilityError(
            f"{what} must be an occupancy (an (S, A) array), a policy or a solution; got {given!r}"
        ) from error
    if array.ndim != 2 or not np.isfinite(array).all():
        raise UtilityError(
            f"{what} must be a finite (S, A) array; got shape {array.shape}"
            + ("" if np.isfinite(array).all() else " with NaN or infinity in it")
        )
    array.flags.writeable = False
    return array


def as_occupancy(point: Any, mdp: TabularMDP, what: str) -> np.ndarray:
    """The occupancy of a policy, or the array itself once it is seen to fit the model."""
    if not isinstance(point, np.ndarray):
        return occupancy_of(mdp, point)
    shape = (mdp.n_states, mdp.n_actions)
    if point.shape != shape:
        raise UtilityError(f"{what} has shape {point.shape}; the model needs {shape}")
    rows_sum_to_one = (point >= 0).all() and np.allclose(point.sum(axis=1), 1.0)
    if rows_sum_to_one and np.abs(mdp.flow.residual(point)).max() > 1e-6:
        raise UtilityError(
            f"{what} looks like a policy (its rows sum to one), where an array means an occupancy. "
            "Wrap it: TabularPolicy(array)."
        )
    return point


class BoundSet(Record):
    """A convex set of (S, A) arrays: a projection for points and a description for CVXPY."""

    def project(self, x: Array) -> Array:
        """The nearest point of the set in the Euclidean norm."""
        raise NotImplementedError

    def to_cvxpy(self, z: Any) -> list[Any]:
        """CVXPY constraints that say that z, flat, lies in the set."""
        raise NotImplementedError

    def size(self) -> float:
        """The norm of some point of the set, which bounds how far it lies from any occupancy."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Point(BoundSet):
    """A single point."""

    target: Array

    def project(self, x: Array) -> Array:
        """The point."""
        return self.target

    def to_cvxpy(self, z: Any) -> list[Any]:
        """Z is the point."""
        return [z == self.target.ravel()]

    def size(self) -> float:
        """The norm of the point."""
        return float(np.linalg.norm(self.target))


@dataclass(frozen=True, eq=False)
class Ball(BoundSet):
    """A Euclidean ball."""

    center: Array
    radius: Array

    def project(self, x: Array) -> Array:
        """On the way to the center, where x lies outside."""
        xp = namespace(x)
        away = x - self.center
        square = (away * away).sum()
        outside = square > self.radius**2
        length = xp.sqrt(xp.where(outside, square, 1.0))
        return xp.where(outside, self.center + self.radius / length * away, x)

    def to_cvxpy(self, z: Any) -> list[Any]:
        """|z - center| <= radius."""
        cp = require("cvxpy", "convex")
        return [cp.norm(z - self.center.ravel()) <= self.radius]

    def size(self) -> float:
        """The norm of the center."""
        return float(np.linalg.norm(self.center))


@dataclass(frozen=True, eq=False)
class Box(BoundSet):
    """Entry by entry between two bounds."""

    lower: Array
    upper: Array

    def project(self, x: Array) -> Array:
        """Clip."""
        return namespace(x).clip(x, self.lower, self.upper)

    def to_cvxpy(self, z: Any) -> list[Any]:
        """The bounds that are finite."""
        low, high = self.lower.ravel(), self.upper.ravel()
        below, above = np.isfinite(low), np.isfinite(high)
        sides = []
        if below.any():
            sides.append(z[below] >= low[below])
        if above.any():
            sides.append(z[above] <= high[above])
        return sides

    def size(self) -> float:
        """The norm of the point of the box nearest to zero."""
        return float(np.linalg.norm(np.clip(0.0, self.lower, self.upper)))


@dataclass(frozen=True, eq=False)
class Polytope(BoundSet):
    """matrix @ z <= bounds, matrix of shape (m, S*A)."""

    matrix: Array
    bounds: Array

    def project(self, x: Array) -> Array:
        """Exactly for NumPy; under JAX by Hildreth's dual coordinate ascent, to rounding."""
        step = _least_distance if isinstance(x, np.ndarray) else _hildreth
        flat = x.reshape(-1)
        return (flat + step(self.matrix, self.bounds - self.matrix @ flat)).reshape(x.shape)

    def to_cvxpy(self, z: Any) -> list[Any]:
        """The inequalities."""
        return [self.matrix @ z <= self.bounds]

    def size(self) -> float:
        """The norm of the point nearest to zero."""
        return float(np.linalg.norm(_least_distance(self.matrix, self.bounds)))


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
