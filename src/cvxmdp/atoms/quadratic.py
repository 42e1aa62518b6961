"""quadratic(...): convex or concave quadratic forms of the occupancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.function import Array, Constants, OccupancyFunction, Space, real_array
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import CurvatureError, UtilityError, require

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP

LARGEST_MATRIX = 4_000


def quadratic(matrix: Any = None, *, weights: Any = None, factor: Any = None) -> Utility:
    """A quadratic form of the occupancy x, flattened row by row. Give exactly one of:

    Args:
        matrix: Q, symmetric of shape (S*A, S*A): x'Qx. Positive semidefinite is convex, negative
            semidefinite concave, anything else an error.
        weights: w of shape (S,) or (S, A): sum w * x^2; all of one sign.
        factor: F of shape (k, S, A) or (k, S*A): |F x|^2, convex, for large models.
    """
    sources = {"matrix": matrix, "weights": weights, "factor": factor}
    given = [name for name, source in sources.items() if source is not None]
    if len(given) != 1:
        raise UtilityError(
            f"quadratic takes one of matrix, weights and factor; got {' and '.join(given) or 'none'}"
        )
    kind = given[0]
    array = real_array(sources[kind], f"the {kind} of a quadratic")
    if not np.isfinite(array).all():
        raise UtilityError(f"the {kind} of a quadratic has NaN or infinity in it")
    if kind == "matrix":
        return _from_matrix(array)
    if kind == "weights":
        if array.ndim not in (1, 2):
            raise UtilityError(f"weights must be (S,) or (S, A); got shape {array.shape}")
        if (array < 0).any() and (array > 0).any():
            raise CurvatureError(
                "a quadratic with weights of both signs is neither convex nor concave; split it and "
                "maximise the concave or minimise the convex part"
            )
        return Quadratic("weights", np.sqrt(np.abs(array)), -1.0 if (array < 0).any() else 1.0)
    if array.ndim not in (2, 3):
        raise UtilityError(f"factor must be (k, S, A) or (k, S*A); got shape {array.shape}")
    return Quadratic("factor", array, 1.0)


def _from_matrix(matrix: np.ndarray) -> Utility:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UtilityError(f"matrix must be (S*A, S*A); got shape {matrix.shape}")
    if matrix.shape[0] > LARGEST_MATRIX:
        raise UtilityError(
            f"a {matrix.shape[0]} x {matrix.shape[0]} matrix is too large to check for curvature; "
            "give quadratic(factor=F) for |F x|^2, or quadratic(weights=w)"
        )
    if not np.allclose(matrix, matrix.T, rtol=1e-12, atol=1e-12 * np.abs(matrix).max()):
        raise UtilityError("the matrix of a quadratic must be symmetric; use (Q + Q.T) / 2")
    values, vectors = np.linalg.eigh(matrix)
    noise = 1e-12 * max(np.abs(values).max(), np.finfo(float).tiny) * matrix.shape[0]
    if values.min() < -noise and values.max() > noise:
        raise CurvatureError(
            f"the matrix of a quadratic has eigenvalues from {values.min():.3g} to "
            f"{values.max():.3g}: neither convex nor concave"
        )
    sign = -1.0 if values.min() < -noise else 1.0
    kept = np.abs(values) > noise
    kept[-1] = True  # at least one row, also for the zero matrix
    return Quadratic("factor", np.sqrt(np.abs(values[kept]))[:, None] * vectors[:, kept].T, sign)


@dataclass(frozen=True, eq=False, repr=False)
class Quadratic(Utility):
    """sign * |F x|^2, with F full (``factor``) or diagonal (``weights``, the square roots)."""

    kind: str
    root: np.ndarray
    sign: float

    @property
    def curvature(self) -> Curvature:
        """By the sign."""
        return Curvature.CONVEX if self.sign > 0 else Curvature.CONCAVE

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """Check the shape."""
        shape = (mdp.n_states, mdp.n_actions)
        if self.kind == "weights":
            root = self.root[:, None] if self.root.ndim == 1 else self.root
            if root.shape[0] != shape[0] or root.shape[1] not in (1, shape[1]):
                raise UtilityError(
                    f"the weights of a quadratic have shape {self.root.shape}; expected {shape[:1]} "
                    f"or {shape}"
                )
            return DiagonalFunction(np.broadcast_to(root, shape).copy(), self.sign)
        if self.root.shape[1:] not in (shape, (shape[0] * shape[1],)):
            raise UtilityError(
                f"a quadratic over occupancies of shape {self.root.shape[1:]} does not fit a model "
                f"with (S, A) = {shape}, S*A = {shape[0] * shape[1]}"
            )
        return FactorFunction(self.root.reshape(self.root.shape[0], -1), self.sign)

    def __repr__(self) -> str:
        return f"quadratic(<{'convex' if self.sign > 0 else 'concave'}>)"


@dataclass(frozen=True, eq=False)
class DiagonalFunction(OccupancyFunction):
    """sign * sum (root * x)^2."""

    root: Array
    sign: float

    def value(self, x: Array) -> Any:
        """The weighted sum of squares."""
        return self.sign * ((self.root * x) ** 2).sum()

    def gradient(self, x: Array) -> Array:
        """Twice the weighted entries."""
        return 2.0 * self.sign * self.root**2 * x

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """A sum of squares."""
        cp = require("cvxpy", "convex")
        return self.sign * cp.sum_squares(cp.multiply(x.select(self.root), x.pairs))

    def constants(self, space: Space) -> Constants:
        """Eigenvalues of the diagonal."""
        largest, least = float((self.root**2).max()), float((self.root**2).min())
        return _quadratic_constants(largest, least, space)


@dataclass(frozen=True, eq=False)
class FactorFunction(OccupancyFunction):
    """sign * |factor @ x|^2, factor of shape (k, S*A)."""

    factor: Array
    sign: float

    def value(self, x: Array) -> Any:
        """The square of the norm."""
        return self.sign * ((self.factor @ x.reshape(-1)) ** 2).sum()

    def gradient(self, x: Array) -> Array:
        """2 F'Fx."""
        product = self.factor @ x.reshape(-1)
        return (2.0 * self.sign * (self.factor.T @ product)).reshape(x.shape)

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """A sum of squares."""
        cp = require("cvxpy", "convex")
        return self.sign * cp.sum_squares(self.factor @ x.flat)

    def constants(self, space: Space) -> Constants:
        """Singular values of the factor."""
        singular = np.linalg.svd(self.factor, compute_uv=False)
        full = self.factor.shape[0] >= self.factor.shape[1]
        least = float(singular.min()) ** 2 if full else 0.0
        return _quadratic_constants(float(singular.max(initial=0.0)) ** 2, least, space)


def _quadratic_constants(largest: float, least: float, space: Space) -> Constants:
    mass = space.max_mass
    return Constants(2.0 * largest * mass, 2.0 * largest, largest * mass**2, 2.0 * least)
