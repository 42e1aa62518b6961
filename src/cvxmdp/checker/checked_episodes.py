r"""Flows of episodes as the checker sees them: out(x) = rho + gamma P'x.

**What no return exceeds.** For any V the flow equations give <r, y> = <rho, V> + <r + gamma P V - V, y>. Let
e be what is left, with its rounding: e = max(0, r + gamma P V - V + (k + 8) eps (|r| + gamma P |V| + |V|)).
(Without a discount P V - V is a sum of differences V(s') - V(s) where nothing ends, and rounding is relative to
these.) It is a reward of its own, so for any E >= e + gamma P E,

    <r, y> <= <rho, V + E>.

E comes with the proof ("remainder") and is checked by one backup of numbers that are not negative; without it
the constant max e / (1 - gamma) is one. Where no row ends, all occupancies have the mass m = |rho| / (1 -
gamma), and

    <r, y> <= <rho, V> + m max (r + gamma P V - V),   of either sign,

so that V is needed up to a constant only.

**How far an occupancy is off.** With d what the flow equations miss at x, x - x_pi = (I - gamma P_pi')^-1 d, so
|x - x_pi|_1 <= <|d|, w> for any w >= 1 + gamma P_pi w: the policy's own longest stay, solved for and checked
by one backup; 1 / (1 - gamma) always is one. Where no row ends, x / m is the stationary distribution of the
chain that restarts, Q = gamma P_pi + (1 - gamma) 1 rho'. For a state z let t >= 1 + Q t_0, t_0 being t with a
zero at z: t bounds the times of return to z. A residual e of z's equation and all others then means |x/m -
x_pi/m|_1 <= 2 <|e|, t> (write the error as the visits before z of e and of what enters z, whose masses
cancel).

**Rare events.** An error of 1e-16 in visits is all there is of an event that happens once in 1e16 episodes.
The return of a policy itself has an error relative to its size: for V near r_pi + gamma P_pi V, e what that
leaves open with its rounding (which is relative to V, state by state), and any E >= e + gamma P_pi E,

    |<r, x_pi> - <rho, V>| <= <rho, E>.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound, total
from cvxmdp.checker.checked_flow import CheckedFlow, Proof, Visited, can_stay
from cvxmdp.checker.linear_solve import DENSE_LIMIT, solve_closely, solve_system

SHARP = 1e-12  # relative error of an occupancy at which the policy's own chain is not looked at
COVERED = 1.001  # times the return of what values leave open, so that one backup can show it
OPEN = 0.5  # of a step, that a longest stay may leave open
FAR = 1e-9  # of a return: an error beyond it is worth a closer look
Solve = Callable[[sp.csr_array, np.ndarray], np.ndarray]


class _OwnChain(NamedTuple):
    """The chain of a policy over the states that it visits.

    Attributes:
        matrix: sparse, (n, n).
        discount: gamma.
        initial: rho, (n,).
        n_actions: of a state, whose products stand in one place.
    """

    matrix: sp.csr_array
    discount: float
    initial: np.ndarray
    n_actions: int

    @property
    def rounding(self) -> float:
        """Relative, of a sum over a row."""
        return (int(np.diff(self.matrix.indptr).max(initial=0)) + self.n_actions + 8) * EPS

    def closely(self, matrix: sp.csr_array, right: np.ndarray) -> np.ndarray:
        """A solution for a right-hand side of one sign, to its own digits."""
        sign = -1.0 if (right < 0).any() else 1.0
        return sign * solve_closely(matrix, sign * right, self.discount)

    def least_return(
        self, gained: np.ndarray, sizes: np.ndarray, off: np.ndarray, solved: Solve
    ) -> tuple[float, float]:
        """<rho, V - E> and <rho, V>; minus infinity first where no E was found.

        Args:
            gained: r_pi, (n,).
            sizes: of the numbers that were added up in it.
            off: by how much it may be wrong.
            solved: finds V and E.
        """
        values, rounding = solved(self.matrix, gained), self.rounding
        left = np.abs(gained + self.discount * (self.matrix @ values) - values)
        sizes = sizes + self.discount * (self.matrix @ np.abs(values)) + np.abs(values)
        left += rounding * sizes + off * (1 + rounding)
        remainder = COVERED * np.maximum(solved(self.matrix, left), 0.0)
        inner, size = total(self.initial * values)
        needed = (left + self.discount * (self.matrix @ remainder)) * (1 + rounding)
        if not (needed <= remainder).all():
            return -math.inf, inner
        error = total(self.initial * remainder)[0] * (1 + 8 * EPS)
        return inner - 4 * EPS * size - error, inner


class CheckedEpisodes(CheckedFlow):
    """Discounted episodes.

    Attributes:
        discount: gamma.
        endless: no row that can be taken ends.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        super().__init__(plain)
        self.discount = float(plain["discount"])
        if not 0 <= self.discount <= 1:
            raise CertificateError(f"the problem's discount is {self.discount!r}")
        self.endless = self.discount < 1 and not self.ends[self.usable].any()
        # No stay is longer, whatever the model; with a discount of one, nothing is known beforehand.
        self.ceiling = 1.0 / (1.0 - self.discount) if self.discount < 1 else math.inf
        self.mass = total(self.initial)[0] * self.ceiling  # of an occupancy, at most

    def require(self, charge: np.ndarray) -> None:
        """Undiscounted: a policy that stays for ever must be charged for it, or no bound speaks of it."""
        if self.discount < 1:
            return
        free = self.usable & ~self.ends & (charge == 0)
        if can_stay(self.transition, free):
            raise CertificateError(
                "with a discount of one some policy can stay for ever, and nothing that is minimised or has a "
                "budget charges for it"
            )

    def miss(self, x: np.ndarray) -> float:
        return float(np.abs(self._missed(x)[0]).sum() + np.abs(x[~self.usable]).sum())

    def _missed(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What each flow equation misses, and the size of the numbers in it, (S,) both."""
        inflow = self.discount * (self.transition.T @ x.ravel())
        out = x.sum(axis=1)
        return out - self.initial - inflow, out + self.initial + inflow

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        values = self.per_state(proof, "values")
        inner, size = total(self.initial * values)
        left, error = self._left(reward, blur, values)
        if self.endless:
            most = float((left + error)[self.usable].max())
            more = most * self.mass + 8 * EPS * abs(most) * self.mass
        else:
            excess = np.where(self.usable, np.maximum(left + error, 0.0), 0.0)
            plain = float(excess.max()) * self.mass * (1 + 8 * EPS) if excess.any() else 0.0
            more = min(plain, self._remainder(excess, proof))
        return inner + more + 4 * EPS * size

    def excess(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> np.ndarray | None:
        if self.endless:
            return None
        left, error = self._left(reward, blur, self.per_state(proof, "values"))
        return np.where(self.usable, np.maximum(left + error, 0.0), 0.0)

    def _left(
        self, reward: np.ndarray, blur: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """r + gamma P V - V, and how far it may be off, (S, A) both."""
        left = reward + self._following(values) - values[:, None]
        sizes = np.abs(reward) + self._following(np.abs(values)) + np.abs(values)[:, None]
        if self.discount == 1:
            change, moved = self._change(values)
            left = np.where(self.ends, left, reward + change)
            sizes = np.where(self.ends, sizes, np.abs(reward) + moved)
        error = self.rounding * sizes + blur
        if not (np.isfinite(left)[self.usable].all() and np.isfinite(error)[self.usable].all()):
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        return left, error

    def _change(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """sum_s' P(s'|s,a) (V(s') - V(s)), which is P V - V where nothing ends, and the sum of its sizes.

        It is exactly zero where all values are the same: in a part that can be crossed for nothing.
        """
        entries = np.diff(self.transition.indptr)
        rows = np.repeat(np.arange(entries.size), entries)
        steps = self.transition.data * (
            values[self.transition.indices] - values[rows // self.shape[1]]
        )
        change, moved = (
            np.bincount(rows, terms, minlength=entries.size).reshape(self.shape)
            for terms in (steps, np.abs(steps))
        )
        return change, moved

    def _following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, (S, A)."""
        return np.asarray(self.discount * (self.transition @ values).reshape(self.shape))

    def _remainder(self, excess: np.ndarray, proof: Proof) -> float:
        """<rho, E> for the E of the proof, if it is one; else infinity."""
        if "remainder" not in proof:
            return math.inf
        remainder = self.per_state(proof, "remainder")
        needed = (excess + self._following(remainder)) * (1 + self.rounding)
        covered = (remainder >= 0).all() and (needed <= remainder[:, None])[self.usable].all()
        return total(self.initial * remainder)[0] * (1 + 8 * EPS) if covered else math.inf

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        policy = self.read_policy(policy)
        chain = self.chain(policy)
        support = self.support(policy, chain)
        places = np.flatnonzero(support.any(axis=1))
        own = chain if places.size == self.shape[0] else sp.csr_array(chain[places][:, places])
        visits = np.zeros(self.shape[0])
        known = None if guess is None else guess[places]
        visits[places] = np.maximum(self._solved(own.T, self.initial[places], known), 0.0)
        if self.endless:  # what is lost as gamma nears one is a multiple of the visits themselves
            visits = visits * (self.mass / float(visits.sum()))
        x = np.where(support, visits[:, None] * policy, 0.0)
        missed, sizes = self._missed(x)
        # The policy's rows were normalised, which is exact to a few units in the last place as well.
        missed = np.abs(missed) + self.arrivals * EPS * sizes
        residual = float(missed.sum())
        if not math.isfinite(residual):
            raise CertificateError("the occupancy of the policy could not be computed")
        error = residual * self.ceiling
        if error > SHARP * float(x.sum()):
            if self.endless:
                sharper = self._by_returns(own, self.initial[places], x[places], missed[places])
            else:
                sharper = self._by_stay(own, missed[places])
            error = min(error, sharper)
        if not math.isfinite(error):
            raise CertificateError("the policy was not shown to end its episodes")
        surely = partial(self._least_return, own, places, policy)
        return Visited(x, ErrorBound(error * (1 + 8 * EPS), support), residual, surely)

    def _least_return(
        self,
        own: sp.csr_array,
        places: np.ndarray,
        policy: np.ndarray,
        reward: np.ndarray,
        blur: np.ndarray,
    ) -> float:
        """<rho, V - E> of a policy's own chain; minus infinity where no E was found."""
        gained, sizes, off = (
            (policy[places] * table[places]).sum(axis=1)
            for table in (reward, np.abs(reward), np.where(policy > 0, blur, 0.0))
        )
        chain = _OwnChain(own, self.discount, self.initial[places], self.shape[1])
        least, value = chain.least_return(gained, sizes, off, self._solved)
        one_sign = (gained >= 0).all() or (gained <= 0).all()
        if one_sign and not abs(value - least) <= FAR * abs(value):
            least = max(least, chain.least_return(gained, sizes, off, chain.closely)[0])
        return least

    def _solved(
        self, matrix: sp.csr_array, right: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        try:
            return solve_system(matrix, right, self.discount, guess=guess)
        except np.linalg.LinAlgError as error:
            raise CertificateError(f"the policy never ends its episodes: {error}") from error

    def _by_stay(self, own: sp.csr_array, missed: np.ndarray) -> float:
        """<|d|, w>, w the policy's own longest stay; infinity where that was not found."""
        stay = np.maximum(self._solved(own, np.ones(own.shape[0])), 0.0)
        rounding = (int(np.diff(own.indptr).max(initial=0)) + self.shape[1] + 8) * EPS
        left = float(((1.0 + self.discount * (own @ stay)) * (1 + rounding) - stay).max())
        return float(missed @ stay) / (1.0 - max(0.0, left)) if left < OPEN else math.inf

    def _by_returns(
        self, own: sp.csr_array, start: np.ndarray, x: np.ndarray, missed: np.ndarray
    ) -> float:
        """2 <|d|, t>, t bounds on the times of return to the state that is visited most; or infinity."""
        size = own.shape[0]
        if size > DENSE_LIMIT:
            return math.inf
        share = start / float(start.sum())
        before = self.discount * own.toarray() + (1.0 - self.discount) * share
        before[:, int(x.sum(axis=1).argmax())] = 0.0
        try:
            times = np.linalg.solve(np.eye(size) - before, np.ones(size))
        except np.linalg.LinAlgError:
            return math.inf
        times = np.maximum(times, 0.0)
        rounding = (size + self.shape[1] + 8) * EPS
        left = float(((1.0 + before @ times) * (1 + rounding) - times).max())
        if not left < OPEN:
            return math.inf
        mass = abs(float(x.sum()) - self.mass) + rounding * self.mass  # it is one up to rounding
        return 2.0 * float(missed @ times) / (1.0 - max(0.0, left)) + 2.0 * mass
