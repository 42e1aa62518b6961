"""The exact solver: problems with known answers, edges of models, and how it says what went wrong."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms import conic as conic_program
from cvxmdp.algorithms import linear_program
from cvxmdp.base.errors import MissingExtraError, PolicyError, SettingsError, SolverError
from cvxmdp.solvers import convex_program
from strategies import coverage

DISCOUNT = 0.75
MASS = 1.0 / (1.0 - DISCOUNT)  # 4


def bandit(arms: int, discount: float = DISCOUNT, **signals: list[float]) -> cm.TabularMDP:
    """One state; every occupancy is MASS times a distribution p over the arms."""
    rows = {name: np.array([signal]) for name, signal in signals.items()}
    return cm.TabularMDP(np.ones((1, arms, 1)), 0, discount, signals=rows)


def shares(solution: cm.Solution) -> np.ndarray:
    """The distribution over arms that a bandit's answer plays."""
    return solution.policy.probabilities(0)


# The reference problems


def reference_problems(grid: cm.TabularMDP, expert: cm.TabularPolicy) -> dict[str, cm.Problem]:
    def safe(budget: float) -> dict[str, cm.Constraint]:
        return {"hazard": cm.linear("hazard", per="step") <= budget}

    near = cm.occupancy_of(grid, expert)
    imitate = {
        "l2": -cm.distance(expert, norm="l2"),
        "l2-squared": -0.5 * cm.distance(expert, norm="l2-squared"),
        "kl": -cm.distance(expert, norm="kl"),
    }
    around = cm.distance(cm.box(0.8 * near, 1.25 * near), norm="l2")
    reward = cm.linear("reward")
    barrier = cm.log_barrier(cm.linear("hazard") <= 1.0)
    to_point = {"near": cm.distance(expert, norm="l2") <= 1.0, **safe(0.095)}
    return {
        "safe exploration": cm.Problem(grid, maximize=cm.entropy(), subject_to=safe(0.05)),
        "safe learning": cm.Problem(grid, maximize=reward + 0.1 * barrier),
        **{
            f"apprenticeship {norm}": cm.Problem(grid, maximize=utility, subject_to=safe(0.08))
            for norm, utility in imitate.items()
        },
        "feasibility, point": cm.Problem(grid, maximize=reward, subject_to=to_point),
        "feasibility, box": cm.Problem(grid, maximize=reward, subject_to={"near": around <= 0.5}),
    }


@pytest.mark.parametrize(
    "name",
    [
        "safe exploration",
        "safe learning",
        "apprenticeship l2",
        "apprenticeship l2-squared",
        "apprenticeship kl",
        "feasibility, point",
        "feasibility, box",
    ],
)
def test_reference_problems(
    name: str, reference: dict, grid: cm.TabularMDP, expert: cm.TabularPolicy
) -> None:
    known = reference["problems"][name]
    solution = cm.solve(reference_problems(grid, expert)[name])
    assert solution.status is cm.Status.OPTIMAL
    tolerance = 1e-5 if "box" in name else 1e-6
    assert solution.objective == pytest.approx(known["optimum"], abs=tolerance)
    # the digits printed there: half a unit of the last, and the tolerance of its own solver
    digits = 1e-4 if "box" in name else 1e-5
    assert list(solution.multipliers.values()) == pytest.approx(known["multipliers"], rel=digits)
    assert max(solution.violation.values(), default=0.0) < 1e-8


def test_the_reference_covers_all_seven(
    reference: dict, grid: cm.TabularMDP, expert: cm.TabularPolicy
) -> None:
    assert set(reference_problems(grid, expert)) == set(reference["problems"])


# Solved by hand


