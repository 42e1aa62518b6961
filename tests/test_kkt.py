"""Optimality of answers, checked without trusting the solver.

Smooth problems are checked by their KKT conditions, where the best response max_y <r, y> over
occupancies is found by policy iteration written here. With kinks there is no single gradient; what must
hold with and without them is the saddle point L(y, mu) <= f(x) for every occupancy y, and what
multipliers promise about other budgets.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from strategies import (
    AFFINE,
    CONCAVE,
    CONVEX,
    generator,
    random_model,
    random_occupancy,
    random_policy,
    seeds,
)

SMOOTH_CONCAVE = {
    **AFFINE,
    **{
        name: CONCAVE[name]
        for name in (
            "entropy",
            "entropy state-action",
            "log_barrier",
            "log_barrier of distance",
            "log_sum",
            "quadratic concave matrix",
            "quadratic concave weights",
            "concave sum",
        )
    },
}
SMOOTH_CONVEX = {
    **AFFINE,
    **{
        name: CONVEX[name]
        for name in (
            "l2-squared to occupancy",
            "l2 to any point",
            "kl to policy",
            "kl with smoothing",
            "l2-squared to ball",
            "l2-squared to box",
            "l2-squared to polytope",
            "quadratic convex matrix",
            "quadratic weights per state",
            "quadratic factor",
        )
    },
}
KINKED_CONVEX = {
    name: CONVEX[name]
    for name in (
        "l1 to policy",
        "l2 to policy",
        "l2 to ball",
        "l1 to box",
        "l2 to box",
        "l2 to polytope",
        "minus minimum",
        "convex sum",
    )
}


def best_response(mdp: cm.TabularMDP, reward: np.ndarray) -> tuple[float, np.ndarray]:
    """max_y <reward, y> over occupancies y, by policy iteration, and the policy that attains it."""
    transition = mdp.dense_transition()
    everywhere = np.arange(mdp.n_states)
    choice = mdp.actions.argmax(axis=1)
    while True:
        step = np.eye(mdp.n_states) - mdp.discount * transition[everywhere, choice]
        values = np.linalg.solve(step, reward[everywhere, choice])
        worth = np.where(mdp.actions, reward + mdp.discount * transition @ values, -np.inf)
        better = worth.max(axis=1) > worth[everywhere, choice] + 1e-11 * (1 + np.abs(values))
        if not better.any():
            return float(mdp.initial @ values), np.eye(mdp.n_actions)[choice]
        choice = np.where(better, worth.argmax(axis=1), choice)


def meet_with_room(
    mdp: cm.TabularMDP, random: np.random.Generator, makers: dict
) -> dict[str, cm.Constraint]:
    """Up to three constraints of random kinds that one random policy meets with room to spare."""
    x = cm.occupancy_of(mdp, random_policy(mdp, random, concentration=2.0))
    constraints = {}
    for index in range(random.integers(0, 4)):
        name = list(makers)[random.integers(len(makers))]
        utility = makers[name](mdp, random)
        value, room = float(utility.lower(mdp).value(x)), float(random.uniform(0.02, 0.3))
        convex = utility.curvature.is_convex
        constraints[f"{index} {name}"] = (
            utility <= value + room if convex else utility >= value - room
        )
    return constraints


def assert_is_a_policys_occupancy(solution: cm.Solution) -> None:
    mdp, x = solution.problem.mdp, solution.occupancy
    assert (x >= 0).all()
    assert (x[~mdp.reachable_pairs] == 0).all()
    assert np.abs(mdp.flow.residual(x)).sum() < 1e-10 * mdp.max_mass


def assert_feasible_and_complementary(solution: cm.Solution, tolerance: float) -> None:
    for name, slack in solution.slack.items():
        multiplier = solution.multipliers[name]
        assert multiplier >= 0
        assert slack >= -tolerance
        assert abs(multiplier * slack) <= tolerance


def stationarity_gap(solution: cm.Solution, floor: float, enough: float, steps: int = 40) -> float:
    """A bound on how far L(., mu) can rise above L(x, mu).

    By concavity the gradient r at any z gives one: L(y) <= L(z) + <r, y - z> for all y, so the rise is at
    most L(z) + max_y <r, y> - <r, z> - L(x). At z = x it is first order in the error of x, where the rise
    itself is second order; so z is x raised to a floor (logarithms have no usable gradient at entries that
    are rounding), moved by a few Frank-Wolfe steps until the bound is small enough. Nothing of the solver is
    trusted.
    """
    problem, mu, x = solution.problem, solution.multipliers, solution.occupancy
    mdp, at_x = problem.mdp, problem.lagrangian(x, mu)
    z = np.where(mdp.reachable_pairs, np.maximum(x, floor), x)
    smallest = np.inf
    for _ in range(steps):
        reward = problem.shadow_reward(z, mu)
        best, policy = best_response(mdp, reward)
        smallest = min(
            smallest, best - float(np.vdot(reward, z)) + problem.lagrangian(z, mu) - at_x
        )
        if smallest <= enough:
            break
        towards = cm.occupancy_of(mdp, policy) - z
        shares = 10.0 ** -np.arange(2.0, 12.0, 0.25)
        rises = [problem.lagrangian(z + share * towards, mu) for share in shares]
        if max(rises) <= problem.lagrangian(z, mu):
            break
        z = z + shares[int(np.argmax(rises))] * towards
    return smallest


def assert_kkt(solution: cm.Solution) -> None:
    """Primal and dual feasibility, complementary slackness, stationarity."""
    problem, x = solution.problem, solution.occupancy
    relative = 1e-6
    assert solution.status is cm.Status.OPTIMAL
    assert_is_a_policys_occupancy(solution)
    reward = problem.shadow_reward(x, solution.multipliers)[problem.mdp.reachable_pairs]
    size = 1.0 + abs(solution.objective) + np.abs(reward).max() * problem.mdp.max_mass
    assert_feasible_and_complementary(solution, relative * (1.0 + abs(solution.objective)))
    gains: list[float] = []
    for floor in (0.0, 1e-10, 1e-8):
        gains.append(stationarity_gap(solution, floor, relative * size))
        if gains[-1] <= relative * size:
            break
    assert gains[0] >= -1e-9 * size
    assert min(gains) <= relative * size


# Smooth problems


@pytest.mark.parametrize("name", SMOOTH_CONCAVE)
@settings(max_examples=12)
@given(seed=seeds)
def test_kkt_of_maximised_smooth_utilities(name: str, seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    objective = SMOOTH_CONCAVE[name](mdp, random)
    constraints = meet_with_room(mdp, random, {**SMOOTH_CONVEX, **SMOOTH_CONCAVE})
    assert_kkt(cm.solve(cm.Problem(mdp, maximize=objective, subject_to=constraints)))


@pytest.mark.parametrize("name", SMOOTH_CONVEX)
@settings(max_examples=8)
@given(seed=seeds)
def test_kkt_of_minimised_smooth_utilities(name: str, seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    objective = SMOOTH_CONVEX[name](mdp, random) + 0.5 * cm.linear("cost")
    constraints = meet_with_room(mdp, random, {**SMOOTH_CONVEX, **SMOOTH_CONCAVE})
    assert_kkt(cm.solve(cm.Problem(mdp, minimize=objective, subject_to=constraints)))


@settings(max_examples=25)
@given(seed=seeds)
def test_kkt_of_linear_garnets(seed: int) -> None:
    random = generator(seed)
    states = int(random.integers(2, 40))
    mdp = cm.garnet(
        states,
        int(random.integers(1, 5)),
        int(random.integers(1, min(states, 5) + 1)),
        seed=seed,
        discount=float(random.choice([0.0, 0.5, 0.9, 0.99, 0.999])),
        ending=float(random.choice([0.0, 0.05, 0.5])),
    )
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to=meet_with_room(mdp, random, {"cost": AFFINE["linear per step"]}),
    )
    assert_kkt(cm.solve(problem))


def test_the_policy_iteration_above_is_right() -> None:
    # Two arms, one state, discount 1/2: the better arm twice over. And it can see a wrong answer.
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), 0, 0.5)
    assert best_response(mdp, np.array([[1.0, 3.0]]))[0] == pytest.approx(6.0)
    problem = cm.Problem(mdp, maximize=cm.linear(np.array([[1.0, 3.0]])))
    wrong = cm.Solution.of_policy(problem, cm.uniform_policy(mdp), cm.Status.OPTIMAL, {})
    with pytest.raises(AssertionError):
        assert_kkt(wrong)


# Problems with kinks


def assert_saddle_point(solution: cm.Solution, random: np.random.Generator) -> None:
    """L(y, mu) <= f(x) for random occupancies y, far from x and near to it."""
    problem, x, mu = solution.problem, solution.occupancy, solution.multipliers
    best = problem.sign * solution.objective
    tolerance = 1e-6 * (1.0 + abs(best) + sum(mu.values()))
    assert_feasible_and_complementary(solution, tolerance)
    for _ in range(15):
        away = random_occupancy(problem.mdp, random)
        for share in (1e-4, 1e-2, 0.3, 1.0):
            y = (1.0 - share) * x + share * away
            assert problem.lagrangian(y, mu) <= best + tolerance


def assert_multipliers_bound_other_budgets(solution: cm.Solution) -> None:
    """f*(budget + change) <= f* + mu * (room the change gives), whether it relaxes or tightens."""
    problem = solution.problem
    for name, constraint in problem.constraints.items():
        for change in (-0.02, 0.05):
            other = cm.solve(problem.with_budget(name, constraint.budget + change))
            if other.status is cm.Status.INFEASIBLE:
                continue
            room = change if constraint.sense == "<=" else -change
            gained = problem.sign * (other.objective - solution.objective)
            multiplier = solution.multipliers[name]
            assert gained <= multiplier * room + 1e-6 * (1 + abs(solution.objective) + multiplier)


@pytest.mark.parametrize("name", KINKED_CONVEX)
@settings(max_examples=6)
@given(seed=seeds)
def test_answers_with_kinks_are_saddle_points(name: str, seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    objective = KINKED_CONVEX[name](mdp, random) - 0.5 * cm.linear("reward")
    makers = {**SMOOTH_CONVEX, **KINKED_CONVEX, "minimum": CONCAVE["minimum"]}
    constraints = meet_with_room(mdp, random, makers)
    solution = cm.solve(cm.Problem(mdp, minimize=objective, subject_to=constraints))
    assert solution.status is cm.Status.OPTIMAL
    assert_is_a_policys_occupancy(solution)
    assert_saddle_point(solution, random)


@pytest.mark.parametrize("name", ["l1 to policy", "l2 to policy", "minus minimum", "kl to policy"])
@settings(max_examples=5)
@given(seed=seeds)
def test_multipliers_bound_what_other_budgets_give(name: str, seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    x = cm.occupancy_of(mdp, random_policy(mdp, random, concentration=2.0))
    near = CONVEX[name](mdp, random)
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "near": near <= float(near.lower(mdp).value(x)) + 0.05,
            "cost": cm.linear("cost") >= float(cm.linear("cost").lower(mdp).value(x)) - 0.05,
        },
    )
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    assert_multipliers_bound_other_budgets(solution)


# Two solvers, one answer


@settings(max_examples=25)
@given(seed=seeds)
def test_highs_and_clarabel_agree_on_linear_problems(seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random, n_states=8)
    constraints = meet_with_room(mdp, random, AFFINE)
    objective = cm.linear("reward") - 0.3 * cm.linear("cost") + 2.0
    problem = cm.Problem(mdp, maximize=objective, subject_to=constraints)
    simplex, conic = cm.solve(problem), cm.ConvexProgram().answer(problem, ways=["conic"])
    assert "HiGHS" in simplex.stats["solver"]
    assert "Clarabel" in conic.stats["solver"]
    assert simplex.objective == pytest.approx(conic.objective, rel=1e-7)
    assert simplex.multipliers == pytest.approx(conic.multipliers, rel=1e-5, abs=1e-6)
    assert simplex.slack == pytest.approx(conic.slack, abs=1e-6)
