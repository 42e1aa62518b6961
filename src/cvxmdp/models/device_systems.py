"""Fixed points of policies on an accelerator, for the oracle of column generation.

On a GPU a sweep over a million states takes a fraction of a millisecond, and information that has to travel
hundreds of steps (a grid with a discount of 0.99) no longer dominates. The same BiCGSTAB as on the CPU, in
compiled JAX and float64; only the transition probabilities of the policy travel. Chosen by ``accelerator``:
there must be a GPU, and the model must be large enough to be worth the transfers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from cvxmdp.base.precision import double_precision

WORTH_IT = 50_000  # states from which transfers to a GPU pay
MOST_STEPS = 3_000
Array = Any


def accelerator(n_states: int) -> bool:
    """Whether there is a GPU, and the model is large enough for it."""
    return n_states >= WORTH_IT and jax.default_backend() == "gpu"


class DeviceSolver:
    """Solves v = right + discount * M v for matrices M of one pattern, or their transposes."""

    def __init__(self) -> None:
        self.pattern: Any = None  # the host's index array that the places below belong to
        self.places: dict[bool, tuple[Array, Array, Array | None]] = {}

    def _prepare(self, indices: np.ndarray, pointers: np.ndarray, transposed: bool) -> None:
        if self.pattern is not indices:
            self.pattern, self.places = indices, {}
        if transposed in self.places:
            return
        rows = np.repeat(np.arange(pointers.size - 1, dtype=np.int32), np.diff(pointers))
        if not transposed:
            self.places[False] = (jnp.asarray(rows), jnp.asarray(indices), None)
            return
        order = np.argsort(indices, kind="stable")
        self.places[True] = (
            jnp.asarray(indices[order]),
            jnp.asarray(rows[order]),
            jnp.asarray(order.astype(np.int32)),
        )

    def solve(
        self,
        matrix: Any,
        right: np.ndarray,
        guess: np.ndarray,
        discount: float,
        target: float,
        norm: str,
    ) -> np.ndarray:
        """v, to ``target`` in the norm ("half_spread", "largest" or "total") of its residual.

        Args:
            matrix: compressed sparse rows, or the transpose of such (compressed columns).
            right, guess: (S,).
            discount: gamma.
            target: of the residual.
            norm: of the residual.
        """
        transposed = isinstance(matrix, sp.csc_array)
        with double_precision():
            self._prepare(matrix.indices, matrix.indptr, transposed)
            rows, columns, order = self.places[transposed]
            data = jnp.asarray(matrix.data)
            entries = data if order is None else data[order]
            arguments = (entries * discount, rows, columns, jnp.asarray(right), jnp.asarray(guess))
            return np.array(_bicgstab(*arguments, target, norm), dtype=np.float64)


def _norm(residual: Array, kind: str) -> Array:
    if kind == "half_spread":
        return 0.5 * (residual.max() - residual.min())
    if kind == "largest":
        return jnp.abs(residual).max()
    return jnp.abs(residual).sum()


@partial(jax.jit, static_argnames=("norm",))
def _bicgstab(
    entries: Array,
    rows: Array,
    columns: Array,
    right: Array,
    guess: Array,
    target: Array,
    norm: str,
) -> Array:
    """BiCGSTAB from the guess; plain sweeps from its best point where it broke down."""

    def step(v: Array) -> Array:
        return jax.ops.segment_sum(
            entries * v[columns], rows, right.shape[0], indices_are_sorted=True
        )

    def residual_of(v: Array) -> Array:
        return right + step(v) - v

    first = residual_of(guess)

    def unsettled(carry: Any) -> Array:
        count, left, fine = carry[0], carry[1], carry[2]
        return (count < MOST_STEPS) & (left > target) & fine

    def iterate(carry: Any) -> Any:
        count, _, _, v, residual, direction, before = carry
        forward = direction - step(direction)
        across = jnp.vdot(first, forward)
        length = before / jnp.where(across == 0, 1.0, across)
        half = residual - length * forward
        turned = half - step(half)
        square = jnp.vdot(turned, turned)
        damping = jnp.vdot(turned, half) / jnp.where(square == 0, 1.0, square)
        moved = v + length * direction + damping * half
        after = half - damping * turned
        product = jnp.vdot(first, after)
        fine = (across != 0) & (damping != 0) & (product != 0) & jnp.isfinite(product)
        ratio = (product / before) * (length / jnp.where(damping == 0, 1.0, damping))
        following = after + ratio * (direction - damping * forward)
        keep = jnp.isfinite(_norm(after, norm))
        moved = jnp.where(keep, moved, v)
        return count + 1, _norm(after, norm), fine & keep, moved, after, following, product

    start = (0, _norm(first, norm), jnp.asarray(True), guess, first, first, jnp.vdot(first, first))
    v = jax.lax.while_loop(unsettled, iterate, start)[3]
    # The recursive residual may have drifted, or the method broken down: sweeps measure and shrink the rest.
    v = jnp.where(_norm(residual_of(v), norm) < _norm(first, norm), v, guess)

    def sweep(carry: Any) -> Any:
        count, v, _ = carry
        following = right + step(v)
        return count + 1, following, _norm(following - v, norm)

    def rough(carry: Any) -> Array:
        return (carry[2] > target) & (carry[0] < MOST_STEPS)

    return jax.lax.while_loop(rough, sweep, (0, v, _norm(residual_of(v), norm)))[1]
