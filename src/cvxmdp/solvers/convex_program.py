r"""The exact answer as a convex program over the occupancy polytope.

    maximise f(x)   subject to   g_i(x) >= 0,   x >= 0,
                                 sum_a x(s,a) = rho(s) + gamma sum P(s | s',a') x(s',a')

When f and all g_i are affine this is a linear program, the classical one of constrained MDPs
(Altman, 1999), and SciPy's HiGHS solves it. Otherwise CVXPY writes it as a conic program, which
Clarabel, an interior-point method, solves. The multipliers of g_i >= 0 are the paper's mu. Only
states that some policy reaches become variables. Solvers' tolerances are absolute numbers near zero,
so f and each g_i are handed over in units of their own size: costs in millionths or rewards in
millions are solved as accurately as those near one.

The answer's policy is that of the solver's x; its occupancy is then computed anew from the policy, so
objective and slack are those of a policy that exists, not of a nearly feasible x.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxmdp.atoms.cvxpy_form import OccupancyVariable
from cvxmdp.atoms.shapes import Affine, Shape
from cvxmdp.base.errors import SolverError, require
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.occupancies import occupancy_of, policy_of, uniform_policy
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status, infeasible_message

# What Clarabel calls solved by default; the answer is still called optimal when it stalls between
# the tighter tolerance we ask for and this one, and the message says which was met.
CLARABEL_DEFAULT = 1e-8
# A curved optimum is flat: objectives that agree to 1e-10 leave 1e-5 of doubt about policy and
# multipliers. So Clarabel goes on past the tolerance for as long as it gets anywhere.
# On large models that costs a third more time, and only the tolerance itself is asked for.
SHARPER = 1e-2
SHARPER_LIMIT = 2_000  # pairs
# HiGHS's simplex is faster on small programs, its interior point (with crossover) on large ones.
SIMPLEX_LIMIT = 500
# Different successors per state up to which Clarabel is the fastest of the three: grids, queues, chains, whose
# factorisations stay sparse. On Garnets with 10,000 states HiGHS's interior point takes half as long.
LOCAL = 5


@dataclass(frozen=True)
class ConvexProgram:
    """Solve the problem as one convex program: exact, for models up to some ten thousand states.

    Attributes:
        tolerance: relative optimality and feasibility asked of the solver.
        verbose: show the solver's own log.
    """

    tolerance: float = 1e-10
    verbose: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance <= 1e-2:
            raise SolverError(
                f"tolerance must be positive and at most 0.01; got {self.tolerance}. A usual value "
                "is 1e-8; 1e-10 is about the tightest that float64 allows."
            )

    def solve(self, problem: Problem, start: Any = None, seed: int | None = None) -> Solution:
        """The exact answer. ``start`` and ``seed`` are accepted and have nothing to do here."""
        problem.require_model("ConvexProgram")
        objective = problem.objective_function.affine()
        slacks = [g.affine() for g in problem.slack_functions.values()]
        if objective is not None and all(slack is not None for slack in slacks):
            if conic_is_faster(problem.mdp):
                conic = self._solve_conic(problem)
                if conic.status is Status.OPTIMAL:
                    return conic
            return self._solve_linear(problem, objective, [s for s in slacks if s is not None])
        first = self._solve_conic(problem)
        if first.status is not Status.INACCURATE:
            return first
        # Scaling helps most programs and hurts a few: as a second try, the numbers as they are.
        plain = self._solve_conic(problem, scaled=False)
        return plain if plain.status is Status.OPTIMAL else first

    def _solve_linear(self, problem: Problem, objective: Affine, slacks: list[Affine]) -> Solution:
        usable = problem.mdp.reachable_pairs
        flow, initial = flow_equations(problem.mdp, usable)
        method = "highs-ds" if usable.any(axis=1).sum() <= SIMPLEX_LIMIT else "highs-ipm"
        tolerance = max(self.tolerance, 1e-10)  # HiGHS takes none below
        options = {
            "disp": self.verbose,
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
        }
        if method == "highs-ipm":
            options["ipm_optimality_tolerance"] = max(self.tolerance, 1e-12)
            # Its presolve substitutes states into each other: little where steps are local, else a dense mess.
            options["presolve"] = successors_per_state(problem.mdp) <= LOCAL
        unit = _largest(objective.reward[usable])
        units = np.array([_largest(slack.reward[usable]) for slack in slacks])
        rows = np.array([-slack.reward[usable] for slack in slacks]).reshape(-1, usable.sum())
        started = time.perf_counter()
        found = linprog(
            -objective.reward[usable] / unit,
            A_ub=rows / units[:, None] if slacks else None,
            b_ub=[slack.offset for slack in slacks] / units if slacks else None,
            A_eq=flow,
            b_eq=initial,
            method=method,
            options=options,
        )
        stats = {
            "solver": f"ConvexProgram (HiGHS {'simplex' if method == 'highs-ds' else 'interior point'})",
            "seconds": time.perf_counter() - started,
            "iterations": int(found.nit),
        }
        if found.status == 2:
            return Solution.without_policy(problem, Status.INFEASIBLE, stats=stats)
        if found.x is None:
            raise SolverError(f"HiGHS found no answer: {found.message}")
        if found.status == 0:
            status, message = Status.OPTIMAL, _optimal("HiGHS", tolerance)
        else:
            status, message = Status.INACCURATE, f"{Status.INACCURATE.value} HiGHS: {found.message}"
        # linprog minimises, so its marginals are minus ours.
        marginals = -found.ineqlin.marginals * unit / units if slacks else []
        return _answer(problem, usable, found.x, marginals, status, message, stats)

    def _solve_conic(self, problem: Problem, scaled: bool = True) -> Solution:
        cp = require("cvxpy", "convex")
        usable = problem.mdp.reachable_pairs
        x = OccupancyVariable(usable)
        flow, initial = flow_equations(problem.mdp, usable)
        objective = _form(problem.utility, problem.objective_function, x)
        slacks = [
            _form(problem.constraints[name], g, x) for name, g in problem.slack_functions.items()
        ]
        unit, units = _units(problem) if scaled else (1.0, [1.0] * len(slacks))
        budgets = [
            cp.Constant(0.0) <= slack / size for slack, size in zip(slacks, units, strict=True)
        ]
        constraints = [flow @ x.pairs == initial, *budgets, *x.side_constraints]
        program = cp.Problem(cp.Maximize(objective / unit), constraints)
        started = time.perf_counter()
        status, message = self._run_clarabel(program, x.pairs.size)
        stats = {
            "solver": "ConvexProgram (CVXPY, Clarabel)",
            "seconds": time.perf_counter() - started,
            "iterations": program.solver_stats.num_iters if program.solver_stats else None,
        }
        if not status.has_policy:
            if not problem.constraints:  # then it is the domain of the objective that is empty
                message = f"The objective is infinite for every policy: {problem.utility!r}."
            return Solution.without_policy(problem, status, stats=stats, message=message)
        marginals = [
            float(np.ravel(budget.dual_value)[0]) * unit / size
            for budget, size in zip(budgets, units, strict=True)
        ]
        return _answer(problem, usable, x.pairs.value, marginals, status, message, stats)

    def _run_clarabel(self, program: Any, pairs: int) -> tuple[Status, str]:
        """Ask for more than the tolerance, then for it, for Clarabel's default, for anything."""
        cp = require("cvxpy", "convex")
        settled = max(self.tolerance, CLARABEL_DEFAULT)
        if pairs <= SHARPER_LIMIT:
            sharper = SHARPER * self.tolerance
            outcome = _call_clarabel(program, self.verbose, sharper, self.tolerance)
            if outcome in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                return Status.OPTIMAL, _optimal("Clarabel", self.tolerance)
            if outcome == cp.INFEASIBLE:
                return Status.INFEASIBLE, infeasible_message()
        outcome = _call_clarabel(program, self.verbose, self.tolerance, settled)
        if outcome == cp.OPTIMAL:
            return Status.OPTIMAL, _optimal("Clarabel", self.tolerance)
        if outcome == cp.OPTIMAL_INACCURATE:
            return Status.OPTIMAL, _optimal("Clarabel", settled)
        if outcome == cp.INFEASIBLE:
            return Status.INFEASIBLE, infeasible_message()
        outcome = _call_clarabel(program, self.verbose, settled, 1e-4, accept_unknown=True)
        if outcome == cp.OPTIMAL:
            return Status.OPTIMAL, _optimal("Clarabel", settled)
        if outcome in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            note = "" if outcome == cp.INFEASIBLE else " (Clarabel calls this inaccurate)"
            return Status.INFEASIBLE, infeasible_message(note)
        if program.variables()[0].value is None:
            raise SolverError(
                f"Clarabel found no answer ({outcome}). Likely causes: a constraint set with an "
                "empty interior, numbers of very different size, a discount very near one."
            )
        return Status.INACCURATE, f"{Status.INACCURATE.value} Clarabel: {outcome}."


