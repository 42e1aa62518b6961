r"""The problem as one conic program: the answer, and the tangents that prove it, from one solve.

    maximise f(x)   subject to   g_i(x) >= 0,   x >= 0,
                                 sum_a x(s,a) = rho(s) + gamma sum P(s | s',a') x(s',a')

CVXPY writes it (``conic_statement``) and Clarabel, an interior-point method, solves it. Solvers' tolerances are
absolute numbers near zero, so x, f, each g_i and every shape inside them are
handed over in units of their own size: costs in millionths or rewards in millions are solved as accurately as
those near one.

Every shape phi(u), u = M x, is written with the cone that it is. At the optimum the cone's dual is the slope
of phi that optimality needs, kinks included, times the factor that stands before phi in the Lagrangian;
dividing by the factor gives the tangent's parameters. The solver's accuracy decides how tight the bound is, not
whether it is true: the checker computes it anew.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.problems.conic_statement import ConicStatement, units_of
from cvxmdp.problems.lowered import Evidence, Lowered

# What Clarabel calls solved by default; the answer is still called optimal when it stalls between
# the tighter tolerance we ask for and this one.
CLARABEL_DEFAULT = 1e-8
CAREFUL = 1e-6  # before the last steps, which rounding may break
# A curved optimum is flat: objectives that agree to 1e-10 leave 1e-5 of doubt about policy and
# multipliers. So Clarabel goes on past the tolerance for as long as it gets anywhere.
# On large models that costs a third more time, and only the tolerance itself is asked for.
SHARPER = 1e-2
SHARPER_LIMIT = 2_000  # pairs
LEAST_SIZE = 1e-3  # of what the objective spans: the size of an optimum near zero


class ProgramAnswer(NamedTuple):
    """What a program of the whole problem gave.

    Attributes:
        solver: whose it is.
        method: the same in full.
        word: how that ended, in its own words: "optimal", "infeasible" and the like.
        occupancy: (S, A), not negative; None where there is none.
        evidence: of an upper bound; None where there is no occupancy.
        seconds, iterations: of the solver.
    """

    solver: str
    method: str
    word: str
    occupancy: np.ndarray | None
    evidence: Evidence | None
    seconds: float
    iterations: int | None


def least_size(lowered: Lowered) -> float:
    """What an objective near zero is measured by: a share of what it spans."""
    return LEAST_SIZE * units_of(lowered).objective


def has_conic_form(lowered: Lowered) -> bool:
    """Whether the whole problem can be written: all but functions of the user's own."""
    return all(function.has_conic_form for function in lowered.functions)


def solve_conic(
    lowered: Lowered,
    tolerance: float,
    verbose: bool = False,
    scaled: bool = True,
    seconds: float = math.inf,
) -> ProgramAnswer:
    """Build and solve the program of a problem that ``has_conic_form``.

    Args:
        lowered: the problem.
        tolerance: relative optimality and feasibility that is asked for.
        verbose: show the solver's own log.
        scaled: hand functions over in units of their own size.
        seconds: that each try may take.
    """
    model, stated = lowered.flow, ConicStatement(lowered, scaled)
    program, units, cp = stated.program, stated.units, stated.program.cp
    objective, slacks, budgets = stated.objective, stated.slacks, stated.budgets
    goal = cp.Maximize(objective.expression / units.objective)
    written = cp.Problem(goal, stated.constraints)
    started = time.perf_counter()
    limit = {"time_limit": seconds} if math.isfinite(seconds) else {}
    status = _run(written, cp, program.places.size, tolerance, {"verbose": verbose, **limit})
    spent = time.perf_counter() - started
    iterations = written.solver_stats.num_iters if written.solver_stats else None
    ended = "Clarabel", "CVXPY, Clarabel", status
    # It is infeasible, too, where the objective is infinite for every policy.
    infeasible = status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE)
    known = program.pairs.value is not None and not infeasible
    if not known or any(budget.dual_value is None for budget in budgets.values()):
        return ProgramAnswer(*ended, None, None, spent, iterations)
    x = np.zeros(model.shape)
    x[model.usable] = np.maximum(program.pairs.value, 0.0)  # at the border up to rounding
    duals = {name: float(np.ravel(held.dual_value)[0]) for name, held in budgets.items()}
    # A multiplier is not negative; the solver's rounding below zero is not part of the answer.
    multipliers = {
        name: max(0.0, dual) * units.objective / units.slacks[name] for name, dual in duals.items()
    }
    tangents = {
        "objective": objective.parameters(1.0 / units.objective, x),
        "slacks": {
            name: form.parameters(max(0.0, duals[name]) / units.slacks[name], x)
            for name, form in slacks.items()
        },
    }
    # The duals of the flow equations are the values of the tangents' reward, up to the solver's accuracy.
    guess = np.zeros(model.shape[0])
    duals_of_flow = np.ravel(stated.balance.dual_value) * (units.objective / model.mass)
    guess[model.reached] = stated.equations.values(duals_of_flow)
    multipliers, values = lowered.proving_values(multipliers, tangents, guess)
    evidence = Evidence(multipliers, tangents, values, model.policy(x))
    return ProgramAnswer(*ended, x, evidence, spent, iterations)


def _run(written: Any, cp: Any, pairs: int, tolerance: float, further: dict[str, Any]) -> str:
    """Ask for more than the tolerance, then for it, for Clarabel's default, for anything.

    Where steps beyond what float64 holds break, Clarabel gives nothing at all: so at last it is stopped before.
    What the answer is worth is measured, whatever was asked for.
    """
    settled = max(tolerance, CLARABEL_DEFAULT)
    sharper = [(SHARPER * tolerance, tolerance)] if pairs <= SHARPER_LIMIT else []
    for asked, reduced in [*sharper, (tolerance, settled)]:
        status = _call_clarabel(written, cp, asked, reduced, **further)
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return str(cp.OPTIMAL)
        if status == cp.INFEASIBLE:
            return status
    status = _call_clarabel(written, cp, settled, 1e-4, accept_unknown=True, **further)
    if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.INFEASIBLE):
        return status
    careful = max(settled, CAREFUL)
    stopped = _call_clarabel(written, cp, careful, careful, **further)
    return stopped if stopped == cp.OPTIMAL else status


def _call_clarabel(written: Any, cp: Any, tolerance: float, reduced: float, **further: Any) -> str:
    names = ("gap_abs", "gap_rel", "feas")
    options = {f"tol_{name}": tolerance for name in names}
    options |= {f"reduced_tol_{name}": reduced for name in names}
    try:
        with warnings.catch_warnings():
            # CVXPY warns of inaccurate answers; ours carry that in their status.
            warnings.simplefilter("ignore")
            written.solve(solver=cp.CLARABEL, **options, **further)
    except cp.error.SolverError as error:
        return str(error)
    return str(written.status)
