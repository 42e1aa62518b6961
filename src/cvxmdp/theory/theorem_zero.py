r"""Zero violation (theorem zero): solve with g_i - delta >= 0, delta the violation's own bound.

The theorem is theorem exact for the pessimistic problem, whose constants are
``ProblemConstants.pessimistic(delta)``: margins xi_i - delta, hence C_{0,delta}, and |g - delta| <=
M + xi. delta solves

    violation bound of the pessimistic problem(T, delta) - delta = 0.

The left side is convex in delta (C_{0,delta} is convex and increasing, and enters with positive
coefficients and powers), positive at zero, and, unless the Slater point is optimal, goes to
infinity at the smallest margin: there are two roots, one, or none, and there is one for every T
beyond some T_0, which may be astronomical.

Against the paper's statement: the primal step and tilde epsilon take C_{0,delta} in place of C_0,
and the general case needs T >= bar epsilon^-3 as in theorem exact. With several constraints one
delta, less than every margin, serves all, and xi is the smallest margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cvxmdp.theory.constants import ProblemConstants, require_iterations
from cvxmdp.theory.parameterisation import TheoryError
from cvxmdp.theory.theorem_exact import (
    TheoremBound,
    dual_step_of,
    exact_bound,
    least_iterations,
    require_enough,
    strong_mixing,
    unchecked_bound,
)

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
SEARCH_STEPS = 90  # of golden section: the bracket shrinks below the spacing of doubles
NEEDED_RATIO = 1.001  # the T named in an error is the smallest one up to this factor
LARGEST_POWER = 500  # of two, tried as T
LARGEST = 2**LARGEST_POWER


def pessimism_equation(
    constants: ProblemConstants, iterations: int, pessimism: float, strongly_concave: bool = False
) -> float:
    """The left side of theorem zero's equation for delta (eqs. delta_convex and delta_sc).

    Args:
        constants: of the problem itself, not of the pessimistic one.
        iterations: T.
        pessimism: delta, at least 0 and less than every margin.
        strongly_concave: eq. delta_sc.
    """
    harder = constants.pessimistic(pessimism)
    return unchecked_bound(harder, iterations, strongly_concave).violation - pessimism


def theory_pessimism(
    constants: ProblemConstants, iterations: int, strongly_concave: bool = False
) -> float:
    """delta of theorem zero: the smallest root below the margin, rounded to the safe side.

    Where there is none for this T, the error names a T that has one, also as ``iterations_needed``.

    Args:
        constants: of the problem.
        iterations: T.
        strongly_concave: the equation for strongly concave objectives.
    """
    iterations = require_iterations(iterations)
    require_constraints(constants)
    if strongly_concave:
        strong_mixing(constants)  # refuses objectives that are not

    def left_side(pessimism: float) -> float:
        return pessimism_equation(constants, iterations, pessimism, strongly_concave)

    high = point_below_zero(constants.margin, left_side)
    if high is None or (not strongly_concave and iterations < least_iterations(constants)):
        needed = iterations_for_zero_violation(constants, strongly_concave)
        raise TheoryError(
            f"theorem zero has no pessimism below the margin {constants.margin:.4g} of the Slater "
            f"point for {iterations:,} iterations; it needs about {float(needed):.4g}. A pessimism "
            "that you choose yourself needs no theorem: certify says whether a policy is feasible.",
            needed,
        )
    return smallest_root(left_side, high)


def iterations_for_zero_violation(
    constants: ProblemConstants, strongly_concave: bool = False
) -> int:
    """The T from which on theorem zero's equation has a root: the smallest up to 0.1 percent.

    Args:
        constants: of the problem.
        strongly_concave: the equation for strongly concave objectives.
    """
    require_constraints(constants)
    if strongly_concave:
        strong_mixing(constants)

    def enough(iterations: int) -> bool:
        def left_side(pessimism: float) -> float:
            return pessimism_equation(constants, iterations, pessimism, strongly_concave)

        return point_below_zero(constants.margin, left_side) is not None

    found = first_enough(enough, 1 if strongly_concave else least_iterations(constants))
    if found is None:
        raise TheoryError(
            f"no number of iterations below 2^{LARGEST_POWER} gives theorem zero a pessimism below "
            f"the margin {constants.margin:.4g} of the Slater point"
        )
    return found


def zero_violation_bound(
    constants: ProblemConstants, iterations: int, strongly_concave: bool = False
) -> TheoremBound:
    """Theorem zero: the gap with the theorem's pessimism; the violation is zero.

    The term "pessimism" is 2 delta M / xi, what the pessimistic problem's optimum loses at most.

    Args:
        constants: of the problem.
        iterations: T.
        strongly_concave: the part on strongly concave objectives.
    """
    pessimism = theory_pessimism(constants, iterations, strongly_concave)
    harder = exact_bound(constants.pessimistic(pessimism), iterations, strongly_concave)
    loss = 2.0 * pessimism * constants.objective_magnitude / constants.margin
    return TheoremBound({"pessimism": loss, **harder.gap_terms}, {}, harder.assumes)


def require_constraints(constants: ProblemConstants) -> None:
    """An error where there is nothing to violate."""
    if not constants.margins:
        raise TheoryError("zero violation needs a problem with constraints; this one has none")


def first_enough(enough: Callable[[int], bool], least: int) -> int | None:
    """The smallest T, up to 0.1 percent and at least ``least``, that is enough; None below 2^500."""
    if enough(least):
        return least
    powers = range(1, LARGEST_POWER)
    power = next((k for k in powers if least * 2**k < LARGEST and enough(least * 2**k)), None)
    if power is None:
        return None
    low, high = least * 2 ** (power - 1), least * 2**power
    while high - low > 1 and high > NEEDED_RATIO * low:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def smallest_root(left_side: Callable[[float], float], high: float) -> float:
    """Of a convex function that is positive at zero and not positive at ``high``, to the safe side."""
    low = 0.0
    while True:  # positive at low, not positive at high
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if left_side(middle) > 0:
            low = middle
        else:
            high = middle


def point_below_zero(margin: float, left_side: Callable[[float], float]) -> float | None:
    """A delta where the equation's left side is not positive; None when its minimum is positive.

    Golden-section search for the minimum of a convex function, left early.
    """
    low, high = 0.0, math.nextafter(margin, 0.0)
    points = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    values = [left_side(point) for point in points]
    for _ in range(SEARCH_STEPS):
        if min(values) <= 0:
            return points[values.index(min(values))]
        if values[0] <= values[1]:
            high = points[1]
            points = [high - GOLDEN * (high - low), points[0]]
            values = [left_side(points[0]), values[0]]
        else:
            low = points[0]
            points = [points[1], low + GOLDEN * (high - low)]
            values = [values[1], left_side(points[1])]
        if not low < points[0] < points[1] < high:
            break
    return None


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
