r"""Flows of episodes: discounted ones, and undiscounted ones that surely end.

The occupancy of a policy is lambda(s,a) = sum_k gamma^k P(s_k = s, a_k = a), unnormalised, before
the episode ends. The set of all of them is the polytope

    x >= 0,   sum_a x(s,a) = rho(s) + gamma * sum_{s',a'} P(s | s',a') x(s',a')   for all s.

(The paper's eq. (Lambda) prints gamma/(1-gamma) as the factor; for its own unnormalised measure it
is gamma.) A policy gives its occupancy by one linear solve with I - gamma P_pi^T. The values of a reward solve
the transposed system.

**The longest stay.** Any w >= 0 with 1 + gamma P w <= w + e, e < 1, on all pairs that can be taken proves that
no policy stays longer than w / (1 - e) on average (put w into the flow equations). So <rho, w> bounds the
mass of occupancies, and |d|_1 max w what a flow residual d can change in x. Where no row ends it is 1 / (1 -
gamma); where episodes are short it is short, however near gamma is to one.

**Endless** flows, in which no row ends, have occupancies of one and the same mass 1 / (1 - gamma), so that
values may be shifted by a constant: V = g / (1 - gamma) + h, h = r - g + gamma P h with <rho, h> = 0. Only h
is computed; g / (1 - gamma) would take all digits from it as gamma nears one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.flow import Equations, Flow
from cvxmdp.models.planning import Device, EpisodeOracle, Oracle, longest_stay, optimal_values
from cvxmdp.models.rare_events import rare_return
from cvxmdp.models.systems import (
    DENSE_LIMIT,
    dot,
    product,
    row_maxima,
    row_sums,
    settle,
    solve_discounted,
    solve_relative,
    total,
)

INVERTED = 600  # states up to which a policy's whole matrix is inverted
SOLVED_TOGETHER = 256  # states up to which policies are evaluated several at a time
TOGETHER_ENTRIES = 2**22
COVERED = (1.0 + 1e-9, 1.0 + 1e-4, 1.1)  # times what is needed, so that rounding is no matter
MOST_SWEEPS, LOOKED_AT = 5_000, 10  # plain ones, and after how many it is looked whether they go on
RARE = 1e-7  # of the bound: where the largest excess over the longest stay costs more, it is looked closer
SWEPT = 1e-3  # relative error of what sweeps find
LONG = 1e3  # steps: stays that are longer take digits from solvers
SKETCHED = 1e-11  # relative error of occupancies that sizes are measured at, in large models
ROUNDED = 1e-12  # a row that misses one by less ends no episode


@dataclass(frozen=True, eq=False)
class EpisodeFlow(Flow):
    """out(x) = rho + gamma P'x.

    Attributes:
        discount: gamma.
    """

    discount: float

    @cached_property
    def endless(self) -> bool:
        """No row ends: values may be shifted by a constant without loss."""
        rows = np.asarray(self.transition.sum(axis=1)).reshape(self.shape)
        return bool((np.abs(rows[self.usable] - 1.0) < ROUNDED).all())

    @cached_property
    def stay(self) -> np.ndarray:
        """w, (S,): no policy stays longer than this in the mean, from a state that can be reached."""
        found = None if self.endless else longest_stay(self)
        if found is None:
            return np.full(self.shape[0], self.ceiling)
        return np.minimum(found, self.ceiling)

    @property
    def ceiling(self) -> float:
        """No stay is longer, in any model."""
        return 1.0 / (1.0 - self.discount)

    @cached_property
    def mass(self) -> float:
        return dot(self.initial, self.stay)

    @property
    def magnified(self) -> float:
        """Where no episode ends, values differ by what it takes to come back, not by the whole stay."""
        return min(self.longest, float(self.shape[0])) if self.endless else self.longest

    @cached_property
    def longest(self) -> float:
        return float(self.stay[self.reached].max())

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, (S, A)."""
        following = product(self.transition, values)
        following *= self.discount
        return following.reshape(self.shape)

    def values(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        gained = np.einsum("sa,sa->s", policy, reward)
        return self.solved(self.chain(policy), gained, guess)

    def solved(
        self, chain: sp.csr_array, gained: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        """V = gained + gamma chain V, (S,); the part h of it where the flow is endless."""
        if self.endless:
            return solve_relative(chain, gained, self.discount, self.initial, guess)[0]
        return solve_discounted(chain, gained, self.discount, guess)

    def best_return(
        self, reward: np.ndarray, values: np.ndarray, following: np.ndarray | None = None
    ) -> float:
        """<rho, V> + max(0, max (TV - V)) mass; where the flow is endless, without the zero."""
        following = self.following(values) if following is None else following
        choices = np.where(self.actions, reward + following, -np.inf)
        excess = float((row_maxima(choices) - values)[self.reached].max())
        room = excess if self.endless else max(0.0, excess)
        return dot(self.initial, values) + room * self.mass

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        values, actions = optimal_values(self, reward, guess)
        rare = rare_return(self, reward, values)
        return (values, actions) if rare is None else (rare.values, rare.actions)

    def covering(self, excess: np.ndarray, size: float) -> np.ndarray | None:
        """A little more than the best return of e, or than its largest entry over the longest stay."""
        top = float(excess[self.usable].max())
        if self.endless or not top < np.inf:
            return None
        if top == 0.0:
            return np.zeros(self.shape[0])
        if self.shape[0] <= DENSE_LIMIT:
            best = top * np.maximum(self.best_values(excess / top)[0], 0.0)
            for more in COVERED:
                if self._covers(excess, more * best):
                    return more * best
        plain = COVERED[0] * top * self.stay
        if dot(self.initial, plain) <= RARE * size:
            return plain
        swept = self._swept(excess)
        return swept if self._covers(excess, swept) else plain

    def _covers(self, excess: np.ndarray, remainder: np.ndarray) -> bool:
        needed = (excess + self.following(remainder)) * (1.0 + ROUNDED)
        return bool((needed <= remainder[:, None])[self.usable].all())

    def _swept(self, excess: np.ndarray) -> np.ndarray:
        """E = (1 + k) (e + gamma P E), e >= 0, from below: sums of what is not negative lose no digits.

        A factorisation knows small values up to rounding of the largest, which hides rare events. The k leaves
        room for rounding and for where sweeps end, and is small beside what a step adds.
        """
        more, found = min(SWEPT, SWEPT / self.longest), np.zeros(self.shape[0])
        open_pairs = np.where(self.usable, excess, 0.0)
        for sweep in range(MOST_SWEEPS):
            before = found
            choices = (open_pairs + self.following(found)) * self.usable
            found = (1.0 + more) * choices.max(axis=1)
            if sweep % LOOKED_AT == 0 and (found <= (1.0 + 0.5 * more) * before).all():
                break
        return found

    def oracle(self, device: Device | None = None) -> Oracle:
        return EpisodeOracle(self, device)

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """The occupancy of a policy, (S, A): discounted expected visits of each pair."""
        visits = solve_discounted(
            self._backward(policy), self.initial, self.discount, self._visits_guess
        )
        return self.of_visits(visits, policy)

    def _sketched(self, policy: np.ndarray) -> np.ndarray:
        """The occupancy to ``SKETCHED`` of its mass."""
        if self.shape[0] <= DENSE_LIMIT:
            return self.occupancy(policy)
        backward, target = self._backward(policy), SKETCHED * self.mass / self.longest
        visits, _ = settle(backward, self.initial, self.discount, self._visits_guess, target, total)
        return self.of_visits(visits, policy)

    @property
    def _visits_guess(self) -> np.ndarray:
        """Where no episode ends, a guess of the right mass has no error in the slowest direction."""
        return self.initial * self.mass if self.endless else self.initial

    def _backward(self, policy: np.ndarray) -> sp.csr_array:
        """The transposed matrix of a policy, without what it never does."""
        chain = self.chain(policy)
        if np.count_nonzero(policy) < 0.5 * self.actions.sum():
            chain = chain.copy()  # it shares the model's own indices
            chain.eliminate_zeros()
        return chain.T

    def of_visits(self, visits: np.ndarray, policy: np.ndarray) -> np.ndarray:
        return np.where(self.actions, self._clean(visits)[:, None] * policy, 0.0)

    def visits_matrices(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        if self.shape[0] > INVERTED:
            return None
        try:
            matrix = np.linalg.inv(
                np.eye(self.shape[0]) - self.discount * self.chain(policy).toarray()
            )
        except np.linalg.LinAlgError:
            return None
        following = self.discount * (self.transition @ matrix)
        return matrix, np.asarray(following).reshape(*self.shape, -1)

    def _clean(self, visits: np.ndarray) -> np.ndarray:
        """Visits (..., S) without rounding below zero, and of the mass that is known where no episode ends.

        What a factorisation loses as gamma nears one is a multiple of the visits themselves.
        """
        inside = np.maximum(visits, 0.0)
        if not self.endless:
            return inside
        return np.asarray(inside * (self.mass / inside.sum(axis=-1, keepdims=True)))

    def residual(self, x: np.ndarray) -> np.ndarray:
        """What the flow equations miss at x, (S,): zero for an occupancy."""
        inflow = self.initial + self.discount * product(self.transition.T, x.ravel())
        return row_sums(x) - inflow

    def equations(self) -> Equations:
        """Where stays are long, the sum of all equations stands in the place of one.

        It is (1 - gamma) <1, x> + gamma <ending, x> = |rho|: solvers know equations to some tolerance, and a
        tolerance in that one costs no more than itself, in the others its share of the longest stay.
        """
        matrix = self.balance(self.discount)
        right = self.initial[self.reached] / self.mass
        if self.longest <= LONG:
            return Equations(matrix, right)
        row = int(right.argmax())
        places = np.flatnonzero(self.usable)
        sums = np.asarray(self.transition[places].sum(axis=1)).ravel()
        ending = np.where(1.0 - sums > ROUNDED, 1.0 - sums, 0.0)
        whole = (1.0 - self.discount + self.discount * ending) * self.mass
        parts = [matrix[:row], sp.csr_array(whole[None]), matrix[row + 1 :]]
        right[row] = float(self.initial.sum())
        shift = 0.0 if self.endless else self.mass
        return Equations(sp.csr_array(sp.vstack(parts)), right, row, shift)


@dataclass(frozen=True, eq=False)
class DiscountedFlow(EpisodeFlow):
    """The flow of a discount below one."""

    def sketched(self, policy: np.ndarray) -> np.ndarray:
        return self._sketched(policy)

    def occupancies(self, policies: np.ndarray) -> np.ndarray:
        """The occupancies of several policies, (K, S, A): small models are solved together."""
        states, actions = self.shape
        if states > SOLVED_TOGETHER:
            return super().occupancies(policies)
        transition = self.transition.toarray().reshape(states, actions, states)
        visits = np.empty(policies.shape[:2])
        block = max(1, TOGETHER_ENTRIES // states**2)
        for begin in range(0, len(policies), block):
            part = policies[begin : begin + block]
            backward = np.einsum("ksa,sat->kts", part, transition, optimize=True)
            system = np.eye(states) - self.discount * backward
            right = np.broadcast_to(self.initial[:, None], (len(part), states, 1))
            visits[begin : begin + block] = np.linalg.solve(system, right)[:, :, 0]
        return np.where(self.actions, self._clean(visits)[:, :, None] * policies, 0.0)

    @property
    def scale(self) -> float:
        """1 - gamma: one over the mass of an occupancy where no episode ends."""
        return 1.0 - self.discount

    @property
    def effective_discount(self) -> float:
        return self.discount

    def after(self, steps: np.ndarray) -> np.ndarray:
        return np.asarray(self.discount ** np.asarray(steps, dtype=np.float64) * self.ceiling)

    def tail(self, steps: int) -> float:
        return float(self.after(np.asarray(steps)))

    def steps_until(self, share: float) -> int:
        if self.discount == 0:
            return 1
        return max(1, math.ceil(math.log(share) / math.log(self.discount)))
