"""What the policies that a learner played did to the constraints: the cost of learning, not of the answer.

A learner plays many policies before it returns one. Some of them are looked at, evenly spread, each standing
for as many as lie between it and the next: by their exact occupancies where there is a model, else by the
episodes that were played. History and statistics then say how many violated a constraint, by how much at worst,
and the sum over all that were played. Arguments of logarithms count like slacks: a policy that leaves the
domain of a barrier has violated what the barrier stands for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from cvxmdp.atoms import Shape
from cvxmdp.atoms.walks import positive_in
from cvxmdp.problems.problem import Problem

Kind = TypeVar("Kind")
COUNTS, WORST, SUM = "while_learning", "worst_while_learning", "sum_while_learning"
DOMAIN = "domain"  # the name of a logarithm's argument among the slacks
ROUNDING = 1e-9  # of a slack's own size: a violation that nobody means


def domain_of(problem: Problem) -> list[Shape]:
    """What must be positive where objective and slacks are to be finite: arguments of logarithms."""
    return positive_in(problem.functions)


def watched_slacks(problem: Problem) -> dict[str, Shape]:
    """Everything that must not be negative while learning, by name."""
    return {**_numbered(domain_of(problem)), **problem.slack_functions}


def guarded(problem: Problem) -> Problem:
    """The problem with a constraint more for every logarithm: that its argument is not negative.

    It follows from the objective; but where nothing is feasible, or margins are kept, constraints count.
    """
    utilities = (problem.utility, *(one.slack for one in problem.constraints.values()))
    inside = positive_in(utilities)
    if not inside:
        return problem
    more = {name: part >= 0.0 for name, part in _numbered(inside).items()}
    asked = {problem.sense: problem.utility}
    return Problem(problem.source, **asked, subject_to={**more, **problem.constraints})


def _numbered(inside: Sequence[Kind]) -> dict[str, Kind]:
    names = [DOMAIN] if len(inside) == 1 else [f"{DOMAIN} {k + 1}" for k in range(len(inside))]
    return dict(zip(names, inside, strict=True))


def played_history(problem: Problem, iterations: np.ndarray, visits: np.ndarray) -> dict[str, Any]:
    """For a history: objective and slacks of policies that were played.

    Args:
        problem: whose constraints and logarithms are looked at.
        iterations: (K,), at which each was played.
        visits: (K, S, A), their occupancies, or the mean ones of the episodes that were played.
    """
    slack = {
        name: np.array([float(function.value(x)) for x in visits])
        for name, function in watched_slacks(problem).items()
    }
    objective = [problem.sign * float(problem.objective_function.value(x)) for x in visits]
    found = {"played": np.asarray(iterations), "played_objective": np.array(objective)}
    return {**found, "played_slack": slack} if slack else found


def violations_while_learning(
    problem: Problem, history: Mapping[str, Any], stands_for: Any
) -> dict[str, Any]:
    """For statistics: how many of the policies played violated a constraint, the worst, and the sum.

    Args:
        problem: that was learned.
        history: with what ``played_history`` gives; without it, nothing is said.
        stands_for: how many policies each of them stands for, a number or (K,).

    Returns:
        ``while_learning``: how many were ``played``, ``looked_at``, ``violated`` and which was the ``last`` to
        violate (-1: none); ``worst_while_learning`` and ``sum_while_learning`` by constraint.
    """
    slacks = history.get("played_slack", {})
    at = np.asarray(history.get("played", ()), dtype=np.int64)
    if not slacks or not at.size:
        return {}
    weights = np.broadcast_to(np.asarray(stands_for, dtype=np.float64), at.shape)
    missed = {name: _missed(problem, name, slack) for name, slack in slacks.items()}
    violating = np.any([miss > 0 for miss in missed.values()], axis=0)
    counts = {
        "played": float(weights.sum()),
        "looked_at": float(at.size),
        "violated": float(weights[violating].sum()),
        "last": float(at[violating].max(initial=-1)),
    }
    return {
        COUNTS: counts,
        WORST: {name: float(miss.max()) for name, miss in missed.items()},
        SUM: {name: float(weights @ miss) for name, miss in missed.items()},
    }


def _missed(problem: Problem, name: str, slack: np.ndarray) -> np.ndarray:
    """max(0, -slack), where it is more than rounding of what is compared; NaN counts for nothing."""
    budget = problem.constraints[name].budget if name in problem.constraints else 0.0
    size = np.maximum(abs(budget), np.abs(slack))
    return np.where(slack < -ROUNDING * size, -slack, 0.0)


def share_violated(stats: Mapping[str, Any]) -> float | None:
    """Of the policies played; None where nothing is known."""
    counts = stats.get(COUNTS)
    if not isinstance(counts, Mapping) or not counts.get("played"):
        return None
    return float(counts.get("violated", math.nan)) / float(counts["played"])


def learning_words(stats: Mapping[str, Any], estimated: bool = False) -> str:
    """The same as a sentence; empty where nothing is known."""
    counts, share = stats.get(COUNTS, {}), share_violated(stats)
    if share is None:
        return ""
    played, looked = counts["played"], counts.get("looked_at", math.nan)
    how = "by their episodes" if estimated else "by their exact occupancies"
    if looked < played:
        source = "groups of their episodes" if estimated else "of their exact occupancies"
        how = f"by {looked:,.0f} {source}"
    some = f"{'about ' if looked < played and share else ''}{share * played:,.0f}"
    line = (
        f"While learning, {some} of the {played:,.0f} policies played violated a constraint ({how})"
    )
    if not share:
        return f"{line}."
    totals = stats.get(SUM, {})
    worst = [
        f"{name} by {most:.3g} at worst, {totals.get(name, math.nan):.3g} in all"
        for name, most in stats.get(WORST, {}).items()
        if most > 0
    ]
    return f"{line}, the last at iteration {counts.get('last', math.nan):,.0f}: {'; '.join(worst)}."
