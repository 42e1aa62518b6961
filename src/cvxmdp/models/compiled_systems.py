r"""v = right + discount * M v in compiled code: visits of a policy, and values of a reward.

**Inside of compiled code** (``dynamics``). Small models are dense and factorised once per policy; larger ones
stay sparse and are solved by BiCGSTAB without forming P_pi, with plain sweeps at the end, which shrink
whatever is left, also where BiCGSTAB broke down.

**On an accelerator, for the host** (``DeviceSolver``). On a GPU a sweep over a million states takes a
fraction of a millisecond, and information that has to travel hundreds of steps (a grid with a discount of
0.99) no longer dominates. The same as ``systems.settle``, in compiled JAX and float64; only the transition
probabilities of the policy travel. Chosen by ``accelerator``: there must be a GPU, and the model must be
large enough to be worth the transfers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.lax.linalg import lu, triangular_solve
from jax.scipy.sparse.linalg import bicgstab

from cvxmdp.base.compiling import program
from cvxmdp.base.precision import double_precision
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.systems import DENSE_LIMIT
from cvxmdp.models.table import TabularMDP

Array = Any
# The change of a plain sweep, relative to the largest number, at which it is the answer.
ROUNDING = 1e-13
MOST_SWEEPS = 20_000  # for BiCGSTAB that broke down; usually a few are enough
# States up to which a factorisation is faster, measured; up to ``DENSE_LIMIT`` of them it also is where more
# than this share of the table is filled.
FEW_STATES, FILLED = 500, 0.05
WORTH_IT = 50_000  # states from which transfers to a GPU pay
MOST_STEPS = 3_000  # on the accelerator, of BiCGSTAB and of the sweeps after it


def dynamics(mdp: TabularMDP) -> Dynamics:
    """The model for compiled code."""
    steps, single = mdp.horizon.steps, _one_step(mdp)
    return single if steps is None else TimedDynamics(single, steps)


def _one_step(mdp: TabularMDP) -> DenseDynamics | SparseDynamics:
    if better_factorised(mdp):
        return DenseDynamics(mdp.dense_transition(), mdp.initial, mdp.discount, mdp.actions)
    rows = np.repeat(np.arange(mdp.transition.shape[0]), np.diff(mdp.transition.indptr))
    parts = (mdp.transition.data, rows, mdp.transition.indices)
    return SparseDynamics(*parts, mdp.initial, mdp.discount, mdp.actions)


def better_factorised(mdp: TabularMDP) -> bool:
    """Whether dense algebra is faster than iterating on the sparse table."""
    if mdp.n_states <= FEW_STATES:
        return True
    filled = mdp.transition.nnz / (mdp.transition.shape[0] * mdp.n_states)
    return bool(mdp.n_states <= DENSE_LIMIT and filled > FILLED)


@dataclass(frozen=True, eq=False)
class DenseDynamics(Pytree):
    """P as an (S, A, S) array."""

    transition: Array
    initial: Array
    discount: Array
    actions: Array

    def prepare(self, policy: Array) -> Any:
        """Factorise I - gamma P_pi', as L U.

        Its diagonal is larger than the rest of its column, and stays so while it is eliminated: no rows are
        ever exchanged, and a program without permutations is smaller. Where gamma is one but for rounding
        they could be; then the answer is NaN, not wrong.
        """
        arrivals = jnp.einsum("sa,sat->ts", policy, self.transition)
        factors, pivots, _ = lu(jnp.eye(arrivals.shape[0]) - self.discount * arrivals)
        in_place = pivots == jnp.arange(pivots.size)
        return jnp.where(in_place[:, None], factors, jnp.nan)

    def visits(self, policy: Array, prepared: Any) -> Array:
        """sum_a x(s, a), shape (S,)."""
        return _backward(prepared, _forward(prepared, jnp.asarray(self.initial)))

    def values(self, policy: Array, prepared: Any, reward: Array) -> Array:
        """V of the policy with this reward, shape (S,)."""
        gained = (policy * reward).sum(axis=1)
        return _forward(prepared, _backward(prepared, gained, True), True)

    def following(self, values: Array) -> Array:
        """gamma * P V, shape (S, A)."""
        return self.discount * (self.transition @ values)

    def arriving(self, policy: Array, visits: Array) -> Array:
        """gamma P_pi' v, shape (S,)."""
        return self.discount * jnp.einsum("s,sa,sat->t", visits, policy, self.transition)


def _forward(factors: Array, right: Array, transposed: bool = False) -> Array:
    """L v = right, or L' v = right; ones are on the diagonal of L."""
    options = {"left_side": True, "lower": True, "unit_diagonal": True, "transpose_a": transposed}
    return triangular_solve(factors, right[:, None], **options)[:, 0]


def _backward(factors: Array, right: Array, transposed: bool = False) -> Array:
    """U v = right, or U' v = right."""
    options = {"left_side": True, "lower": False, "transpose_a": transposed}
    return triangular_solve(factors, right[:, None], **options)[:, 0]


