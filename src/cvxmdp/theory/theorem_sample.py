r"""The sample-based setting: VR-PDPG (theorem sample).

The theorem is stated up to numerical constants. ``sample_bound`` composes the lemmas behind it with
their constants, so that the result is a number. With D = 1/(1-gamma), n constraints, C = sum_i C_i:

- lemma technical: x_t <= (1-alpha_t)^2 x_{t-1} + c/(t+1) gives x_t <= x_0/(t+1) + 12 c / sqrt(t+2);
- lemma control_e_lambda: E|e_lambda,t|^2 <= 26 C_lambda / sqrt(t+2). (The paper has 25, which needs
  C_w >= 1.83; from E|e_lambda,0|^2 <= D^2 and 1/(t+1) <= sqrt(2)/sqrt(t+2) follows 24 + sqrt(2).)
- eq. E_lam-lam: E|lambda_t - lambda_{t-1}|^2 <= 78 C_lambda / (t+1). (Step (ii) there drops the
  divisor (1-alpha_t)^2, which is 1/12 at t = 1. The result is right: lambda_t - lambda_{t-1} =
  alpha_t e_lambda,t-1 + alpha_t (hat lambda - lambda_H(theta_{t-1})) + (1-alpha_t)(1-w) hat lambda,
  whose expected squares, at most 26 C_lambda/sqrt(t+1), 2 D^2 and C_w D^2/T without the factors,
  give 3 (26/sqrt(2) + 2) C_lambda / (t+1).)
- lemma bound_e_ft: E|hat e_t|^2 <= (23 (M_lambda M_pi1 D^2)^2 + 12 C_beta) / sqrt(t+2), C_beta as
  printed, and E|e_f,t| <= sqrt of it + 2 M_pi1 l_lambda D^2 E|e_lambda,t-1|
  + 4 M_pi1^2 l_lambda D^4 eta_theta;
- lemmas avg_L_sample and obtain_opt_const_sample, where |lambda - lambda_H| <= gamma^H D (the paper
  drops D), and where the dual drift is eta_mu |g(lambda(theta))| |g(lambda_t)| with |g_i(lambda_t)|
  <= M + M_lambda |lambda_t - lambda(theta_t)|: lambda_t is not an occupancy, so M alone does not
  bound it.

Since C_w grows with H^2, hence with (log T)^2, the bound is T^-1/4 times log T: the theorem's
O(T^-1/4) hides the logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cvxmdp.theory.constants import ProblemConstants, require_iterations
from cvxmdp.theory.parameterisation import (
    BELOW_ONE,
    ParameterisationConstants,
    TheoryError,
    require_real,
)
from cvxmdp.theory.theorem_exact import INVERSE_PROMISE, TheoremBound

OCCUPANCY_ERROR = 26.0  # the module's docstring derives it
ASSUMPTIONS = (
    INVERSE_PROMISE,
    "gradients stay within lipschitz at the recursive occupancies, which need not be occupancies",
)


@dataclass(frozen=True)
class SampleSchedule:
    """The settings of VR-PDPG in theorem sample; multipliers start at zero.

    Attributes:
        primal_step: eta_theta = T^-1/2, the length of every step.
        dual_step: eta_mu = T^-3/4.
        horizon: H = ceil(log_{1/gamma}(T) / 2), so that gamma^H <= T^-1/2.
        iterations: T.
    """

    primal_step: float
    dual_step: float
    horizon: int
    iterations: int

    def momentum(self, iteration: Any) -> Any:
        """alpha_t = (t+1)^-1/2, of a number or an array of them.

        As in the proofs; the statement's (t+1)^-1 is a misprint, with it the error does not vanish.
        """
        return (iteration + 1.0) ** -0.5


def sample_schedule(iterations: int, discount: float) -> SampleSchedule:
    """The schedule of theorem sample.

    Args:
        iterations: T.
        discount: gamma.
    """
    iterations = require_iterations(iterations)
    discount = require_real(discount, "discount", 0.0, BELOW_ONE)
    horizon = 1
    if discount > 0:
        exact = math.log(iterations) / (2.0 * -math.log(discount))
        horizon = max(1, math.ceil(exact * (1.0 - 1e-12)))  # rounding must not add a step
    return SampleSchedule(iterations**-0.5, iterations**-0.75, horizon, iterations)


@dataclass(frozen=True)
class SampleConstants:
    """The constants of theorem sample, as the paper defines them.

    Attributes:
        weight_bound: W = exp(2 H M_pi1 eta_theta), no importance weight is larger (lemma ISweight).
        weight_variance: C_w (eq. C_w): the weights' variance is at most C_w eta_theta^2.
        occupancy_error: C_lambda (eq. C_lambda).
        gradient_error: C_e (eq. C_e).
    """

    weight_bound: float
    weight_variance: float
    occupancy_error: float
    gradient_error: float


def sample_constants(constants: ProblemConstants, schedule: SampleSchedule) -> SampleConstants:
    """W, C_w, C_lambda and C_e of theorem sample.

    Args:
        constants: of the problem; M_lambda, l_lambda, gamma, M_pi1 and M_pi2 are used.
        schedule: H and eta_theta.
    """
    parameters = _softmax_only(constants)
    score, horizon = parameters.score_bound, schedule.horizon
    mass = 1.0 / (1.0 - constants.discount)
    weight_bound = math.exp(2.0 * horizon * score * schedule.primal_step)
    curvature = (8.0 * horizon + 2.0) * score**2 + 2.0 * parameters.score_smoothness
    weight_variance = horizon * (weight_bound + 1.0) * curvature
    occupancy_error = (1.0 + weight_variance) * mass**2
    hessian = score**2 + parameters.score_smoothness
    reward_change = (score * constants.smoothness) ** 2 * occupancy_error
    scores = (1.0 + weight_variance) * score**2 + hessian**2
    gradient_error = mass**2 * (
        math.sqrt(constants.lipschitz**2 * scores + reward_change) + math.sqrt(reward_change)
    )
    return SampleConstants(weight_bound, weight_variance, occupancy_error, gradient_error)


def sample_bound(constants: ProblemConstants, iterations: int) -> TheoremBound:
    """Theorem sample with numerical constants: bounds on the expected gap and violation.

    Args:
        constants: of the problem, with a softmax parameterisation.
        iterations: T, at least ((1-gamma) / (L_lambda bar epsilon))^2 / 2.
    """
    schedule = sample_schedule(iterations, constants.discount)
    found = sample_constants(constants, schedule)
    lagrangian = _lagrangian_terms(constants, schedule, found)
    mean, mean_square = _mean_occupancy_error(found, iterations)
    truncated = constants.discount**schedule.horizon / (1.0 - constants.discount)
    pull = constants.total_dual_bound * constants.lipschitz
    step = schedule.dual_step * constants.n_constraints
    gap = {
        **lagrangian,
        "dual step": step * constants.slack_magnitude**2,
        "truncated slack": pull * truncated + 2.0 * step * (constants.lipschitz * truncated) ** 2,
        "slack error": pull * mean + 2.0 * step * constants.lipschitz**2 * mean_square,
    }
    box = sum(bound**2 for bound in constants.dual_bound.values())
    violation = {**gap, "multipliers": box / (2.0 * iterations * schedule.dual_step)}
    # A linear utility's gradient is the same everywhere: the last assumption is then no assumption.
    assumes = ASSUMPTIONS[: 1 if constants.smoothness == 0 else 2]
    return TheoremBound(gap, violation, assumes)


def least_sampled_iterations(constants: ProblemConstants) -> int:
    """The theorem's condition T >= ((1-gamma) / (L_lambda bar epsilon))^2 / 2."""
    parameters = _softmax_only(constants)
    reach = parameters.inverse_lipschitz * parameters.inverse_radius / (1.0 - constants.discount)
    return max(1, math.ceil(0.5 / reach**2))


