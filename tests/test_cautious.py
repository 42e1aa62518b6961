"""Cautious plans: constraints hold in reality, or the answer says what would have to be tried."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError, SettingsError
from cvxmdp.certificates.true_claims import TrueClaims
from cvxmdp.models.counts import Counts
from cvxmdp.models.estimate import estimated_model
from cvxmdp.problems.solution import Status
from cvxmdp.solvers import cautious
from test_true_model import WORLD, counted

BUDGET = {"cost": cm.linear("cost") <= 2.6}


def asked(model: Any, **more: Any) -> cm.Problem:
    return cm.Problem(model, maximize=cm.linear("reward"), subject_to={**BUDGET, **more})


def test_the_plan_keeps_its_budget_in_reality_and_says_so() -> None:
    problem = asked(counted(WORLD, 2_000, seed=1, declared=False))
    plain, plan = cm.solve(problem), cm.solve(problem, cautious=0.95)
    assert plan.status is Status.CAUTIOUS
    assert "Of the true model, with confidence 0.95 (24,000 rows" in plan.message
    certificate = cm.certify(problem, plan)
    assert certificate.feasible
    assert not cm.certify(problem, plain).feasible
    truth = problem.with_model(WORLD)
    there, best = truth.evaluate(plan.policy), cm.solve(truth)
    assert there.slack["cost"] >= certificate.slack["cost"] >= 0
    worst = cm.solve(cm.Problem(WORLD, minimize=cm.linear("reward"))).objective
    assert best.objective - there.objective <= 0.1 * (best.objective - worst)
    assert certificate.lower <= there.objective


def test_penalties_are_all_that_a_plan_of_returns_may_lose() -> None:
    """Estimated signals among them: what is surely reached is the estimate's value less <b, x>."""
    random = np.random.default_rng(0)
    log = {name: random.integers(0, size, 900) for name, size in [("state", 3), ("action", 2)]}
    log |= {"next_state": random.integers(0, 3, 900), "terminated": random.random(900) < 0.1}
    log |= {name: random.random(900) for name in ("reward", "cost")}
    bounds = {"reward": (0, 1), "cost": (0, 1)}
    problem = asked(cm.from_transitions(log, 0.9, initial=0, bounds=bounds))
    policy = problem.mdp.flow.uniform
    found = problem.evaluate(policy)
    shown = [found.objective, found.slack["cost"]]
    for value, one in zip(shown, TrueClaims.about(problem, 0.95).pessimism(policy), strict=True):
        assert value - (one.penalty * found.occupancy).sum() == pytest.approx(one.lower, abs=1e-6)


def test_what_penalties_give_is_not_asked_for_twice() -> None:
    """Where there is little room: a margin for what the first plan lacked, above the penalties, left none."""
    mdp = cm.garnet(6, 3, 3, seed=3, discount=0.9, signals=("reward", "cost"))
    shares = np.column_stack([mdp.transition.toarray(), np.zeros(18)])
    counts = Counts(sp.csr_array(np.round(400 * shares).astype(np.int64)), mdp.actions.copy())
    model = estimated_model(counts, 0.9, initial=mdp.initial, known=dict(mdp.signals))
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    greedy = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    most = mdp.signal("cost").ravel() @ greedy.occupancy.ravel()
    budget = {"cost": cm.linear("cost") <= least + 0.6 * (most - least)}
    problem = cm.Problem(model, maximize=cm.linear("reward"), subject_to=budget)
    plan = cm.solve(problem, cautious=0.95)
    assert plan.status is Status.CAUTIOUS
    assert cm.certify(problem, plan).reaches >= 4.3  # with the margin 4.07


def test_where_penalties_of_one_plan_mislead_the_next_margins_alone_are_better() -> None:
    """A penalty is what a pair costs the plan that was just looked at; the next goes where others are dear."""
    problem, played = asked(WORLD), cm.solve(asked(WORLD)).policy.probabilities()
    visits = np.maximum(np.round(200_000 * played), 300).astype(np.int64)
    known = problem.with_model(counted(WORLD, visits, seed=1))
    plan = cm.solve(known, cautious=0.95)
    assert plan.status is Status.CAUTIOUS
    with patch.object(cautious, "TIGHTENINGS", 0):
        without = cm.solve(known, cautious=0.95)
    assert cm.certify(known, plan).reaches >= cm.certify(known, without).reaches


def test_any_exact_solver_will_do() -> None:
    problem = asked(counted(WORLD, 5_000, seed=1))
    plan = cm.solve(problem, cm.ColumnGeneration(), cautious=0.9)
    assert plan.status is Status.CAUTIOUS
    assert cm.certify(problem, plan, confidence=0.9).feasible


