r"""How good an answer is, measured: what every status of an exact solver rests on.

A solver's own word ("optimal", "infeasible") is no evidence. Here its policy becomes a surely feasible one
(``repair``), its duals become a bound that the checker's code computes, and the two are compared. Where the
constraints leave no room at all (a budget at the least cost there is), float64 cannot tell a slack of zero
from one just below it; such a policy counts as feasible *up to rounding*, and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.shapes import MinimumShape, SumShape
from cvxmdp.base.errors import SolverError
from cvxmdp.certificates.certify import Certifier, proven
from cvxmdp.certificates.claims import ENOUGH, Claims, Proof
from cvxmdp.certificates.evidence import is_large
from cvxmdp.certificates.repair import repair
from cvxmdp.certificates.slater import empty_domain, prove, room_of
from cvxmdp.checker.bounds import Achieved
from cvxmdp.policies import TabularPolicy
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import (
    Nearest,
    Solution,
    Status,
    infeasible_message,
    violation_of,
)

LEAST = 1e-3  # of the least violation, that the one of the nearest policy may exceed it
LARGEST_FIRST = 1e3  # what the largest violation weighs beside their sum
ROUNDINGS = 0.02  # margins of error, which are generous, by which a slack of zero may be missed


class Measured(NamedTuple):
    """A policy, what it achieves, and how far that is from the best.

    Attributes:
        policy: probabilities (S, A).
        achieved: by it.
        proof: that nothing is better than some bound; None where there is none.
        gap: between the two, relative; infinite where the policy is not feasible.
        surely: every constraint surely holds; otherwise up to rounding at best.
    """

    policy: np.ndarray
    achieved: Achieved
    proof: Proof | None
    gap: float
    surely: bool

    @property
    def sentence(self) -> str:
        """The gap in words, rounded up to a power of ten."""
        if not math.isfinite(self.gap):
            return "" if self.surely else _misses(self.achieved)
        shown = 10.0 ** math.ceil(math.log10(max(self.gap, 1e-15)) - 1e-9)
        if self.surely:
            return f"the certified relative gap is at most {shown:.0e}"
        return (
            f"the relative gap to the proven bound is at most {shown:.0e}. The constraints hold up to "
            "rounding"
        )


def _misses(achieved: Achieved) -> str:
    if not math.isfinite(achieved.objective):
        return "no policy was found at which the objective is finite"
    name, slack = min(achieved.computed_slack.items(), key=lambda one: one[1])
    return f"no policy was found that surely satisfies every constraint; {name!r} has a slack of {slack:.2g}"


def measure(certifier: Certifier, policy: np.ndarray, evidence: Evidence | None) -> Measured:
    """Of a policy and a solver's evidence of an upper bound."""
    claims = certifier.claims
    given = claims.achieved(policy)
    proof = None if evidence is None else proven(claims, evidence)
    try:
        kept = repair(claims, policy, given, lambda: certifier.room().policy, closely=True)
    except SolverError:  # nothing bounds the slacks
        kept = None
    upper = math.inf if proof is None else proof.upper
    as_given = claims.relative_gap(upper, given.objective) if up_to_rounding(given) else math.inf
    if kept is not None:
        gap = claims.relative_gap(upper, kept.achieved.objective)
        if gap <= ENOUGH or not as_given < gap:
            return Measured(kept.policy, kept.achieved, proof, gap, True)
    return Measured(policy, given, proof, as_given, False)


def up_to_rounding(achieved: Achieved) -> bool:
    """Whether no constraint is missed by more than what float64 leaves open."""
    margins = (
        achieved.computed_slack[name] + ROUNDINGS * (achieved.computed_slack[name] - sure)
        for name, sure in achieved.slack.items()
    )
    return math.isfinite(achieved.objective) and all(margin >= 0 for margin in margins)


def conflicting(problem: Problem, certifier: Certifier, **details: Any) -> Solution:
    """The answer where constraints conflict: which do, and the policy that violates least."""
    slater = certifier.slater()
    policy: TabularPolicy = slater.policy
    slack: Mapping[str, float] = slater.margins
    if slater.margin < slater.margin_bound - LEAST * abs(slater.margin_bound):
        # The search ended with its proof; that the policy is as near as can be is another matter.
        with suppress(SolverError):
            room = room_of(certifier.claims)
            if min(room.achieved.slack.values()) > slater.margin:
                policy, slack = certifier.claims.policy(room.policy), room.achieved.slack
    policy, slack = _fewest(certifier.claims, policy, slack)
    nearest = Nearest(policy, slack)
    details.setdefault("evidence", replace(slater.evidence, infeasible=True))
    details["stats"] = {**details.get("stats", {}), "nearest_slack": dict(slack)}
    message = infeasible_message(problem, str(slater), nearest, slater.conflict)
    return Solution.without_policy(
        problem, Status.INFEASIBLE, message=message, nearest=nearest, **details
    )


def _fewest(
    claims: Claims, policy: TabularPolicy, slack: Mapping[str, float]
) -> tuple[TabularPolicy, Mapping[str, float]]:
    """Of the policies whose largest violation is least, one that violates no constraint without need."""
    together = sum(violation_of(slack).values())
    if together <= -min(slack.values()) * (1 + LEAST) or is_large(claims):
        return policy, slack
    slacks = tuple(claims.slacks.values())
    nothing = SumShape(slacks[:1], (0.0,), 0.0)
    missed = tuple(MinimumShape((g, nothing)) for g in slacks)
    total = SumShape((MinimumShape(slacks), *missed), (LARGEST_FIRST, *[1.0] * len(slacks)), 0.0)
    with suppress(SolverError):
        rows = prove(claims.with_objective(total)).evidence.policy
        found = None if rows is None else claims.achieved(rows).slack
        if rows is not None and found is not None:
            least = min(slack.values())
            as_near = min(found.values()) >= least - LEAST * abs(least)
            if as_near and sum(violation_of(found).values()) < together * (1 - LEAST):
                return claims.policy(rows), found
    return policy, slack


def infeasible_answer(
    problem: Problem, certifier: Certifier, stats: dict[str, Any]
) -> Solution | None:
    """The answer where it is proven that there is none; None where that is not proven."""
    if certifier.claims.slacks:
        try:
            room = certifier.room()
        except SolverError:
            return None
        if room.proof.upper < 0:
            return conflicting(problem, certifier, stats=stats)
    if not empty_domain(certifier.claims):
        return None
    whom = "every policy that satisfies the constraints" if problem.constraints else "every policy"
    message = (
        f"The objective is infinite for {whom}: {problem.utility!r}. What must be positive in it is not "
        "(proven)."
    )
    return Solution.without_policy(problem, Status.INFEASIBLE, stats=stats, message=message)
