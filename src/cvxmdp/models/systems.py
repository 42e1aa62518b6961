r"""Solving v = right + discount * M v for a substochastic M: values, and (with M transposed) visits.

**Exactly** (``solve_discounted``). Small systems are factorised. Large ones are iterated: Krylov steps first,
an incomplete factorisation as preconditioner where those stall (nearly deterministic chains with a discount
near one), and plain sweeps at the end, each of which shrinks the error by the discount whatever came before.
Nobody has to trust the result: certificates measure its residual.

**To an accuracy** (``settle``), from a warm start and no further: by plain sweeps where the model mixes
quickly, else by BiCGSTAB, else exactly. SciPy's compressed rows are the backend: on a CPU they do a sweep
five times faster than compiled JAX (whose gathers are not vectorised). Large matrices are swept by all cores
(``product``), with the same bits as by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse import _sparsetools

from cvxmdp.base.blocks import in_blocks

DENSE_LIMIT = 1_500  # unknowns up to which a dense factorisation is the fastest and most exact
# Unknowns from which, and entries per row up to which, sparse factors are several times as fast.
SPARSE_FROM, SPARSE_ROWS = 300, 4
FACTOR_LIMIT = 150_000  # unknowns beyond which an incomplete factorisation costs more than it saves
RESIDUAL = 1e-13  # of the right-hand side, that iterations leave to polishing
MOST_POLISHING = 2_000  # plain sweeps at the end of an exact solution
DIRECT_LIMIT = 500  # unknowns up to which a dense factorisation beats iterations that are slow
MOST_SWEEPS = 1_000
ROUNDED_AWAY = 64.0  # units in the last place of the largest value: changes that are rounding
PROBE = 5  # sweeps over which the rate of convergence is measured
# Entries: larger matrices are swept by all cores, and in single precision where it is enough.
LIGHT_BEYOND = 1_000_000
HALVES = 2  # parts of a transposed product, whatever the number of cores: it has the same bits
SINGLE_DIGITS = 1e-2  # of a change, left when it is measured in double precision again
LIGHT_SWEEPS = 13  # up to which that is left where plain sweeps are the fastest
FAST_MIXING = 0.7  # rate per sweep up to which plain sweeps are the fastest
# Steps of BiCGSTAB, and those in a row without progress, before it counts as broken down.
MOST_KRYLOV, PATIENCE = 2_000, 100
EPS = float(np.finfo(np.float64).eps)
Norm = Callable[[np.ndarray], float]


def product(matrix: Any, vector: np.ndarray) -> np.ndarray:
    """``matrix @ vector``, of compressed rows or columns; by all cores where the matrix is large.

    Rows are added up as by one core. A transposed matrix scatters: each half has a sum of its own.
    """
    if matrix.nnz <= LIGHT_BEYOND or matrix.format not in ("csr", "csc"):
        return np.asarray(matrix @ vector)
    rows, columns = matrix.shape
    pointers, parts = matrix.indptr, (matrix.indices, matrix.data)
    kind = np.result_type(matrix.dtype, vector.dtype)
    vector = np.ascontiguousarray(vector, dtype=kind)
    # SciPy's own loops, which take a part of the pointers without a copy of the entries.
    if matrix.format == "csr":
        found = np.zeros(rows, dtype=kind)

        def gather(begin: int, end: int) -> None:
            part = pointers[begin : end + 1]
            _sparsetools.csr_matvec(end - begin, columns, part, *parts, vector, found[begin:end])

        in_blocks(gather, rows)
        return found
    half = -(-columns // HALVES)
    sums = np.zeros((HALVES, rows), dtype=kind)

    def scatter(begin: int, end: int) -> None:
        part, own = pointers[begin : end + 1], sums[begin // half]
        _sparsetools.csc_matvec(rows, end - begin, part, *parts, vector[begin:end], own)

    in_blocks(scatter, columns, half)
    sums[0] += sums[1]
    return np.asarray(sums[0])


def solve_discounted(
    matrix: sp.csr_array, right: np.ndarray, discount: float, guess: np.ndarray | None = None
) -> np.ndarray:
    """The solution v of v = right + discount * matrix @ v.

    Args:
        matrix: sparse (n, n), not negative, rows (or columns) that sum to at most one.
        right: shape (n,).
        discount: in [0, 1).
        guess: where iterations start.
    """
    if right.size <= DENSE_LIMIT:
        if right.size >= SPARSE_FROM and matrix.nnz <= SPARSE_ROWS * right.size:
            return _sparsely(matrix, right, discount)
        return np.linalg.solve(np.eye(right.size) - discount * matrix.toarray(), right)
    start = right if guess is None else guess
    large, target = right.size > FACTOR_LIMIT, RESIDUAL * total(right)
    most = 3_000 if large else 200
    values, left, _ = _approached(matrix, right, discount, start, target, total, most)
    if not (left <= target or large):
        values = _factorised(matrix, right, discount, values)
    return _polish(matrix, right, discount, values)


def solve_relative(
    matrix: sp.csr_array,
    right: np.ndarray,
    discount: float,
    weights: np.ndarray,
    guess: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """(h, g) of h = right - g + discount * matrix @ h with <weights, h> = 0, for rows that sum to one.

    g / (1 - discount) + h is the solution of ``solve_discounted``, whose digits go to the first part alone as
    the discount nears one. Bordered, the system is as well conditioned as the chain mixes.

    Args:
        matrix, right, discount, guess: as in ``solve_discounted``.
        weights: not negative, with a positive sum, (n,).
    """
    size = right.size
    if size <= DENSE_LIMIT:
        system = np.zeros((size + 1, size + 1))
        system[:size, :size] = np.eye(size) - discount * matrix.toarray()
        system[:size, size], system[size, :size] = 1.0, weights
        found = np.linalg.solve(system, np.append(right, 0.0))
        return found[:size], float(found[size])
    total_weight = float(weights.sum())
    h = solve_discounted(matrix, right, discount, guess)
    g = 0.0
    for _ in range(2):  # what is left for the second round is small, and so is its error
        level = float(weights @ h) / total_weight
        h, g = h - level, g + level * (1.0 - discount)
        h = solve_discounted(matrix, right - g, discount, guess=h)
    return h - float(weights @ h) / total_weight, g


def _sparsely(matrix: sp.csr_array, right: np.ndarray, discount: float) -> np.ndarray:
    """By sparse factors, which stay sparse where rows have few entries."""
    try:
        return np.asarray(spla.splu(_system(matrix, discount)).solve(right))
    except RuntimeError as error:  # SuperLU's word for what a dense solve calls singular
        raise np.linalg.LinAlgError(str(error)) from error


def _system(matrix: sp.csr_array, discount: float) -> sp.csc_matrix:
    """I - discount * matrix, as SuperLU takes it."""
    return sp.csc_matrix(sp.eye_array(matrix.shape[0]) - discount * matrix)


def _factorised(
    matrix: sp.csr_array, right: np.ndarray, discount: float, otherwise: np.ndarray
) -> np.ndarray:
    """By GMRES with an incomplete factorisation, where chains are nearly deterministic."""
    shape = (right.size, right.size)
    operator = spla.LinearOperator(shape, lambda v: v - discount * (matrix @ v), dtype=np.float64)
    try:
        factor = spla.spilu(_system(matrix, discount), drop_tol=1e-5, fill_factor=20)
    except RuntimeError as error:  # SuperLU's word for what a dense solve calls singular
        raise np.linalg.LinAlgError(str(error)) from error
    inverse = spla.LinearOperator(shape, factor.solve, dtype=np.float64)
    found, _ = spla.gmres(
        operator, right, x0=factor.solve(right), M=inverse, rtol=1e-13, atol=0.0, maxiter=20
    )
    return found if np.isfinite(found).all() else otherwise


def _polish(
    matrix: sp.csr_array, right: np.ndarray, discount: float, values: np.ndarray
) -> np.ndarray:
    """Plain sweeps until the change has the size of rounding, or stops shrinking."""
    smallest = np.inf
    for _ in range(MOST_POLISHING):
        following = right + discount * product(matrix, values)
        change = total(following - values)
        values = following
        if change <= EPS * total(values) or change >= smallest:
            break
        smallest = change
    return values


def settle(
    matrix: sp.csr_array,
    right: np.ndarray,
    discount: float,
    guess: np.ndarray,
    target: float,
    norm: Norm,
) -> tuple[np.ndarray, int]:
    """v with norm(right + discount * matrix @ v - v) <= target, as far as rounding allows; and the sweeps."""
    most = MOST_KRYLOV if right.size > DIRECT_LIMIT else 0
    v, left, sweeps = _approached(matrix, right, discount, guess, target, norm, most)
    if left <= target:
        return v, sweeps
    return solve_discounted(matrix, right, discount, guess=v), sweeps


def _approached(
    matrix: sp.csr_array,
    right: np.ndarray,
    discount: float,
    guess: np.ndarray,
    target: float,
    norm: Norm,
    most: int,
) -> tuple[np.ndarray, float, int]:
    """v, what is left in the norm of its residual (zero where that is rounding), and the sweeps it took.

    Quickly mixing models need no more than sweeps, which cost the least; others get ``most`` Krylov steps. Of
    matrices beyond the caches, most sweeps are of the change alone and in single precision, which is half to
    read; what that loses is in the next change that a sweep in double precision finds.
    """
    sweeps = 0

    def step(v: np.ndarray) -> np.ndarray:
        nonlocal sweeps
        sweeps += 1
        following = product(matrix, v)
        following *= discount
        return following

    v, smallest = guess, np.inf
    light = _single(matrix, discount) if matrix.nnz > LIGHT_BEYOND else None
    for count in range(MOST_SWEEPS):
        following = step(v)
        following += right
        v, change = following, following - v
        left = size = norm(change)
        if light is not None and left > target:
            moved, left, more = _lightly(light, change, size, target, norm)
            v += moved
            sweeps += more
        if left <= target:
            return v, left, sweeps
        # Without a discount a change may keep its size for as long as it takes to reach an end.
        stuck = count >= 2 and not left < smallest
        if stuck and left <= ROUNDED_AWAY * EPS * max(norm(v), largest(v)):
            return v, 0.0, sweeps
        if count == PROBE:
            probed = left
        slow = count == 2 * PROBE and left > FAST_MIXING**PROBE * probed
        if slow or (light is not None and left > SINGLE_DIGITS * size):
            break
        smallest = min(left, smallest)
    if most:
        # a transposed one is slower, which pays after some twenty sweeps.
        matrix = sp.csr_array(matrix)
        v, left = bicgstab(step, right, v, target, norm, most)
    return v, left, sweeps


def _single(matrix: sp.csr_array, discount: float) -> sp.csr_array:
    """discount * matrix, with entries in single precision."""
    entries = (matrix.data.astype(np.float32), matrix.indices, matrix.indptr)
    np.multiply(entries[0], np.float32(discount), out=entries[0])
    return type(matrix)(entries, shape=matrix.shape)


def _lightly(
    light: sp.csr_array, change: np.ndarray, size: float, target: float, norm: Norm
) -> tuple[np.ndarray, float, int]:
    """What sweeps of a change alone add up to, what is left of it in the norm, and their number.

    They end where single precision does, or the model does not mix. The constant that a norm does not see is
    left out.
    """
    unseen = 0.5 * float(change.max() + change.min()) if norm is half_spread else 0.0
    now = ((change - unseen) / size).astype(np.float32)
    moved, left, sweeps = np.zeros_like(now), size, 0
    while sweeps < LIGHT_SWEEPS:
        now = product(light, now)
        sweeps += 1
        moved += now
        left = size * norm(now)
        if left <= max(target, SINGLE_DIGITS * size):
            break
    return np.multiply(moved, size, dtype=np.float64), left, sweeps


def half_spread(v: np.ndarray) -> float:
    """Half the distance from the smallest to the largest: the norm that does not see constants."""
    return 0.5 * float(v.max() - v.min())


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product, without BLAS: its threads wait for each other on a machine with other work."""
    return float(np.einsum("i,i->", a, b))


