"""Deterministic policies: against enumeration, with every horizon and concave objectives, and where none is."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.exact_neighbours import ExactNeighbours
from cvxmdp.problems.lowered import Lowered
from strategies import generator, random_model


def model(seed: int, states: int = 5, **horizon) -> cm.TabularMDP:
    return random_model(
        generator(seed), n_states=states, n_actions=3, endings=True, mask=True, **horizon
    )


def limited(mdp: cm.TabularMDP, share: float, objective: cm.Utility | None = None) -> cm.Problem:
    """A budget between the least cost and what the best policy spends."""
    cost, best = cm.linear("cost"), objective or cm.linear("reward")
    least = cm.solve(cm.Problem(mdp, minimize=cost)).objective
    free = cm.Problem(mdp, maximize=best)
    spent = float(free.bind(cost).value(cm.solve(free).measured))
    cap = {"cap": cost <= least + share * (spent - least) + 1e-9}
    return cm.Problem(mdp, maximize=best, subject_to=cap)


def best_by_enumeration(problem: cm.Problem) -> float:
    flow = problem.mdp.flow
    choices = [np.flatnonzero(row) for row in flow.actions]
    best = -np.inf
    for actions in itertools.product(*choices):
        found = problem.evaluate(np.eye(flow.shape[1])[list(actions)])
        if min(found.slack.values()) >= -1e-11:
            best = max(best, found.objective)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_against_enumeration(seed):
    problem = limited(model(seed), 0.4)
    found = cm.deterministic(problem)
    assert found.feasible
    assert found.objective == pytest.approx(best_by_enumeration(problem), rel=1e-9)
    assert set(np.unique(found.policy.probabilities())) <= {0.0, 1.0}
    assert found.bound >= found.objective - 1e-9
    assert cm.check(found.certificate, problem)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_alone_is_near(seed):
    problem = limited(model(seed + 10, 6), 0.5, cm.linear("reward") + 0.3 * cm.entropy())
    found = cm.deterministic(problem)
    assert found.feasible
    assert found.branched == ""
    assert found.objective >= best_by_enumeration(problem) - 0.02 * abs(found.objective)


@pytest.mark.parametrize("horizon", [{"horizon": 4}, {"average": True}, {"discount": 1.0}])
def test_every_horizon(horizon):
    mdp = model(21, 4)
    mdp = mdp.restarting().replace(**horizon) if "average" in horizon else mdp.replace(**horizon)
    problem = limited(mdp, 0.5)
    found = cm.deterministic(problem)
    assert found.feasible
    assert found.gap >= -1e-9
    if "horizon" not in horizon:
        assert found.objective == pytest.approx(best_by_enumeration(problem), rel=1e-7)
    assert "(proven)" in found.statement


def test_neighbours_are_exact():
    problem = limited(model(5, 6), 0.5)
    lowered = Lowered(problem)
    flow = lowered.flow
    actions = flow.deterministic.argmax(axis=1)
    near = ExactNeighbours(lowered, np.ones(1), np.ones(1), 1e-11)
    matrices = flow.visits_matrices(np.eye(3)[actions])
    change = near.best(actions, matrices, np.array([0.0, 1.0]))
    found = actions.copy()
    for state, action in change.places:
        found[state] = action
    evaluated = problem.evaluate(np.eye(3)[found])
    assert evaluated.objective == pytest.approx(change.objective, rel=1e-9)
    assert max(0.0, -evaluated.slack["cap"]) == pytest.approx(change.violation, abs=1e-9)


def test_long_stays_do_not_hide_violations():
    # Where a policy could stay for billions of steps, what a slack can be is no measure of what it is.
    grid = cm.gridworld(5, slip=0.1, goal=24, discount=1.0, step_reward=-1.0, hazards=[12])
    limit = {"hazard": cm.linear("hazard") <= 0.01}
    found = cm.deterministic(
        cm.Problem(grid, maximize=cm.linear("reward"), subject_to=limit), branch=False
    )
    assert found.feasible == (found.solution.slack["hazard"] >= 0)
    assert not found.feasible or found.gap >= -1e-9


def test_where_only_chance_is_feasible_it_is_said():
    # Two actions in one state, and between their costs exactly what half and half costs.
    mdp = cm.TabularMDP(
        np.ones((1, 2, 1)), [1.0], 0.5, signals={"reward": [[0.0, 1.0]], "cost": [[0.0, 1.0]]}
    )
    between = {"low": cm.linear("cost") >= 0.9, "high": cm.linear("cost") <= 1.1}
    found = cm.deterministic(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=between))
    assert not found.feasible
    assert "No deterministic policy was found" in found.statement
    assert "no deterministic policy is feasible" in found.branched
    none = {"cap": cm.linear("cost") <= -1.0}
    nothing = cm.deterministic(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=none))
    assert not nothing.solution.has_policy
    assert "no policy at all" in nothing.statement


@pytest.mark.long
def test_random_linear_problems_with_two_budgets(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    study, random = import_module("deterministic"), np.random.default_rng(1)
    rows = [study.measured(study.random_linear_problem(random)) for _ in range(12)]
    known = [row for row in rows if row is not None]
    assert all(row["feasible"] for row in known if row.get("exists", True))
    assert np.median([row["to the best"] for row in known if "to the best" in row]) <= 0.02


def test_a_policy_far_from_the_proven_bound_is_not_called_optimal() -> None:
    """Whatever branch and bound says of deterministic ones: the problem's policies may randomise."""
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), initial=0, discount=0.5)
    mdp = mdp.with_signals(gain=np.array([[1.0, 0.0]]), cost=np.array([[1.0, 0.0]]))
    limit = {"cost": cm.linear("cost") <= 1.0}
    found = cm.deterministic(cm.Problem(mdp, maximize=cm.linear("gain"), subject_to=limit))
    assert found.relative_gap > 0.5
    assert "no deterministic policy is better" in found.branched
    assert found.solution.status is not cm.Status.OPTIMAL
    free = cm.deterministic(cm.Problem(mdp, maximize=cm.linear("gain")))
    assert free.solution.status is cm.Status.OPTIMAL


def test_a_limit_of_time_is_a_positive_number():
    with pytest.raises(cm.SettingsError, match="positive number of seconds; got -1"):
        cm.deterministic(cm.Problem(cm.gridworld(2), maximize=cm.linear("reward")), time_limit=-1)