@pytest.mark.parametrize("path", ["HiGHS", "Clarabel"])
@pytest.mark.parametrize("written", ["<=", ">=", "minimize"])
@pytest.mark.parametrize("per", ["total", "step"])
def test_linear_bandit_with_a_budget(path: str, written: str, per: str) -> None:
    # Arms pay 1 and 0.4, the first costs 1. With budget b on the cost x_1 (per step: p_1), the answer
    # plays the first arm as much as it may. Value x_1 + 0.4 (MASS - x_1): a unit of x_1 is worth 0.6,
    # so mu = 0.6, and 0.6 * MASS for the budget per step.
    mdp = bandit(2, reward=[1.0, 0.4], cost=[1.0, 0.0])
    cost = cm.linear("cost", per=per)
    budget = 1.0 if per == "total" else 0.25
    constraint = -cost >= -budget if written == ">=" else cost <= budget
    sense = "minimize" if written == "minimize" else "maximize"
    sign = -1.0 if written == "minimize" else 1.0
    problem = cm.Problem(
        mdp, **{sense: sign * cm.linear("reward")}, subject_to={"cost": constraint}
    )
    solver = cm.ConvexProgram()
    solution = solver.answer(problem) if path == "HiGHS" else solver.answer(problem, ways=["conic"])
    assert path in solution.stats["solver"]
    assert solution.objective == pytest.approx(sign * (1.0 + 0.4 * 3.0), abs=1e-8)
    assert shares(solution) == pytest.approx([0.25, 0.75], abs=1e-8)
    worth = 0.6 if per == "total" else 0.6 * MASS
    assert solution.multipliers["cost"] == pytest.approx(worth, rel=1e-7)
    assert solution.slack["cost"] == pytest.approx(0.0, abs=1e-8)


def test_linear_two_states() -> None:
    # "home": stay, or go "out", which pays 1 and leads back (one action there, the other masked). Going
    # costs 1, budget 1. With g = x(home, go): x(out) = g / 2 is the return, so mu = 1/2; home's flow
    # h = 1 + (h - g)/2 + g/4 gives h = 2 - g/2 = 3/2: go with probability 2/3.
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 0] = transition[0, 1, 1] = transition[1, 0, 0] = 1.0
    mdp = cm.TabularMDP(
        transition,
        0,
        0.5,
        signals={"pay": [[0, 0], [1, 0]], "go": [[0, 1], [0, 0]]},
        actions=[[True, True], [True, False]],
    )
    solution = cm.solve(
        cm.Problem(mdp, maximize=cm.linear("pay"), subject_to={"go": cm.linear("go") <= 1.0})
    )
    assert solution.objective == pytest.approx(0.5)
    assert solution.multipliers["go"] == pytest.approx(0.5)
    assert solution.policy.probabilities(0) == pytest.approx([1 / 3, 2 / 3])
    assert solution.policy.probabilities(1).tolist() == [1.0, 0.0]
    assert solution.occupancy == pytest.approx(np.array([[0.5, 1.0], [0.5, 0.0]]))


@pytest.mark.parametrize("target", ["entropy", "kl"])
def test_gibbs_distribution_under_a_budget(target: str) -> None:
    # max H(p) with <c, p> <= b: p proportional to exp(-mu c). With -KL(p | q) to q exp(-mu c). Choose
    # mu, and b as what this p costs.
    multiplier, cost = 1.3, np.array([0.0, 1.0, 2.5])
    prior = np.array([0.2, 0.3, 0.5]) if target == "kl" else np.ones(3) / 3
    weights = prior * np.exp(-multiplier * cost)
    p = weights / weights.sum()
    mdp = bandit(3, cost=cost.tolist())
    if target == "kl":
        objective = -cm.distance(cm.TabularPolicy(prior[None]), norm="kl")
        value = -float(p @ np.log(p / prior))
    else:
        objective, value = cm.entropy(of="state-action"), -float(p @ np.log(p))
    budget = cm.linear("cost", per="step") <= float(cost @ p)
    solution = cm.solve(cm.Problem(mdp, maximize=objective, subject_to={"cost": budget}))
    assert solution.objective == pytest.approx(value, abs=1e-8)
    assert shares(solution) == pytest.approx(p, abs=1e-6)
    assert solution.multipliers["cost"] == pytest.approx(multiplier, rel=1e-5)


def test_max_min_fairness() -> None:
    # min(x_1, 2 x_2) with x_1 + x_2 = 4 is largest where both are equal: x = (8/3, 4/3).
    mdp = bandit(2, first=[1.0, 0.0], second=[0.0, 2.0])
    fair = cm.minimum(cm.linear("first"), cm.linear("second"))
    solution = cm.solve(cm.Problem(mdp, maximize=fair))
    assert solution.objective == pytest.approx(8 / 3, abs=1e-8)
    assert shares(solution) == pytest.approx([2 / 3, 1 / 3], abs=1e-8)


