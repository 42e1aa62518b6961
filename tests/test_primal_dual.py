"""PDPG end to end: what it reaches with default settings, how it stops, zero violation, errors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.errors import SolverError
from cvxmdp.exact import pdpg as module


def reference_problem(name: str, grid: cm.TabularMDP, expert: cm.TabularPolicy) -> cm.Problem:
    """The problems with known optima, and two linear ones with several budgets."""
    reward, hazard = cm.linear("reward"), cm.linear("hazard", per="step")
    imitate = {"hazard": hazard <= 0.08}
    if name.startswith("budgets"):
        count, states, sizes, budget = {
            "budgets 3": (3, 200, (5, 5), 0.42),
            "budgets 10": (10, 100, (4, 4), 0.46),
        }[name]
        costs = [f"cost {index}" for index in range(count)]
        mdp = cm.garnet(states, *sizes, seed=3, discount=0.95, signals=("reward", *costs))
        limits = {cost: cm.linear(cost, per="step") <= budget for cost in costs}
        return cm.Problem(mdp, maximize=reward, subject_to=limits)
    x = cm.occupancy_of(grid, expert)
    near = cm.distance(expert, norm="l2")
    described = {
        "safe exploration": (cm.entropy(), {"hazard": hazard <= 0.05}),
        "safe learning": (reward + 0.1 * cm.log_barrier(cm.linear("hazard") <= 1.0), {}),
        "apprenticeship l2": (-near, imitate),
        "apprenticeship l2-squared": (-0.5 * cm.distance(expert, norm="l2-squared"), imitate),
        "apprenticeship kl": (-cm.distance(expert, norm="kl"), imitate),
        "feasibility, point": (reward, {"near": near <= 1.0, "hazard": hazard <= 0.095}),
        "feasibility, box": (reward, {"near": cm.distance(cm.box(0.8 * x, 1.25 * x)) <= 0.5}),
    }
    objective, constraints = described[name]
    return cm.Problem(grid, maximize=objective, subject_to=constraints)


NAMES = (
    "safe exploration",
    "safe learning",
    "apprenticeship l2",
    "apprenticeship l2-squared",
    "apprenticeship kl",
    "feasibility, point",
    "feasibility, box",
    "budgets 3",
    "budgets 10",
)


@pytest.mark.parametrize("name", NAMES)
def test_natural_reaches_a_certified_tenth_of_a_percent(name, grid, expert):
    problem = reference_problem(name, grid, expert)
    solution = cm.solve(problem, cm.PDPG(iterations=2_000, tolerance=1e-5))
    assert cm.certify(problem, solution).relative_gap <= 1e-3
    exact = cm.solve(problem, cm.ConvexProgram()).multipliers
    largest = max(exact.values(), default=0.0)
    for constraint, multiplier in exact.items():
        assert solution.multipliers[constraint] == pytest.approx(multiplier, abs=0.05 * largest)


@pytest.mark.parametrize("name", ["safe exploration", "safe learning", "budgets 3", "budgets 10"])
def test_vanilla_reaches_a_certified_percent(name, grid, expert):
    problem = reference_problem(name, grid, expert)
    solution = cm.solve(problem, cm.PDPG(iterations=2_000, direction="vanilla", tolerance=1e-4))
    assert cm.certify(problem, solution).relative_gap <= 1e-2


def test_every_iterate_of_safe_learning_is_feasible(grid, expert):
    problem = reference_problem("safe learning", grid, expert)
    solution = cm.solve(problem, cm.PDPG(iterations=300, tolerance=None))
    # the barrier is finite exactly where the budget is kept
    assert np.isfinite(solution.history["objective"]).all()
    assert problem.evaluate(solution.policy).occupancy.ravel() @ grid.signal("hazard").ravel() < 1.0


@pytest.mark.parametrize("name", ["safe exploration", "feasibility, point", "budgets 3"])
def test_pessimism_auto_is_certified_feasible(name, grid, expert):
    problem = reference_problem(name, grid, expert)
    solution = cm.solve(problem, cm.PDPG(iterations=500, pessimism="auto"))
    certificate = cm.certify(problem, solution)
    assert not certificate.repaired
    assert all(slack >= 0 for slack in certificate.slack.values())
    assert solution.stats["price"] >= 0


def test_status_is_optimal_only_when_certified(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    stopped = cm.solve(problem, cm.PDPG(iterations=2_000, tolerance=1e-2))
    assert stopped.status is cm.Status.OPTIMAL
    assert stopped.stats["iterations"] < 2_000
    assert cm.certify(problem, stopped).relative_gap <= 1e-2
    short = cm.solve(problem, cm.PDPG(iterations=3, tolerance=1e-9))
    assert short.status is cm.Status.ITERATION_LIMIT
    assert len(short.history["objective"]) == 3


@pytest.mark.parametrize("iterate", ["half", "average", "last", "best"])
def test_every_iterate_can_be_asked_for(iterate, grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    solution = cm.solve(problem, cm.PDPG(iterations=400, iterate=iterate, tolerance=None))
    assert solution.objective == pytest.approx(4.0476, abs=0.1)


def test_the_papers_steps_ascend(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    solver = cm.PDPG(iterations=500, primal_step=2.0, dual_step=2.0, direction="vanilla")
    history = cm.solve(problem, solver).history["objective"]
    assert history[-1] > history[0]


def test_the_papers_update_is_simultaneous_and_to_the_letter(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    step, dual = 0.5, 3.0
    solver = cm.PDPG(
        iterations=2, primal_step=step, dual_step=dual, direction="vanilla", tolerance=None
    )
    history = cm.solve(problem, solver).history
    uniform = problem.evaluate(cm.uniform_policy(grid))
    assert history["objective"][0] == pytest.approx(uniform.objective, rel=1e-12)
    expected = np.clip(-dual * uniform.slack["hazard"], 0.0, None)
    assert history["multipliers"]["hazard"][1] == pytest.approx(expected, rel=1e-9)


def test_warm_start_continues(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    first = cm.solve(problem, cm.PDPG(iterations=600, tolerance=None))
    again = cm.solve(problem, cm.PDPG(iterations=100, tolerance=1e-3), start=first)
    assert again.status is cm.Status.OPTIMAL
    exact = cm.solve(problem)
    from_exact = cm.solve(problem, cm.PDPG(iterations=200, tolerance=1e-3), start=exact)
    assert cm.certify(problem, from_exact).relative_gap <= 1e-3


def test_interruption_returns_what_there_is(grid, expert, monkeypatch):
    problem = reference_problem("safe exploration", grid, expert)
    real, calls = module.run_chunk, []

    def interrupted(*arguments, **named):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(module, "run_chunk", interrupted)
    solution = cm.solve(problem, cm.PDPG(iterations=1_000, tolerance=None))
    assert solution.status is cm.Status.INTERRUPTED
    assert solution.stats["iterations"] == 200
    assert math.isfinite(solution.objective)


def test_another_budget_does_not_compile_again(grid, expert):
    solver = cm.PDPG(iterations=100, tolerance=None)
    problem = reference_problem("safe exploration", grid, expert)
    cm.solve(problem, solver)
    before = module.run_chunk._cache_size()
    cm.solve(problem.with_budget("hazard", 0.07), solver)
    assert module.run_chunk._cache_size() == before
    assert jnp.zeros(1).dtype == jnp.float32  # the global flag is as it was
    assert not jax.config.jax_enable_x64


def test_infeasible_problems_come_with_the_proof(grid, expert):
    problem = reference_problem("safe exploration", grid, expert).with_budget("hazard", 1e-6)
    solution = cm.solve(problem, cm.PDPG(iterations=10))
    assert solution.status is cm.Status.INFEASIBLE
    assert "proven" in solution.message


def test_a_function_of_ones_own_is_solved_without_being_told_how(grid):
    @cm.concave
    def coverage(occupancy):
        return jnp.log(occupancy.sum(axis=1) + 1e-2).mean()

    problem = cm.Problem(
        grid, maximize=coverage, subject_to={"hazard": cm.linear("hazard", per="step") <= 0.05}
    )
    solution = cm.solve(problem, cm.PDPG(iterations=600, tolerance=1e-2))
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= 5e-2
    assert any("coverage" in promise for promise in certificate.assumes)


def test_a_network_learns_the_problem(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    solver = cm.PDPG(iterations=400, policy=cm.MLP(32), tolerance=1e-2)
    solution = cm.solve(problem, solver, seed=0)
    assert cm.certify(problem, solution).relative_gap <= 5e-2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "positive whole number"),
        ({"primal_step": -1.0, "dual_step": 1.0}, "must be positive"),
        ({"primal_step": "fast"}, "auto"),
        ({"dual_step": 0.1}, "chooses the dual step itself"),
        ({"direction": "sideways"}, "natural"),
        ({"iterate": "middle"}, "half, average, last, best"),
        ({"pessimism": "much"}, "auto"),
        ({"policy": cm.MLP}, r"MLP\(\)"),
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else None,
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(SolverError, match=message):
        cm.PDPG(**settings)


def test_a_step_without_its_dual_step_is_refused(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    with pytest.raises(SolverError, match="dual_step"):
        cm.solve(problem, cm.PDPG(iterations=10, primal_step=0.1))


def test_the_direct_parameterisation_has_no_natural_gradient(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    with pytest.raises(SolverError, match="vanilla"):
        cm.solve(problem, cm.PDPG(iterations=10, policy=cm.Direct()))


def test_a_network_needs_a_seed(grid, expert):
    problem = reference_problem("safe exploration", grid, expert)
    with pytest.raises(SolverError, match="seed"):
        cm.solve(problem, cm.PDPG(iterations=10, policy=cm.MLP(8)))


def test_outside_the_domain_the_error_names_the_iteration_and_the_fix(grid, expert):
    problem = reference_problem("safe learning", grid, expert)
    solver = cm.PDPG(iterations=20, primal_step=0.1, dual_step=0.1)
    # the uniform policy exceeds the budget: the barrier is infinite there
    with pytest.raises(SolverError, match=r"iteration 0: .*start inside it"):
        cm.solve(problem, solver, start=cm.uniform_policy(grid))
