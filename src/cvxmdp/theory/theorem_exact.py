r"""The exact setting: PDPG with known gradients (theorem exact).

With n constraints the proof's scalars become vectors: |mu_{t+1} - mu_t| |g| is at most
eta_mu n M^2, the Lagrangian is (1 + sum C_i) l_theta smooth, C_0^2 becomes sum C_i^2, and the
violation is the norm of the vector of violations of the time average. n = 1 gives the paper's
formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cvxmdp.theory.constants import ProblemConstants, require_iterations
from cvxmdp.theory.parameterisation import (
    TINY,
    ParameterisationConstants,
    TheoryError,
    require_real,
)

INVERSE_PROMISE = "the parameterisation's inverse_lipschitz and inverse_radius"


@dataclass(frozen=True)
class TheoremBound:
    """An upper bound on gap and violation of the time average, in named terms.

    Attributes:
        gap_terms: their sum bounds (1/T) sum_t [f* - f(lambda_t)].
        violation_terms: their sum bounds (1/T) | [sum_t -g(lambda_t)]_+ |.
        assumes: promises beyond the constants that the bound rests on.
    """

    gap_terms: dict[str, float]
    violation_terms: dict[str, float]
    assumes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """The bound on the optimality gap."""
        return math.fsum(self.gap_terms.values())

    @property
    def violation(self) -> float:
        """The bound on the constraint violation."""
        return math.fsum(self.violation_terms.values())


def average_lagrangian_bound(
    constants: ProblemConstants, iterations: int, dual_step: float, mixing: float
) -> dict[str, float]:
    """Lemma avg_L, eq. prop_convergence: the average of L(lambda*, mu_t) - L(lambda_t, mu_t).

    Args:
        constants: of the problem.
        iterations: T.
        dual_step: eta_mu.
        mixing: epsilon, positive and at most bar epsilon; the proof's, not the algorithm's.
    """
    require_real(mixing, "mixing (epsilon)", TINY, constants.parameterisation.inverse_radius)
    diameter = math.sqrt(2.0) / (1.0 - constants.discount)  # of the set of occupancies
    reach = constants.parameterisation.inverse_lipschitz * diameter
    return {
        "start": 2.0 * constants.objective_magnitude / (mixing * iterations),
        "curvature": mixing * constants.lagrangian_smoothness * reach**2,
        "dual drift": 2.0 * dual_step * _slack_square(constants) / mixing,
    }


def strong_mixing(constants: ProblemConstants) -> float:
    """tilde epsilon of lemma avg_L; an error when the objective is not strongly concave.

    min(bar epsilon, sigma / (sigma + 2 (1 + sum C_i) l_theta L_lambda^2))
    """
    if constants.strength <= 0:
        raise TheoryError(
            "the objective is not strongly concave in the occupancy (sigma = 0). Add a strongly "
            'concave term, such as - 0.1 * distance(expert, norm="l2-squared"), or use the '
            "general theorem."
        )
    inverse = constants.parameterisation.inverse_lipschitz
    curvature = 2.0 * constants.lagrangian_smoothness * inverse**2
    share = constants.strength / (constants.strength + curvature)
    return min(constants.parameterisation.inverse_radius, share)


def strong_average_lagrangian_bound(
    constants: ProblemConstants, iterations: int, dual_step: float
) -> dict[str, float]:
    """Lemma avg_L, eq. prop_convergence_sc: the same average when f is strongly concave.

    Args:
        constants: of the problem.
        iterations: T.
        dual_step: eta_mu.
    """
    mixing = strong_mixing(constants)
    rise = (
        2.0 * constants.objective_magnitude + constants.total_dual_bound * constants.slack_magnitude
    )
    return {
        "start": rise / (mixing * iterations),
        "dual drift": dual_step * _slack_square(constants) / mixing,
    }


def decoupled_bound(
    constants: ProblemConstants, iterations: int, dual_step: float, lagrangian: dict[str, float]
) -> TheoremBound:
    """Lemma obtain_opt_const_exact, with mu_0 = 0: gap and violation from the Lagrangian's average.

    Args:
        constants: of the problem.
        iterations: T.
        dual_step: eta_mu.
        lagrangian: terms whose sum is the lemma's C.
    """
    gap = {**lagrangian, "dual step": 0.5 * dual_step * _slack_square(constants)}
    box = sum(bound**2 for bound in constants.dual_bound.values())
    violation = {**gap, "multipliers": box / (2.0 * iterations * dual_step)}
    # The direct parameterisation's inverse is known; a softmax's is the caller's promise.
    promised = isinstance(constants.parameterisation, ParameterisationConstants)
    return TheoremBound(gap, violation, (INVERSE_PROMISE,) if promised else ())


def exact_bound(
    constants: ProblemConstants, iterations: int, strongly_concave: bool = False
) -> TheoremBound:
    """Theorem exact: O(T^-1/3), with a strongly concave objective O(T^-1/2).

    Args:
        constants: of the problem.
        iterations: T; at least bar epsilon^-3 in the general case.
        strongly_concave: eqs. optimality_gap_sc and constraint_violation_sc in place of
            optimality_gap and constraint_violation.
    """
    iterations = require_iterations(iterations)
    if not strongly_concave:
        require_enough(constants, iterations)
    return unchecked_bound(constants, iterations, strongly_concave)


def unchecked_bound(
    constants: ProblemConstants, iterations: int, strongly_concave: bool
) -> TheoremBound:
    """``exact_bound`` without its check that T is large enough."""
    step = dual_step_of(iterations, strongly_concave)
    if strongly_concave:
        lagrangian = strong_average_lagrangian_bound(constants, iterations, step)
    else:
        # epsilon = T^-1/3 balances the lemma's terms; short runs are refused before this.
        mixing = min(iterations ** (-1.0 / 3.0), constants.parameterisation.inverse_radius)
        lagrangian = average_lagrangian_bound(constants, iterations, step, mixing)
    return decoupled_bound(constants, iterations, step, lagrangian)


def dual_step_of(iterations: int, strongly_concave: bool) -> float:
    """eta_mu of theorem exact: T^-2/3, or T^-1/2 when f is strongly concave."""
    return float(iterations ** (-0.5 if strongly_concave else -2.0 / 3.0))


def least_iterations(constants: ProblemConstants) -> int:
    """The general theorem's condition T >= bar epsilon^-3."""
    radius = constants.parameterisation.inverse_radius
    return math.ceil(radius**-3.0 * (1.0 - 1e-12))  # 0.1^-3 is 1000, not 1001


def require_enough(constants: ProblemConstants, iterations: int) -> None:
    """Refuse a T below ``least_iterations``, and name it."""
    needed = least_iterations(constants)
    if iterations < needed:
        raise TheoryError(
            f"the theorem holds from T = inverse_radius^-3 = {needed:,} iterations on; got "
            f"{iterations:,}",
            needed,
        )


def _slack_square(constants: ProblemConstants) -> float:
    """A bound on |g|^2 = sum_i g_i^2 over occupancies."""
    return constants.n_constraints * constants.slack_magnitude**2
