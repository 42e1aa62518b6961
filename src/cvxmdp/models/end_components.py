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


def end_components(transition: sp.csr_array, allowed: np.ndarray) -> EndComponents:
    """The maximal end components among the allowed pairs.

    Strongly connected components of what is left, without the pairs that leave theirs, until nothing changes.

    Args:
        transition: (S * A, S), row s * A + a of the pair.
        allowed: boolean (S, A); pairs that end episodes must not be among them.
    """
    states, actions = allowed.shape
    owners = np.repeat(np.arange(states * actions), np.diff(transition.indptr))
    kept = allowed.ravel().copy()
    while True:
        used = kept[owners]
        edges = (np.ones(int(used.sum())), (owners[used] // actions, transition.indices[used]))
        graph = sp.csr_array(edges, shape=(states, states))
        _, labels = csgraph.connected_components(graph, directed=True, connection="strong")
        leaving = labels[transition.indices] != labels[owners // actions]
        stays = kept & ~np.bincount(owners[leaving], minlength=kept.size).astype(bool)
        if (stays == kept).all():
            break
        kept = stays
    inside = kept.reshape(allowed.shape)
    member = inside.any(axis=1)
    found = np.full(states, -1)
    _, found[member] = np.unique(labels[member], return_inverse=True)
    return EndComponents(found, inside)
