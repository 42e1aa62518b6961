"""solve(problem): one driver for all solvers, and the choice of one when none is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import ProblemError, SolverError
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.column_generation import ColumnGeneration
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.pdpg import PDPG

# State-action pairs up to which one convex program is taken, for its exactness; beyond, column generation
# is many times faster (docs/large-models.md).
LARGEST_PROGRAM = 20_000
LARGEST_LINEAR_PROGRAM = 10_000
LARGE_TOLERANCE = 1e-3  # certified relative gap that is asked of large concave problems


@runtime_checkable
class Solver(Protocol):
    """A small immutable object that holds its own settings."""

    def solve(self, problem: Problem, start: Any = None, seed: int | None = None) -> Solution:
        """Solve the problem."""
        ...


def solve(
    problem: Problem, solver: Solver | None = None, start: Any = None, seed: int | None = None
) -> Solution:
    """Solve a problem.

    Args:
        problem: what to solve.
        solver: how; without one, a solver is chosen and the solution says which and why.
        start: a solution or policy to start from, for solvers that can use one.
        seed: of the random numbers, for solvers that sample.
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"solve takes a Problem; got {problem!r}")
    let_go()
    if solver is None:
        solver, reason = choose_solver(problem)
        solution = solver.solve(problem, start=start, seed=seed)
        return replace(solution, stats={**solution.stats, "chosen": reason})
    if isinstance(solver, type) or not isinstance(solver, Solver):
        hint = f"; write {solver.__name__}()" if isinstance(solver, type) else ""
        raise SolverError(
            f"solver must be a solver object such as ConvexProgram(); got {solver!r}{hint}"
        )
    return solver.solve(problem, start=start, seed=seed)


def choose_solver(problem: Problem) -> tuple[Solver, str]:
    """The solver for a problem, and the reason in words."""
    problem.require_model("an exact solver, which is chosen where none is given,")
    functions = (problem.objective_function, *problem.slack_functions.values())
    pairs = int(problem.mdp.reachable_pairs.sum())
    if all(function.affine() is not None for function in functions):
        if pairs > LARGEST_LINEAR_PROGRAM:
            return ColumnGeneration(), f"a linear problem with {pairs:,} pairs is decomposed"
        return ConvexProgram(), "the model is known, and ConvexProgram gives the exact answer"
    if not all(function.has_conic_form for function in functions):
        reason = "a function of your own has no conic form, and PDPG only needs its gradient"
        return PDPG(), reason
    if pairs > LARGEST_PROGRAM:
        reason = f"{pairs:,} pairs are too many for a convex program in reasonable time"
        return ColumnGeneration(tolerance=LARGE_TOLERANCE), reason
    return ConvexProgram(), "the model is known, and ConvexProgram gives the exact answer"
