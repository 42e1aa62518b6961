"""Small Gymnasium environments for the tests, well behaved and not."""

from __future__ import annotations

from typing import Any

import gymnasium
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
        if kind == "nan":
            self.observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None):
        observation, info = super().reset(seed=seed)
        self.length = 9
        return (np.zeros(2) if self.kind == "nan" else observation), info

    def step(self, action):
        answer = list(super().step(action))
        if self.kind == "nan":
            answer[0] = np.zeros(2)
        if self.age == 4:
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
            if self.kind == "tuple":
                return tuple(answer[:4])
        return tuple(answer)
