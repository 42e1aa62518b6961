"""Lanes of an environment that is stepped by Python, such as Gymnasium's, played on and on.

Gymnasium cannot save a simulator. So all lanes are reset at fixed iterations, interrupted or not; the random
numbers of what is played from there depend on the seed and the iteration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cvxmdp.algorithms.actor_readings import LaneSteps
from cvxmdp.base.errors import ExperienceError
from cvxmdp.experience.environments.environment import Environment, seeds

Mask = np.ndarray | None
# Of inputs (n, ...), available actions (n, A) or None, and random numbers: actions as the policy draws them.
Draw = Callable[[np.ndarray, Mask, np.random.Generator], np.ndarray]
RESET, STEP = 1, 2  # what random numbers are for
NEVER = 2**31 - 1


class SteppedLanes:
    """The lanes of an environment.

    Args:
        environment: that is played.
        names: of the signals.
        lanes: how many of its lanes are played.
        limit: steps after which episodes are cut.
        seed: of the run.
        places: whether any function asks for states or features.
        observes: whether the policy is given observations, not numbers of states.
        given: from what the policy draws to what the environment takes.
    """

    def __init__(
        self,
        environment: Environment,
        names: tuple[str, ...],
        lanes: int,
        limit: int,
        seed: int,
        places: bool,
        observes: bool,
        given: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> None:
        self.environment, self.names = environment, names
        self.lanes, self.limit, self.seed = lanes, limit, seed
        self.places, self.observes, self.given = places, observes, given
        self.resting = np.arange(environment.n_lanes) >= lanes

    def reset(self, iteration: int) -> None:
        """Begin in every lane, out of step: first episodes are cut at random lengths, and not measured.

        One length is drawn from each of equal parts of the whole, so that every batch sees all ages alike.
        A vector environment that begins episodes by itself cannot be cut, and is measured from the start.
        """
        of_environment, of_lengths = seeds(self.seed, RESET, iteration, count=2)
        every, cuts = self.environment.n_lanes, self.environment.idles
        self.seen = self._read(self.environment.reset(of_environment))
        self.ages = np.zeros(every, dtype=np.int32)
        self.counted = np.full(every, 0.0 if cuts else 1.0, dtype=np.float32)
        shares = (np.arange(every) + np.random.default_rng(of_lengths).random(every)) / self.lanes
        first = 1 + (self.limit * (shares % 1.0)).astype(np.int64)
        self.limits = first if cuts else np.full(every, NEVER)
        self.waiting = np.zeros(every, dtype=bool)

    def play(self, iteration: int, length: int, draw: Draw) -> LaneSteps:
        """``length`` steps of every lane."""
        random = np.random.default_rng(seeds(self.seed, STEP, iteration, count=1)[0])
        rows = [self._step(draw, random) for _ in range(length)]
        stacked = [
            None if rows[0][k] is None else np.stack([row[k] for row in rows])[:, : self.lanes]
            for k in range(len(LaneSteps._fields))
        ]
        return LaneSteps(*stacked)

    def _step(self, draw: Draw, random: np.random.Generator) -> LaneSteps:
        environment, seen = self.environment, self.seen
        inputs = self._inputs(seen)
        masks = None if environment.masks is None else environment.masks.copy()
        actions = draw(inputs, masks, random)
        when = f"at step {int(self.ages.max())} of an episode"
        playing = ~self.waiting & ~self.resting
        step = environment.step(self.given(actions), self.names, ~playing, when)
        environment.steps += int(playing.sum())
        own = (step.terminated | step.truncated) & playing
        over = own | (playing & (self.ages + 1 >= self.limits))
        after = self._read(step.observations)
        # Another episode may have begun already: what ended this one is not seen then.
        if not environment.shows_last:
            after = np.where(own.reshape(-1, *[1] * (after.ndim - 1)), seen, after)
        taken = LaneSteps(
            inputs=inputs,
            after=self._inputs(after),
            masks=masks,
            actions=actions,
            places=self._places(seen) if self.places else None,
            signals=self._signals(step.signals, playing, when),
            ages=self.ages,
            counted=self.counted,
            played=playing.astype(np.float32),
            ended=(step.terminated & playing).astype(np.float32),
            over=over.astype(np.float32),
        )
        begins = over | self.waiting
        observations, self.waiting = environment.renewed(step.observations, over)
        self.seen = self._read(observations)
        self.ages = np.where(begins, 0, self.ages + 1).astype(np.int32)
        self.counted = np.where(begins, 1.0, self.counted).astype(np.float32)
        self.limits = np.where(begins & environment.idles, self.limit, self.limits)
        return taken

    def _read(self, observations: Any) -> np.ndarray:
        environment = self.environment
        when = "while it was played"
        found = environment.reader.read(
            observations, environment.n_lanes, when, numbered=environment.numbered
        )
        environment.reader.require_inside(found, when)
        return found

    def _signals(
        self, signals: Mapping[str, np.ndarray], playing: np.ndarray, when: str
    ) -> np.ndarray:
        """Of all lanes, (N, K); zeros in those that do not play."""
        found = np.stack([signals[name] for name in self.names], axis=1)
        wrong = ~np.isfinite(found) & playing[:, None]
        if wrong.any():
            lane, k = np.argwhere(wrong)[0]
            raise ExperienceError(
                f"{self.environment.name} gave the signal {self.names[k]!r} as {found[lane, k]} {when}; "
                "expected a finite number"
            )
        return np.where(playing[:, None], found, 0.0).astype(np.float32)

    def _inputs(self, seen: np.ndarray) -> np.ndarray:
        """What the policy is given."""
        if self.observes:
            return seen.astype(np.float32)
        return np.asarray(self.environment.states(seen), dtype=np.int32)

    def _places(self, seen: np.ndarray) -> np.ndarray:
        """States, bins, or features."""
        environment = self.environment
        if environment.has_states:
            return np.asarray(environment.states(seen), dtype=np.int32)
        assert environment.features is not None
        return np.asarray(environment.features(seen), dtype=np.float32)
