r"""Tables: policies given by their probabilities, or by logits.

The softmax table is the paper's eq. (soft_max_policy), pi(a | s) = exp(theta_sa) / sum exp. Its parameters are
logits of shape (S, A); actions that are not available have probability zero whatever their logit. It has
M_pi1 = 1 and M_pi2 = 0 in the paper's assumption on parameterisations, but it does not satisfy the rest of it:
adding a constant to a row of logits changes nothing, and near the border the inverse map is not Lipschitz.
"""

from __future__ import annotations

import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import softmax

from cvxmdp.base.errors import PolicyError, require
from cvxmdp.base.storage import whole_file, write_arrays
from cvxmdp.base.table_files import WRITERS, Columns, write_columns
from cvxmdp.models.names import Names
from cvxmdp.models.validation import numbers, read_names
from cvxmdp.policies.policy import Acting, Arrays, draw_actions, likeliest, require_ending

ROUNDING = 1e-9
RANDOM = 1e-6  # probability of a second action below which a policy does not randomise


class TabularPolicy(Acting):
    """A policy as the matrix of its probabilities, shape (S, A), exactly as given. Immutable.

    Args:
        probabilities: pi(a | s), rows that are not negative and sum to one.

    Attributes:
        state_names, action_names: of the model it was made for, where that has some (``named``).
        fallback: boolean, a number per row: states that the policy never visits, where its action is only
            sensible (``marked``); None where none is.
    """

    kind = "tabular"
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    fallback: np.ndarray | None = None

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
        if getattr(self, "_frozen", False):  # its probabilities would not follow
            raise AttributeError(
                f"a {type(self).__name__} cannot be changed (tried to set {name!r}); make another"
            )
        super().__setattr__(name, value)

    def named(self, state_names: Any, action_names: Any) -> Self:
        """The same policy with names of states and actions, by which another model can use it."""
        other = copy.copy(self)
        for name, given, count in (
            ("state_names", state_names, self.n_states),
            ("action_names", action_names, self.n_actions),
        ):
            object.__setattr__(other, name, read_names(given, count, name))
        other.__dict__.pop("states", None)  # they have other names now
        return other

    def marked(self, fallback: Any) -> Self:
        """The same policy with the states marked that it never visits, boolean, a number per row."""
        mask = np.array(fallback, dtype=bool).ravel()
        if mask.shape != self._matrix.shape[:1]:
            raise PolicyError(
                f"{mask.size} marks of states that are never visited, for {len(self._matrix)} rows"
            )
        mask.flags.writeable = False
        other = copy.copy(self)
        object.__setattr__(other, "fallback", mask if mask.any() else None)
        return other

    def save(self, path: str | Path) -> None:
        """Write the policy in the format of the file's ending; ``load_policy`` reads it again.

        ``.safetensors`` (or no ending) keeps everything; ``.csv``, ``.json`` and ``.parquet`` have a row per
        state and action (``columns``), ``.npz`` the array ``probabilities``.
        """
        place = Path(path)
        if place.suffix in WRITERS:
            write_columns(place, self.columns())
            return
        if place.suffix == ".npz":
            with whole_file(place) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, probabilities=self.probabilities())
            return
        require_ending(place, (*WRITERS, ".npz"))
        arrays, description = self.contents()
        if self.fallback is not None:
            arrays = {**arrays, "fallback": self.fallback}
        names = {"state_names": self.state_names, "action_names": self.action_names}
        known = {name: given for name, given in names.items() if given is not None}
        write_arrays(path, "policy", arrays, {**description, **known})

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self._matrix.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self._matrix.shape[1])

    @property
    def rows(self) -> np.ndarray:
        """All rows, those of later steps below those of earlier ones where the policy depends on time."""
        return self._matrix

    def columns(self, pairs: np.ndarray | None = None) -> Columns:
        """A row per pair, by name: state, action, probability, randomises, fallback (never visited).

        Args:
            pairs: boolean, the shape of ``rows``: which pairs are listed; all of them when not given.
        """
        rows = self.rows
        row, action = np.nonzero(np.ones(rows.shape, dtype=bool) if pairs is None else pairs)
        states = np.array(self.state_names or range(self.n_states))
        actions = np.array(self.action_names or range(rows.shape[1]))
        second = np.sort(rows, axis=1)[:, -2] if rows.shape[1] > 1 else np.zeros(len(rows))
        never = np.zeros(len(rows), dtype=bool) if self.fallback is None else self.fallback
        return {
            "state": states[row % self.n_states],
            "action": actions[action],
            "probability": rows[row, action],
            "randomises": (second > RANDOM)[row],
            "fallback": never[row],
        }

    def to_pandas(self) -> Any:
        """A data frame with the rows of ``columns``: a row per state and action, by name."""
        return require("pandas", "report").DataFrame(self.columns())

    @cached_property
    def states(self) -> Names:
        """States by name."""
        return Names("state", self.n_states, self.state_names, PolicyError)

    def probabilities(self, state: Any = None) -> np.ndarray:
        """pi(. | state), shape (A,); without a state the whole matrix, shape (S, A)."""
        return self._matrix if state is None else self._matrix[self.states.number(state)]

    def sample(self, state: Any, random: np.random.Generator) -> int:
        """Draw an action for the state."""
        return int(draw_actions(self.probabilities(state), random))

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        states = self.states.numbers(observation)
        rows = self._matrix[states]
        actions = (
            likeliest(rows, self._matrix) if deterministic else draw_actions(rows, self.random)
        )
        return actions if states.ndim else actions[()]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        return {"probabilities": self._matrix}, {"kind": self.kind}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> Self:
        return cls(arrays["probabilities"])

    def __repr__(self) -> str:
        deterministic = int((self._matrix.max(axis=1) == 1.0).sum())
        never = 0 if self.fallback is None else int(self.fallback.sum())
        return (
            f"TabularPolicy({self.n_states:,} states; {self.n_actions} actions; deterministic in "
            f"{deterministic:,} of them{f'; {never:,} never visited' if never else ''})"
        )


