r"""Occupancy measures: the flow equations, and the way between occupancies and policies.

The occupancy of a policy is lambda(s,a) = sum_k gamma^k P(s_k = s, a_k = a), unnormalised, before
the episode ends. The set of all of them is the polytope

    x >= 0,   sum_a x(s,a) = rho(s) + gamma * sum_{s',a'} P(s | s',a') x(s',a')   for all s.

(The paper's eq. (Lambda) prints gamma/(1-gamma) as the factor; for its own unnormalised measure it
is gamma.) A policy gives its occupancy by one linear solve with I - gamma P_pi^T, and an occupancy
its policy by pi(a|s) = x(s,a) / sum_a x(s,a).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import PolicyError
from cvxmdp.models.systems import DENSE_LIMIT, solve_discounted
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import numbers
from cvxmdp.policies import Policy, TabularPolicy

MASK_ROUNDING = 1e-12
SOLVED_TOGETHER = 256  # states up to which policies are evaluated several at a time
TOGETHER_ENTRIES = 2**22
ENDED_ROUNDING = 1e-6  # relative error of undiscounted visits beyond which none are reported


def uniform_policy(mdp: TabularMDP) -> TabularPolicy:
    """The policy that is uniform over the available actions."""
    return TabularPolicy(mdp.actions / mdp.actions.sum(axis=1, keepdims=True))


def as_policy(mdp: TabularMDP, given: Any) -> Policy:
    """A policy that fits the model, from a policy, a solution, or an (S, A) array of probabilities."""
    if isinstance(getattr(given, "policy", None), Policy):
        given = given.policy
    policy = given if isinstance(given, Policy) else TabularPolicy(given)
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


def policy_transition(mdp: TabularMDP, probabilities: np.ndarray) -> sp.csr_array:
    """P_pi, shape (S, S): where one step of the policy leads."""
    states, actions = mdp.n_states, mdp.n_actions
    pointers = np.arange(0, states * actions + 1, actions)
    choice = sp.csr_array(
        (probabilities.ravel(), np.arange(states * actions), pointers),
        shape=(states, states * actions),
    )
    return sp.csr_array(choice @ mdp.transition)


def occupancy_of(mdp: TabularMDP, policy: Any) -> np.ndarray:
    """The occupancy of a policy, shape (S, A): discounted expected visits of each pair.

    Args:
        mdp: the model.
        policy: a policy, or an (S, A) array of probabilities.
    """
    probabilities = as_policy(mdp, policy).probabilities()
    backward = policy_transition(mdp, probabilities).T
    # The exact solution is not negative; rounding below zero is not part of the answer.
    visits = np.maximum(solve_discounted(backward, mdp.initial, mdp.discount), 0.0)
    return np.where(mdp.actions, visits[:, None] * probabilities, 0.0)


def occupancies_of(mdp: TabularMDP, tables: np.ndarray) -> np.ndarray:
    """The occupancies of several policies, (K, S, A): small models are solved together.

    Args:
        mdp: the model.
        tables: probabilities, (K, S, A).
    """
    states = mdp.n_states
    if states > SOLVED_TOGETHER:
        return np.stack([occupancy_of(mdp, table) for table in tables])
    transition = mdp.dense_transition()
    visits = np.empty(tables.shape[:2])
    block = max(1, TOGETHER_ENTRIES // states**2)
    for begin in range(0, len(tables), block):
        part = tables[begin : begin + block]
        backward = np.einsum("ksa,sat->kts", part, transition, optimize=True)
        system = np.eye(states) - mdp.discount * backward
        right = np.broadcast_to(mdp.initial[:, None], (len(part), states, 1))
        visits[begin : begin + block] = np.linalg.solve(system, right)[:, :, 0]
    found = np.maximum(visits, 0.0)[:, :, None] * tables
    return np.where(mdp.actions, found, 0.0)


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
    inside = np.where(mdp.actions, x, 0.0)
    visits = inside.sum(axis=1, keepdims=True)
    visited = visits > 0
    uniform = mdp.actions / mdp.actions.sum(axis=1, keepdims=True)
    return TabularPolicy(np.where(visited, inside / np.where(visited, visits, 1.0), uniform))


def _read_occupancy(mdp: TabularMDP, occupancy: Any) -> np.ndarray:
    expected = (mdp.n_states, mdp.n_actions)
    x = numbers(occupancy, "an occupancy", PolicyError)
    if x.shape != expected:
        raise PolicyError(f"an occupancy is an array of shape {expected}; got shape {x.shape}")
    return x


def flow_residual(mdp: TabularMDP, occupancy: np.ndarray) -> np.ndarray:
    """What the flow equations miss, shape (S,): zero for an occupancy."""
    inflow = mdp.initial + mdp.discount * (mdp.transition.T @ occupancy.ravel())
    return occupancy.sum(axis=1) - inflow


def state_distribution(mdp: TabularMDP, occupancy: Any) -> np.ndarray:
    """d(s) = (1 - gamma) * sum_a x(s,a), shape (S,). Sums to less than one when episodes end."""
    return (1.0 - mdp.discount) * _read_occupancy(mdp, occupancy).sum(axis=1)


def episode_visits(mdp: TabularMDP, policy: Any) -> np.ndarray | None:
    """Undiscounted expected visits per episode, (S, A).

    None where episodes may last forever, or so long that rounding hides their end, and for models
    beyond ``DENSE_LIMIT`` states.
    """
    probabilities = as_policy(mdp, policy).probabilities()
    transition = policy_transition(mdp, probabilities)
    if mdp.n_states > DENSE_LIMIT or not _surely_ends(mdp, probabilities, transition):
        return None
    matrix = np.eye(mdp.n_states) - transition.T.toarray()
    visited = _reached_from(mdp.initial > 0, transition)
    # States the policy does not visit may never end; they are not part of its episodes.
    matrix[~visited] = 0.0
    matrix[~visited, ~visited] = 1.0
    try:
        visits = np.maximum(np.linalg.solve(matrix, mdp.initial), 0.0)
    except np.linalg.LinAlgError:
        return None
    occupancy = visits[:, None] * probabilities
    # One episode ends once. Where the policy ends it so rarely that this is lost in rounding, the
    # visits are, too.
    ended = float((occupancy * mdp.ending).sum())
    return occupancy if abs(ended - 1.0) <= ENDED_ROUNDING else None


def _reached_from(start: np.ndarray, transition: sp.csr_array) -> np.ndarray:
    """Boolean (S,): states reached from ``start`` along positive entries."""
    backward = sp.csr_array(transition.T)
    reached = start.copy()
    while True:
        following = reached | (backward @ reached.astype(np.float64) > 0)
        if (following == reached).all():
            return reached
        reached = following


def _surely_ends(mdp: TabularMDP, probabilities: np.ndarray, transition: sp.csr_array) -> bool:
    """True when every state the policy visits can still reach an ending."""
    visited = _reached_from(mdp.initial > 0, transition)
    ends_here = (probabilities * mdp.ending).sum(axis=1) > 0
    can_end = _reached_from(ends_here, sp.csr_array(transition.T))
    return bool(can_end[visited].all())