def successors_per_state(mdp: TabularMDP) -> float:
    """Different successors of a state, over all its actions, on average."""
    pointers = mdp.transition.indptr[:: mdp.n_actions]
    entries = (np.ones(mdp.transition.nnz, dtype=np.int8), mdp.transition.indices, pointers)
    merged = sp.csr_array(entries, shape=(mdp.n_states, mdp.n_states)).copy()
    merged.sum_duplicates()
    return float(merged.nnz / mdp.n_states)


def conic_is_faster(mdp: TabularMDP) -> bool:
    """Whether a linear program is better given to Clarabel, where there is CVXPY."""
    if int(mdp.reachable.sum()) <= SIMPLEX_LIMIT or successors_per_state(mdp) > LOCAL:
        return False
    return importlib.util.find_spec("cvxpy") is not None


def _call_clarabel(
    program: Any, verbose: bool, tolerance: float, reduced: float, **further: Any
) -> str:
    cp = require("cvxpy", "convex")
    names = ("gap_abs", "gap_rel", "feas")
    options = {f"tol_{name}": tolerance for name in names}
    options |= {f"reduced_tol_{name}": reduced for name in names}
    try:
        import warnings

        with warnings.catch_warnings():
            # CVXPY warns of inaccurate answers; ours carry that in their status.
            warnings.simplefilter("ignore")
            program.solve(solver=cp.CLARABEL, verbose=verbose, **options, **further)
    except cp.error.SolverError as error:
        return str(error)
    return str(program.status)


