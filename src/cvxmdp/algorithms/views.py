r"""A policy as the estimators see it: chances where a trajectory goes, and weighted sums of scores.

For a softmax, the score of an action on the logits of its state is 1(a) - pi(. | s). So

    sum_h c_h grad log pi_theta(a_h | s_h)

is a table of numbers on the logits, pulled back through psi(theta; s, a). There are two ways to look:

- ``AllStates`` evaluates the policy once on every state. A trajectory then only looks rows up, and a batch of
  any size is one table and one pull-back. For tables, and for networks on models that are small beside the
  horizon.
- ``VisitedStates`` evaluates it where the trajectory goes, step by step. For networks on large models, and on
  observations, of which there is no end; on an accelerator for tables, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cvxmdp.base.compiling import has_accelerator, written_out
from cvxmdp.base.pytrees import Pytree
from cvxmdp.experience.trajectories import looked_up, spread, thresholds
from cvxmdp.policies.families import BoundFamily

Array = Any
Params = Any
Steps = Any  # a batch of trajectories, or of experience: states, actions and alive, (B, H)
Alike = Any  # another policy, looked at in the same way
STATES_PER_STEP = 16  # evaluating this many states at once costs about as much as one more step


def view(
    family: BoundFamily, params: Params, horizon: int, logs: Array | None = None
) -> AllStates | VisitedStates:
    """The cheaper of the two ways to look at a policy; ``logs`` where its chances are known already."""
    if logs is not None:
        return AllStates(family, params, logs)
    small = family.actions.shape[0] <= STATES_PER_STEP * horizon
    # An accelerator waits for its memory: a table is more to read and to write than the rows of an episode.
    known = not has_accelerator() if family.is_table else small and not family.observes
    if known:
        return AllStates(family, params, family.log_table(params))
    return VisitedStates(family, params)


@dataclass(frozen=True, eq=False)
class AllStates(Pytree):
    """The policy on every state at once.

    Attributes:
        family, params: of the policy.
        logs: log pi(a | s), (S, A).
    """

    family: BoundFamily
    params: Params
    logs: Array

    def rows(self) -> Any:
        """A function from a state to the thresholds of the actions there."""
        table = thresholds(jnp.exp(self.logs))
        return lambda state: looked_up(table, state)

    def chosen(self, trajectories: Steps) -> Array:
        """log pi(a_k | s_k) where a step was taken, else 0, (B, H)."""
        pairs = trajectories.states * self.logs.shape[1] + trajectories.actions
        return jnp.where(trajectories.alive > 0, self.logs.ravel()[pairs], 0.0)

    def entropy(self, trajectories: Steps) -> Array:
        """The entropy of the policy in the states of the trajectories, (B, H)."""
        return _entropy(self.logs)[trajectories.states]

    def score_difference(
        self, previous: Alike, trajectories: Steps, fresh: Array, stale: Array
    ) -> Params:
        """eq. (pg_estimator) of two policies, their rewards to go ``fresh`` and ``stale`` of shape (m, B, H):

            sum_h fresh_h grad log pi(a_h | s_h) - sum_h stale_h grad log pi'(a_h | s_h)

        averaged over the batch, each leaf with a leading axis m. Both share one pass over the trajectories.
        """
        taken = spread(trajectories, jnp.concatenate([fresh, stale]), self.logs.shape)
        parts = self._scores(taken[: len(fresh)]), previous._scores(taken[len(fresh) :])
        return jax.tree.map(jnp.subtract, *parts)

    def _scores(self, taken: Array) -> Params:
        """The sum of scores from numbers that are added up on their pairs already, (m, S, A)."""
        on_logits = taken - taken.sum(axis=2, keepdims=True) * jnp.exp(self.logs)
        return _pull_back(self.family.all_logits, self.params, on_logits)


@dataclass(frozen=True, eq=False)
class VisitedStates(Pytree):
    """The policy where the trajectory goes; the parts are those of ``AllStates``."""

    family: BoundFamily
    params: Params
    logs: ClassVar[Any] = None  # on all states: not known

    def rows(self) -> Any:
        """A function from a state to the thresholds of the actions there."""
        return lambda state: thresholds(self._chances(state))

    def _chances(self, state: Array) -> Array:
        """pi(. | s) in one state, (A,)."""
        if not self.family.is_table or not written_out(self.family.actions.shape[1]):
            return jnp.exp(self.family.log_probabilities(self.params, state[None])[0])
        row = self.family.masked_logits(self.params, state[None])[0]
        logits = [row[action] for action in range(row.size)]
        largest = reduce(jnp.maximum, logits)
        chances = [jnp.exp(logit - largest) for logit in logits]
        total = sum(chances)
        return jnp.stack([chance / total for chance in chances])

    def _logs(self, trajectories: Steps) -> Array:
        flat = self.family.log_probabilities(self.params, _in_a_row(trajectories))
        return flat.reshape(*trajectories.actions.shape, -1)  # (B, H, A)

    def chosen(self, trajectories: Steps) -> Array:
        """log pi(a_k | s_k) where a step was taken, else 0, (B, H)."""
        logs = jnp.take_along_axis(self._logs(trajectories), trajectories.actions[..., None], 2)
        return jnp.where(trajectories.alive > 0, logs[..., 0], 0.0)

    def entropy(self, trajectories: Steps) -> Array:
        """The entropy of the policy in the states of the trajectories, (B, H)."""
        return _entropy(self._logs(trajectories))

    def score_difference(
        self, previous: Alike, trajectories: Steps, fresh: Array, stale: Array
    ) -> Params:
        """As for ``AllStates``."""
        here, there = self._scores(trajectories, fresh), previous._scores(trajectories, stale)
        if self.family.is_table:
            # Its logits are its parameters, so both are pulled back by the same map.
            return self._pulled_back(trajectories, here - there)
        parts = self._pulled_back(trajectories, here), previous._pulled_back(trajectories, there)
        return jax.tree.map(jnp.subtract, *parts)

    def _scores(self, trajectories: Steps, numbers: Array) -> Array:
        """Numbers times the scores on the logits of each step, (m, B, H, A)."""
        logs = self._logs(trajectories)
        taken = jax.nn.one_hot(trajectories.actions, logs.shape[2], dtype=logs.dtype)
        return numbers[..., None] * (taken - jnp.exp(logs)) / trajectories.alive.shape[0]

    def _pulled_back(self, trajectories: Steps, on_logits: Array) -> Params:
        states = _in_a_row(trajectories)
        return _pull_back(
            lambda params: self.family.logits(params, states),
            self.params,
            on_logits.reshape(len(on_logits), len(states), -1),
        )


def _in_a_row(trajectories: Steps) -> Array:
    """The states, or observations, of all steps: (B * H, ...)."""
    states = trajectories.states
    return states.reshape(-1, *states.shape[2:])


def _entropy(logs: Array) -> Array:
    return -jnp.where(jnp.isfinite(logs), jnp.exp(logs) * logs, 0.0).sum(axis=-1)


def _pull_back(function: Any, params: Params, numbers: Array) -> Params:
    """The transposed derivative of ``function`` at ``params``, for each of several right-hand sides."""
    _, transposed = jax.vjp(function, params)
    return jax.vmap(lambda right: transposed(right)[0])(numbers)
