r"""The exact answer as a convex program over the occupancy polytope.

When f and all g_i are affine this is a linear program (``algorithms.linear_program``), and SciPy's HiGHS
solves it. Otherwise CVXPY writes it as a conic program, which Clarabel solves (``algorithms.conic``). The
multipliers of g_i >= 0 are the paper's mu, and the duals of either are evidence: what a certificate needs.

The answer's policy is that of the solver's x; its occupancy is then computed anew from the policy, so
objective and slack are those of a policy that exists, not of a nearly feasible x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.algorithms.conic import ConicAnswer, has_conic_form, solve_conic
from cvxmdp.algorithms.linear_program import LinearAnswer, conic_is_faster, solve_linear
from cvxmdp.base.errors import SolverError
from cvxmdp.policies.occupancies import policy_of
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status, infeasible_message
from cvxmdp.solvers.contract import Task, unlimited
from cvxmdp.solvers.whole import Whole

LEAST_SECONDS = 1e-3  # that a solver is given: it takes none as no limit at all


@dataclass(frozen=True)
class ConvexProgram:
    """Solve the problem as one convex program: exact, for models up to some ten thousand states.

    Attributes:
        tolerance: relative optimality and feasibility asked of the solver.
        verbose: show the solver's own log.
    """

    tolerance: float = 1e-10
    verbose: bool = False
    needs_seed: ClassVar[bool] = False
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance <= 1e-2:
            raise SolverError(
                f"tolerance must be positive and at most 0.01; got {self.tolerance}. A usual value "
                "is 1e-8; 1e-10 is about the tightest that float64 allows."
            )

    def prepare(self, task: Task) -> Whole:
        """See ``Solver``. ``start`` and ``seed`` are accepted and have nothing to do here."""
        task.problem.require_model("ConvexProgram")
        return Whole("ConvexProgram", task.problem, lambda: self._in_time(task))

    def _in_time(self, task: Task) -> Solution:
        """The answer, or where the time ran out first, what there is."""
        try:
            found = self.answer(task.problem, task.seconds_left)
        except SolverError:
            if task.seconds_left() > 0:
                raise
            return Solution.without_policy(task.problem, Status.TIME_LIMIT)
        if found.status is Status.INACCURATE and task.seconds_left() <= 0:
            return replace(found, status=Status.TIME_LIMIT, message=Status.TIME_LIMIT.value)
        return found

    def answer(self, problem: Problem, left: Callable[[], float] = unlimited) -> Solution:
        """The exact answer, in one call; ``left`` says how many seconds it may take."""
        lowered = Lowered(problem)
        if lowered.affine:
            if conic_is_faster(lowered.flow):
                conic = self._conic(problem, lowered, left())
                if conic.status is Status.OPTIMAL:
                    return conic
            found = solve_linear(lowered, self.tolerance, self.verbose, max(left(), LEAST_SECONDS))
            return _of_linear(problem, found)
        if not has_conic_form(lowered):
            raise SolverError(_no_conic_form(problem))
        first = self._conic(problem, lowered, left())
        if first.status is not Status.INACCURATE or left() <= 0:
            return first
        # Scaling helps most programs and hurts a few: as a second try, the numbers as they are.
        plain = self._conic(problem, lowered, left(), scaled=False)
        return plain if plain.status is Status.OPTIMAL else first

    def _conic(
        self, problem: Problem, lowered: Lowered, seconds: float = math.inf, scaled: bool = True
    ) -> Solution:
        seconds = max(seconds, LEAST_SECONDS)
        found = solve_conic(lowered, self.tolerance, self.verbose, scaled, seconds)
        return _of_conic(problem, found)


def _no_conic_form(problem: Problem) -> str:
    written = [problem.utility, *problem.constraints.values()]
    shapes = [problem.objective_function, *problem.slack_functions.values()]
    own = next(u for u, shape in zip(written, shapes, strict=True) if not shape.has_conic_form)
    return (
        f"{own!r} contains a function of your own, which has no form that ConvexProgram can "
        "hand to a conic solver. A solver that only needs its gradient can do it: PDPG."
    )


def _of_linear(problem: Problem, found: LinearAnswer) -> Solution:
    stats = {
        "solver": f"ConvexProgram (HiGHS {found.method})",
        "seconds": found.seconds,
        "iterations": found.iterations,
    }
    if found.status == 2:
        return Solution.without_policy(problem, Status.INFEASIBLE, stats=stats)
    if found.occupancy is None:
        raise SolverError(f"HiGHS found no answer: {found.message}")
    if found.status == 0:
        status, message = Status.OPTIMAL, _optimal("HiGHS", found.tolerance)
    else:
        status, message = Status.INACCURATE, f"{Status.INACCURATE.value} HiGHS: {found.message}"
    return _answer(problem, found, status, message, stats)


def _of_conic(problem: Problem, found: ConicAnswer) -> Solution:
    stats = {
        "solver": "ConvexProgram (CVXPY, Clarabel)",
        "seconds": found.seconds,
        "iterations": found.iterations,
    }
    outcome = found.outcome
    if outcome.infeasible:
        surely = outcome.status == "infeasible"
        message = infeasible_message("" if surely else " (Clarabel calls this inaccurate)")
        if not problem.constraints:  # then it is the domain of the objective that is empty
            message = f"The objective is infinite for every policy: {problem.utility!r}."
        return Solution.without_policy(problem, Status.INFEASIBLE, stats=stats, message=message)
    if found.occupancy is None:
        raise SolverError(
            f"Clarabel found no answer ({outcome.status}). Likely causes: a constraint set with an "
            "empty interior, numbers of very different size, a discount very near one."
        )
    if outcome.met is not None:
        return _answer(problem, found, Status.OPTIMAL, _optimal("Clarabel", outcome.met), stats)
    message = f"{Status.INACCURATE.value} Clarabel: {outcome.status}."
    return _answer(problem, found, Status.INACCURATE, message, stats)


def _optimal(solver: str, tolerance: float) -> str:
    return f"{solver} met its optimality tolerances ({tolerance:.0e})."


def _answer(
    problem: Problem,
    found: LinearAnswer | ConicAnswer,
    status: Status,
    message: str,
    stats: dict[str, Any],
) -> Solution:
    x, evidence = found.occupancy, found.evidence
    assert x is not None
    assert evidence is not None
    stats["flow_residual"] = float(np.abs(problem.mdp.flow.residual(x)).sum())
    policy = policy_of(problem.mdp, x)
    found_with = evidence.multipliers
    return Solution.of_policy(
        problem, policy, status, found_with, stats=stats, message=message, evidence=evidence
    )
