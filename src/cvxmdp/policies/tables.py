"""Policies given by their probabilities: the paper's direct parameterisation."""

from __future__ import annotations

from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.base.storage import write_arrays
from cvxmdp.models.validation import numbers
from cvxmdp.policies.predicting import draw_actions, likeliest, read_states

ROUNDING = 1e-9


class TabularPolicy:
    """A policy as the matrix of its probabilities, shape (S, A), exactly as given. Immutable.

    Args:
        probabilities: pi(a | s), rows that are not negative and sum to one.
    """

    kind = "tabular"
    _random: np.random.Generator

    def __init__(self, probabilities: Any) -> None:
        matrix = numbers(probabilities, "a policy", PolicyError)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise PolicyError(
                f"a policy is an (S, A) matrix; got shape {matrix.shape}"
                f"{_indices_hint(probabilities)}"
            )
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
                f"{_sums_hint(probabilities, matrix)}"
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
        return self._matrix if state is None else self._row(state)

    def sample(self, state: int, random: np.random.Generator) -> int:
        """Draw an action for the state."""
        return draw(self._row(state), random)

    def seed(self, seed: int | np.random.Generator) -> TabularPolicy:
        """Begin the random numbers of ``predict`` anew; returns the policy itself."""
        object.__setattr__(self, "_random", np.random.default_rng(seed))
        return self

    @property
    def random(self) -> np.random.Generator:
        """What ``predict`` draws from: of the last ``seed``, else of the operating system's entropy."""
        if not hasattr(self, "_random"):
            self.seed(np.random.default_rng())
        return self._random

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or an array of them, as Stable-Baselines3 does: (action, None).

        Args:
            observation: a state, or an array of states (one per environment).
            state, episode_start: for policies with a memory; this one has none.
            deterministic: take the likeliest action instead of drawing one. That is another policy, of
                which the constraints do not speak, and a warning says so.
        """
        states = read_states(observation, self.n_states)
        rows = self._matrix[states]
        actions = (
            likeliest(rows, self._matrix) if deterministic else draw_actions(rows, self.random)
        )
        return (actions if states.ndim else actions[()]), None

    def _row(self, state: int) -> np.ndarray:
        try:
            place = index(state)
        except TypeError:
            place = -1
        if not 0 <= place < self.n_states:
            raise PolicyError(
                f"there is no state {state!r}: the policy is for states 0 to {self.n_states - 1}"
            )
        row: np.ndarray = self._matrix[place]
        return row

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        write_arrays(path, "policy", {"probabilities": self._matrix}, {"kind": self.kind})

    def __repr__(self) -> str:
        deterministic = int((self._matrix.max(axis=1) == 1.0).sum())
        return (
            f"TabularPolicy({self.n_states:,} states; {self.n_actions} actions; deterministic in "
            f"{deterministic:,} of them)"
        )


def _indices_hint(given: Any) -> str:
    """What to write where somebody gave the action of each state instead of probabilities."""
    array = np.asarray(given)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        return ""
    return (
        ". For a deterministic policy with action indices[s] in state s write np.eye(A)[indices], "
        "A the number of actions"
    )


def _sums_hint(given: Any, matrix: np.ndarray) -> str:
    """How to repair rows that do not sum to one."""
    if (np.abs(matrix.sum(axis=0) - 1.0) <= ROUNDING).all():
        return (
            f"Its columns do: the shape is (S, A), states first, and {matrix.shape} looks like (A, S). "
            "Give its transpose, policy.T."
        )
    if np.asarray(given).dtype in (np.float32, np.float16):
        return (
            f"Rows in {np.asarray(given).dtype} are not precise enough: write "
            "policy = policy.astype(float) and then policy / policy.sum(axis=1, keepdims=True)."
        )
    return "Divide each row by its sum."


def refuse_change(policy: Any, name: str) -> None:
    """An error when a policy that is complete is changed: its probabilities would not follow."""
    if getattr(policy, "_frozen", False):
        raise AttributeError(
            f"a {type(policy).__name__} cannot be changed (tried to set {name!r}); make another"
        )


def table_of(policy: Any) -> np.ndarray | None:
    """The probabilities on all states, or on those that observations are turned into; None without any."""
    table = getattr(policy, "table", policy)
    return table.probabilities() if isinstance(table, TabularPolicy) else None


def draw(probabilities: np.ndarray, random: np.random.Generator) -> int:
    """Draw an index; one with probability zero is never drawn, whatever the rounding."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
