r"""The exact answer as a convex program over the occupancy polytope.

When f and all g_i are affine this is a linear program (``algorithms.linear_program``), and SciPy's HiGHS
solves it. Otherwise CVXPY writes it as a conic program, which Clarabel solves (``algorithms.conic``). The
multipliers of g_i >= 0 are the paper's mu, and the duals of either are evidence: what a certificate needs.

No solver is taken at its word (``certificates.measured``). The answer's policy is that of x, made surely
feasible where rounding left it outside; OPTIMAL is a certified gap, INFEASIBLE a proof. Where one way ends
without evidence, the next one is tried: simplex, interior point, cone program, column generation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.algorithms.columns.generation import USELESS, smallest_tolerance
from cvxmdp.algorithms.conic import ProgramAnswer, has_conic_form, solve_conic
from cvxmdp.algorithms.linear_program import (
    METHODS,
    conic_is_faster,
    small,
    solve_linear,
)
from cvxmdp.base.errors import MissingExtraError, SolverError
from cvxmdp.base.settings import number
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.claims import ENOUGH
from cvxmdp.certificates.evidence import LONGEST_SEARCH, by_columns
from cvxmdp.certificates.measured import Measured, infeasible_answer, measure
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Task, Work, unlimited
from cvxmdp.solvers.never import without_forbidden
from cvxmdp.solvers.whole import Whole

CONIC, UNSCALED, COLUMNS = "conic", "conic, numbers as they are", "columns"  # ways, beside HiGHS's
LEAST_SECONDS = 1e-3  # that a solver is given: it takes none as no limit at all


@dataclass(frozen=True)
class ConvexProgram:
    """Solve the problem as one convex program: exact, for models up to some ten thousand states.

    Attributes:
        tolerance: relative optimality and feasibility asked of the solver, at most 0.01; what it reached is
            measured, and 1e-10 is about the tightest that float64 allows.
        verbose: show the solver's own log.
    """

    tolerance: float = 1e-10
    verbose: bool = False
    needs_seed: ClassVar[bool] = False
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        number("tolerance", self.tolerance, most=1e-2)

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. ``start`` and ``seed`` are accepted and have nothing to do here."""
        task.problem.require_model("ConvexProgram")
        return without_forbidden(
            task,
            lambda asked: Whole("ConvexProgram", asked.problem, lambda: self._in_time(asked)),
        )

    def _in_time(self, task: Task) -> Solution:
        """The answer, or where the time ran out first, what there is."""
        found = self.answer(task.problem, task.seconds_left)
        if found.status is not Status.INACCURATE or task.seconds_left() > 0:
            return found
        if not found.has_policy:
            return Solution.without_policy(task.problem, Status.TIME_LIMIT, stats=found.stats)
        return replace(found, status=Status.TIME_LIMIT, message=Status.TIME_LIMIT.value)

    def answer(
        self,
        problem: Problem,
        left: Callable[[], float] = unlimited,
        ways: Sequence[str] | None = None,
    ) -> Solution:
        """The exact answer, in one call.

        Args:
            problem: what to solve.
            left: says how many seconds it may take.
            ways: names of the ways to try, in this order; by default those that suit the problem.
        """
        certifier = Certifier(problem)
        lowered = certifier.claims.lowered
        if not has_conic_form(lowered):
            raise SolverError(_no_conic_form(problem))
        best: tuple[Measured, ProgramAnswer] | None = None
        ended: list[str] = []
        for way in _ways(lowered) if ways is None else ways:
            if ended and left() <= 0:
                break
            try:
                found = self._try(way, certifier, left())
            except MissingExtraError:
                if lowered.affine:
                    continue
                raise
            ended.append(f"{found.solver}: {found.word}")
            if found.occupancy is None:
                none = infeasible_answer(problem, certifier, _stats(found))
                if none is not None:
                    return none
                continue
            now = measure(certifier, lowered.flow.policy(found.occupancy), found.evidence)
            ends = math.isfinite(now.achieved.flow_residual)
            if ends and (best is None or now.gap < best[0].gap):
                best = now, found
            if now.gap <= ENOUGH:
                break
        return _concluded(problem, certifier, best, ended)

    def _try(self, way: str, certifier: Certifier, seconds: float) -> ProgramAnswer:
        seconds, lowered = max(seconds, LEAST_SECONDS), certifier.claims.lowered
        if way == COLUMNS:
            return _by_columns(certifier, seconds)
        if way in METHODS:
            return solve_linear(lowered, self.tolerance, self.verbose, seconds, way)
        scaled = way != UNSCALED
        return solve_conic(lowered, self.tolerance, self.verbose, scaled, seconds)


