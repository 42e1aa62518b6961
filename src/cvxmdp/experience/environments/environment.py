"""What every environment is: a source of episodes, measured in states or in features of observations.

Episodes are played in rounds: all lanes are reset, each plays one episode, and a lane that has finished
waits for the others. What a vector environment does with such a lane (its autoreset mode: reset with
the next step, with the same step, or not at all) therefore never reaches an episode: a step that only
resets is not counted, and no lane plays more, shorter episodes than another, which would bias means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cvxmdp.base.errors import ExperienceError, did_you_mean
from cvxmdp.experience.episodes import Episodes
from cvxmdp.experience.trajectories import Played
from cvxmdp.models.horizon import Horizon
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.features import Features, OneHot
from cvxmdp.policies.readers import ObservationReader
from cvxmdp.problems.problem import Problem

MOST_STATES = 10_000_000
# (observations as the environment gives them, what was read of them, where episodes begin) -> actions
Actor = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]


class LaneStep(NamedTuple):
    """What one step of all lanes gave."""

    observations: Any
    signals: dict[str, np.ndarray]
    terminated: np.ndarray
    truncated: np.ndarray


class Environment:
    """A simulator with discrete actions; ``Problem`` takes it in place of a model.

    Attributes:
        name: for messages.
        horizon: how far ahead to look.
        n_actions: A; 1 where actions are no list.
        action_box: the least and the largest values of actions that are vectors of numbers; else None.
        reward_names: of the parts of a reward that is a vector; empty where it is a number.
        masks: the actions that are available now, boolean (lanes, A), where the environment says; else None.
        reader: of its observations.
        features: of observations that are no states, or None.
        numbered: whether observations are read as states, one number for all parts of them.
        n_lanes: how many episodes ``episodes`` plays at a time.
        compiled: whether it can be played inside compiled code.
        waiting_show_anything: whether lanes whose episode is over may show what is no observation of it.
        shows_last: whether the step that cuts an episode still shows where it led.
        bounds: the least and the largest value of signals, by name, where somebody promised them.
        declared: names of signals that it surely has, besides rewards.
        steps: taken so far, in all lanes.
        episode_limit: steps after which it cuts an episode, where that is known.
        idles: whether lanes can be left out of a step.
    """

    name: str
    horizon: Horizon
    n_actions: int
    reader: ObservationReader
    features: Features | None
    numbered: bool
    n_lanes: int
    action_box: tuple[np.ndarray, np.ndarray] | None = None
    reward_names: tuple[str, ...] = ()
    masks: np.ndarray | None = None
    compiled: ClassVar[bool] = False
    waiting_show_anything: bool = True
    shows_last: bool = True
    bounds: Mapping[str, tuple[float, float]] = MappingProxyType({})
    declared: tuple[str, ...] = ()
    steps: int = 0
    episode_limit: int | None = None
    idles: bool = True

    @property
    def discount(self) -> float:
        """Gamma."""
        return self.horizon.discount

    @property
    def identity(self) -> str:
        """What tells it from other environments, in every process: a folder goes on with this one only."""
        return repr(self)

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode in every lane; the observations, a batch."""
        raise NotImplementedError

    def step(
        self, actions: np.ndarray, names: Iterable[str], done: np.ndarray, when: str
    ) -> LaneStep:
        """One step of all lanes.

        Args:
            actions: (lanes,), counted from 0.
            names: the signals to read.
            done: lanes that wait; what they give is not looked at.
            when: the step in words, for messages.
        """
        raise NotImplementedError

    def renewed(self, observations: Any, over: np.ndarray) -> tuple[Any, np.ndarray]:
        """What is seen once lanes that are over have begun anew, and which do so with the next step."""
        raise NotImplementedError

    def episodes(
        self,
        act: Actor,
        horizon: int,
        *,
        signals: Iterable[str] = ("reward",),
        seed: int | None = None,
    ) -> Episodes:
        """One episode of at most ``horizon`` steps per lane.

        Args:
            act: (observations, inputs, where episodes begin) -> actions, all with lanes first.
                ``observations`` are as the environment gives them, ``inputs`` as ``reader`` reads them: numbers
                of states, or arrays, of which ``self.states`` makes the numbers of bins.
            horizon: where to cut episodes, a truncation; never later than where nothing counts any more.
            signals: which to record.
            seed: for the first round; Gymnasium's own interface. Later ones go on from there.
        """
        try:
            return self._play(act, self.within(horizon), tuple(signals), seed)
        except Exception:
            self.close()
            raise

    def _play(self, act: Actor, horizon: int, names: tuple[str, ...], seed: int | None) -> Episodes:
        lanes = self.n_lanes
        observations = self.reset(seed)
        done, terminated = np.zeros(lanes, dtype=bool), np.zeros(lanes, dtype=bool)
        begins, never = np.ones(lanes, dtype=bool), np.zeros(lanes, dtype=bool)
        lengths = np.full(lanes, horizon)
        inputs, actions = [], []
        recorded: dict[str, list[np.ndarray]] = {name: [] for name in names}
        previous = self._read(observations, lanes, "when it was reset")
        last = previous.copy()
        for number in range(horizon):
            when = f"at step {number} of an episode"
            chosen = np.asarray(act(observations, previous, begins))
            inputs.append(previous)
            actions.append(chosen)
            step = self.step(chosen, names, done, when)
            for name in names:
                recorded[name].append(step.signals[name])
            over = (step.terminated | step.truncated) & ~done
            self.steps += int((~done).sum())
            lengths[over] = number + 1
            terminated |= over & step.terminated
            done |= over
            cut = over & ~step.terminated
            if self.shows_last and cut.any():
                last = self._read_some(step.observations, last, ~cut, when)
            if done.all():
                break
            observations = step.observations
            if self.waiting_show_anything and done.any():
                previous = self._read_some(observations, previous, done, when)
            else:
                previous = self._read(observations, lanes, when)
            begins = never
        found = {name: np.stack(values, axis=1) for name, values in recorded.items()}
        self._check(found, lengths)
        seen = np.stack(inputs, axis=1), np.stack(actions, axis=1)
        last[~done] = previous[~done]
        return Episodes(*seen, found, lengths, terminated, last if self.shows_last else None)

    def _check(self, signals: Mapping[str, np.ndarray], lengths: np.ndarray) -> None:
        """That signals are finite, where a step was taken."""
        for name, values in signals.items():
            taken = np.arange(values.shape[1]) < lengths[:, None]
            wrong = ~np.isfinite(values) & taken
            if wrong.any():
                lane, step = np.argwhere(wrong)[0]
                raise ExperienceError(
                    f"{self.name} gave the signal {name!r} as {values[lane, step]} at step {step} of an "
                    "episode; expected a finite number"
                )

    def _read(self, observations: Any, lanes: int, when: str) -> np.ndarray:
        found = self.reader.read(observations, lanes, when, numbered=self.numbered)
        self.reader.require_inside(found, when)
        return found

    def _read_some(
        self, observations: Any, previous: np.ndarray, done: np.ndarray, when: str
    ) -> np.ndarray:
        """Observations of the lanes that play; those that wait may show anything and keep their last."""
        playing, current = np.flatnonzero(~done), previous.copy()
        if self.reader.parts:
            part: Any = tuple(np.asarray(column)[playing] for column in observations)
        else:
            part = np.asarray(observations)[playing]
        current[playing] = self._read(part, playing.size, when)
        return current

    def source(self, signals: tuple[str, ...], observes: bool) -> Any:
        """Where a recursion gets its trajectories from; here, they are played outside of compiled code."""
        return Played(self.discount)

    def close(self) -> None:
        """Let go of what is open; ``with`` does it, too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def measure_in(self, features: Features | None, observed: Any) -> None:
        """Take states, features of what is ``observed``, or signals alone where it is neither."""
        self.features = features
        # Features of several discrete parts are features of the parts, not of their common number.
        countable = 0 < (self.reader.n_states or 0) <= MOST_STATES
        self.numbered = countable if features is None else isinstance(features, OneHot)
        if isinstance(features, OneHot) and not countable:
            raise ExperienceError(
                f"{self.name} has observations {observed}: {self.reader.n_states or 0:,} states, which no "
                "table holds. Give other features=, for instance FeatureFunction(function, size)."
            )

    @property
    def n_states(self) -> int:
        """Number of states, or of features where there are some."""
        if self.features is None:
            return (self.reader.n_states or 0) if self.numbered else 0
        return self.features.size

    @property
    def has_states(self) -> bool:
        """Whether what is measured are states or bins, of which an observation is exactly one."""
        return self.numbered if self.features is None else hasattr(self.features, "index")

    def states(self, inputs: Any) -> Any:
        """The states, or numbers of bins, of inputs (n, ...); inputs themselves where there are none."""
        return getattr(self.features, "index", lambda these: these)(inputs)

    def space(self, signals: Iterable[str]) -> FeatureSpace:
        """What utilities are bound to that name these signals."""
        read = tuple(signals)
        self.require_bounds_of(read)
        named = [name for name in read if not (self.reward_names and name == "reward")]
        offered = tuple(f"reward[{k}]" for k in range(len(self.reward_names)))
        return FeatureSpace(
            self.n_states, self.n_actions, self.horizon, named, self, (*offered, *self.reward_names)
        )

    def require_bounds_of(self, read: Sequence[str]) -> None:
        """That ranges were promised for signals that are read, or that the environment is known to have."""
        known = ("reward", *self.reward_names, *self.declared, *read)
        for name in self.bounds:
            if name not in known:
                raise ExperienceError(
                    f"bounds= of {self.name} are given for {name!r}, which no utility here reads. "
                    f"{did_you_mean(name, known)} An entry of info that other problems read is declared: "
                    f"signals={{{name!r}: from_info({name!r})}}."
                )

    def within(self, steps: int) -> int:
        """So many steps, or as many as count."""
        return steps if self.horizon.limit is None else min(steps, self.horizon.limit)

    def default_horizon(self) -> int:
        """Where discount^horizon falls below 1e-3, or nothing counts any more."""
        limit = self.horizon.limit
        if limit is not None and self.discount == 1.0:
            return limit
        return self.within(default_horizon(self.discount))


def environment_of(problem: Problem) -> Environment | None:
    """The environment that a problem is about, where there is no model."""
    return problem.environment if isinstance(problem.environment, Environment) else None


def default_horizon(discount: float, share: float = 1e-3) -> int:
    """The number of steps after which less than ``share`` of the discounted mass is left."""
    return max(1, math.ceil(math.log(share) / math.log(discount))) if discount > 0 else 1


def seeds(seed: int, *path: int, count: int) -> list[int]:
    """Seeds that depend on the seed and the path alone, for a simulator and for the policy in it."""
    words = np.random.SeedSequence([seed, *path]).generate_state(count)
    return [int(word) & 0x7FFFFFFF for word in words]
