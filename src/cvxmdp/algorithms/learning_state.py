"""What one iteration of VR-PDPG hands to the next, what it saw, and what it leaves in the history."""

from __future__ import annotations

from typing import Any, NamedTuple

from cvxmdp.algorithms.views import Steps

Array = Any
Params = Any


class LearningState(NamedTuple):
    """Between iterations t-1 and t."""

    params: Params  # theta_t
    previous: Params  # theta_{t-1}
    previous_logs: Array  # log pi_{theta_{t-1}}, (S, A); None where it is only looked at on the way
    occupancy: Array  # lambda_{t-1}, (S, A)
    older_occupancy: Array  # lambda_{t-2}
    gradients: Params  # d_{., t-1}, leaves with a leading axis m
    multipliers: Array  # mu_t, (n,)
    baseline: Array  # mean reward to go, (m, H); empty without a baseline
    optimiser: Any  # of the Optax transformation
    changes: Array  # of the arguments of logarithms, mean squares, (K,); see ``safe_steps``
    fisher: Array  # v'F_H v, see ``directions``
    step: Array  # t


class Witnessed(NamedTuple):
    """What an iteration saw."""

    trajectories: Steps
    seen: Array  # the mean of the episodes' occupancies, (S, A); None unless it is watched
    weights: Array  # of the episodes, (B,)
    slack: Array  # g(lambda_t), (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array


class Noted(NamedTuple):
    """What is noted of an iteration that is recorded: all that its trace is computed from, later."""

    episodes: Steps  # without what the policy saw
    weights: Array  # of the episodes, (B,)
    slack: Array  # g(lambda_t), (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array
    entropy: Array  # of the policy, added up over the steps of the episodes


class LearningTrace(NamedTuple):
    """What an iteration leaves in the history; means over the batch."""

    episode_objective: Array  # f of the episodes' occupancies
    episode_slack: Array  # g of them, (n,)
    episode_return: Array  # undiscounted, (0,) or (1,)
    tracking_error: Array  # half the squared distance of the episodes' occupancies to each target
    recursive_slack: Array  # g(lambda_t), what the dual step sees, (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array
    policy_entropy: Array  # per step of the episodes
    weight_mean: Array
    weight_max: Array
    effective_sample_size: Array
    episode_length: Array
