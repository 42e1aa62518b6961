r"""least_cvar: the policy whose worst episodes cost least, over all thresholds.

phi(t) = min over policies of t + E (C - t)^+ / (1 - a) is solved for one threshold t at a time; the least CVaR
is its least value, and for every policy the best t is a level. In t it rises by at most 1 and falls by at most
a / (1 - a) per unit, so a solved threshold bounds its neighbours, and most levels need no solve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cvxmdp.atoms import Constraint
from cvxmdp.atoms.tails import cvar
from cvxmdp.base.errors import ProblemError
from cvxmdp.base.text_tables import number
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.models.budget_states import SO_FAR
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.runs.solving import solve


@dataclass(frozen=True, eq=False)
class TailRisk:
    """The least CVaR of an episode's cost.

    Attributes:
        cvar: of the policy, proven: its worst episodes cost no more in the mean.
        bound: proven: no policy that satisfies the constraints has a smaller one.
        threshold: the best auxiliary threshold: a quantile of the cost (the value at risk).
        solution, certificate: of the problem with that threshold; None where no policy is feasible.
        solves: thresholds that were solved.
    """

    cvar: float
    bound: float
    threshold: float
    solution: Solution | None
    certificate: Certificate | None
    solves: int

    def __str__(self) -> str:
        if self.solution is None:
            return "No policy satisfies the constraints."
        head = (
            f"CVaR {number(self.cvar)} at the threshold {number(self.threshold)}; no policy has one below "
            f"{number(self.bound)} (proven; {self.solves} thresholds solved)."
        )
        return f"{head}\n\n{self.solution}"


def least_cvar(
    mdp: TabularMDP,
    cost: str,
    level: float,
    *,
    subject_to: Mapping[str, Constraint] | None = None,
    tolerance: float = 1e-6,
) -> TailRisk:
    """The policy with the least CVaR of an episode's cost, certified over all policies and thresholds.

    Args:
        mdp: a model with a budget state: ``mdp.with_budget_state(cost, levels)``.
        cost: the signal's name.
        level: such as 0.95: the mean of the worst 5% of the episodes.
        subject_to: further constraints by name.
        tolerance: thresholds that cannot be better by more than this, relative to the CVaR, are not solved.
    """
    if cost + SO_FAR not in mdp.signal_names:
        raise ProblemError(
            f"the model has no budget state of {cost!r}: mdp.with_budget_state({cost!r}, levels=...)"
        )
    levels = np.unique(mdp.signal(cost + SO_FAR)[mdp.reachable_pairs & (mdp.ending > 0)])
    falls = level / (1.0 - level)
    best, solved = TailRisk(math.inf, math.inf, math.nan, None, None, 0), 0
    bounds = levels.copy()  # phi(t) >= t
    left = np.ones(levels.size, dtype=bool)
    while left.any():
        enough = best.cvar - tolerance * max(1.0, abs(best.cvar)) if solved else math.inf
        if not (bounds[left] < enough).any():
            break
        k = int(np.argmin(np.where(left, bounds, np.inf)))
        left[k], solved = False, solved + 1
        found = _at(mdp, cost, level, float(levels[k]), subject_to)
        if found is None:  # whatever t is, the same constraints hold
            return TailRisk(math.nan, math.nan, math.nan, None, None, solved)
        bounds[k] = found.bound
        away = levels - levels[k]
        bounds = np.maximum(bounds, found.bound - np.where(away > 0, falls * away, -away))
        if found.cvar < best.cvar:
            best = found
    least = min(float(bounds.min()), best.cvar)
    return TailRisk(best.cvar, least, best.threshold, best.solution, best.certificate, solved)


def _at(
    mdp: TabularMDP,
    cost: str,
    level: float,
    threshold: float,
    subject_to: Mapping[str, Constraint] | None,
) -> TailRisk | None:
    """One threshold; None where the constraints cannot be met."""
    problem = Problem(mdp, minimize=cvar(cost, level, threshold), subject_to=subject_to)
    solution = solve(problem, progress=False)
    if not solution.has_policy:
        return None
    proof = certify(problem, solution)
    return TailRisk(proof.upper, proof.lower, threshold, solution, proof, 1)
