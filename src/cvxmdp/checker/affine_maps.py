"""u = M x + b for a sparse M, with bounds on what rounding and an error of x do to u."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError, Number
from cvxmdp.checker.scalars import FLOATS, NumberMatrix, ScalarKind


class AffineMap:
    """An affine function of the occupancy.

    Args:
        matrix: M, sparse (rows, S * A).
        offset: b, (rows,).
        usable: boolean (S, A): occupancies are zero elsewhere, so those columns are of no account.
        scalars: what it is computed in.

    Attributes:
        live: boolean (rows,): the rows that depend on the occupancy. The others are constant.
    """

    def __init__(
        self,
        matrix: sp.csr_array,
        offset: np.ndarray,
        usable: np.ndarray,
        scalars: ScalarKind = FLOATS,
    ) -> None:
        self.shape, self.scalars = usable.shape, scalars
        own = sp.csr_array(matrix, dtype=np.float64, copy=True)
        own.data = np.where(usable.ravel()[own.indices], own.data, 0.0)
        own.sum_duplicates()
        own.eliminate_zeros()
        self.matrix, self.offset = own, scalars.array(offset)
        if not (np.isfinite(own.data).all() and np.isfinite(offset).all()):
            raise CertificateError("a map of the problem has entries that are not finite")
        self.nonnegative = bool((own.data >= 0).all() and (offset >= 0).all())
        self.sizes = own if (own.data >= 0).all() else abs(own)
        entries = np.diff(own.indptr)
        self.rows, self.live = offset.size, entries > 0
        self.terms = int(entries.max(initial=0))
        self.column_terms = int(np.bincount(own.indices, minlength=1).max(initial=0))

    @cached_property
    def numbers(self) -> NumberMatrix:
        """M in the scalars."""
        return self.scalars.matrix(self.matrix)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """u, shape (rows,)."""
        return np.asarray(self.numbers.times(x.ravel()) + self.offset)

    def rounding(self, x: np.ndarray) -> np.ndarray:
        """How far each computed entry of u may be from the true one of this x, where it is of floats."""
        sizes = self.sizes @ np.abs(x.ravel()) + np.abs(self.offset)
        return np.asarray((self.terms + 4) * self.scalars.eps * sizes)

    def column_norm(self, support: np.ndarray, order: int) -> Number:
        """The largest norm of a column: times the error of x, what u may be off, in the norm of the order."""
        entries = self.scalars.array(self.sizes.data)
        powers = entries if order == 1 else entries * entries
        sums = self.scalars.sums(self.sizes.indices, powers, support.size)
        most = self.scalars.largest(sums[support.ravel()])
        rounded = 1.0 + (self.column_terms + 4) * self.scalars.eps
        return (most if order == 1 else self.scalars.sqrt(most)) * rounded

    def pull_back(
        self, v: np.ndarray, sizes: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """M' v as a reward (S, A), and its ``AffineBound.steep``.

        Args:
            v: (rows,).
            sizes: of the numbers that were added up in each entry of v, if they are not v itself.
        """
        reward = np.asarray(self.numbers.transposed_times(v)).reshape(self.shape)
        if self.scalars.exact:
            return reward, np.zeros(self.shape)
        sizes = np.abs(v) if sizes is None else sizes
        steep = np.asarray(self.sizes.T @ sizes) * (1 + self.column_terms / 8)
        return reward, steep.reshape(self.shape)
