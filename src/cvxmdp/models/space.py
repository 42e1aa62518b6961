r"""What utilities are bound to where there is no model: the shape of an occupancy, and nothing else.

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
from typing import Any

import numpy as np

from cvxmdp.base.errors import UtilityError, did_you_mean


class FeatureSpace:
    """F features, K signals and A actions of an environment. What only a model has is an error that says so.

    Args:
        n_states: F, the number of states or features.
        n_actions: A.
        discount: gamma.
        signals: names of the signals that are measured.
        environment: where experience comes from, if that is known.
    """

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        discount: float,
        signals: Iterable[str] = (),
        environment: Any = None,
    ) -> None:
        self.n_states, self.n_actions, self.discount = n_states, n_actions, discount
        self.signal_names, self.environment = tuple(signals), environment
        self.layout, self.note = None, ""

    @property
    def shape(self) -> tuple[int, int]:
        """(F + K, A): of what is measured."""
        return self.n_states + len(self.signal_names), self.n_actions

    @property
    def max_mass(self) -> float:
        """1 / (1 - discount)."""
        return 1.0 / (1.0 - self.discount)

    @cached_property
    def actions(self) -> np.ndarray:
        """Every action is available."""
        return np.ones((self.n_states, self.n_actions), dtype=bool)

    @property
    def reachable_pairs(self) -> np.ndarray:
        """Nobody knows better than: all of them."""
        return self.actions

    def state_label(self, state: int) -> str:
        """Its number."""
        return str(state)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(str(action) for action in range(self.n_actions))

    def action_label(self, action: int) -> str:
        """Its number."""
        return str(action)

    def signal(self, name: str) -> np.ndarray:
        """Ones on the row of a signal, (F + K, A)."""
        if name not in self.signal_names:
            raise UtilityError(
                f"the signal {name!r} is not measured. {did_you_mean(name, self.signal_names)}"
            )
        reward = np.zeros(self.shape)
        reward[self.n_states + self.signal_names.index(name)] = 1.0
        return reward

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UtilityError(
            f"this asks for {name!r} of the model, and an environment has none. Policies as targets and "
            "smoothing need a model; give an occupancy as an array, for example from demonstrations(...), or "
            "signals by name."
        )

    def __repr__(self) -> str:
        return f"FeatureSpace({self.n_states:,} features; {self.n_actions} actions)"
