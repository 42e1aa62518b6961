"""What a policy is: the distribution of actions in a state, and a way to draw from it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Policy(Protocol):
    """A stationary policy pi(a | s) on a finite model."""

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        ...

    def probabilities(self, state: int | None = None) -> np.ndarray:
        """pi(. | state), shape (A,); without a state the whole matrix, shape (S, A)."""
        ...

    def sample(self, state: int, random: np.random.Generator) -> int:
        """Draw an action for the state."""
        ...

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        ...
