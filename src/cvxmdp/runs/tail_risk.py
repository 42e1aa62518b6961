r"""The CVaR of an episode's cost over all thresholds: as objective, least_cvar; as constraint, within_cvar.

With h(x, t) = t + E (C - t)^+ / (1 - a) the CVaR is min_t h(x, t), and for every policy the best t is a level.
Each t makes one linear problem: min h(., t), or the best objective subject to h(., t) <= b. In t, h rises by at
most 1 and falls by at most a / (1 - a) per unit, so that a solved threshold bounds its neighbours: whatever
is within b at t' is within b + d at t, which by the proof at t is worth at most d times its multiplier. Most
levels need no solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cvxmdp.atoms import Constraint
from cvxmdp.atoms.tails import cvar
from cvxmdp.base.errors import ProblemError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number, several
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.models.budget_states import SO_FAR
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.runs.solving import solve_among_many


@dataclass(frozen=True, eq=False)
class TailRisk(InNotebooks):
    """The best policy for the CVaR of an episode's cost, or within a limit on it.

    Attributes:
        cvar: of the policy, proven: its worst episodes cost no more in the mean.
        bound: proven of every policy that satisfies the constraints. Of ``least_cvar``: none has a smaller
            CVaR; of ``within_cvar``: none has a better objective.
        threshold: the best auxiliary threshold: a quantile of the cost (the value at risk).
        solution, certificate: of the problem with that threshold; None where no policy is feasible. Then
            ``within_cvar`` leaves the least CVaR that there is in ``cvar`` and ``bound``.
        solves: thresholds that were solved.
        at_most: the limit of ``within_cvar``.
    """

    cvar: float
    bound: float
    threshold: float
    solution: Solution | None
    certificate: Certificate | None
    solves: int
    at_most: float | None = None

    def __str__(self) -> str:
        if self.solution is None:
            return self._nothing()
        best = "no policy has one below"
        limit = ""
        if self.at_most is not None:
            beyond = "below" if self.solution.problem.sense == "minimize" else "above"
            best = f"no policy within the limit has an objective {beyond}"
            limit = f" of at most {number(self.at_most)}"
        head = (
            f"CVaR {number(self.cvar)}{limit} at the threshold {number(self.threshold)}; {best} "
            f"{number(self.bound)} (proven; {several(self.solves, 'threshold')} solved)."
        )
        return f"{head}\n\n{self.solution}"

    def _nothing(self) -> str:
        if self.at_most is None or math.isnan(self.cvar):
            return "No policy satisfies the constraints."
        proven = "No policy has" if self.bound > self.at_most else "No policy was found with"
        return (
            f"{proven} a CVaR of at most {number(self.at_most)}: the least is {number(self.cvar)}, and none is "
            f"below {number(self.bound)} (proven)."
        )


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
    levels = _levels(mdp, cost)

    def at(threshold: float) -> _Solved:
        problem = Problem(mdp, minimize=cvar(cost, level, threshold), subject_to=subject_to)
        return replace(_solved(problem, threshold), price=1.0)

    best, bound, solves = _over_thresholds(levels, level, levels, at, tolerance)
    if best.solution is None:
        return TailRisk(math.nan, math.nan, math.nan, None, None, solves)
    return TailRisk(best.loss, bound, best.threshold, best.solution, best.certificate, solves)


def within_cvar(
    problem: Problem, cost: str, level: float, at_most: float, *, tolerance: float = 1e-6
) -> TailRisk:
    """A problem solved with one more constraint, CVaR of an episode's cost <= at_most, over all thresholds.

    Args:
        problem: on a model with a budget state: ``mdp.with_budget_state(cost, levels)``.
        cost: the signal's name.
        level: such as 0.95: the mean of the worst 5% of the episodes.
        at_most: the limit.
        tolerance: thresholds that cannot be better by more than this, relative to the objective, are not
            solved.
    """
    levels, name = _levels(problem.mdp, cost), f"CVaR of {cost}"
    sign = 1.0 if problem.sense == "minimize" else -1.0

    def at(threshold: float) -> _Solved:
        limit = cvar(cost, level, threshold) <= at_most
        limited = Problem(
            problem.mdp,
            **{problem.sense: problem.utility},
            subject_to={**problem.constraints, name: limit},
        )
        found = _solved(limited, threshold)
        proof = found.certificate
        return (
            found if proof is None else replace(found, price=proof.multipliers.get(name, math.inf))
        )

    # h(., t) >= t, so that no policy is within the limit at thresholds above it.
    bounds = np.where(levels > at_most, math.inf, -math.inf)
    best, bound, solves = _over_thresholds(levels, level, bounds, at, tolerance)
    if best.solution is None or best.certificate is None:
        least = least_cvar(
            problem.mdp, cost, level, subject_to=problem.constraints, tolerance=tolerance
        )
        return replace(least, solution=None, certificate=None, at_most=at_most)
    reached = at_most - best.certificate.slack[name]
    return TailRisk(
        reached, sign * bound, best.threshold, best.solution, best.certificate, solves, at_most
    )


@dataclass(frozen=True, eq=False)
class _Solved:
    """One threshold: the loss that its policy surely has at most, that any has at least, and its price.

    The price is by how much the bound falls per unit of h(., t) that is allowed beyond; infinite where nothing
    follows for other thresholds.
    """

    threshold: float = math.nan
    loss: float = math.inf
    bound: float = math.inf
    price: float = math.inf
    solution: Solution | None = None
    certificate: Certificate | None = None


def _solved(problem: Problem, threshold: float) -> _Solved:
    solution = solve_among_many(problem, progress=False)
    proof = certify(problem, solution)
    if proof.infeasible:
        return _Solved(threshold)
    least, most = proof.lower, proof.upper
    if problem.sense == "maximize":
        least, most = -most, -least
    if not solution.has_policy:
        return _Solved(threshold, bound=least)
    return _Solved(threshold, most, least, solution=solution, certificate=proof)


def _levels(mdp: TabularMDP, cost: str) -> np.ndarray:
    """What an episode can cost."""
    if cost + SO_FAR not in mdp.signal_names:
        raise ProblemError(
            f"the model has no budget state of {cost!r}: mdp.with_budget_state({cost!r}, levels=...)"
        )
    return np.unique(mdp.signal(cost + SO_FAR)[mdp.reachable_pairs & (mdp.ending > 0)])


def _over_thresholds(
    levels: np.ndarray,
    level: float,
    known: np.ndarray,
    at: Callable[[float], _Solved],
    tolerance: float,
) -> tuple[_Solved, float, int]:
    """The threshold with the least loss, a bound on the loss at any of them, and how many were solved.

    Args:
        levels: the thresholds.
        level: of the CVaR.
        known: what the loss is at least at each, before anything is solved.
        at: solves one.
        tolerance: relative: what cannot be better by more is left.
    """
    best, solves, falls = _Solved(), 0, level / (1.0 - level)
    bounds, left = known.copy(), np.ones(levels.size, dtype=bool)
    while True:
        size = abs(best.loss) if math.isfinite(best.loss) else 0.0
        promising = np.flatnonzero(left & (bounds < best.loss - tolerance * max(1.0, size)))
        if not promising.size:
            return best, min(float(bounds.min()), best.loss), solves
        lowest = promising[bounds[promising] == bounds[promising].min()]
        k = int(lowest[lowest.size // 2])
        found = at(float(levels[k]))
        left[k], solves = False, solves + 1
        bounds[k] = max(bounds[k], found.bound)
        if math.isfinite(found.price):
            away = levels - levels[k]
            beyond = found.price * np.where(away > 0, falls * away, -away)
            bounds = np.fmax(bounds, found.bound - beyond)  # NaN where nothing is proven
        if found.loss < best.loss:
            best = found
