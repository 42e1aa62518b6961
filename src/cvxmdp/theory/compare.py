r"""Bound beside measurement: what a finished run did, and what the theorem promised.

The theorems bound (1/T) sum_t [f* - f(lambda_t)] and (1/T) |[sum_t -g(lambda_t)]_+|; both are
averages of what the solver's history holds. The first has a sign: iterates that violate a
constraint may be better than f*, so the measured gap can be negative, and often is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cvxmdp.certificates.certify import certify
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.theory.constants import ProblemConstants
from cvxmdp.theory.parameterisation import TheoryError, require_real
from cvxmdp.theory.theorem_exact import TheoremBound, exact_bound
from cvxmdp.theory.theorem_sample import sample_bound, sample_schedule
from cvxmdp.theory.theorem_zero import ExactSchedule, exact_schedule, zero_violation_bound
from cvxmdp.theory.theorem_zero_sample import sampled_pessimism, sampled_zero_violation_bound

SAME = 1e-9  # relative difference up to which two step sizes are the same
SINGLE = 1e-5  # the same in single precision


@dataclass(frozen=True)
class Comparison:
    """Bound and measurement of one run. ``print`` shows them side by side.

    Attributes:
        iterations: T.
        optimum: f*, in the user's sign.
        gap: (1/T) sum_t [f* - f(lambda_t)], negative where iterates are better than f*.
        violation: (1/T) |[sum_t -g(lambda_t)]_+|, over all constraints.
        slack: (1/T) sum_t g_i(lambda_t) per constraint.
        bound: the theorem's.
        departures: where the run differs from the one the theorem speaks of; empty if nowhere.
    """

    iterations: int
    optimum: float
    gap: float
    violation: float
    slack: dict[str, float]
    bound: TheoremBound
    departures: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True when neither measurement is above its bound."""
        return self.gap <= self.bound.gap and self.violation <= self.bound.violation

    def __str__(self) -> str:
        rows = [
            ("optimality gap", self.gap, self.bound.gap),
            ("violation", self.violation, self.bound.violation),
        ]
        lines = [
            f"Averages over {self.iterations:,} iterations (optimum {self.optimum:.7g})",
            f"{'':16}{'measured':>12}{'bound':>12}",
            *(f"{name:16}{measured:12.4g}{bound:12.4g}" for name, measured, bound in rows),
        ]
        if self.gap < 0:
            lines.append("  A negative gap: iterates that violate a constraint are above f*.")
        lines += [f"  The bound assumes {promise}." for promise in self.bound.assumes]
        if self.departures:
            lines.append("  This is not the run that the theorem speaks of:")
            lines += [f"  - {departure}" for departure in self.departures]
        return "\n".join(lines)


def compare(
    problem: Problem,
    solution: Solution,
    constants: ProblemConstants,
    strongly_concave: bool = False,
    zero_violation: bool = False,
    optimum: float | None = None,
    sampled: bool = False,
) -> Comparison:
    """What theorem exact, sample or zero promises for a run, beside what the run did.

    The iterations that the history kept stand for all: of PDPG up to 10,000, of VR-PDPG exact values of up to
    256 of the policies that it played. Theorem sample speaks of expectations, and this is one run; average
    several.

    Args:
        problem: the problem.
        solution: of PDPG or VRPDPG, best with the settings of their ``theory``; where they differ from the
            theorem's, ``departures`` says so.
        constants: of the problem and its parameterisation, from ``problem_constants``.
        strongly_concave: the theorem's case of a strongly concave objective.
        zero_violation: theorem zero in place of theorem exact.
        optimum: f*, in the user's sign; when not given, the number that ``certify`` proves no policy to exceed.
        sampled: a run of VR-PDPG.
    """
    history, kind = solution.history, "played_" if sampled else ""
    if f"{kind}objective" not in history or f"{kind}slack" not in history:
        raise TheoryError(
            f"compare needs the history of a run of {'VRPDPG' if sampled else 'PDPG'} ({kind}objective and "
            f"{kind}slack); got a solution with {sorted(history) or 'no history'}"
        )
    iterations = int(solution.stats["iterations"])
    if sampled:
        chosen = sampled_zero_violation_bound if zero_violation else sample_bound
        bound = chosen(constants, iterations)
        departures = _sampled_departures(solution, constants, iterations, zero_violation)
    else:
        case = {"strongly_concave": strongly_concave}
        exact = zero_violation_bound if zero_violation else exact_bound
        bound = exact(constants, iterations, **case)
        schedule = exact_schedule(constants, iterations, zero_violation=zero_violation, **case)
        departures = _departures(solution, schedule)
    if optimum is None:
        optimum = certify(problem, solution, confidence=None).bound
    best = require_real(optimum, "optimum", -math.inf)
    named = _named(history, f"{kind}slack")
    slack = {name: float(np.mean(named[name])) for name in problem.constraints}
    return Comparison(
        iterations,
        best,
        problem.sign * (best - float(np.mean(history[f"{kind}objective"]))),
        math.hypot(*(max(0.0, -value) for value in slack.values())),
        slack,
        bound,
        tuple(departures),
    )


