"""A model as the model checkers keep it: one row per choice, choices numbered from state to state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError, did_you_mean
from cvxmdp.models.table import TabularMDP

UNNAMED = ("init", "deadlock")  # labels that say nothing of where one is
WIDE = 2  # times as many names of actions as a state has choices: then choices go by their number


@dataclass(frozen=True)
class ExplicitModel:
    """States, their choices, and what is known of both.

    Attributes:
        state_of: the state of every choice, ascending.
        matrix: probabilities, (choices, S); what a row lacks ends the episode.
        initial: a distribution over states.
        rewards: by name, what every choice earns.
        labels: by name, the states that have it.
        action_of: of every choice, its place in ``action_names``; None where choices only have numbers.
        action_names: that are used.
        state_names: where states have any.
    """

    state_of: np.ndarray
    matrix: sp.csr_array
    initial: np.ndarray
    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    action_of: np.ndarray | None = None
    action_names: tuple[str, ...] = ()
    state_names: tuple[str, ...] | None = None

    @property
    def n_states(self) -> int:
        """Number of states."""
        return int(self.matrix.shape[1])

    @property
    def place_of(self) -> np.ndarray:
        """The place of every choice among those of its state."""
        first = np.searchsorted(self.state_of, np.arange(self.n_states))
        return np.asarray(np.arange(self.state_of.size) - first[self.state_of])

    def ending_at(self, label: str) -> ExplicitModel:
        """Episodes end on the way into states with a label; such states are left out."""
        if label not in self.labels:
            hint = did_you_mean(label, self.labels)
            raise FileFormatError(f"no state has the label {label!r} that ends episodes. {hint}")
        return self.kept(~self.labels[label], without=label)

    def kept(
        self, states: np.ndarray, choices: np.ndarray | None = None, *, without: str = ""
    ) -> ExplicitModel:
        """Some of the states, (S,), with all or some of their choices; ways to other states are endings."""
        if not (self.initial[states] > 0).any():
            raise FileFormatError("every first state of the model is one that ends episodes")
        rows = states[self.state_of] if choices is None else states[self.state_of] & choices
        number = np.cumsum(states) - 1
        names = self.state_names
        return ExplicitModel(
            number[self.state_of[rows]],
            sp.csr_array(self.matrix[rows][:, states]),
            self.initial[states] / self.initial[states].sum(),
            {name: reward[rows] for name, reward in self.rewards.items()},
            {name: mark[states] for name, mark in self.labels.items() if name != without},
            None if self.action_of is None else self.action_of[rows],
            self.action_names,
            None if names is None else tuple(names[s] for s in np.flatnonzero(states)),
        )

    def table(self, **horizon: Any) -> TabularMDP:
        """The model with every reward and label a signal.

        Args:
            horizon: of the model, as ``TabularMDP`` takes it (``discount=0.95``).
        """
        codes, names = self._actions()
        n_actions = len(names) if names else int(codes.max()) + 1
        pairs = self.state_of * n_actions + codes
        entries = sp.coo_array(self.matrix)
        shape = (self.n_states * n_actions, self.n_states)
        matrix = sp.csr_array((entries.data, (pairs[entries.row], entries.col)), shape=shape)
        mask = np.zeros(shape[0], dtype=bool)
        mask[pairs] = True
        signals = {}
        for name, reward in self.rewards.items():
            signals[name] = np.zeros(shape[0])
            signals[name][pairs] = reward
        for name, states in self.labels.items():
            if name not in (*UNNAMED, *signals):
                signals[name] = np.repeat(states.astype(np.float64), n_actions)
        square = (self.n_states, n_actions)
        return TabularMDP(
            matrix,
            self.initial,
            signals={name: signal.reshape(square) for name, signal in signals.items()},
            actions=mask.reshape(square),
            state_names=self.state_names,
            action_names=names,
            **horizon,
        )

    def _actions(self) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """By name where names tell the choices of every state apart, else by place."""
        places = self.place_of
        if self.action_of is None or len(self.action_names) > WIDE * (int(places.max()) + 1):
            return places, None
        keys = self.state_of * len(self.action_names) + self.action_of
        if np.unique(keys).size < keys.size:
            return places, None
        # The names that writers give to actions without one say nothing.
        numbered = tuple(f"a{place}" for place in range(len(self.action_names)))
        return self.action_of, None if self.action_names == numbered else self.action_names
