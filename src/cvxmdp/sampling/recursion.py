r"""One iteration of VR-PDPG, Algorithm 1 of the paper, as pure functions.

With diamond standing for the objective f and each constraint g_i (axis m = 1 + n below), iteration t draws
tau_t under theta_t and computes (lines 9 to 14)

    lambda_t = occupancy_hat(tau_t) + (1 - alpha_t) [lambda_{t-1} - w_t occupancy_hat(tau_t)]
    r_{diamond,t} = grad diamond(lambda_t)
    d_{diamond,t} = gradient_hat(tau_t, theta_t, r_{diamond,t-1})
                    + (1 - alpha_t) [d_{diamond,t-1} - w_t gradient_hat(tau_t, theta_{t-1}, r_{diamond,t-2})]
    theta_{t+1} = theta_t + eta_theta d_{L,t} / |d_{L,t}|,   d_{L,t} = d_{f,t} + sum_i mu_{i,t} d_{g_i,t}
    mu_{t+1}    = Proj_U( mu_t - eta_mu g(lambda_t) )

with w_t = w(tau_t | theta_{t-1}, theta_t), the weight of the *previous* policy. With a batch, "weight times
estimate" is averaged over its trajectories. A zero gradient means no step. The recursive occupancy lambda_t
is not an occupancy; functions are used in their extended form there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.exact.primal_dual import norm
from cvxmdp.policies.families import BoundFamily
from cvxmdp.records import Record
from cvxmdp.sampling.estimators import gradient_estimates, importance_weight, occupancy_estimate
from cvxmdp.sampling.trajectories import SamplingModel, sample_trajectory
from cvxmdp.utilities.function import OccupancyFunction

Array = Any
Params = Any
TINY = 1e-30  # decaying estimates become denormal numbers, which slow a CPU down several times


@dataclass(frozen=True, eq=False)
class Learning(Record):
    """What an iteration needs besides its state; every entry but the last two is a number."""

    model: SamplingModel
    objective: OccupancyFunction  # extended
    slacks: tuple[OccupancyFunction, ...]  # extended
    family: BoundFamily
    primal_step: Array
    dual_step: Array  # (n,)
    dual_bound: Array  # (n,)
    pessimism: Array  # (n,)
    momentum: Array  # alpha
    momentum_decay: Array  # alpha_t = alpha (t+1)^(-decay)
    weight_cap: Array  # infinite in the paper
    horizon: int
    batch_size: int
    static: ClassVar[tuple[str, ...]] = ("horizon", "batch_size")


class LearningState(NamedTuple):
    """Between iterations t-1 and t."""

    params: Params  # theta_t
    previous: Params  # theta_{t-1}
    occupancy: Array  # lambda_{t-1}, (S, A)
    rewards: Array  # r_{., t-1}, (m, S, A)
    older_rewards: Array  # r_{., t-2}, (m, S, A)
    gradients: Params  # d_{., t-1}, leaves with a leading axis m
    multipliers: Array  # mu_t, (n,)
    step: Array  # t


class LearningTrace(NamedTuple):
    """What an iteration leaves in the history; means over the batch."""

    episode_objective: Array  # f of the single episodes' occupancies
    episode_slack: Array  # g of them, (n,)
    recursive_slack: Array  # g(lambda_t), what the dual step sees, (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array
    weight_mean: Array
    weight_max: Array
    effective_sample_size: Array
    episode_length: Array


def uniforms_shape(learning: Learning) -> tuple[int, int]:
    """Shape of the uniform numbers that one iteration uses."""
    return (learning.batch_size, 1 + 2 * learning.horizon)


def shadow_rewards(learning: Learning, occupancy: Array) -> Array:
    """grad f and grad g_i at lambda, shape (m, S, A)."""
    functions = (learning.objective, *learning.slacks)
    return jnp.stack([function.gradient(occupancy) for function in functions])


def _sample(learning: Learning, params: Params, uniforms: Array) -> Any:
    def policy(state: Array) -> Array:
        return jnp.exp(learning.family.log_probabilities(params, state[None])[0])

    return jax.vmap(lambda numbers: sample_trajectory(learning.model, policy, numbers))(uniforms)


def _slack(learning: Learning, occupancy: Array) -> Array:
    values = [slack.value(occupancy) for slack in learning.slacks]
    return jnp.stack(values) - learning.pessimism if values else jnp.zeros(0, occupancy.dtype)


def _flush(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.where(jnp.abs(leaf) < TINY, 0.0, leaf), tree)


def _advance(
    learning: Learning,
    state: LearningState,
    occupancy: Array,
    gradients: Params,
    rewards: tuple[Array, Array],
) -> tuple[LearningState, Array, Array]:
    """Lines 13 and 14: the primal and the dual step."""
    weights = jnp.concatenate([jnp.ones(1, occupancy.dtype), state.multipliers])
    ascent = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), gradients)
    size = norm(ascent)
    scale = learning.primal_step / jnp.where(size > 0, size, 1.0)
    params = jax.tree.map(lambda leaf, d: leaf + scale * d, state.params, ascent)
    slack = _slack(learning, occupancy)
    multipliers = jnp.clip(state.multipliers - learning.dual_step * slack, 0.0, learning.dual_bound)
    following = LearningState(
        params,
        state.params,
        _flush(occupancy),
        *rewards,
        _flush(gradients),
        multipliers,
        state.step + 1,
    )
    return following, slack, size


def first_iteration(
    learning: Learning, params: Params, multipliers: Array, uniforms: Array
) -> tuple[LearningState, LearningTrace]:
    """Lines 2 to 7, t = 0."""
    shape = learning.family.actions.shape
    discount = learning.model.discount
    trajectories = _sample(learning, params, uniforms)
    episodes = jax.vmap(lambda tau: occupancy_estimate(tau, discount, shape))(trajectories)
    occupancy = episodes.mean(axis=0)
    rewards = shadow_rewards(learning, occupancy)
    estimate: Any = jax.vmap(
        lambda tau: gradient_estimates(learning.family, params, tau, rewards, discount)
    )
    gradients = jax.tree.map(lambda leaf: leaf.mean(axis=0), estimate(trajectories))
    zero = jnp.zeros((), jnp.int32)
    state = LearningState(params, params, occupancy, rewards, rewards, gradients, multipliers, zero)
    following, slack, size = _advance(learning, state, occupancy, gradients, (rewards, rewards))
    ones = jnp.ones(learning.batch_size, occupancy.dtype)
    trace = _trace(learning, episodes, slack, multipliers, size, ones, trajectories)
    return following, trace


def iteration(
    learning: Learning, state: LearningState, uniforms: Array
) -> tuple[LearningState, LearningTrace]:
    """Lines 9 to 14, t >= 1."""
    family, discount = learning.family, learning.model.discount
    trajectories = _sample(learning, state.params, uniforms)
    rest = 1.0 - learning.momentum * (state.step + 1.0) ** (-learning.momentum_decay)

    def estimates(tau: Any) -> Any:
        weight = importance_weight(family, state.previous, state.params, tau)
        weight = jnp.minimum(weight, learning.weight_cap)
        visits = occupancy_estimate(tau, discount, family.actions.shape)
        fresh = gradient_estimates(family, state.params, tau, state.rewards, discount)
        stale = gradient_estimates(family, state.previous, tau, state.older_rewards, discount)
        corrected = jax.tree.map(lambda new, old: new - rest * weight * old, fresh, stale)
        return visits, (1.0 - rest * weight) * visits, corrected, weight

    batched: Any = jax.vmap(estimates)
    episodes, visits, corrected, weights = batched(trajectories)
    occupancy = visits.mean(axis=0) + rest * state.occupancy
    gradients = jax.tree.map(
        lambda leaf, old: leaf.mean(axis=0) + rest * old, corrected, state.gradients
    )
    rewards = (shadow_rewards(learning, occupancy), state.rewards)
    following, slack, size = _advance(learning, state, occupancy, gradients, rewards)
    trace = _trace(learning, episodes, slack, state.multipliers, size, weights, trajectories)
    return following, trace


def _trace(
    learning: Learning,
    episodes: Array,
    slack: Array,
    multipliers: Array,
    size: Array,
    weights: Array,
    trajectories: Any,
) -> LearningTrace:
    single = jax.vmap(lambda x: (learning.objective.value(x), _slack(learning, x)))(episodes)
    return LearningTrace(
        single[0].mean(),
        single[1].mean(axis=0),
        slack,
        multipliers,
        size,
        weights.mean(),
        weights.max(),
        weights.sum() ** 2 / jnp.maximum((weights**2).sum(), TINY),
        trajectories.alive.sum(axis=1).mean(),
    )
