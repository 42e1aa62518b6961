r"""``planning`` on an accelerator: the model stays there, and a whole search is one program.

Successors and probabilities are tables (A, B, S), B the most successors of a pair: rows of one length, so that
a Bellman backup is A B gathers over contiguous states, and the chain of a policy a selection of it
(deterministic) or a weighing (random). Everything is float64: bounds are claimed of these numbers.

The mathematics is that of ``planning`` and ``systems``: modified policy iteration with the interval

    <rho, V> + m min (TV - V)  <=  best return  <=  <rho, V> + m max (TV - V),

and v = right + M v by plain sweeps where the model mixes quickly, else by BiCGSTAB. A GPU adds arrivals up in
the order in which it comes to them, so the last digits of visits may differ between two runs; nothing is
claimed of them that the checker does not compute anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.compiling import program, split
from cvxmdp.base.precision import double_precision
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.compiled_systems import bicgstab_on_device, norm_of
from cvxmdp.models.episode_flow import EpisodeFlow
from cvxmdp.models.planning import FORCING, MOST_ROUNDS, STALLED
from cvxmdp.models.systems import EPS, FAST_MIXING, MOST_SWEEPS, PROBE

Array = Any
PADDING = 2.0  # times the entries there are, that tables of equal rows may have
BLOCK = 2**24  # entries that are brought over at a time
HOPELESS = 3 * STALLED  # rounds without a much narrower interval after which there will be none


@dataclass(frozen=True, eq=False)
class CompiledModel(Pytree):
    """A model on the accelerator.

    Attributes:
        successors: (A, B, S) int32.
        probabilities: (A, B, S), times the discount; zero where a pair has fewer successors.
        initial: rho, (S,).
        available: boolean (A, S).
        reached: boolean (S,).
        mass, longest: of ``Flow``.
        endless: no episode ends.
    """

    successors: Array
    probabilities: Array
    initial: Array
    available: Array
    reached: Array
    mass: Array
    longest: Array
    endless: bool
    static: ClassVar[tuple[str, ...]] = ("endless",)

    def following(self, values: Array) -> Array:
        """gamma P V, (A, S)."""
        return (self.probabilities * values[self.successors]).sum(axis=1)

    def residual(self, x: Array) -> Array:
        """What the flow equations miss at x, (S, A): (S,)."""
        parts = self.probabilities * x.T[:, None, :]
        arriving = jnp.zeros(x.shape[0]).at[self.successors].add(parts)
        return x.sum(axis=1) - self.initial - arriving

    def chain(self, actions: Array) -> CompiledChain:
        """Of a deterministic policy, (S,)."""
        chosen = actions.astype(jnp.int32)[None, None, :]
        return CompiledChain(
            jnp.take_along_axis(self.successors, chosen, axis=0)[0],
            jnp.take_along_axis(self.probabilities, chosen, axis=0)[0],
        )

    def policy_chain(self, policy: Array) -> CompiledChain:
        """Of any policy, (S, A)."""
        size = self.initial.shape[0]
        weighed = self.probabilities * policy.T[:, None, :]
        return CompiledChain(self.successors.reshape(-1, size), weighed.reshape(-1, size))


class CompiledChain(NamedTuple):
    """Where the states lead, each to a few: (K, S) successors with their probabilities."""

    successors: Array
    probabilities: Array

    def forward(self, values: Array) -> Array:
        """M v."""
        return (self.probabilities * values[self.successors]).sum(axis=0)

    def backward(self, visits: Array) -> Array:
        """M' v."""
        return jnp.zeros_like(visits).at[self.successors].add(self.probabilities * visits)


class CompiledBest(NamedTuple):
    """``planning.Best`` and the visits of its policy, on the accelerator."""

    values: Array
    actions: Array
    upper: Array
    lower: Array
    visits: Array
    rounds: Array
    sweeps: Array  # over the pairs of one policy


