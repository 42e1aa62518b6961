"""Schedules of the exact setting: the settings of PDPG that theorems exact and zero speak of."""

from __future__ import annotations

from dataclasses import dataclass

from cvxmdp.theory.constants import ProblemConstants, require_iterations
from cvxmdp.theory.theorem_exact import dual_step_of, require_enough, strong_mixing
from cvxmdp.theory.theorem_zero import theory_pessimism


@dataclass(frozen=True)
class ExactSchedule:
    """The settings of PDPG in theorems exact and zero.

    Attributes:
        primal_step: eta_theta.
        dual_step: eta_mu.
        dual_bound: C_0, or C_{0,delta}, per constraint; multipliers start at zero.
        iterations: T.
        pessimism: delta; 0 unless zero violation was asked for.
    """

    primal_step: float
    dual_step: float
    dual_bound: dict[str, float]
    iterations: int
    pessimism: float


def exact_schedule(
    constants: ProblemConstants,
    iterations: int,
    strongly_concave: bool = False,
    zero_violation: bool = False,
) -> ExactSchedule:
    """The schedule of theorem exact, or of theorem zero when ``zero_violation`` is asked for.

    Theorem zero prints the step with C_0; its proof applies theorem exact to the pessimistic
    problem, which needs C_{0,delta}.

    Args:
        constants: of the problem.
        iterations: T.
        strongly_concave: use the schedule for strongly concave objectives.
        zero_violation: solve g_i - delta >= 0 with the theorem's delta.
    """
    iterations = require_iterations(iterations)
    pessimism = 0.0
    if zero_violation:
        pessimism = theory_pessimism(constants, iterations, strongly_concave)
        constants = constants.pessimistic(pessimism)
    if strongly_concave:
        strong_mixing(constants)  # refuses objectives that are not
    else:
        require_enough(constants, iterations)
    return ExactSchedule(
        constants.primal_step,
        dual_step_of(iterations, strongly_concave),
        constants.dual_bound,
        iterations,
        pessimism,
    )