def _largest(numbers: Any) -> float:
    """The largest finite absolute value, or one where there is none but zero."""
    sizes = np.abs(np.asarray(numbers, dtype=np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0)) or 1.0


def _units(problem: Problem) -> tuple[float, list[float]]:
    """A typical size of f and of each g_i over the occupancies.

    Measured at two occupancies, by values (for f their difference, since its constant plays no part)
    and by what the gradient at the first could change.
    """
    mdp = problem.mdp
    first = np.eye(mdp.n_actions)[mdp.actions.argmax(axis=1)]
    points = [occupancy_of(mdp, uniform_policy(mdp)), occupancy_of(mdp, first)]

    def change(function: Shape) -> float:
        return _largest(function.gradient(points[0])[mdp.reachable_pairs] * mdp.max_mass)

    f, slacks = problem.objective_function, problem.slack_functions.values()
    with np.errstate(invalid="ignore"):  # a logarithm may be minus infinity at both
        difference = f.value(points[0]) - f.value(points[1])
    return (
        _largest([difference, change(f)]),
        [_largest([*(g.value(point) for point in points), change(g)]) for g in slacks],
    )


def _optimal(solver: str, tolerance: float) -> str:
    return f"{solver} met its optimality tolerances ({tolerance:.0e})."


def _form(written: Any, function: Shape, x: OccupancyVariable) -> Any:
    if not function.has_conic_form:
        raise SolverError(
            f"{written!r} contains a function of your own, which has no form that ConvexProgram can "
            "hand to a conic solver. A solver that only needs its gradient can do it: PDPG."
        )
    return function.conic(x).expression


def flow_equations(mdp: TabularMDP, usable: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """The flow equations over the usable pairs and reachable states: matrix and right-hand side."""
    states, _ = np.nonzero(usable)
    rows = np.flatnonzero(usable.ravel())
    leaving = sp.csr_array(
        (np.ones(rows.size), (states, np.arange(rows.size))), shape=(mdp.n_states, rows.size)
    )
    arriving = mdp.discount * sp.csr_array(mdp.transition[rows].T)
    visited = mdp.reachable
    return sp.csr_array((leaving - arriving)[visited]), mdp.initial[visited]


def _answer(
    problem: Problem,
    usable: np.ndarray,
    pairs: np.ndarray,
    marginals: Any,
    status: Status,
    message: str,
    stats: dict[str, Any],
) -> Solution:
    x = np.zeros(usable.shape)
    x[usable] = np.maximum(pairs, 0.0)  # interior points lie at the border up to rounding
    stats["flow_residual"] = float(np.abs(problem.mdp.flow.residual(x)).sum())
    # A multiplier is not negative; the solver's rounding below zero is not part of the answer.
    multipliers = {
        name: max(0.0, float(marginal)) + 0.0
        for name, marginal in zip(problem.constraints, marginals, strict=True)
    }
    policy = policy_of(problem.mdp, x)
    return Solution.of_policy(problem, policy, status, multipliers, stats=stats, message=message)
