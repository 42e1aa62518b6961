"""Where column generation keeps what is large: rewards, values and columns, on the host or on an accelerator.

``Generation`` decides, and masters see a few numbers of each column. A place answers with a reward's best
policy as a column: on an accelerator that is one program from the reward to the column's visits, and nothing of
the size of the model comes back before the answer is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.columns.pool import Column, small_actions
from cvxmdp.base.compiling import program
from cvxmdp.base.precision import double_precision, host
from cvxmdp.models.compiled_planning import (
    CompiledModel,
    answer,
    compiled_model,
    following,
    policy_values,
    policy_visits,
    residual,
)
from cvxmdp.models.compiled_systems import DeviceSolver, accelerator
from cvxmdp.models.episode_flow import SKETCHED, DiscountedFlow, EpisodeFlow
from cvxmdp.models.flow import Flow
from cvxmdp.models.planning import Best, EpisodeOracle, Oracle

# What the flow equations may miss, relative: about what float64 can tell from nothing.
SHARP = 4e-15


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

    model: CompiledModel | None = None  # the model on an accelerator

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    def spread(self, reward: Any) -> float:
        """From the smallest to the largest entry that some policy can take."""
        return float(np.ptp(reward[self.oracle.model.usable]))

    def best(self, reward: Any, accuracy: float, error: float) -> tuple[Best, Column]:
        """The best policy of a reward, and its column with visits up to ``error``."""
        found = self.oracle.best(reward, accuracy)
        visits = found.visits
        if visits is None:
            visits = self.oracle.visits(self.oracle.chain(found.actions), error)
        actions = small_actions(found.actions, self.oracle.shape[1])
        return found, Column(visits, actions, None, error)

    def visits(self, policy: np.ndarray, error: float) -> np.ndarray:
        """Visits of a policy (S, A), up to ``error``."""
        return self.oracle.visits(self.oracle.policy_chain(policy), error)

    def sharpened(self, x: np.ndarray, policy: np.ndarray) -> np.ndarray:
        """The occupancy of a policy, near x, as exactly as is cheap here: what the checker begins with."""
        return x

    def evaluate(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        """V of a policy (S, A), within ``accuracy`` of its Bellman equation."""
        gained = np.einsum("sa,sa->s", policy, reward)
        return self.oracle.evaluate(self.oracle.policy_chain(policy), gained, guess, accuracy)

    def precision(self) -> AbstractContextManager[None]:
        """In which arrays of this place are computed with."""
        return nullcontext()

    def put(self, array: np.ndarray) -> Any:
        """An array, here."""
        return array

    def following(self, values: Any) -> Any:
        """gamma P V, (S, A)."""
        return self.oracle.model.following(values)

    def residual(self, x: Any) -> Any:
        """What the flow equations miss at x, (S,)."""
        return self.oracle.model.residual(x)


class DevicePlace(HostPlace):
    """An accelerator.

    Args:
        oracle: of the model, which keeps the last values and visits.
        model: the model, there.
        stay: columns and values stay there, for a master that looks at ``features`` alone; else they come back.
    """

    def __init__(self, oracle: EpisodeOracle, model: CompiledModel, stay: bool) -> None:
        super().__init__(oracle)
        self.model, self.stay = model, stay

    def keep(self, rewards: Sequence[np.ndarray]) -> Any:
        with double_precision():
            return jnp.stack([jnp.asarray(reward) for reward in rewards])

    def mixed(self, factors: np.ndarray, rewards: Any) -> Any:
        with double_precision():
            return _mixed(jnp.asarray(factors), rewards)

    def spread(self, reward: Any) -> float:
        with double_precision():
            return float(_spread(jnp.asarray(reward), self.model))

    def features(self, column: Column, rewards: Any) -> list[float]:
        with double_precision():
            actions = None if column.actions is None else jnp.asarray(column.actions)
            policy = None if column.policy is None else jnp.asarray(column.policy)
            seen = _features(jnp.asarray(column.visits), actions, policy, rewards)
            return [float(one) for one in np.asarray(seen)]

    def best(self, reward: Any, accuracy: float, error: float) -> tuple[Best, Column]:
        oracle, work = self.oracle, self.oracle.work
        with double_precision():
            found = answer(
                self.model,
                jnp.asarray(reward),
                jnp.asarray(oracle.values),
                self._guess(),
                jnp.asarray(accuracy),
                jnp.asarray(error),
            )
            found = found if self.stay else host(found)
        work.calls, work.sweeps = work.calls + 1, work.sweeps + int(found.rounds)
        work.policy_sweeps += int(found.sweeps)
        oracle.values, oracle.visits_before = found.values, found.visits
        best = Best(found.values, found.actions, float(found.upper), float(found.lower))
        return best, Column(found.visits, found.actions, None, error)

    def _guess(self) -> Any:
        """The visits before; where there are none, ones of the right mass."""
        before = self.oracle.visits_before
        return jnp.asarray(
            self.oracle.initial * self.oracle.model.mass if before is None else before
        )

    def visits(self, policy: np.ndarray, error: float) -> np.ndarray:
        with double_precision():
            given = jnp.asarray(policy), self._guess(), jnp.asarray(error)
            found, sweeps = policy_visits(self.model, *given)
        self.oracle.work.policy_sweeps += int(sweeps) * self.oracle.shape[1]  # all its actions
        self.oracle.visits_before = np.asarray(found)
        return self.oracle.visits_before

    def sharpened(self, x: np.ndarray, policy: np.ndarray) -> np.ndarray:
        flow = self.oracle.model
        return self.visits(policy, SHARP * flow.longest * flow.mass)[:, None] * policy

    def evaluate(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        with double_precision():
            given = (jnp.asarray(part) for part in (policy, reward, guess, accuracy))
            found, sweeps = policy_values(self.model, *given)
        self.oracle.work.policy_sweeps += int(sweeps) * self.oracle.shape[1]
        return np.asarray(found)

    def precision(self) -> AbstractContextManager[None]:
        return double_precision()

    def put(self, array: np.ndarray) -> Any:
        with double_precision():
            return jnp.asarray(array)

    def following(self, values: Any) -> Any:
        self.oracle.work.sweeps += 1
        return following(self.model, values)

    def residual(self, x: Any) -> Any:
        self.oracle.work.sweeps += 1
        return residual(self.model, x)

    def typical(self, flow: EpisodeFlow) -> None:
        """Compute here what sizes are measured at, and what the search begins with."""
        error = SKETCHED * flow.mass
        found = [self.visits(policy, error) for policy in (flow.uniform, flow.deterministic)]
        flow.know_typical(*found)


def place_for(flow: Flow, affine: bool) -> HostPlace:
    """The accelerator, where there is one, the model is large enough and its rows are alike."""
    if not accelerator(flow.shape[0]):
        return HostPlace(flow.oracle())
    oracle = flow.oracle(DeviceSolver())
    if isinstance(flow, DiscountedFlow) and isinstance(oracle, EpisodeOracle):
        model = compiled_model(flow)
        if model is not None:
            place = DevicePlace(oracle, model, stay=affine)
            place.typical(flow)
            return place
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
