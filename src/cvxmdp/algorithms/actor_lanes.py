"""Lanes that play on and on inside compiled code: tables, and environments written in JAX.

A lane whose episode is over begins the next at once. The first episode of a lane is cut at a random length, so
that lanes are out of step, and is not measured. The random numbers of iteration t depend on the key and on t
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.actor_iteration import ActorCriticSetup, ActorState, ActorTrace, learn
from cvxmdp.algorithms.actor_readings import LaneSteps
from cvxmdp.algorithms.clipped_steps import drawn_actions
from cvxmdp.base.compiling import has_accelerator, small_loop
from cvxmdp.base.pytrees import Pytree
from cvxmdp.experience.environments.jax_env import CompiledSource
from cvxmdp.experience.trajectories import SamplingModel, draw

Array = Any
UNROLLED = 8  # steps at a time on an accelerator, where starting a loop costs more than its work


@dataclass(frozen=True, eq=False)
class TableLanes(Pytree):
    """A model that is played: its states are what is seen. Signals are rewards of its pairs."""

    model: SamplingModel
    n_actions: int
    static: ClassVar[tuple[str, ...]] = ("n_actions",)

    def begin(self, key: Array) -> tuple[Array, Array]:
        """A first state, as observation and as state."""
        state = self.model.starts[draw(self.model.initial, jax.random.uniform(key))]
        return state, state

    def go(self, key: Array, state: Array, action: Array) -> tuple[Array, ...]:
        """The next state twice, no signals, and whether the episode ended or was cut."""
        pair = state * self.n_actions + action
        entry = draw(self.model.cumulative[pair], jax.random.uniform(key))
        width = self.model.cumulative.shape[1]
        ended = entry >= width
        after = jnp.where(ended, state, self.model.successors[pair, jnp.minimum(entry, width - 1)])
        return after, after, jnp.zeros(0), ended, jnp.zeros((), bool)

    def seen(self, observation: Array) -> tuple[Array, Array]:
        """What networks see of it, and its place."""
        return observation, observation


@dataclass(frozen=True, eq=False)
class JaxLanes(Pytree):
    """An environment written in JAX."""

    source: CompiledSource
    places: bool  # whether any function asks for them
    static: ClassVar[tuple[str, ...]] = ("places",)

    def begin(self, key: Array) -> tuple[Array, Any]:
        """A first observation and state."""
        observation, state = self.source.environment.begin(key)
        return jnp.asarray(observation), state

    def go(self, key: Array, state: Any, action: Array) -> tuple[Array, ...]:
        """Observation, state and signals of a step, and whether the episode ended or was cut."""
        environment = self.source.environment
        following, after, reward, done, info = environment.go(key, state, action)
        named = [environment.signal(name, reward, info) for name in self.source.signals]
        signals = jnp.stack([jnp.asarray(one, jnp.float32).reshape(()) for one in named])
        done = jnp.asarray(done, bool).reshape(())
        cut = done & jnp.asarray(environment.truncated(info), bool).reshape(())
        return jnp.asarray(following), after, signals, done & ~cut, cut

    def seen(self, observation: Array) -> tuple[Array, Any]:
        """What networks see of it, and its place, where anybody asks."""
        needed = self.places or not self.source.observes
        place = self.source.place(observation) if needed else None
        inputs = observation if self.source.observes else place
        return inputs, place if self.places else None


class CompiledLanes(NamedTuple):
    """N lanes between two steps.

    Attributes:
        observation, state: of the environment.
        age: steps of the episodes so far, (N,).
        limit: steps after which they are cut, (N,).
        counted: 1 where they are measured, (N,).
    """

    observation: Array
    state: Any
    age: Array
    limit: Array
    counted: Array


def first_lanes(source: Any, count: int, limit: int, key: Array) -> CompiledLanes:
    """Lanes out of step."""
    of_begin, of_length = jax.random.split(key)
    observation, state = jax.vmap(source.begin)(jax.random.split(of_begin, count))
    # One from each of equal parts, so that every batch sees all ages alike.
    shares = (jnp.arange(count) + jax.random.uniform(of_length, (count,))) / count
    lengths = jnp.minimum(1 + (limit * shares).astype(jnp.int32), limit)
    return CompiledLanes(observation, state, jnp.zeros(count, jnp.int32), lengths, jnp.zeros(count))


def play(
    source: Any,
    family: Any,
    params: Any,
    lanes: CompiledLanes,
    length: int,
    limit: Array,
    key: Array,
) -> tuple[CompiledLanes, LaneSteps]:
    """``length`` steps of every lane; episodes are cut after ``limit`` steps."""

    def step(lanes: CompiledLanes, key: Array) -> tuple[CompiledLanes, LaneSteps]:
        of_policy, of_step, of_begin = jax.random.split(key, 3)
        count = lanes.age.shape[0]
        inputs, places = jax.vmap(source.seen)(lanes.observation)
        actions = drawn_actions(family, params, inputs, of_policy)
        keys = jax.random.split(of_step, count)
        given = family.in_box(actions) if family.continuous else actions
        following, after, signals, ended, cut = jax.vmap(source.go)(keys, lanes.state, given)
        over = ended | cut | (lanes.age + 1 >= lanes.limit)
        anew, begun = jax.vmap(source.begin)(jax.random.split(of_begin, count))
        taken = LaneSteps(
            inputs=inputs,
            after=jax.vmap(source.seen)(following)[0],
            masks=None,
            actions=actions,
            places=places,
            signals=signals,
            ages=lanes.age,
            counted=lanes.counted,
            played=jnp.ones(count),
            ended=ended.astype(jnp.float32),
            over=over.astype(jnp.float32),
        )
        observation, state = jax.tree.map(
            lambda new, old: jnp.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            (anew, begun),
            (following, after),
        )
        reached = CompiledLanes(
            observation,
            state,
            jnp.where(over, 0, lanes.age + 1),
            jnp.where(over, limit, lanes.limit),
            jnp.where(over, 1.0, lanes.counted),
        )
        return reached, taken

    found: tuple[CompiledLanes, LaneSteps] = jax.lax.scan(
        step, lanes, jax.random.split(key, length), unroll=UNROLLED if has_accelerator() else 1
    )
    return found


@small_loop("length", "most")
def iterations(
    source: Any,
    setup: ActorCriticSetup,
    state: ActorState,
    lanes: CompiledLanes,
    limit: Array,
    words: Array,
    count: Array,
    length: int,
    most: int,
) -> tuple[ActorState, CompiledLanes, ActorTrace]:
    """``count`` iterations, at most ``most``, of ``length`` steps per lane; traces with ``most`` rows."""

    def one(
        state: ActorState, lanes: CompiledLanes
    ) -> tuple[ActorState, CompiledLanes, ActorTrace]:
        key = jax.random.fold_in(jax.random.wrap_key_data(words), state.done)
        of_play, of_learning = jax.random.split(key)
        family = setup.acting(state.actor.moments)
        lanes, steps = play(source, family, state.actor.params, lanes, length, limit, of_play)
        state, trace = learn(setup, state, steps, of_learning)
        return state, lanes, trace

    def body(index: Array, loop: Any) -> Any:
        state, lanes, rows = loop
        state, lanes, trace = one(state, lanes)
        return state, lanes, jax.tree.map(lambda row, new: row.at[index].set(new), rows, trace)

    form = jax.eval_shape(one, state, lanes)[2]
    rows = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), form)
    found: tuple[ActorState, CompiledLanes, ActorTrace] = jax.lax.fori_loop(
        0, count, body, (state, lanes, rows)
    )
    return found
