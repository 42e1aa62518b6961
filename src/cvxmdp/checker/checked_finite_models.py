r"""A finite number of steps in every model of a set, as the checker sees it.

Whoever chooses the model may choose it anew at every step, so that both bounds come from a recursion that is
run here, backwards, rounding on top; a proof holds nothing for them. With V_T = 0, over all policies

    V_t(s) = max_a (r_t(s,a) + gamma max_p p.V_{t+1}),        <r, y> <= max_rho rho.V_0,

and for one policy the same with its mean over actions, min_p and min_rho, from below. Occupancies y and y^ of
one policy in a model of the set and in the estimate differ at time t by e_t, e_0 = |rho - rho^|_1 and
e_{t+1} = gamma (e_t + <y^_t, |p - p^|_1>).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound
from cvxmdp.checker.checked_finite import CheckedFinite
from cvxmdp.checker.checked_flow import Proof, Visited
from cvxmdp.checker.model_sets import SetOfModels


class CheckedFiniteModels(SetOfModels, CheckedFinite):
    """Finitely many steps in every model of a set; see ``CheckedModels``."""

    @property
    def longest(self) -> float:
        """No occupancy of any model has more mass."""
        return float((self.discount ** np.arange(self.steps)).sum()) * (1.0 + self.steps * EPS)

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        rewards, blurs = self._by_time(reward), self._by_time(blur)
        usable, values = self._by_time(self.usable), np.zeros(self.states + 1)
        for time in range(self.steps - 1, -1, -1):
            after = self.rows.largest(values[:, None], usable[time].ravel())[:, 0]
            after = self.discount * after.reshape(self.single.shape)
            off = 8 * EPS * (np.abs(rewards[time]) + np.abs(after)) + blurs[time]
            best = np.where(usable[time], rewards[time] + after + off, -np.inf).max(axis=1)
            values[:-1] = np.where(np.isneginf(best), 0.0, best)  # where nobody is, nothing counts
        if not np.isfinite(values).all():
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        return float(self.start(values[:, None])[0])

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        """In the estimate; the error is how far it may be from the occupancy in any model of the set."""
        found = super().visited(policy, guess)
        moved = (self._by_time(found.x) * self.moved).sum(axis=(1, 2))
        away, error = self.start_moved, found.error.size
        for layer in moved:
            error += away
            # What the computed occupancy is off by itself may be moved as well, by two at most.
            away = self.discount * (away + float(layer) + 2.0 * found.error.size)
        error = min(error * (1 + 4 * (found.x.size + 8) * EPS), 2.0 * self.longest)
        away_in_all = ErrorBound(found.error.size + error, self.usable)
        return found._replace(error=away_in_all, least_return=None)