def test_proportional_fairness_splits_equally() -> None:
    # sum_i log x_i with sum x_i = MASS: x_i = MASS / n.
    mdp = bandit(4, a=[1, 0, 0, 0], b=[0, 1, 0, 0], c=[0, 0, 1, 0], d=[0, 0, 0, 1])
    solution = cm.solve(cm.Problem(mdp, maximize=cm.log_sum("a", "b", "c", "d")))
    assert solution.objective == pytest.approx(4 * math.log(MASS / 4), abs=1e-8)
    assert shares(solution) == pytest.approx([0.25] * 4, abs=1e-6)


def test_proportional_fairness_with_a_budget() -> None:
    # log x_1 + log(4 - x_1) with x_1 <= 1: value log 3, mu = 1/1 - 1/3.
    mdp = bandit(2, a=[1, 0], b=[0, 1])
    constraints = {"a": cm.linear("a") <= 1.0}
    solution = cm.solve(cm.Problem(mdp, maximize=cm.log_sum("a", "b"), subject_to=constraints))
    assert solution.objective == pytest.approx(math.log(3.0), abs=1e-8)
    assert solution.multipliers["a"] == pytest.approx(2 / 3, rel=1e-6)


@pytest.mark.parametrize(("norm", "value"), [("l2", 0.8 * 3**0.5), ("l2-squared", 0.64 * 3)])
def test_projection_on_the_occupancies(norm: str, value: float) -> None:
    # The point of {x >= 0, sum x = 4} nearest to 4 * (0.8, 0.6, -0.2): take 4 * 0.2 off each, and what
    # is negative then is zero: 4 * (0.6, 0.4, 0), at distance 0.8 * sqrt(3).
    target = np.array([[3.2, 2.4, -0.8]])
    solution = cm.solve(cm.Problem(bandit(3), minimize=cm.distance(target, norm=norm)))
    assert solution.objective == pytest.approx(value, abs=1e-7)
    assert solution.occupancy == pytest.approx(np.array([[2.4, 1.6, 0.0]]), abs=1e-5)


@pytest.mark.parametrize(("norm", "worth"), [("l2", 0.5**0.5), ("l2-squared", 0.5**0.5 / 2)])
def test_staying_near_a_policy(norm: str, worth: float) -> None:
    # From (2, 2) along (1, -1)/sqrt(2) up to distance 1: x_1 = 2 + 1/sqrt(2), and that is what a unit of
    # the distance is worth; of its square, half as much at 1.
    near = cm.distance(cm.TabularPolicy([[0.5, 0.5]]), norm=norm) <= 1.0
    problem = cm.Problem(
        bandit(2, reward=[1, 0]), maximize=cm.linear("reward"), subject_to={"near": near}
    )
    solution = cm.solve(problem)
    assert solution.objective == pytest.approx(2 + 0.5**0.5, abs=1e-8)
    assert solution.multipliers["near"] == pytest.approx(worth, rel=1e-6)


def ending_model() -> cm.TabularMDP:
    """Work pays 1 and ends with probability 1/2; quitting always ends. Discount 0.8."""
    transition = np.array([[[0.5], [0.0]]])
    return cm.TabularMDP(transition, 0, 0.8, signals={"work": [[1, 0]], "quit": [[0, 1]]})


def test_a_problem_with_termination() -> None:
    # With w, q the two entries: w + q = 1 + 0.8 * w / 2, so q = 1 - 0.6 w. Quit at least 0.4 (a
    # discounted number): w = 1, and a unit of quitting costs 1 / 0.6.
    constraint = cm.linear("quit") >= 0.4
    problem = cm.Problem(
        ending_model(), maximize=cm.linear("work"), subject_to={"quit": constraint}
    )
    solution = cm.solve(problem)
    assert solution.occupancy == pytest.approx(np.array([[1.0, 0.4]]))
    assert solution.multipliers["quit"] == pytest.approx(1 / 0.6)
    assert cm.solve(problem.with_budget("quit", 0.0)).objective == pytest.approx(1 / 0.6)


# Edges of models


