r"""The best policy of a reward: an ordinary MDP, solved again and again with rewards that change little.

Policy iteration with inexact evaluation (modified policy iteration, Puterman and Shin, 1978), started from the
values of the previous call. A round is one Bellman sweep over all pairs and a short evaluation of the greedy
policy on its own, A times smaller matrix. For any V,

    <rho, V> + min(0, min_s (TV - V)(s)) m  <=  best return  <=  <rho, V> + max(0, max_s (TV - V)(s)) m,

m the largest mass of an occupancy, so every round has a proven interval and one stops as soon as it is
narrow enough. (Where no episode ends, both sides hold without the zeros, which is what makes quickly mixing
models cheap: V only has to be right up to a constant.) Small models are solved by Howard's policy iteration
instead (``optimal_values``): any V gives a valid bound, and those are tight.

**Visits.** The occupancy of the policy found solves v = rho + gamma P_pi' v; what the computed v misses, e
in the sum of absolute values, means an error of at most e m / sum(rho). ``systems`` says how both are solved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.blocks import in_blocks
from cvxmdp.base.errors import SolverError
from cvxmdp.models.flow import state_pointers, successors_of_states
from cvxmdp.models.rare_events import rare_return
from cvxmdp.models.systems import (
    DENSE_LIMIT,
    EPS,
    Norm,
    dot,
    half_spread,
    largest,
    settle,
    total,
)

if TYPE_CHECKING:
    from cvxmdp.models.episode_flow import EpisodeFlow
    from cvxmdp.models.flow import Flow

FORCING = 0.05  # share of the residual that an evaluation leaves before actions are chosen anew
MOST_ROUNDS = 1_000
MERGING_PAYS = 0.6  # share of entries that are left, up to which merging actions pays
STALLED = 12  # rounds without a much narrower interval after which evaluations are exact
# Relative gain that changes an action: no more than rounding, or policies would cycle.
BETTER = 1e-13
# Of the returns of large models, relative to what the reward can make of a difference.
ACCURACY = 1e-11
STAY_EXCESS = 0.1  # of a step, that a longest stay may leave open: it is a bound, no answer


class Best(NamedTuple):
    """The answer of the oracle.

    Attributes:
        values: V, shape (S,).
        actions: the greedy actions, (S,).
        upper: no policy has a return above this (up to rounding; certificates compute it anew).
        lower: the return of the greedy policy is at least this (up to rounding).
        visits: of these actions, (S,), where they were looked at closely: their events are rare.
    """

    values: np.ndarray
    actions: np.ndarray
    upper: float
    lower: float
    visits: np.ndarray | None = None


@dataclass
class Effort:
    """What the oracle did so far."""

    calls: int = 0
    sweeps: int = 0  # over all pairs
    policy_sweeps: int = 0  # over the pairs of one policy


class Device(Protocol):
    """What solves v = right + discount * matrix v on an accelerator: ``compiled_systems.DeviceSolver``."""

    def solve(
        self,
        matrix: sp.csr_array,
        right: np.ndarray,
        guess: np.ndarray,
        discount: float,
        target: float,
        norm: str,
    ) -> np.ndarray:
        """v, to ``target`` in the norm of its residual."""


class Oracle(ABC):
    """Best policies and occupancies of one model; keeps the last answers to start from.

    Args:
        flow: the model.
    """

    def __init__(self, flow: Flow) -> None:
        self.model, self.shape, self.initial = flow, flow.shape, flow.initial
        self.reached = flow.reached
        self.unavailable = None if flow.actions.all() else ~flow.actions
        self.first_rows = np.arange(self.shape[0], dtype=np.int64) * self.shape[1]
        lengths = np.diff(flow.transition.indptr)
        most = int(lengths.max(initial=0))
        self.even = most if 0 < most == lengths.min() else None  # entries of every row
        self.values = np.zeros(self.shape[0])
        self.ahead: tuple[np.ndarray | None, np.ndarray] = None, np.zeros(0)  # V, and gamma P V
        self.visits_before: np.ndarray | None = None
        self._choices = np.empty(self.shape)
        self._taken: tuple[np.ndarray, list[np.ndarray]] | None = None  # actions, and their rows
        self._pattern: Pattern | None = None
        self.work = Effort()

    @abstractmethod
    def best(self, reward: np.ndarray, accuracy: float, rounds: int = MOST_ROUNDS) -> Best:
        """A policy whose return is within ``accuracy`` of the best one, and the interval that proves it.

        Args:
            reward: (S, A); ignored where the action is not available.
            accuracy: width of the interval at which to stop. Rounding may keep it wider.
            rounds: of policy improvement, at most.
        """

    @abstractmethod
    def evaluate(
        self, matrix: sp.csr_array, gained: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        """V = gained + gamma matrix V up to ``accuracy`` (up to a constant where no episode ends)."""

    @abstractmethod
    def visits(self, matrix: sp.csr_array, error: float) -> np.ndarray:
        """The visits of a policy's chain, up to ``error`` in the sum of absolute values, shape (S,)."""

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, shape (S, A)."""
        self.work.sweeps += 1
        return self.model.following(values)

    def greedy(
        self, reward: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """r + gamma P V, (S, A), until the next call; the best actions, (S,), and what they are worth, (S,).

        Minus infinity where an action is not available.
        """
        # The next reward begins with the values that this one ends with.
        if self.ahead[0] is not values:
            self.ahead = values, self.following(values)
        following, choices = self.ahead[1], self._choices
        actions, worth = np.empty(self.shape[0], dtype=np.intp), np.empty(self.shape[0])

        def block(begin: int, end: int) -> None:
            here = np.add(following[begin:end], reward[begin:end], out=choices[begin:end])
            if self.unavailable is not None:
                here[self.unavailable[begin:end]] = -np.inf
            here.argmax(axis=1, out=actions[begin:end])
            worth[begin:end] = here.ravel()[self.first_rows[: end - begin] + actions[begin:end]]

        in_blocks(block, self.shape[0])
        return choices, actions, worth

    def chain(self, actions: np.ndarray) -> sp.csr_array:
        """The transition matrix of a deterministic policy, (S, S), until the next call."""
        transition, rows = self.model.transition, self.first_rows + actions
        if self.even is None:
            return transition[rows]
        # Rows of one length are taken as rows of a table, eight times faster than SciPy's selection, and only
        # where the action is another one than in the chain before.
        tables = [part.reshape(-1, self.even) for part in (transition.data, transition.indices)]
        if self._taken is None:
            own = [table.take(rows, axis=0) for table in tables]
        else:
            own, changed = self._taken[1], np.flatnonzero(self._taken[0] != actions)
            for table, part in zip(tables, own, strict=True):
                part[changed] = table.take(rows[changed], axis=0)
        self._taken = actions, own
        pointers = np.arange(0, self.even * rows.size + 1, self.even, dtype=transition.indptr.dtype)
        entries = (*(part.ravel() for part in own), pointers)
        return sp.csr_array(entries, shape=(rows.size,) * 2)

    def policy_chain(self, policy: np.ndarray) -> sp.csr_array:
        """The transition matrix of any policy (S, A), as a matrix to multiply with."""
        if self._pattern is None:
            self._pattern = Pattern(self.model)
        return self._pattern.chain(policy)


class EpisodeOracle(Oracle):
    """The oracle of episodes.

    Args:
        flow: the model.
        device: where systems are solved; on the host when not given.
    """

    def __init__(self, flow: EpisodeFlow, device: Device | None = None) -> None:
        super().__init__(flow)
        self.flow, self.mass, self.endless = flow, flow.mass, flow.endless
        self.all_reached = bool(flow.reached.all())
        self.device = device

    def best(self, reward: np.ndarray, accuracy: float, rounds: int = MOST_ROUNDS) -> Best:
        """See ``Oracle``."""
        self.work.calls += 1
        values, narrowest, stalled = self.values, np.inf, 0
        found: Best | None = None
        before: np.ndarray | None = None  # actions that ``values`` are the exact values of
        for _ in range(rounds):
            choices, actions, after = self.greedy(reward, values)
            upper, lower, residual = self._interval(values, after)
            stalled = 0 if upper - lower < 0.9 * narrowest else stalled + 1
            if upper - lower < narrowest:
                found, narrowest = Best(values, actions, upper, lower), upper - lower
            if narrowest <= accuracy:
                break
            if before is not None:
                actions = improved(
                    before, actions, choices.ravel()[self.first_rows + before], after
                )
                if (actions == before)[self.reached].all():
                    break
            chain = self.chain(actions)
            gained = reward.ravel()[self.first_rows + actions]
            if stalled > STALLED:  # Howard's policy iteration, which ends whatever the model
                values = self.flow.solved(chain, gained, guess=after)
                before = actions
                continue
            # Beyond what is asked, accuracy would be lost with the next change of actions.
            target = max(FORCING * residual, 0.1 * accuracy / self.mass, 4 * EPS * largest(after))
            norm = half_spread if self.endless else largest
            values = self._settle(chain, gained, after, target, norm)
        if found is None:
            raise SolverError("a reward has entries that are not finite: no policy is best")
        self.values = found.values
        return self._looked_closer(reward, found)

    def _looked_closer(self, reward: np.ndarray, found: Best) -> Best:
        """The same where the best return is so small beside others that its digits are theirs."""
        rare = rare_return(self.flow, reward, found.values)
        if rare is None:
            return found
        gained = reward.ravel()[self.first_rows + rare.actions]
        upper, lower = dot(self.initial, rare.values), dot(rare.visits, gained)
        return Best(rare.values, rare.actions, upper, min(lower, upper), rare.visits)

    def _interval(self, values: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
        """Upper and lower bound from V and TV, and how far V is from a solution."""
        change = after - values
        if not self.all_reached:
            change = change[self.reached]
        high, low = float(change.max()), float(change.min())
        start = dot(self.initial, values)
        if self.endless:
            return start + high * self.mass, start + low * self.mass, 0.5 * (high - low)
        residual = max(abs(high), abs(low))
        return start + max(0.0, high) * self.mass, start + min(0.0, low) * self.mass, residual

    def evaluate(
        self, matrix: sp.csr_array, gained: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        norm = half_spread if self.endless else largest
        target = max(accuracy, 4 * EPS * largest(guess))
        return self._settle(matrix, gained, guess, target, norm)

    def visits(self, matrix: sp.csr_array, error: float) -> np.ndarray:
        """v = rho + gamma matrix' v, up to ``error`` in the sum of absolute values, shape (S,)."""
        backward = matrix.T
        # Where no episode ends, a guess of the right mass has no error in the slowest direction.
        guess = self.initial * self.mass if self.visits_before is None else self.visits_before
        target = max(error / self.flow.longest, 4 * EPS)
        visits = np.maximum(self._settle(backward, self.initial, guess, target, total), 0.0)
        self.visits_before = visits
        return visits

    def _settle(
        self, matrix: sp.csr_array, right: np.ndarray, guess: np.ndarray, target: float, norm: Norm
    ) -> np.ndarray:
        discount = self.flow.discount
        if self.device is not None:
            return self.device.solve(matrix, right, guess, discount, target, norm.__name__)
        found, sweeps = settle(matrix, right, discount, guess, target, norm)
        self.work.policy_sweeps += sweeps
        return found