def test_concave_objective_and_constraint() -> None:
    problem = cm.Problem(
        counted(WORLD, 5_000, seed=1),
        maximize=cm.minimum(cm.linear("reward"), cm.linear("cost")),
        subject_to={**BUDGET, "spread": cm.entropy() >= 1.2},
    )
    plan = cm.solve(problem, cautious=0.95)
    assert plan.status is Status.CAUTIOUS
    assert min(problem.with_model(WORLD).evaluate(plan.policy).slack.values()) >= 0


def test_where_it_cannot_it_names_the_pairs_to_try() -> None:
    visits = np.full(WORLD.actions.shape, 20)
    plan = cm.solve(asked(counted(WORLD, visits, seed=1)), cautious=0.95)
    assert plan.status is Status.INACCURATE
    assert "no plan could be proven" in plan.message
    assert "would have to be tried: (" in plan.message
    wanted = plan.stats["wanted"]
    assert all(pair["wanted"] > pair["visits"] == 20 for pair in wanted)
    # What is asked for is roughly enough: with four times as many the plan is proven, with a fourth it is not.
    for factor, status in ((4.0, Status.CAUTIOUS), (0.25, Status.INACCURATE)):
        for pair in wanted:
            place = int(pair["state"]), int(pair["action"])
            visits[place] = max(20, int(factor * pair["wanted"]))
        assert cm.solve(asked(counted(WORLD, visits, seed=2)), cautious=0.95).status is status


def test_so_often_is_enough_if_the_same_comes_out_first_states_included() -> None:
    """First states are estimated here: a plan needs more of them, too."""
    outcomes = np.array([[95, 5, 0], [50, 50, 0]], dtype=np.int64)
    counts = Counts(sp.csr_array(outcomes), np.ones((2, 1), bool), np.array([10, 0]))
    model = estimated_model(counts, 0.9, known={"fall": np.array([[0.0], [1.0]])})
    problem = cm.Problem(
        model, maximize=cm.linear("fall"), subject_to={"falls": cm.linear("fall") <= 1.5}
    )
    plan = cm.solve(problem, cautious=0.95)
    assert plan.status is Status.INACCURATE
    assert plan.message.endswith(" episodes.")
    factors = np.ones((2, 1), dtype=np.int64)
    for pair in plan.stats["wanted"]:
        place = int(pair["state"]), int(pair["action"])
        factors[place] = pair["wanted"] // pair["visits"]
    for share, proven in ((1, True), (4, False)):
        more = model.replace(counts=counts.repeated(np.maximum(factors // share, 1)))
        found = cm.certify(problem.with_model(more), plan)
        assert (found.slack["falls"] >= 0) is proven


def test_a_budget_that_even_the_estimate_does_not_keep() -> None:
    problem = cm.Problem(
        counted(WORLD, 500, seed=1),
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= 0.5},
    )
    plan = cm.solve(problem, cautious=0.95)
    assert plan.status is Status.INFEASIBLE
    assert cm.certify(problem, plan).infeasible


def test_without_constraints_the_plan_is_the_best_worst_case() -> None:
    visits = np.full(WORLD.actions.shape, 3_000)
    visits[:, 1] = 10  # what the second action does is hardly known
    problem = cm.Problem(counted(WORLD, visits, seed=3), maximize=cm.linear("reward"))
    plan = cm.solve(problem, cautious=0.95)
    surely = cm.certify(problem, plan).lower
    assert surely > cm.certify(problem, cm.solve(problem)).lower
    assert problem.with_model(WORLD).evaluate(plan.policy).objective >= surely


def test_what_is_refused() -> None:
    with pytest.raises(ProblemError, match="carry their counts"):
        cm.solve(asked(WORLD), cautious=0.95)
    model = counted(WORLD, 100, seed=0)
    with pytest.raises(SettingsError, match="confidence is a probability"):
        cm.solve(asked(model), cautious=95)
    learner = cm.VRPDPG(iterations=5, primal_step=0.1, dual_step=0.1, momentum=0.5, horizon=5)
    with pytest.raises(SettingsError, match="exact solver"):
        cm.solve(asked(model), learner, seed=0, cautious=0.95)


def test_the_frontier_of_the_true_model() -> None:
    model = counted(WORLD, 5_000, seed=1)
    found = cm.frontier(asked(model), "cost", budgets=[2.4, 2.8, 3.4])
    for budget in (2.4, 2.6, 3.0, 3.4):
        truth = cm.solve(asked(WORLD).with_budget("cost", budget)).objective
        low, high = found.envelope(budget)
        assert low <= truth <= high
    assert np.isfinite(found.envelope(3.4)).all()
    assert "Of the true model, with confidence 0.95" in str(found)


def test_budgets_of_such_a_frontier_are_spread_evenly_around_the_problems_own() -> None:
    problem = asked(counted(WORLD, 5_000, seed=1))
    budgets = [point.budget for point in cm.frontier(problem, "cost", n=5).points]
    assert problem.budgets["cost"] in budgets
    steps = np.diff(budgets)  # the widest was halved, again and again
    assert steps.max() < 2.0 * steps.min()
