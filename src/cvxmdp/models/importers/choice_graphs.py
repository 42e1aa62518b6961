"""Graphs of models with choices: what can be reached, what surely, and where one can stay for ever.

Only whether a probability is positive counts. Choices are rows of a matrix, none of which ends episodes;
``state_of`` has their states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.end_components import staying_choices
from cvxmdp.models.flow import reached_from


class ChoiceGraph:
    """The entries of some of a model's choices.

    Args:
        state_of: the state of every choice.
        matrix: (choices, S); positive where a choice can lead.
    """

    def __init__(self, state_of: np.ndarray, matrix: sp.csr_array) -> None:
        entries = sp.coo_array(matrix)
        positive = entries.data > 0
        self.state_of, self.n_states = state_of, int(matrix.shape[1])
        self.rows, self.columns = entries.row[positive], entries.col[positive]

    def leads(self, states: np.ndarray) -> np.ndarray:
        """Choices that can lead into some of the states, (S,)."""
        count = np.bincount(self.rows, states[self.columns], minlength=self.state_of.size)
        return np.asarray(count > 0)

    def reaching(self, states: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """States from which allowed choices can lead to some of the states, those included."""
        used = allowed[self.rows]
        edges = (self.columns[used], self.state_of[self.rows[used]])  # backwards
        return self._search(edges, states)

    def reached(self, states: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """States to which allowed choices can lead from some of the states, those included."""
        used = allowed[self.rows]
        return self._search((self.state_of[self.rows[used]], self.columns[used]), states)

    def _search(self, edges: tuple[np.ndarray, np.ndarray], start: np.ndarray) -> np.ndarray:
        graph = sp.csr_array((np.ones(edges[0].size), edges), shape=(self.n_states,) * 2)
        return reached_from(start, graph.indptr, graph.indices)

    def surely_reaching(self, targets: Sequence[np.ndarray]) -> np.ndarray:
        """The choices of policies that surely reach every one of the targets, sets of states (S,).

        They stay in the largest set of states each of which can reach every target by choices that stay in it:
        a policy that takes all of them now and then does, surely.
        """
        inside = np.ones(self.n_states, dtype=bool)
        while True:
            safe = ~self.leads(~inside) & inside[self.state_of]
            smaller = inside.copy()
            for target in targets:
                smaller &= self.reaching(target, safe)
            if (smaller == inside).all():
                return safe
            inside = smaller

    def end_components(self, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The maximal sets of states in which allowed choices can stay for ever.

        Returns:
            the number of each state's component, (S,), -1 where it is in none; and the choices that stay.
        """
        staying, labels = staying_choices(
            self.state_of, self.rows, self.columns, self.n_states, allowed
        )
        return labels, staying
