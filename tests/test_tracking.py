"""The paper's experiment: its instances, and what the exact answer must be."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError
from cvxmdp.paper import INSTANCES, expert_occupancy, tracking_model, tracking_problem
from cvxmdp.policies.occupancies import episode_visits

BEST_RETURN = {"8x8": 97.4, "20x20": 92.6}  # undiscounted: 13 (37) steps at -0.2, then 100
STEPS = {"8x8": 14, "20x20": 38}


def size_of(instance: str) -> str:
    return instance.split("-")[0]


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_experts_occupancy_is_one(instance: str) -> None:
    mdp, x = tracking_model(instance), expert_occupancy(instance)
    assert np.abs(mdp.flow.residual(x)).max() < 1e-12
    steps = STEPS[size_of(instance)]
    assert np.count_nonzero(x) == steps
    assert x.sum() == pytest.approx((1 - mdp.discount**steps) / (1 - mdp.discount))


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_expert_reaches_the_best_return(instance: str) -> None:
    mdp = tracking_model(instance)
    policy = cm.policy_of(mdp, expert_occupancy(instance))
    visits = episode_visits(mdp, policy)
    undiscounted = float(np.vdot(mdp.signal("reward"), visits))
    assert undiscounted == pytest.approx(BEST_RETURN[size_of(instance)])
    # no policy does better, discounted: the shortest way is the best
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"))).objective
    value = float(np.vdot(mdp.signal("reward"), expert_occupancy(instance)))
    assert best == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("norm", ["half-squared", "l2"])
@pytest.mark.parametrize("instance", INSTANCES)
def test_the_exact_answer_is_the_experts_return(instance: str, norm: str) -> None:
    # The expert is optimal and at distance 0: the constraint costs nothing.
    problem = tracking_problem(instance, norm=norm)
    solution = cm.solve(problem)
    reward = problem.mdp.signal("reward")
    value = float(np.vdot(reward, expert_occupancy(instance)))
    assert solution.status is cm.Status.OPTIMAL
    assert solution.objective == pytest.approx(value, rel=1e-6)
    assert solution.multipliers["near the expert"] == pytest.approx(0.0, abs=1e-4)
    assert solution.violation["near the expert"] < 1e-7


def test_the_two_norms_and_the_budget() -> None:
    x = expert_occupancy("8x8-traj1")
    mdp = tracking_model("8x8-traj1")
    away = np.linalg.norm(cm.occupancy_of(mdp, cm.uniform_policy(mdp)) - x)
    for norm, measured in (("l2", away), ("half-squared", 0.5 * away**2)):
        problem = tracking_problem("8x8-traj1", norm=norm, budget=0.25)
        slack = problem.evaluate(cm.uniform_policy(mdp)).slack["near the expert"]
        assert slack == pytest.approx(0.25 - measured)
    assert tracking_problem("8x8-traj1").budgets == {"near the expert": 0.01}


def test_the_other_trajectory_is_too_far_away() -> None:
    first, second = (expert_occupancy(f"8x8-traj{number}") for number in (1, 2))
    problem = tracking_problem("8x8-traj1")
    assert problem.evaluate_occupancy(first).slack["near the expert"] == 0.01
    assert problem.evaluate_occupancy(second).violation["near the expert"] > 1.0


@pytest.mark.parametrize("make", [tracking_model, expert_occupancy, tracking_problem])
def test_unknown_instances_get_a_suggestion(make: object) -> None:
    with pytest.raises(ProblemError, match=r"unknown instance '8x8-traj3'. Did you mean '8x8-traj"):
        make("8x8-traj3")


def test_unknown_norms() -> None:
    with pytest.raises(ProblemError, match=r'norm must be "half-squared" or "l2"; got \'l1\''):
        tracking_problem("8x8-traj1", norm="l1")
