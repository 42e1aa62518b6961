r"""The settings of VR-PDPG as a run has them: what was given, and what follows from the problem where nothing
was.

With ``primal_step``, ``dual_step``, ``momentum`` and ``horizon`` all given, what is left out is as in the
paper: Algorithm 1 to the letter. Where one of them is left out, so that somebody has to choose, all that is
left out is chosen as what learned every problem of docs/vr-pdpg.md:

- ``horizon``: the discounted mass beyond it is at most 2%, gamma^H <= 0.02, and slacks allow for it: they are
  those of lambda_t / (1 - gamma^H). T where the model's horizon is T; with a discount of one, so long that
  every policy leaves at most 2% of the longest stay.
- ``primal_step``: as long as the importance weights allow (``trust``, see ``directions``): their logarithms
  have a root mean square of a third of the momentum. At most 1 for tables, 0.3 for networks and natural
  steps, falling as (t+1)^(-1/4).
- ``dual_step``: 0.04 u_i / s_i, falling alike. u_i is the multiplier at which objective and constraint pull
  equally: the range over state-action pairs of grad f, divided by that of grad g_i, at the uniform policy's
  occupancy. s_i is the size of the slack there, a tenth of the budget at least. Without a model, signals
  count as of size one and slacks as of the size of their budgets.
- ``momentum`` 0.3, ``batch_size`` 10, ``baseline``, ``explore`` 1, ``safe`` where the objective has
  logarithms, and ``iterate="half"``.

``dual_bound`` is 100 u_i in any case: wide, because a box that is too small stops a run where it violates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms import Shape
from cvxmdp.atoms.shapes.separating import separated
from cvxmdp.base.errors import SettingsError
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.policies.families import PolicyFamily
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.start import per_constraint

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg import VRPDPG

UNLIMITED = 2**31
UNSEEN = 0.02  # of the discounted mass, beyond the horizon
LONGEST_STEP, SHORTER_STEP = 1.0, 0.3
MOMENTUM, BATCH, DECAY, EXPLORE = 0.3, 10, 0.25, 1.0
TRUST = 1.0 / 3.0  # of the momentum
DUAL_RATE = 0.04
WIDE = 100.0  # times u_i: where the box of the multipliers ends
LEAST_SLACK = 0.1  # of the budget


@dataclass(frozen=True)
class Settings:
    """Every setting of a run; ``VRPDPG`` says what each is.

    Attributes:
        trust: None where ``primal_step`` was given.
        unseen: the share of the mass beyond the horizon that slacks allow for; 0 where ``horizon`` was given.
        chosen: what was chosen, in words; empty where nothing was.
    """

    iterations: int
    primal_step: Any
    dual_step: np.ndarray  # (n,)
    momentum: float | str
    horizon: int
    batch_size: int
    dual_bound: np.ndarray  # (n,)
    initial_multiplier: Any
    policy: PolicyFamily
    iterate: str
    check: int
    evaluate_every: int
    record_every: int | None
    baseline: bool
    direction: str
    safe: bool
    explore: float
    trust: float | None
    unseen: float
    primal_decay: float
    dual_decay: float
    chosen: str = ""


def settings_for(solver: VRPDPG, problem: Problem) -> Settings:
    """What was given, and what follows from the problem where nothing was."""
    needed = (solver.primal_step, solver.dual_step, solver.momentum, solver.horizon)
    choosing = any(given is None for given in needed)
    pulls, sizes = _scales(problem) if problem.constraints else (np.zeros(0), np.zeros(0))

    def either(given: Any, chosen: Any, paper: Any) -> Any:
        return given if given is not None else chosen if choosing else paper

    momentum = either(solver.momentum, MOMENTUM, None)
    forgets = momentum if not isinstance(momentum, str) else MOMENTUM
    trusting = solver.primal_step is None
    dual_step, dual_bound = DUAL_RATE * pulls / sizes, WIDE * pulls
    if solver.dual_step is not None:
        dual_step = per_constraint(solver.dual_step, problem, "dual_step")
    if solver.dual_bound is not None:
        dual_bound = per_constraint(solver.dual_bound, problem, "dual_bound")
    found = Settings(
        iterations=solver.iterations,
        primal_step=_longest(solver, problem) if trusting else solver.primal_step,
        dual_step=dual_step,
        momentum=momentum,
        horizon=_horizon(problem, solver.horizon),
        batch_size=either(solver.batch_size, BATCH, 1),
        dual_bound=dual_bound,
        initial_multiplier=solver.initial_multiplier,
        policy=solver.policy,
        iterate=either(solver.iterate, "half", "last"),
        check=solver.check,
        evaluate_every=solver.evaluate_every,
        record_every=solver.record_every,
        baseline=either(solver.baseline, True, False),
        direction=solver.direction,
        safe=_safe(solver, problem, choosing),
        explore=float(either(solver.explore, EXPLORE if _counted(problem) else 0.0, 0.0)),
        trust=TRUST * forgets if trusting else None,
        unseen=0.0 if solver.horizon else _unseen(problem),
        primal_decay=either(solver.primal_decay, DECAY if trusting else 0.0, 0.0),
        dual_decay=either(solver.dual_decay, DECAY if solver.dual_step is None else 0.0, 0.0),
    )
    _check(found, problem)
    return found if not choosing else _with_words(found)


def _scales(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """u_i and s_i of the module's docstring, (n,) each."""
    known = problem.environment is None
    if known:
        x = problem.mdp.flow.uniform_occupancy
        pairs = problem.mdp.flow.usable
    else:
        x, pairs = np.zeros(problem.shape), np.ones(problem.shape, dtype=bool)

    def pull(function: Shape) -> float:
        slope = np.asarray(function.extended().gradient(x), dtype=np.float64)[pairs]
        size = float(np.ptp(slope)) if slope.size else 0.0
        return size if math.isfinite(size) else 0.0

    objective, pulls, sizes = pull(problem.objective_function), [], []
    for name, function in problem.slack_functions.items():
        own, budget = pull(function), abs(float(problem.constraints[name].budget))
        slack = abs(float(function.extended().value(x))) if known else budget
        size = max(slack if math.isfinite(slack) else 0.0, LEAST_SLACK * budget)
        pulls.append(objective / own if objective > 0 and own > 0 else 1.0)
        sizes.append(size if size > 0 else 1.0)
    return np.array(pulls), np.array(sizes)


