r"""PDPG: primal-dual policy gradient with exact gradients (the paper's eq. (algorithm_upate)).

    theta_{t+1} = theta_t + eta_theta grad_theta L(lambda(theta_t), mu_t)
    mu_{t+1}    = Proj_U( mu_t - eta_mu g(lambda(theta_t)) ),       U = [0, C_0]

| paper            | argument         |
|------------------|------------------|
| T                | ``iterations``   |
| eta_theta, eta_mu| ``primal_step``, ``dual_step`` |
| C_0, U           | ``dual_bound``   |
| mu_0             | ``initial_multiplier`` |
| delta            | ``pessimism``    |

The theorems bound averages over the iterations. An average of occupancies is an occupancy, and by concavity
its policy is at least as good and as feasible as the average that the theorem bounds; so a single policy can
be deployed that the theorem speaks of. The average over all iterations carries the burn-in; the default is
the average over the last half.

``pdpg_setting`` reads the task, ``pdpg_work`` iterates one step after the other (``primal_dual``, which says
what ``primal_step="auto"`` does); ``repeated`` finds a pessimism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cvxmdp.base.errors import SettingsError
from cvxmdp.base.removed import refusing_removed
from cvxmdp.base.settings import number, one_of, whole
from cvxmdp.policies.families import Direct, PolicyFamily, Table, require_family
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.contract import Task, Work, require_gradients
from cvxmdp.solvers.never import without_forbidden
from cvxmdp.solvers.pdpg_setting import PDPGSetting
from cvxmdp.solvers.repeated import ZeroViolation
from cvxmdp.solvers.start import Normalised
from cvxmdp.solvers.whole import Whole
from cvxmdp.theory import (
    DirectConstants,
    ParameterisationConstants,
    direct_constants,
    exact_schedule,
    problem_constants,
)

__all__ = ["PDPG", "Normalised"]

ITERATES = ("half", "average", "last", "best")


@refusing_removed
@dataclass(frozen=True)
class PDPG:
    """Exact primal-dual policy gradient.

    Attributes:
        iterations: T.
        primal_step: "auto" (no tuning, see ``primal_dual``), a number (constant), ``Normalised(number)``,
            or an Optax gradient transformation.
        dual_step: a number, or one per constraint by name; goes with every ``primal_step`` but "auto".
        dual_bound: the box of the multipliers, a number or one per constraint; from ``slater`` if not given.
        direction: "natural" or, as in the paper, "vanilla".
        policy: the family of policies: ``Table()``, ``LinearSoftmax(features)``, ``MLP(32)``, ``Direct()``,
            ``EquinoxModule(module)``.
        iterate: which policy is returned: "half" (of the occupancies averaged over the last half),
            "average" (over all, as the theorems bound it), "last", "best" (the best feasible one).
        pessimism: asks for slack of at least this much: a number, one per constraint, "auto" for the
            smallest (up to a factor of 2) with which the returned policy is certified feasible, or "theory"
            for that of theorem zero (with ``Direct()``, whose constants are known).
        initial_multiplier: mu_0; by default that of ``start=``, or zero.
        tolerance: certified relative gap at which to stop early; None to never stop early.
        check_every: iterations between checks of the certified gap.
    """

    iterations: int = 2_000
    primal_step: Any = "auto"
    dual_step: float | Mapping[str, float] | None = None
    dual_bound: float | Mapping[str, float] | None = None
    direction: str = "natural"
    policy: PolicyFamily = field(default_factory=Table)
    iterate: str = "half"
    pessimism: float | Mapping[str, float] | str = 0.0
    initial_multiplier: float | Mapping[str, float] | None = None
    tolerance: float | None = 1e-6
    check_every: int = 100
    needs_seed: ClassVar[bool] = False
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("iterations", self.iterations)
        whole("check_every", self.check_every)
        one_of("direction", self.direction, ["natural", "vanilla"])
        one_of("iterate", self.iterate, ITERATES)
        if isinstance(self.pessimism, str):
            one_of("pessimism", self.pessimism, ["auto", "theory"], "numbers")
        if self.tolerance is not None:
            number("tolerance", self.tolerance, other="None")
        require_family(self.policy)
        self._check_steps()

    def _check_steps(self) -> None:
        step = self.primal_step
        if isinstance(step, str):
            one_of("primal_step", step, ["auto"], "a number, Normalised(number)")
            if self.dual_step is not None:
                raise SettingsError(
                    'primal_step="auto" chooses the dual step itself; give a number for both, or none'
                )
            return
        size = step.step if isinstance(step, Normalised) else step
        if not hasattr(size, "update"):
            other = "'auto', Normalised(number) or an Optax transformation"
            number("primal_step", size, other=other)

    @classmethod
    def theory(
        cls,
        problem: Problem,
        iterations: int,
        *,
        parameterisation: ParameterisationConstants | DirectConstants | None = None,
        strongly_concave: bool = False,
        zero_violation: bool = False,
        **settings: Any,
    ) -> PDPG:
        """The run that the paper's theorems on the exact setting speak of.

        Steps, dual box, mu_0 = 0 and (with ``zero_violation``) the pessimism are the theorem's; the
        direction is the plain gradient and the returned policy that of the average over all iterations.

        Args:
            problem: with utilities that have a smoothness constant; others are refused with the reason.
            iterations: T.
            parameterisation: constants of the family of policies. Without them the direct parameterisation
                is used, the one case in which all are known; for a softmax table give
                ``theory.softmax_table_constants(inverse_lipschitz, inverse_radius)``, whose two arguments
                nobody knows (L_lambda and eps_bar in the paper's assumption).
            strongly_concave: the theorem's case of a strongly concave objective.
            zero_violation: the theorem on zero violation.
            **settings: any other setting of ``PDPG``.
        """
        known = parameterisation or direct_constants(problem.mdp)
        constants = problem_constants(problem, known)
        schedule = exact_schedule(
            constants, iterations, strongly_concave=strongly_concave, zero_violation=zero_violation
        )
        chosen: dict[str, Any] = {
            "iterations": iterations,
            "primal_step": schedule.primal_step,
            "dual_step": schedule.dual_step,
            "dual_bound": schedule.dual_bound,
            "pessimism": schedule.pessimism,
            "direction": "vanilla",
            "policy": Direct() if isinstance(known, DirectConstants) else Table(),
            "iterate": "average",
            "tolerance": None,
        }
        return cls(**{**chosen, **settings})

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. A seed is only needed by families with random weights."""
        task.problem.require_model("PDPG")
        require_gradients(task.problem)
        if self.dual_bound is None and isinstance(self.pessimism, int | float | str):
            return without_forbidden(task, self._prepare)
        return self._prepare(task)

    def _prepare(self, task: Task) -> Work[Any]:
        setting = PDPGSetting(self, task)
        if setting.infeasible is not None:
            return Whole.known("PDPG", setting.infeasible)
        if self.pessimism == "auto":
            return ZeroViolation(setting.certifier, setting.work)
        return setting.work(setting.pessimism())
