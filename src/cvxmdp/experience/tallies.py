"""Counting what episodes showed, step by step, until somebody asks for a model.

Outcomes are kept as numbers (pair * (S + 1) + successor) and how often each was seen; new ones wait in a list,
for merging them into the others takes longer the more there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.experience.episodes import Episodes
from cvxmdp.models.counts import Counts, SignalCounts


class Tally(NamedTuple):
    """What was counted so far: arrays alone, as a checkpoint keeps them.

    Attributes:
        keys: numbers of outcomes that were seen, sorted, (K,).
        times: how often, (K,).
        fresh: numbers of outcomes since they were last merged.
        begun: episodes that began in each state, (S,).
        sums: of the signals that are estimated, (signals, S*A).
        least, most: the smallest and largest value seen of each, (signals, S*A); infinite where none was.
    """

    keys: np.ndarray
    times: np.ndarray
    fresh: np.ndarray
    begun: np.ndarray
    sums: np.ndarray
    least: np.ndarray
    most: np.ndarray

    @classmethod
    def nothing(cls, n_states: int, n_actions: int, n_signals: int) -> Tally:
        """Before the first step."""
        none = np.zeros(0, dtype=np.int64)
        begun = np.zeros(n_states, dtype=np.int64)
        nothing = np.zeros((n_signals, n_states * n_actions))
        return cls(none, none, none, begun, nothing, nothing + np.inf, nothing - np.inf)

    def swings(self, visited: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far steps of these pairs, (S*A,), fell below their mean signals and rose above, (signals,)."""
        tried = visited & np.isfinite(self.most).all(axis=0)
        if not tried.any():
            return np.zeros(len(self.sums)), np.zeros(len(self.sums))
        n_states = self.begun.size
        times = np.bincount(self.keys // (n_states + 1), self.times, minlength=tried.size)
        means = (self.sums / np.maximum(times, 1.0))[:, tried]
        below, above = means - self.least[:, tried], self.most[:, tried] - means
        return np.maximum(below.max(axis=1), 0.0), np.maximum(above.max(axis=1), 0.0)

    def merged(self) -> Tally:
        """The same with nothing left to merge."""
        if not self.fresh.size:
            return self
        found, times = np.unique(self.fresh, return_counts=True)
        keys = np.concatenate([self.keys, found])
        unique, place = np.unique(keys, return_inverse=True)
        total = np.zeros(unique.size, dtype=np.int64)
        np.add.at(total, place, np.concatenate([self.times, times]))
        return self._replace(keys=unique, times=total, fresh=self.fresh[:0])


@dataclass(frozen=True)
class StepCounter:
    """How a tally is read and added to.

    Attributes:
        available: boolean (S, A).
        signals: names of those that are estimated.
        bounds: what was promised of them.
        treatment: in words, how steps were counted.
    """

    available: np.ndarray
    signals: tuple[str, ...]
    bounds: dict[str, tuple[float, float]]
    treatment: tuple[str, ...] = ()

    def nothing(self) -> Tally:
        """Before the first step."""
        n_states, n_actions = self.available.shape
        return Tally.nothing(n_states, n_actions, len(self.signals))

    def add(
        self, tally: Tally, episodes: Episodes, states: np.ndarray, last: np.ndarray | None
    ) -> Tally:
        """The tally with more episodes.

        Args:
            tally: so far.
            episodes: what was played; a cut one whose last successor is not known loses its last step.
            states: their inputs as numbers of states, (n, T).
            last: the states after the last steps, (n,), or None.
        """
        n_states, n_actions = self.available.shape
        lengths = episodes.lengths.copy()
        following = np.concatenate([states[:, 1:], states[:, -1:]], axis=1)
        lane = np.arange(len(lengths))
        if last is None:
            lengths = lengths - ~episodes.terminated
        else:
            following[lane, episodes.lengths - 1] = last
        ended = lane[episodes.terminated]
        following[ended, episodes.lengths[ended] - 1] = n_states
        rows, steps = np.nonzero(np.arange(states.shape[1]) < lengths[:, None])
        pairs = states[rows, steps] * n_actions + episodes.actions[rows, steps]
        sums, least, most = (found.copy() for found in (tally.sums, tally.least, tally.most))
        for number, name in enumerate(self.signals):
            values = episodes.signals[name][rows, steps]
            np.add.at(sums[number], pairs, values)
            np.minimum.at(least[number], pairs, values)
            np.maximum.at(most[number], pairs, values)
        keys = pairs.astype(np.int64) * (n_states + 1) + following[rows, steps]
        begun = tally.begun + np.bincount(states[:, 0], minlength=n_states)
        fresh = np.concatenate([tally.fresh, keys])
        return tally._replace(fresh=fresh, begun=begun, sums=sums, least=least, most=most)

    def counts(self, tally: Tally) -> Counts:
        """What a merged tally says."""
        n_states, n_actions = self.available.shape
        rows, columns = np.divmod(tally.keys, n_states + 1)
        shape = (n_states * n_actions, n_states + 1)
        outcomes = sp.csr_array((tally.times, (rows, columns)), shape=shape)
        signals = {
            name: SignalCounts(
                tally.sums[number].reshape(n_states, n_actions), self.bounds.get(name)
            )
            for number, name in enumerate(self.signals)
        }
        said = (f"{int(tally.times.sum()):,} steps of {int(tally.begun.sum()):,} episodes",)
        return Counts(
            outcomes, self.available, tally.begun, signals, None, (*said, *self.treatment)
        )
