"""Policies given by their probabilities: the paper's direct parameterisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.errors import PolicyError
from cvxmdp.files import write_arrays
from cvxmdp.models.validation import numbers

ROUNDING = 1e-9


class TabularPolicy:
    """A policy as the matrix of its probabilities, shape (S, A), exactly as given. Immutable.

    Args:
        probabilities: pi(a | s), rows that are not negative and sum to one.
    """

    kind = "tabular"

    def __init__(self, probabilities: Any) -> None:
        matrix = numbers(probabilities, "a policy", PolicyError)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise PolicyError(f"a policy is an (S, A) matrix; got shape {matrix.shape}")
        wrong = ~np.isfinite(matrix) | (matrix < 0)
        if wrong.any():
            state, action = np.argwhere(wrong)[0]
            raise PolicyError(
                f"the probability of action {action} in state {state} is {matrix[state, action]}; "
                "expected a number between 0 and 1"
            )
        sums = matrix.sum(axis=1)
        off = np.abs(sums - 1.0) > ROUNDING
        if off.any():
            state = int(np.argmax(off))
            raise PolicyError(
                f"the probabilities in state {state} sum to {sums[state]:.12g}, not to one. "
                "Divide each row by its sum."
            )
        matrix.flags.writeable = False
        self._matrix = matrix
        self._frozen = True

    def __setattr__(self, name: str, value: Any) -> None:
        refuse_change(self, name)
        super().__setattr__(name, value)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self._matrix.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self._matrix.shape[1])

    def probabilities(self, state: int | None = None) -> np.ndarray:
        """pi(. | state), shape (A,); without a state the whole matrix, shape (S, A)."""
        return self._matrix if state is None else self._matrix[state]

    def sample(self, state: int, random: np.random.Generator) -> int:
        """Draw an action for the state."""
        return draw(self._matrix[state], random)

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        write_arrays(path, "policy", {"probabilities": self._matrix}, {"kind": self.kind})

    def __repr__(self) -> str:
        deterministic = int((self._matrix.max(axis=1) == 1.0).sum())
        return (
            f"TabularPolicy({self.n_states:,} states; {self.n_actions} actions; deterministic in "
            f"{deterministic:,} of them)"
        )


def refuse_change(policy: Any, name: str) -> None:
    """An error when a policy that is complete is changed: its probabilities would not follow."""
    if getattr(policy, "_frozen", False):
        raise AttributeError(
            f"a {type(policy).__name__} cannot be changed (tried to set {name!r}); make another"
        )


def draw(probabilities: np.ndarray, random: np.random.Generator) -> int:
    """Draw an index; one with probability zero is never drawn, whatever the rounding."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
