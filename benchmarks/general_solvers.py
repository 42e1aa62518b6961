"""Solvers of others on our problems: the processor time each takes, and the objective it finds.

A solver that is not installed is left out: HiGHS, Clarabel, SCS and Storm come with the environment of the
tests, QuantEcon, MDPSolver and mpax do not (``pip install quantecon mdpsolver mpax``). Each is asked for a
relative precision of ``tolerance`` in its own words and believed: none proves its answer. Writing the model in
its format is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm

Answer = tuple[float, float]  # seconds of the processor, objective
Ask = Callable[[cm.Problem, float], Answer]
LIMIT = 300.0  # seconds


def clocked(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call, and what it gave."""
    started = time.process_time()
    found = call()
    return time.process_time() - started, found


def conic(solver: str) -> Ask:
    """A conic solver through CVXPY, compilation by CVXPY included."""

    def ask(problem: cm.Problem, tolerance: float) -> Answer:
        program = problem.to_cvxpy().problem
        kinds = ("gap_abs", "gap_rel", "feas")
        options: dict[str, Any] = {f"tol_{kind}": tolerance for kind in kinds}
        if solver == "SCS":
            options = {"eps": tolerance, "max_iters": 10**7, "time_limit_secs": LIMIT}
        seconds, value = clocked(lambda: program.solve(solver=solver, **options))
        return seconds, float(value)

    return ask


def linear_parts(problem: cm.Problem) -> tuple[Any, ...]:
    """max c y with F y = rho, G y >= h, y >= 0, over the pairs that can be reached, in shares of the mass."""
    flow = problem.mdp.flow
    equations, usable = flow.equations(), flow.usable
    objective = problem.objective_function.affine()
    slacks = [g.affine() for g in problem.slack_functions.values()]
    rows = np.array([slack.reward[usable] for slack in slacks]).reshape(len(slacks), -1)
    least = np.array([-slack.offset for slack in slacks])
    reward = flow.mass * objective.reward[usable]
    return reward, equations.matrix, equations.right, flow.mass * rows, least


def highs(method: str) -> Ask:
    """HiGHS through SciPy's interface: its dual simplex or its interior point."""

    def ask(problem: cm.Problem, tolerance: float) -> Answer:
        from scipy.optimize import linprog

        reward, flow, initial, rows, least = linear_parts(problem)
        limits = {"A_ub": -rows, "b_ub": -least} if len(rows) else {}
        options = {"time_limit": LIMIT, "presolve": method != "highs-ipm"}
        seconds, found = clocked(
            lambda: linprog(
                -reward, A_eq=flow, b_eq=initial, method=method, options=options, **limits
            )
        )
        return seconds, float(-found.fun) if found.success else np.nan

    return ask