class SoftmaxTable(TabularPolicy):
    """A softmax policy with one logit per state and action. Immutable.

    Args:
        params: the logits theta, shape (S, A), finite where the action is available.
        actions: boolean (S, A), which actions are available; all of them when not given.
    """

    kind = "softmax table"

    def __init__(self, params: Any, actions: Any = None) -> None:
        logits = numbers(params, "the logits of a softmax table", PolicyError)
        if logits.ndim != 2 or 0 in logits.shape:
            raise PolicyError(f"the logits of a softmax table are (S, A); got shape {logits.shape}")
        mask = np.ones(logits.shape, dtype=bool) if actions is None else np.array(actions)
        if mask.shape != logits.shape or mask.dtype != bool or not mask.any(axis=1).all():
            raise PolicyError(
                f"actions must be boolean of shape {logits.shape} with an action in every state; "
                f"got shape {mask.shape} of type {mask.dtype}"
            )
        wrong = mask & ~np.isfinite(logits)
        if wrong.any():
            state, action = np.argwhere(wrong)[0]
            raise PolicyError(
                f"the logit of action {action} in state {state} is {logits[state, action]}. A "
                "softmax gives every action a positive probability; for policies with zeros use "
                "TabularPolicy(probabilities)."
            )
        self.params = np.where(mask, logits, 0.0)
        self.actions = mask
        for array in (self.params, self.actions):
            array.flags.writeable = False
        super().__init__(softmax(np.where(mask, logits, -np.inf), axis=1))

    @classmethod
    def uniform(cls, actions: Any) -> SoftmaxTable:
        """The policy with all logits zero: uniform over the available actions."""
        return cls(np.zeros(np.shape(actions)), actions)

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        return {"params": self.params, "actions": self.actions}, {"kind": self.kind}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> SoftmaxTable:
        return cls(arrays["params"], arrays["actions"])

    def __repr__(self) -> str:
        return f"SoftmaxTable({self.n_states:,} states; {self.n_actions} actions)"


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


def table_of(policy: Any) -> np.ndarray | None:
    """The probabilities on all states, or on those that observations are turned into; None without any."""
    table = getattr(policy, "table", policy)
    return table.probabilities() if isinstance(table, TabularPolicy) else None