def _ways(lowered: Lowered) -> list[str]:
    if not lowered.affine:
        return [CONIC, UNSCALED, COLUMNS]
    first = list(METHODS if small(lowered.flow) else reversed(METHODS))
    if conic_is_faster(lowered.flow):
        return [CONIC, *first, COLUMNS]
    return [*first, CONIC, COLUMNS]


def _no_conic_form(problem: Problem) -> str:
    written = [problem.utility, *problem.constraints.values()]
    both = zip(written, problem.functions, strict=True)
    own = next(utility for utility, shape in both if not shape.has_conic_form)
    return (
        f"{own!r} contains a function of your own, which has no form that ConvexProgram can "
        "hand to a conic solver. A solver that only needs its gradient can do it: PDPG."
    )


def _by_columns(certifier: Certifier, seconds: float) -> ProgramAnswer:
    started = time.perf_counter()
    claims = certifier.claims
    least = smallest_tolerance(claims.flow)
    asked, seconds = max(0.1 * ENOUGH, least), min(seconds, LONGEST_SEARCH)
    proof = by_columns(claims, asked, seconds) if least < USELESS else None
    x = None
    if proof is not None and proof.evidence.policy is not None:
        x = claims.flow.occupancy(proof.evidence.policy)
    word = "no policy was found" if x is None else "it ended"
    evidence = None if proof is None else proof.evidence
    spent = time.perf_counter() - started
    return ProgramAnswer("Column generation", "column generation", word, x, evidence, spent, None)


def _stats(found: ProgramAnswer) -> dict[str, Any]:
    return {
        "solver": f"ConvexProgram ({found.method})",
        "seconds": found.seconds,
        "iterations": found.iterations,
    }


def _limits(problem: Problem) -> str:
    """What float64 allows, where stays are so long that it is less than what was asked."""
    flow = problem.mdp.flow
    least = smallest_tolerance(flow)
    if least <= ENOUGH:
        return ""
    return (
        f" Stays of up to {flow.longest:.1e} steps magnify rounding: with {problem.mdp.horizon} float64 is "
        f"sure to prove a relative gap of {least:.0e} and no less."
    )


def _concluded(
    problem: Problem,
    certifier: Certifier,
    best: tuple[Measured, ProgramAnswer] | None,
    ended: list[str],
) -> Solution:
    """The answer with the smallest gap; that there is none, if that is proven; else what is known."""
    stats: dict[str, Any] = {"solver": "ConvexProgram"} if best is None else _stats(best[1])
    if best is None or not best[0].surely:
        none = infeasible_answer(problem, certifier, stats)
        if none is not None:
            return none
    words = "; ".join(dict.fromkeys(ended))
    if best is None:
        message = f"{Status.INACCURATE.value} No policy was found. {words}."
        return Solution.without_policy(problem, Status.INACCURATE, message=message, stats=stats)
    measured, found = best
    status = Status.OPTIMAL if measured.gap <= ENOUGH else Status.INACCURATE
    sentence = measured.sentence or "No bound on the best objective was found"
    message = f"{sentence[0].upper()}{sentence[1:]}."
    if status is Status.INACCURATE:
        message = f"{status.value} {message} {words}.{_limits(problem)}"
    evidence = found.evidence
    assert evidence is not None
    residual = np.abs(problem.mdp.flow.residual(measured.achieved.occupancy)).sum()
    return Solution.of_policy(
        problem,
        certifier.claims.policy(measured.policy),
        status,
        evidence.multipliers,
        stats={**stats, "flow_residual": float(residual), "certified_gap": measured.gap},
        message=message,
        evidence=evidence,
    )
