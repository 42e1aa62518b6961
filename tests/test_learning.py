"""What VR-PDPG learns, in short forms of the study behind docs/results/learning.md (``make learning``)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))  # the study's own settings

import learning_optima as optima
import learning_tracking as tracking
from pdpg import reference_problems
from pdpg_gaps import further_problems
from rates import cases

pytestmark = pytest.mark.long

BEST_RETURN = {
    "8": 97.4,
    "2": 92.6,
}  # 100 - 0.2 * (horizon - 1), by the first letter of the instance


def reached(instance: str, iterations: int, seeds: int, **changes) -> tuple[np.ndarray, np.ndarray]:
    """Returns and tracking errors over the last 250 episodes, one per seed."""
    solver = tracking.setting(instance, iterations, **changes)
    ((_, curves),) = tracking.learn(instance, solver, {}, seeds).items()
    return curves.after(iterations)


@pytest.mark.parametrize(
    ("instance", "policy", "iterations", "seeds"),
    [
        ("8x8-traj1", cm.Table(), 2_000, 6),
        ("8x8-traj2", cm.Table(), 2_000, 6),
        ("8x8-traj2", cm.MLP(32), 2_000, 4),
        ("20x20-traj1", cm.Table(), 3_000, 3),
        ("20x20-traj2", cm.Table(), 3_000, 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, cm.Table | cm.MLP) else None,
)
def test_the_documented_setting_reaches_the_best_return(instance, policy, iterations, seeds):
    returns, errors = reached(instance, iterations, seeds, policy=policy)
    published_return, published_error = tracking.published(instance)
    assert returns.min() > published_return
    assert returns.mean() > BEST_RETURN[instance[0]] - 0.5
    assert errors.mean() < min(0.05, published_error)


def test_variance_reduction_wins_at_a_small_step_and_not_at_the_best_one():
    with_memory, _ = reached("8x8-traj2", 2_000, 4, primal_step=0.03, momentum=0.1)
    without, _ = reached("8x8-traj2", 2_000, 4, primal_step=0.03, momentum=1.0)
    assert with_memory.min() > 80.0
    assert without.max() < 20.0
    at_its_own, _ = reached("8x8-traj2", 2_000, 4, primal_step=0.3, momentum=1.0)
    assert at_its_own.min() > 97.0


def test_a_box_that_is_too_small_leaves_policies_in_corners():
    narrow, wide = (
        reached("8x8-traj2", 2_500, 8, policy=cm.MLP(32), dual_bound=bound)[1]
        for bound in (10.0, 1_000.0)
    )
    assert (narrow > tracking.CORNERED).sum() >= 2
    assert (wide > tracking.CORNERED).sum() == 0


@pytest.mark.parametrize("learned", optima.learned_problems(), ids=lambda one: one.name)
def test_learned_policies_come_close_where_the_multiplier_is_not_zero(learned):
    problem = {**dict(reference_problems()), **dict(further_problems())}[learned.name]
    exact = cm.solve(problem, cm.ConvexProgram())
    assert max(exact.multipliers.values()) > 0.5
    solution = cm.solve(problem, learned.solver, seed=11)
    gap = optima.relative_gap(problem, exact, solution.objective, learned.of_range)
    assert abs(gap) < learned.gap
    assert min(solution.slack.values()) > -learned.slack


def test_a_baseline_is_what_the_linear_problem_needs():
    learned = next(one for one in optima.learned_problems() if one.name == "linear, 3 budgets")
    problem = dict(further_problems())[learned.name]
    exact = cm.solve(problem, cm.ConvexProgram())
    short = replace(learned.solver, iterations=1_000)
    gaps = [
        optima.relative_gap(problem, exact, cm.solve(problem, solver, seed=0).objective, False)
        for solver in (short, replace(short, baseline=False))
    ]
    assert gaps[1] > gaps[0] + 0.05


def test_the_shortfall_falls_with_the_theorems_schedule():
    case = cases(0.5)[1]
    shortfalls = []
    for iterations in (100, 10_000):
        gap, slack = optima.averages(case, iterations, seeds=4)
        shortfalls.append(float((gap - case.multiplier * slack).mean()))
    assert 0 < shortfalls[1] < shortfalls[0] * 100 ** (-1 / 8)
