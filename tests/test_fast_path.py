"""The fast path by default: what is chosen, what is computed once, and what does not depend on threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.columns import column_places, compiled_dual
from cvxmdp.algorithms.columns.aggregates import aggregates_of
from cvxmdp.algorithms.columns.column_places import place_for
from cvxmdp.algorithms.columns.compiled_dual import dual_of
from cvxmdp.algorithms.columns.flow_duals import absorb, only_leaf
from cvxmdp.certificates import evidence
from cvxmdp.checker.arithmetic import total
from cvxmdp.models.episode_flow import DiscountedFlow
from cvxmdp.problems.lowered import Lowered
from cvxmdp.solvers.exact_choice import choose_exact


def garnet_problem(n_states: int, budgets: bool, entropy: bool = False) -> cm.Problem:
    mdp = cm.garnet(n_states, 5, 5, seed=1)
    objective = cm.linear("reward", per="step")
    subject_to = {"cost": cm.linear("cost", per="step") <= 0.4} if budgets else {}
    return cm.Problem(
        mdp, maximize=cm.entropy() + objective if entropy else objective, subject_to=subject_to
    )


@pytest.mark.parametrize(
    ("n_states", "budgets", "entropy", "solver"),
    [
        (20, False, False, "ConvexProgram"),
        (100, False, False, "ColumnGeneration"),
        (200, True, False, "ConvexProgram"),
        (600, True, False, "ColumnGeneration"),
        (100, True, True, "ConvexProgram"),
        (300, True, True, "ColumnGeneration"),
    ],
)
def test_solve_takes_what_is_fastest_and_says_why(n_states, budgets, entropy, solver) -> None:
    found = cm.solve(garnet_problem(n_states, budgets, entropy))
    assert found.status is cm.Status.OPTIMAL
    assert found.stats["solver"].startswith(solver)
    chosen = found.stats["chosen"]
    if entropy and solver == "ColumnGeneration":
        assert "more digits" in chosen
        assert found.stats["certified_gap"] <= 1e-4
    else:
        assert found.stats["certified_gap"] <= 1e-6


def test_curved_functions_of_a_few_returns_count_as_linear() -> None:
    """A minimum or a logarithm of returns is a few numbers of each column; a distance looks at all pairs."""
    mdp = cm.garnet(500, 5, 5, seed=7)
    reward, cost = (cm.linear(name, per="step") for name in ("reward", "cost"))
    for objective in (cm.minimum(reward, 0.9 - cost), cm.log_sum(reward, cost), -cm.square(cost)):
        solver, reason = choose_exact(cm.Problem(mdp, maximize=objective))
        assert isinstance(solver, cm.ColumnGeneration)
        assert "more digits" in reason
    near = cm.distance(cm.uniform_policy(mdp), norm="l1")
    for one in (near + 0.1 * cm.square(cost), near + cost):
        assert isinstance(choose_exact(cm.Problem(mdp, minimize=one))[0], cm.ConvexProgram)
    found = cm.solve(cm.Problem(mdp, maximize=cm.log_sum(reward, cost)))
    assert found.stats["certified_gap"] <= 1e-4


def test_what_columns_close_only_where_models_mix_is_left_to_one_program_on_grids() -> None:
    """Entropies over time or in a constraint, and the smallest of a few returns."""

    def problems(mdp: cm.TabularMDP) -> list[cm.Problem]:
        rewards = np.random.default_rng(0).random((2, mdp.n_states, mdp.n_actions))
        one, other = (cm.linear(reward, per="step") for reward in rewards)
        return [
            cm.Problem(mdp, maximize=one, subject_to={"spread": cm.entropy() >= 1.0}),
            cm.Problem(mdp, maximize=cm.minimum(one, other)),
        ]

    quick = cm.garnet(600, 5, 5, seed=1)
    timed = cm.garnet(60, 5, 5, seed=1, horizon=10)
    for problem in (*problems(quick), cm.Problem(timed, maximize=cm.entropy())):
        assert isinstance(choose_exact(problem)[0], cm.ColumnGeneration)
    slow = cm.gridworld(30, discount=0.99)
    timed = cm.gridworld(10, slip=0.1, horizon=20)
    for problem in (*problems(slow), cm.Problem(timed, maximize=cm.entropy())):
        assert isinstance(choose_exact(problem)[0], cm.ConvexProgram)


def test_a_policy_that_may_stay_for_ever_is_left_to_one_program() -> None:
    n = 60  # states in a row; waiting costs one and may last for ever
    transition = np.zeros((n, 4, n))
    for state in range(n):
        transition[state, :3, state] = 1.0
        if state + 1 < n:
            transition[state, 3, state + 1] = 1.0
    mdp = cm.TabularMDP(
        transition, initial=np.eye(n)[0], discount=1, signals={"cost": np.ones((n, 4))}
    )
    found = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost")))
    assert found.stats["solver"].startswith("ConvexProgram")
    assert found.objective == pytest.approx(n)


def test_the_smoothed_dual_bounds_and_its_slope_is_its_derivative() -> None:
    problem = garnet_problem(40, True, entropy=True)
    lowered = Lowered(problem)
    leaf = only_leaf(lowered)
    dual = dual_of(lowered, leaf, place_for(lowered.flow, affine=False))
    random = np.random.default_rng(0)
    values, mu = random.normal(size=40), np.array([0.7])
    step, more = 1e-6 * random.normal(size=40), np.array([1e-6])
    here = dual.at(values, mu)
    above, below = (dual.at(values + k * step, mu + k * more) for k in (1, -1))
    expected = here.slope @ np.append(step, more)
    assert (above.value - below.value) / 2 == pytest.approx(expected, rel=1e-5)

    best = cm.solve(problem, cm.ConvexProgram()).objective
    point = dual.descend(lowered.flow.uniform, 1.0, 200)
    named = dict(zip(lowered.slacks, point.multipliers.tolist(), strict=True))
    tangents = lowered.tangents_at(lowered.flow.uniform_occupancy)
    bound = absorb(lowered, leaf, named, tangents, point.values, point.following)
    assert best <= bound.upper + 1e-9
    assert bound.upper == pytest.approx(best, rel=0.05)


def test_a_compiled_descent_is_the_descent_of_the_host(monkeypatch) -> None:
    problem = garnet_problem(40, True, entropy=True)
    lowered = Lowered(problem)
    leaf, points = only_leaf(lowered), []
    monkeypatch.setattr(compiled_dual, "LONGER", 1)
    for there in (False, True):
        monkeypatch.setattr(column_places, "accelerator", lambda n_states, there=there: there)
        dual = dual_of(lowered, leaf, place_for(lowered.flow, affine=False))
        points.append([dual.descend(lowered.flow.uniform, 1.0, 12) for _ in range(2)][-1])
    host, device = points
    assert device.value == pytest.approx(host.value, rel=1e-9)
    np.testing.assert_allclose(device.multipliers, host.multipliers, rtol=1e-5)
    np.testing.assert_allclose(device.policy, host.policy, atol=1e-6)


def test_the_dual_of_pairs_gives_policies_as_columns() -> None:
    mdp = cm.gridworld(24, slip=0.1, discount=0.99, start=0, hazards=[5, 77, 200])
    budget = {"hazard": cm.linear("hazard", per="step") <= 0.01}
    problem = cm.Problem(mdp, maximize=cm.entropy(of="state-action"), subject_to=budget)
    found = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-3))
    assert found.stats["solver"] == "ColumnGeneration"
    assert found.status is cm.Status.OPTIMAL
    assert (found.history["upper"] >= found.history["lower"]).all()


def test_groups_of_states_give_a_positive_preconditioner_where_news_travel_slowly() -> None:
    side = 13
    found = aggregates_of(cm.gridworld(side, slip=0.1, discount=0.99).flow)
    assert found.parents
    assert not aggregates_of(cm.garnet(200, 5, 5, seed=1).flow).parents
    columns = np.eye(side * side + 1)
    matrix = np.array([found.applied(column) for column in columns])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() >= 1.0 - 1e-9
    slope = np.random.default_rng(0).normal(size=side * side + 1)
    there = aggregates_of(cm.gridworld(side, slip=0.1, discount=0.99).flow).applied(
        jnp.asarray(slope)
    )
    np.testing.assert_allclose(there, found.applied(slope), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [0, 1, 999, 1_000, 1_001, 2_000, 54_321])
def test_sums_of_the_checker_are_rounded_once(size: int) -> None:
    random = np.random.default_rng(size)
    terms = random.standard_normal(size) * 10.0 ** random.integers(-12, 12, size)
    assert total(terms)[0] == pytest.approx(
        math.fsum(terms), rel=1e-15, abs=1e-24 * np.abs(terms).sum()
    )


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_units_of_a_budget_do_not_slow_the_dual(unit: float) -> None:
    side = 20
    hazards = [s for s in range(0, side * side, 7) if s != 210]
    mdp = cm.gridworld(side, slip=0.1, discount=0.99, start=210, hazards=hazards)
    budget = {"hazard": unit * cm.linear("hazard", per="step") <= unit * 0.05}
    found = cm.solve(
        cm.Problem(mdp, maximize=cm.entropy(), subject_to=budget),
        cm.ColumnGeneration(tolerance=1e-3),
    )
    assert found.status is cm.Status.OPTIMAL
    assert found.stats["iterations"] <= 30


def test_the_uniform_policy_is_evaluated_once(monkeypatch) -> None:
    evaluated = []
    own = DiscountedFlow.sketched

    def counted(flow, policy):
        evaluated.append(np.allclose(policy, flow.uniform))
        return own(flow, policy)

    monkeypatch.setattr(DiscountedFlow, "sketched", counted)
    problem = garnet_problem(2_000, False)
    found = cm.solve(problem)
    assert not evaluated  # one policy is the answer, and its bounds are nowhere near zero
    certificate = cm.certify(problem, found)
    assert evaluated.count(True) == 1
    assert found.stats["oracle_calls"] == 1
    assert certificate.relative_gap <= 1e-6


def test_states_never_visited_cost_no_second_solve_of_a_large_model(monkeypatch) -> None:
    mdp = cm.gridworld(45, slip=0.0, discount=0.95, start=0, hazards=[200])
    problem = cm.Problem(mdp, maximize=cm.linear("hazard", per="step"))
    monkeypatch.setattr(DiscountedFlow, "best_values", None)
    found = cm.solve(problem)
    assert found.status is cm.Status.OPTIMAL
    assert found.policy.fallback[
        -1
    ]  # the far corner, from where the way is the best one nevertheless
    far = mdp.replace(initial=np.eye(45 * 45)[-1])
    other = cm.Problem(far, maximize=cm.linear("hazard", per="step"))
    best = cm.solve(other).objective
    assert other.evaluate(found.policy).objective == pytest.approx(best, rel=1e-6)


def test_certify_measures_the_occupancy_it_is_given_and_believes_nothing() -> None:
    problem = garnet_problem(2_000, True)
    found = cm.solve(problem)
    honest = cm.certify(problem, found)
    object.__setattr__(found, "occupancy_or_none", np.roll(found.occupancy, 1, axis=0))
    assert cm.certify(problem, found).lower == pytest.approx(honest.lower, rel=1e-9)


# Beyond 10,000 numbers OpenBLAS adds up with threads, beyond 16,384 rows actions are chosen by them.
THREADS = """
import cvxmdp as cm
mdp = cm.garnet(20_000, 3, 3, seed=1)
budget = {"cost": cm.linear("cost", per="step") <= 0.4}
problem = cm.Problem(mdp, maximize=cm.linear("reward", per="step"), subject_to=budget)
found = cm.solve(problem)
print(found.objective.hex(), found.stats["certified_gap"].hex(), found.stats["policy_sweeps"])
print(cm.certify(problem, found).upper.hex())
"""


def test_answers_do_not_depend_on_threads() -> None:
    told = []
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", THREADS],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]


def test_a_search_for_a_proof_ends_after_its_time() -> None:
    taken = list(evidence.steps("looking", 1_000_000, seconds=0.0))
    assert len(taken) < 100_000
