"""The study of rates in short, and the helper that sets bound beside measurement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.solvers import contract
from cvxmdp.theory import TheoryError, compare, direct_constants, fit_rate, problem_constants

ITERATIONS = [100, 316, 1_000, 3_162]


@pytest.fixture(scope="module")
def ring() -> cm.TabularMDP:
    stay, on = np.eye(3), np.roll(np.eye(3), 1, axis=1)
    return cm.TabularMDP(
        np.stack([0.8 * stay + 0.2 * on, 0.2 * stay + 0.8 * on], axis=1),
        np.full(3, 1 / 3),
        0.3,
        signals={
            "reward": np.array([[0.0, 1.0], [0.0, 0.8], [0.0, 0.6]]),
            "cost": np.array([[0.0, 0.5], [0.0, 0.8], [0.0, 1.0]]),
        },
    )


def make(ring: cm.TabularMDP, name: str) -> cm.Problem:
    always = cm.occupancy_of(ring, np.tile([0.0, 1.0], (3, 1)))
    budget = {"cost": cm.linear("cost") <= 0.55}
    far = 0.5 * cm.distance(always, norm="l2-squared")
    if name == "concave":
        return cm.Problem(ring, maximize=cm.linear("reward"), subject_to=budget)
    if name == "strongly concave":
        return cm.Problem(ring, maximize=-far, subject_to=budget)
    return cm.Problem(ring, minimize=far, subject_to=budget)


def run(problem: cm.Problem, iterations: int, strong: bool, **settings) -> cm.Solution:
    solver = cm.PDPG.theory(
        problem,
        iterations,
        strongly_concave=strong,
        check_every=iterations,
        **settings,
    )
    return cm.solve(problem, solver)


def constants_of(problem: cm.Problem):
    return problem_constants(problem, direct_constants(problem.mdp))


# Slopes


def test_a_power_law_has_its_exponent_as_slope():
    rate = fit_rate(ITERATIONS, [3.0 * count ** (-1 / 3) for count in ITERATIONS])
    assert rate.slope == pytest.approx(-1 / 3, abs=1e-12)
    assert rate.high - rate.low < 1e-6
    assert rate.points == 4


def test_the_interval_covers_the_slope_as_often_as_it_says():
    random = np.random.default_rng(0)
    times = np.logspace(2, 5, 7)
    noisy = np.exp(0.3 * random.standard_normal((2_000, 7))) * times**-0.5
    rates = [fit_rate(times, values) for values in noisy]
    covered = np.mean([rate.low <= -0.5 <= rate.high for rate in rates])
    standard_error = np.sqrt(0.95 * 0.05 / 2_000)
    assert abs(covered - 0.95) < 4 * standard_error


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([1, 2], [1.0, 0.5], "three different"),
        ([1, 1, 1], [1.0, 0.5, 0.2], "three different"),
        ([1, 2, 3], [1.0, 0.5], "as many values"),
        ([1, 2, 3], [1.0, -0.5, 0.2], "positive"),
        ([1, 2, 3], [1.0, 0.0, 0.2], "positive"),
        ([1, 2, 3], [1.0, np.nan, 0.2], "finite"),
    ],
)
def test_what_has_no_slope_is_refused(times, values, message):
    with pytest.raises(TheoryError, match=message):
        fit_rate(times, values)


# The study in short


@pytest.mark.parametrize(("name", "rate"), [("concave", -1 / 3), ("strongly concave", -1 / 2)])
def test_the_theorems_schedule_keeps_its_bound_and_reaches_its_rate(ring, name, rate):
    problem, strong = make(ring, name), name != "concave"
    constants = constants_of(problem)
    optimum = cm.solve(problem, cm.ConvexProgram()).objective
    violations = []
    for count in ITERATIONS:
        solution = run(problem, count, strong)
        found = compare(problem, solution, constants, strong, optimum=optimum)
        assert found.departures == ()
        assert found.holds
        violations.append(found.violation)
        # The telescoped dual update: unclipped multipliers make the violation mu_T / (T eta_mu).
        multipliers, slack = (solution.history[key]["cost"] for key in ("multipliers", "slack"))
        dual_step = count ** (-0.5 if strong else -2 / 3)
        last = multipliers[-1] - dual_step * slack[-1]
        if (multipliers[1:] > 0).all() and last > 0:
            assert found.violation == pytest.approx(last / (count * dual_step), rel=1e-9)
    measured = fit_rate(ITERATIONS, violations)
    assert measured.slope < rate + 0.1


# The helper


def test_measurements_are_averages_of_the_history(ring):
    problem = make(ring, "concave")
    solution = run(problem, 200, False)
    found = compare(problem, solution, constants_of(problem))
    optimum = cm.solve(problem, cm.ConvexProgram()).objective
    assert found.iterations == 200
    assert found.optimum == pytest.approx(optimum, abs=1e-9)
    assert found.gap == pytest.approx(optimum - solution.history["objective"].mean(), abs=1e-9)
    assert found.slack["cost"] == pytest.approx(solution.history["slack"]["cost"].mean())
    assert found.violation == pytest.approx(max(0.0, -found.slack["cost"]))
    # By concavity the deployed policy is at least as good as the average.
    assert solution.objective >= optimum - found.gap - 1e-9


def test_a_history_that_kept_some_iterations_is_that_of_all(ring, monkeypatch):
    problem = make(ring, "concave")
    whole = compare(problem, run(problem, 100, False), constants_of(problem))
    monkeypatch.setattr(contract, "MOST_ROWS", 50)
    solution = run(problem, 100, False)
    assert len(solution.history["objective"]) == 50
    found = compare(problem, solution, constants_of(problem))
    assert (found.iterations, found.departures) == (100, ())
    assert found.bound == whole.bound


def test_minimising_has_the_same_gap_as_maximising_the_negative(ring):
    gaps = [
        compare(problem, run(problem, 200, True), constants_of(problem), True).gap
        for problem in (make(ring, "strongly concave"), make(ring, "minimise"))
    ]
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9)


def test_the_text_shows_bound_beside_measurement(ring):
    problem = make(ring, "concave")
    found = compare(problem, run(problem, 100, False), constants_of(problem))
    lines = str(found).splitlines()
    assert lines[0].startswith("Averages over 100 iterations (optimum 0.74")
    assert lines[1].split() == ["measured", "bound"]
    assert lines[2].split()[2:] == [f"{found.gap:.4g}", f"{found.bound.gap:.4g}"]
    assert lines[3].split()[1:] == [f"{found.violation:.4g}", f"{found.bound.violation:.4g}"]
    assert found.gap < 0
    assert lines[4:] == ["  A negative gap: iterates that violate a constraint are above f*."]
    assert not replace(found, gap=found.bound.gap + 1).holds


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"primal_step": 0.5}, ["its primal step is 0.5, the theorem's 0.0"]),
        ({"dual_step": 0.5}, ["does not follow the theorem's dual step 0.0464"]),
        ({"dual_bound": 0.1}, ["does not follow the theorem's dual step"]),
        ({"initial_multiplier": 1.0}, ["the multiplier of 'cost' starts at 1, not at 0"]),
        ({"pessimism": 0.1}, ["does not follow the theorem's dual step"]),
    ],
)
def test_departures_from_the_theorems_run_are_named(ring, settings, says):
    problem = make(ring, "concave")
    found = compare(problem, run(problem, 100, False, **settings), constants_of(problem))
    assert len(found.departures) == len(says)
    for departure, part in zip(found.departures, says, strict=True):
        assert part in departure
        assert departure in str(found)
    assert "not the run that the theorem speaks of" in str(found)


def test_direct_constants_are_those_of_the_direct_parameterisation(ring):
    problem = make(ring, "concave")
    given = cm.PDPG.theory(problem, 100, parameterisation=direct_constants(ring))
    assert given == cm.PDPG.theory(problem, 100)
    assert given.policy == cm.Direct()


def test_a_solution_without_history_is_refused(ring):
    problem = make(ring, "concave")
    solution = cm.solve(problem, cm.ConvexProgram())
    with pytest.raises(TheoryError, match="history of a run of PDPG"):
        compare(problem, solution, constants_of(problem))
