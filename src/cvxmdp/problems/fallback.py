r"""What a policy does where it never comes: a best response there, marked as such.

An occupancy x says nothing of states without visits: pi(a|s) = x(s,a) / sum_a x(s,a) is 0/0. Whoever deploys
the policy may still meet them, where the model is wrong or starts elsewhere. There the action is one that is
best for the shadow reward, the gradient of the Lagrangian at x, for which the policy itself is a best response
(x is optimal: <grad L, y - x> <= 0 for every occupancy y); under average reward one that leads back to where
the policy stays. Neither the objective nor any slack depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cvxmdp.base.errors import ModelError
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import from_rows
from cvxmdp.problems.problem import Problem

NEVER = 1e-15  # share of the mass below which a visit is rounding


def with_fallback(
    problem: Problem,
    policy: TabularPolicy,
    x: np.ndarray,
    multipliers: Mapping[str, float],
    values: np.ndarray | None = None,
) -> TabularPolicy:
    """The policy of the occupancy x with best responses in the states that it never visits.

    Args:
        problem: whose model the policy is for.
        policy: a plain table, by time where the horizon has time.
        x: its occupancy, as the problem's functions take it.
        multipliers: of the constraints; where they are not known the objective alone counts.
        values: V of the evidence, (S,), if there is any.
    """
    visits = x.sum(axis=1)
    never = visits <= NEVER * visits.sum()
    if not never.any():
        return policy
    mdp = problem.mdp
    rows = np.array(mdp.horizon.rows(policy.probabilities()))
    try:
        reward = marginal_reward(problem, x, multipliers)
        actions = mdp.flow.response(reward, ~never, values)
    except (ModelError, np.linalg.LinAlgError):  # no best response: staying pays for ever
        return policy.marked(never)
    rows[never] = np.eye(rows.shape[1])[actions[never]]
    return from_rows(rows, mdp).marked(never)


def marginal_reward(
    problem: Problem, x: np.ndarray, multipliers: Mapping[str, float]
) -> np.ndarray:
    """The shadow reward at x, (S, A), without infinities: an entropy rises infinitely fast where nothing is."""
    known = {name: mu if math.isfinite(mu) else 0.0 for name, mu in multipliers.items()}
    with np.errstate(all="ignore"):
        reward = problem.shadow_reward(x, known)
    finite = reward[np.isfinite(reward)]
    largest = float(np.abs(finite).max()) if finite.size else 1.0
    return np.nan_to_num(reward, nan=0.0, posinf=2.0 * largest, neginf=-2.0 * largest)
