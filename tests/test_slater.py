"""Slater points: margins, the bound on them, dual bounds, and conflicts with their proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError
from cvxmdp.certificates import evidence
from cvxmdp.certificates import slater as slater_search
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.slater import slater_of
from cvxmdp.checker.bounds import upper_bound
from strategies import coverage, generator, random_model, random_policy, random_problem, seeds

ROUNDING = 1e-11


def smallest(problem, policy):
    return min(problem.evaluate(policy).slack.values())


@settings(max_examples=20)
@given(seed=seeds)
def test_margins_are_true_and_nearly_the_largest(seed):
    random = generator(seed)
    mdp = random_model(random)
    feasible = random_policy(mdp, random)
    problem = random_problem(mdp, random, feasible, constraints=1 + seed % 3)
    found = cm.slater(problem)
    assert found.exists
    assert not found.infeasible
    assert set(found.margins) == set(problem.constraints)
    slack = problem.evaluate(found.policy).slack
    assert all(0 < found.margins[name] <= slack[name] + ROUNDING for name in slack)
    assert found.margin == min(found.margins.values())
    assert smallest(problem, feasible) <= found.margin_bound + ROUNDING
    # Entering the domain of the objective may cost some margin, a solver's accuracy a little.
    assert found.margin <= found.margin_bound <= 2.1 * found.margin + 1e-5


@settings(max_examples=10)
@given(seed=seeds)
def test_the_dual_bound_follows_the_lemma_and_holds_optimal_multipliers(seed):
    random = generator(seed)
    mdp = random_model(random)
    problem = random_problem(mdp, random, random_policy(mdp, random))
    found = cm.slater(problem)
    value = problem.sign * problem.evaluate(found.policy).objective
    assert found.objective <= value + ROUNDING * max(1.0, abs(value))
    for name, bound in found.dual_bound.items():
        expected = 1 + (found.objective_bound - found.objective) / found.margins[name]
        assert bound == pytest.approx(expected)
    solution = cm.solve(problem)
    if solution.status is cm.Status.OPTIMAL:
        multipliers = solution.multipliers
        assert all(multipliers[name] <= found.dual_bound[name] for name in multipliers)
        assert problem.sign * solution.objective <= found.objective_bound + ROUNDING


def cost_problem(mdp, utility=None, **budgets):
    limits = {
        "at most": lambda b: cm.linear("cost") <= b,
        "at least": lambda b: cm.linear("cost") >= b,
        "reward": lambda b: cm.linear("reward") >= b,
    }
    subject_to = {
        name.replace("_", " "): limits[name.replace("_", " ")](budget)
        for name, budget in budgets.items()
    }
    return cm.Problem(mdp, maximize=utility or cm.entropy(), subject_to=subject_to)


@pytest.fixture(scope="module")
def mdp():
    return random_model(generator(41), n_states=4, n_actions=2, endings=False, mask=False)


@pytest.fixture(scope="module")
def least(mdp):
    return cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective


def test_the_margin_of_one_linear_constraint_is_known(mdp, least):
    found = cm.slater(cost_problem(mdp, at_most=least + 0.25))
    assert found.margin == pytest.approx(0.25, abs=1e-6)
    assert found.margin <= found.margin_bound <= 0.25 + 1e-6
    assert "at least 0.25" in str(found)
    assert "multiplier at most" in str(found)


def test_a_conflict_comes_with_weights_that_prove_it(mdp, least):
    problem = cost_problem(mdp, at_most=least + 0.1, at_least=least + 0.2, reward=-1e6)
    found = cm.slater(problem)
    assert found.infeasible
    assert found.conflict == ("at most", "at least")
    assert found.dual_bound is None
    assert found.weights["reward"] == 0.0
    assert sum(found.weights.values()) == pytest.approx(1.0)
    assert found.margin_bound == pytest.approx(-0.05, abs=1e-6)
    # the weighted slack is the same for every policy, and negative
    for seed in range(5):
        slack = problem.evaluate(random_policy(mdp, generator(seed))).slack
        weighted = sum(found.weights[name] * slack[name] for name in found.conflict)
        assert weighted <= found.margin_bound + ROUNDING
    room = Claims.of(problem).smallest_slack()
    assert upper_bound(room.checked, {}, room.written(found.evidence)) == found.margin_bound
    assert "Infeasible: no policy satisfies 'at most', 'at least' together (proven)" in str(found)


def test_constraints_that_only_just_hold_have_no_slater_point(mdp, least):
    found = cm.slater(cost_problem(mdp, at_most=least + 0.1, at_least=least + 0.1))
    assert not found.exists
    assert not found.infeasible
    assert found.conflict == ("at most", "at least")
    assert abs(found.margin_bound) < 1e-6
    assert "room to spare" in str(found)


def test_the_objective_is_finite_at_the_slater_point():
    # The policy with most room takes no reward at all, where the logarithm is infinite.
    table = np.zeros((2, 2, 2))
    table[:, 0, 0] = table[:, 1, 1] = 1.0
    visits = np.array([[0.0, 0.0], [1.0, 1.0]])
    mdp = cm.TabularMDP(table, 0, 0.9, signals={"visits": visits})
    problem = cm.Problem(
        mdp,
        maximize=cm.log_sum("visits"),
        subject_to={"few": cm.linear("visits", per="step") <= 0.5},
    )
    found = cm.slater(problem)
    assert found.exists
    assert math.isfinite(found.objective)
    assert math.isfinite(found.dual_bound["few"])
    assert problem.evaluate(found.policy).objective >= found.objective - ROUNDING


@pytest.mark.parametrize("count", [1, 3, 8])
def test_any_number_of_constraints(mdp, count):
    uniform = cm.uniform_policy(mdp)
    random = generator(count)
    rewards = random.normal(size=(count, 4, 2))
    used = [float((reward * cm.occupancy_of(mdp, uniform)).sum()) for reward in rewards]
    subject_to = {
        f"c{index}": cm.linear(reward) <= use + 0.1
        for index, (reward, use) in enumerate(zip(rewards, used, strict=True))
    }
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=subject_to)
    found = cm.slater(problem)
    assert found.exists
    assert len(found.margins) == len(found.dual_bound) == count
    assert found.margin >= 0.1 - 1e-6


def test_custom_constraints(mdp):
    value = cm.Problem(mdp, maximize=coverage).evaluate(cm.uniform_policy(mdp)).objective
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cover": coverage >= value - 0.5}
    )
    found = cm.slater(problem)
    assert found.exists
    assert found.margin >= 0.3


def test_without_constraints_there_is_nothing_to_find(mdp):
    with pytest.raises(ProblemError, match="needs a problem with constraints"):
        cm.slater(cm.Problem(mdp, maximize=cm.entropy()))


@settings(max_examples=12)
@given(seed=seeds)
def test_room_among_affine_budgets_is_a_linear_program(seed):
    """No conic solver, which takes half a second to import, and the same room as one finds."""
    random = generator(seed)
    mdp = random_model(random)
    usual = random_policy(mdp, random)
    budgets = {}
    for k in range(1 + seed % 3):
        cost = cm.linear(random.normal(size=mdp.actions.shape))
        spent = cm.Problem(mdp, maximize=cost).evaluate(usual).objective
        budgets[f"cost {k}"] = cost <= spent + random.choice([-2.0, 0.0, 0.2])
    claims = Claims.of(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "solve_conic", None)
        linear = slater_of(claims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "small", lambda flow: False)
        conic = slater_of(claims)
    assert linear.margin == pytest.approx(conic.margin, rel=1e-6, abs=1e-6)
    assert linear.infeasible == conic.infeasible
    assert linear.margin <= linear.margin_bound
    if not linear.infeasible:  # whose proof does without bystanders, and shows less
        assert linear.margin_bound <= linear.margin + 1e-9
    assert set(linear.conflict) == set(conic.conflict)


def test_columns_prove_that_curved_constraints_conflict(monkeypatch):
    """Numbers of 1e12 beside some of 1e-2: where conic programs know nothing, columns do."""
    mdp = cm.garnet(2, 3, 2, seed=1, discount=1 - 1e-6)
    bent = cm.quadratic(factor=np.random.default_rng(1).normal(size=(2, 6)))
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost")))
    there = cm.Problem(mdp, minimize=bent).evaluate(least.policy).objective
    budgets = {"cost": cm.linear("cost") <= 1.001 * least.objective, "bent": bent <= 0.1 * there}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets)
    monkeypatch.setattr(slater_search, "by_program", lambda claims: None)
    found = cm.slater(problem)
    assert found.conflict == ("cost", "bent")
    assert found.margin_bound < 0
