"""Plans on a model of counts: the problem's own answer there, or the most slack where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from cvxmdp.algorithms.optimism import standard_errors
from cvxmdp.certificates.slater import slater
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.problems.while_learning import guarded
from cvxmdp.solvers.contract import Task, completed
from cvxmdp.solvers.exact_choice import choose_exact

USED = 1e-6  # share of the mass from which a pair's slope says what others may be worth
TIGHTENINGS = 3  # of the constraints by their standard errors
# Standard errors that the argument of a logarithm keeps: beyond zero lies minus infinity.
INSIDE = 3.0


class CountedPlan(NamedTuple):
    """A plan on an estimate.

    Attributes:
        policy: (S, A).
        reward: the shadow reward there, (S, A): what a small change of the policy sees.
        multipliers: by constraint.
        feasible: whether every constraint holds in the estimate.
    """

    policy: np.ndarray
    reward: np.ndarray
    multipliers: dict[str, float]
    feasible: bool


def answered(problem: Problem) -> Solution:
    """The answer of the exact solver that suits the problem, in one go."""
    return completed(choose_exact(problem)[0], Task(problem))


def counted_plan(problem: Problem) -> CountedPlan:
    """The best policy of the estimate; where none satisfies all constraints, that with the most slack.

    What stands under logarithms is a slack, too.
    """
    found = answered(problem)
    if found.has_policy and np.isfinite(found.objective):
        x, multipliers = found.occupancy, dict(found.multipliers)
        reward = bounded_slope(shadow_reward(problem, found), x)
        return CountedPlan(found.policy.probabilities(), reward, multipliers, True)
    problem = guarded(problem)
    room = slater(problem)
    policy = room.policy.probabilities()
    x = problem.mdp.flow.occupancy(policy)
    weights = room.weights
    slopes = [weights[name] * g.gradient(x) for name, g in problem.slack_functions.items()]
    return CountedPlan(policy, bounded_slope(np.sum(slopes, axis=0), x), dict(weights), False)


def shadow_reward(problem: Problem, answer: Solution) -> np.ndarray:
    """The reward that the answer is best for: at a kink one slope of many, which the solver's duals know."""
    known = answer.evidence
    if known is None:
        return problem.shadow_reward(answer.occupancy, answer.multipliers)
    return Lowered(problem).lagrangian_tangent(known.multipliers, known.tangents)[0]


def bounded_slope(reward: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The slope where the policy goes, and nowhere beyond its range: entropies are infinitely steep at zero."""
    used = x > USED * x.sum()
    return np.clip(np.nan_to_num(reward), reward[used].min(), reward[used].max())


def noise(problem: Problem, policy: np.ndarray) -> dict[str, float]:
    """The standard error of every slack that the counts' own noise makes."""
    model = problem.mdp
    x = model.flow.occupancy(policy)
    slopes = np.array([g.gradient(x) for g in problem.slack_functions.values()])
    errors = standard_errors(model, policy, slopes) if len(slopes) else np.zeros(0)
    return dict(zip(problem.constraints, errors.tolist(), strict=True))


def with_margins(problem: Problem, margins: Mapping[str, float]) -> Problem:
    """The problem whose slacks must be at least so much."""
    tight = {
        name: constraint.slack - margins[name] >= 0.0
        for name, constraint in problem.constraints.items()
    }
    return Problem(problem.source, **{problem.sense: problem.utility}, subject_to=tight)


def careful_plan(problem: Problem) -> tuple[CountedPlan, dict[str, float]]:
    """The best plan whose slacks are one standard error or more, where there is one; and those errors.

    What stands under logarithms keeps three of them, or as many as it can: in the true model it is some errors
    away from here.
    """
    known = problem.constraints
    plan, margins = _careful(guarded(problem), set(known))
    multipliers = {name: plan.multipliers.get(name, 0.0) for name in known}
    return plan._replace(multipliers=multipliers), {name: margins[name] for name in known}


def _careful(problem: Problem, asked: Set[str]) -> tuple[CountedPlan, dict[str, float]]:
    """The plan and its margins; what is not among the constraints asked for stands under a logarithm."""

    def errors(policy: np.ndarray) -> dict[str, float]:
        found = noise(problem, policy)
        return {name: (1.0 if name in asked else INSIDE) * one for name, one in found.items()}

    plan = counted_plan(problem)
    margins = errors(plan.policy)
    if not (plan.feasible and margins):
        return plan, margins
    for _ in range(TIGHTENINGS):
        tight = counted_plan(with_margins(problem, margins))
        if not tight.feasible:
            return tight, margins
        again = errors(tight.policy)
        plan = tight
        if all(again[name] <= 1.05 * margins[name] for name in margins):
            break
        margins = again
    return plan, margins
