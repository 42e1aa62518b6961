"""u = M x + b for a sparse M, with bounds on what rounding and an error of x do to u."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import EPS, CertificateError, largest


class AffineMap:
    """An affine function of the occupancy.

    Args:
        matrix: M, sparse (rows, S * A).
        offset: b, (rows,).
        usable: boolean (S, A): occupancies are zero elsewhere, so those columns are of no account.

    Attributes:
        live: boolean (rows,): the rows that depend on the occupancy. The others are constant.
    """

    def __init__(self, matrix: sp.csr_array, offset: np.ndarray, usable: np.ndarray) -> None:
        self.shape = usable.shape
        own = sp.csr_array(matrix, dtype=np.float64, copy=True)
        own.data = np.where(usable.ravel()[own.indices], own.data, 0.0)
        own.sum_duplicates()
        own.eliminate_zeros()
        self.matrix, self.offset = own, offset
        if not (np.isfinite(own.data).all() and np.isfinite(offset).all()):
            raise CertificateError("a map of the problem has entries that are not finite")
        self.nonnegative = bool((own.data >= 0).all() and (offset >= 0).all())
        self.sizes = own if (own.data >= 0).all() else abs(own)
        entries = np.diff(own.indptr)
        self.rows, self.live = offset.size, entries > 0
        self.terms = int(entries.max(initial=0))
        self.column_terms = int(np.bincount(own.indices, minlength=1).max(initial=0))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """u, shape (rows,)."""
        return np.asarray(self.matrix @ x.ravel() + self.offset)

    def rounding(self, x: np.ndarray) -> np.ndarray:
        """How far each computed entry of u may be from the true one of this x."""
        sizes = self.sizes @ np.abs(x.ravel()) + np.abs(self.offset)
        return np.asarray((self.terms + 4) * EPS * sizes)

    def column_norm(self, support: np.ndarray, order: int) -> float:
        """The largest norm of a column: times the error of x, what u may be off, in the norm of the order."""
        powers = self.sizes.data**order
        sums = np.bincount(self.sizes.indices, powers, minlength=support.size)
        rounded = 1.0 + (self.column_terms + 4) * EPS
        return largest(sums[support.ravel()]) ** (1.0 / order) * rounded

    def pull_back(
        self, v: np.ndarray, sizes: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """M' v as a reward (S, A), and its ``AffineBound.steep``.

        Args:
            v: (rows,).
            sizes: of the numbers that were added up in each entry of v, if they are not v itself.
        """
        sizes = np.abs(v) if sizes is None else sizes
        steep = np.asarray(self.sizes.T @ sizes) * (1 + self.column_terms / 8)
        return np.asarray(self.matrix.T @ v).reshape(self.shape), steep.reshape(self.shape)
