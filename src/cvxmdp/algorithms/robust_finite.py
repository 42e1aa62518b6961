r"""A finite number of steps in which every row is only known to lie in a set.

The recursions of ``models.finite_flow`` with one player more, who chooses p anew at every step: V_t(s) = max_a
(r_t(s,a) + gamma max_p p.V_{t+1}) for the optimist, min_p under a policy for its worst model. One sweep each,
exact up to rounding; what is claimed, the checker computes anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp.algorithms.robust_flow import Optimum, best_start, extreme_chain
from cvxmdp.experience.confidence import RowSets
from cvxmdp.models.finite_flow import FiniteFlow


@dataclass(frozen=True, eq=False)
class RobustFiniteFlow(FiniteFlow):
    """A set of models around an estimate, over T steps; see ``RobustFlow``.

    Attributes:
        sets: of every pair's distribution over the states and ``end``, of one step.
        starts: of the initial distribution, one row; None where it is known.
        listed: boolean (T*S,): when one may be where, in some model.
    """

    sets: RowSets
    starts: RowSets | None
    listed: np.ndarray

    @property
    def reached(self) -> np.ndarray:
        return self.listed

    @property
    def usable(self) -> np.ndarray:
        return self.listed[:, None] & self.actions

    @property
    def mass(self) -> float:
        return self.ceiling

    def optimum(self, reward: np.ndarray, guess: np.ndarray | None = None) -> Optimum:
        """For a reward (T*S, A): backwards for values and actions, forwards for visits."""
        states, n_actions = self.single.shape[1], self.shape[1]
        rewards, usable = self._layers(reward), self._layers(self.usable)
        values, actions, chains = np.zeros((self.steps, states)), [], []
        after, first = np.zeros(states), np.arange(states) * n_actions
        for time in range(self.steps - 1, -1, -1):
            found = self.sets.largest(np.append(after, 0.0)[:, None])
            later = self.discount * found.bound[:, 0].reshape(states, n_actions)
            choices = np.where(usable[time], rewards[time] + later, -np.inf)
            actions.append(choices.argmax(axis=1))
            best = choices.max(axis=1)
            after = values[time] = np.where(np.isneginf(best), 0.0, best)
            chains.append(extreme_chain(self.sets, found, first + actions[-1]))
        upper, start = best_start(self.starts, self._layers(self.initial)[0], after)
        visits = [start]
        for chain in chains[:0:-1]:
            visits.append(self.discount * (chain.T @ visits[-1]))
        return Optimum(values.ravel(), np.concatenate(actions[::-1]), upper, np.concatenate(visits))

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        found = self.optimum(reward)
        return found.values, found.actions

    def best_return(
        self, reward: np.ndarray, values: np.ndarray, following: np.ndarray | None = None
    ) -> float:
        return self.optimum(reward).upper

    def penalty(self, values: np.ndarray) -> np.ndarray:
        """gamma (p^.V - min_p p.V) of the time after, (T*S, A): what the worst model takes from each pair."""
        later = self._layers(values)[1:].T
        lost = np.zeros((self.steps, self.single.shape[0]))
        if later.size:
            least = -self.sets.largest(
                -np.append(later, np.zeros((1, later.shape[1])), axis=0)
            ).bound
            lost[:-1] = self.discount * (self.single @ later - least).T
        return np.where(self.usable, np.maximum(lost.reshape(self.shape), 0.0), 0.0)

    def worst_values(self, policy: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        """V of a policy in the model that is worst for each reward per visit, (J, T*S) both."""
        count, states = len(rewards), self.single.shape[1]
        chosen = self._layers(np.where(self.usable, policy, 0.0))
        gained = np.where(self.listed, rewards, 0.0).reshape(count, self.steps, states)
        found, after = np.empty(gained.shape), np.zeros((states + 1, count))
        for time in range(self.steps - 1, -1, -1):
            least = -self.sets.largest(-after).bound.reshape(states, -1, count)
            mean = np.einsum("sa,saj->sj", chosen[time], least)
            after[:-1] = gained[:, time].T + self.discount * mean
            found[:, time] = after[:-1].T
        return found.reshape(count, -1)
