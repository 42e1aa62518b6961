"""End components: where a policy can stay for ever (de Alfaro, 1997). By graphs alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph


@dataclass(frozen=True, eq=False)
class EndComponents:
    """The maximal end components among some pairs.

    Attributes:
        labels: the component of each state, (S,); -1 outside of all.
        inside: boolean (S, A): the pairs whose successors all stay in the component of their state.
    """

    labels: np.ndarray
    inside: np.ndarray

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.labels.max(initial=-1)) + 1

    def members(self, component: int) -> np.ndarray:
        """Its states, ascending."""
        return np.flatnonzero(self.labels == component)


def staying_choices(
    owner: np.ndarray, rows: np.ndarray, columns: np.ndarray, n_states: int, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The allowed choices with which one can stay for ever, and the component of each state.

    Strongly connected components of what is left, without the choices that leave theirs, until nothing changes.

    Args:
        owner: the state of each choice.
        rows, columns: choice and successor of every positive probability.
        n_states: S.
        allowed: boolean, by choice; those that end episodes must not be among them.

    Returns:
        boolean by choice; and labels from 0, (S,), -1 in states that are in no component.
    """
    kept = allowed.copy()
    while True:
        used = kept[rows]
        edges = (np.ones(int(used.sum())), (owner[rows[used]], columns[used]))
        graph = sp.csr_array(edges, shape=(n_states, n_states))
        _, labels = csgraph.connected_components(graph, directed=True, connection="strong")
        leaving = labels[columns] != labels[owner[rows]]
        stays = kept & ~np.bincount(rows[leaving], minlength=kept.size).astype(bool)
        if (stays == kept).all():
            break
        kept = stays
    member = np.zeros(n_states, dtype=bool)
    member[owner[kept]] = True
    found = np.full(n_states, -1)
    _, found[member] = np.unique(labels[member], return_inverse=True)
    return kept, found


def end_components(transition: sp.csr_array, allowed: np.ndarray) -> EndComponents:
    """The maximal end components among the allowed pairs.

    Args:
        transition: (S * A, S), row s * A + a of the pair.
        allowed: boolean (S, A); pairs that end episodes must not be among them.
    """
    states, actions = allowed.shape
    rows = np.repeat(np.arange(states * actions), np.diff(transition.indptr))
    owner = np.arange(states * actions) // actions
    kept, labels = staying_choices(owner, rows, transition.indices, states, allowed.ravel())
    return EndComponents(labels, kept.reshape(allowed.shape))
