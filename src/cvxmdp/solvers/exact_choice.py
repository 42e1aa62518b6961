"""Which exact solver suits a problem with a model."""

from __future__ import annotations

from cvxmdp.algorithms.columns.aggregates import spreads_slowly
from cvxmdp.algorithms.columns.flow_duals import only_leaf
from cvxmdp.algorithms.columns.smoothed_dual import can_be_smoothed
from cvxmdp.atoms import walk
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution_text import ESTIMATED
from cvxmdp.solvers.column_generation import ColumnGeneration
from cvxmdp.solvers.contract import Solver
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.pdpg import PDPG

# State-action pairs beyond which columns are faster, by kind of problem, as benchmarks/choice.py measures it:
# up to there one convex program takes less, and gives more digits.
UNCONSTRAINED, LINEAR, ONE_ENTROPY, CURVED = 200, 2_000, 1_000, 20_000
FEW = 10  # linear functions that a curved one may look at to count as linear: columns are as many numbers
# Certified relative gaps that are asked of concave problems: digits that cost little, and those of large ones.
MIDDLE_TOLERANCE, LARGE_TOLERANCE, LARGE = 1e-4, 1e-3, 20_000


def _known_as(mdp: TabularMDP) -> str:
    if mdp.counts is not None or mdp.note.startswith(ESTIMATED):
        return "an estimate"
    return f"known up to {mdp.relative_error:g}" if mdp.relative_error else "known"


def _sees_few(lowered: Lowered) -> bool:
    """Curved functions are of a few linear ones: a minimum of returns, no distance between occupancies."""
    nodes = (visit.node for function in lowered.functions for visit in walk(function))
    return all(map.rows <= FEW for node in nodes if node.affine() is None for map in node.maps())


def _most_pairs(problem: Problem, lowered: Lowered, pairs: int) -> int:
    """Up to how many of its pairs one convex program is taken for a problem with curved functions.

    Columns of a few returns, or of an entropy over time or in a constraint, close the gap where a few steps
    lead everywhere; on a grid they may not.
    """
    leaf = only_leaf(lowered) if pairs > ONE_ENTROPY else None
    if leaf is not None and can_be_smoothed(lowered, leaf):
        return ONE_ENTROPY
    if pairs <= CURVED and spreads_slowly(problem.mdp.transition, problem.mdp.initial):
        return CURVED
    if leaf is not None:
        return ONE_ENTROPY
    return LINEAR if _sees_few(lowered) else CURVED


def choose_exact(problem: Problem) -> tuple[Solver, str]:
    """The exact solver for a problem with a model, and the reason in words."""
    lowered = Lowered(problem)
    pairs = int(lowered.flow.usable.sum())
    program = f"the model is {_known_as(problem.mdp)}, and ConvexProgram gives the exact answer"
    if not all(function.has_conic_form for function in lowered.functions):
        if problem.space.horizon.gradients:
            reason = "a function of your own has no conic form, and columns only need its gradient"
            solver = ColumnGeneration(tolerance=LARGE_TOLERANCE)
            return solver, f"{reason}. {_digits(LARGE_TOLERANCE)}"
        return PDPG(), "a function of your own has no conic form, and PDPG only needs its gradient"
    if lowered.flow.strict:  # columns need stays that are bounded
        return ConvexProgram(), program
    if lowered.affine:
        if lowered.slacks:
            reason = f"a linear problem with {pairs:,} pairs is decomposed"
            return (ColumnGeneration(), reason) if pairs > LINEAR else (ConvexProgram(), program)
        reason = f"without constraints, and with {pairs:,} pairs, policy iteration is the fastest"
        return (ColumnGeneration(), reason) if pairs > UNCONSTRAINED else (ConvexProgram(), program)
    if pairs <= _most_pairs(problem, lowered, pairs):
        return ConvexProgram(), program
    tolerance = MIDDLE_TOLERANCE if pairs <= LARGE else LARGE_TOLERANCE
    reason = (
        f"with {pairs:,} pairs columns are faster than one convex program. {_digits(tolerance)}"
    )
    return ColumnGeneration(tolerance=tolerance), reason


def _digits(tolerance: float) -> str:
    return (
        f"Certified to {tolerance:g}; for more digits: solve(problem, ColumnGeneration(tolerance="
        f"{tolerance / 100:g}), start=this solution)"
    )
