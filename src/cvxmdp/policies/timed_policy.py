"""Policies that depend on time: a table for every step of a finite horizon."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.base.table_files import Columns
from cvxmdp.models.space import Space
from cvxmdp.models.validation import numbers
from cvxmdp.policies.policy import Arrays, draw_actions, likeliest
from cvxmdp.policies.tables import TabularPolicy


class TimedPolicy(TabularPolicy):
    """A policy as a table per step, shape (T, S, A), exactly as given. Immutable.

    ``predict`` counts the steps itself, from the last ``episode_start`` on. After the last step an episode
    begins anew; where it is said that none does, the last table goes on.

    Args:
        probabilities: pi_t(a | s), rows that are not negative and sum to one.
    """

    kind = "timed"

    def __init__(self, probabilities: Any) -> None:
        tables = numbers(probabilities, "a policy", PolicyError)
        if tables.ndim != 3 or 0 in tables.shape:
            raise PolicyError(
                f"a policy that depends on time is (T, S, A); got shape {tables.shape}"
            )
        self._steps = int(tables.shape[0])
        self._time: np.ndarray | None = None
        super().__init__(tables.reshape(-1, tables.shape[2]))

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return self._steps

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self._matrix.shape[0]) // self._steps

    @property
    def tables(self) -> np.ndarray:
        """All of it, (T, S, A)."""
        return self._matrix.reshape(self._steps, self.n_states, self.n_actions)

    def columns(self, pairs: np.ndarray | None = None) -> Columns:
        """A row per step and pair: time, and the columns of a table without it."""
        listed = np.ones(self.rows.shape, dtype=bool) if pairs is None else pairs
        return {"time": np.nonzero(listed)[0] // self.n_states, **super().columns(pairs)}

    def probabilities(self, state: Any = None, time: int | None = None) -> np.ndarray:
        """pi_t(. | state), shape (A,); without a state (S, A), without a time (T, S, A) or (T, A)."""
        found = self.tables if time is None else self.tables[self._at(time)]
        return found if state is None else found[..., self.states.number(state), :]

    def _at(self, time: int) -> int:
        try:
            place = index(time)
        except TypeError:
            place = -1
        if not 0 <= place < self._steps:
            raise PolicyError(f"there is no step {time!r}: they are 0 to {self._steps - 1}")
        return place

    def sample(self, state: Any, random: np.random.Generator, time: int = 0) -> int:
        """Draw an action for the state at a time."""
        return int(draw_actions(self.probabilities(state, time), random))

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        states = self.states.numbers(observation)
        before = self._time
        if before is None or before.shape != states.shape:
            time = np.zeros(states.shape, dtype=np.int64)
        else:
            begins = before + 1 == self._steps if episode_start is None else episode_start
            time = np.where(begins, 0, np.minimum(before + 1, self._steps - 1))
        object.__setattr__(self, "_time", time)
        rows = self.tables[time, states]
        acting = likeliest(rows, self._matrix) if deterministic else draw_actions(rows, self.random)
        return acting if states.ndim else acting[()]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        return {"probabilities": self.tables}, {"kind": self.kind}

    def __repr__(self) -> str:
        return f"TimedPolicy({self._steps:,} steps; {self.n_states:,} states; {self.n_actions} actions)"


def table_policy(given: Any) -> TabularPolicy:
    """The policy of probabilities (S, A), or (T, S, A) where it depends on time."""
    return TimedPolicy(given) if np.ndim(given) == 3 else TabularPolicy(given)


def from_rows(rows: np.ndarray, space: Space) -> TabularPolicy:
    """The policy of the rows of a model's flow, with its names: by the step where its horizon counts steps."""
    steps = space.horizon.steps
    tables = rows if steps is None else rows.reshape(steps, -1, rows.shape[1])
    return table_policy(tables).named(space.state_names, space.action_names)
