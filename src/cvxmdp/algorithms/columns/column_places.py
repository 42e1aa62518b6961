"""Where column generation keeps what is large: rewards, values and columns, on the host or on an accelerator.

``Generation`` decides, and masters see a few numbers of each column. A place answers with a reward's best
policy as a column: on an accelerator that is one program from the reward to the column's visits, and nothing of
the size of the model comes back before the answer is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.columns.pool import Column, small_actions
from cvxmdp.base.compiling import program
from cvxmdp.base.precision import double_precision
from cvxmdp.models.compiled_planning import CompiledModel, answer, compiled_model, policy_visits
from cvxmdp.models.compiled_systems import DeviceSolver, accelerator
from cvxmdp.models.episode_flow import EpisodeFlow
from cvxmdp.models.flow import Flow
from cvxmdp.models.planning import Best, EpisodeOracle, Oracle


class Rewards:
    """Rewards (S, A) as arrays of NumPy, mixed again and again."""

    def keep(self, rewards: Sequence[np.ndarray]) -> Any:
        """The rewards, where they will be needed."""
        return list(rewards)

    def mixed(self, factors: np.ndarray, rewards: Any) -> Any:
        """Their weighted sum."""
        total = factors[0] * rewards[0]
        for factor, part in zip(factors[1:], rewards[1:], strict=True):
            if factor:
                total += factor * part
        return total

    def features(self, column: Column, rewards: Any) -> list[float]:
        """<reward, x> of a column for each of them."""
        return [column.inner(reward) for reward in rewards]


class HostPlace(Rewards):
    """NumPy and SciPy.

    Args:
        oracle: of the model.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    def spread(self, reward: Any) -> float:
        """From the smallest to the largest entry that some policy can take."""
        return float(np.ptp(reward[self.oracle.model.usable]))

    def best(self, reward: Any, accuracy: float, error: float) -> tuple[Best, Column]:
        """The best policy of a reward, and its column with visits up to ``error``."""
        found = self.oracle.best(reward, accuracy)
        visits = self.oracle.visits(self.oracle.chain(found.actions), error)
        actions = small_actions(found.actions, self.oracle.shape[1])
        return found, Column(visits, actions, None, error)

    def visits(self, policy: np.ndarray, error: float) -> np.ndarray:
        """Visits of a policy (S, A), up to ``error``."""
        return self.oracle.visits(self.oracle.model.chain(policy), error)


class DevicePlace(HostPlace):
    """An accelerator; columns of ours are arrays there.

    Args:
        oracle: of the model, which keeps the last values and visits.
        model: the model, there.
    """

    def __init__(self, oracle: EpisodeOracle, model: CompiledModel) -> None:
        super().__init__(oracle)
        self.model = model

    def keep(self, rewards: Sequence[np.ndarray]) -> Any:
        with double_precision():
            return jnp.stack([jnp.asarray(reward) for reward in rewards])

    def mixed(self, factors: np.ndarray, rewards: Any) -> Any:
        with double_precision():
            return _mixed(jnp.asarray(factors), rewards)

    def spread(self, reward: Any) -> float:
        with double_precision():
            return float(_spread(reward, self.model))

    def features(self, column: Column, rewards: Any) -> list[float]:
        with double_precision():
            actions = None if column.actions is None else jnp.asarray(column.actions)
            policy = None if column.policy is None else jnp.asarray(column.policy)
            seen = _features(jnp.asarray(column.visits), actions, policy, rewards)
            return [float(one) for one in np.asarray(seen)]

    def best(self, reward: Any, accuracy: float, error: float) -> tuple[Best, Column]:
        oracle, work = self.oracle, self.oracle.work
        with double_precision():
            guess = oracle.visits_before
            visits = oracle.initial * oracle.model.mass if guess is None else guess
            found = answer(
                self.model,
                reward,
                jnp.asarray(oracle.values),
                jnp.asarray(visits),
                jnp.asarray(accuracy),
                jnp.asarray(error),
            )
            work.calls, work.sweeps = work.calls + 1, work.sweeps + int(found.rounds)
            work.policy_sweeps += int(found.sweeps)
            oracle.values, oracle.visits_before = found.values, found.visits
            best = Best(found.values, found.actions, float(found.upper), float(found.lower))
            return best, Column(found.visits, found.actions, None, error)

    def visits(self, policy: np.ndarray, error: float) -> np.ndarray:
        with double_precision():
            guess = jnp.asarray(self.oracle.initial * self.oracle.model.mass)
            found = policy_visits(self.model, jnp.asarray(policy), guess, jnp.asarray(error))
            return np.asarray(found)


def place_for(flow: Flow, affine: bool) -> HostPlace:
    """The accelerator, where there is one, the model is large enough and its rows are alike."""
    if not accelerator(flow.shape[0]):
        return HostPlace(flow.oracle())
    oracle = flow.oracle(DeviceSolver())
    if affine and isinstance(flow, EpisodeFlow) and isinstance(oracle, EpisodeOracle):
        model = compiled_model(flow)
        if model is not None:
            return DevicePlace(oracle, model)
    return HostPlace(oracle)


@program()
def _mixed(factors: Any, rewards: Any) -> Any:
    return jnp.tensordot(factors, rewards, 1)


@program()
def _spread(reward: Any, model: CompiledModel) -> Any:
    usable = model.available.T & model.reached[:, None]
    most = jnp.where(usable, reward, -jnp.inf).max()
    return most - jnp.where(usable, reward, jnp.inf).min()


@program()
def _features(visits: Any, actions: Any, policy: Any, rewards: Any) -> Any:
    if policy is not None:
        return jnp.einsum("s,sa,ksa->k", visits, policy, rewards)
    places = actions.astype(jnp.int32)[None, :, None]
    return jnp.take_along_axis(rewards, places, axis=2)[:, :, 0] @ visits
