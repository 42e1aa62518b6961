"""Between what and what the return of a single trajectory of a model can lie."""

from __future__ import annotations

import numpy as np

from cvxmdp.models.table import TabularMDP

MOST_WORK = 10_000_000  # entries of the table looked at
CONVERGED = 1e-3  # of the first bound


def return_range(mdp: TabularMDP, reward: np.ndarray) -> tuple[float, float]:
    """Smallest and largest discounted return of any trajectory, with its luck and any choice of actions."""
    return -_largest(mdp, -reward), _largest(mdp, reward)


def _largest(mdp: TabularMDP, reward: np.ndarray) -> float:
    """The best action and the luckiest successor at every step.

    V <- max_a [r + discount * max over possible successors of V, or 0 where the episode may end], from above:
    the operator is monotone, so that every iterate is an upper bound, wherever one stops.
    """
    pointers, successors = mdp.transition.indptr, mdp.transition.indices
    lengths = np.diff(pointers)
    filled = np.flatnonzero(lengths)
    may_end = (mdp.ending > 0) | (lengths == 0).reshape(mdp.actions.shape)
    top = max(float(reward[mdp.actions].max()), 0.0) * mdp.max_mass
    values = np.full(mdp.n_states, top)
    for _ in range(max(1, MOST_WORK // max(successors.size, 1))):
        lucky = np.full(lengths.size, -np.inf)
        if filled.size:
            lucky[filled] = np.maximum.reduceat(values[successors], pointers[filled])
        best = lucky.reshape(mdp.actions.shape)
        best = np.where(may_end, np.maximum(best, 0.0), best)
        choices = np.where(mdp.actions, reward + mdp.discount * best, -np.inf)
        improved = np.minimum(values, choices.max(axis=1))
        moved = float((values - improved).max())
        values = improved
        if moved <= CONVERGED * top / mdp.max_mass:
            break
    start = float(values[mdp.initial > 0].max())
    return start + 1e-9 * (top + abs(start))  # rounding
