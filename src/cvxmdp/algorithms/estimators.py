r"""Estimators from trajectories: eqs. (vanilla_OM_estimator), (pg_estimator) and (IS_def).

    occupancy_hat(tau)           = sum_k gamma^k 1(s_k, a_k)
    gradient_hat(tau, theta, r)  = sum_h grad log pi_theta(a_h | s_h) sum_{k >= h} gamma^k r(s_k, a_k)
    weight(tau | theta', theta)  = prod_k pi_theta'(a_k | s_k) / pi_theta(a_k | s_k)

Sums and products run over the steps really taken; with a batch of B trajectories, "weight times estimate" is
averaged over it. All are unbiased for their H-step counterparts; the tests check that by enumerating every
trajectory of a tiny model. A view of the policy sums the scores (``score_difference``).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from cvxmdp.algorithms.views import AllStates, Steps, VisitedStates

Array = Any
View = AllStates | VisitedStates
SHORT = 32  # steps; longer sums are better computed as running ones


def discounts(trajectories: Steps, discount: Array) -> Array:
    """gamma^k where the step was taken, else 0, (B, H)."""
    alive = trajectories.alive
    return alive * jnp.asarray(discount, alive.dtype) ** jnp.arange(alive.shape[1])


def importance_weights(target: View, behaviour: View, trajectories: Steps) -> Array:
    """eq. (IS_def) in log space: how much likelier the target policy takes these actions, (B,)."""
    ratios = target.chosen(trajectories) - behaviour.chosen(trajectories)
    return jnp.exp(ratios.sum(axis=1))


def occupancy_estimate(trajectories: Steps, masses: Array, shape: tuple[int, int]) -> Array:
    """eq. (vanilla_OM_estimator), averaged over the batch, (S, A).

    Args:
        trajectories: leaves (B, H).
        masses: gamma^k, or gamma^k times a weight, (B, H).
        shape: (S, A).
    """
    return trajectories.measure(masses[None], shape)[0]


def to_go(gained: Array) -> Array:
    """sum over k >= h, along the last axis."""
    horizon = gained.shape[-1]
    if horizon > SHORT:
        return jnp.cumsum(gained[..., ::-1], axis=-1)[..., ::-1]
    # Sums of 2, 4, 8, ... steps: half the time of a running sum on a CPU.
    width = 1
    while width < horizon:
        later = [(0, 0)] * (gained.ndim - 1) + [(0, width)]
        gained = gained + jnp.pad(gained[..., width:], later)
        width *= 2
    return gained
