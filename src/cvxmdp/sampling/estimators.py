r"""Estimators from a trajectory: eqs. (vanilla_OM_estimator), (pg_estimator) and (IS_def).

    occupancy_hat(tau)           = sum_k gamma^k 1(s_k, a_k)
    gradient_hat(tau, theta, r)  = sum_h grad log pi_theta(a_h | s_h) sum_{k >= h} gamma^k r(s_k, a_k)
    weight(tau | theta', theta)  = prod_k pi_theta'(a_k | s_k) / pi_theta(a_k | s_k)

Sums and products run over the steps really taken. All are unbiased for their H-step counterparts; the tests
check that by enumerating every trajectory of a tiny model.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cvxmdp.policies.families import BoundFamily
from cvxmdp.sampling.trajectories import Trajectory

Array = Any
Params = Any


def discounts(trajectory: Trajectory, discount: Array) -> Array:
    """gamma^k where the step was taken, else 0, shape (H,)."""
    steps = jnp.arange(trajectory.alive.shape[0])
    return trajectory.alive * jnp.asarray(discount, trajectory.alive.dtype) ** steps


def occupancy_estimate(trajectory: Trajectory, discount: Array, shape: tuple[int, int]) -> Array:
    """eq. (vanilla_OM_estimator), shape (S, A)."""
    counts = jnp.zeros(shape, trajectory.alive.dtype)
    return counts.at[trajectory.states, trajectory.actions].add(discounts(trajectory, discount))


def chosen_log_probabilities(family: BoundFamily, params: Params, trajectory: Trajectory) -> Array:
    """log pi(a_k | s_k), zero after the end, shape (H,)."""
    logs = family.log_probabilities(params, trajectory.states)
    taken = jnp.take_along_axis(logs, trajectory.actions[:, None], axis=1)[:, 0]
    return jnp.where(trajectory.alive > 0, taken, 0.0)


def importance_weight(
    family: BoundFamily, target: Params, behaviour: Params, trajectory: Trajectory
) -> Array:
    """eq. (IS_def) in log space: how much likelier the target policy takes these actions."""
    difference = chosen_log_probabilities(family, target, trajectory)
    difference = difference - chosen_log_probabilities(family, behaviour, trajectory)
    return jnp.exp(difference.sum())


def gradient_estimates(
    family: BoundFamily, params: Params, trajectory: Trajectory, rewards: Array, discount: Array
) -> Params:
    """eq. (pg_estimator) for several rewards at once.

    Args:
        family: of policies.
        params: theta.
        trajectory: tau.
        rewards: (m, S, A).
        discount: gamma.

    Returns:
        The parameters' tree, each leaf with a leading axis of length m.
    """
    gained = rewards[:, trajectory.states, trajectory.actions] * discounts(trajectory, discount)
    to_go = jnp.cumsum(gained[:, ::-1], axis=1)[:, ::-1]  # sum over k >= h
    _, pull_back = jax.vjp(
        lambda theta: chosen_log_probabilities(family, theta, trajectory), params
    )
    return jax.vmap(lambda weights: pull_back(weights)[0])(to_go)
