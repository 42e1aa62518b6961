r"""Occupancy measures: the flow equations, and the way between occupancies and policies as arrays.

The occupancy of a policy is lambda(s,a) = sum_k gamma^k P(s_k = s, a_k = a), unnormalised, before
the episode ends. The set of all of them is the polytope

    x >= 0,   sum_a x(s,a) = rho(s) + gamma * sum_{s',a'} P(s | s',a') x(s',a')   for all s.

(The paper's eq. (Lambda) prints gamma/(1-gamma) as the factor; for its own unnormalised measure it
is gamma.) A policy gives its occupancy by one linear solve with I - gamma P_pi^T, and an occupancy
its policy by pi(a|s) = x(s,a) / sum_a x(s,a). The values of a reward solve the transposed system.

Policies as objects, with their checks, are in ``cvxmdp.policies.occupancies``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.systems import DENSE_LIMIT, EPS, solve_discounted

SOLVED_TOGETHER = 256  # states up to which policies are evaluated several at a time
TOGETHER_ENTRIES = 2**22
ENDED_ROUNDING = 1e-6  # relative error of undiscounted visits beyond which none are reported


@dataclass(frozen=True, eq=False)
class Flow:
    """The flow equations of a model, which ``mdp.flow`` gives.

    Attributes:
        transition: P(s' | s, a), (S*A, S), compressed sparse rows; row s * A + a belongs to the pair.
        initial: rho, (S,).
        discount: gamma.
        actions: boolean (S, A), which actions are available.
    """

    transition: sp.csr_array
    initial: np.ndarray
    discount: float
    actions: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return int(self.actions.shape[0]), int(self.actions.shape[1])

    @cached_property
    def reached(self) -> np.ndarray:
        """Boolean (S,): states that some policy visits. No policy ever visits the others."""
        # Rows of one state are contiguous, so every A-th row pointer gives the state graph.
        pointers = self.transition.indptr[:: self.shape[1]]
        found = reached_from(self.initial > 0, pointers, self.transition.indices)
        found.flags.writeable = False
        return found

    @cached_property
    def usable(self) -> np.ndarray:
        """Boolean (S, A): pairs that some policy can take."""
        return self.reached[:, None] & self.actions

    @cached_property
    def mass(self) -> float:
        """The largest mass of an occupancy; rows may sum to a little more than one by rounding."""
        successors = int(np.diff(self.transition.indptr).max(initial=0))
        rows = float(self.transition.sum(axis=1).max()) * (1 + (successors + 4) * EPS)
        shrink = 1.0 - self.discount * rows
        if not shrink > 0:
            raise ModelError(
                f"with a discount of {self.discount!r} and rows that sum to up to {rows!r}, nothing "
                "bounds the mass of an occupancy"
            )
        return float(self.initial.sum()) / shrink

    @property
    def uniform(self) -> np.ndarray:
        """The policy that is uniform over the available actions, (S, A)."""
        return self.actions / self.actions.sum(axis=1, keepdims=True)

    def chain(self, policy: np.ndarray) -> sp.csr_array:
        """P_pi, (S, S): where one step of the policy leads.

        Actions may share successors: such a place has several entries, which products do not mind.
        """
        states, actions = self.shape
        chances = np.repeat(policy.ravel(), np.diff(self.transition.indptr))
        entries = (self.transition.data * chances, self.transition.indices)
        return sp.csr_array((*entries, self.transition.indptr[::actions]), shape=(states, states))

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, (S, A)."""
        following = self.transition @ values
        following *= self.discount
        return np.asarray(following.reshape(self.shape))

    def values(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        """V of a policy with this reward, (S,)."""
        gained = np.einsum("sa,sa->s", policy, reward)
        return solve_discounted(self.chain(policy), gained, self.discount, guess=guess)

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """The occupancy of a policy, (S, A): discounted expected visits of each pair."""
        visits = solve_discounted(self.chain(policy).T, self.initial, self.discount)
        # The exact solution is not negative; rounding below zero is not part of the answer.
        return np.where(self.actions, np.maximum(visits, 0.0)[:, None] * policy, 0.0)

    def occupancies(self, policies: np.ndarray) -> np.ndarray:
        """The occupancies of several policies, (K, S, A): small models are solved together."""
        states, actions = self.shape
        if states > SOLVED_TOGETHER:
            return np.stack([self.occupancy(policy) for policy in policies])
        transition = self.transition.toarray().reshape(states, actions, states)
        visits = np.empty(policies.shape[:2])
        block = max(1, TOGETHER_ENTRIES // states**2)
        for begin in range(0, len(policies), block):
            part = policies[begin : begin + block]
            backward = np.einsum("ksa,sat->kts", part, transition, optimize=True)
            system = np.eye(states) - self.discount * backward
            right = np.broadcast_to(self.initial[:, None], (len(part), states, 1))
            visits[begin : begin + block] = np.linalg.solve(system, right)[:, :, 0]
        return np.where(self.actions, np.maximum(visits, 0.0)[:, :, None] * policies, 0.0)

    def policy(self, x: np.ndarray) -> np.ndarray:
        """The policy of an occupancy, (S, A): x(s,a) / sum_a x(s,a), uniform where nothing is visited."""
        inside = np.where(self.actions, np.maximum(x, 0.0), 0.0)
        visits = inside.sum(axis=1, keepdims=True)
        visited = visits > 0
        return np.where(visited, inside / np.where(visited, visits, 1.0), self.uniform)

    def residual(self, x: np.ndarray) -> np.ndarray:
        """What the flow equations miss at x, (S,): zero for an occupancy."""
        inflow = self.initial + self.discount * (self.transition.T @ x.ravel())
        return np.asarray(x.sum(axis=1) - inflow)

    def miss(self, x: np.ndarray) -> float:
        """The residual in the sum of absolute values, pairs that no policy can take included."""
        return float(np.abs(self.residual(x)).sum() + np.abs(x[~self.usable]).sum())

    def equations(self) -> tuple[sp.csr_array, np.ndarray]:
        """The flow equations over the usable pairs and reached states: matrix and right-hand side."""
        places = np.flatnonzero(self.usable)
        entries = (np.ones(places.size), (places // self.shape[1], np.arange(places.size)))
        leaving = sp.csr_array(entries, shape=(self.shape[0], places.size))
        arriving = self.discount * sp.csr_array(self.transition[places].T)
        return sp.csr_array((leaving - arriving)[self.reached]), self.initial[self.reached]

    def episode_visits(self, policy: np.ndarray, ending: np.ndarray) -> np.ndarray | None:
        """Undiscounted expected visits per episode, (S, A).

        None where episodes may last forever, or so long that rounding hides their end, and for models
        beyond ``DENSE_LIMIT`` states.

        Args:
            policy: (S, A).
            ending: the probability that the episode ends with this step, (S, A).
        """
        chain = self.chain(policy).copy()  # it shares the model's own indices
        chain.eliminate_zeros()
        visited = reached_from(self.initial > 0, chain.indptr, chain.indices)
        backward = sp.csr_array(chain.T)
        ends_here = (policy * ending).sum(axis=1) > 0
        can_end = reached_from(ends_here, backward.indptr, backward.indices)
        if len(visited) > DENSE_LIMIT or not can_end[visited].all():
            return None
        matrix = np.eye(len(visited)) - backward.toarray()
        # States the policy does not visit may never end; they are not part of its episodes.
        matrix[~visited] = 0.0
        matrix[~visited, ~visited] = 1.0
        try:
            visits = np.maximum(np.linalg.solve(matrix, self.initial), 0.0)
        except np.linalg.LinAlgError:
            return None
        occupancy = visits[:, None] * policy
        # One episode ends once. Where the policy ends it so rarely that this is lost in rounding, the
        # visits are, too.
        ended = float((occupancy * ending).sum())
        return occupancy if abs(ended - 1.0) <= ENDED_ROUNDING else None


def reached_from(start: np.ndarray, pointers: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """Boolean (S,): places that can be reached from ``start``, boolean (S,), in a graph of compressed rows."""
    reached = start.copy()
    frontier = np.flatnonzero(reached)
    while frontier.size:
        lengths = pointers[frontier + 1] - pointers[frontier]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        candidates = successors[np.repeat(pointers[frontier], lengths) + within]
        frontier = np.unique(candidates[~reached[candidates]])
        reached[frontier] = True
    return reached
