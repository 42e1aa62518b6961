r"""Where a chain settles: closed classes, long-run shares and relative values.

A chain ends up in one of its *closed classes*; within it the shares of time are its stationary distribution,
d = P'd.

With one closed class and any distribution w, the two singular systems of the long run become regular:

    d = P'd - w (<1, d> - 1)          the shares of time, of sum one,
    h = r - g + P h,  g = <w, h>      the relative values, and the gain g.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph
import scipy.sparse.linalg as spla

from cvxmdp.models.systems import DENSE_LIMIT, EPS, bicgstab, largest, solve_discounted

KRYLOV = 300  # steps before a factorisation is tried
SOLVED = 64 * EPS  # relative residual at which an iteration has done what it can
TIED = 1e-9  # chance of beginning anew that makes one class of several, where values are wanted all the same


def closed_classes(chain: sp.csr_array) -> list[np.ndarray]:
    """The closed classes of a chain, (S, S), as indices of their states."""
    graph = sp.csr_array(chain).copy()
    graph.sum_duplicates()  # SciPy's search does not end with them
    graph.eliminate_zeros()
    count, labels = csgraph.connected_components(graph, directed=True, connection="strong")
    rows = np.repeat(labels, np.diff(graph.indptr))
    closed = np.ones(count, dtype=bool)
    closed[rows[rows != labels[graph.indices]]] = False
    return [np.flatnonzero(labels == label) for label in np.flatnonzero(closed)]


def steps_to(goal: np.ndarray, backward: sp.csr_array) -> np.ndarray:
    """The fewest steps to a goal, boolean (S,), by the graph of predecessors; infinite without a way."""
    steps = np.where(goal, 0.0, np.inf)
    frontier, count = np.flatnonzero(goal), 0.0
    while frontier.size:
        count += 1.0
        before = backward[frontier].indices
        frontier = np.unique(before[np.isinf(steps[before])])
        steps[frontier] = count
    return steps


def long_run(
    chain: sp.csr_array, initial: np.ndarray, guess: np.ndarray | None = None
) -> np.ndarray:
    """The expected shares of time in each state, (S,), from the initial distribution on."""
    chain = sp.csr_array(chain)
    classes = closed_classes(chain)
    entered = np.ones(1) if len(classes) == 1 else _entered(chain, initial, classes)
    shares = np.zeros(initial.size)
    for places, chance in zip(classes, entered, strict=True):
        if chance > 0:
            own = chain[places][:, places]
            shares[places] = chance * _stationary(own, None if guess is None else guess[places])
    return shares


def _entered(chain: sp.csr_array, initial: np.ndarray, classes: list[np.ndarray]) -> np.ndarray:
    """With which probability the chain settles in each class."""
    before = np.ones(initial.size, dtype=bool)
    before[np.concatenate(classes)] = False
    places = np.flatnonzero(before)
    chances = np.array([float(initial[one].sum()) for one in classes])
    if initial[places].any():
        visits = solve_discounted(chain[places][:, places].T, initial[places], 1.0)
        arriving = chain[places].T @ np.maximum(visits, 0.0)
        chances += [float(arriving[one].sum()) for one in classes]
    return np.asarray(chances / chances.sum())


def _stationary(chain: sp.csr_array, guess: np.ndarray | None) -> np.ndarray:
    """d = P'd of a chain with one class."""
    size = chain.shape[0]
    even, ones = np.full(size, 1.0 / size), np.ones(size)
    found = _regular(sp.csr_array(chain.T), even, even, ones, guess)
    if found is None:
        first = np.zeros(size)
        first[0] = 1.0
        found = _pinned(chain, 0).solve(first, trans="T")
    inside = np.maximum(found, 0.0)
    return np.asarray(inside / inside.sum())


def relative_values(
    chain: sp.csr_array, gained: np.ndarray, guess: np.ndarray | None = None
) -> np.ndarray:
    """H = r - g + P h, (S,): what a start is worth beyond the gain, up to a constant.

    Where there are several closed classes, there is a little chance of beginning anew: a class of a higher gain
    is then worth much more than the others.
    """
    size = gained.size
    even, ones = np.full(size, 1.0 / size), np.ones(size)
    chain = sp.csr_array(chain)
    classes = closed_classes(chain)
    if len(classes) > 1:
        chain = (1.0 - TIED) * chain
    h = _regular(chain, gained, ones, even, guess)
    if h is None:
        place = int(classes[0][0])
        h = _pinned(chain, place).solve(gained)
        h[place] = 0.0
    return np.asarray(h - float(even @ h))


def _regular(
    matrix: sp.csr_array,
    right: np.ndarray,
    rise: np.ndarray,
    fall: np.ndarray,
    guess: np.ndarray | None,
) -> np.ndarray | None:
    """V = right + M v - rise <fall, v>: factorised where it is small, else iterated; None where that stalls."""
    size = right.size
    if size <= DENSE_LIMIT:
        return np.linalg.solve(np.eye(size) - matrix.toarray() + np.outer(rise, fall), right)

    def step(v: np.ndarray) -> np.ndarray:
        return np.asarray(matrix @ v - rise * float(fall @ v))

    start = right if guess is None else guess
    found, left = bicgstab(step, right, start, SOLVED * largest(right), largest, KRYLOV)
    return found if left <= SOLVED * (largest(right) + largest(found)) else None


def _pinned(chain: sp.csr_array, place: int) -> spla.SuperLU:
    """I - P factorised, with ones in the column of a recurrent state: its value is zero, its place the gain's.

    One dense column is all that is added; transposed, one equation is replaced by the sum.
    """
    size = chain.shape[0]
    kept = np.ones(size)
    kept[place] = 0.0
    gain = (np.ones(size), (np.arange(size), np.full(size, place)))
    rest = sp.csr_array(sp.eye_array(size) - chain) @ sp.diags_array(kept)
    return spla.splu(sp.csc_matrix(rest + sp.csr_array(gain, shape=(size, size))))