def compiled_model(flow: EpisodeFlow) -> CompiledModel | None:
    """The model, brought to the accelerator in blocks; None where its rows differ too much in length.

    With several devices each has its share of the states, where their number allows it.
    """
    states, actions = flow.shape
    pointers = flow.transition.indptr.astype(np.int64)
    lengths = np.diff(pointers)
    most = int(lengths.max(initial=1))
    if most * lengths.size > PADDING * flow.transition.nnz:
        return None
    with double_precision():
        parts = []
        for begin in range(0, states, max(1, BLOCK // (actions * most))):
            end = min(states, begin + max(1, BLOCK // (actions * most)))
            parts.append(_padded(flow, pointers, lengths, most, begin, end))
        successors, probabilities = (
            jnp.concatenate(list(p), axis=2) for p in zip(*parts, strict=True)
        )
        initial, reached = split((jnp.asarray(flow.initial), jnp.asarray(flow.reached)))
        return CompiledModel(
            split(successors, axis=2),
            split(probabilities, axis=2),
            initial,
            split(jnp.asarray(flow.actions.T), axis=1),
            reached,
            jnp.asarray(flow.mass),
            jnp.asarray(flow.longest),
            flow.endless,
        )


def _padded(
    flow: EpisodeFlow,
    pointers: np.ndarray,
    lengths: np.ndarray,
    most: int,
    begin: int,
    end: int,
) -> tuple[Array, Array]:
    """Successors and probabilities of some states, (A, B, states); turned around there."""
    actions = flow.shape[1]
    rows, shape = slice(begin * actions, end * actions), (end - begin, actions, most)
    if lengths[rows].min() == most:  # as they are
        entries = slice(pointers[rows.start], pointers[rows.stop])
        found, towards = flow.transition.data[entries], flow.transition.indices[entries]
    else:
        inside = np.arange(most) < lengths[rows, None]
        places = np.where(inside, pointers[:-1][rows, None] + np.arange(most), 0)
        found = np.where(inside, flow.transition.data[places], 0.0)
        towards = np.where(inside, flow.transition.indices[places], 0)
    narrow = jnp.asarray(towards.astype(np.int32, copy=False).reshape(shape))
    wide = jnp.asarray(found.reshape(shape))
    return narrow.transpose(1, 2, 0), flow.discount * wide.transpose(1, 2, 0)


def settle_on_device(
    step: Callable[[Array], Array], right: Array, guess: Array, target: Array, norm: str
) -> tuple[Array, Array]:
    """``systems.settle``: sweeps while each gains enough, else BiCGSTAB; and how many sweeps it took."""
    target = jnp.maximum(target, 4 * EPS * norm_of(guess, norm))

    def rough(carry: Any) -> Array:
        count, _, left, probed = carry
        slow = (count > 2 * PROBE) & (left > FAST_MIXING ** (count - PROBE) * probed)
        return (left > target) & (count < MOST_SWEEPS) & ~slow

    def sweep(carry: Any) -> Any:
        count, v, _, probed = carry
        following = right + step(v)
        left = norm_of(following - v, norm)
        return count + 1, following, left, jnp.where(count == PROBE, left, probed)

    infinite = jnp.asarray(jnp.inf)
    count, v, left, _ = jax.lax.while_loop(rough, sweep, (0, guess, infinite, infinite))

    def slowly() -> tuple[Array, Array]:
        found, more = bicgstab_on_device(step, right, v, target, norm)
        return found, count + more

    return jax.lax.cond(left <= target, lambda: (v, count), slowly)


class _Round(NamedTuple):
    count: Array
    values: Array  # to be looked at next
    found: Any  # values, actions, upper and lower of the narrowest interval
    width: Array
    stalled: Array
    sweeps: Array  # over the pairs of one policy


def _best(
    model: CompiledModel, reward: Array, values: Array, accuracy: Array, rounds: int
) -> _Round:
    norm = "half_spread" if model.endless else "largest"
    rewards = jnp.where(model.available, reward.T, -jnp.inf)  # (A, S)

    def open_(carry: _Round) -> Array:
        return (carry.width > accuracy) & (carry.count < rounds) & (carry.stalled < HOPELESS)

    def improve(carry: _Round) -> _Round:
        choices = rewards + model.following(carry.values)
        actions = choices.argmax(axis=0)
        after = choices.max(axis=0)
        change = after - carry.values
        high = jnp.where(model.reached, change, -jnp.inf).max()
        low = jnp.where(model.reached, change, jnp.inf).min()
        residual = 0.5 * (high - low) if model.endless else jnp.maximum(abs(high), abs(low))
        if not model.endless:
            high, low = jnp.maximum(high, 0.0), jnp.minimum(low, 0.0)
        start = model.initial @ carry.values
        upper, lower = start + high * model.mass, start + low * model.mass
        width = upper - lower
        stalled = jnp.where(width < 0.9 * carry.width, 0, carry.stalled + 1)
        now = (carry.values, actions.astype(jnp.uint8), upper, lower)
        better = width < carry.width
        found = jax.tree.map(lambda new, old: jnp.where(better, new, old), now, carry.found)
        width = jnp.minimum(width, carry.width)

        def evaluated() -> tuple[Array, Array]:
            chain = model.chain(actions)
            gained = jnp.take_along_axis(reward, actions[:, None], axis=1)[:, 0]
            share = jnp.where(stalled > STALLED, 0.1, 1.0) * FORCING
            target = jnp.maximum(share * residual, 0.1 * accuracy / model.mass)
            return settle_on_device(chain.forward, gained, after, target, norm)

        enough = (carry.values, jnp.asarray(0))
        following, sweeps = jax.lax.cond(width <= accuracy, lambda: enough, evaluated)
        return _Round(carry.count + 1, following, found, width, stalled, carry.sweeps + sweeps)

    nothing = (
        values,
        jnp.zeros(values.shape, jnp.uint8),
        jnp.asarray(jnp.inf),
        -jnp.asarray(jnp.inf),
    )
    first = _Round(
        jnp.asarray(0), values, nothing, jnp.asarray(jnp.inf), jnp.asarray(0), jnp.asarray(0)
    )
    return jax.lax.while_loop(open_, improve, first)


@program("rounds")
def answer(
    model: CompiledModel,
    reward: Array,
    values: Array,
    visits: Array,
    accuracy: Array,
    error: Array,
    rounds: int = MOST_ROUNDS,
) -> CompiledBest:
    """The best policy of a reward (S, A), from the last values and visits, with its own visits.

    Args:
        model: the model.
        reward: (S, A).
        values, visits: of the last answer, (S,).
        accuracy: width of the interval at which to stop.
        error: of the visits, in the sum of absolute values.
        rounds: of policy improvement, at most.
    """
    ended = _best(model, reward, values, accuracy, rounds)
    found, actions, upper, lower = ended.found
    after, sweeps = _visits(model, model.chain(actions), visits, error)
    return CompiledBest(found, actions, upper, lower, after, ended.count, ended.sweeps + sweeps)


@program()
def policy_visits(
    model: CompiledModel, policy: Array, visits: Array, error: Array
) -> tuple[Array, Array]:
    """Visits of a policy (S, A), up to ``error`` in the sum of absolute values, (S,); and the sweeps."""
    return _visits(model, model.policy_chain(policy), visits, error)


@program()
def policy_values(
    model: CompiledModel, policy: Array, reward: Array, guess: Array, accuracy: Array
) -> tuple[Array, Array]:
    """V of a policy (S, A) within ``accuracy`` of its Bellman equation, (S,); and the sweeps."""
    norm = "half_spread" if model.endless else "largest"
    gained = (policy * reward).sum(axis=1)
    chain = model.policy_chain(policy)
    return settle_on_device(chain.forward, gained, guess, accuracy, norm)


@program()
def following(model: CompiledModel, values: Array) -> Array:
    """Gamma P V, (S, A)."""
    return model.following(values).T


@program()
def residual(model: CompiledModel, x: Array) -> Array:
    """What the flow equations miss at x, (S, A): (S,)."""
    return model.residual(x)


def _visits(
    model: CompiledModel, chain: CompiledChain, guess: Array, error: Array
) -> tuple[Array, Array]:
    target = error / model.longest
    found, sweeps = settle_on_device(chain.backward, model.initial, guess, target, "total")
    return jnp.maximum(found, 0.0), sweeps