@dataclass(frozen=True)
class Rate:
    """A measured rate: values behave like T^slope.

    Attributes:
        slope: of log(value) against log(T), by ordinary least squares.
        low, high: its 95% confidence interval (Student's t).
        points: how many points it was fitted to.
    """

    slope: float
    low: float
    high: float
    points: int

    def __str__(self) -> str:
        return f"{self.slope:.3f} [{self.low:.3f}, {self.high:.3f}]"


def fit_rate(iterations: Sequence[int], values: Sequence[float]) -> Rate:
    """The slope of log(values) against log(iterations).

    The interval takes the deviations from a line as independent noise. A deterministic run's are
    not noise; the interval then measures how straight the line is.

    Args:
        iterations: T of each point; at least three different ones.
        values: positive.
    """
    x, y = np.asarray(iterations, dtype=float), np.asarray(values, dtype=float)
    if x.shape != y.shape or x.ndim != 1 or np.unique(x).size < 3:
        raise TheoryError(
            "a rate needs as many values as iterations, at three different ones at least; got "
            f"shapes {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)).all():
        raise TheoryError("a rate needs positive, finite iterations and values")
    x, y = np.log(x) - np.log(x).mean(), np.log(y) - np.log(y).mean()
    slope = float(x @ y / (x @ x))
    left, freedom = y - slope * x, x.size - 2
    half_width = float(stdtrit(freedom, 0.975) * np.sqrt(left @ left / freedom / (x @ x)))
    return Rate(slope, slope - half_width, slope + half_width, x.size)


def _named(history: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
    """A part of the history that is kept per constraint."""
    return {name: np.asarray(values) for name, values in history[what].items()}


def _sampled_departures(
    solution: Solution, constants: ProblemConstants, iterations: int, zero_violation: bool
) -> list[str]:
    """The same of a run of VR-PDPG."""
    pessimism = sampled_pessimism(constants, iterations) if zero_violation else 0.0
    steps = sample_schedule(iterations, constants.discount)
    dual_bound = constants.pessimistic(pessimism).dual_bound if pessimism else constants.dual_bound
    schedule = ExactSchedule(steps.primal_step, steps.dual_step, dual_bound, iterations, pessimism)
    found = []
    if "square root" not in str(solution.stats.get("solver")):
        found.append("its momentum is not the theorem's (t+1)^(-1/2)")
    return found + _dual_departures(solution, schedule, "recursive_slack", SINGLE)


def _departures(solution: Solution, schedule: ExactSchedule) -> list[str]:
    """Settings of the run that are not the theorem's, read from what it did."""
    found = []
    steps = np.asarray(solution.history["primal_step"])
    if not np.allclose(steps, schedule.primal_step, rtol=SAME, atol=0.0):
        taken = f"{steps.min():.4g}" if np.ptp(steps) == 0 else f"{steps.min():.4g} and others"
        found.append(f"its primal step is {taken}, the theorem's {schedule.primal_step:.4g}")
    return found + _dual_departures(solution, schedule, "slack", SAME)


def _dual_departures(
    solution: Solution, schedule: ExactSchedule, slacks: str, same: float
) -> list[str]:
    """Multipliers that do not move as the theorem's do on the history's slacks of this name."""
    slack = _named(solution.history, slacks)
    if any(len(values) != schedule.iterations for values in slack.values()):
        return []  # of long runs some iterations are kept: nobody saw every multiplier
    found = []
    for name, multipliers in _named(solution.history, "multipliers").items():
        if multipliers[0] != 0.0:
            found.append(f"the multiplier of {name!r} starts at {multipliers[0]:.4g}, not at 0")
        pushed = multipliers[:-1] - schedule.dual_step * (slack[name][:-1] - schedule.pessimism)
        expected = np.clip(pushed, 0.0, schedule.dual_bound[name])
        scale = same * max(1.0, schedule.dual_bound[name])
        if not np.allclose(multipliers[1:], expected, rtol=0.0, atol=scale):
            found.append(
                f"the multiplier of {name!r} does not follow the theorem's dual step "
                f"{schedule.dual_step:.4g} on [0, {schedule.dual_bound[name]:.4g}]"
                + (f" with pessimism {schedule.pessimism:.4g}" if schedule.pessimism else "")
            )
    return found
