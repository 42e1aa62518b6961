r"""What is measured where there is no model: features of observations, and signals.

An environment shows observations o, actions a and signals c (its reward, entries of its ``info``). What is
measured of them is

    sum_k discount^k [psi(o_k), c_k] (x) e_{a_k},   shape (F + K, A),

the feature occupancy in the first F rows and, below it, one row for each of the K signals that the problem
names. So a signal is a feature like any other: linear("reward") adds up its row, all other utilities read
the first F rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cvxmdp.base.errors import UtilityError, did_you_mean
from cvxmdp.models.horizon import Horizon, horizon_of
from cvxmdp.models.space import Space
from cvxmdp.policies.readers import Observable


class FeatureSpace(Space):
    """F features (or states), K signals and A actions of an environment.

    Args:
        n_features: F.
        n_actions: A.
        horizon: how far ahead to look, or the discount alone.
        signals: names of the signals that are measured.
        environment: where experience comes from, if that is known.
        offered: further signals that could be measured, for messages.
    """

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        horizon: Horizon | float,
        signals: Iterable[str] = (),
        environment: Observable | None = None,
        offered: Iterable[str] = (),
    ) -> None:
        self.actions = np.ones((n_features, n_actions), dtype=bool)
        self.horizon = horizon if isinstance(horizon, Horizon) else horizon_of(horizon)
        self.action_names = tuple(str(action) for action in range(n_actions))
        if environment is not None and environment.features is None and environment.numbered:
            self.state_names = environment.reader.state_names
        self._signals, self.environment = tuple(signals), environment
        self.offered = tuple(dict.fromkeys(offered))

    @property
    def signal_names(self) -> tuple[str, ...]:
        return self._signals

    @property
    def measured(self) -> tuple[int, int]:
        """(F + K, A)."""
        return self.shape[0] + len(self._signals), self.shape[1]

    def signal(self, name: str) -> np.ndarray:
        """Ones on the row of a signal, (F + K, A)."""
        if name not in self.signal_names:
            raise UtilityError(
                f"the signal {name!r} is not measured{self._why(name)}. "
                f"{did_you_mean(name, self.offered or self.signal_names)}"
            )
        reward = np.zeros(self.measured)
        reward[self.shape[0] + self.signal_names.index(name)] = 1.0
        return reward

    def _why(self, name: str) -> str:
        return ": the reward is a vector" if name == "reward" and self.offered else ""

    def __repr__(self) -> str:
        return f"FeatureSpace({self.shape[0]:,} features; {self.shape[1]} actions)"