def largest(v: np.ndarray) -> float:
    """The largest absolute value."""
    return float(np.abs(v).max())


def total(v: np.ndarray) -> float:
    """The sum of absolute values."""
    return float(np.abs(v).sum())


def row_maxima(table: np.ndarray) -> np.ndarray:
    """The largest entry of each row, (n,), of a table (n, k) of few columns: ten times faster turned around."""
    return np.asarray(np.ascontiguousarray(table.T).max(axis=0))


def row_sums(table: np.ndarray) -> np.ndarray:
    """The sum of each row, (n,), of a table (n, k) of few columns: ten times faster column by column."""
    return np.asarray(reduce(np.add, table.T))


def bicgstab(
    step: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    guess: np.ndarray,
    target: float,
    norm: Norm,
    most: int,
) -> tuple[np.ndarray, float]:
    """v - step(v) = right by BiCGSTAB (van der Vorst, 1992), stopped in the norm that bounds need.

    Returns the best v seen and its residual; the residual is above ``target`` where it broke down.
    """
    v = guess
    residual = right + step(v)
    residual -= v
    left = norm(residual)
    kept = (v, left)
    if left <= target:
        return kept
    shadow = residual.copy()
    direction = residual.copy()
    before, since = dot(shadow, residual), 0
    for _ in range(most):
        forward = direction - step(direction)
        across = dot(shadow, forward)
        if across == 0.0:
            break
        length = before / across
        half = residual - length * forward
        turned = half - step(half)
        square = dot(turned, turned)
        damping = dot(turned, half) / square if square > 0 else 0.0
        v = v + length * direction
        v += damping * half
        residual = half - damping * turned
        left = norm(residual)
        if not np.isfinite(left):
            break
        if left < kept[1]:
            kept, since = (v, left), 0
        since += 1
        if left <= target or since > PATIENCE:
            break
        after = dot(shadow, residual)
        if after == 0.0 or damping == 0.0 or before == 0.0:
            break
        direction = residual + (after / before) * (length / damping) * (
            direction - damping * forward
        )
        before = after
    # The recursive residual drifts from the true one; what is returned is measured.
    v = kept[0]
    return v, norm(right + step(v) - v)
