r"""Solutions as tables: for every state and action how likely it is, how often, and what another would cost.

Values are those of the *shadow reward* r, the gradient of the Lagrangian at the solution's occupancy: for a
linear objective without constraints the reward itself, otherwise what a small change is worth with budgets at
their prices. With q = r + (what follows), V(s) = sum_a pi(a|s) q(s,a), an action's advantage is q(s,a) - V(s):
zero for what an optimal policy does and below zero for the rest. The second best action of a state costs the
difference of the two largest q there, per visit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.base.errors import ModelError, PolicyError
from cvxmdp.base.table_files import Columns
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.problems.fallback import marginal_reward

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution


def solution_columns(solution: Solution) -> Columns:
    """A row per available pair: the columns of its policy, share, occupancy, value, advantage, second best."""
    policy, space = getattr(solution.policy, "table", solution.policy), solution.problem.space
    if not isinstance(policy, TabularPolicy):
        raise PolicyError(
            f"{solution.policy!r} acts on observations and has no table; solution.policy.save keeps it, and "
            "a network can be exported with solution.policy.to_onnx(path)"
        )
    if solution.problem.environment is not None:
        return policy.columns()
    x = solution.measured
    pairs = np.tile(space.actions, (len(x) // len(space.actions), 1))
    row, action = np.nonzero(pairs)
    value, gained = _values(solution, policy.rows)
    choices = np.where(pairs, gained, -np.inf)
    ordered = np.sort(choices, axis=1)
    alone = pairs.sum(axis=1) < 2
    second = ordered[:, -1] - ordered[:, -2] if pairs.shape[1] > 1 else np.zeros(len(x))
    return {
        **policy.columns(pairs),
        "share": (space.shown_scale * x.sum(axis=1))[row],
        "occupancy": x[row, action],
        "value": value[row],
        "advantage": gained[row, action],
        "second_best_cost": np.where(alone, np.nan, second)[row],
    }


def _values(solution: Solution, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V (S,), in the user's sign, and advantages (S, A); NaN where there are none.

    That is where a policy never ends what it began, and for states out of reach whose steps a flow invents.
    A flow gives V up to a constant. Where there is a start, <rho, V> is the return, <x, r>; a long-run mean has
    relative values alone, and they are zero in the mean.
    """
    problem, x = solution.problem, solution.measured
    flow = problem.mdp.flow
    reward = marginal_reward(problem, x, solution.multipliers)
    try:
        values = flow.values(rows, reward)
    except (ModelError, np.linalg.LinAlgError):
        return np.full(len(x), np.nan), np.full(x.shape, np.nan)
    if problem.mdp.horizon.episodic:
        values = values + float(np.vdot(x, reward)) - float(flow.initial @ values)
    else:
        values = values - float(x.sum(axis=1) @ values)
    gained = reward + flow.following(values)
    gained -= np.einsum("sa,sa->s", rows, gained)[:, None]
    values[flow.invented], gained[flow.invented] = np.nan, np.nan
    return problem.sign * values, gained
