r"""Flows in which every row is only known to lie in a set: the optimist's best policy, a policy's worst
values.

With T+ V(s) = max_a r(s,a) + gamma max_p p.V the optimist's values V = T+ V are the best return over all
policies and all models of the set, and V = T- V, T- V(s) = sum_a pi(a|s) (r(s,a) + gamma min_p p.V), those
of one policy in its worst model. Both by policy iteration: whoever chooses p is a player like the other.
What is found here is in plain float64 and makes no claim: any V gives a bound, which the checker computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.experience.confidence import Extreme, RowSets
from cvxmdp.models.episode_flow import DiscountedFlow
from cvxmdp.models.systems import solve_discounted

ROUNDS = 60  # of policy iteration
SETTLED = 1e-11  # relative change of values that ends it
TOGETHER = 150  # states up to which several chains are solved at a time
BLOCK = 2**21  # entries of such chains


class Optimum(NamedTuple):
    """The best policy in the best model of a set, for one reward.

    Attributes:
        values: V, (S,).
        actions: (S,).
        upper: no policy has a larger return in any model, up to rounding.
        visits: of the policy in that model, (S,).
    """

    values: np.ndarray
    actions: np.ndarray
    upper: float
    visits: np.ndarray


@dataclass(frozen=True, eq=False)
class RobustFlow(DiscountedFlow):
    """A set of models around an estimate, which ``transition`` and ``initial`` are.

    Attributes:
        sets: of every pair's distribution over the states and ``end``.
        starts: of the initial distribution, one row; None where it is known.
        listed: boolean (S,): what is a state at all. In an unknown model any of them may be reached.
        most: the longest stay of any policy in any model of the set.
    """

    sets: RowSets
    starts: RowSets | None
    listed: np.ndarray
    most: float

    @property
    def reached(self) -> np.ndarray:
        return self.listed

    @property
    def ceiling(self) -> float:
        return self.most

    @property
    def scale(self) -> float:
        return 1.0 / self.most

    @property
    def usable(self) -> np.ndarray:
        return self.listed[:, None] & self.actions

    @property
    def endless(self) -> bool:
        return False

    @cached_property
    def stay(self) -> np.ndarray:
        return np.full(self.shape[0], self.ceiling)

    def optimum(self, reward: np.ndarray, guess: np.ndarray | None = None) -> Optimum:
        """For a reward (S, A), from a guess of V on."""
        first = np.arange(self.shape[0]) * self.shape[1]
        values = np.zeros(self.shape[0]) if guess is None else guess
        for left in reversed(range(ROUNDS)):
            found = self.sets.largest(np.append(values, 0.0)[:, None])
            after = reward + self.discount * found.bound[:, 0].reshape(self.shape)
            choices = np.where(self.actions, after, -np.inf)
            actions = choices.argmax(axis=1)
            best = np.where(self.listed, choices[np.arange(len(actions)), actions], 0.0)
            change = float(np.abs(best - values).max())
            if not left or change <= SETTLED * (1.0 + float(np.abs(best).max())):
                break  # the bound is of the values that were backed up last
            chain = extreme_chain(self.sets, found, first + actions)
            gained = np.where(self.listed, reward.ravel()[first + actions], 0.0)
            values = solve_discounted(chain, gained, self.discount)
        chain = extreme_chain(self.sets, found, first + actions)
        upper, start = best_start(self.starts, self.initial, values)
        excess = float((best - values)[self.listed].max())
        visits = np.maximum(solve_discounted(chain.T, start, self.discount), 0.0)
        return Optimum(values, actions, upper + max(0.0, excess) * self.ceiling, visits)

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        found = self.optimum(reward, guess)
        return found.values, found.actions

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma max_p p.V, (S, A)."""
        bound = self.sets.largest(np.append(values, 0.0)[:, None]).bound[:, 0]
        return np.asarray(self.discount * bound.reshape(self.shape))

    def best_return(
        self, reward: np.ndarray, values: np.ndarray, following: np.ndarray | None = None
    ) -> float:
        following = self.following(values) if following is None else following
        choices = np.where(self.usable, reward + following, -np.inf)
        excess = float((choices.max(axis=1) - values)[self.listed].max())
        return best_start(self.starts, self.initial, values)[0] + max(0.0, excess) * self.ceiling

    def penalty(self, values: np.ndarray) -> np.ndarray:
        """gamma (p^.V - min_p p.V), (S, A): what the worst model takes from each pair."""
        least = -self.sets.largest(-np.append(values, 0.0)[:, None]).bound[:, 0]
        lost = self.discount * (self.transition @ values - least).reshape(self.shape)
        return np.where(self.usable, np.maximum(lost, 0.0), 0.0)

    def worst_values(self, policy: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        """V of a policy in the model that is worst for each reward per visit, (J, S) both."""
        player = Worst(self, policy)
        states = self.shape[0]
        block = max(1, BLOCK // states**2) if states <= TOGETHER else 1
        parts = [player.values(rewards[at : at + block]) for at in range(0, len(rewards), block)]
        return np.concatenate(parts)


def extreme_chain(sets: RowSets, found: Extreme, rows: np.ndarray) -> sp.csr_array:
    """P of some rows at the extremes of the first function, (rows, S)."""
    centres = sets.centres
    parts = (found.chances[:, 0], centres.indices, centres.indptr)
    whole = sp.csr_array(parts, shape=centres.shape)[rows]
    places = (found.rest[rows, 0], (np.arange(rows.size), found.top[rows, 0]))
    return sp.csr_array((whole + sp.csr_array(places, shape=whole.shape))[:, :-1])


def best_start(
    starts: RowSets | None, initial: np.ndarray, values: np.ndarray
) -> tuple[float, np.ndarray]:
    """The largest rho.V, and that rho; where starts are known, of the initial distribution."""
    if starts is None:
        return float(initial @ values), initial
    found = starts.largest(np.append(values, 0.0)[:, None])
    start = np.zeros(values.size + 1)
    np.add.at(start, starts.centres.indices, found.chances[:, 0])
    start[found.top[0, 0]] += found.rest[0, 0]
    return float(found.bound[0, 0]), start[:-1]


class Worst:
    """The worst models for one policy."""

    def __init__(self, flow: RobustFlow, policy: np.ndarray) -> None:
        self.flow, self.states = flow, flow.shape[0]
        self.rows = np.flatnonzero((policy > 0) & flow.usable)
        self.sets = flow.sets.only(self.rows)
        self.weight = policy.ravel()[self.rows]
        self.state = self.rows // flow.shape[1]
        centres = self.sets.centres
        entry = np.repeat(np.arange(self.rows.size), np.diff(centres.indptr))
        self.entry_weight, self.entry_state = self.weight[entry], self.state[entry]

    def values(self, rewards: np.ndarray) -> np.ndarray:
        """V, (J, S), for rewards per visit (J, S)."""
        rewards = np.where(self.flow.listed, rewards, 0.0)
        values = np.zeros_like(rewards)
        for _ in range(ROUNDS):
            outcomes = np.concatenate([values.T, np.zeros((1, len(values)))])
            found = self.sets.largest(-outcomes)
            after = rewards.copy()
            least = -self.flow.discount * self.weight[:, None] * found.bound
            np.add.at(after.T, self.state, least)
            change = np.abs(after - values).max(axis=1)
            if (change <= SETTLED * (1e-300 + np.abs(after).max(axis=1))).all():
                break
            values = self._solved(found, rewards)
        return values

    def _solved(self, found: Extreme, rewards: np.ndarray) -> np.ndarray:
        chains = [self._chain(found, j) for j in range(len(rewards))]
        if self.states > TOGETHER:
            pairs = zip(chains, rewards, strict=True)
            return np.stack([solve_discounted(c, r, self.flow.discount) for c, r in pairs])
        dense = np.stack([chain.toarray() for chain in chains])
        system = np.eye(self.states) - self.flow.discount * dense
        return np.asarray(np.linalg.solve(system, rewards[:, :, None])[:, :, 0])

    def _chain(self, found: Extreme, j: int) -> sp.csr_array:
        """P of the policy in the model that is worst for the j-th reward, (S, S)."""
        moved = self.entry_weight * found.chances[:, j]
        rest = self.weight * found.rest[:, j]
        data = np.concatenate([moved, rest])
        rows = np.concatenate([self.entry_state, self.state])
        columns = np.concatenate([self.sets.centres.indices, found.top[:, j]])
        shape = (self.states, self.states + 1)
        return sp.csr_array((data, (rows, columns)), shape=shape)[:, : self.states]
