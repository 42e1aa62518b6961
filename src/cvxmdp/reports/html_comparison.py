"""Findings of a report: today's policy beside the answer, and what episodes say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.base.text_tables import number
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.reports.html_data import Chapter


def beside_baseline(solution: Solution, baseline: Any) -> Chapter:
    """The answer beside another policy: objective, constraints and signals of both.

    Args:
        solution: one with a policy, of a problem with a model.
        baseline: today's policy, as ``problem.evaluate`` takes it.
    """
    problem = solution.problem
    today = problem.evaluate(baseline)
    columns = (_values(problem, today.occupancy), _values(problem, solution.measured))
    requires = {name: repr(constraint) for name, constraint in problem.constraints.items()}
    requires["objective"] = f"{problem.sense} {problem.utility!r}"
    rows = tuple(
        (name, requires.get(name, ""), number(columns[0][name]), number(columns[1][name]))
        for name in columns[0]
    )
    violated = [name for name, by in today.violation.items() if by > 0]
    change = problem.sign * (solution.objective - today.objective)
    words = "better" if change >= 0 else "worse"
    sentences = [f"The objective of this answer is {number(abs(change))} {words} than today's."]
    if violated:
        sentences.append(f"Today's policy violates {', '.join(map(repr, violated))}.")
    header = ("", "asked", "today", "this answer")
    return Chapter("Beside today's policy", tuple(sentences), header, rows)


def _values(problem: Problem, x: np.ndarray) -> dict[str, float]:
    """The objective, what each constraint compares with its budget, and signals per step."""
    found = {"objective": problem.evaluate_occupancy(x).objective}
    for name, constraint in problem.constraints.items():
        found[name] = constraint.utility.measured(problem.bind, x)
    visits = problem.space.horizon.collected(x)
    for name, signal in problem.mdp.signals.items():
        if signal.shape == visits.shape:
            found[f"signal {name}, per step"] = float(np.vdot(signal, visits) / visits.sum())
    return found


def from_episodes(evaluations: PolicyEvaluation | Mapping[str, PolicyEvaluation]) -> list[Chapter]:
    """What was measured in episodes, each with its interval."""
    given = (
        evaluations
        if isinstance(evaluations, Mapping)
        else {f"In episodes of {evaluations.source}": evaluations}
    )
    return [_evaluated(str(title), one) for title, one in given.items()]


def _evaluated(title: str, evaluation: PolicyEvaluation) -> Chapter:
    played = f"{evaluation.episodes:,} episodes, {evaluation.steps:,} steps."
    intervals = {"objective": evaluation.objective}
    intervals |= {f"slack of {name}": one for name, one in evaluation.slack.items()}
    written = {"objective": evaluation.written["objective"]}
    written |= {f"slack of {name}": evaluation.written[name] for name in evaluation.slack}
    rows = tuple(
        (name, written[name], number(i.value), number(i.lower), number(i.upper), i.method)
        for name, i in intervals.items()
    )
    header = ("", "asked", "value", "at least", "at most", "method")
    return Chapter(title, (f"{played} {evaluation.statement}",), header, rows)
