"""Environments written in JAX: played inside compiled code, as many at a time as one likes.

The protocol is small, and that of gymnax:

    reset(key, params) -> (observation, state)
    step(key, state, action, params) -> (observation, state, reward, done, info)

or, as gymnax has it since 1.0, six values: (observation, state, reward, terminated, truncated, info),
with ``default_params`` (where there are none, both are called without), ``num_actions`` and, optionally,
``observation_space(params)`` and ``action_space(params)``. Where the environment has ``reset_env`` and
``step_env``, which do not begin a new episode by themselves, those are used.

``done`` does not say whether an episode ended or a limit of time cut it. Six values do, or an entry
``truncated`` of ``info``; otherwise every ``done`` is taken for an ending. Where ``step`` gives six values and
``step_env`` five, limits of time are left to ``step``: then they are counted here, from
``params.max_steps_in_episode``. Environments that go from time step to time step (NAVIX) are played, too
(``time_steps``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.described import described
from cvxmdp.base.errors import ExperienceError, did_you_mean
from cvxmdp.base.pytrees import Pytree
from cvxmdp.experience.declared import read_bounds
from cvxmdp.experience.environments.environment import Environment, LaneStep
from cvxmdp.experience.environments.signal_reading import FromInfo
from cvxmdp.experience.environments.time_steps import with_protocol
from cvxmdp.experience.trajectories import Experience, draw
from cvxmdp.models.limited_horizon import episode_horizon
from cvxmdp.models.validation import read_table
from cvxmdp.policies.features import Features
from cvxmdp.policies.readers import ObservationReader

Array = Any
CUT = "truncated"  # the entry of info that tells a limit of time from an ending
# (observation, action, next observation, reward, terminated) -> number, all of them traced
Traced = Callable[[Array, Array, Array, Array, Array], Array]


class Carried(NamedTuple):
    """The environment's state; the age of the episode and the observation, where anybody asks for them.

    Environments are given keys as plain numbers: one that keeps its key in its state can be saved, too.
    """

    inner: Any
    age: Array
    observation: Array


class JaxEnv(Environment):
    """An environment written in JAX. Actions are a list, or vectors in a box with finite borders.

    Args:
        env: the environment; see the module's docstring for what it must have.
        discount: gamma; 1 adds up whole episodes of at most ``horizon`` steps.
        horizon: how many steps count; see ``GymnasiumEnv``.
        features: for observations that are not discrete; see ``cvxmdp.policies.features``.
        params: its parameters; ``env.default_params`` when not given.
        n_envs: how many play at a time where a policy from outside acts, as in ``evaluate``.
        signals: further signals, each a function (observation, action, next observation, reward, terminated)
            -> number that JAX can trace, or an entry of ``info`` by another name; see ``GymnasiumEnv``.
        rewards: names for the parts of a reward that is a vector; "reward[0]", ... without.
        bounds: the least and the largest value of signals, {"cost": (0, 1)}: what is proven of counted states
            rests on this promise.
    """

    compiled = True

    def __init__(
        self,
        env: Any,
        discount: float,
        *,
        horizon: int | None = None,
        features: Features | None = None,
        params: Any = None,
        n_envs: int = 64,
        signals: Mapping[str, Traced | FromInfo] | None = None,
        rewards: Sequence[str] = (),
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        for needed in ("reset", "step"):
            if not callable(getattr(env, needed, None)):
                raise ExperienceError(
                    f"{env!r} has no method {needed!r}: expected an environment written in JAX, with "
                    "reset(key, params) and step(key, state, action, params). Gymnasium's are for GymnasiumEnv."
                )
        self.env, self.n_lanes = with_protocol(env), n_envs
        self.bounds = read_bounds(bounds)
        self.params = getattr(self.env, "default_params", None) if params is None else params
        self.name = str(getattr(env, "name", None) or type(env).__name__)
        self.told = dict(read_table(signals, "signals", '{"fall": function}'))
        self.n_actions, self.action_box = self._read_actions()
        self._key, self._states = jax.random.key(0), None
        self._limit = self._own_limit()
        limit = self._limit or _declared(self.params) or _declared(self.env)
        self.horizon = episode_horizon(discount, horizon, limit, self.name)
        self.episode_limit = self.horizon.limit or self._limit
        observed = self._look(rewards)
        self.reader = self._read_observations(observed)
        self.measure_in(features, f"of shape {observed.shape} and type {observed.dtype}")

    @property
    def identity(self) -> str:
        """With the parameters it has, and its signals."""
        return described([repr(self), self.env, self.params, self.told])

    def _read_actions(self) -> tuple[int, tuple[np.ndarray, np.ndarray] | None]:
        """How many actions there are; or one, and the box they lie in."""
        given = getattr(self.env, "action_space", None)
        space = given(self.params) if callable(given) else given
        borders = [getattr(space, name) for name in ("low", "high") if hasattr(space, name)]
        if len(borders) == 2:
            shape = getattr(space, "shape", None) or np.shape(borders[0])
            low, high = (np.broadcast_to(np.asarray(one, float), shape) for one in borders)
            if np.isfinite([low, high]).all() and (low < high).all():
                return 1, (low, high)
        count = getattr(self.env, "num_actions", None) or getattr(space, "n", None)
        if count is None or int(count) < 1:
            raise ExperienceError(
                f"{self.name} does not say what actions it has: expected a whole number num_actions, "
                f"action_space(params) with n, or one with finite borders low and high; got {space!r}"
            )
        return int(count), None

    @property
    def _some_action(self) -> Array:
        return jnp.int32(0) if self.action_box is None else jnp.zeros(self.action_box[0].shape)

    def _own_limit(self) -> int | None:
        """The limit of time that ``step`` knows and ``step_env`` does not, if there is such a thing."""
        if not hasattr(self.env, "step_env"):
            return None
        key = jax.random.key(0)

        def both(key: Array) -> Any:
            _, state = self._called("reset", key)
            given = (key, state, self._some_action)
            return self._called("step", *given), self._called("step_env", *given)

        try:
            whole, bare = jax.eval_shape(both, key)
        except Exception:  # one of them does not work: what is used is looked at below
            return None
        return _declared(self.params) if (len(whole), len(bare)) == (6, 5) else None

    def _called(self, name: str, *given: Any) -> Any:
        method = getattr(self.env, name)
        return method(*given) if self.params is None else method(*given, self.params)

    def _look(self, rewards: Sequence[str]) -> Any:
        """The form of an observation, without playing."""
        key = jax.random.key(0)
        try:
            observation, state = jax.eval_shape(self.begin, key)
            after = jax.eval_shape(self.go, key, state, self._some_action)
        except Exception as error:
            raise ExperienceError(
                f"{self.name} cannot be compiled: {type(error).__name__}: {error}"
            ) from error
        if not hasattr(observation, "shape"):
            raise ExperienceError(
                f"{self.name} gives observations {observation}; expected one array. Flatten them."
            )
        before_and_after: list[Any] = [jax.tree.structure(one) for one in (state, after[1])]
        if before_and_after[0] != before_and_after[1]:
            raise ExperienceError(f"{self.name} changes the structure of its state in a step")
        self.info_names = tuple(after[4]) if isinstance(after[4], dict) else ()
        self.declared = self.info_names
        parts = after[2].shape
        if len(parts) > 1 or (rewards and parts != (len(rewards),)):
            raise ExperienceError(
                f"{self.name} gives rewards of shape {parts}; rewards= names {len(rewards)} parts"
            )
        if parts:
            self.reward_names = tuple(rewards) or tuple(f"reward[{k}]" for k in range(parts[0]))
        return observation

    def _read_observations(self, observed: Any) -> ObservationReader:
        space = getattr(self.env, "observation_space", None)
        described = space(self.params) if callable(space) else space
        count = getattr(described, "n", getattr(self.env, "num_states", None))
        if count is not None and not observed.shape:
            return ObservationReader((int(count),), (0,), (), False, self.name)
        low, high = getattr(described, "low", -np.inf), getattr(described, "high", np.inf)
        return ObservationReader((), (), tuple(observed.shape), False, self.name, low, high)

    def begin(self, key: Array) -> tuple[Array, Any]:
        """The first observation and state of an episode."""
        reset = "reset_env" if hasattr(self.env, "reset_env") else "reset"
        observation, state = self._called(reset, jax.random.key_data(key))
        age = None if self._limit is None else jnp.int32(0)
        return observation, Carried(state, age, observation if self.told else None)

    def go(self, key: Array, state: Any, action: Array) -> tuple[Array, Any, Array, Array, Any]:
        """One step; where limits of time are known, ``info["truncated"]`` says whether it was cut."""
        if self.action_box is not None:
            action = jnp.clip(jnp.reshape(action, self.action_box[0].shape), *self.action_box)
        name = "step_env" if hasattr(self.env, "step_env") else "step"
        answer = self._called(name, jax.random.key_data(key), state.inner, action)
        if len(answer) not in (5, 6):
            raise ExperienceError(
                f"{self.name} gave {len(answer)} values for a step; expected (observation, state, reward, "
                "done, info), or six with terminated and truncated in place of done"
            )
        observation, following, reward, ended, *cut, info = answer
        ended, age = jnp.asarray(ended, bool), state.age
        truncated = jnp.asarray(cut[0], bool) & ~ended if cut else None
        if age is not None and truncated is None:
            age = age + 1
            truncated = (age >= self._limit) & ~ended
        told = self._telling(state.observation, action, observation, reward, ended, info)
        reached = Carried(following, age, observation if self.told else None)
        if truncated is None:
            return observation, reached, reward, ended, told
        return observation, reached, reward, ended | truncated, {**told, CUT: truncated}

    def _telling(
        self, before: Array, action: Array, after: Array, reward: Array, ended: Array, info: Any
    ) -> Any:
        """``info`` with the signals that somebody asked for."""
        if not self.told:
            return info
        found = {
            name: info[one.key]
            if isinstance(one, FromInfo)
            else one(before, action, after, reward, ended)
            for name, one in self.told.items()
        }
        return {
            **info,
            **{name: jnp.asarray(one, jnp.float32).reshape(()) for name, one in found.items()},
        }

    def signal(self, name: str, reward: Array, info: Any) -> Array:
        """The reward or a part of it, or an entry of ``info``."""
        parts = self.reward_names
        if name == "reward" and not parts:
            return reward
        numbered = [f"reward[{k}]" for k in range(len(parts))]
        if name in (*parts, *numbered):
            return reward[parts.index(name) if name in parts else numbered.index(name)]
        if name not in self.info_names:
            known = [*(parts or ["reward"]), *self.info_names]
            raise ExperienceError(
                f"{self.name} gives no info[{name!r}]. {did_you_mean(name, known)}"
            )
        return info[name]

    def truncated(self, info: Any) -> Array:
        """Whether a limit of time cut the episode."""
        return info[CUT] if CUT in self.info_names else False

    def source(self, signals: tuple[str, ...], observes: bool) -> CompiledSource:
        for name in signals:
            self.signal(
                name,
                np.zeros(max(1, len(self.reward_names))),
                dict.fromkeys(self.info_names),
            )
        return CompiledSource(self.discount, self, signals, observes)

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self._key = jax.random.key(seed)
        observations, self._states = self._begin_all(self._keys())
        return np.asarray(observations)

    def step(
        self, actions: np.ndarray, names: Iterable[str], done: np.ndarray, when: str
    ) -> LaneStep:
        """One step of all lanes, for a policy from outside."""
        observations, self._states, reward, over, info = self._go_all(
            self._keys(), self._states, jnp.asarray(actions)
        )
        lanes = (self.n_lanes,)
        cut = np.broadcast_to(np.asarray(self.truncated(info), dtype=bool), lanes)
        signals = {
            name: np.array(self.signal(name, reward.T, info), dtype=np.float64).reshape(lanes)
            for name in names
        }
        ended = np.asarray(over, dtype=bool)
        return LaneStep(np.asarray(observations), signals, ended & ~cut, ended & cut)

    def _keys(self) -> Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.split(key, self.n_lanes)

    @cached_property
    def _begin_all(self) -> Any:
        return jax.jit(jax.vmap(self.begin))

    @cached_property
    def _go_all(self) -> Any:
        return jax.jit(jax.vmap(self.go))

    def __repr__(self) -> str:
        what = f"{self.n_states:,} " + ("states" if self.features is None else "features")
        ahead = f"discount {self.discount:g}" if self.horizon.limit is None else str(self.horizon)
        acts = f"{self.n_actions} actions"
        if self.action_box is not None:
            acts = f"actions in a box of shape {self.action_box[0].shape}"
        return f"JaxEnv({self.name}; {what}; {acts}; {ahead})"


def _declared(params: Any) -> int | None:
    """The limit of time among parameters, or that of an environment."""
    limit = getattr(params, "max_steps_in_episode", None)
    return None if limit is None else int(limit)


class _Playing(NamedTuple):
    """A trajectory on its way."""

    observation: Array
    state: Any
    alive: Array  # 1 until the episode is over
    cut: Array  # 0 once it has ended by itself


@dataclass(frozen=True, eq=False)
class CompiledSource(Pytree):
    """Trajectories of an environment, drawn inside compiled code.

    Attributes:
        discount: gamma.
        environment: what is played.
        signals: names of what is measured beside features.
        observes: whether the policy is given observations, not numbers of states.
    """

    discount: Array
    environment: JaxEnv
    signals: tuple[str, ...]
    observes: bool
    static: ClassVar[tuple[str, ...]] = ("environment", "signals", "observes")

    def numbers(self, words: Array, t: Array, batch_size: int, horizon: int) -> Array:
        """A key for each trajectory of iteration t."""
        key = jax.random.fold_in(jax.random.wrap_key_data(words), t)
        return jax.random.split(key, batch_size)

    def trajectories(self, policy: Any, numbers: Array, horizon: int) -> Experience:
        """A batch of trajectories under a policy (one of ``cvxmdp.algorithms.views``).

        The loop ends with the last episode: early policies often fail long before the horizon.
        """
        step: Any = jax.vmap(partial(self._step, policy.rows()))
        begin: Any = jax.vmap(self.environment.begin)
        keys: Any = jax.vmap(jax.random.fold_in, in_axes=(0, None))
        observations, states = begin(keys(numbers, horizon))
        whole = jnp.ones(len(numbers), jnp.float32)
        first = _Playing(observations, states, whole, whole)
        shapes = jax.eval_shape(step, first, numbers)[1]
        nothing = jax.tree.map(lambda one: jnp.zeros((horizon, *one.shape), one.dtype), shapes)

        def body(loop: Any) -> Any:
            k, playing, seen = loop
            playing, row = step(playing, keys(numbers, k))
            return k + 1, playing, jax.tree.map(lambda rows, one: rows.at[k].set(one), seen, row)

        def goes_on(loop: Any) -> Any:
            return (loop[0] < horizon) & (loop[1].alive > 0).any()

        _, last, seen = jax.lax.while_loop(goes_on, body, (jnp.int32(0), first, nothing))
        given, actions, alive, places, signals = (jnp.swapaxes(rows, 0, 1) for rows in seen)
        return Experience(given, actions, alive, places, signals, last.cut)

    def _step(self, rows: Any, playing: _Playing, key: Array) -> tuple[_Playing, tuple[Array, ...]]:
        """One step of one trajectory: (states, actions, alive, features, signals) of it."""
        environment = self.environment
        of_policy, of_environment = jax.random.split(key)
        place = self.place(playing.observation)
        given = playing.observation if self.observes else place
        action = draw(rows(given), jax.random.uniform(of_policy)).astype(jnp.int32)
        following, after, reward, done, info = environment.go(of_environment, playing.state, action)
        named = [environment.signal(name, reward, info) for name in self.signals]
        signals = jnp.stack([jnp.asarray(one, jnp.float32).reshape(()) for one in named])
        alive, ended = playing.alive > 0, jnp.asarray(done, bool)
        cut = jnp.asarray(environment.truncated(info), jnp.float32)
        goes_on = alive & ~ended
        # What follows the end is not looked at, and must not bring infinities into what is.
        next_playing = _Playing(
            jnp.where(goes_on, following, jnp.zeros_like(following)),
            after,
            goes_on.astype(jnp.float32),
            jnp.where(alive & ended, cut, playing.cut),
        )
        return next_playing, (given, action, playing.alive, place, jnp.where(alive, signals, 0.0))

    def place(self, observation: Array) -> Array:
        """The state, the bin, or the feature vector of an observation."""
        environment = self.environment
        if environment.features is None:
            counted = environment.numbered
            return jnp.asarray(observation, jnp.int32) if counted else jnp.zeros(0, jnp.float32)
        if environment.has_states:
            return jnp.asarray(environment.states(observation[None])[0], jnp.int32)
        return jnp.asarray(environment.features(observation[None])[0], jnp.float32)
