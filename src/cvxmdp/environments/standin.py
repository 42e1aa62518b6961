"""What utilities are bound to where there is no model: the shape of an occupancy, and nothing else."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp.errors import UtilityError


class FeatureSpace:
    """F features and A actions of an environment. What only a model has is an error that says so.

    Args:
        n_states: F, the number of states or features.
        n_actions: A.
        discount: gamma.
    """

    def __init__(self, n_states: int, n_actions: int, discount: float) -> None:
        self.n_states, self.n_actions, self.discount = n_states, n_actions, discount

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

    def action_label(self, action: int) -> str:
        """Its number."""
        return str(action)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UtilityError(
            f"a utility asks for {name!r} of the model, and an environment has none. Policies as targets and "
            "smoothing need a model; give an occupancy as an array, for example from demonstrations(...), or "
            "signals by name."
        )
