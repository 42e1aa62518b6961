"""The paper's theorems in the exact setting, on a model so small that their constants are not astronomical.

A ring of three states where staying is nearly free and moving on has a reward and a cost, every state a first
state, and the direct parameterisation, which satisfies the paper's assumption. `make rates` has longer runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cvxmdp.atoms import Utility, distance, linear
from cvxmdp.models import TabularMDP
from cvxmdp.paper.verdicts import Claim
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.runs.solving import solve_among_many
from cvxmdp.solvers.contract import Solver
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.pdpg import PDPG
from cvxmdp.theory import (
    Comparison,
    TheoryError,
    compare,
    direct_constants,
    fit_rate,
    problem_constants,
)

TIMES = (100, 316, 1_000)
DISCOUNT = 0.3


def theorem_claims() -> list[Claim]:
    """The rates of both cases, and zero violation."""
    problems = ring_problems()
    rates = [claim for strong, one in problems.items() for claim in _rate(one, strong)]
    return [*rates, _zero_violation(problems[False])]


def ring_problems(share: float = 0.5) -> dict[bool, Problem]:
    """A concave problem (False) and a strongly concave one, with this share of the best policy's cost."""
    mdp = _ring()
    free = _solved(Problem(mdp, maximize=linear("reward"))).occupancy
    limits = {"cost": linear("cost") <= share * float(np.vdot(mdp.signal("cost"), free))}
    objectives: dict[bool, Utility] = {
        False: linear("reward"),
        True: -0.5 * distance(free, norm="l2-squared"),
    }
    return {strong: Problem(mdp, maximize=f, subject_to=limits) for strong, f in objectives.items()}


def _solved(problem: Problem, solver: Solver | None = None) -> Solution:
    return solve_among_many(problem, solver, progress=False)


def _ring() -> TabularMDP:
    stay, on = np.eye(3), np.roll(np.eye(3), 1, axis=1)
    return TabularMDP(
        np.stack([0.8 * stay + 0.2 * on, 0.2 * stay + 0.8 * on], axis=1),
        np.full(3, 1 / 3),
        DISCOUNT,
        signals={
            "reward": np.array([[0.0, 1.0], [0.0, 0.8], [0.0, 0.6]]),
            "cost": np.array([[0.0, 0.5], [0.0, 0.8], [0.0, 1.0]]),
        },
    )


def _rate(problem: Problem, strongly_concave: bool) -> Iterator[Claim]:
    promised = -1 / 2 if strongly_concave else -1 / 3
    constants = problem_constants(problem, direct_constants(problem.mdp))
    optimum = _solved(problem, ConvexProgram()).objective
    found: list[Comparison] = []
    for iterations in TIMES:
        solver = PDPG.theory(
            problem, iterations, strongly_concave=strongly_concave, check_every=iterations
        )
        run = _solved(problem, solver)
        found.append(compare(problem, run, constants, strongly_concave, optimum=optimum))
    held = sum(one.holds and not one.departures for one in found)
    violations = [one.violation for one in found]
    if min(violations) > 0:
        slope = fit_rate(TIMES, violations)
        fast, words = slope.slope <= promised + 0.05, f"violation falls as T^{slope.slope:.2f}"
    else:
        fast, words = True, "no violation"
    setting = "a strongly concave objective" if strongly_concave else "a concave one"
    below = f"both below the theorem's bound in {held} of {len(found)} runs"
    yield Claim(
        f"exact gradients, {setting}: average gap and violation of order T^({promised:.2g})",
        f"T = {TIMES[0]} to {TIMES[-1]:,}: {words}; {below}",
        "confirmed" if fast and held == len(found) else "not seen at these T",
    )


def _zero_violation(problem: Problem) -> Claim:
    """As the theorem has it, which may ask for more iterations than anybody has; and by certificates."""
    claim = "a diminishing pessimistic term gives zero violation"
    try:
        solver = PDPG.theory(problem, TIMES[-1], zero_violation=True, check_every=TIMES[-1])
        run = _solved(problem, solver)
        measured, how = f"T = {TIMES[-1]:,}, the theorem's delta: ", "confirmed"
    except TheoryError as error:
        run = _solved(problem, PDPG(TIMES[-1], pessimism="auto"))
        needed = str(error).split(". ")[0]
        measured, how = f"{needed}; a pessimism found by certificates: ", "reached by certificates"
    worst = max(run.violation.values())
    return Claim(claim, f"{measured}violation {worst:.2g}", how if worst == 0 else "violated")
