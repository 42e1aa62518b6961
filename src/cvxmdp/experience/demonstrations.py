r"""Demonstrations: the occupancy of an expert, from what was recorded of him, and how sure it is.

The estimate is the mean over episodes of sum_k discount^k psi(o_k) (x) e_{a_k}. With n episodes and M = 1 /
(1 - discount), with probability at least 1 - delta its distance to the truth is at most

    l2:  M (1 + sqrt(log(4/delta))) / sqrt(n)             + tau      (bounded differences, McDiarmid 1989), or
         2 M log(16/delta) / n + sqrt(2 V log(16/delta) / n) + tau     (Pinelis 1994, Smale and Zhou 2007),
    l1:  M (sqrt(S A) + sqrt(2 log(4/delta))) / sqrt(n)   + tau      or sqrt(S A) times that of l2,

whichever is smaller, V a bound on the mean square of the episodes' norms; ``cvxmdp.experience.concentration``
has the details. tau is what truncation hid: episodes that were cut after K steps miss a mass of at most
discount^K / (1 - discount), and tau bounds its expectation (empirical Bernstein, at delta/2); it is
discount^limit / (1 - discount) where ``episode_limit`` says that recordings were cut there and no sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.removed import refusing_removed
from cvxmdp.experience.concentration import Radius, VectorBound, bernstein_radius
from cvxmdp.experience.environments.environment import Environment
from cvxmdp.experience.episodes import Episodes, Sample, joined, summarise
from cvxmdp.experience.recordings import Names, Recording, read_recordings
from cvxmdp.models.horizon import Horizon, horizon_of
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import read_discount
from cvxmdp.policies import Policy
from cvxmdp.policies.features import Features, Norms
from cvxmdp.policies.occupancies import occupancy_of

NORMS = ("l1", "l2")


@dataclass(frozen=True)
class Demonstrations(InNotebooks):
    """An expert's occupancy. Give it to ``distance(...)`` as it is.

    Attributes:
        occupancy: the estimate, (S, A) or (F, A).
        discount: gamma.
        episodes: how many were recorded; 0 where the occupancy is exact.
        truncated: how many of them were cut before they ended.
        tails: the mass that each may have missed, (n,).
        size: bounds on the norms of one episode's occupancy.
        squares: squares of the l2 norms of the episodes' occupancies, (n,).
        nonnegative: whether its entries are never negative.
        episode_limit: recordings were cut here and no sooner; None where nobody said so.
    """

    occupancy: np.ndarray
    discount: float
    episodes: int
    truncated: int
    tails: np.ndarray = field(repr=False)
    size: Radius | None
    squares: np.ndarray = field(repr=False)
    nonnegative: bool = True
    episode_limit: int | None = None

    @property
    def horizon(self) -> Horizon:
        """How far ahead the occupancy looks."""
        return horizon_of(self.discount)

    def radius(self, norm: str = "l2", confidence: float = 0.95) -> float:
        """How far the truth can be from the estimate in that norm, with that confidence.

        Use it as d_0, or add it to d_0: an expert who keeps within d_0 of something keeps, as far as the
        recordings show, within d_0 + radius of it.

        Args:
            norm: "l1" or "l2".
            confidence: between 0 and 1.
        """
        if norm not in NORMS:
            raise ExperienceError(f"a radius is in the norm 'l1' or 'l2'; got {norm!r}")
        if not 0.0 < confidence < 1.0:
            raise ExperienceError(f"confidence must be between 0 and 1; got {confidence!r}")
        if not self.episodes:
            return 0.0
        if self.size is None:
            raise ExperienceError(
                "nobody knows how large these features are: give FeatureFunction(..., norms=(l1, l2, "
                "nonnegative))"
            )
        delta = (1.0 - confidence) / 2.0
        vectors = VectorBound(
            self.episodes, self.size, self.nonnegative, self.occupancy.size, self.squares
        )
        found, hidden = vectors.radius(delta), self.truncation(delta) / self.horizon.longest
        return float(getattr(found, norm) + hidden * getattr(self.size, norm))

    def truncation(self, delta: float) -> float:
        """tau: a bound on the expected mass that was cut off, wrong with probability at most delta."""
        mass = self.horizon.longest
        if self.episode_limit is not None:
            return float(self.horizon.tail(self.episode_limit))
        bound = float(self.tails.mean()) + bernstein_radius(self.tails, mass, delta)
        return min(bound, mass)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.occupancy, dtype=dtype)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.occupancy.shape)
        if not self.episodes:
            return f"Demonstrations({shape}; exact)"
        cut = f", {self.truncated:,} of them cut" if self.truncated else ""
        return (
            f"Demonstrations({shape}; {self.episodes:,} episodes{cut}; discount {self.discount:g})"
        )


@refusing_removed
def demonstrations(
    source: Any,
    mdp: TabularMDP | Environment | None = None,
    *,
    discount: float | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    features: Features | None = None,
    episode_limit: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> Demonstrations:
    """The occupancy of an expert, from recordings or from his policy.

    Args:
        source: one of

            - episodes in memory: a list of lists of (state, action), or of mappings with "observations"
              (or "states"), "actions" and, where the last step ended the episode, "terminated": True (or
              "terminations", one per step). Without it an episode counts as cut;
            - the path of a CSV or Parquet file, or a data frame, with columns ``episode``, ``state``,
              ``action`` and ``terminated``;
            - the path of an NPZ file with arrays of the same names, one row per step (``observations``,
              ``actions`` and ``terminations`` are understood as well); never unpickled;
            - a Minari dataset: the folder on disk (read with h5py), or the loaded dataset;
            - a policy, with a model: its exact occupancy.
        mdp: the model; brings discount, numbers and names of states and actions. Or an environment.
        discount, n_states, n_actions: otherwise.
        features: of observations that are not states; the occupancy is then per feature and action.
        episode_limit: say that recordings were cut at so many steps and never sooner; otherwise the radius
            allows for cuts anywhere.
        columns: other names for the columns, as {"state": "s"}.
    """
    names: Names = (None, None)
    if mdp is not None:
        discount = mdp.discount if discount is None else discount
        n_states, n_actions = mdp.n_states, mdp.n_actions
        if isinstance(mdp, TabularMDP):
            names = (mdp.state_names, mdp.action_names)
        elif features is None:
            features = mdp.features
    if isinstance(source, Policy) or isinstance(getattr(source, "policy", None), Policy):
        return _exact(source, mdp if isinstance(mdp, TabularMDP) else None)
    if discount is None:
        raise ExperienceError("demonstrations are discounted: give a model, or discount=")
    gamma = read_discount(discount)
    if episode_limit is not None and (not isinstance(episode_limit, int) or episode_limit < 1):
        raise ExperienceError(
            f"episode_limit must be a whole number of steps, at least 1; got {episode_limit!r}"
        )
    recordings = list(read_recordings(source, columns, names))
    if not recordings:
        raise ExperienceError("there are no episodes in these demonstrations")
    n_actions = _count(n_actions, recordings, lambda r: r.actions, "actions")
    if features is None:
        for recording in recordings:
            _require_states(recording)
        n_states = _count(n_states, recordings, lambda r: r.inputs, "states")
    if episode_limit is not None:
        _check_limit(recordings, episode_limit)
    sample = _summary(recordings, gamma, n_actions, n_states, features)
    mass = horizon_of(gamma).longest
    norms = Norms(1.0, 1.0, True) if features is None else features.norms
    size = None if norms is None else Radius(norms.l1 * mass, norms.l2 * mass)
    occupancy, squares = sample.mean(), sample.squares()
    for array in (occupancy, squares, sample.tails):
        array.flags.writeable = False
    positive = norms is None or norms.nonnegative
    seen = (sample.n, sample.truncated, sample.tails)
    return Demonstrations(occupancy, gamma, *seen, size, squares, positive, episode_limit)


def _exact(source: Any, model: TabularMDP | None) -> Demonstrations:
    if model is None:
        raise ExperienceError(
            "the occupancy of a policy depends on the model: demonstrations(policy, model)"
        )
    occupancy = occupancy_of(model, source)
    occupancy.flags.writeable = False
    return Demonstrations(occupancy, model.discount, 0, 0, np.zeros(0), None, np.zeros(0))


def _require_states(recording: Recording) -> None:
    if recording.inputs.ndim != 1 or recording.inputs.dtype.kind not in "iu":
        raise ExperienceError(
            f"{recording.place}: observations of shape {recording.inputs.shape[1:]} and type "
            f"{recording.inputs.dtype} are no states; give features=, for instance "
            "UniformBins(low, high, bins)"
        )


def _count(
    given: int | None,
    recordings: list[Recording],
    column: Callable[[Recording], np.ndarray],
    what: str,
) -> int:
    """The number of states or actions: as given, and every recorded one fits."""
    if given is None:
        raise ExperienceError(
            f"how many {what} are there? The largest recorded one need not be the last: give a model, or "
            f"n_{what}="
        )
    for recording in recordings:
        wrong = (column(recording) < 0) | (column(recording) >= given)
        if wrong.any():
            step = int(np.argmax(wrong))
            raise ExperienceError(
                f"{recording.at(step)}: {what[:-1]} {column(recording)[step]} is not one of 0 to "
                f"{given - 1}"
            )
    return int(given)


def _check_limit(recordings: list[Recording], episode_limit: int) -> None:
    for recording in recordings:
        if not recording.terminated and len(recording.actions) < episode_limit:
            raise ExperienceError(
                f"{recording.place} was cut after {len(recording.actions)} steps, although episode_limit="
                f"{episode_limit} says that none was cut sooner"
            )


def _summary(
    recordings: list[Recording],
    discount: float,
    n_actions: int,
    n_states: int | None,
    features: Features | None,
) -> Sample:
    def one(recording: Recording) -> Sample:
        episodes = Episodes(
            recording.inputs[None],
            recording.actions[None],
            {},
            np.array([len(recording.actions)]),
            np.array([recording.terminated]),
        )
        return summarise(episodes, discount, n_actions, n_states=n_states, features=features)

    return joined(map(one, recordings))