def _horizon(problem: Problem, given: int | None = None) -> int:
    """Where episodes are cut; never later than where nothing counts any more."""
    discount, last = float(problem.space.discount), problem.space.horizon.counted
    if given is not None or (last is not None and discount == 1.0):
        return min(given or UNLIMITED, last or UNLIMITED)
    if discount == 1.0:
        return problem.mdp.flow.steps_until(UNSEEN)  # every policy surely ends
    seen = 1 if discount <= UNSEEN else math.ceil(math.log(UNSEEN) / math.log(discount))
    return min(seen, last or seen)


def _unseen(problem: Problem) -> float:
    """The share of the mass beyond ``_horizon`` that slacks allow for; none where sums end by themselves."""
    if problem.space.horizon.counted is not None or problem.space.discount == 1.0:
        return 0.0
    return float(problem.space.discount) ** _horizon(problem)


def _longest(solver: VRPDPG, problem: Problem) -> float:
    plain = solver.direction == "gradient" and solver.policy.bind(problem.space.deciding).is_table
    return LONGEST_STEP if plain else SHORTER_STEP


def _counted(problem: Problem) -> bool:
    """Whether there are states of which entropy can be taken."""
    environment = environment_of(problem)
    return environment is None or environment.has_states


def _safe(solver: VRPDPG, problem: Problem, choosing: bool) -> bool:
    if solver.safe is not None:
        return solver.safe
    return choosing and bool(separated(problem.objective_function)[1])


def _check(found: Settings, problem: Problem) -> None:
    """What only the problem can say."""
    if found.safe and not separated(problem.objective_function)[1]:
        raise SettingsError(
            "safe=True keeps the arguments of logarithms in the objective positive while learning; this "
            "objective adds none. Write maximize=... + 0.1 * log_barrier(...), or leave safe out."
        )
    if found.explore and not _counted(problem):
        raise SettingsError(
            "explore= takes the entropy of states, and these cannot be counted: leave it out, or bin the "
            "observations"
        )


def _with_words(found: Settings) -> Settings:
    steps = ", ".join(f"{step:.3g}" for step in found.dual_step) or "none"
    words = (
        f"Settings from the problem: horizon {found.horizon}, batches of {found.batch_size}, momentum "
        f"{found.momentum}, dual steps {steps}"
    )
    return replace(found, chosen=words + ".")
