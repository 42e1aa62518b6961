"""Several single environments with the interface of a vector environment: in turn, or in processes.

Gymnasium's own ``SyncVectorEnv`` steps every environment at every step and resets it when its episode is over.
Here each plays one episode, and one whose episode is over is not stepped, which saves a multiple of the work
where lengths differ. What a lane gives depends on its seed and its actions alone: who steps it changes nothing.
"""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError

MASK = "action_mask"  # the entry of info that says which actions are available
RINGS = 10  # parts of a limit, so that time in which nobody could answer hardly counts
# (observation, action, next observation, reward, terminated) -> number
Outcome = Callable[[Any, Any, Any, Any, bool], float]


class Told:
    """A single environment that tells further signals with every step, in ``info``."""

    def __init__(self, env: Any, signals: Mapping[str, Outcome]) -> None:
        self.env, self.signals = env, dict(signals)
        self._before: Any = None

    def reset(self, **arguments: Any) -> tuple[Any, Any]:
        before, info = begun(self.env.reset(**arguments))
        self._before = kept(before)
        return before, info

    def step(self, action: Any) -> tuple[Any, ...]:
        """Take a step and tell what the signals make of it."""
        after, reward, *cost, ended, cut, info = self.env.step(action)
        number = float(reward) if np.ndim(reward) == 0 else np.asarray(reward)
        happened = (self._before, action, after, number, bool(ended))
        told = {name: float(outcome(*happened)) for name, outcome in self.signals.items()}
        self._before = kept(after)
        return (after, reward, *cost, ended, cut, {**info, **told})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def kept(given: Any) -> Any:
    """What will still be the same after the next step: simulators may write into what they gave."""
    if isinstance(given, np.ndarray):
        return given.copy()
    if type(given) is tuple:
        return tuple(kept(part) for part in given)
    if type(given) is dict:
        return {key: kept(part) for key, part in given.items()}
    return given


