"""The budget frontier: envelopes that hold everywhere, and what they say about where it matters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError
from strategies import generator, random_model

ACCURACY = 1e-7  # of the solver that the envelopes are compared with


def model(seed=51):
    return random_model(
        generator(seed), n_states=4, n_actions=2, discount=0.8, endings=False, mask=False
    )


def extreme(mdp, sense):
    return cm.solve(cm.Problem(mdp, **{sense: cm.linear("cost")})).objective


def make(kind):
    """A problem, its varied constraint "limit", and the range of budgets that matters."""
    mdp = model()
    uniform = cm.uniform_policy(mdp)
    least, most = extreme(mdp, "minimize"), extreme(mdp, "maximize")
    other = cm.distance(uniform, norm="l2") <= 1.5
    if kind == "maximise, at most":
        limit = cm.linear("cost") <= most
        return cm.Problem(mdp, maximize=cm.entropy(), subject_to={"limit": limit, "other": other})
    if kind == "maximise, at least":
        limit = cm.linear("cost") >= least
        return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"limit": limit})
    if kind == "minimise, at most":
        limit = cm.linear("cost") <= most
        return cm.Problem(
            mdp, minimize=cm.distance(uniform, norm="l2-squared"), subject_to={"limit": limit}
        )
    if kind == "minimise, at least":
        limit = cm.linear("cost") >= least
        return cm.Problem(
            mdp, minimize=cm.distance(uniform, norm="l1"), subject_to={"limit": limit}
        )
    assert kind == "curved limit"
    limit = cm.distance(uniform, norm="l2") <= 1.0
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"limit": limit})


KINDS = (
    "maximise, at most",
    "maximise, at least",
    "minimise, at most",
    "minimise, at least",
    "curved limit",
)


@pytest.fixture(scope="module", params=KINDS)
def traced(request):
    problem = make(request.param)
    return problem, cm.frontier(problem, "limit", n=6)


def inner_budgets(found, count):
    solved = [point.budget for point in found.points]
    return np.linspace(min(solved), max(solved), count)


def test_envelopes_hold_the_optimum_at_budgets_that_were_not_solved(traced):
    problem, found = traced
    solved = {point.budget for point in found.points}
    compared = 0
    for budget in inner_budgets(found, 8)[1:-1]:
        if budget in solved:
            continue
        solution = cm.solve(problem.with_budget("limit", float(budget)))
        if solution.status is not cm.Status.OPTIMAL:
            continue
        lower, upper = found.envelope(float(budget))
        allowed = ACCURACY * max(1.0, abs(solution.objective))
        assert lower - allowed <= solution.objective <= upper + allowed
        compared += 1
    assert compared >= 4


def test_envelopes_hold_beyond_the_solved_budgets(traced):
    problem, found = traced
    direction = 1.0 if problem.constraints["limit"].sense == "<=" else -1.0
    budgets = inner_budgets(found, 2)
    generous = budgets.max() if direction > 0 else budgets.min()
    for budget in (generous + direction * 0.5, generous + direction * 100.0):
        solution = cm.solve(problem.with_budget("limit", float(budget)))
        lower, upper = found.envelope(float(budget))
        assert lower - ACCURACY <= solution.objective <= upper + ACCURACY


def test_envelopes_are_monotone_and_bend_the_right_way(traced):
    problem, found = traced
    direction = 1.0 if problem.constraints["limit"].sense == "<=" else -1.0
    reached = [p.budget for p in found.points if p.certificate.policy is not None]
    budgets = np.linspace(min(reached), max(reached), 41)[:: int(direction)]
    bounds = problem.sign * np.array([found.envelope(float(b)) for b in budgets])
    assert np.isfinite(bounds).all()
    for values in bounds.T:  # in the sign that is maximised, along the direction that helps
        steps = np.diff(values)
        assert (steps >= -1e-9).all()
        assert (np.diff(steps) <= 1e-9).all()


def test_envelopes_are_close(traced):
    _, found = traced
    ends = [found.envelope(float(b)) for b in inner_budgets(found, 30)]
    span = max(upper for _, upper in ends) - min(lower for lower, _ in ends)
    widest = max(upper - lower for lower, upper in ends)
    assert widest <= 0.25 * span


def test_infeasible_until_is_proven_and_tight(traced):
    problem, found = traced
    direction = 1.0 if problem.constraints["limit"].sense == "<=" else -1.0
    beyond = found.infeasible_until - direction * 1e-4
    assert cm.certify(
        problem.with_budget("limit", beyond), cm.uniform_policy(problem.mdp)
    ).infeasible
    assert all(math.isnan(bound) for bound in found.envelope(beyond))
    assert direction * (found.feasible_from - found.infeasible_until) <= 0.05


def test_the_constraint_is_free_where_it_is_said_to_be(traced):
    problem, found = traced
    assert math.isfinite(found.free_from)
    direction = 1.0 if problem.constraints["limit"].sense == "<=" else -1.0
    at = cm.solve(problem.with_budget("limit", found.free_from)).objective
    beyond = cm.solve(problem.with_budget("limit", found.free_from + direction * 1e3)).objective
    assert abs(beyond - at) <= found.free_gap + 2 * ACCURACY


def test_a_small_price_is_not_free():
    # A cost in small units: one unit buys little, the budget matters all the same.
    mdp = model()
    small = mdp.with_signals(cost=1e8 * mdp.signal("cost"))
    least, most = extreme(small, "minimize"), extreme(small, "maximize")
    problem = cm.Problem(
        small, maximize=cm.linear("cost") * 1e-8, subject_to={"limit": cm.linear("cost") <= most}
    )
    found = cm.frontier(problem, "limit", budgets=[least + 0.5 * (most - least)])
    assert 0 < found.points[0].certificate.multipliers["limit"] < 1e-7
    assert not math.isfinite(found.free_from)


def test_given_budgets_in_any_order_with_infeasible_ones():
    mdp = model()
    limit = {"limit": cm.linear("cost") <= 1.0}
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to=limit)
    least = extreme(mdp, "minimize")
    budgets = [least + 0.5, least - 0.3, least + 0.1, least - 0.1, least + 0.5]
    found = cm.frontier(problem, "limit", budgets=budgets)
    assert [point.budget for point in found.points] == sorted(set(budgets))
    assert [point.certificate.infeasible for point in found.points] == [True, True, False, False]
    assert found.infeasible_until == least - 0.1
    assert found.feasible_from == least + 0.1
    assert all(math.isnan(bound) for bound in found.envelope(least - 0.2))
    lower, upper = found.envelope(least)  # nobody knows yet
    assert lower == -math.inf
    assert upper >= found.envelope(least + 0.1)[0] - 1.0
    text = str(found)
    assert text.count("infeasible (proven)") == 2
    assert "Infeasible below" in text
    assert "entropy()" in text


def test_more_points_make_closer_envelopes():
    problem = make("curved limit")
    middle = 0.5
    widths = []
    for n in (2, 8):
        lower, upper = cm.frontier(problem, "limit", n=n).envelope(middle)
        widths.append(upper - lower)
    assert widths[1] <= widths[0]


def test_a_solved_budget_is_known_to_the_accuracy_of_its_certificate(traced):
    _, found = traced
    for point in found.points:
        if not point.certificate.infeasible:
            lower, upper = found.envelope(point.budget)
            assert lower >= point.certificate.lower - 1e-12
            assert upper <= point.certificate.upper + 1e-12
            assert point.solution.problem.budgets["limit"] == point.budget


def test_the_picture(traced, tmp_path):
    pytest.importorskip("matplotlib")
    _, found = traced
    found.plot(tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").stat().st_size > 1000


def test_the_table(traced):
    problem, found = traced
    rows = found.rows()
    assert len(rows) == len(found.points)
    assert any(row[-1] == "binding" for row in rows)
    assert problem.sense in str(found)


def test_where_the_tightest_budget_is_best_anyway_there_is_one_point():
    mdp = cm.garnet(12, 2, 3, seed=4, signals=("reward", "cost"))
    problem = cm.Problem(
        mdp,
        minimize=cm.linear("cost", per="step"),
        subject_to={"cost": 2 * cm.linear("cost", per="step") <= 1.5},
    )
    found = cm.frontier(problem, "cost", n=6)
    assert len(found.points) == 2  # the tightest, and the user's own
    assert len({row[0] for row in found.rows()}) == 2
    assert [row[-1] for row in found.rows()] == ["not binding"] * 2


def test_a_least_budget_of_zero_is_said_to_be_zero():
    mdp = cm.garnet(12, 2, 3, seed=4, signals=("reward", "cost"))
    free = mdp.with_signals(cost=mdp.signal("cost") * np.array([0.0, 1.0]))
    problem = cm.Problem(
        free,
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost", per="step") <= 0.1},
    )
    assert "Infeasible below 0 (proven)." in str(cm.frontier(problem, "cost", n=3))


def test_when_the_others_are_in_conflict_no_budget_helps():
    problem = make("maximise, at most")
    least = extreme(problem.mdp, "minimize")
    stuck = cm.Problem(
        problem.mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "limit": cm.linear("reward") <= 5.0,
            "low": cm.linear("cost") <= least + 0.1,
            "high": cm.linear("cost") >= least + 0.2,
        },
    )
    with pytest.raises(ProblemError, match="'low', 'high'"):
        cm.frontier(stuck, "limit", n=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"constraint": "limits"}, "Did you mean 'limit'"),
        ({"constraint": "limit", "budgets": [1.0], "n": 3}, "not both"),
        ({"constraint": "limit", "budgets": []}, "empty"),
        ({"constraint": "limit", "n": 1}, "at least 2"),
        ({"constraint": "limit", "n": "many"}, "a whole number"),
    ],
    ids=["unknown", "both", "empty", "one", "word"],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ProblemError, match=message):
        cm.frontier(make("curved limit"), **arguments)
    with pytest.raises(ProblemError, match="frontier takes a Problem; got 5"):
        cm.frontier(5, **arguments)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_binds_does_not_depend_on_the_unit_of_the_objective(unit):
    mdp = model()
    least, most = extreme(mdp, "minimize"), extreme(mdp, "maximize")
    problem = cm.Problem(
        mdp,
        maximize=unit * cm.linear("cost"),
        subject_to={"limit": cm.linear("cost") <= most},
    )
    middle = (least + most) / 2
    found = cm.frontier(problem, "limit", [middle, most + 1.0])
    assert [row[-1] for row in found.rows()] == ["binding", "not binding"]
    assert found.free_from == most + 1.0


def test_a_lower_limit_is_worth_something_when_it_is_loosened():
    """For >= more budget costs: the column speaks of slack, and its numbers are of that sign."""
    problem = make("maximise, at least")
    found = cm.frontier(problem, "limit", n=4)
    tight = max(found.points, key=lambda point: point.budget)
    looser = cm.solve(problem.with_budget("limit", tight.budget - 0.01))
    bought = looser.objective - tight.solution.objective
    assert 0 < bought <= tight.certificate.worth("limit")
    assert f"{found.step:g} less is worth at most" in str(found)
    assert bought <= tight.certificate.worth("limit", 0.01) * (1 + 1e-9)


def test_the_own_budget_is_among_few_that_are_spread():
    """Which budget should I choose? Not five below 0.005 where 0.02 was asked for."""
    mdp = cm.gridworld(5, slip=0.1, goal=24, hazards=[6, 7, 12])
    limit = cm.linear("hazard", per="step") <= 0.02
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to={"hazard": limit})
    found = cm.frontier(problem, "hazard", n=6)
    budgets = np.array([point.budget for point in found.points])
    assert len(budgets) == 6
    assert 0.02 in budgets
    values = np.array([point.solution.objective for point in found.points])
    spread = np.hypot(np.diff(budgets) / np.ptp(budgets), np.diff(values) / np.ptp(values))
    assert spread.max() <= 0.7
    assert spread.min() >= 0.03
    budget, share = found.enough()
    assert budget in budgets
    assert share >= 0.9
    assert found.step == 0.002
    # What the step buys is at most what the table says.
    own = next(point for point in found.points if point.budget == 0.02)
    more = cm.solve(problem.with_budget("hazard", 0.022)).objective - own.solution.objective
    assert 0 < more <= own.certificate.worth("hazard", found.step)


@pytest.mark.parametrize(("budget", "count"), [(0.9, 4), (1e-6, 4), (100.0, 3)])
def test_own_budgets_outside_are_solved_as_well(budget, count):
    mdp = cm.gridworld(3, slip=0.1, goal=8, hazards=[4])
    limit = cm.linear("hazard", per="step") <= budget
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"hazard": limit})
    found = cm.frontier(problem, "hazard", n=count)
    assert budget in [point.budget for point in found.points]
    assert 3 <= len(found.points) <= count
    assert "worth at most" in str(found)
