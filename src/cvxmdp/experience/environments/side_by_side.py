"""Several single environments, stepped in turn, with the interface of a vector environment.

Gymnasium's own ``SyncVectorEnv`` steps every environment at every step and resets it when its episode is over.
Here each plays one episode, and one whose episode is over is not stepped, which saves a multiple of the work
where lengths differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# (observation, action, next observation, reward, terminated) -> number
Outcome = Callable[[Any, Any, Any, float, bool], float]


class Told:
    """A single environment that tells further signals with every step, in ``info``."""

    def __init__(self, env: Any, signals: Mapping[str, Outcome]) -> None:
        self.env, self.signals = env, dict(signals)
        self._before: Any = None

    def reset(self, **arguments: Any) -> tuple[Any, Any]:
        self._before, info = self.env.reset(**arguments)
        return self._before, info

    def step(self, action: Any) -> tuple[Any, ...]:
        """Take a step and tell what the signals make of it."""
        after, reward, *cost, ended, cut, info = self.env.step(action)
        happened = (self._before, action, after, float(reward), bool(ended))
        told = {name: float(outcome(*happened)) for name, outcome in self.signals.items()}
        self._before = after
        return (after, reward, *cost, ended, cut, {**info, **told})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


class Several:
    """``n`` environments made alike."""

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        self.envs: list[Any] = []
        try:
            for _ in range(n):
                self.envs.append(make())
        except BaseException:
            self.close()
            raise
        self.num_envs = n
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.spec = self.envs[0].spec
        self.unwrapped = self.envs[0].unwrapped
        self._seen: list[Any] = []

    def reset(self, seed: int | None = None) -> tuple[Any, list[Any]]:
        """Begin an episode in each; with a seed, the k-th is seeded with seed + k, as Gymnasium does it."""
        answers = [
            env.reset() if seed is None else env.reset(seed=seed + k)
            for k, env in enumerate(self.envs)
        ]
        self._seen = [observation for observation, _ in answers]
        return self._batch(), [info for _, info in answers]

    def begin(self, chosen: np.ndarray) -> Any:
        """Begin another episode in these; what all of them show."""
        for k in np.flatnonzero(chosen).tolist():
            self._seen[k], _ = self.envs[k].reset()
        return self._batch()

    def step(self, actions: np.ndarray, done: np.ndarray) -> tuple[Any, ...]:
        """One step of those that are not done; the others keep what they showed last."""
        n = self.num_envs
        rewards, costs = [0.0] * n, [0.0] * n
        terminated, truncated = [False] * n, [False] * n
        infos: list[Any] = [{} for _ in range(n)]
        length = 5
        for k in np.flatnonzero(~done).tolist():
            answer = self.envs[k].step(actions[k])
            length = len(answer) if isinstance(answer, tuple) else 0
            if length == 5:
                self._seen[k], rewards[k], terminated[k], truncated[k], infos[k] = answer
            elif length == 6:
                self._seen[k], rewards[k], costs[k], terminated[k], truncated[k], infos[k] = answer
            else:
                return answer if isinstance(answer, tuple) else (answer,)
        cost = (costs,) if length == 6 else ()
        return (self._batch(), rewards, *cost, terminated, truncated, infos)

    def _batch(self) -> Any:
        if isinstance(self._seen[0], tuple):
            return tuple(np.array(part) for part in zip(*self._seen, strict=True))
        return np.array(self._seen)

    def close(self) -> None:
        for env in self.envs:
            env.close()