def begun(answer: Any) -> tuple[Any, Any]:
    """What a reset gave; an array of two numbers would come apart like a pair."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ExperienceError(
            f"a reset gave {answer!r:.200}; expected (observation, info). Older Gym environments need a "
            "compatibility wrapper."
        )
    return answer


def declared_rewards(env: Any) -> Any:
    """The ``reward_space`` of the outermost layer that has one; None where a wrapper makes a number of it.

    MO-Gymnasium's ``LinearReward`` does so and declares nothing; one's own says ``reward_space = None``.
    """
    layer = env
    while layer is not None:
        if type(layer).__name__ == "LinearReward":
            return None
        for place in (vars(layer), vars(type(layer))):
            if "reward_space" in place:
                return getattr(layer, "reward_space")  # noqa: B009
        layer = vars(layer).get("env")
    return getattr(getattr(env, "unwrapped", env), "reward_space", None)


class SideBySide(ABC):
    """Lanes that are stepped on their own; ``Several`` does it here, ``InProcesses`` elsewhere.

    Attributes:
        num_envs: how many lanes.
        seeds: with which each lane was seeded last; None before.
        infos: what each lane said last.
        lane: the one that is at work, for messages.
    """

    num_envs: int
    single_observation_space: Any
    single_action_space: Any
    spec: Any
    unwrapped: Any
    reward_space: Any

    def __init__(self, n: int) -> None:
        self.num_envs, self.lane = n, 0
        self.seeds: list[int | None] = [None] * n
        self.infos: list[Any] = [{} for _ in range(n)]
        self._seen: list[Any] = [None] * n

    def adopt(self, env: Any) -> None:
        """Be like this one, as all lanes are."""
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.spec, self.unwrapped = getattr(env, "spec", None), getattr(env, "unwrapped", env)
        self.reward_space = declared_rewards(env)

    @abstractmethod
    def resetting(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Any]:
        """What ``reset`` gives in these lanes."""

    @abstractmethod
    def stepping(self, lanes: Sequence[int], actions: Sequence[Any]) -> list[Any]:
        """What ``step`` gives in these lanes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all of them."""

    def reset(self, seed: int | None = None) -> tuple[Any, list[Any]]:
        """Begin an episode in each; with a seed, the k-th is seeded with seed + k, as Gymnasium does it."""
        lanes = range(self.num_envs)
        if seed is not None:
            self.seeds = [seed + k for k in lanes]
        self._begun(lanes, [None if seed is None else seed + k for k in lanes])
        return self._batch(), self.infos

    def begin(self, chosen: np.ndarray) -> Any:
        """Begin another episode in these; what all of them show."""
        lanes = np.flatnonzero(chosen).tolist()
        self._begun(lanes, [None] * len(lanes))
        return self._batch()

    def _begun(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> None:
        for k, answer in zip(lanes, self.resetting(lanes, seeds), strict=True):
            self._seen[k], self.infos[k] = begun(answer)

    def step(self, actions: np.ndarray, done: np.ndarray) -> tuple[Any, ...]:
        """One step of those that are not done; the others keep what they showed last."""
        n, lanes = self.num_envs, np.flatnonzero(~done).tolist()
        rewards, costs = [0.0] * n, [0.0] * n
        terminated, truncated = [False] * n, [False] * n
        infos: list[Any] = [{} for _ in range(n)]
        length = 5
        for k, answer in zip(lanes, self.stepping(lanes, [actions[k] for k in lanes]), strict=True):
            length = len(answer) if isinstance(answer, tuple) else 0
            if length == 5:
                self._seen[k], rewards[k], terminated[k], truncated[k], infos[k] = answer
            elif length == 6:
                self._seen[k], rewards[k], costs[k], terminated[k], truncated[k], infos[k] = answer
            else:
                return answer if isinstance(answer, tuple) else (answer,)
            self.infos[k] = infos[k]
        cost = (costs,) if length == 6 else ()
        return (self._batch(), rewards, *cost, terminated, truncated, infos)

    def _batch(self) -> Any:
        if isinstance(self._seen[0], tuple):
            return tuple(np.array(part) for part in zip(*self._seen, strict=True))
        try:
            return np.array(self._seen)
        except ValueError:  # several shapes, which whoever reads them can name
            return list(self._seen)


class Several(SideBySide):
    """``n`` environments made alike, stepped in turn."""

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        super().__init__(n)
        self.envs: list[Any] = []
        try:
            for _ in range(n):
                self.envs.append(make())
        except BaseException:
            self.close()
            raise
        self.adopt(self.envs[0])

    def resetting(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Any]:
        """What ``reset`` gives in these lanes."""
        return [self.reset_one(k, seed) for k, seed in zip(lanes, seeds, strict=True)]

    def stepping(self, lanes: Sequence[int], actions: Sequence[Any]) -> list[Any]:
        """What ``step`` gives in these lanes."""
        return [self.step_one(k, action) for k, action in zip(lanes, actions, strict=True)]

    def reset_one(self, lane: int, seed: int | None) -> Any:
        """In one lane."""
        self.lane, env = lane, self.envs[lane]
        return kept(_masked(env, env.reset() if seed is None else env.reset(seed=seed)))

    def step_one(self, lane: int, action: Any) -> Any:
        """In one lane."""
        self.lane, env = lane, self.envs[lane]
        return kept(_masked(env, env.step(action)))

    def close(self) -> None:
        for env in self.envs:
            env.close()


def _masked(env: Any, answer: Any) -> Any:
    """An answer with the available actions in its ``info``, where a method of the environment says them."""
    masks = getattr(getattr(env, "unwrapped", env), "action_masks", None)
    known = isinstance(answer, tuple) and answer and isinstance(answer[-1], Mapping)
    if not callable(masks) or not known:
        return answer
    return (*answer[:-1], {MASK: masks(), **answer[-1]})


class ImpatientError(Exception):
    """A simulator did not answer in time: a step that hangs must not hang whoever learns."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise ``ImpatientError`` inside the block once it has taken that long.

    By the alarm clock of the main thread, which costs a microsecond: code that waits, sleeps or loops in Python
    is interrupted, code that never comes back from a library is not. In other threads there is no limit. The
    clock rings several times: while the process is stopped itself, only one of them counts.
    """
    known = hasattr(signal, "setitimer")  # not on Windows
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return

    rings = 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        if rings == RINGS:
            raise ImpatientError(f"no answer within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds / RINGS, seconds / RINGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