@dataclass(frozen=True, eq=False)
class SparseDynamics(Pytree):
    """P as entries (pair, successor, probability), pairs s * A + a in ascending order."""

    probabilities: Array
    pairs: Array
    successors: Array
    initial: Array
    discount: Array
    actions: Array

    def prepare(self, policy: Array) -> Any:
        """Nothing: the systems are solved without forming P_pi."""
        return ()

    def arriving(self, policy: Array, visits: Array) -> Array:
        """gamma P_pi' v, shape (S,)."""
        flow = (visits[:, None] * policy).ravel()[self.pairs] * self.probabilities
        return self.discount * jax.ops.segment_sum(flow, self.successors, self.initial.shape[0])

    def visits(self, policy: Array, prepared: Any) -> Array:
        """sum_a x(s, a), shape (S,)."""
        return _solve(lambda v: self.arriving(policy, v), jnp.asarray(self.initial))

    def values(self, policy: Array, prepared: Any, reward: Array) -> Array:
        """V of the policy with this reward, shape (S,)."""
        gained = (policy * reward).sum(axis=1)
        return _solve(lambda v: (policy * self.following(v)).sum(axis=1), gained)

    def following(self, values: Array) -> Array:
        """gamma * P V, shape (S, A)."""
        terms = self.probabilities * values[self.successors]
        sums = jax.ops.segment_sum(terms, self.pairs, self.actions.size, indices_are_sorted=True)
        return self.discount * sums.reshape(self.actions.shape)


@dataclass(frozen=True, eq=False)
class TimedDynamics(Pytree):
    """T steps of a model, with tables for each above each other, (T*S, A): one sweep forwards or backwards.

    Attributes:
        single: one step.
        steps: T.
    """

    single: DenseDynamics | SparseDynamics
    steps: int
    static: ClassVar[tuple[str, ...]] = ("steps",)

    def _layers(self, rows: Array) -> Array:
        """What there is by time, (T, S, ...)."""
        return rows.reshape(self.steps, -1, *rows.shape[1:])

    def prepare(self, policy: Array) -> Any:
        """Nothing: all systems are triangular in time."""
        return ()

    def visits(self, policy: Array, prepared: Any) -> Array:
        """sum_a x_t(s, a), shape (T*S,)."""

        def step(visits: Array, table: Array) -> tuple[Array, Array]:
            return self.single.arriving(table, visits), visits

        start = jnp.asarray(self.single.initial)
        return jax.lax.scan(step, start, self._layers(policy))[1].ravel()

    def values(self, policy: Array, prepared: Any, reward: Array) -> Array:
        """V_t of the policy with this reward, shape (T*S,)."""

        def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            table, gained = now
            values = gained + (table * self.single.following(later)).sum(axis=1)
            return values, values

        gained = self._layers((policy * reward).sum(axis=1))
        tables, end = self._layers(policy), jnp.zeros_like(gained[0])
        return jax.lax.scan(step, end, (tables, gained), reverse=True)[1].ravel()

    def following(self, values: Array) -> Array:
        """gamma * P V_{t+1}, shape (T*S, A)."""
        layers = self._layers(values)
        later = jnp.concatenate([layers[1:], jnp.zeros_like(layers[:1])])
        found = jax.lax.map(self.single.following, later)
        return found.reshape(-1, found.shape[-1])


Dynamics = DenseDynamics | SparseDynamics | TimedDynamics


def _solve(step: Callable[[Array], Array], right: Array) -> Array:
    """v = right + step(v) for a contraction ``step``, up to rounding."""
    found, _ = bicgstab(  # type: ignore[no-untyped-call]
        lambda v: v - step(v), right, x0=right, tol=1e-12, maxiter=400
    )
    found = jnp.where(jnp.isfinite(found).all(), found, right)
    return _sweep(step, right, found, lambda v: ROUNDING * jnp.abs(v).max(), "largest", MOST_SWEEPS)


def _sweep(
    step: Callable[[Array], Array],
    right: Array,
    start: Array,
    target: Callable[[Array], Array],
    norm: str,
    most: int,
) -> Array:
    """Plain sweeps until one changes no more than ``target`` of what it leads to."""

    def rough(carry: Any) -> Array:
        count, v, change = carry
        return (change > target(v)) & (count < most)

    def sweep(carry: Any) -> Any:
        count, v, _ = carry
        following = right + step(v)
        return count + 1, following, norm_of(following - v, norm)

    return jax.lax.while_loop(rough, sweep, (0, start, jnp.asarray(jnp.inf)))[1]


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
            return np.array(_settle(*arguments, target, norm), dtype=np.float64)


def norm_of(residual: Array, kind: str) -> Array:
    """One of the norms of ``systems``, by its name."""
    if kind == "half_spread":
        return 0.5 * (residual.max() - residual.min())
    if kind == "largest":
        return jnp.abs(residual).max()
    return jnp.abs(residual).sum()


@program("norm")
def _settle(
    entries: Array,
    rows: Array,
    columns: Array,
    right: Array,
    guess: Array,
    target: Array,
    norm: str,
) -> Array:
    def step(v: Array) -> Array:
        return jax.ops.segment_sum(
            entries * v[columns], rows, right.shape[0], indices_are_sorted=True
        )

    return bicgstab_on_device(step, right, guess, target, norm)[0]


def bicgstab_on_device(
    step: Callable[[Array], Array], right: Array, guess: Array, target: Array, norm: str
) -> tuple[Array, Array]:
    """v = right + step(v) by BiCGSTAB from the guess, and how many times ``step`` was asked before the end.

    Where it breaks down, plain sweeps go on from its best point.
    """

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
        keep = jnp.isfinite(norm_of(after, norm))
        moved = jnp.where(keep, moved, v)
        return count + 1, norm_of(after, norm), fine & keep, moved, after, following, product

    start = (
        0,
        norm_of(first, norm),
        jnp.asarray(True),
        guess,
        first,
        first,
        jnp.vdot(first, first),
    )
    ended = jax.lax.while_loop(unsettled, iterate, start)
    v = ended[3]
    # The recursive residual may have drifted, or the method broken down: sweeps measure and shrink the rest.
    v = jnp.where(norm_of(residual_of(v), norm) < norm_of(first, norm), v, guess)
    return _sweep(step, right, v, lambda _: target, norm, MOST_STEPS), 2 * ended[0] + 2
