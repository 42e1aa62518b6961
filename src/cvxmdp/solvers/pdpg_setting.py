"""What PDPG reads of its task, once: the multipliers' box, the steps, the first parameters, the pessimism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.algorithms.primal_dual.pieces import Method
from cvxmdp.base.errors import SettingsError
from cvxmdp.base.precision import double_precision, on_device
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.measured import conflicting
from cvxmdp.models.compiled_systems import dynamics
from cvxmdp.policies import SoftmaxTable
from cvxmdp.policies.families import BoundDirect, BoundFamily
from cvxmdp.policies.occupancies import measured_occupancy
from cvxmdp.problems.conic_statement import units_of
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.pdpg_work import PDPGWork
from cvxmdp.solvers.start import Normalised, per_constraint, read_start
from cvxmdp.theory import direct_constants, problem_constants, theory_pessimism

if TYPE_CHECKING:
    from cvxmdp.solvers.pdpg import PDPG

NO_ROOM = 1e-2  # of a slack's size: the margin that the box of multipliers is made for where there is none
PROPORTIONAL = 0.1  # of the natural scale of multiplier per slack, for primal_step="auto"


class PDPGSetting:
    """A solver on a task: first the cheap checks, then what programs may have to be solved for."""

    def __init__(self, solver: PDPG, task: Task) -> None:
        self.solver, self.problem, self.rows = solver, task.problem, task.rows
        self.n = len(self.problem.constraints)
        self.names = list(self.problem.constraints)
        self.certifier = Certifier(self.problem)
        self.infeasible: Solution | None = None
        self.margins: np.ndarray | None = None  # of the Slater point, where it was asked for
        self.without_room = False  # as was found where it was
        self.family: BoundFamily = solver.policy.bind(self.problem.mdp.deciding)
        if solver.direction == "natural" and isinstance(self.family, BoundDirect):
            raise SettingsError(
                'the direct parameterisation has no score function: use direction="vanilla"'
            )
        self.dual_bound, self.penalty = self._read_dual()
        self.method, self.steps = self._read_method()
        with double_precision():
            self.dynamics = dynamics(self.problem.mdp)
            self.start = read_start(
                task, self.family, self.certifier.claims, solver.initial_multiplier
            )

    def work(self, pessimism: np.ndarray) -> PDPGWork:
        """The run with this pessimism."""
        with double_precision():
            given = core.Compiled(
                self.dynamics,
                self.problem.objective_function,
                tuple(self.problem.slack_functions.values()),
                self.family,
                self.widened(pessimism),
                pessimism,
            )
            return PDPGWork(self, on_device(given))  # once, not with every piece

    def _read_dual(self) -> tuple[np.ndarray, np.ndarray]:
        """The box of the multipliers and the strength of the proportional term."""
        if not self.n:
            return np.zeros(0), np.ones(0)
        uniform = self.problem.evaluate(SoftmaxTable.uniform(self.problem.mdp.actions))
        scale = np.abs(np.array(list(uniform.slack.values())))
        if self.solver.dual_bound is not None:
            bound = per_constraint(self.solver.dual_bound, self.problem, "dual_bound")
            return bound, PROPORTIONAL * bound / self._typical(scale, uniform.occupancy)
        room = self.certifier.slater()
        if room.infeasible:
            self.infeasible = self.no_policy()
            return np.ones(self.n), np.ones(self.n)
        if room.dual_bound is None:
            # The budgets leave no room, and no theorem a bound. Affine functions have multipliers all the same:
            # the box is that of a margin of a hundredth of the slacks, and one at its border is said.
            self.without_room = True
            units = units_of(self.certifier.claims.lowered)
            bound = units.objective / (NO_ROOM * np.array(list(units.slacks.values())))
            return bound, PROPORTIONAL * bound / self._typical(scale, uniform.occupancy)
        bound = np.array(list(room.dual_bound.values()))
        self.margins = np.array(list(room.margins.values()))
        # Outside the domain of a logarithm there is no slack to go by.
        scale = np.where(np.isfinite(scale), np.maximum(scale, self.margins), self.margins)
        return bound, PROPORTIONAL * (bound - 1.0 + 1e-12) / scale

    def no_policy(self) -> Solution:
        """The answer where no policy satisfies all constraints."""
        return conflicting(self.problem, self.certifier, stats={"solver": "PDPG"})

    def _typical(self, scale: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The size of each slack: at the uniform policy, unless it happens to be near zero there."""
        functions = self.problem.slack_functions.values()
        slopes = [np.linalg.norm(np.nan_to_num(g.gradient(x))) for g in functions]
        least = 1e-2 * np.linalg.norm(x) * np.array(slopes) + 1e-12
        return np.where(np.isfinite(scale), np.maximum(scale, least), least)

    def widened(self, pessimism: np.ndarray) -> np.ndarray:
        """C_{0,delta}: the box of the multipliers with margins xi_i - delta_i."""
        if self.margins is None:
            return self.dual_bound
        left = np.maximum(self.margins - pessimism, 0.1 * self.margins)
        return 1.0 + (self.dual_bound - 1.0) * self.margins / left

    def pessimism(self) -> np.ndarray:
        """delta, as numbers or "theory"; refused where it leaves no policy."""
        if self.solver.pessimism == "theory":
            return self._theorem_zero()
        given = per_constraint(self.solver.pessimism, self.problem, "pessimism")
        if given.any():
            room = self.certifier.slater()
            if given.min() > room.margin_bound:
                raise SettingsError(
                    f"no policy has a slack of at least pessimism = {given.min():.6g} in every "
                    f"constraint: the smallest is at most {room.margin_bound:.6g} (proven)"
                )
        return given

    def _theorem_zero(self) -> np.ndarray:
        """delta of theorem zero; an error that names the T it needs where there is none."""
        known = problem_constants(self.problem, direct_constants(self.problem.mdp))
        pessimism = theory_pessimism(known, self.solver.iterations)
        if not isinstance(self.family, BoundDirect):
            raise SettingsError(
                'pessimism="theory" needs the constants of the policies. They are known for '
                "policy=Direct(); for others use PDPG.theory(..., parameterisation=..., "
                "zero_violation=True)."
            )
        return np.full(self.n, pessimism)

    def _read_method(self) -> tuple[Method, Any]:
        solver, step = self.solver, self.solver.primal_step
        if isinstance(step, str):
            return Method("tuned", "auto", solver.direction, None), self.penalty
        if solver.dual_step is None and self.n:
            raise SettingsError(
                "a primal step of your own needs a dual_step as well (or use neither)"
            )
        dual = per_constraint(solver.dual_step or 0.0, self.problem, "dual_step")
        if isinstance(step, Normalised):
            return Method("paper", "normalised", solver.direction, None), (step.step, dual)
        if hasattr(step, "update"):
            return Method("paper", "transform", solver.direction, step), (0.0, dual)
        return Method("paper", "constant", solver.direction, None), (float(step), dual)

    def round_functions(self) -> Any:
        """Objective and slacks with their kinks made round; None where there are none."""
        exact = (self.problem.objective_function, tuple(self.problem.slack_functions.values()))
        visits = measured_occupancy(
            self.problem.mdp, SoftmaxTable.uniform(self.problem.mdp.actions)
        )
        smooth = (exact[0].softened(visits), tuple(g.softened(visits) for g in exact[1]))
        if smooth[0] is exact[0] and all(a is b for a, b in zip(smooth[1], exact[1], strict=True)):
            return None
        return on_device(smooth)
