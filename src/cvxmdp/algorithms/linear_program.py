r"""Affine problems as the classical linear program of constrained MDPs (Altman, 1999), solved by HiGHS.

    maximise <r, x>   subject to   <g_i, x> + c_i >= 0,   x >= 0,   and the flow equations.

Its duals are a whole proof: the multipliers of the constraints, and as values V those of the flow equations.
"""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxmdp.models.flow import Flow
from cvxmdp.problems.conic_statement import largest
from cvxmdp.problems.lowered import Evidence, Lowered

# HiGHS's simplex is faster on small programs, its interior point (with crossover) on large ones.
SIMPLEX_LIMIT = 500
METHODS = ("simplex", "interior point")
# Different successors per state up to which Clarabel is the fastest of the three: grids, queues, chains, whose
# factorisations stay sparse. On Garnets with 10,000 states HiGHS's interior point takes half as long.
LOCAL = 5
LEAST_TOLERANCE, LEAST_GAP = 1e-10, 1e-12  # HiGHS takes none below


@dataclass(frozen=True, eq=False)
class LinearAnswer:
    """What HiGHS found.

    Attributes:
        status: SciPy's: 0 for optimal, 2 for infeasible.
        message: HiGHS's own words.
        method: "simplex" or "interior point".
        tolerance: that was met where the status is 0.
        occupancy: (S, A); None where there is none.
        evidence: multipliers and values; None where there is no occupancy.
        seconds, iterations: of the solver.
    """

    status: int
    message: str
    method: str
    tolerance: float
    occupancy: np.ndarray | None
    evidence: Evidence | None
    seconds: float
    iterations: int


def successors_per_state(model: Flow) -> float:
    """Different successors of a state, over all its actions, on average."""
    pointers = model.transition.indptr[:: model.shape[1]]
    ones = np.ones(model.transition.nnz, dtype=np.int8)
    entries = (ones, model.transition.indices, pointers)
    merged = sp.csr_array(entries, shape=(model.shape[0], model.shape[0])).copy()
    merged.sum_duplicates()
    return float(merged.nnz / model.shape[0])


def small(model: Flow) -> bool:
    """Whether the simplex method is the faster one."""
    return int(model.reached.sum()) <= SIMPLEX_LIMIT


def conic_is_faster(model: Flow) -> bool:
    """Whether a linear program is better given to Clarabel, where there is CVXPY."""
    if small(model) or successors_per_state(model) > LOCAL:
        return False
    return importlib.util.find_spec("cvxpy") is not None


def solve_linear(
    lowered: Lowered,
    tolerance: float,
    verbose: bool = False,
    seconds: float = math.inf,
    method: str | None = None,
) -> LinearAnswer:
    """Solve a problem whose functions are all affine, in at most so many seconds, by one of ``METHODS``."""
    model, usable = lowered.flow, lowered.flow.usable
    parts = [function.affine() for function in lowered.functions]
    objective, *slacks = [part for part in parts if part is not None]
    assert len(slacks) == len(lowered.slacks), "an affine problem"
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
    unit = largest(objective.reward[usable])
    units = np.array([largest(slack.reward[usable]) for slack in slacks])
    rows = np.array([-slack.reward[usable] for slack in slacks]).reshape(-1, usable.sum())
    equations = model.equations()
    started = time.perf_counter()
    found = linprog(
        -objective.reward[usable] / unit,
        A_ub=rows / units[:, None] if slacks else None,
        b_ub=[slack.offset / model.mass for slack in slacks] / units if slacks else None,
        A_eq=equations.matrix,
        b_eq=equations.right,
        method="highs-ds" if simplex else "highs-ipm",
        options=options,
    )
    spent = time.perf_counter() - started
    x, evidence = None, None
    if found.x is not None:
        x = np.zeros(model.shape)
        x[usable] = model.mass * np.maximum(found.x, 0.0)
        # linprog minimises, so its marginals are minus ours.
        marginals = -found.ineqlin.marginals * unit / units if slacks else np.zeros(0)
        multipliers = np.maximum(marginals, 0.0) + 0.0
        duals = np.zeros(model.shape[0])
        duals[model.reached] = equations.values(-found.eqlin.marginals * unit)
        named = dict(zip(lowered.slacks, multipliers.tolist(), strict=True))
        tangents = lowered.tangents_at(x)
        values: np.ndarray | None = duals
        if model.strict:
            named, values = lowered.proving_values(named, tangents)
        evidence = Evidence(named, tangents, values, model.policy(x))
    state = (int(found.status), str(found.message), METHODS[not simplex], tolerance)
    return LinearAnswer(*state, x, evidence, spent, int(found.nit))
