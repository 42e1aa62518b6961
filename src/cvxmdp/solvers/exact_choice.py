"""Which exact solver suits a problem with a model."""

from __future__ import annotations

from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution_text import ESTIMATED
from cvxmdp.solvers.column_generation import ColumnGeneration
from cvxmdp.solvers.contract import Solver
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.pdpg import PDPG

# State-action pairs up to which one convex program is taken, for its exactness; beyond, column generation
# is many times faster (docs/large-models.md).
LARGEST_PROGRAM = 20_000
LARGEST_LINEAR_PROGRAM = 10_000
LARGE_TOLERANCE = 1e-3  # certified relative gap that is asked of large concave problems


def _known_as(mdp: TabularMDP) -> str:
    if mdp.counts is not None or mdp.note.startswith(ESTIMATED):
        return "an estimate"
    return f"known up to {mdp.relative_error:g}" if mdp.relative_error else "known"


def choose_exact(problem: Problem) -> tuple[Solver, str]:
    """The exact solver for a problem with a model, and the reason in words."""
    functions = (problem.objective_function, *problem.slack_functions.values())
    pairs = int(problem.mdp.flow.usable.sum())
    given = f"the model is {_known_as(problem.mdp)}"
    if all(function.affine() is not None for function in functions):
        if pairs > LARGEST_LINEAR_PROGRAM:
            return ColumnGeneration(), f"a linear problem with {pairs:,} pairs is decomposed"
        return ConvexProgram(), f"{given}, and ConvexProgram gives the exact answer"
    if not all(function.has_conic_form for function in functions):
        if problem.space.horizon.gradients:
            reason = "a function of your own has no conic form, and columns only need its gradient"
            return ColumnGeneration(tolerance=LARGE_TOLERANCE), reason
        reason = "a function of your own has no conic form, and PDPG only needs its gradient"
        return PDPG(), reason
    if pairs > LARGEST_PROGRAM:
        reason = f"{pairs:,} pairs are too many for a convex program in reasonable time"
        return ColumnGeneration(tolerance=LARGE_TOLERANCE), reason
    return ConvexProgram(), f"{given}, and ConvexProgram gives the exact answer"