class Pattern:
    """Where policies' transition matrices have entries: found once, filled for each policy.

    Actions often share successors (on a grid five places instead of sixteen). Where merging them does not
    pay, the matrices keep several entries for a place, which products with vectors do not mind.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow, self.n_states = flow, flow.shape[0]
        self.fill: sp.csr_array | None = None
        merged = successors_of_states(flow.transition)
        if merged.nnz < MERGING_PAYS * flow.transition.nnz:
            self._merge(merged)

    def _merge(self, merged: sp.csr_array) -> None:
        """A matrix that takes a policy's (S * A,) probabilities to the merged entries."""
        transition = self.flow.transition
        states = np.arange(self.n_states, dtype=np.int64)
        keys = np.repeat(states * self.n_states, np.diff(merged.indptr)) + merged.indices
        lengths = np.diff(state_pointers(transition))
        own = np.repeat(states * self.n_states, lengths) + transition.indices
        slots = np.searchsorted(keys, own)
        pairs = sp.csc_array(
            (transition.data, slots, transition.indptr), shape=(merged.nnz, transition.shape[0])
        )
        self.fill = sp.csr_array(pairs)
        self.pointers, self.indices = merged.indptr, merged.indices

    def chain(self, policy: np.ndarray) -> sp.csr_array:
        """P_pi, (S, S)."""
        if self.fill is None:
            return self.flow.chain(policy)
        entries = (self.fill @ policy.ravel(), self.indices, self.pointers)
        return sp.csr_array(entries, shape=(self.n_states,) * 2)