def test_unreachable_states_and_masked_actions() -> None:
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 0] = transition[1, :, 0] = transition[2, :, 2] = 1.0
    available = [[True, True], [True, False], [True, True]]
    mdp = cm.TabularMDP(
        transition, 0, 0.9, signals={"reward": [[0, 0], [1, 9], [100, 100]]}, actions=available
    )
    # state 2 pays 100 and is never reached; the masked action pays 9 and is never taken
    for objective in (cm.linear("reward"), cm.entropy(), cm.linear("reward") + cm.entropy()):
        solution = cm.solve(cm.Problem(mdp, maximize=objective))
        assert math.isfinite(solution.objective)
        assert (solution.occupancy[2] == 0).all()
        assert solution.occupancy[1, 1] == 0
        probabilities = solution.policy.probabilities()
        assert probabilities[1].tolist() == [1.0, 0.0]
        assert sorted(probabilities[2].tolist()) == [0.0, 1.0]  # a best response, marked as such
        assert solution.policy.fallback.tolist() == [False, False, True]
    # 0 -> 1 -> 0: state 1 every second step
    assert cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"))).objective == pytest.approx(
        0.9 / (1 - 0.81)
    )


@pytest.mark.parametrize("objective", [cm.linear("reward"), cm.entropy(), cm.log_sum("reward")])
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.999])
def test_one_state_one_action(objective: cm.Utility, discount: float) -> None:
    mdp = bandit(1, discount, reward=[2.0])
    solution = cm.solve(
        cm.Problem(mdp, maximize=objective, subject_to={"r": cm.linear("reward") >= 1.0})
    )
    assert solution.status is cm.Status.OPTIMAL
    assert solution.occupancy == pytest.approx(np.array([[1 / (1 - discount)]]))
    assert solution.objective == pytest.approx(
        float(objective.lower(mdp).value(solution.occupancy)), abs=1e-8
    )


def test_discount_zero_looks_one_step_ahead() -> None:
    mdp = cm.garnet(5, 3, 2, seed=1, discount=0.0)
    solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    assert solution.objective == pytest.approx(mdp.signal("reward").max(axis=1).mean())


@pytest.mark.parametrize("nonlinear", [False, True])
def test_twelve_constraints_of_which_one_binds(nonlinear: bool) -> None:
    mdp = bandit(2, reward=[1.0, 0.0], cost=[1.0, 0.0])
    objective = cm.linear("reward") - (0.01 * cm.quadratic(weights=[1.0]) if nonlinear else 0.0)
    constraints = {f"limit {k}": cm.linear("cost") <= 1.0 + 0.2 * k for k in range(12)}
    solution = cm.solve(cm.Problem(mdp, maximize=objective, subject_to=constraints))
    assert solution.slack["limit 0"] == pytest.approx(0.0, abs=1e-7)
    assert solution.multipliers["limit 0"] > 0.5
    others = list(constraints)[1:]
    assert [solution.multipliers[name] for name in others] == pytest.approx([0.0] * 11, abs=1e-6)


@pytest.mark.parametrize("discount", [0.99, 0.999])
def test_long_horizons(discount: float) -> None:
    # One more unit of discounted sum is worth what one more per step is, divided by the mass.
    mdp = cm.garnet(15, 3, 4, seed=3, discount=discount)
    objective = cm.linear("reward", per="step") + 0.1 * cm.entropy()
    per_step = cm.Problem(
        mdp, maximize=objective, subject_to={"c": cm.linear("cost", per="step") <= 0.4}
    )
    total = cm.Problem(
        mdp, maximize=objective, subject_to={"c": cm.linear("cost") <= 0.4 * mdp.max_mass}
    )
    first, second = cm.solve(per_step), cm.solve(total)
    assert first.status is second.status is cm.Status.OPTIMAL
    assert first.objective == pytest.approx(second.objective, rel=1e-8)
    assert first.multipliers["c"] == pytest.approx(second.multipliers["c"] * mdp.max_mass, rel=1e-5)


