r"""States in groups of groups: how steps of the smoothed dual reach places that are many transitions away.

A gradient step moves values where visits are wrong, and news of that travel by a transition a step: on a grid
of 250 x 250 a descent takes some thousand steps. Sums over groups of neighbours, over groups of these and so on
say at once what is wrong where, and a step along

    B g = g + sum_l E_l C_l^-1 E_l' g

moves whole regions (Bramble, Pasciak and Xu, 1990): E_l belongs to the groups of level l, C_l is how much
leaves each of them. Groups are found from the transitions alone: states are paired with the neighbour they
exchange most with, twice a level. Where the model spreads quickly there is nothing to gain, and B is one.
(Scaled by how often states are visited, descents were faster and their policies worse: twice the steps in all.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.flow import Flow, state_pointers

NEARBY, FEW = 6, 1_000  # steps, and the states reached in them, up to which a model spreads slowly
SMALLEST = 50  # groups that are not grouped any more
PASSES = 3  # of pairing
SHRINKS = 0.7  # of the groups, that are left by a level at most


@dataclass(frozen=True, eq=False)
class Aggregates(Pytree):
    """B of the description.

    Attributes:
        parents: for each level the group of every state or group below.
        scales: for each level what its sums are worth; one for states.
    """

    parents: list[Array]
    scales: list[Array]

    def applied(self, slope: Array) -> Array:
        """B times the first entries of a slope, of states; the others, of multipliers, as they are."""
        if not self.parents:
            return slope
        states = self.parents[0].size
        sums = [slope[:states]]
        for parent, scale in zip(self.parents, self.scales, strict=True):
            sums.append(_added(sums[-1], parent, scale.size))
        total = sums.pop() * self.scales[-1]
        for level in reversed(range(len(self.parents))):
            below = sums.pop()
            worth = below * self.scales[level - 1] if level else below
            total = total[self.parents[level]] + worth
        return namespace(slope).append(total, slope[states:])


def _added(numbers: Array, parent: Array, count: int) -> Array:
    if namespace(numbers) is np:
        return np.bincount(parent, weights=numbers, minlength=count)
    return namespace(numbers).zeros(count).at[parent].add(numbers)


def aggregates_of(flow: Flow) -> Aggregates:
    """Groups of a model's states; none where it spreads quickly."""
    parents: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    slow = spreads_slowly(flow.transition, flow.initial)
    graph = _neighbours(flow) if slow else None
    first = None if graph is None else float(graph.sum()) / graph.shape[0]
    while graph is not None and first and graph.shape[0] > SMALLEST:
        below = graph.shape[0]
        one, graph = _grouped(graph)
        two, graph = _grouped(graph)
        if graph.shape[0] > SHRINKS * below:
            break
        leaving = np.asarray(graph.sum(axis=1)).ravel()
        parents.append(two[one])
        scales.append(first / np.maximum(leaving, first))
    return Aggregates(parents, scales)


def spreads_slowly(transition: sp.csr_array, initial: np.ndarray) -> bool:
    """Whether few states are near the likeliest one of the start.

    Args:
        transition: of one step, (S * A, S).
        initial: (S,).
    """
    states = initial.size
    reached = np.zeros(states, dtype=bool)
    reached[int(initial.argmax())] = True
    pointers, successors = state_pointers(transition), transition.indices
    for _ in range(NEARBY):
        for state in np.flatnonzero(reached):
            reached[successors[pointers[state] : pointers[state + 1]]] = True
        if reached.sum() > min(FEW, 0.5 * states):
            return False
    return True


def _neighbours(flow: Flow) -> sp.csr_array:
    """How much states exchange, over all actions, in either direction, (S, S)."""
    transition = flow.transition
    parts = (transition.data, transition.indices, state_pointers(transition))
    one_way = sp.csr_array(parts, shape=(flow.shape[0],) * 2)
    return _without_diagonal(sp.coo_array(one_way + one_way.T))


def _without_diagonal(graph: sp.coo_array) -> sp.csr_array:
    rows, columns = graph.coords
    apart = rows != columns
    entries = (graph.data[apart], (rows[apart], columns[apart]))
    return sp.csr_array(sp.coo_array(entries, shape=graph.shape))


def _grouped(graph: sp.csr_array) -> tuple[np.ndarray, sp.csr_array]:
    """The pair that each vertex belongs to, and the graph of the pairs."""
    count = graph.shape[0]
    rows = np.repeat(np.arange(count), np.diff(graph.indptr))
    columns = graph.indices
    # Equal neighbours are told apart by a number of the edge, the same from both sides.
    low, high = np.minimum(rows, columns).astype(np.uint64), np.maximum(rows, columns)
    mixed = (low * np.uint64(2654435761) + high.astype(np.uint64) * np.uint64(40503)) % np.uint64(
        65521
    )
    weights = graph.data * (1.0 + 1e-3 * mixed / 65521.0)
    partner = np.arange(count)
    for _ in range(PASSES):
        free = partner == np.arange(count)
        open_ = free[rows] & free[columns]
        best = np.zeros(count)
        np.maximum.at(best, rows[open_], weights[open_])
        chosen = open_ & (weights == best[rows])
        wish = np.arange(count)
        wish[rows[chosen]] = columns[chosen]
        mutual = wish[wish] == np.arange(count)
        partner = np.where(mutual & free, wish, partner)
    leader = np.minimum(partner, np.arange(count))
    alone = partner == np.arange(count)  # those left over join the pair of a neighbour
    beside = alone[rows] & ~alone[columns]
    leader[rows[beside]] = leader[columns[beside]]
    _, group = np.unique(leader, return_inverse=True)
    size = int(group.max()) + 1
    entries = (graph.data, (group[rows], group[columns]))
    merged = sp.coo_array(sp.csr_array(sp.coo_array(entries, shape=(size, size))))
    return group, _without_diagonal(merged)
