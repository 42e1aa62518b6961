"""Chunks of iterations in compiled code, and what one chunk hands to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cvxmdp.algorithms.learning_state import LearningState, LearningTrace, Witnessed
from cvxmdp.algorithms.recursion import Learning, initial_state, iteration, trace_of
from cvxmdp.base.compiling import program, small_loop
from cvxmdp.experience.counted_random import key_words

NEVER = np.iinfo(np.int32).max


class Carry(NamedTuple):
    """What one chunk hands to the next."""

    state: LearningState
    kept: Any  # iterates at chosen iterations, leaves (KEPT, ...); None unless iterate="uniform"
    seen: Any  # occupancies of the chunk's episodes, added up; None where the model is known


class Snapshot(NamedTuple):
    """What is kept of the end of a chunk."""

    params: Any
    seen: Any  # the mean occupancy of the chunk's episodes; None where the model is known


class Summary(NamedTuple):
    """What is known of every iteration of a chunk, recorded or not."""

    steps: Any  # taken in the model
    largest_weight: Any
    broken_at: Any  # the first iteration with a number that is not finite, or NEVER


@small_loop("length", "every")
def run_chunk(
    learning: Learning, carry: Carry, words: Any, kept_at: Any, count: Any, length: int, every: int
) -> tuple[Carry, Summary, LearningTrace]:
    """``count`` iterations, at most ``length``, of which each ``every``-th is recorded.

    A chunk has ``length`` iterations; this may be all of it or a part that begins where a record does.

    The random numbers of iteration t depend on the key and on t alone, so chunks of any length give the same.
    A shorter last chunk is another ``count``, not another compilation.
    """

    def step(_: Any, loop: Any) -> Any:
        carry, summary, _ = loop
        t = carry.state.step
        kept = keep(carry.kept, kept_at, carry.state)
        state, witnessed = iteration(learning, carry.state, _numbers(learning, words, t))
        seen = None if carry.seen is None else carry.seen + witnessed.seen
        return Carry(state, kept, seen), summarise(summary, t, witnessed), witnessed

    def block(index: Any, loop: Any) -> Any:
        inner, rows = loop
        inner = jax.lax.fori_loop(0, jnp.minimum(every, count - index * every), step, inner)
        carry, _, witnessed = inner
        # One row of numbers: storing them one by one would cost more than computing them.
        row = ravel_pytree(trace_of(learning, carry.state, witnessed))[0]
        return inner, jax.lax.dynamic_update_index_in_dim(rows, row, index, 0)

    # The mean begins anew at the beginning of a chunk; a piece may begin within one.
    fresh = carry.state.step % length == 0
    carry = carry._replace(seen=jax.tree.map(lambda leaf: jnp.where(fresh, 0.0, leaf), carry.seen))
    nothing = empty_summary()
    witnessed, form = jax.eval_shape(lambda: _forms(learning, carry.state, words))
    unseen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), witnessed)
    columns = sum(leaf.size for leaf in form)
    rows = jnp.zeros((-(-length // every), columns))
    blocks = (count + every - 1) // every
    (carry, summary, _), rows = jax.lax.fori_loop(
        0, blocks, block, ((carry, nothing, unseen), rows)
    )
    return carry, summary, _unpack(rows, form)


def _numbers(learning: Learning, words: Any, t: Any) -> Any:
    return learning.model.numbers(words, t, learning.batch_size, learning.horizon)


def _forms(learning: Learning, state: LearningState, words: Any) -> tuple[Witnessed, LearningTrace]:
    """For their shapes: what an iteration saw, and its trace."""
    after, witnessed = iteration(learning, state, _numbers(learning, words, state.step))
    return witnessed, trace_of(learning, after, witnessed)


def empty_summary() -> Summary:
    """Of no iterations."""
    return Summary(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.asarray(NEVER, jnp.int32))


def summarise(summary: Summary, t: Any, witnessed: Witnessed) -> Summary:
    """With one more iteration."""
    largest = witnessed.weights.max()
    fine = jnp.isfinite(witnessed.gradient_norm) & jnp.isfinite(witnessed.slack).all()
    fine &= jnp.isfinite(largest)
    return Summary(
        summary.steps + witnessed.trajectories.alive.sum().astype(jnp.int32),
        jnp.maximum(summary.largest_weight, largest),
        jnp.where(fine, summary.broken_at, jnp.minimum(summary.broken_at, t)),
    )


def _unpack(rows: Any, form: LearningTrace) -> LearningTrace:
    """Rows of numbers as the traces they were made of."""
    ends = np.cumsum([leaf.size for leaf in form])
    parts = [
        rows[:, end - leaf.size : end].reshape(rows.shape[0], *leaf.shape)
        for end, leaf in zip(ends, form, strict=True)
    ]
    return LearningTrace(*parts)


def keep(kept: Any, kept_at: Any, state: LearningState) -> Any:
    """Put theta_t where it belongs among the kept iterates, if t is one of theirs."""
    if kept is None:
        return None
    # By comparison with all of them: a search is a loop, and a loop inside this one costs more than the rest.
    slot = jnp.searchsorted(kept_at, state.step, method="compare_all")
    slot = jnp.where(kept_at[jnp.minimum(slot, kept_at.size - 1)] == state.step, slot, kept_at.size)
    return jax.tree.map(lambda rows, row: rows.at[slot].set(row, mode="drop"), kept, state.params)


@program()
def begin(
    learning: Learning, seed: Any, given: Any, multipliers: Any, kept_at: Any
) -> tuple[Any, Any, Carry]:
    """Words of the key, first parameters (drawn unless given) and what the first chunk starts from."""
    first, key = jax.random.split(jax.random.key(seed))
    params = given
    if params is None:
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), learning.family.init(first))
    return key_words(key), params, _first_carry(learning, params, multipliers, kept_at)


def _first_carry(learning: Learning, params: Any, multipliers: Any, kept_at: Any) -> Carry:
    kept = None
    if kept_at is not None:
        count = kept_at.size
        kept = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), params)
    seen = jnp.zeros(learning.shape) if learning.watched.mean else None
    return Carry(initial_state(learning, params, multipliers), kept, seen)


def snapshot_of(carry: Carry, count: int) -> Snapshot:
    """Of the end of a chunk of ``count`` iterations."""
    seen = None if carry.seen is None else np.asarray(carry.seen) / count
    return Snapshot(host(carry.state.params), seen)


def host(tree: Any) -> Any:
    """Every leaf as an array of NumPy."""
    return jax.tree.map(np.asarray, tree)
