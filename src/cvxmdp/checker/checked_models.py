r"""A set of models as the checker sees it: a flow of episodes whose rows are only known to lie in sets.

With a set of distributions for every row (``model_sets``), T+ V(s) = max_a r(s,a) + gamma max_p p.V and any V,
for every policy and every model of the set

    <r, y>  <=  max_rho rho.V + max(0, max_s (T+ V - V)(s)) w,

y the policy's occupancy there, w the longest stay of any policy in any model; W of ``end`` is zero. With a
discount below one w is 1 / (1 - gamma). Undiscounted, any W with 1 + max_a max_p p.W <= W + e, e < 1, shows
w <= max W / (1 - e): the stays within k steps are such a W once a step more adds less than one. The
occupancies y and y^ of one policy in a model of the set and in the estimate differ by
|y - y^|_1 <= (|rho - rho^|_1 + gamma <y^, |p - p^|_1>) w.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound, largest, total
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_flow import Proof, Visited
from cvxmdp.checker.model_sets import SetOfModels

SWEEPS = 20_000  # in which a longest stay has to settle
STILL = 0.01  # of a step, that the last sweep may add to it


class CheckedModels(SetOfModels, CheckedEpisodes):
    """Episodes in every model of a set; ``transition`` and ``initial`` are the estimate's."""

    def require(self, charge: np.ndarray) -> None:
        """Undiscounted: no policy may stay for ever, in any model."""
        _ = self.longest

    def excess(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> np.ndarray | None:
        """What values leave open grows with the longest stay, which no model's row shortens for sure."""
        return None

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        values = np.append(self.per_state(proof, "values"), 0.0)
        after = self._after(values)
        excess = (reward + self.discount * after - values[:-1, None])[self.usable]
        if not np.isfinite(excess).all():
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        sizes = largest(reward[self.usable]) + 2.0 * largest(values)
        room = max(0.0, float(excess.max())) + largest(blur[self.usable]) + 8 * EPS * sizes
        return float(self.start(values[:, None])[0]) + room * self.longest * (1 + 8 * EPS)

    def _after(self, values: np.ndarray) -> np.ndarray:
        """max_p p.V of every pair, (S, A), for V with its end, (S + 1,)."""
        found = self.rows.largest(values[:, None], self.usable.ravel())
        return np.asarray(found[:, 0].reshape(self.shape))

    @cached_property
    def longest(self) -> float:
        """No occupancy of any model has more mass."""
        if self.discount < 1:
            return (1.0 + 8 * EPS) / (1.0 - self.discount)
        stay = np.zeros(self.shape[0] + 1)
        for sweep in range(SWEEPS):
            within = np.where(self.usable, 1.0 + self._after(stay), 0.0).max(axis=1)
            within *= 1.0 + 8 * EPS
            grown = float((within - stay[:-1]).max())
            if grown <= STILL:
                return float(stay.max()) / (1.0 - grown) * (1 + 8 * EPS)
            if sweep > self.shape[0] and grown >= 1.0:  # so many steps, and surely still there
                break
            stay[:-1] = within
        raise CertificateError(
            "with a discount of one it is not shown that episodes end in every model that may be the true "
            "one: pairs that were hardly ever tried, or never, may stay for ever. Mask them (actions=), "
            "declare what may follow (supports=), try them more often, or give a discount or a horizon"
        )

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        """In the estimate; the error is how far it may be from the occupancy in any model of the set."""
        found = super().visited(policy, guess)
        # What the computed occupancy is off by itself may be moved as well, by two at most.
        moved = total(found.x * self.moved)[0] + 2.0 * found.error.size
        away = (moved * self.discount + self.start_moved) * (1 + 8 * EPS) * self.longest
        error = ErrorBound(found.error.size + min(away, 2.0 * self.longest), self.usable)
        return found._replace(error=error, least_return=None)
