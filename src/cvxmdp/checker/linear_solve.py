"""v = right + discount * M v for a substochastic M. Nobody has to trust it: the residual is measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

DENSE_LIMIT = 1_500  # unknowns up to which a dense factorisation is the fastest and most exact
FEW = 300  # the same where there is a guess, and the chain may mix quickly
FACTOR_LIMIT = 150_000  # unknowns beyond which an incomplete factorisation costs more than it saves
MOST_SWEEPS, LOOKED_AT = 2_000, 10
# Sweeps over which the rate is measured, and the rate up to which they are enough.
PROBE, FAST_MIXING = 5, 0.7
NEAR = 1e-14  # relative: how near to a solution a guess is one
CLOSE = 1e-12  # the same where the chain mixes slowly, and more digits would take long
EPS = float(np.finfo(np.float64).eps)


def solve_system(
    matrix: sp.csr_array,
    right: np.ndarray,
    discount: float,
    near: float = 1e-13,
    guess: np.ndarray | None = None,
) -> np.ndarray:
    """The solution, shape (n,): a factorisation, or Krylov steps and then plain sweeps.

    Args:
        matrix: M.
        right: the right-hand side.
        discount: the factor of M.
        near: relative residual of the Krylov steps; who refines needs a few digits only.
        guess: where iterations start; one that is a solution up to rounding is taken after one sweep.
    """
    if right.size <= (DENSE_LIMIT if guess is None else FEW):
        return _factorised(matrix, right, discount)

    def swept(values: np.ndarray) -> tuple[np.ndarray, float]:
        following = right + discount * (matrix @ values)
        return following, float(np.abs(following - values).sum())

    values, change = swept(right if guess is None else guess)
    if guess is not None and change <= NEAR * float(values.sum()):
        return np.asarray(values)
    first, matrix = change, sp.csr_array(matrix)  # a transposed one is slower
    for _ in range(PROBE):
        values, change = swept(values)
    if change > FAST_MIXING**PROBE * first:
        if guess is not None and change <= CLOSE * float(values.sum()):
            return np.asarray(values)
        if right.size <= DENSE_LIMIT:
            return _factorised(matrix, right, discount)
        values = _krylov(matrix, right, discount, values, near)
    smallest = np.inf
    for _ in range(MOST_SWEEPS):  # each shrinks the error by the discount, whatever came before
        values, change = swept(values)
        enough = max(NEAR, near * EPS / 1e-13) * float(np.abs(values).sum())
        if change <= enough or change >= smallest:
            break
        smallest = change
    return np.asarray(values)


def solve_closely(matrix: sp.csr_array, right: np.ndarray, discount: float) -> np.ndarray:
    """The same for a right-hand side that is not negative, by sweeps from zero.

    Sums of numbers that are not negative lose no digits: small values are right relative to themselves, where
    ``solve_system`` knows them up to rounding of the largest.
    """
    matrix, values = sp.csr_array(matrix), right
    for sweep in range(MOST_SWEEPS):
        following = right + discount * (matrix @ values)
        settled = sweep % LOOKED_AT == 0 and bool((following <= (1 + EPS) * values).all())
        values = following
        if settled:
            break
    return np.asarray(values)


def _factorised(matrix: sp.csr_array, right: np.ndarray, discount: float) -> np.ndarray:
    return np.linalg.solve(np.eye(right.size) - discount * matrix.toarray(), right)


def _krylov(
    matrix: sp.csr_array, right: np.ndarray, discount: float, start: np.ndarray, near: float
) -> np.ndarray:
    """BiCGSTAB, and GMRES with an incomplete factorisation where it stalls (nearly deterministic chains)."""

    def applied(v: np.ndarray) -> np.ndarray:
        return np.asarray(v - discount * (matrix @ v))

    large = right.size > FACTOR_LIMIT
    found, solved = _bicgstab(applied, right, start, near, 3_000 if large else 200)
    if not (solved or large):
        shape = (right.size, right.size)
        operator = spla.LinearOperator(shape, applied, dtype=np.float64)
        system = sp.csc_matrix(sp.eye_array(right.size) - discount * matrix)
        try:
            factor = spla.spilu(system, drop_tol=1e-5, fill_factor=20)
        except RuntimeError as error:  # SuperLU's word for what a dense solve calls singular
            raise np.linalg.LinAlgError(str(error)) from error
        inverse = spla.LinearOperator(shape, factor.solve, dtype=np.float64)
        found, _ = spla.gmres(
            operator, right, x0=factor.solve(right), M=inverse, rtol=near, atol=0.0, maxiter=20
        )
    return np.asarray(found) if np.isfinite(found).all() else start


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Without BLAS, whose threads would decide the last digits, and wait for each other."""
    return float(np.einsum("i,i->", a, b))


def _bicgstab(
    applied: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    v: np.ndarray,
    near: float,
    most: int,
) -> tuple[np.ndarray, bool]:
    """The v with the smallest residual of van der Vorst's recursion (1992), and whether that is small."""
    residual = right - applied(v)
    shadow, direction = residual.copy(), residual.copy()
    target = near**2 * _dot(right, right)
    before = least = _dot(residual, residual)
    best = v
    for _ in range(most):
        if least <= target:
            break
        forward = applied(direction)
        across = _dot(shadow, forward)
        if across == 0.0:
            break
        length = before / across
        half = residual - length * forward
        turned = applied(half)
        square = _dot(turned, turned)
        damping = _dot(turned, half) / square if square > 0 else 0.0
        v = v + length * direction + damping * half
        residual = half - damping * turned
        size, after = _dot(residual, residual), _dot(shadow, residual)
        if size < least:
            best, least = v, size
        if not np.isfinite(size) or 0.0 in (after, damping, before):
            break
        direction = residual + (after / before) * (length / damping) * (
            direction - damping * forward
        )
        before = after
    return best, least <= target
