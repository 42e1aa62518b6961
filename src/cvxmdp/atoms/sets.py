"""Convex sets, of occupancies or of vectors of returns, for ``distance``.

Like utilities, sets are written without a model: ``lower`` checks shapes and turns policies into their
occupancies, or into their returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import linprog

from cvxmdp.atoms.shapes.norm_sets import Ball, Box, NormSet, Polytope
from cvxmdp.base.arrays import real_array
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.masks import refuse_masked
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space
from cvxmdp.models.table import TabularMDP, model_of
from cvxmdp.policies.occupancies import occupancy_of
from cvxmdp.policies.policy import Policy

ReadPoint = Callable[[Any, str], np.ndarray]  # a point as written, and what to call it in errors


def ball(center: Any, radius: float) -> ConvexSet:
    """All points within a Euclidean distance ``radius`` of ``center``.

    Args:
        center: an occupancy, a policy or, of ``returns``, a vector with a number for each.
        radius: not negative.
    """
    if not isinstance(radius, Real) or not 0 <= radius < np.inf:
        raise UtilityError(f"the radius of a ball must be finite and not negative; got {radius!r}")
    return ConvexSet("ball", (point_like(center, "center"), float(radius)))


def box(lower: Any, upper: Any) -> ConvexSet:
    """All points between ``lower`` and ``upper``, entry by entry; infinite bounds are allowed.

    Args:
        lower, upper: numbers or arrays of shape (S, A); of ``returns``, vectors with a number for each.
    """
    low, high = real_array(lower, "lower of a box"), real_array(upper, "upper of a box")
    shapes = {side.shape for side in (low, high) if side.ndim}
    if len(shapes) > 1 or any(len(shape) > 2 for shape in shapes):
        raise UtilityError(
            "the bounds of a box are numbers or arrays (S, A), and of returns vectors; got shapes "
            f"{low.shape} and {high.shape}"
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
        matrix: shape (m, S, A), or (m, S*A) in row-major order; (m, k) of k ``returns``.
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

    def lower(self, space: Space) -> NormSet:
        """The set for this model, of occupancies flattened row by row."""
        return self.among(space.shape, lambda given, what: as_occupancy(given, space, what))

    def among(self, shape: tuple[int, ...], read_point: ReadPoint) -> NormSet:
        """The set in a space of points of this shape, flattened."""
        size = math.prod(shape)
        if self.kind == "ball":
            center, radius = self.arguments
            return Ball(read_point(center, "the center of the ball").ravel(), radius)
        if self.kind == "box":
            if any(side.shape not in ((), shape) for side in self.arguments):
                shapes = [side.shape for side in self.arguments]
                raise UtilityError(f"the box has bounds of shape {shapes}; expected {shape}")
            return Box(*(np.broadcast_to(side, shape).ravel() for side in self.arguments))
        matrix, bounds = self.arguments
        if matrix.shape[1:] not in (shape, (size,)):
            wanted = f"(S, A) = {shape} or S*A = {size}" if len(shape) == 2 else f"{shape}"
            raise UtilityError(
                f"the polytope's rows have shape {matrix.shape[1:]}; expected {wanted}"
            )
        return Polytope(matrix.reshape(matrix.shape[0], -1), bounds)

    def spelled(self) -> str:
        """As problem files take it, every number included."""
        parts = [spelled(part) for part in self.arguments]
        return f"{self.kind}({', '.join(parts)})"

    def __repr__(self) -> str:
        if self.kind == "ball":
            return f"ball(..., {exact(self.arguments[1])})"
        if self.kind == "box":
            return "box(...)"
        return f"polytope(<{self.arguments[0].shape[0]} inequalities>)"


def spelled(point: Any) -> str:
    """Numbers as problem files take them; a policy is in no expression."""
    if isinstance(point, Policy | Mapping):
        return "<policy>"
    array = np.asarray(point)
    if array.ndim == 0:
        return exact(float(array))
    return f"[{', '.join(spelled(part) for part in array)}]"


def point_like(given: Any, what: str) -> Any:
    """A policy as it is or was written, or an array of numbers: an occupancy (S, A), or a vector of returns."""
    if isinstance(getattr(given, "policy", None), Policy):
        return given.policy
    if isinstance(given, Policy):
        return given
    if isinstance(given, Mapping):
        return dict(given)
    try:
        refuse_masked(given)
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UtilityError(
            f"{what} must be an occupancy (an (S, A) array), a policy or a solution, or of returns a "
            f"vector; got {given!r}"
        ) from error
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        raise UtilityError(
            f"{what} must be a finite (S, A) array, or of returns a vector; got shape {array.shape}"
            + ("" if np.isfinite(array).all() else " with NaN or infinity in it")
        )
    array.flags.writeable = False
    return array


def as_occupancy(point: Any, space: Space, what: str) -> np.ndarray:
    """The occupancy of a policy, or the array itself once it is seen to fit the model."""
    if not isinstance(point, np.ndarray):
        return occupancy_of(model_of(space, "a policy as a target"), point)
    if point.shape != space.shape:
        raise UtilityError(f"{what} has shape {point.shape}; the model needs {space.shape}")
    if _looks_like_a_policy(point, space):
        raise UtilityError(
            f"{what} looks like a policy (its rows sum to one), where an array means an occupancy. "
            "Wrap it: TabularPolicy(array)."
        )
    return point


def _looks_like_a_policy(point: np.ndarray, space: Space) -> bool:
    if (point < 0).any() or not np.allclose(point.sum(axis=1), 1.0):
        return False
    if not isinstance(space, TabularMDP):
        return True
    return bool(np.abs(space.flow.residual(point)).max() > 1e-6)
