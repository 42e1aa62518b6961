"""Chunks of iterations in compiled code, and what one chunk hands to the next."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.learning_state import LearningState, LearningTrace, Witnessed
from cvxmdp.algorithms.recursion import Learning, initial_state, iteration, noted_of, trace_of
from cvxmdp.base.compiling import run_once, small_loop
from cvxmdp.base.precision import host
from cvxmdp.experience.counted_random import key_words

NEVER = np.iinfo(np.int32).max
TOGETHER = 32  # records whose traces are computed at once, a power of two as capacities are
UNROLLED = 2  # rounds of a loop that an accelerator has one after the other


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


@small_loop("capacity", "rounds")
def run_chunk(
    learning: Learning,
    carry: Carry,
    words: Any,
    kept_at: Any,
    count: Any,
    length: Any,
    every: Any,
    capacity: int,
    rounds: int,
) -> tuple[Carry, Summary, LearningTrace]:
    """``count`` iterations, at most ``length``, of which each ``every``-th is recorded.

    A chunk has ``length`` iterations; this may be all of it or a part that begins where a record does.

    The random numbers of iteration t depend on the key and on t alone, so chunks of any length give the same.
    All three are numbers, not structure: chunks with at most ``capacity`` records are compiled once. Where
    compiled code is to know ``every``, and ``count`` is a multiple of it, ``rounds`` is that; else it is zero.
    """

    def step(_: Any, loop: Any) -> Any:
        carry, summary, _ = loop
        numbers = _numbers(learning, words, carry.state.step)
        return advanced(carry, summary, kept_at, iteration(learning, carry.state, numbers))

    def recorded(row: Any, loop: Any) -> Any:
        """The iterations up to the next record, and what is noted of the last of them."""
        carry, summary, notes, first = loop
        if rounds == 1:  # a loop would cost a tenth of an iteration
            carry, summary, witnessed = step(0, (carry, summary, None))
        else:
            left = rounds or jnp.minimum(every, count - (first + row) * every)
            carry, summary, witnessed = repeated(left, step, (carry, summary, unseen))
        note = packed(noted_of(learning, carry.state, witnessed))
        notes = {kind: lines.at[row].set(note[kind]) for kind, lines in notes.items()}
        return carry, summary, notes, first

    def block(index: Any, loop: Any) -> Any:
        """Some records. Their traces are computed together, which is several times cheaper than one by one."""
        carry, summary, notes, traces = loop
        first = index * together
        carry, summary, notes, _ = jax.lax.fori_loop(
            0, jnp.minimum(together, records - first), recorded, (carry, summary, notes, first)
        )
        found = jax.vmap(lambda note: trace_of(learning, unpacked(note, form)))(notes)
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        return carry, summary, notes, jax.tree.map(put, traces, found)

    carry = renewed(carry, length)
    records, together = (count + every - 1) // every, min(TOGETHER, capacity)
    seen, form, note, trace = jax.eval_shape(lambda: _forms(learning, carry.state, words))
    unseen, notes, traces = zeros(seen), zeros(note, together), zeros(trace, capacity)
    carry, summary, _, traces = jax.lax.fori_loop(
        0, -(-records // together), block, (carry, empty_summary(), notes, traces)
    )
    return carry, summary, traces


def renewed(carry: Carry, length: Any) -> Carry:
    """The mean begins anew at the beginning of a chunk of this length; a piece may begin within one."""
    fresh = carry.state.step % length == 0
    return carry._replace(seen=jax.tree.map(lambda leaf: jnp.where(fresh, 0.0, leaf), carry.seen))


def advanced(
    carry: Carry, summary: Summary, kept_at: Any, found: tuple[LearningState, Witnessed]
) -> tuple[Carry, Summary, Witnessed]:
    """With one more iteration, which gave this state."""
    state, witnessed = found
    kept = keep(carry.kept, kept_at, carry.state)
    seen = None if carry.seen is None else carry.seen + witnessed.seen
    return Carry(state, kept, seen), summarise(summary, carry.state.step, witnessed), witnessed


def repeated(rounds: Any, body: Any, start: Any) -> Any:
    """A loop. An accelerator asks the host after each of its rounds, unless their number is known beforehand;
    several of them in a row then save copies of what they hand on."""
    known = isinstance(rounds, int) and rounds % UNROLLED == 0
    return jax.lax.fori_loop(0, rounds, body, start, unroll=UNROLLED if known else None)


def _numbers(learning: Learning, words: Any, t: Any) -> Any:
    return learning.model.numbers(words, t, learning.batch_size, learning.horizon)


def _forms(learning: Learning, state: LearningState, words: Any) -> tuple[Any, ...]:
    """For their shapes: what an iteration saw, what is noted of it, as it is stored, and its trace."""
    after, witnessed = iteration(learning, state, _numbers(learning, words, state.step))
    noted = noted_of(learning, after, witnessed)
    return witnessed, noted, packed(noted), trace_of(learning, noted)


def zeros(form: Any, *leading: int) -> Any:
    """Of this form, with leading axes."""
    return jax.tree.map(lambda leaf: jnp.zeros((*leading, *leaf.shape), leaf.dtype), form)


def packed(tree: Any) -> dict[str, Any]:
    """A row for each type of number: storing leaf by leaf would cost more than computing them."""
    rows: dict[str, list[Any]] = {}
    for leaf in jax.tree.leaves(tree):
        rows.setdefault(leaf.dtype.name, []).append(leaf.ravel())
    return {kind: jnp.concatenate(leaves) for kind, leaves in rows.items()}


def unpacked(rows: dict[str, Any], form: Any) -> Any:
    """The tree of this form that such rows were made of."""
    begun, found = dict.fromkeys(rows, 0), []
    leaves, structure = jax.tree.flatten(form)
    for leaf in leaves:
        begin = begun[leaf.dtype.name]
        end = begun[leaf.dtype.name] = begin + leaf.size
        found.append(rows[leaf.dtype.name][begin:end].reshape(leaf.shape))
    return jax.tree.unflatten(structure, found)


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


def keep(kept: Any, kept_at: Any, state: LearningState) -> Any:
    """Put theta_t where it belongs among the kept iterates, if t is one of theirs."""
    if kept is None:
        return None
    # By comparison with all of them: a search is a loop, and a loop inside this one costs more than the rest.
    slot = jnp.searchsorted(kept_at, state.step, method="compare_all")
    slot = jnp.where(kept_at[jnp.minimum(slot, kept_at.size - 1)] == state.step, slot, kept_at.size)
    return jax.tree.map(lambda rows, row: rows.at[slot].set(row, mode="drop"), kept, state.params)


@run_once()
def begin(
    learning: Learning, seed: Any, given: Any, multipliers: Any, kept_at: Any
) -> tuple[Any, Any, Carry]:
    """Words of the key, first parameters (drawn unless given) and what the first chunk starts from."""
    first, key = jax.random.split(jax.random.key(seed))
    params = given
    if params is None:
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), learning.family.init(first))
    kept = None if kept_at is None else zeros(params, kept_at.size)
    seen = jnp.zeros(learning.shape) if learning.watched.mean else None
    state = initial_state(learning, params, multipliers)
    return key_words(key), params, Carry(state, kept, seen)


def snapshot_of(carry: Carry, count: int) -> Snapshot:
    """Of the end of a chunk of ``count`` iterations."""
    seen = None if carry.seen is None else np.asarray(carry.seen) / count
    return Snapshot(host(carry.state.params), seen)
