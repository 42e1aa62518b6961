r"""What every deterministic policy that differs in one state, or in two, is worth: exactly, in a few products.

For affine functions and a policy with the matrix M = (I - gamma P_pi)^{-1} and the visits d = M'rho, let
delta_k = gamma (P(s_k, a_k) - P(s_k, pi)) and A_i(k) = r_i(s_k, a_k) + gamma P(s_k, a_k) V_i - V_i(s_k) be the
change and the advantage of taking a_k in s_k. By the performance difference, changes K together give

    J_i' - J_i = sum_{k in K} d'(s_k) A_i(k),      d'_K (I - C_KK) = d_K,      C_kl = delta_k M e_{s_l},

a division for one change, two by two systems for two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvxmdp.problems.lowered import Lowered

PAIRED = 40  # changes that are paired, for each weight by which they are ranked
SINGULAR = 1e-12


class Change(NamedTuple):
    """Changes of a policy, and what it is worth then."""

    places: tuple[tuple[int, int], ...]  # state, action
    violation: float
    objective: float


class ExactNeighbours:
    """The neighbours of deterministic policies of a problem whose functions are affine.

    Args:
        lowered: the problem.
        multipliers: of its optimum, (n,): what slacks are worth in the objective.
        units: of the slacks, (n,).
        rounded: violations up to this count as none.
    """

    def __init__(
        self, lowered: Lowered, multipliers: np.ndarray, units: np.ndarray, rounded: float
    ) -> None:
        self.flow, self.mus, self.units, self.rounded = lowered.flow, multipliers, units, rounded
        parts = [function.affine() for function in lowered.functions]
        known = [part for part in parts if part is not None]
        assert len(known) == len(parts), "an affine problem"
        self.rewards = np.stack([np.where(self.flow.usable, one.reward, 0.0) for one in known])
        self.offsets = np.array([one.offset for one in known])

    def best(
        self,
        actions: np.ndarray,
        matrices: tuple[np.ndarray, np.ndarray],
        weights: np.ndarray,
    ) -> Change | None:
        """The best policy with one change or two; None where there is nothing to change.

        Args:
            actions: (S,).
            matrices: M, (S, S), and gamma P M, (S, A, S).
            weights: of the multipliers, by which changes are ranked before they are paired.
        """
        matrix, after = matrices
        visits = self.flow.initial @ matrix
        table = np.eye(self.flow.shape[1], dtype=bool)[actions]
        states, others = np.nonzero(self.flow.usable & ~table & (visits > 0)[:, None])
        if not states.size:
            return None
        gained = self.rewards[:, table]  # r_i of the policy, (n + 1, S)
        values = gained @ matrix.T
        ahead = self.rewards[:, states, others] + gained @ after[states, others].T
        gains = ahead - values[:, states]  # A_i(k), (n + 1, K)
        rows = after[states, others] - after[states, actions[states]]  # delta_k M, (K, S)
        own = 1.0 - rows[np.arange(states.size), states]
        single = visits[states] / np.where(np.abs(own) > SINGULAR, own, np.inf)
        start = self.offsets + values @ self.flow.initial
        ones = start[:, None] + single * gains
        first = self._foremost(ones)
        kept = self._ranked(ones, weights)
        pairs = self._pairs(
            start, gains[:, kept], rows[kept][:, states[kept]], visits[states[kept]]
        )
        pairs[:, states[kept][:, None] == states[kept]] = np.nan
        second = self._foremost(pairs.reshape(len(start), -1))
        chosen: tuple[int, ...] = (first,)
        value = ones[:, first]
        if self._order(pairs.reshape(len(start), -1)[:, second]) < self._order(value):
            chosen = tuple(int(kept[one]) for one in divmod(second, kept.size))
            value = pairs.reshape(len(start), -1)[:, second]
        places = tuple((int(states[k]), int(others[k])) for k in chosen)
        return Change(places, *(self._violations(value[:, None])[0], float(value[0])))

    def _violations(self, values: np.ndarray) -> np.ndarray:
        missed = -values[1:] / self.units[:, None]
        return np.where(missed > self.rounded, missed, 0.0).sum(axis=0)

    def _order(self, value: np.ndarray) -> tuple[float, float]:
        if np.isnan(value).any():
            return np.inf, np.inf
        return float(self._violations(value[:, None])[0]), -float(value[0])

    def _foremost(self, values: np.ndarray) -> int:
        """The column that violates least, and among those has the best objective."""
        violation = np.where(np.isnan(values[0]), np.inf, self._violations(values))
        least = violation <= violation.min()
        return int(np.argmax(np.where(least, values[0], -np.inf)))

    def _ranked(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Changes that are best for one of the weights, or for one of the slacks."""
        scores = [values[0] + weight * (self.mus @ values[1:]) for weight in weights]
        scores += list(values[1:] / self.units[:, None])
        return np.unique(np.concatenate([np.argsort(-score)[:PAIRED] for score in scores]))

    @staticmethod
    def _pairs(
        start: np.ndarray, gains: np.ndarray, coupling: np.ndarray, visits: np.ndarray
    ) -> np.ndarray:
        """J' of two changes k and l, (n + 1, K, K)."""
        own = 1.0 - np.diag(coupling)
        whole = own[:, None] * own - coupling * coupling.T
        whole = np.where(np.abs(whole) > SINGULAR, whole, np.nan)
        at_first = (visits[:, None] * own + visits * coupling.T) / whole
        both = np.einsum("kl,ik->ikl", at_first, gains)
        return start[:, None, None] + both + both.transpose(0, 2, 1)
