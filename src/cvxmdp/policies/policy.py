"""What a policy is, and how it acts: actions for states, one or many, in the manner of Stable-Baselines3."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cvxmdp.base.errors import CvxmdpWarning, PolicyError


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

    def seed(self, seed: int | np.random.Generator) -> Policy:
        """The source of what ``predict`` draws from now on."""
        ...

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or many, and None: the manner of Stable-Baselines3."""
        ...

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        ...


def read_states(observation: Any, n_states: int) -> np.ndarray:
    """Observations as an array of states, of any shape; an error names the first that is none."""
    states = np.asarray(observation)
    if states.dtype.kind not in "iu" or not states.size:
        raise PolicyError(
            f"a policy on a table takes states, whole numbers from 0 to {n_states - 1}; got "
            f"{observation!r}. Observations of another kind need features."
        )
    outside = (states < 0) | (states >= n_states)
    if outside.any():
        raise PolicyError(
            f"there is no state {int(states[outside].ravel()[0])}: the policy is for states 0 to "
            f"{n_states - 1}"
        )
    return states


def draw_actions(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One action per row of probabilities (..., A); one with probability zero is never drawn."""
    cumulative = np.cumsum(rows, axis=-1)
    threshold = random.random(rows.shape[:-1]) * cumulative[..., -1]
    return np.asarray((cumulative <= threshold[..., None]).sum(axis=-1))


def likeliest(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The likeliest action of each row, with a warning where that makes another policy."""
    if (matrix.max(axis=1) < 1.0).any():
        warnings.warn(
            "deterministic=True takes the likeliest action of each state. That is another policy: the "
            "objective and the constraints of the solution do not speak of it. Evaluate it on its own, "
            "or leave deterministic=False.",
            CvxmdpWarning,
            stacklevel=3,
        )
    return np.asarray(rows.argmax(axis=-1))
