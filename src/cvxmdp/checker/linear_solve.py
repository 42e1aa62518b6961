"""v = right + discount * M v for a substochastic M. Nobody has to trust it: the residual is measured."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

DENSE_LIMIT = 1_500  # unknowns up to which a dense factorisation is the fastest and most exact
FACTOR_LIMIT = 150_000  # unknowns beyond which an incomplete factorisation costs more than it saves
MOST_SWEEPS = 2_000
EPS = float(np.finfo(np.float64).eps)


def solve_system(
    matrix: sp.csr_array, right: np.ndarray, discount: float, near: float = 1e-13
) -> np.ndarray:
    """The solution, shape (n,): a factorisation, or Krylov steps and then plain sweeps.

    Args:
        matrix: M.
        right: the right-hand side.
        discount: the factor of M.
        near: relative residual of the Krylov steps; who refines needs a few digits only.
    """
    if right.size <= DENSE_LIMIT:
        return np.linalg.solve(np.eye(right.size) - discount * matrix.toarray(), right)
    matrix = sp.csr_array(matrix)
    values = _krylov(matrix, right, discount, near)
    smallest = np.inf
    for _ in range(MOST_SWEEPS):  # each shrinks the error by the discount, whatever came before
        following = right + discount * (matrix @ values)
        change = float(np.abs(following - values).sum())
        values = following
        if change <= near * EPS / 1e-13 * float(np.abs(values).sum()) or change >= smallest:
            break
        smallest = change
    return np.asarray(values)


def _krylov(matrix: sp.csr_array, right: np.ndarray, discount: float, near: float) -> np.ndarray:
    """BiCGSTAB, and GMRES with an incomplete factorisation where it stalls (nearly deterministic chains)."""
    shape = (right.size, right.size)
    operator = spla.LinearOperator(shape, lambda v: v - discount * (matrix @ v), dtype=np.float64)
    large = right.size > FACTOR_LIMIT
    most = 3_000 if large else 200
    found, stalled = spla.bicgstab(operator, right, x0=right, rtol=near, atol=0.0, maxiter=most)
    if (stalled or not np.isfinite(found).all()) and not large:
        system = sp.csc_matrix(sp.eye_array(right.size) - discount * matrix)
        factor = spla.spilu(system, drop_tol=1e-5, fill_factor=20)
        inverse = spla.LinearOperator(shape, factor.solve, dtype=np.float64)
        found, stalled = spla.gmres(
            operator, right, x0=factor.solve(right), M=inverse, rtol=near, atol=0.0, maxiter=20
        )
    return np.asarray(found) if np.isfinite(found).all() else right