def pdlp(problem: cm.Problem, tolerance: float) -> Answer:
    """HiGHS's first-order method."""
    import highspy

    reward, flow, initial, rows, least = linear_parts(problem)
    matrix = sp.csc_matrix(sp.vstack([flow, rows]) if len(rows) else flow)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_ = -reward
    program.col_lower_, program.col_upper_ = np.zeros(reward.size), np.full(reward.size, np.inf)
    program.row_lower_ = np.concatenate([initial, least])
    program.row_upper_ = np.concatenate([initial, np.full(len(rows), np.inf)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
    program.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    options = {"output_flag": False, "solver": "pdlp", "time_limit": LIMIT}
    for name, value in {**options, "pdlp_optimality_tolerance": tolerance}.items():
        solver.setOptionValue(name, value)
    solver.passModel(program)
    seconds, _ = clocked(solver.run)
    done = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return seconds, -solver.getInfo().objective_function_value if done else np.nan


def mpax(problem: cm.Problem, tolerance: float) -> Answer:
    """A first-order method in JAX, compilation not counted where it runs twice in seconds."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.sparse import BCSR
    from mpax import create_lp, raPDHG

    jax.config.update("jax_enable_x64", True)
    reward, flow, initial, rows, least = linear_parts(problem)
    places = np.zeros(reward.size), np.full(reward.size, np.inf)
    sparse = [BCSR.from_scipy_sparse(sp.csr_matrix(one)) for one in (flow, rows)]
    numbers = [jnp.asarray(one) for one in (-reward, initial, least, *places)]
    program = create_lp(numbers[0], sparse[0], numbers[1], sparse[1], *numbers[2:])
    solver = raPDHG(eps_abs=tolerance, eps_rel=tolerance, verbose=False)

    def solve() -> Any:
        return jax.block_until_ready(solver.optimize(program).primal_solution)

    seconds, found = clocked(solve)
    if seconds < 30.0:
        seconds, found = clocked(solve)
    return seconds, float(reward @ np.asarray(found))


def storm(problem: cm.Problem, tolerance: float) -> Answer:
    """Storm's sparse engine in floats, a budget each a bound of its multi-objective query."""
    from cvxmdp.runs.cross_check import StormQuestion

    asked = StormQuestion.of(problem)
    model, size = asked.model(exact=False), Fraction(abs(cm.solve(problem).objective))
    precision = Fraction(tolerance) * size  # Storm's is absolute
    seconds, found = clocked(lambda: asked.ask(model, False, precision))
    return seconds, problem.sign * found


def quantecon(problem: cm.Problem, tolerance: float) -> Answer:
    """QuantEcon's modified policy iteration, compiled before."""
    from quantecon.markov import DiscreteDP

    flow, mdp = problem.mdp.flow, problem.mdp
    states, actions = flow.shape
    reward = np.asarray(problem.objective_function.affine().reward).ravel()
    pairs = (np.repeat(np.arange(states), actions), np.tile(np.arange(actions), states))
    asked = DiscreteDP(reward, sp.csr_matrix(flow.transition), mdp.discount, *pairs)
    asked.solve(method="mpi", epsilon=tolerance)
    repeats = [clocked(lambda: asked.solve(method="mpi", epsilon=tolerance)) for _ in range(3)]
    return min(seconds for seconds, _ in repeats), float(mdp.initial @ repeats[0][1].v)


def mdpsolver(problem: cm.Problem, tolerance: float) -> Answer:
    """MDPSolver's modified policy iteration; its tolerance is absolute."""
    import mdpsolver as peer

    mdp, rows = problem.mdp, sp.csr_array(problem.mdp.flow.transition)
    states, actions = mdp.shape
    reward = np.asarray(problem.objective_function.affine().reward)

    def lists(numbers: np.ndarray) -> list[list[list[Any]]]:
        parts = [part.tolist() for part in np.split(numbers, rows.indptr[1:-1])]
        return [parts[state * actions : (state + 1) * actions] for state in range(states)]

    asked = peer.model()
    asked.mdp(
        discount=mdp.discount,
        rewards=reward.tolist(),
        tranMatProbs=lists(rows.data),
        tranMatColumns=lists(rows.indices),
    )
    seconds, _ = clocked(lambda: asked.solve(algorithm="mpi", tolerance=tolerance, parallel=False))
    return seconds, float(mdp.initial @ np.array(asked.mdl.getValueVector()))


LINEAR: dict[str, tuple[str, Ask]] = {
    "HiGHS simplex": ("highspy", highs("highs-ds")),
    "HiGHS interior point": ("highspy", highs("highs-ipm")),
    "HiGHS PDLP": ("highspy", pdlp),
    "Clarabel": ("clarabel", conic("CLARABEL")),
    "SCS": ("scs", conic("SCS")),
    "mpax": ("mpax", mpax),
    "Storm": ("stormpy", storm),
}
UNCONSTRAINED: dict[str, tuple[str, Ask]] = {
    "QuantEcon": ("quantecon", quantecon),
    "MDPSolver": ("mdpsolver", mdpsolver),
    "Storm": LINEAR["Storm"],
}
CONCAVE = {name: LINEAR[name] for name in ("Clarabel", "SCS")}


def installed(solvers: dict[str, tuple[str, Ask]]) -> dict[str, Ask]:
    """Those that there are."""
    return {name: ask for name, (package, ask) in solvers.items() if find_spec(package)}