@pytest.mark.parametrize("objective_unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("cost_unit", [1e-12, 1e-9, 1.0, 1e6])
@pytest.mark.parametrize("curved", [False, True])
def test_units_do_not_matter(objective_unit: float, cost_unit: float, curved: bool) -> None:
    mdp = cm.garnet(12, 3, 4, seed=1, discount=0.9)
    reward, cost = mdp.signal("reward"), mdp.signal("cost")

    def solve_in(unit: float, per: float) -> cm.Solution:
        objective = cm.linear(unit * reward) + (unit * cm.entropy() if curved else 0.0)
        constraints = {"cost": cm.linear(per * cost) <= 3.0 * per}
        return cm.solve(cm.Problem(mdp, maximize=objective, subject_to=constraints))

    plain, other = solve_in(1.0, 1.0), solve_in(objective_unit, cost_unit)
    assert other.status is cm.Status.OPTIMAL
    assert other.objective / objective_unit == pytest.approx(plain.objective, rel=1e-7)
    assert other.slack["cost"] / cost_unit == pytest.approx(0.0, abs=1e-7)
    multiplier = other.multipliers["cost"] * cost_unit / objective_unit
    assert multiplier == pytest.approx(plain.multipliers["cost"], rel=1e-4)


@pytest.mark.parametrize("objective", [cm.linear("reward"), cm.entropy()])
def test_a_huge_budget_is_no_budget(objective: cm.Utility) -> None:
    mdp = cm.garnet(6, 3, 3, seed=0, discount=0.9)
    free = cm.solve(cm.Problem(mdp, maximize=objective))
    held = cm.solve(
        cm.Problem(mdp, maximize=objective, subject_to={"cost": cm.linear("cost") <= 1e20})
    )
    assert held.status is cm.Status.OPTIMAL
    assert held.objective == pytest.approx(free.objective, rel=1e-8)
    assert held.multipliers["cost"] == pytest.approx(0.0, abs=1e-8)
    shown = next(line for line in str(held).splitlines() if line.startswith("cost"))
    value = float(np.vdot(mdp.signal("cost"), held.occupancy))
    assert f"{value:.7g}" in shown


def test_a_larger_linear_problem_goes_to_the_interior_point() -> None:
    mdp = cm.garnet(linear_program.SIMPLEX_LIMIT + 1, 2, 3, seed=0, discount=0.9)
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 4.0}
    )
    solution = cm.solve(problem)
    conic = cm.ConvexProgram().answer(problem, ways=["conic"])
    assert "interior point" in solution.stats["solver"]
    assert solution.objective == pytest.approx(conic.objective, rel=1e-7)
    assert solution.multipliers["cost"] == pytest.approx(conic.multipliers["cost"], rel=1e-5)
    assert cm.solve(problem.with_budget("cost", 0.1)).status is cm.Status.INFEASIBLE


# What can go wrong


@pytest.mark.parametrize("objective", [cm.linear("reward"), cm.entropy()])
def test_infeasible_is_a_status(objective: cm.Utility) -> None:
    mdp = bandit(2, reward=[1.0, 2.0], cost=[1.0, 2.0])
    solution = cm.solve(
        cm.Problem(mdp, maximize=objective, subject_to={"cost": cm.linear("cost") <= 3.9})
    )
    assert solution.status is cm.Status.INFEASIBLE
    assert not solution.status.has_policy
    assert not solution.has_policy
    with pytest.raises(PolicyError, match="has no policy: no policy satisfies"):
        _ = solution.policy
    with pytest.raises(PolicyError, match="has no occupancy: no policy satisfies"):
        _ = solution.occupancy
    assert math.isnan(solution.objective)
    assert math.isnan(solution.slack["cost"])
    assert "no policy satisfies 'cost' (proven)" in str(solution)


def test_an_empty_domain_without_constraints_is_said_so() -> None:
    mdp = bandit(2, cost=[1.0, 2.0])
    problem = cm.Problem(mdp, maximize=cm.log_barrier(cm.linear("cost") <= 3.9))
    solution = cm.solve(problem)
    assert solution.status is cm.Status.INFEASIBLE
    assert "The objective is infinite for every policy" in solution.message
    # No number: what is proven is proven of arguments and slacks in units of their own.
    assert solution.message.endswith("What must be positive in it is not (proven).")


def exploration(budget: float) -> cm.Problem:
    mdp = cm.garnet(10, 3, 3, seed=0, discount=0.9)
    return cm.Problem(
        mdp, maximize=cm.entropy(), subject_to={"cost": cm.linear("cost", per="step") <= budget}
    )


WORDS = (
    "optimal",
    "optimal_inaccurate",
    "infeasible",
    "infeasible_inaccurate",
    "user_limit",
    "broke",
)


