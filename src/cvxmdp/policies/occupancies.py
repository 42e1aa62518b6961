"""Between policies and occupancies, with checks that name the first state that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.models.space import Space
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import numbers
from cvxmdp.policies.by_name import by_name, needs_names
from cvxmdp.policies.policy import Policy
from cvxmdp.policies.tables import TabularPolicy

MASK_ROUNDING = 1e-12


def uniform_policy(mdp: TabularMDP) -> TabularPolicy:
    """The policy that is uniform over the available actions."""
    return TabularPolicy(mdp.flow.uniform)


def as_policy(mdp: TabularMDP, given: Any) -> Policy:
    """A policy that fits the model, from a policy, a solution, or an (S, A) array of probabilities.

    One that carries other names than the model is read by name (``by_name``).
    """
    if isinstance(getattr(given, "policy", None), Policy):
        given = given.policy
    policy = given if isinstance(given, Policy) else TabularPolicy(given)
    if isinstance(policy, TabularPolicy) and needs_names(policy, mdp):
        policy = by_name(policy, mdp)
    expected = (mdp.n_states, mdp.n_actions)
    if (policy.n_states, policy.n_actions) != expected:
        raise PolicyError(
            f"the policy is for {policy.n_states} states and {policy.n_actions} actions, the model "
            f"has {expected[0]} and {expected[1]}"
        )
    outside = np.where(mdp.actions, 0.0, policy.probabilities())
    if outside.max() > MASK_ROUNDING:
        state, action = np.argwhere(outside > MASK_ROUNDING)[0]
        raise PolicyError(
            f"the policy takes action {mdp.action_label(action)} in state {mdp.state_label(state)} "
            f"with probability {outside[state, action]:.3g}, where it is not available"
        )
    return policy


def occupancy_of(mdp: TabularMDP, policy: Any) -> np.ndarray:
    """The occupancy of a policy, shape (S, A): discounted expected visits of each pair.

    Args:
        mdp: the model.
        policy: a policy, or an (S, A) array of probabilities.
    """
    return mdp.flow.occupancy(as_policy(mdp, policy).probabilities())


def policy_of(mdp: TabularMDP, occupancy: Any) -> TabularPolicy:
    """The policy of an occupancy: x(s,a) / sum_a x(s,a); unvisited states get the uniform row.

    Args:
        mdp: the model.
        occupancy: shape (S, A), not negative.
    """
    x = _read_occupancy(mdp, occupancy)
    if not np.isfinite(x).all() or (x < 0).any():
        state, action = np.argwhere(~np.isfinite(x) | (x < 0))[0]
        raise PolicyError(
            f"an occupancy is finite and not negative; got {x[state, action]} at state "
            f"{mdp.state_label(state)}, action {mdp.action_label(action)}"
        )
    outside = np.where(mdp.actions, 0.0, x)
    if outside.max() > MASK_ROUNDING * x.sum():
        state, action = np.unravel_index(np.argmax(outside), outside.shape)
        raise PolicyError(
            f"the occupancy is {x[state, action]:.3g} at state {mdp.state_label(int(state))}, action "
            f"{mdp.action_label(int(action))}, where this action is not available"
        )
    return TabularPolicy(mdp.flow.policy(x))


def _read_occupancy(space: Space, occupancy: Any) -> np.ndarray:
    expected = space.shape
    x = numbers(occupancy, "an occupancy", PolicyError)
    if x.shape != expected:
        raise PolicyError(f"an occupancy is an array of shape {expected}; got shape {x.shape}")
    return x


def state_distribution(mdp: Space, occupancy: Any) -> np.ndarray:
    """d(s) = scale * sum_a x(s,a), shape (S,). Sums to less than one when discounted episodes end."""
    return mdp.scale * _read_occupancy(mdp, occupancy).sum(axis=1)


def episode_visits(mdp: TabularMDP, policy: Any) -> np.ndarray | None:
    """Undiscounted expected visits per episode, (S, A), where episodes surely end: ``Flow.episode_visits``."""
    return mdp.flow.episode_visits(as_policy(mdp, policy).probabilities(), mdp.ending)