def _lagrangian_terms(
    constants: ProblemConstants, schedule: SampleSchedule, found: SampleConstants
) -> dict[str, float]:
    """Lemma avg_L_sample with epsilon = (1-gamma) eta_theta / (sqrt(2) L_lambda)."""
    parameters = _softmax_only(constants)
    mass = 1.0 / (1.0 - constants.discount)
    step, inverse = schedule.primal_step, parameters.inverse_lipschitz
    mixing = step / (math.sqrt(2.0) * inverse * mass)
    if mixing > parameters.inverse_radius:
        needed = least_sampled_iterations(constants)
        raise TheoryError(
            f"theorem sample holds from T = ((1-gamma)/(L_lambda bar epsilon))^2 / 2 = {needed:,} "
            f"iterations on; got {schedule.iterations:,}",
            needed,
        )
    cut = constants.discount**schedule.horizon
    truncation = parameters.truncation(
        constants.lipschitz, constants.smoothness, constants.discount, schedule.horizon
    )
    mean, _ = _mean_occupancy_error(found, schedule.iterations)
    slack_at_estimate = constants.slack_magnitude + constants.lipschitz * (cut * mass + mean)
    drift = constants.n_constraints * constants.slack_magnitude * slack_at_estimate
    duals = 1.0 + constants.total_dual_bound
    gradient_error = _mean_gradient_error(constants, schedule, found)
    curvature = mixing * (inverse * mass) ** 2 + 0.5 * step**2 / mixing
    return {
        "start": 2.0 * constants.objective_magnitude / (mixing * schedule.iterations),
        "gradient error": 2.0 * step * duals * gradient_error / mixing,
        "curvature": constants.lagrangian_smoothness * curvature,
        "truncated gradient": 2.0 * duals * truncation * step * cut / mixing,
        "dual drift": 2.0 * schedule.dual_step * drift / mixing,
    }


