"""What every environment is: a source of episodes, measured in states or in features of observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from cvxmdp.environments.episodes import Episodes
from cvxmdp.environments.features import Features, OneHot
from cvxmdp.environments.spaces import ObservationReader
from cvxmdp.errors import ExperienceError
from cvxmdp.feature_space import FeatureSpace

MOST_STATES = 10_000_000
# (observations as the environment gives them, what was read of them, where episodes begin) -> actions
Actor = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]


class Environment:
    """A simulator with discrete actions; ``Problem`` takes it in place of a model.

    Attributes:
        name: for messages.
        discount: gamma.
        n_actions: A.
        reader: of its observations.
        features: of observations that are no states, or None.
        numbered: whether observations are read as states, one number for all parts of them.
        n_lanes: how many episodes ``episodes`` plays at a time.
        compiled: whether it can be played inside compiled code.
    """

    name: str
    discount: float
    n_actions: int
    reader: ObservationReader
    features: Features | None
    numbered: bool
    n_lanes: int
    compiled: ClassVar[bool] = False

    def episodes(
        self,
        act: Actor,
        horizon: int,
        *,
        signals: Iterable[str] = ("reward",),
        seed: int | None = None,
    ) -> Episodes:
        """One episode of at most ``horizon`` steps per lane."""
        raise NotImplementedError

    def source(self, signals: tuple[str, ...], observes: bool) -> Any:
        """Where a recursion gets its trajectories from; here, they are played outside of compiled code."""
        from cvxmdp.sampling.experience import Played

        return Played(self.discount)

    def close(self) -> None:
        """Let go of what is open."""

    def measure_in(self, features: Features | None, observed: Any) -> None:
        """Take states, or features of what is ``observed``; refuse what is neither."""
        self.features = features
        # Features of several discrete parts are features of the parts, not of their common number.
        self.numbered = features is None or isinstance(features, OneHot)
        if self.numbered and (self.reader.n_states or 0) > MOST_STATES:
            raise ExperienceError(
                f"{self.name} has observations {observed}: {self.reader.n_states:,} states are too many "
                "for a table. Give features=, for instance FeatureFunction(function, size)."
            )
        if features is None and self.reader.n_states is None:
            raise ExperienceError(
                f"{self.name} has observations {observed}, which are no states. Give features=, for "
                "instance UniformBins(low, high, bins) or RandomFourier(dimension, size, seed=0)."
            )

    @property
    def n_states(self) -> int:
        """Number of states, or of features where there are some."""
        if self.features is not None:
            return self.features.size
        return self.reader.n_states or 0

    @property
    def has_states(self) -> bool:
        """Whether what is measured are states or bins, of which an observation is exactly one."""
        return self.features is None or hasattr(self.features, "index")

    def states(self, inputs: Any) -> Any:
        """The states, or numbers of bins, of inputs (n, ...); inputs themselves where there are none."""
        if self.features is None or not hasattr(self.features, "index"):
            return inputs
        return self.features.index(inputs)

    def space(self, signals: Iterable[str]) -> FeatureSpace:
        """What utilities are bound to that name these signals."""
        return FeatureSpace(self.n_states, self.n_actions, self.discount, signals, self)

    def default_horizon(self) -> int:
        """Where discount^horizon falls below 1e-3."""
        return default_horizon(self.discount)


def default_horizon(discount: float, share: float = 1e-3) -> int:
    """The number of steps after which less than ``share`` of the discounted mass is left."""
    return max(1, math.ceil(math.log(share) / math.log(discount))) if discount > 0 else 1


def seeds(seed: int, *path: int, count: int) -> list[int]:
    """Seeds that depend on the seed and the path alone, for a simulator and for the policy in it."""
    words = np.random.SeedSequence([seed, *path]).generate_state(count)
    return [int(word) & 0x7FFFFFFF for word in words]
