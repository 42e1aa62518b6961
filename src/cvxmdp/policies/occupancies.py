"""Between policies and occupancies, with checks that name the first state that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.models.space import Space
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import numbers
from cvxmdp.policies.by_name import by_name, needs_names, written_policy
from cvxmdp.policies.observers import StatePolicy
from cvxmdp.policies.policy import Policy
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import from_rows, table_policy

MASK_ROUNDING = 1e-12


def uniform_policy(mdp: TabularMDP) -> TabularPolicy:
    """The policy that is uniform over the available actions."""
    _require_model(mdp, "uniform_policy(mdp)")
    rows = mdp.actions / mdp.actions.sum(axis=1, keepdims=True)
    return TabularPolicy(rows).named(mdp.state_names, mdp.action_names)


def as_policy(mdp: TabularMDP, given: Any) -> Policy:
    """A policy that fits the model, from a policy, a solution, an (S, A) array, a mapping or a function.

    Mappings and functions give the action of every state, or the chances of its actions (``written_policy``).

    One that carries other names than the model is read by name (``by_name``).
    """
    if hasattr(given, "has_policy") or isinstance(getattr(given, "policy", None), Policy):
        given = given.policy
    if isinstance(given, StatePolicy) and given.features is None:
        given = given.table  # of an environment whose states the model counts
    if isinstance(given, Policy):
        policy = given
    elif isinstance(given, Mapping) or callable(given):
        policy = written_policy(mdp, given)
    elif isinstance(given, str | Path):
        raise PolicyError(f"expected a policy; got a path: load_policy({str(given)!r}) reads one")
    else:
        policy = table_policy(given)
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
        place = tuple(np.argwhere(outside > MASK_ROUNDING)[0])
        state, action = place[-2:]
        raise PolicyError(
            f"the policy takes action {mdp.action_label(action)} in state {mdp.state_label(state)} "
            f"with probability {outside[place]:.3g}, where it is not available"
        )
    if outside.ndim == 3 and mdp.horizon.steps is None:
        raise PolicyError("the policy depends on time, which models with horizon=T alone know of")
    return policy


def rows_of(mdp: TabularMDP, given: Any) -> np.ndarray:
    """A policy as the model's flow takes it: with a horizon, the tables of all steps above each other."""
    return mdp.horizon.rows(as_policy(mdp, given).probabilities())


def measured_occupancy(mdp: TabularMDP, policy: Any) -> np.ndarray:
    """The occupancy as the model's flow has it: with a horizon, of all steps above each other."""
    return mdp.flow.occupancy(rows_of(mdp, policy))


def _require_model(given: Any, call: str) -> None:
    if not isinstance(given, TabularMDP):
        raise PolicyError(f"{call.partition('(')[0]} takes a model first, {call}; got {given!r}")


def occupancy_of(mdp: TabularMDP, policy: Any) -> np.ndarray:
    """The occupancy of a policy, shape (S, A): discounted expected visits of each pair.

    Args:
        mdp: the model.
        policy: a policy, or an (S, A) array of probabilities.
    """
    _require_model(mdp, "occupancy_of(mdp, policy)")
    return mdp.horizon.collected(measured_occupancy(mdp, policy))


def measured_policy(mdp: TabularMDP, x: np.ndarray) -> TabularPolicy:
    """The policy of an occupancy as the model's flow has it."""
    return from_rows(mdp.flow.policy(x), mdp)


def policy_of(mdp: TabularMDP, occupancy: Any) -> TabularPolicy:
    """The policy of an occupancy: x(s,a) / sum_a x(s,a); unvisited states get the uniform row.

    Args:
        mdp: the model.
        occupancy: shape (S, A), not negative; by time, (T, S, A), where the model has a horizon of T steps.
    """
    _require_model(mdp, "policy_of(mdp, occupancy)")
    steps = mdp.horizon.steps
    x = _read_occupancy(mdp, occupancy, mdp.shape if steps is None else (steps, *mdp.shape))
    if not np.isfinite(x).all() or (x < 0).any():
        place = tuple(np.argwhere(~np.isfinite(x) | (x < 0))[0])
        raise PolicyError(
            f"an occupancy is finite and not negative; got {x[place]} at state "
            f"{mdp.state_label(place[-2])}, action {mdp.action_label(place[-1])}"
        )
    outside = np.where(mdp.actions, 0.0, x)
    if outside.max() > MASK_ROUNDING * x.sum():
        place = np.unravel_index(np.argmax(outside), outside.shape)
        raise PolicyError(
            f"the occupancy is {x[place]:.3g} at state {mdp.state_label(int(place[-2]))}, action "
            f"{mdp.action_label(int(place[-1]))}, where this action is not available"
        )
    return measured_policy(mdp, x.reshape(mdp.measured))


def _read_occupancy(space: Space, occupancy: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    expected = shape or space.shape
    x = numbers(occupancy, "an occupancy", PolicyError)
    if x.shape != expected:
        raise PolicyError(f"an occupancy is an array of shape {expected}; got shape {x.shape}")
    return x


def state_distribution(mdp: Space, occupancy: Any) -> np.ndarray:
    """d(s) = scale * sum_a x(s,a), shape (S,). Sums to less than one when discounted episodes end."""
    return mdp.scale * _read_occupancy(mdp, occupancy).sum(axis=1)


def episode_visits(mdp: TabularMDP, policy: Any) -> np.ndarray | None:
    """Undiscounted expected visits per episode, (S, A), where episodes surely end: ``Flow.episode_visits``."""
    return mdp.flow.episode_visits(rows_of(mdp, policy), mdp.ending)
