r"""VR-PDPG: variance-reduced primal-dual policy gradient from samples (Algorithm 1 of the paper).

| paper              | argument                       |
|--------------------|--------------------------------|
| T, H               | ``iterations``, ``horizon``    |
| eta_theta, eta_mu  | ``primal_step``, ``dual_step`` |
| alpha_t            | ``momentum``                   |
| C_0, mu_0          | ``dual_bound``, ``initial_multiplier`` |
| delta              | ``pessimism``                  |

``momentum=1`` is the paper's first baseline, ``momentum=1`` with ``batch_size=100`` its second ("Avg").
``recursion`` has the iteration itself, ``vr_pdpg_work`` what happens around it.

Two quantities are never mixed: ``slack`` and ``violation`` speak of the policy's occupancy, an expectation;
``episode_slack`` and ``tracking_error`` of the occupancy of single episodes, whose mean distance to an expert
is larger (Jensen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cvxmdp.base.errors import SettingsError
from cvxmdp.base.removed import refuse_removed, refusing_removed
from cvxmdp.base.settings import number, one_of, whole
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.slater import slater
from cvxmdp.experience.judging import CHECK
from cvxmdp.policies.families import PolicyFamily, Table, require_family
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.contract import Task, Work, require_gradients
from cvxmdp.solvers.environment_work import work_of
from cvxmdp.solvers.learning import Shared
from cvxmdp.solvers.repeated import ConfidentlyFeasible, ZeroViolation
from cvxmdp.solvers.start import per_constraint
from cvxmdp.solvers.vr_pdpg_settings import settings_for
from cvxmdp.solvers.vr_pdpg_work import LearningWork
from cvxmdp.theory import (
    ParameterisationConstants,
    problem_constants,
    sample_schedule,
    sampled_pessimism,
)

ITERATES = ("last", "uniform", "half")
DIRECTIONS = ("gradient", "natural")
SQUARE_ROOT = "square root"  # the theorem's momentum, (t + 1)^(-1/2)


@refusing_removed
@dataclass(frozen=True)
class VRPDPG:
    """Variance-reduced primal-dual policy gradient, Algorithm 1 to the letter.

    Attributes:
        iterations: T. Alone it is enough: leaving out any of the next four asks for settings from the
            problem, of these and of all departures below that are left out (``vr_pdpg_settings`` says which,
            and why). With all four given, what is left out is as in the paper.
        primal_step: the length of each step in the parameters, eta_theta.
        dual_step: eta_mu, a number or one per constraint.
        momentum: alpha in (0, 1], or "square root" for the theorem's (t+1)^(-1/2).
        horizon: H, the longest episode.
        batch_size: trajectories per iteration; by default 1, or 10 among settings from the problem.
        dual_bound: the box of the multipliers, a number or one per constraint; by default wide, a hundred times
            the multiplier at which objective and constraint pull equally.
        initial_multiplier: mu_0; by default that of ``start=``, or zero.
        policy: the family of policies.
        pessimism: asks for slack of at least this much: a number, one per constraint, or "auto" for the
            smallest (up to a factor of 2) with which the returned policy is certified feasible; in an
            environment, for one with which fresh episodes bound every slack at zero from below.
        iterate: "last", the default; "uniform", the theorem's: a policy that draws one iterate afresh per
            episode; or "half": the policy of the average exact occupancy over the last half, in an
            environment a policy that draws one from the last half per episode. Where policies depend on time,
            "uniform" is the policy of the average, too, which by concavity is no worse. Of long runs both take
            iterates that are spread evenly, 40 to 256 over the whole run, whatever ``evaluate_every``.
        check: fresh episodes that say, in an environment, what the answer is worth and which constraints it
            satisfies: at most so many, at least 100, and no more steps than were learned from.
        evaluate_every: iterations between exact evaluations.
        record_every: iterations between records of episodes, weights and multipliers in the history; recording
            all of them takes about a tenth of the time. By default as many as give at most 10,000 records.

    Departures from the paper, all off unless settings come from the problem (docs/vr-pdpg.md says what each
    does, measured):

    Attributes:
        baseline: subtract the running mean of the reward to go from it.
        primal_decay, dual_decay: steps shrink as (t+1)^(-decay).
        safe: keep the arguments of logarithms in the objective positive (``safe_steps``): estimates outside the
            domain of a barrier turn the step back inside, and no step loses more than half of what is left.
        explore: how strongly, beside the ascent, steps go where the entropy of states rises; falls to zero over
            the first half. With a model, ``start=`` is then mixed with a policy that tries things (``start``).
        direction: "gradient", or "natural": in the norm of the policy's Fisher matrix (``directions``).
        primal_step: an Optax transformation instead of a number.
    """

    iterations: int
    primal_step: Any = None
    dual_step: float | Mapping[str, float] | None = None
    momentum: float | str | None = None
    horizon: int | None = None
    batch_size: int | None = None
    dual_bound: float | Mapping[str, float] | None = None
    initial_multiplier: float | Mapping[str, float] | None = None
    policy: PolicyFamily = field(default_factory=Table)
    pessimism: float | Mapping[str, float] | str = 0.0
    iterate: str | None = None
    check: int = CHECK
    evaluate_every: int = 250
    record_every: int | None = None
    baseline: bool | None = None
    primal_decay: float | None = None
    dual_decay: float | None = None
    safe: bool | None = None
    explore: float | None = None
    direction: str = "gradient"
    needs_seed: ClassVar[bool] = True
    has_lanes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("iterations", "check", "evaluate_every"):
            whole(name, getattr(self, name))
        for name in ("horizon", "batch_size", "record_every"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if not (self.primal_step is None or hasattr(self.primal_step, "update")):
            number("primal_step", self.primal_step, other="an Optax transformation")
        if self.momentum not in (None, SQUARE_ROOT):  # 1 forgets the past, less averages over it
            number("momentum", self.momentum, most=1.0, other=repr(SQUARE_ROOT))
        refuse_removed("VRPDPG", [f'iterate="{self.iterate}"'])
        if self.iterate is not None:
            one_of("iterate", self.iterate, ITERATES)
        if isinstance(self.pessimism, str):
            one_of("pessimism", self.pessimism, ["auto"], "numbers")
        require_family(self.policy)
        self._check_departures()

    def _check_departures(self) -> None:
        for name in ("primal_decay", "dual_decay", "explore"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), positive=False)
        for name in ("baseline", "safe"):
            if getattr(self, name) not in (True, False, None):
                raise SettingsError(f"{name} must be True or False; got {getattr(self, name)!r}")
        one_of("direction", self.direction, DIRECTIONS)
        beyond = self.safe or self.explore or self.direction != "gradient"
        if beyond and hasattr(self.primal_step, "update"):
            raise SettingsError(
                "safe, explore and direction change the normalised step, which an Optax transformation "
                "replaces: give primal_step as a number, or leave them out"
            )

    @classmethod
    def theory(
        cls,
        problem: Problem,
        iterations: int,
        *,
        parameterisation: ParameterisationConstants | None = None,
        zero_violation: bool = False,
        **settings: Any,
    ) -> VRPDPG:
        """The run that the theorem on the sample-based setting speaks of.

        eta_theta = T^(-1/2), eta_mu = T^(-3/4), alpha_t = (t+1)^(-1/2) as in its proof (its statement's
        (t+1)^(-1) is a misprint: with it the error does not vanish), H = ceil(log_{1/gamma}(T) / 2). It
        bounds the average over the iterations, so a policy drawn from them (``iterate="uniform"``).

        Args:
            problem: gives the horizon and, where the model is known, the box of the multipliers: C_0 from the
                Slater point.
            iterations: T.
            parameterisation: ``theory.softmax_table_constants(inverse_lipschitz, inverse_radius)``, whose two
                arguments nobody knows (L_lambda and eps_bar in the paper's assumption). Needed for
                ``zero_violation`` alone.
            zero_violation: solve g_i - delta >= 0 with the delta of ``theory.sampled_pessimism``, for no
                violation in expectation; an error that names the iterations it needs where these are too few.
            **settings: any other setting of ``VRPDPG``.
        """
        if not isinstance(problem, Problem):
            raise SettingsError(
                f"VRPDPG.theory takes a problem first, then the iterations: theory(problem, {problem!r}); got "
                f"{problem!r}"
            )
        known = problem.environment is None
        discount = problem.mdp.flow.effective_discount if known else problem.space.discount
        schedule = sample_schedule(iterations, discount)
        chosen: dict[str, Any] = {
            "iterations": iterations,
            "primal_step": schedule.primal_step,
            "dual_step": schedule.dual_step,
            "momentum": SQUARE_ROOT,
            "horizon": schedule.horizon,
            "iterate": "uniform",
        }
        if zero_violation:
            if parameterisation is None:
                raise SettingsError(
                    "zero_violation=True needs the constants of the parameterisation: give parameterisation="
                    "theory.softmax_table_constants(inverse_lipschitz, inverse_radius)"
                )
            constants = problem_constants(problem, parameterisation)
            pessimism = sampled_pessimism(constants, iterations)
            harder = constants.pessimistic(pessimism)
            chosen |= {"pessimism": pessimism, "dual_bound": harder.dual_bound}
        elif known and problem.constraints and "dual_bound" not in settings:
            chosen["dual_bound"] = slater(problem).dual_bound
        return cls(**{**chosen, **settings})

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. A seed is needed."""
        require_gradients(task.problem)
        settings = settings_for(self, task.problem)

        def work(pessimism: np.ndarray) -> LearningWork:
            return work_of(Shared(settings, task, pessimism), task)

        if self.pessimism != "auto":
            return work(per_constraint(self.pessimism, task.problem, "pessimism"))
        if task.problem.environment is None:
            return ZeroViolation(Certifier(task.problem), work)
        return ConfidentlyFeasible(task, settings.horizon, work)
