r"""Trajectories: of a tabular model, drawn in compiled code from given uniform numbers, or of an environment.

A trajectory of at most H steps uses 1 + 2 H uniform numbers: one for the first state, then one for each action
and one for each successor. Taking the numbers as an argument makes everything that follows a pure function,
which the tests enumerate and the one-file version repeats. Steps after the end of an episode are masked.

What an environment showed (``Experience``) has beside the tabular ``Trajectory`` what only the environment
knows: features and signals of every step. The occupancy is then (F + K, A), features above signals; see
``cvxmdp.policies.feature_space``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.compiling import FEW, has_accelerator, written_out
from cvxmdp.base.errors import ModelError
from cvxmdp.base.pytrees import Pytree
from cvxmdp.experience.counted_random import uniforms
from cvxmdp.models.table import TabularMDP

Array = Any
LARGEST_TABLE = 2**28  # entries of the successor lists
UNROLLED = 32  # steps of a trajectory up to which an accelerator has them one after the other in one program


class Trajectory(NamedTuple):
    """A trajectory of at most H steps, or a batch of them with a leading axis B.

    Attributes:
        states, actions: shape (H,); whatever they hold after the end does not count.
        alive: 1 where the step was taken, 0 after the episode ended, shape (H,).
    """

    states: Array
    actions: Array
    alive: Array

    def episodes(self) -> Trajectory:
        """All that ``measure`` and ``along`` look at."""
        return self

    def measure(self, numbers: Array, shape: tuple[int, int]) -> Array:
        """Numbers along a batch, (m, B, H), added up on the pairs they belong to: (m, S, A)."""
        return spread(self, numbers, shape)

    def along(self, reward: Array) -> Array:
        """A reward (S, A) along a batch: (B, H)."""
        return reward.ravel()[self.states * reward.shape[1] + self.actions]


def spread(trajectories: Any, numbers: Array, shape: tuple[int, int]) -> Array:
    """Numbers along trajectories, (m, B, H), added up on the pairs they belong to and averaged: (m, S, A)."""
    count, size = numbers.shape[0], shape[0] * shape[1]
    pairs = (trajectories.states * shape[1] + trajectories.actions).ravel()
    flat = numbers.reshape(count, -1) / trajectories.alive.shape[0]
    table = jnp.zeros((count, size), numbers.dtype).at[:, pairs].add(flat)
    return table.reshape(-1, *shape)


class Experience(NamedTuple):
    """A batch of episodes of at most H steps.

    Attributes:
        states: what the policy is given: numbers of states (B, H), or observations (B, H, ...).
        actions: (B, H).
        alive: 1 where the step was taken, 0 after the episode ended, (B, H).
        features: numbers of states or bins, (B, H), or feature vectors, (B, H, F).
        signals: (B, H, K).
        cut: 1 where the episode was cut by a limit of time and did not end, (B,).
    """

    states: Array
    actions: Array
    alive: Array
    features: Array
    signals: Array
    cut: Array

    def episodes(self) -> Experience:
        """All that ``measure`` and ``along`` look at: not what the policy was given."""
        return self._replace(states=None)

    def measure(self, numbers: Array, shape: tuple[int, int]) -> Array:
        """Numbers along the batch, (m, B, H), times what was seen, added up and averaged: (m, F + K, A)."""
        size = shape[0] - self.signals.shape[2]
        share = numbers / self.actions.shape[0]
        taken = jax.nn.one_hot(self.actions, shape[1], dtype=numbers.dtype)
        if self.features.ndim == 3:
            above = jnp.einsum("mbh,bhf,bha->mfa", share, self.features, taken)
        else:
            above = spread(self._replace(states=self.features), numbers, (size, shape[1]))
        below = jnp.einsum("mbh,bhk,bha->mka", share, self.signals, taken)
        return jnp.concatenate([above, below], axis=1)

    def along(self, reward: Array) -> Array:
        """A reward (F + K, A) along the batch: (B, H)."""
        size = reward.shape[0] - self.signals.shape[2]
        of_signals = (self.signals * reward[size:].T[self.actions]).sum(axis=2)
        if self.features.ndim == 3:
            return of_signals + (self.features * reward[:size].T[self.actions]).sum(axis=2)
        return of_signals + reward[self.features, self.actions]


@dataclass(frozen=True, eq=False)
class SamplingModel(Pytree):
    """Cumulative distributions: of the first state, and of each pair's successors.

    Attributes:
        starts: the states that an episode may start in, (k,).
        initial: their probabilities added up, (k,).
        successors: states, (S*A, b), padded.
        cumulative: probabilities added up, (S*A, b); below one where the episode may end.
        discount: gamma.
    """

    starts: Array
    initial: Array
    successors: Array
    cumulative: Array
    discount: Array

    def numbers(self, words: Array, t: Array, batch_size: int, horizon: int) -> Array:
        """The uniform numbers of iteration t, (B, 1 + 2 H)."""
        return uniforms(words, t, (batch_size, 1 + 2 * horizon))

    def trajectories(self, policy: Any, numbers: Array, horizon: int) -> Trajectory:
        """A batch of trajectories under a policy (one of ``views``), from the numbers of an iteration."""
        rows = policy.rows()
        drawn: Any = jax.vmap(lambda one: sample_trajectory(self, rows, one))
        return Trajectory(*drawn(numbers))


@dataclass(frozen=True, eq=False)
class Played(Pytree):
    """An environment that is played outside of compiled code: all that the recursion needs of it."""

    discount: Array


def sampling_model(mdp: TabularMDP) -> SamplingModel:
    """Successor lists of a model, padded to the longest row."""
    lengths = np.diff(mdp.transition.indptr)
    width = max(1, int(lengths.max()))
    if width * lengths.size > LARGEST_TABLE:
        raise ModelError(
            f"a row of the transition has {width:,} successors; sampling {lengths.size:,} rows of that "
            f"length takes more than {LARGEST_TABLE:,} entries"
        )
    filled = np.arange(width) < lengths[:, None]
    successors = np.zeros(filled.shape, dtype=np.int32)
    successors[filled] = mdp.transition.indices
    chances = np.zeros(filled.shape)
    chances[filled] = mdp.transition.data
    cumulative = np.cumsum(chances, axis=1)
    # Rows that do not end episodes reach one exactly: rounding must not end an episode.
    whole = (mdp.ending.ravel() == 0) & mdp.actions.ravel()
    rows = np.flatnonzero(whole)
    last = lengths[rows] - 1
    cumulative[rows, last] = 1.0
    cumulative = np.where(filled, cumulative, cumulative.max(axis=1, keepdims=True))
    starts = np.flatnonzero(mdp.initial > 0).astype(np.int32)
    initial = np.cumsum(mdp.initial[starts])
    initial[-1] = 1.0
    return SamplingModel(starts, initial, successors, cumulative, mdp.discount)


def draw(cumulative: Array, uniform: Array) -> Array:
    """The first index whose cumulative probability exceeds a uniform number in [0, 1)."""
    below = cumulative <= uniform
    if written_out(below.shape[-1]):
        return sum(below[..., k].astype(jnp.int32) for k in range(below.shape[-1]))
    return below.sum(axis=-1)


def looked_up(table: Array, place: Array) -> Array:
    """A row of a table (n, k); on an accelerator entry by entry, so that no row has to be written down."""
    if written_out(table.shape[1]):
        return jnp.stack([table[place, column] for column in range(table.shape[1])])
    return table[place]


def thresholds(chances: Array) -> Array:
    """Cumulative chances of actions, (..., A), of which ``draw`` finds the action.

    Rounding must not draw an action without a chance: not above the sum of the chances, where the last action
    that has one takes the rest, nor in between, where a device may add in parallel.
    """
    columns = jnp.moveaxis(chances, -1, 0)

    def add(sums: tuple[Array, Array], chance: Array) -> Any:
        total, level = sums
        total = total + chance
        level = jnp.where(chance > 0, total, level)
        return (total, level), level

    def give_the_rest(later: Array, pair: tuple[Array, Array]) -> Any:
        chance, level = pair
        return later | (chance > 0), jnp.where(later, level, 2.0)

    nothing, never = jnp.zeros_like(columns[0]), jnp.zeros(columns[0].shape, bool)
    if len(columns) > FEW:
        _, levels = jax.lax.scan(add, (nothing, nothing), columns)
        _, found = jax.lax.scan(give_the_rest, never, (columns, levels), reverse=True)
        return jnp.moveaxis(found, 0, -1)
    # Written out, a few actions are a single pass over the table.
    sums, later, levels, found = (nothing, nothing), never, [], []
    for chance in columns:
        sums, level = add(sums, chance)
        levels.append(level)
    for pair in reversed(list(zip(columns, levels, strict=True))):
        later, level = give_the_rest(later, pair)
        found.append(level)
    return jnp.stack(found[::-1], axis=-1)


def sample_trajectory(model: SamplingModel, row_of: Any, uniforms: Array) -> Trajectory:
    """One trajectory.

    Args:
        model: the model.
        row_of: a function from a state to the thresholds of the actions there, (A,).
        uniforms: numbers in [0, 1), shape (1 + 2 H,).
    """
    first = jnp.asarray(model.starts)[draw(jnp.asarray(model.initial, uniforms.dtype), uniforms[0])]
    cumulative = jnp.asarray(model.cumulative, uniforms.dtype)
    successors = jnp.asarray(model.successors)
    width = cumulative.shape[1]

    def step(place: Array, numbers: Array) -> Any:
        """From a state, or from the end (minus one), to the pair taken there and the next state."""
        state = jnp.maximum(place, 0)
        row = row_of(state)
        pair = state * row.size + draw(row, numbers[0])
        entry = draw(looked_up(cumulative, pair), numbers[1])
        following = successors[pair, jnp.minimum(entry, width - 1)]
        alive = place >= 0
        # One number in and one out: every other one would be copied around at each step.
        return jnp.where(alive & (entry < width), following, -1), jnp.where(alive, pair, -1)

    drawn = uniforms[1:].reshape(-1, 2)
    unroll = len(drawn) if has_accelerator() and len(drawn) <= UNROLLED else 1
    _, pairs = jax.lax.scan(step, first, drawn, unroll=unroll)
    taken, actions = jnp.maximum(pairs, 0), row_of(first).size
    return Trajectory(taken // actions, taken % actions, (pairs >= 0).astype(uniforms.dtype))