def optimal_values(
    flow: EpisodeFlow,
    reward: np.ndarray,
    guess: np.ndarray | None = None,
    start: np.ndarray | None = None,
    rounds: int = 200,
) -> tuple[np.ndarray, np.ndarray]:
    """Nearly optimal values (S,) for a reward (S, A) of available pairs, and the greedy actions (S,).

    Policy iteration begins with the actions ``start``, (S,), where some are given: those of a guess might never
    end, and nor may those of values that are not exact.
    """
    states, n_actions = flow.shape
    values = np.zeros(states) if guess is None else guess
    if states > DENSE_LIMIT and start is None:
        spread = float(np.ptp(reward[flow.usable]))
        oracle = EpisodeOracle(flow)
        oracle.values = values
        best = oracle.best(reward, ACCURACY * max(spread, 1e-300) * flow.mass)
        return best.values, best.actions
    first_rows = np.arange(states) * n_actions
    greedy = start
    if greedy is not None:
        values = flow.solved(
            flow.transition[first_rows + greedy], reward.ravel()[first_rows + greedy]
        )
    for _ in range(rounds):
        choices = np.where(flow.actions, reward + flow.following(values), -np.inf)
        actions = choices.argmax(axis=1)
        if greedy is not None:
            kept, gained = (choices.ravel()[first_rows + one] for one in (greedy, actions))
            actions = improved(greedy, actions, kept, gained)
            if (actions == greedy)[flow.reached].all():
                break
        greedy, rows = actions, first_rows + actions
        values = flow.solved(flow.transition[rows], reward.ravel()[rows])
    assert greedy is not None
    return values, greedy


