r"""Solving v = right + discount * M v for a substochastic M: values, and (with M transposed) visits.

Small systems are factorised. Large ones are iterated: Krylov steps first, an incomplete
factorisation as preconditioner where those stall (nearly deterministic chains with a discount near
one), and plain sweeps at the end, each of which shrinks the error by the discount whatever came
before. Nobody has to trust the result: certificates measure its residual.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

DENSE_LIMIT = 1_500  # unknowns up to which a dense factorisation is the fastest and most exact
FACTOR_LIMIT = 150_000  # unknowns beyond which an incomplete factorisation costs more than it saves
MOST_SWEEPS = 2_000
EPS = float(np.finfo(np.float64).eps)


def solve_discounted(
    matrix: sp.csr_array,
    right: np.ndarray,
    discount: float,
    guess: np.ndarray | None = None,
) -> np.ndarray:
    """The solution v of v = right + discount * matrix @ v.

    Args:
        matrix: sparse (n, n), not negative, rows (or columns) that sum to at most one.
        right: shape (n,).
        discount: in [0, 1).
        guess: where iterations start.
    """
    if right.size <= DENSE_LIMIT:
        return np.linalg.solve(np.eye(right.size) - discount * matrix.toarray(), right)
    matrix = sp.csr_array(matrix)
    start = right if guess is None else guess
    values = _krylov(matrix, right, discount, start)
    return _sweep(matrix, right, discount, values)


def _krylov(
    matrix: sp.csr_array, right: np.ndarray, discount: float, start: np.ndarray
) -> np.ndarray:
    shape = (right.size, right.size)
    operator = spla.LinearOperator(shape, lambda v: v - discount * (matrix @ v), dtype=np.float64)
    large = right.size > FACTOR_LIMIT
    most = 3_000 if large else 200
    found, stalled = spla.bicgstab(operator, right, x0=start, rtol=1e-13, atol=0.0, maxiter=most)
    if (stalled or not np.isfinite(found).all()) and not large:
        system = sp.csc_matrix(sp.eye_array(right.size) - discount * matrix)
        factor = spla.spilu(system, drop_tol=1e-5, fill_factor=20)
        inverse = spla.LinearOperator(shape, factor.solve, dtype=np.float64)
        found, stalled = spla.gmres(
            operator, right, x0=factor.solve(right), M=inverse, rtol=1e-13, atol=0.0, maxiter=20
        )
    return found if np.isfinite(found).all() else start


def _sweep(
    matrix: sp.csr_array, right: np.ndarray, discount: float, values: np.ndarray
) -> np.ndarray:
    """Plain sweeps until the change has the size of rounding, or stops shrinking."""
    smallest = np.inf
    for _ in range(MOST_SWEEPS):
        following = right + discount * (matrix @ values)
        change = float(np.abs(following - values).sum())
        values = following
        if change <= EPS * float(np.abs(values).sum()) or change >= smallest:
            break
        smallest = change
    return values
