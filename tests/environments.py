"""Small Gymnasium environments for the tests, well behaved and not."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import cvxmdp as cm


class ModelEnv(gymnasium.Env):
    """A tabular model as an environment: reward, and info["cost"]."""

    def __init__(self, mdp: cm.TabularMDP, limit: int | None = None, start: int = 0) -> None:
        self.mdp, self.limit, self.start = mdp, limit, start
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states, start=start)
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions, start=start)
        self.closed = False
        self.chances = np.cumsum(mdp.dense_transition(), axis=2)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        starts = np.cumsum(self.mdp.initial)
        self.state = int(np.searchsorted(starts[:-1], self.np_random.random(), side="right"))
        self.age = 0
        return self.state + self.start, {}

    def step(self, action):
        mdp, action = self.mdp, int(action) - self.start
        chances = self.chances[self.state, action]
        pick = int(np.searchsorted(chances, self.np_random.random(), side="right"))
        terminated = pick == mdp.n_states and mdp.ending[self.state, action] > 0
        info = {"cost": float(mdp.signal("cost")[self.state, action])}
        reward = float(mdp.signal("reward")[self.state, action])
        if not terminated:
            self.state = min(pick, mdp.n_states - 1)
        self.age += 1
        truncated = not terminated and self.limit is not None and self.age >= self.limit
        return self.state + self.start, reward, terminated, truncated, info

    def close(self) -> None:
        self.closed = True


class SixTuple(ModelEnv):
    """The same in the manner of Safety-Gymnasium: the cost is the third of six."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info["cost"], terminated, truncated, {}


class Counter(gymnasium.Env):
    """Counts its steps: observation k at step k, ends after a length drawn when it is reset.

    Whatever counts a step twice, or one that only resets, gets the wrong sum.
    """

    observation_space = gymnasium.spaces.Discrete(10)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 9))
        self.age = 0
        return 0, {"cost": 1e6}

    def step(self, action):
        self.age += 1
        over = self.age >= self.length
        ends = over and self.length % 2 == 0
        return self.age, 1.0, ends, over and not ends, {"cost": float(self.age)}


class Trouble(Counter):
    """Goes wrong at step 3 in the way it is told."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind in ("nan", "box"):
            self.observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None):
        observation, info = super().reset(seed=seed)
        self.length = 9
        return (np.zeros(2) if self.kind in ("nan", "box") else observation), info

    def step(self, action):
        answer = list(super().step(action))
        if self.kind in ("nan", "box"):
            answer[0] = np.zeros(2)
        if self.age == 4:
            if self.kind == "hangs":
                time.sleep(60)
            if self.kind == "box":
                answer[0] = np.array([0.0, 1.5])
            if self.kind == "raises":
                raise OSError("the simulator is gone")
            if self.kind == "nan":
                answer[0] = np.array([0.0, np.nan])
            if self.kind == "outside":
                answer[0] = 77
            if self.kind == "info":
                answer[4] = {"price": 1.0}
            if self.kind == "reward":
                answer[1] = np.inf
            if self.kind == "written reward":
                answer[1] = "1"
            if self.kind == "two rewards":
                answer[1] = [1.0, 2.0]
            if self.kind == "word":
                answer[2] = "False"
            if self.kind == "text":
                answer[0] = "four"
            if self.kind == "tuple":
                return tuple(answer[:4])
        return tuple(answer)


class JaxModel:
    """A tabular model as an environment written in JAX: reward, and info["cost"]."""

    def __init__(self, mdp: cm.TabularMDP, limit: int | None = None) -> None:
        self.num_actions, self.num_states = mdp.n_actions, mdp.n_states
        self.initial = jnp.asarray(np.cumsum(mdp.initial), jnp.float32)
        self.chances = jnp.asarray(np.cumsum(mdp.dense_transition(), axis=2), jnp.float32)
        self.may_end = jnp.asarray(mdp.ending > 0)
        self.rewards = jnp.asarray(mdp.signal("reward"), jnp.float32)
        self.costs = jnp.asarray(mdp.signal("cost"), jnp.float32)
        self.limit = limit

    def reset(self, key):
        state = jnp.searchsorted(self.initial[:-1], jax.random.uniform(key), side="right")
        return state, (state, 0)

    def step(self, key, state, action):
        place, age = state
        chances = self.chances[place, action]
        pick = jnp.searchsorted(chances, jax.random.uniform(key), side="right")
        ends = (pick == self.num_states) & self.may_end[place, action]
        cut = ~ends & (False if self.limit is None else age + 1 >= self.limit)
        following = jnp.where(ends, place, jnp.minimum(pick, self.num_states - 1))
        info = {"cost": self.costs[place, action], "truncated": cut}
        return following, (following, age + 1), self.rewards[place, action], ends | cut, info


class Point(gymnasium.Env):
    """A point on [-1, 1], pushed left or right, with noise; the episode ends at the right border."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.place = np.array([0.0])
        return self.place.copy(), {}

    def step(self, action):
        push = 0.2 * (2 * int(action) - 1) + 0.1 * self.np_random.normal()
        self.place = np.clip(self.place + push, -1.0, 1.0)
        ends = bool(self.place[0] >= 1.0)
        return self.place.copy(), float(ends), ends, False, {"left": float(self.place[0] < 0)}


class JaxPoint:
    """The same, written in JAX, with the names that gymnax uses."""

    num_actions = 2
    default_params: ClassVar = {"push": 0.2}

    def reset_env(self, key, params):
        place = jnp.zeros(1)
        return place, place

    def step_env(self, key, state, action, params):
        push = params["push"] * (2 * action - 1) + 0.1 * jax.random.normal(key)
        place = jnp.clip(state + push, -1.0, 1.0)
        ends = place[0] >= 1.0
        info = {"left": (place[0] < 0).astype(float)}
        return place, place, ends.astype(float), ends, info

    def reset(self, key, params):
        raise AssertionError("the one that does not begin anew by itself is used")

    step = reset
