r"""The oracle of column generation: an ordinary MDP, solved again and again with rewards that change little.

**Best policy.** Policy iteration with inexact evaluation (modified policy iteration, Puterman and Shin,
1978), started from the values of the previous call. A round is one Bellman sweep over all pairs and a
short evaluation of the greedy policy on its own, A times smaller matrix. For any V,

    <rho, V> + min(0, min_s (TV - V)(s)) m  <=  best return  <=  <rho, V> + max(0, max_s (TV - V)(s)) m,

m the largest mass of an occupancy, so every round has a proven interval and one stops as soon as it is
narrow enough. (Where no episode ends, both sides hold without the zeros, which is what makes quickly mixing
models cheap: V only has to be right up to a constant.)

**Visits.** The occupancy of the policy found solves v = rho + gamma P_pi' v; what the computed v misses, e
in the sum of absolute values, means an error of at most e m / sum(rho).

Both systems are solved from a warm start, to the accuracy that is asked and no further: by plain sweeps where
the model mixes quickly, else by BiCGSTAB, else by ``fixed_point``. SciPy's compressed rows are the backend: on
a CPU they do a sweep five times faster than compiled JAX (whose gathers are not vectorised), and a second
thread gains nothing, because the sweep waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.bounds import Claims
from cvxmdp.models.device_systems import DeviceSolver, accelerator
from cvxmdp.models.systems import solve_discounted

FORCING = 0.05  # share of the residual that an evaluation leaves before actions are chosen anew
MOST_ROUNDS = 1_000
MOST_KRYLOV = (
    2_000  # steps of BiCGSTAB, and those in a row without progress, before it counts as broken down
)
PATIENCE = 100
MOST_SWEEPS = 1_000
DIRECT_LIMIT = 500  # states up to which a dense factorisation beats iterations that are slow
PROBE = 5  # sweeps over which the rate of convergence is measured
FAST_MIXING = 0.7  # rate per sweep up to which plain sweeps are the fastest
MERGING_PAYS = 0.6  # share of entries that are left, up to which merging actions pays
STALLED = 12  # rounds without a much narrower interval after which evaluations are exact
EPS = float(np.finfo(np.float64).eps)


class Best(NamedTuple):
    """The answer of the oracle.

    Attributes:
        values: V, shape (S,).
        actions: the greedy actions, (S,).
        upper: no policy has a return above this (up to rounding; certificates compute it anew).
        lower: the return of the greedy policy is at least this (up to rounding).
    """

    values: np.ndarray
    actions: np.ndarray
    upper: float
    lower: float


@dataclass
class Work:
    """What the oracle did so far."""

    calls: int = 0
    sweeps: int = 0  # over all pairs
    policy_sweeps: int = 0  # over the pairs of one policy


class Oracle:
    """Best policies and occupancies of one model; keeps the last answers to start from.

    Args:
        claims: the problem, of which only the model is used.
    """

    def __init__(self, claims: Claims) -> None:
        self.shape, self.discount = claims.shape, claims.discount
        self.transition, self.initial = claims.transition, claims.initial
        self.reached, self.mass = claims.reached, claims.mass
        self.all_reached = bool(claims.reached.all())
        self.unavailable = None if claims.actions.all() else ~claims.actions
        rows = np.asarray(claims.transition.sum(axis=1)).reshape(claims.shape)
        # With rows that all sum to one, values may be shifted by a constant without loss.
        self.endless = bool((np.abs(rows[claims.actions] - 1.0) < 1e-12).all())
        self.first_rows = np.arange(self.shape[0], dtype=np.int64) * self.shape[1]
        self.values = np.zeros(self.shape[0])
        self.visits_before: np.ndarray | None = None
        self._pattern: Pattern | None = None
        self.device = DeviceSolver() if accelerator(self.shape[0]) else None
        self.work = Work()

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, shape (S, A)."""
        self.work.sweeps += 1
        following = self.transition @ values
        following *= self.discount
        return following.reshape(self.shape)

    def best(self, reward: np.ndarray, accuracy: float, rounds: int = MOST_ROUNDS) -> Best:
        """A policy whose return is within ``accuracy`` of the best one, and the interval that proves it.

        Args:
            reward: (S, A); ignored where the action is not available.
            accuracy: width of the interval at which to stop. Rounding may keep it wider.
            rounds: of policy improvement, at most.
        """
        self.work.calls += 1
        values, narrowest, stalled = self.values, np.inf, 0
        found: Best | None = None
        before: np.ndarray | None = None  # actions that ``values`` are the exact values of
        for _ in range(rounds):
            choices = self.following(values)
            choices += reward
            if self.unavailable is not None:
                choices[self.unavailable] = -np.inf
            actions = choices.argmax(axis=1)
            after = choices.ravel()[self.first_rows + actions]
            upper, lower, residual = self._interval(values, after)
            stalled = 0 if upper - lower < 0.9 * narrowest else stalled + 1
            if upper - lower < narrowest:
                found, narrowest = Best(values, actions, upper, lower), upper - lower
            if narrowest <= accuracy:
                break
            if before is not None:
                # Keep an action unless another is better by more than rounding: no cycling.
                kept = choices.ravel()[self.first_rows + before]
                better = after > kept + 1e-13 * (1.0 + np.abs(after))
                actions = np.where(better, actions, before)
                if (actions == before)[self.reached].all():
                    break
            chain = self.chain(actions)
            gained = reward.ravel()[self.first_rows + actions]
            if stalled > STALLED:  # Howard's policy iteration, which ends whatever the model
                values, before = (
                    solve_discounted(chain, gained, self.discount, guess=after),
                    actions,
                )
                continue
            # Beyond what is asked, accuracy would be lost with the next change of actions.
            target = max(FORCING * residual, 0.1 * accuracy / self.mass, 4 * EPS * largest(after))
            norm = half_spread if self.endless else largest
            values = self._settle(chain, gained, after, target, norm)
        assert found is not None
        if (
            self.endless
        ):  # the constant that makes V an upper bound itself: what a certificate needs
            shift = (found.upper - float(self.initial @ found.values)) / float(self.initial.sum())
            found = found._replace(values=found.values + shift)
        self.values = found.values
        return found

    def _interval(self, values: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
        """Upper and lower bound from V and TV, and how far V is from a solution."""
        change = after - values
        if not self.all_reached:
            change = change[self.reached]
        high, low = float(change.max()), float(change.min())
        start = float(self.initial @ values)
        if self.endless:
            return start + high * self.mass, start + low * self.mass, 0.5 * (high - low)
        residual = max(abs(high), abs(low))
        return start + max(0.0, high) * self.mass, start + min(0.0, low) * self.mass, residual

    def chain(self, actions: np.ndarray) -> sp.csr_array:
        """The transition matrix of a deterministic policy, (S, S)."""
        return self.transition[self.first_rows + actions]

    def policy_chain(self, policy: np.ndarray) -> sp.csr_array:
        """The transition matrix of any policy (S, A), as a matrix to multiply with."""
        if self._pattern is None:
            self._pattern = Pattern(self.transition, self.shape[1])
        return self._pattern.chain(policy)

    def evaluate(
        self, matrix: sp.csr_array, gained: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        """V = gained + gamma matrix V up to ``accuracy`` (up to a constant where no episode ends)."""
        norm = half_spread if self.endless else largest
        target = max(accuracy, 4 * EPS * largest(guess))
        return self._settle(matrix, gained, guess, target, norm)

    def visits(self, matrix: sp.csr_array, error: float) -> np.ndarray:
        """v = rho + gamma matrix' v, up to ``error`` in the sum of absolute values, shape (S,)."""
        backward = matrix.T
        # Where no episode ends, a guess of the right mass has no error in the slowest direction.
        guess = self.initial * self.mass if self.visits_before is None else self.visits_before
        target = max(error * float(self.initial.sum()) / self.mass, 4 * EPS)
        visits = np.maximum(self._settle(backward, self.initial, guess, target, total), 0.0)
        self.visits_before = visits
        return visits

    def _settle(
        self,
        matrix: sp.csr_array,
        right: np.ndarray,
        guess: np.ndarray,
        target: float,
        norm: Callable[[np.ndarray], float],
    ) -> np.ndarray:
        """v with norm(right + gamma matrix v - v) <= target, as far as rounding allows."""
        if self.device is not None:
            kind = norm.__name__
            return self.device.solve(matrix, right, guess, self.discount, target, kind)

        def step(v: np.ndarray) -> np.ndarray:
            self.work.policy_sweeps += 1
            following = matrix @ v
            following *= self.discount
            return np.asarray(following)

        # Quickly mixing models need no more than sweeps, which cost the least.
        v, left, smallest = guess, np.inf, np.inf
        for count in range(MOST_SWEEPS):
            following = step(v)
            following += right
            v, change = following, following - v
            left = norm(change)
            if left <= target or (count >= 2 and not left < smallest):
                return v
            if count == PROBE:
                probed = left
            if count == 2 * PROBE and left > FAST_MIXING**PROBE * probed:
                break
            smallest = min(left, smallest)
        if right.size > DIRECT_LIMIT:
            v, left = bicgstab(step, right, v, target, norm, MOST_KRYLOV)
            if left <= target:
                return v
        return solve_discounted(matrix, right, self.discount, guess=v)


class Pattern:
    """Where policies' transition matrices have entries: found once, filled for each policy.

    Actions often share successors (on a grid five places instead of sixteen). Where merging them does not
    pay, the matrices keep several entries for a place, which products with vectors do not mind.
    """

    def __init__(self, transition: sp.csr_array, n_actions: int) -> None:
        self.transition = transition
        self.n_states = transition.shape[1]
        self.pointers = transition.indptr[::n_actions]
        self.fill: sp.csr_array | None = None
        entries = (np.ones(transition.nnz, dtype=np.int8), transition.indices, self.pointers)
        merged = sp.csr_array(entries, shape=(self.n_states, self.n_states))
        merged = merged.copy()
        merged.sum_duplicates()
        if merged.nnz < MERGING_PAYS * transition.nnz:
            self._merge(merged, transition, n_actions)

    def _merge(self, merged: sp.csr_array, transition: sp.csr_array, n_actions: int) -> None:
        """A matrix that takes a policy's (S * A,) probabilities to the merged entries."""
        states = np.arange(self.n_states, dtype=np.int64)
        keys = np.repeat(states * self.n_states, np.diff(merged.indptr)) + merged.indices
        own = np.repeat(states * self.n_states, np.diff(self.pointers)) + transition.indices
        slots = np.searchsorted(keys, own)
        pairs = sp.csc_array(
            (transition.data, slots, transition.indptr), shape=(merged.nnz, transition.shape[0])
        )
        self.fill = sp.csr_array(pairs)
        self.pointers, self.indices = merged.indptr, merged.indices

    def chain(self, policy: np.ndarray) -> sp.csr_array:
        """P_pi, (S, S)."""
        if self.fill is not None:
            data, indices = self.fill @ policy.ravel(), self.indices
        else:
            data = self.transition.data * np.repeat(policy.ravel(), np.diff(self.transition.indptr))
            indices = self.transition.indices
        return sp.csr_array((data, indices, self.pointers), shape=(self.n_states,) * 2)


def half_spread(v: np.ndarray) -> float:
    """Half the distance from the smallest to the largest: the norm that does not see constants."""
    return 0.5 * float(v.max() - v.min())


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product, without BLAS: its threads wait for each other on a machine with other work."""
    return float(np.einsum("i,i->", a, b))


def largest(v: np.ndarray) -> float:
    """The largest absolute value."""
    return float(np.abs(v).max())


def total(v: np.ndarray) -> float:
    """The sum of absolute values."""
    return float(np.abs(v).sum())


def bicgstab(
    step: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    guess: np.ndarray,
    target: float,
    norm: Callable[[np.ndarray], float],
    most: int,
) -> tuple[np.ndarray, float]:
    """v - step(v) = right by BiCGSTAB (van der Vorst, 1992), stopped in the norm that bounds need.

    Returns the best v seen and its residual; the residual is above ``target`` where it broke down.
    """
    v = guess
    residual = right + step(v)
    residual -= v
    left = norm(residual)
    kept = (v, left)
    if left <= target:
        return kept
    shadow = residual.copy()
    direction = residual.copy()
    before, since = dot(shadow, residual), 0
    for _ in range(most):
        forward = direction - step(direction)
        across = dot(shadow, forward)
        if across == 0.0:
            break
        length = before / across
        half = residual - length * forward
        turned = half - step(half)
        square = dot(turned, turned)
        damping = dot(turned, half) / square if square > 0 else 0.0
        v = v + length * direction
        v += damping * half
        residual = half - damping * turned
        left = norm(residual)
        if not np.isfinite(left):
            break
        if left < kept[1]:
            kept, since = (v, left), 0
        since += 1
        if left <= target or since > PATIENCE:
            break
        after = dot(shadow, residual)
        if after == 0.0 or damping == 0.0 or before == 0.0:
            break
        direction = residual + (after / before) * (length / damping) * (
            direction - damping * forward
        )
        before = after
    # The recursive residual drifts from the true one; what is returned is measured.
    v = kept[0]
    return v, norm(right + step(v) - v)