@pytest.mark.parametrize("budget", [0.4, -0.1])
@pytest.mark.parametrize("word", WORDS)
def test_no_solver_is_taken_at_its_word(
    word: str, budget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = conic_program._call_clarabel
    known = cm.solve(exploration(0.4))

    def pretend(*arguments: object, **further: object) -> str:
        real(*arguments, **further)
        return word

    monkeypatch.setattr(conic_program, "_call_clarabel", pretend)
    solution = cm.solve(exploration(budget))
    if budget < 0:
        # The proof is found by columns where Clarabel has no policy to offer.
        assert solution.status is cm.Status.INFEASIBLE
        assert "(proven)" in solution.message
    else:
        # Without Clarabel's policy, columns come close.
        close = word.startswith("infeasible")
        assert solution.status is (cm.Status.INACCURATE if close else cm.Status.OPTIMAL)
        assert "certified relative gap" in solution.message
        assert solution.objective == pytest.approx(known.objective, abs=1e-5)


def test_columns_stand_in_for_clarabel(monkeypatch: pytest.MonkeyPatch) -> None:
    known = cm.solve(exploration(0.4))
    monkeypatch.setattr(conic_program, "_call_clarabel", lambda *a, **further: "it broke")
    solution = cm.solve(exploration(0.4))
    assert "column generation" in solution.stats["solver"]
    assert solution.stats["certified_gap"] < 1e-4
    assert solution.violation == {"cost": 0.0}
    assert solution.objective == pytest.approx(known.objective, abs=1e-5)


def test_another_solver_stands_in_for_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = cm.garnet(20, 3, 3, seed=0)
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 8.0}
    )
    known, real = cm.solve(problem), linear_program.linprog

    def stopped(*arguments: object, options: dict, **further: object) -> object:
        return real(*arguments, options={**options, "maxiter": 1}, **further)

    monkeypatch.setattr(linear_program, "linprog", stopped)
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    assert "Clarabel" in solution.stats["solver"]
    assert solution.objective == pytest.approx(known.objective, rel=1e-7)


def test_what_is_known_is_said_where_no_way_has_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = conic_program._call_clarabel
    monkeypatch.setattr(
        conic_program, "_call_clarabel", lambda *a, **further: real(*a, **further, max_iter=4)
    )
    solution = cm.ConvexProgram().answer(exploration(0.4), ways=["conic"])
    assert solution.status is cm.Status.INACCURATE
    assert "inaccurate" in solution.message
    assert "relative gap" in solution.message
    assert str(solution).startswith("Inaccurate")
    assert math.isfinite(solution.objective)


@pytest.mark.slow
def test_a_budget_at_the_edge_of_feasibility_is_never_called_optimal_wrongly(
    grid: cm.TabularMDP,
) -> None:
    # 1e-4 per step is just above the least that any policy can do: no room for an interior point.
    problem = cm.Problem(
        grid,
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") <= 1e-4},
    )
    solution = cm.solve(problem)
    assert solution.status in (cm.Status.INACCURATE, cm.Status.OPTIMAL)
    if solution.status is cm.Status.OPTIMAL:
        assert solution.violation["hazard"] < 1e-10
    assert "nan" not in str(solution)


def test_own_functions_are_sent_to_solvers_that_can_do_them() -> None:
    mdp = cm.garnet(5, 2, 2, seed=0)
    with pytest.raises(SolverError, match=r"coverage.*PDPG"):
        cm.solve(cm.Problem(mdp, maximize=coverage), cm.ConvexProgram())
    with pytest.raises(SolverError, match=r"coverage >= 0.*PDPG"):
        cm.solve(
            cm.Problem(mdp, maximize=cm.entropy(), subject_to={"c": coverage >= 0.0}),
            cm.ConvexProgram(),
        )


def test_missing_cvxpy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingExtraError, match=r"cvxmdp\[convex\]"):
        cm.solve(exploration(0.4))
    mdp = bandit(2, reward=[1.0, 2.0])  # a linear problem needs SciPy only
    assert cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"))).objective == pytest.approx(8.0)


@pytest.mark.parametrize("tolerance", [0.0, -1e-8, 0.5, math.nan, "tight"])
def test_tolerances_out_of_range(tolerance: object) -> None:
    with pytest.raises(SettingsError, match="tolerance must be positive and at most"):
        cm.ConvexProgram(tolerance=tolerance)


def test_log_barrier_of_a_squared_distance() -> None:
    near = cm.distance(cm.TabularPolicy([[0.5, 0.5]]), norm="l2-squared") <= 2.0
    problem = cm.Problem(bandit(2), maximize=cm.log_barrier(near))
    assert cm.solve(problem).objective == pytest.approx(math.log(2.0))


# No status without its own evidence