def longest_stay(flow: EpisodeFlow, rounds: int = MOST_ROUNDS) -> np.ndarray | None:
    """w >= 1 + gamma P w on all pairs that can be taken, (S,); None where none was found.

    Policy iteration with reward 1. Where 1 + gamma P w <= w + e with e < 1, w / (1 - e) is such a bound, so
    it ends as soon as e is small; small models are solved to the end, and w is the longest stay itself.
    """
    states, n_actions = flow.shape
    first_rows = np.arange(states) * n_actions
    if states <= DENSE_LIMIT:
        values, _ = optimal_values(flow, np.ones(flow.shape))
    else:
        values = np.zeros(states)
    for _ in range(rounds):
        choices = np.where(flow.actions, 1.0 + flow.following(values), -np.inf)
        excess = float((choices.max(axis=1) - values)[flow.reached].max())
        if excess <= STAY_EXCESS:
            return np.maximum(values, 0.0) / (1.0 - max(excess, 0.0))
        chain = flow.transition[first_rows + choices.argmax(axis=1)]
        ones = np.ones(states)
        target = FORCING * STAY_EXCESS
        values, _ = settle(chain, ones, flow.discount, choices.max(axis=1), target, largest)
    return None


def improved(
    before: np.ndarray, actions: np.ndarray, kept: np.ndarray, gained: np.ndarray
) -> np.ndarray:
    """Keep an action unless another is better by more than rounding, in whatever units: no cycling."""
    size = min(1.0, largest(gained))
    return np.where(gained > kept + BETTER * (size + np.abs(gained)), actions, before)
