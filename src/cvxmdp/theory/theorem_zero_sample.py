r"""Zero violation from samples: theorem zero for VR-PDPG, and plans from accuracy to samples.

The paper states theorem zero for exact gradients and says that the sampled setting has the same proof with
other constants. Here they are. Let delta < xi, and run VR-PDPG on g_{i,delta} = g_i - delta with the schedule
of theorem sample and the box U = [0, C_{0,delta}]. Its constants are ``ProblemConstants.pessimistic(delta)``:
margins xi_i - delta, |g_{i,delta}| <= M + xi, and the gradients, hence M_lambda, l_lambda, C_w, C_lambda and
C_e, are those of g_i. Theorem sample, with numerical constants (``sample_bound``), says of the pessimistic
problem that

    E | [ (1/T) sum_t -g_delta(lambda(theta_t)) ]_+ | <= V(T, delta),    the violation bound with C_{0,delta}.

Every component satisfies E[(1/T) sum_t -g_i] = E[(1/T) sum_t -g_{i,delta}] - delta <= V(T, delta) - delta. So
with

    V(T, delta) - delta = 0
    (*)

- the expected average slack is not negative for any constraint, and neither is the expected slack of an
  iterate that is drawn uniformly, the policy of ``iterate="uniform"``: zero violation in expectation, as
  theorem sample speaks of expectations;
- of single runs, Markov's inequality says: where c V(T, delta) <= delta, the average over the iterations of a
  run violates a constraint with probability at most 1/c.

V is a sum of terms that are linear in sum_i C_i or in sum_i C_i^2 with positive coefficients
(``sample_bound`` lists them), and C_{0,delta} = 1 + (M - f(slater)) / (xi_i - delta) is convex and
increasing. So the left side of (*) is convex in delta, positive at zero and infinite at the smallest margin:
two roots, one, or none, and one for every T beyond some T_0. Optima are compared as in the paper's proof: the
mixture of the optimum with a share delta / xi of the Slater point is feasible with delta to spare, so that f*
- f*_delta <= 2 delta M / xi. Hence

    E[(1/T) sum_t f* - f(lambda(theta_t))] <= 2 delta M / xi + the gap bound of the pessimistic problem.

V(T, .) falls like T^(-1/4) log T, and so do delta and the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from cvxmdp.theory.constants import ProblemConstants, require_iterations
from cvxmdp.theory.parameterisation import TINY, TheoryError, require_real
from cvxmdp.theory.theorem_exact import TheoremBound
from cvxmdp.theory.theorem_sample import (
    least_sampled_iterations,
    sample_bound,
    sample_schedule,
)
from cvxmdp.theory.theorem_zero import (
    LARGEST_POWER,
    first_enough,
    point_below_zero,
    require_constraints,
    smallest_root,
)

INSTEAD = (
    'pessimism="auto" needs no theorem: it raises the pessimism until the answer is certified feasible, or, '
    "without a model, until fresh episodes bound every slack from below."
)


def sampled_pessimism_equation(
    constants: ProblemConstants, iterations: int, pessimism: float
) -> float:
    """The left side of (*): V(T, delta) - delta.

    Args:
        constants: of the problem itself, not of the pessimistic one.
        iterations: T, at least ``least_sampled_iterations``.
        pessimism: delta, at least 0 and less than every margin.
    """
    return sample_bound(constants.pessimistic(pessimism), iterations).violation - pessimism


def sampled_pessimism(constants: ProblemConstants, iterations: int) -> float:
    """delta of theorem zero from samples: the smallest root of (*), rounded to the safe side.

    Where there is none for this T, the error names a T that has one, also as ``iterations_needed``.

    Args:
        constants: of the problem, with a softmax parameterisation.
        iterations: T.
    """
    iterations = require_iterations(iterations)
    require_constraints(constants)
    high = _below_zero(constants, iterations)
    if high is None:
        needed = iterations_for_sampled_zero_violation(constants)
        horizon = sample_schedule(needed, constants.discount).horizon
        raise TheoryError(
            f"theorem zero has no pessimism below the margin {constants.margin:.4g} of the Slater point for "
            f"{iterations:,} sampled iterations; it needs about {float(needed):.4g} of {horizon} steps each. "
            f"{INSTEAD}",
            needed,
        )
    return smallest_root(lambda d: sampled_pessimism_equation(constants, iterations, d), high)


def iterations_for_sampled_zero_violation(constants: ProblemConstants) -> int:
    """The T from which on (*) has a root: the smallest up to 0.1 percent.

    Args:
        constants: of the problem, with a softmax parameterisation.
    """
    require_constraints(constants)
    found = first_enough(
        lambda iterations: _below_zero(constants, iterations) is not None,
        least_sampled_iterations(constants),
    )
    if found is None:
        raise TheoryError(
            f"no number of iterations below 2^{LARGEST_POWER} gives theorem zero a pessimism below the margin "
            f"{constants.margin:.4g} of the Slater point. {INSTEAD}"
        )
    return found


def sampled_zero_violation_bound(constants: ProblemConstants, iterations: int) -> TheoremBound:
    """Theorem zero from samples: the expected gap with the theorem's pessimism; the violation is zero.

    Args:
        constants: of the problem, with a softmax parameterisation.
        iterations: T.
    """
    pessimism = sampled_pessimism(constants, iterations)
    harder = sample_bound(constants.pessimistic(pessimism), iterations)
    loss = 2.0 * pessimism * constants.objective_magnitude / constants.margin
    return TheoremBound({"pessimism": loss, **harder.gap_terms}, {}, harder.assumes)


@dataclass(frozen=True)
class SamplePlan:
    """What theorem sample, or zero, needs for an accuracy.

    Attributes:
        accuracy: of expected gap and violation.
        iterations, horizon: T and H.
        samples: steps in the model at most, T H.
        pessimism: delta; 0 unless zero violation was asked for.
        bound: of the theorem, with its terms.
    """

    accuracy: float
    iterations: int
    horizon: int
    samples: int
    pessimism: float
    bound: TheoremBound

    def __str__(self) -> str:
        violation = f"{self.bound.violation:.3g}" if self.bound.violation_terms else "zero"
        return (
            f"For an expected gap of {self.accuracy:g} the theorem asks for {float(self.iterations):.3g} "
            f"iterations of {self.horizon} steps, {float(self.samples):.3g} samples: gap at most "
            f"{self.bound.gap:.3g}, violation {violation} (of the average, in expectation)"
            + (f", pessimism {self.pessimism:.3g}." if self.pessimism else ".")
        )


def sample_plan(
    constants: ProblemConstants, accuracy: float, zero_violation: bool = False
) -> SamplePlan:
    """Iterations, horizon and samples with which the theorem promises an accuracy.

    Args:
        constants: of the problem, with a softmax parameterisation.
        accuracy: of the expected gap and violation of the average.
        zero_violation: ask for zero violation, and the accuracy of the gap alone.
    """
    accuracy = require_real(accuracy, "accuracy", TINY)

    def bound_of(iterations: int) -> TheoremBound:
        if zero_violation:
            return sampled_zero_violation_bound(constants, iterations)
        return sample_bound(constants, iterations)

    def enough(iterations: int) -> bool:
        found = bound_of(iterations)
        return max(found.gap, found.violation) <= accuracy

    least = least_sampled_iterations(constants)
    if zero_violation:
        least = iterations_for_sampled_zero_violation(constants)
    iterations = first_enough(enough, least)
    if iterations is None:
        raise TheoryError(
            f"no number of iterations below 2^{LARGEST_POWER} gives the theorem an accuracy of {accuracy:g}. "
            f"{INSTEAD}"
        )
    horizon = sample_schedule(iterations, constants.discount).horizon
    pessimism = sampled_pessimism(constants, iterations) if zero_violation else 0.0
    bound = bound_of(iterations)
    return SamplePlan(accuracy, iterations, horizon, iterations * horizon, pessimism, bound)


def _below_zero(constants: ProblemConstants, iterations: int) -> float | None:
    if iterations < least_sampled_iterations(constants):
        return None
    return point_below_zero(
        constants.margin, lambda d: sampled_pessimism_equation(constants, iterations, d)
    )
