r"""Affine problems as the classical linear program of constrained MDPs (Altman, 1999), solved by HiGHS.

    maximise <r, x>   subject to   <g_i, x> + c_i >= 0,   x >= 0,   and the flow equations.

A minimum of several affine functions is maximised as a further variable t that none of them is below.
Its duals are a whole proof: the multipliers of the constraints, and as values V those of the flow equations.
"""

from __future__ import annotations

import importlib.util
import math
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxmdp.algorithms.conic import ProgramAnswer
from cvxmdp.models.flow import Equations, Flow, successors_of_states
from cvxmdp.problems.conic_statement import largest
from cvxmdp.problems.lowered import Evidence, Lowered

# HiGHS's simplex is faster on small programs, its interior point (with crossover) on large ones.
SIMPLEX_LIMIT = 500
METHODS = ("simplex", "interior point")
# Different successors per state up to which Clarabel is the fastest of the three: grids, queues, chains, whose
# factorisations stay sparse. On Garnets with 10,000 states HiGHS's interior point takes half as long.
LOCAL = 5
LEAST_TOLERANCE, LEAST_GAP = 1e-10, 1e-12  # HiGHS takes none below


def successors_per_state(model: Flow) -> float:
    """Different successors of a state, over all its actions, on average."""
    return float(successors_of_states(model.transition).nnz / model.shape[0])


def small(model: Flow) -> bool:
    """Whether the simplex method is the faster one."""
    return int(model.reached.sum()) <= SIMPLEX_LIMIT


def conic_is_faster(model: Flow) -> bool:
    """Whether a linear program is better given to Clarabel, where there is CVXPY."""
    if small(model) or successors_per_state(model) > LOCAL:
        return False
    return importlib.util.find_spec("cvxpy") is not None


class _Written(NamedTuple):
    """The program in x / mass over the usable pairs, and t last if f is a minimum of several functions.

    Attributes:
        arguments: of ``linprog``: a row each for those functions, then for the slacks.
        unit: of f, in which it is handed over.
        sizes: the same of each row's function.
    """

    arguments: dict[str, Any]
    unit: float
    sizes: np.ndarray


def _write(lowered: Lowered, equations: Equations) -> _Written:
    usable, pieces = lowered.flow.usable, lowered.objective.pieces()
    slacks = [part for g in lowered.slacks.values() if (part := g.affine()) is not None]
    assert pieces is not None, "a linear program"
    assert len(slacks) == len(lowered.slacks), "a linear program"
    below = pieces if len(pieces) > 1 else []
    unit = largest(*(piece.reward[usable] for piece in pieces))
    sizes = np.array([unit] * len(below) + [largest(slack.reward[usable]) for slack in slacks])
    bounded, costs = [*below, *slacks], -pieces[0].reward[usable] / unit
    rows = -np.array([part.reward[usable] for part in bounded]).reshape(-1, costs.size)
    rows, flow = rows / sizes[:, None], equations.matrix
    bounds: list[tuple[float | None, None]] = [(0.0, None)] * costs.size
    if below:
        costs, bounds = np.append(np.zeros(costs.size), -1.0), [*bounds, (None, None)]
        rows = np.column_stack([rows, np.arange(len(bounded)) < len(below)])
        flow = sp.hstack([flow, sp.csr_array((flow.shape[0], 1))])
    right = np.array([part.offset for part in bounded]) / lowered.flow.mass / sizes
    limits = {"A_ub": rows, "b_ub": right} if bounded else {}
    equal = {"A_eq": flow, "b_eq": equations.right}
    return _Written({"c": costs, "bounds": bounds, **limits, **equal}, unit, sizes)


def solve_linear(
    lowered: Lowered,
    tolerance: float,
    verbose: bool = False,
    seconds: float = math.inf,
    method: str | None = None,
) -> ProgramAnswer:
    """Solve a problem that is a linear program, in at most so many seconds, by one of ``METHODS``."""
    model, usable = lowered.flow, lowered.flow.usable
    simplex = small(model) if method is None else method == METHODS[0]
    tolerance = max(tolerance, LEAST_TOLERANCE)
    options = {
        "disp": verbose,
        "time_limit": seconds if math.isfinite(seconds) else None,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
    }
    if not simplex:
        options["ipm_optimality_tolerance"] = max(tolerance, LEAST_GAP)
        # Its presolve substitutes states into each other: little where steps are local, else a dense mess.
        options["presolve"] = successors_per_state(model) <= LOCAL
    equations = model.equations()
    arguments, unit, sizes = _write(lowered, equations)
    started = time.perf_counter()
    found = linprog(**arguments, method="highs-ds" if simplex else "highs-ipm", options=options)
    spent = time.perf_counter() - started
    x, evidence = None, None
    if found.x is not None:
        x = np.zeros(model.shape)
        x[usable] = model.mass * np.maximum(found.x[: usable.sum()], 0.0)
        # linprog minimises, so its marginals are minus ours.
        marginals = -found.ineqlin.marginals if sizes.size else np.zeros(0)
        prices = np.maximum(marginals * unit / sizes, 0.0) + 0.0
        weights, multipliers = np.split(prices, [sizes.size - len(lowered.slacks)])
        duals = np.zeros(model.shape[0])
        duals[model.reached] = equations.values(-found.eqlin.marginals * unit)
        named = lowered.named(multipliers)
        tangents = lowered.tangents_at(x)
        if weights.size:
            tangents["objective"]["weights"] = weights
        values: np.ndarray | None = duals
        if model.strict:
            named, values = lowered.proving_values(named, tangents)
        evidence = Evidence(named, tangents, values, model.policy(x))
    ended = "HiGHS", f"HiGHS {METHODS[not simplex]}", str(found.message)
    return ProgramAnswer(*ended, x, evidence, spent, int(found.nit))
