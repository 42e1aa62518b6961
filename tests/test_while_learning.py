"""Violations of the policies that are played while learning: counted, kept, and said everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.problems.while_learning import (
    learning_words,
    played_history,
    share_violated,
    violations_while_learning,
)
from cvxmdp.reports.html_data import report_data
from cvxmdp.runs.record import record_of
from strategies import small_problem

SOLVER = cm.VRPDPG(
    iterations=61,
    primal_step=0.1,
    dual_step=0.3,
    momentum=0.3,
    horizon=10,
    dual_bound=2.0,
    initial_multiplier=0.5,
    evaluate_every=20,
)


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    """Of which the first policies violate one constraint."""
    return small_problem()


@pytest.fixture(scope="module")
def solution(problem) -> cm.Solution:
    return cm.solve(problem, SOLVER, seed=3)


def test_every_policy_of_a_short_run_is_looked_at(problem, solution):
    counts, history = solution.stats["while_learning"], solution.history
    assert counts["played"] == counts["looked_at"] == 61
    np.testing.assert_array_equal(history["played"], np.arange(61))
    for name in problem.constraints:
        slack = history["played_slack"][name]
        # Exact evaluations at the ends of chunks are of the same policies.
        np.testing.assert_allclose(slack[[0, 20, 40, 60]], history["slack"][name][:4], rtol=1e-12)
        assert solution.stats["worst_while_learning"][name] == max(0.0, -slack.min())
        assert solution.stats["sum_while_learning"][name] == pytest.approx(
            np.maximum(0.0, -slack).sum()
        )
    violating = np.any([slack < 0 for slack in history["played_slack"].values()], axis=0)
    assert 0 < counts["violated"] == violating.sum()
    assert counts["last"] == np.flatnonzero(violating).max()


def test_no_average_depends_on_how_often_policies_are_evaluated(problem):
    often, seldom = (
        cm.solve(problem, replace(SOLVER, iterate="half", evaluate_every=every), seed=3)
        for every in (20, 61)
    )
    np.testing.assert_array_equal(often.policy.probabilities(), seldom.policy.probabilities())
    assert often.stats["while_learning"] == seldom.stats["while_learning"]


def test_it_is_said_in_the_answer_the_record_and_the_report(solution, problem):
    words = learning_words(solution.stats)
    assert "of the 61 policies played violated a constraint (by their exact occupancies)" in words
    assert words in str(solution)
    record = record_of(solution)
    assert record.stats["while_learning"]["played"] == 61
    name = next(iter(problem.constraints))
    np.testing.assert_array_equal(
        record.series[f"played_slack/{name}"].iterations, solution.history["played"]
    )
    page = report_data([record])
    assert words in page["headline"]
    assert page["runs"][0]["learning"] == f"{share_violated(solution.stats):.1%}"


def test_it_is_a_column_of_sweeps(problem):
    sweep = cm.sweep(problem, SOLVER, seeds=range(2), progress=False)
    row = sweep.summary()[0]
    shares = [share_violated(run.solution.stats) for run in sweep]
    assert row["learning_violated"].value == pytest.approx(np.mean(shares))
    assert "learning_violated" in str(sweep)
    assert {f"learning_worst/{name}" for name in problem.constraints} <= set(row)
    assert len(sweep.curve("played_slack/hazard")["at"]) == 61


def test_arguments_of_logarithms_count_like_slacks():
    mdp = cm.gridworld(3, discount=0.9, hazards=[4])
    barrier = cm.log_barrier(cm.linear("hazard") <= 0.5)
    problem = cm.Problem(mdp, maximize=cm.linear(np.ones(9)) + 0.1 * barrier)
    safe, costly = np.zeros((2, 9, 4))
    safe[0, 0], costly[4, 0] = 1.0, 2.0
    history = played_history(problem, np.array([0, 5]), np.stack([costly, safe]))
    np.testing.assert_allclose(history["played_slack"]["domain"], [-1.5, 0.5])
    found = violations_while_learning(problem, history, 5.0)
    assert found["while_learning"] == {"played": 10, "looked_at": 2, "violated": 5, "last": 0}
    assert found["worst_while_learning"] == {"domain": 1.5}
    assert found["sum_while_learning"] == {"domain": 7.5}
    assert "domain by 1.5 at worst, 7.5 in all" in learning_words(found)


def test_rounding_is_no_violation(problem):
    budget = problem.constraints["hazard"].budget
    slack = {"hazard": np.array([-1e-12 * budget, 0.0]), "spread": np.array([1.0, np.nan])}
    history = {"played": np.array([0, 1]), "played_slack": slack}
    found = violations_while_learning(problem, history, 1.0)
    assert found["while_learning"]["violated"] == 0
    assert learning_words(found).endswith("violated a constraint (by their exact occupancies).")
    assert learning_words({}) == learning_words({"while_learning": {}}) == ""
