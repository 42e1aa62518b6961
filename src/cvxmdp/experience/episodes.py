r"""Episodes, and what they say about an occupancy.

A sampled episode of K steps gives (eq. vanilla_OM_estimator) X = sum_{k < K} discount^k psi(o_k) (x)
e_{a_k}. Where it *terminated* nothing follows. Where it was cut, by a time limit or our horizon, what
follows has at most the mass discount^K / (1 - discount), its ``tail``: the bias of truncation, which is
carried along and never taken for an ending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ExperienceError
from cvxmdp.models.horizon import Horizon, horizon_of
from cvxmdp.policies.features import Features


@dataclass(frozen=True)
class Episodes:
    """A batch of n episodes of at most T steps.

    Attributes:
        inputs: states (n, T), or observations for features (n, T, ...).
        actions: (n, T).
        signals: per step, name -> (n, T).
        lengths: steps really taken, (n,); what stands behind them is not read.
        terminated: whether the last step ended the episode, (n,); where not, it was cut.
        last: what was seen after the last step, (n, ...); says nothing where the episode terminated. None where
            the environment does not show it.
    """

    inputs: np.ndarray
    actions: np.ndarray
    signals: Mapping[str, np.ndarray]
    lengths: np.ndarray
    terminated: np.ndarray
    last: np.ndarray | None = None


@dataclass(frozen=True)
class Sample:
    """What n independent episodes say.

    Attributes:
        occupancies: one row per episode, (n, F * A); sparse where features are one-hot.
        returns: discounted sums of signals, name -> (n,).
        tails: discount^K / (1 - discount) where the episode was cut, else 0, (n,).
        lengths: (n,).
        terminated: (n,).
        ranges: smallest and largest value seen of each signal.
        shape: (F, A).
        by_time: occupancies of every step, (n, T * S * A), of a model whose rewards may depend on time.
    """

    occupancies: Any
    returns: Mapping[str, np.ndarray]
    tails: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    ranges: Mapping[str, tuple[float, float]]
    shape: tuple[int, int]
    by_time: Any = None

    @property
    def n(self) -> int:
        return len(self.lengths)

    @property
    def truncated(self) -> int:
        """How many episodes were cut."""
        return int((~self.terminated).sum())

    def mean(self, weights: np.ndarray | None = None) -> np.ndarray:
        """The mean occupancy, (F, A); with weights, of the resampled episodes."""
        shares = np.full(self.n, 1.0 / self.n) if weights is None else weights
        return np.asarray(self.occupancies.T @ shares).reshape(self.shape)

    def squares(self) -> np.ndarray:
        """|X_i|^2 of each episode, (n,)."""
        if sp.issparse(self.occupancies):
            return np.asarray(self.occupancies.power(2).sum(axis=1)).ravel()
        return np.asarray((self.occupancies**2).sum(axis=1))

    def inner(self, reward: np.ndarray) -> np.ndarray:
        """<reward, X_i> of each episode, (n,); of a reward by time, (T * S, A), with the time of its steps."""
        timed = reward.size > self.shape[0] * self.shape[1]
        if timed and self.by_time is None:
            raise ExperienceError(
                "a reward by time, (T, S, A), is read of episodes of a model with horizon=T; of an environment "
                "give a signal instead"
            )
        return np.asarray((self.by_time if timed else self.occupancies) @ reward.ravel())


def summarise(
    episodes: Episodes,
    horizon: Horizon | float,
    n_actions: int,
    *,
    n_states: int | None = None,
    features: Features | None = None,
    after: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Sample:
    """The sample of episodes whose inputs are states (``n_states``) or observations (``features``).

    Inputs (n, T, ``n_states``) without ``features`` are features already; no features at all (size 0) are
    measured of observations without them. ``after`` says what mass may follow after so many steps; that of the
    horizon, or of a discount, where none is given. Actions that are vectors count as one.
    """
    count, longest = episodes.actions.shape[:2]
    taken = episodes.actions if episodes.actions.ndim == 2 else np.zeros((count, longest), int)
    alive = np.arange(longest) < episodes.lengths[:, None]
    horizon = horizon if isinstance(horizon, Horizon) else horizon_of(horizon)
    weights = horizon.discount ** np.arange(longest)
    after = horizon.tail if after is None else after
    tails = np.where(episodes.terminated, 0.0, after(episodes.lengths))
    size = n_states if features is None else features.size
    if size is None:
        raise TypeError("states need n_states, observations need features")
    rows, steps = np.nonzero(alive)
    actions = taken[rows, steps]
    counted = episodes.inputs.ndim == 2 if features is None else hasattr(features, "index")
    if size == 0:
        occupancies: Any = np.zeros((count, 0))
    elif counted:
        used = episodes.inputs[rows, steps]
        index = getattr(features, "index", np.asarray)(used)
        occupancies = sp.csr_array(
            (weights[steps], (rows, np.asarray(index, dtype=np.int64) * n_actions + actions)),
            shape=(count, size * n_actions),
        )
    else:
        occupancies = np.zeros((count, size, n_actions))
        for step in range(longest):
            here = np.flatnonzero(alive[:, step])
            if not here.size:
                break
            seen = episodes.inputs[here, step]
            found = np.asarray(seen if features is None else features(seen), dtype=np.float64)
            occupancies[here, :, taken[here, step]] += weights[step] * found
        occupancies = occupancies.reshape(count, -1)
    returns, ranges = {}, {}
    for name, values in episodes.signals.items():
        seen = np.where(alive, values, 0.0)
        returns[name] = seen @ weights
        inside = values[alive]
        ranges[name] = (float(inside.min()), float(inside.max()))
    lengths, terminated = episodes.lengths, episodes.terminated
    return Sample(occupancies, returns, tails, lengths, terminated, ranges, (size, n_actions))


def joined(parts: Iterable[Sample], most: int | None = None) -> Sample:
    """One sample of several; of at most ``most`` episodes."""
    samples = list(parts)
    kept = slice(0, most)
    stack = sp.vstack if sp.issparse(samples[0].occupancies) else np.concatenate
    occupancies = stack([sample.occupancies for sample in samples])
    names, timed = samples[0].returns, [sample.by_time for sample in samples]
    return Sample(
        sp.csr_array(occupancies)[kept] if sp.issparse(occupancies) else occupancies[kept],
        {name: np.concatenate([part.returns[name] for part in samples])[kept] for name in names},
        np.concatenate([part.tails for part in samples])[kept],
        np.concatenate([part.lengths for part in samples])[kept],
        np.concatenate([part.terminated for part in samples])[kept],
        {
            name: (
                min(part.ranges[name][0] for part in samples),
                max(part.ranges[name][1] for part in samples),
            )
            for name in names
        },
        samples[0].shape,
        None if samples[0].by_time is None else sp.csr_array(sp.vstack(timed))[kept],
    )
