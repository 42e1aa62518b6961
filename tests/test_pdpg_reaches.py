"""What PDPG reaches with default settings, on the listed problems and on others."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from strategies import generator, random_model, random_policy, random_problem
from test_convex_program import reference_problems

PROBLEMS = Path(__file__).parent / "reference" / "problems.json"
REFERENCE = list(json.loads(PROBLEMS.read_text())["problems"])
LISTED = [*REFERENCE, "3 budgets", "10 constraints"]


def budgets(mdp: cm.TabularMDP, budget: float) -> cm.Problem:
    """The reward under the same budget per step for every cost."""
    costs = [name for name in mdp.signals if name != "reward"]
    limits = {name: cm.linear(name, per="step") <= budget for name in costs}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def costly_garnet(n_states: int, n_actions: int, branching: int, *, seed: int, costs: int):
    names = ["reward", *(f"cost {k}" for k in range(costs))]
    return cm.garnet(n_states, n_actions, branching, seed=seed, discount=0.95, signals=names)


@pytest.fixture(scope="session")
def listed(grid: cm.TabularMDP, expert: cm.TabularPolicy) -> dict[str, cm.Problem]:
    return {
        **reference_problems(grid, expert),
        "3 budgets": budgets(costly_garnet(200, 5, 5, seed=3, costs=3), 0.42),
        "10 constraints": budgets(costly_garnet(100, 4, 4, seed=3, costs=10), 0.46),
    }


def gap(problem: cm.Problem, solution: cm.Solution) -> float:
    return cm.certify(problem, solution).relative_gap


@pytest.mark.parametrize("name", LISTED)
def test_natural_reaches_a_thousandth(name: str, listed: dict[str, cm.Problem]) -> None:
    problem = listed[name]
    solution = cm.solve(problem, cm.PDPG())
    assert solution.stats["iterations"] <= 2_000
    assert gap(problem, solution) <= 1e-3
    exact = cm.solve(problem, cm.ConvexProgram()).multipliers
    largest = max(exact.values(), default=0.0)
    for constraint, multiplier in exact.items():
        assert abs(solution.multipliers[constraint] - multiplier) <= 0.05 * largest
    assert np.isfinite(solution.history["objective"]).all()


@pytest.mark.parametrize(
    "name", ["safe exploration", "safe learning", "3 budgets", "10 constraints"]
)
def test_vanilla_reaches_a_hundredth(name: str, listed: dict[str, cm.Problem]) -> None:
    problem = listed[name]
    solution = cm.solve(problem, cm.PDPG(direction="vanilla", tolerance=None))
    assert gap(problem, solution) <= 1e-2


@pytest.mark.parametrize("direction", ["natural", "vanilla"])
def test_safe_learning_is_safe_at_every_iterate(
    direction: str, listed: dict[str, cm.Problem]
) -> None:
    # Its uniform policy violates the budget: the run must start, and stay, inside the barrier.
    problem = listed["safe learning"]
    assert problem.evaluate(cm.uniform_policy(problem.mdp)).objective == -np.inf
    solver = cm.PDPG(direction=direction, iterations=300, tolerance=None)
    history = cm.solve(problem, solver).history
    assert np.isfinite(history["objective"]).all()  # the barrier is finite only inside


@pytest.mark.parametrize(
    ("seed", "iterations"),
    [(3, 2_000), (8, 2_000), (17, 2_000), (20, 2_000), (25, 4_000), (42, 2_000)],
)
def test_random_problems(seed: int, iterations: int) -> None:
    # 8, 17, 20 and 42 have their optimum on a kink (l1, l2, minimum). In 25 the slack at the start, which
    # says how fast multipliers may move, is large and the way to the multiplier far: it takes longer.
    random = generator(seed)
    mdp = random_model(random)
    count = int(random.integers(0, 4))
    problem = random_problem(mdp, random, random_policy(mdp, random), constraints=count)
    assert gap(problem, cm.solve(problem, cm.PDPG(iterations))) <= 1e-3


def test_fairness_ends_on_a_kink() -> None:
    mdp = cm.garnet(8, 3, 3, seed=2, discount=0.9)
    problem = cm.Problem(mdp, maximize=cm.minimum(cm.linear("reward"), cm.linear("cost")))
    solution = cm.solve(problem, cm.PDPG())
    x = solution.occupancy
    assert (x * mdp.signal("reward")).sum() == pytest.approx(
        (x * mdp.signal("cost")).sum(), rel=1e-3
    )
    assert gap(problem, solution) <= 1e-6


def test_masks_endings_and_no_constraints() -> None:
    mdp = random_model(generator(2), n_states=5, n_actions=3, mask=True, endings=True)
    problem = cm.Problem(mdp, maximize=cm.entropy(of="state-action"))
    solution = cm.solve(problem, cm.PDPG())
    assert solution.multipliers == {}
    assert (solution.policy.probabilities()[~mdp.actions] == 0).all()
    assert gap(problem, solution) <= 1e-6


@pytest.mark.parametrize("direction", ["natural", "vanilla"])
@pytest.mark.parametrize("family", ["mlp", "linear"])
def test_other_families_reach_a_good_answer(family: str, direction: str) -> None:
    mdp = cm.garnet(6, 3, 3, seed=1, discount=0.9)
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy(),
        subject_to={"cost": cm.linear("cost", per="step") <= 0.4},
    )
    features = generator(0).normal(size=(6, 3, 18))
    policy = cm.MLP(32) if family == "mlp" else cm.LinearSoftmax(features)
    solver = cm.PDPG(iterations=600, policy=policy, direction=direction)
    assert gap(problem, cm.solve(problem, solver, seed=0)) <= 1e-3


def test_direct_parameterisation() -> None:
    small = budgets(cm.garnet(6, 3, 3, seed=1, discount=0.9), 0.4)
    solver = cm.PDPG(policy=cm.Direct(), direction="vanilla", iterations=800)
    assert gap(small, cm.solve(small, solver)) <= 1e-5


def test_a_barrier_beside_a_constraint_that_wants_the_opposite() -> None:
    """The uniform policy is on the edge of the barrier; what is deepest inside never meets the constraint."""
    cost = np.tile([1.0, 0.5, 0.0], (20, 1))
    target = np.tile([1.0, 0.6, 0.0], (20, 1))
    problem = cm.Problem(
        cm.garnet(20, 3, 3, discount=0.9, seed=3),
        maximize=cm.linear("reward") + 0.5 * cm.log_barrier(cm.linear(cost) <= 5),
        subject_to={"target": cm.linear(target) >= 5.2},
    )
    room = cm.slater(problem)
    assert room.exists
    assert math.isfinite(room.dual_bound["target"])
    best = cm.solve(problem, cm.ConvexProgram()).objective
    found = cm.solve(problem, cm.PDPG(iterations=300))
    assert found.objective == pytest.approx(best, rel=1e-3)
    assert found.violation["target"] < 1e-2


def test_a_box_that_is_too_small_is_said() -> None:
    """A multiplier thousands of times as large is needed; what is reported is a mean, just below the end."""
    mdp = cm.garnet(6, 3, 3, discount=0.9, seed=4)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    problem = cm.Problem(
        mdp,
        maximize=cm.linear(1e3 * mdp.signal("reward")),
        subject_to={"cost": cm.linear(1e-2 * mdp.signal("cost")) <= 1e-2 * 1.05 * least},
    )
    found = cm.solve(problem, cm.PDPG(iterations=200, dual_bound=10))
    assert found.multipliers["cost"] < 10
    assert "At the end of its box is the multiplier of 'cost' (10)" in found.message