def test_a_quadratic_of_huge_numbers_is_not_called_infeasible() -> None:
    mdp = cm.TabularMDP(np.ones((1, 1, 1)), 0, 0.999)
    problem = cm.Problem(
        mdp,
        minimize=cm.quadratic(weights=[[1]]),
        subject_to={"q": cm.quadratic(factor=[[8], [7]]) <= 1.1865e8},
    )
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.objective == pytest.approx(1e6)


@pytest.mark.parametrize("seed", range(3))
def test_below_the_least_cost_the_proof_says_so(seed: int) -> None:
    mdp = cm.garnet(6, 3, 3, discount=0.95, seed=103 + seed)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    for objective in (cm.entropy(), cm.linear("reward")):
        budget = {"cost": cm.linear("cost") <= least - 1e-6}
        problem = cm.Problem(mdp, maximize=objective, subject_to=budget)
        solution = cm.solve(problem)
        assert solution.status is cm.Status.INFEASIBLE
        assert "(proven)" in solution.message
        assert cm.certify(problem, solution).infeasible


@pytest.mark.parametrize("seed", range(6))
def test_an_optimal_answer_is_the_feasible_one(seed: int) -> None:
    mdp = cm.garnet(8, 3, 3, discount=0.95, seed=seed)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 1.2 * least}
    )
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.violation == {"cost": 0.0}
    assert not certificate.repaired
    assert certificate.relative_gap < 1e-9
    assert certificate.policy is not None
    assert (certificate.policy.probabilities() == solution.policy.probabilities()).all()


UNITS: dict[str, Callable[[float], cm.Utility]] = {
    "log_sum": lambda unit: cm.log_sum(unit * REWARDS[0], unit * REWARDS[1]),
    "log_sum per step": lambda unit: cm.log_sum(
        cm.linear(unit * REWARDS[0], per="step"), cm.linear(REWARDS[1], per="step")
    ),
    "minimum": lambda unit: cm.minimum(cm.linear(unit * REWARDS[0]), cm.linear(unit * REWARDS[1])),
    "sqrt": lambda unit: cm.sqrt(cm.linear(unit * REWARDS[0])) + cm.sqrt(cm.linear(REWARDS[1])),
    "l1": lambda unit: -cm.distance(unit * REWARDS[0], norm="l1"),
    "l2": lambda unit: -cm.distance(unit * REWARDS[0], norm="l2"),
    "squares": lambda unit: -cm.quadratic(weights=unit * REWARDS[0]),
}
REWARDS = np.random.default_rng(0).random((2, 12, 3))


@pytest.mark.parametrize("discount", [0.9, 0.9999])
@pytest.mark.parametrize("unit", [1e-8, 1e6, 1e9])
@pytest.mark.parametrize("written", sorted(UNITS))
def test_one_conic_program_is_enough_in_every_unit(
    written: str, unit: float, discount: float
) -> None:
    problem = cm.Problem(
        cm.garnet(12, 3, 3, discount=discount, seed=1),
        maximize=UNITS[written](unit),
        subject_to={"cost": cm.linear(unit * REWARDS[1], per="step") <= 0.6 * unit},
    )
    solution = cm.ConvexProgram().answer(problem, ways=[convex_program.CONIC])
    assert solution.status is cm.Status.OPTIMAL, solution.message


@pytest.mark.parametrize("unit", [1e-8, 1e6, 1e8])
def test_a_bound_under_a_kl_budget_is_as_tight_in_every_unit(unit: float) -> None:
    mdp = cm.garnet(12, 3, 3, discount=0.95, seed=1)
    uniform = cm.TabularPolicy(np.full((12, 3), 1 / 3))
    near = cm.distance(uniform, norm="kl", of="actions") <= 0.02
    problem = cm.Problem(mdp, maximize=cm.linear(unit * REWARDS[0]), subject_to={"near": near})
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.gap <= 1e-8 * abs(certificate.upper)


def test_a_logarithm_of_nothing_is_no_answer() -> None:
    mdp = cm.garnet(6, 3, 3, discount=0.9, seed=0)
    problem = cm.Problem(mdp, maximize=cm.log_sum(REWARDS[0][:6], np.zeros((6, 3))))
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.status is cm.Status.INACCURATE
    assert "No policy was found at which the objective is finite" in solution.message


