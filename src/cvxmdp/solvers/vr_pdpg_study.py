"""One call of ``VRPDPG.solve``: a run with a given pessimism, or several until one is certified feasible."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.errors import SolverError
from cvxmdp.certificates.certify import Certifier
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.confident import confidently_feasible
from cvxmdp.solvers.environment_runs import run_of
from cvxmdp.solvers.start import per_constraint
from cvxmdp.solvers.vr_pdpg_run import prepare, run_to_the_end
from cvxmdp.solvers.zero_violation import zero_violation

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg import VRPDPG


class Study:
    """What ``zero_violation`` asks of a solver: the same run from the same start with any pessimism."""

    def __init__(self, solver: VRPDPG, problem: Problem, start: Any, seed: Any) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise SolverError(
                f"sampling needs a seed, so that the run can be repeated: solve(..., seed=0); got {seed!r}"
            )
        self.solver, self.problem = solver, problem
        self.start, self.seed = start, int(seed)
        self.n = len(problem.constraints)
        self.started = time.perf_counter()

    @cached_property
    def certifier(self) -> Certifier:
        """Of the problem's model."""
        return Certifier(self.problem)

    def answer(self) -> Solution:
        """The run that was asked for."""
        if self.solver.pessimism == "auto":
            known = self.problem.environment is None
            return zero_violation(self) if known else confidently_feasible(self)
        return self.go(per_constraint(self.solver.pessimism, self.problem, "pessimism"))

    def go(self, pessimism: np.ndarray) -> Solution:
        """A run with this pessimism."""
        learning = prepare(self.solver, self.problem, pessimism)
        run = run_of(self.solver, self.problem, self.start, self.seed, learning)
        return run_to_the_end(run)

    def timed(self, solution: Solution) -> Solution:
        """With the time since the call, all runs included."""
        seconds = time.perf_counter() - self.started
        return replace(solution, stats={**solution.stats, "seconds": seconds})
