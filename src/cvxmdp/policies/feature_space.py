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
from functools import cached_property

import numpy as np

from cvxmdp.base.errors import UtilityError, did_you_mean
from cvxmdp.policies.readers import Observable


class FeatureSpace:
    """F features (or states), K signals and A actions of an environment.

    Args:
        n_features: F.
        n_actions: A.
        discount: gamma.
        signals: names of the signals that are measured.
        environment: where experience comes from, if that is known.
    """

    layout = None
    note = ""

    def __init__(
        self,
        n_features: int,
        n_actions: int,
        discount: float,
        signals: Iterable[str] = (),
        environment: Observable | None = None,
    ) -> None:
        self.shape, self.discount = (n_features, n_actions), discount
        self.signal_names, self.environment = tuple(signals), environment

    @property
    def measured(self) -> tuple[int, int]:
        """(F + K, A)."""
        return self.shape[0] + len(self.signal_names), self.shape[1]

    @property
    def max_mass(self) -> float:
        """1 / (1 - discount)."""
        return 1.0 / (1.0 - self.discount)

    @cached_property
    def actions(self) -> np.ndarray:
        """Every action is available."""
        return np.ones(self.shape, dtype=bool)

    @property
    def reachable_pairs(self) -> np.ndarray:
        """Nobody knows better than: all of them."""
        return self.actions

    @property
    def action_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(str(action) for action in range(self.shape[1]))

    def state_label(self, state: int) -> str:
        """Its number."""
        return str(state)

    def action_label(self, action: int) -> str:
        """Its number."""
        return str(action)

    def signal(self, name: str) -> np.ndarray:
        """Ones on the row of a signal, (F + K, A)."""
        if name not in self.signal_names:
            raise UtilityError(
                f"the signal {name!r} is not measured. {did_you_mean(name, self.signal_names)}"
            )
        reward = np.zeros(self.measured)
        reward[self.shape[0] + self.signal_names.index(name)] = 1.0
        return reward

    def __repr__(self) -> str:
        return f"FeatureSpace({self.shape[0]:,} features; {self.shape[1]} actions)"