@pytest.mark.parametrize("held", [False, True])
def test_an_empty_domain_is_not_blamed_on_the_constraints(held: bool) -> None:
    mdp = cm.garnet(10, 3, 3, discount=0.9, seed=1)
    barrier = cm.log_barrier(cm.linear(np.ones((10, 3))) <= 5)
    constraints = {"reward": cm.linear("reward") >= -1000} if held else {}
    solution = cm.solve(cm.Problem(mdp, maximize=barrier, subject_to=constraints))
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.message.startswith("The objective is infinite for every policy")


@pytest.mark.parametrize("solver", [cm.ConvexProgram(), cm.ColumnGeneration()])
def test_a_constraint_that_always_holds_with_nothing_to_spare(solver: object) -> None:
    one = bandit(2, reward=[1.0, 2.0])
    flat = cm.linear(np.full((1, 2), 1.625)) <= 6.5
    every = cm.garnet(8, 3, 3, discount=0.95, seed=1)
    ones = cm.linear(np.ones((8, 3)), per="step") <= 1
    for mdp, constraint in ((one, flat), (every, ones)):
        problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"c": constraint})
        solution = cm.solve(problem, solver)
        free = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
        assert solution.status is cm.Status.OPTIMAL
        assert "up to rounding" in solution.message
        assert solution.objective == pytest.approx(free.objective, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
@pytest.mark.parametrize("solver", [cm.ConvexProgram(), cm.ColumnGeneration()])
@pytest.mark.parametrize("norm", ["l1", "l2-squared", "kl"])
def test_an_optimum_of_exactly_zero_is_found_and_called_optimal(
    norm: str, solver: object, unit: float, tmp_path: Path
) -> None:
    mdp = cm.garnet(4, 2, 2, discount=0.9, seed=0)
    best = cm.uniform_policy(mdp)  # the policy that relative gaps otherwise refer to
    problem = cm.Problem(mdp, minimize=unit * cm.distance(best, norm=norm))
    solution = cm.solve(problem, solver)
    assert solution.status is cm.Status.OPTIMAL, solution.message
    certificate = cm.certify(problem, solution)
    assert certificate.gap <= 1e-8 * unit
    assert (
        certificate.relative_gap <= 1e-6
    )  # one notion of it: the solver's, the certificate's and the file's
    assert f"relative {certificate.relative_gap:.2g} to what moving" in str(certificate)
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", problem)
    read = cm.Certificate.from_json((tmp_path / "certificate.json").read_text("utf-8"))
    assert read.relative_gap == certificate.relative_gap


def test_nothing_to_gain_is_certified_without_a_gap() -> None:
    mdp = cm.garnet(6, 3, 3, discount=0.9, seed=0)
    problem = cm.Problem(mdp, maximize=cm.linear(np.zeros((6, 3))))
    certificate = cm.certify(problem, cm.uniform_policy(mdp))
    assert certificate.gap < 1e-290
    assert certificate.relative_gap == 0.0


def in_unequal_units(seed: int, unit: float) -> cm.Problem:
    """A cost in tiny units and a quadratic in plain ones; both bind, and both have room."""
    mdp = cm.garnet(8, 3, 8, seed=seed, discount=0.9)
    cost = cm.linear(unit * np.asarray(mdp.signals["cost"]))
    bent = cm.quadratic(factor=np.random.default_rng(seed).normal(size=(2, 24)))
    least, plain = cm.solve(cm.Problem(mdp, minimize=cost)), np.full((8, 3), 1 / 3)
    usual = least.problem.evaluate(plain).objective
    budget = {"cost": cost <= 0.95 * least.objective + 0.05 * usual}
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget))
    flattest = cm.solve(cm.Problem(mdp, minimize=bent, subject_to=budget))
    bends = flattest.problem.evaluate(best.policy).objective
    limit = {"bent": bent <= 0.3 * bends + 0.7 * flattest.objective}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget | limit)


@pytest.mark.parametrize(("seed", "unit"), [(1, 1e-6), (2, 1e-9)])
def test_room_is_found_whatever_the_units_of_the_constraints(seed, unit):
    """The largest smallest slack says little where one slack is 1e-9 of the other."""
    problem = in_unequal_units(seed, unit)
    found = cm.solve(problem, cm.ConvexProgram())
    assert found.status is cm.Status.OPTIMAL
    assert "no room" not in found.message
    certificate = cm.certify(problem, found)
    assert certificate.feasible
    assert not certificate.repaired
    assert certificate.relative_gap <= 1e-9