def _mean_occupancy_error(found: SampleConstants, iterations: int) -> tuple[float, float]:
    """Bounds on (1/T) sum_t E|e_lambda,t| and (1/T) sum_t E|e_lambda,t|^2 (lemma control_e_lambda).

    sum (t+2)^-1/4 <= (4/3) T^3/4 and sum (t+2)^-1/2 <= 2 T^1/2 over t = 0, ..., T-1.
    """
    scale = OCCUPANCY_ERROR * found.occupancy_error
    return 4.0 / 3.0 * math.sqrt(scale) * iterations**-0.25, 2.0 * scale * iterations**-0.5


def _mean_gradient_error(
    constants: ProblemConstants, schedule: SampleSchedule, found: SampleConstants
) -> float:
    """A bound on (1/T) sum_t E|e_f,t|, and for every g_i the same (lemma bound_e_ft).

    sum (t+1)^-1/4 <= (4/3) T^3/4 over t = 0, ..., T-1.
    """
    parameters = _softmax_only(constants)
    score = parameters.score_bound
    mass = 1.0 / (1.0 - constants.discount)
    slope = score * constants.smoothness  # M_pi1 l_lambda
    estimate = (constants.lipschitz * score) ** 2
    hessian = constants.lipschitz**2 * (score**2 + parameters.score_smoothness) ** 2
    recursion = 24.0 * (
        found.weight_variance * estimate + hessian + 156.0 * slope**2 * found.occupancy_error
    )
    beta = (32.0 * estimate + recursion) * mass**4  # C_beta
    own = math.sqrt(23.0 * estimate * mass**4 + 12.0 * beta)
    reward = 2.0 * slope * mass**2 * math.sqrt(OCCUPANCY_ERROR * found.occupancy_error)
    moved = 4.0 * score * slope * mass**4 * schedule.primal_step
    return 4.0 / 3.0 * (own + reward) * schedule.iterations**-0.25 + moved


def _softmax_only(constants: ProblemConstants) -> ParameterisationConstants:
    if not isinstance(constants.parameterisation, ParameterisationConstants):
        raise TheoryError(
            "theorem sample needs bounded scores, which the direct parameterisation does not have; "
            "use a softmax, see softmax_table_constants"
        )
    return constants.parameterisation
