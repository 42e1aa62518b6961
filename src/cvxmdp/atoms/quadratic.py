"""quadratic(...): convex or concave quadratic forms of the occupancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import DenseMap, Entries, Map
from cvxmdp.atoms.shapes import NormShape, Shape, SumShape
from cvxmdp.atoms.shapes.norm_sets import Singleton
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.arrays import real_array
from cvxmdp.base.errors import CurvatureError, UtilityError
from cvxmdp.models.space import Space

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
    word: ClassVar[str] = "quadratic"

    @property
    def curvature(self) -> Curvature:
        return Curvature.CONVEX if self.sign > 0 else Curvature.CONCAVE

    @property
    def nonnegative(self) -> bool:
        return self.sign > 0

    def lower(self, space: Space) -> Shape:
        """The squared length of F x, with its sign."""
        squared = NormShape(self._map(space), Singleton(0.0), "l2-squared")
        return squared if self.sign > 0 else SumShape((squared,), (self.sign,), 0.0)

    def _map(self, space: Space) -> Map:
        shape = space.shape
        if self.kind == "weights":
            root = self.root[:, None] if self.root.ndim == 1 else self.root
            if root.shape[0] != shape[0] or root.shape[1] not in (1, shape[1]):
                raise UtilityError(
                    f"the weights of a quadratic have shape {self.root.shape}; expected {shape[:1]} "
                    f"or {shape}"
                )
            return Entries(np.broadcast_to(root, shape).copy(), shape)
        if self.root.shape[1:] not in (shape, (shape[0] * shape[1],)):
            raise UtilityError(
                f"a quadratic over occupancies of shape {self.root.shape[1:]} does not fit a model "
                f"with (S, A) = {shape}, S*A = {shape[0] * shape[1]}"
            )
        return DenseMap(self.root.reshape(self.root.shape[0], -1), shape)

    def __repr__(self) -> str:
        return f"quadratic(<{'convex' if self.sign > 0 else 'concave'}>)"
