r"""Constants of a parameterisation: assumption "Parameterization", and how smooth f is in params.

| paper            | here                                          |
|------------------|-----------------------------------------------|
| M_{pi,1}         | ``score_bound``                               |
| M_{pi,2}         | ``score_smoothness``                          |
| L_lambda         | ``inverse_lipschitz``                         |
| bar epsilon      | ``inverse_radius``                            |
| l_theta          | ``smoothness(lipschitz, smoothness, discount)`` |

Two families: the paper's general softmax pi(a|s) ~ exp psi(params; s, a), for which L_lambda and
bar epsilon have to be asked for, and the direct parameterisation (params are the probabilities
themselves, steps are projected on the simplices), for which everything is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError

if TYPE_CHECKING:
    from cvxmdp.models.table import TabularMDP


class TheoryError(CvxmdpError, ValueError):
    """A case the paper's theorems do not cover.

    Attributes:
        iterations_needed: where more iterations would do, how many; else None.
    """

    def __init__(self, message: str, iterations_needed: int | None = None) -> None:
        super().__init__(message)
        self.iterations_needed = iterations_needed


TINY = float(np.finfo(np.float64).tiny)  # as a lower limit: positive
BELOW_ONE = math.nextafter(1.0, 0.0)  # as an upper limit: less than one


def require_real(given: Any, name: str, low: float = 0.0, high: float = math.inf) -> float:
    """A finite number in [low, high], or an error that names it."""
    if isinstance(given, Real) and not isinstance(given, bool):
        number = float(given)
        if math.isfinite(number) and low <= number <= high:
            return number
    most = "less than 1" if high == BELOW_ONE else f"at most {high:g}"
    upper = "" if high == math.inf else f" and {most}"
    raise TheoryError(f"{name} must be a number, at least {low:g}{upper}; got {given!r}")


@dataclass(frozen=True)
class ParameterisationConstants:
    """Assumption "Parameterization" for the general softmax pi(a|s) ~ exp psi(params; s, a).

    Attributes:
        score_bound: M_{pi,1}, a bound on |grad psi|.
        score_smoothness: M_{pi,2}, a bound on the operator norm of the Hessian of psi.
        inverse_lipschitz: L_lambda, the Lipschitz constant of the local inverses of params ->
            occupancy, the same for all params.
        inverse_radius: bar epsilon in (0, 1]: from every params, the local inverse is defined on
            the segment from its occupancy this share of the way to the optimal one.
    """

    score_bound: float
    score_smoothness: float
    inverse_lipschitz: float
    inverse_radius: float

    def __post_init__(self) -> None:
        require_real(self.score_bound, "score_bound (M_pi1)", TINY)
        require_real(self.score_smoothness, "score_smoothness (M_pi2)")
        require_real(self.inverse_lipschitz, "inverse_lipschitz (L_lambda)", TINY)
        require_real(self.inverse_radius, "inverse_radius (bar epsilon)", TINY, 1.0)

    def smoothness(self, lipschitz: float, smoothness: float, discount: float) -> float:
        r"""l_theta of lemma boundedness_smoothness (II), proof in the appendix.

        4 l_lambda M_pi1^2 / (1-gamma)^4 + 8 M_pi1^2 M_lambda / (1-gamma)^3
        + 2 M_lambda (M_pi2 + M_pi1^2) / (1-gamma)^2

        Args:
            lipschitz: M_lambda.
            smoothness: l_lambda.
            discount: gamma.
        """
        mass = 1.0 / (1.0 - discount)
        square = self.score_bound**2
        return (
            4.0 * smoothness * square * mass**4
            + 8.0 * square * lipschitz * mass**3
            + 2.0 * lipschitz * (self.score_smoothness + square) * mass**2
        )

    def truncation(
        self, lipschitz: float, smoothness: float, discount: float, horizon: int
    ) -> float:
        r"""L_{theta,lambda} of lemma boundedness_smoothness (III): the gradient's truncation error.

        The square is 8 l_lambda^2 M_pi1^2 / (1-gamma)^6
        + 16 M_pi1^2 M_lambda^2 ((H+1)^2 / (1-gamma)^2 + 1 / (1-gamma)^4); the gradients at the
        occupancy and at the one of H steps differ by at most this times gamma^H. (It already has
        the right |lambda - lambda_H| <= gamma^H / (1-gamma) in it; the text drops the divisor.)

        Args:
            lipschitz: M_lambda.
            smoothness: l_lambda.
            discount: gamma.
            horizon: H.
        """
        mass = 1.0 / (1.0 - discount)
        square = self.score_bound**2
        return math.sqrt(
            8.0 * smoothness**2 * square * mass**6
            + 16.0 * square * lipschitz**2 * ((horizon + 1.0) ** 2 * mass**2 + mass**4)
        )


def softmax_table_constants(
    inverse_lipschitz: float, inverse_radius: float
) -> ParameterisationConstants:
    """The softmax table, psi(params; s, a) = params[s, a]: M_pi1 = 1 and M_pi2 = 0.

    L_lambda and bar epsilon are asked for, because a softmax table does *not* satisfy the
    assumption they belong to (the paper's appendix says that it does). Adding a number to all
    logits of a state leaves the policy as it is, in every neighbourhood, so params -> occupancy is
    nowhere injective. Fixing one logit per state repairs that, but then d log pi = d pi / pi: the
    inverse's Lipschitz constant grows without bound where probabilities go to zero, and no
    universal one exists. What you give here is a promise about the region your iterates stay in.

    Args:
        inverse_lipschitz: L_lambda.
        inverse_radius: bar epsilon, in (0, 1].
    """
    return ParameterisationConstants(1.0, 0.0, inverse_lipschitz, inverse_radius)


@dataclass(frozen=True)
class DirectConstants:
    r"""The direct parameterisation: params are the probabilities, steps are projected.

    The theorems of the exact setting hold for it with projected steps: the update is still the
    maximiser of the same quadratic model, now over a convex set that contains every comparison
    point of the proof of lemma avg_L. The sample-based theorem does not: scores and importance
    weights are unbounded.

    Attributes:
        inverse_lipschitz: L_lambda.
        n_actions: A, the largest number of actions available in one state.
        inverse_radius: bar epsilon = 1, because the inverse is global on a convex set.
    """

    inverse_lipschitz: float
    n_actions: int
    inverse_radius: float = 1.0

    def smoothness(self, lipschitz: float, smoothness: float, discount: float) -> float:
        r"""l_theta of lemma boundedness_smoothness (II), for params = policy.

        Write D = 1/(1-gamma), nu(s) for the visits sum_a lambda(s,a) (their sum is at most D),
        Delta = pi - pi' and r = grad f(lambda). The gradient of V(r) = <r, lambda> in pi(a|s) is
        nu(s) Q(s,a) (lemma policy gradient_direct, unnormalised), and |Q| <= D |r|_inf.

        1. nu - nu' = gamma (I - gamma P_pi^T)^-1 (P_pi - P_pi')^T nu', so |nu - nu'|_1 <=
           gamma D sum_s nu'(s) sqrt(A) |Delta(s)| <= gamma sqrt(A) D^2 |Delta|.
        2. V - V' = (I - gamma P_pi)^-1 sum_a Delta Q', so |Q - Q'|_inf <= gamma |V - V'|_inf
           <= gamma sqrt(A) D^2 |r|_inf |Delta|.
        3. r fixed: |nu Q - nu' Q'| <= sqrt(A) (|nu - nu'| D |r|_inf + |nu'| |Q - Q'|_inf)
           <= 2 gamma A D^3 |r|_inf |Delta|. (Lemma value function smoothness has 4 in place of 2.)
        4. lambda = nu pi: |lambda - lambda'| <= |nu - nu'| + |nu'|_inf |Delta| <= K |Delta| with
           K = D + gamma sqrt(A) D^2 (``occupancy_lipschitz``).
        5. r changes by at most l_lambda K |Delta| in the largest entry, and then the gradient by
           sqrt(A) D^2 times that.

        Together l_theta = 2 gamma A D^3 M_lambda + sqrt(A) D^2 l_lambda K, |r|_inf being at most
        M_lambda. Rows of P that sum to less than one only make D smaller.

        Args:
            lipschitz: M_lambda.
            smoothness: l_lambda.
            discount: gamma.
        """
        mass = 1.0 / (1.0 - discount)
        fixed_reward = 2.0 * discount * self.n_actions * mass**3 * lipschitz
        reward_slope = smoothness * self.occupancy_lipschitz(discount)
        return fixed_reward + math.sqrt(self.n_actions) * mass**2 * reward_slope

    def occupancy_lipschitz(self, discount: float) -> float:
        """K with |lambda(pi) - lambda(pi')| <= K |pi - pi'|; step 4 of ``smoothness``."""
        mass = 1.0 / (1.0 - discount)
        return mass + discount * math.sqrt(self.n_actions) * mass**2


def direct_constants(mdp: TabularMDP, visits: float | None = None) -> DirectConstants:
    r"""The direct parameterisation of a model, all constants known.

    The lemma on the Lipschitz continuity of lambda^-1: L_lambda = sqrt(2 (1+A)) / d_0. Its
    statement takes d_0 from the normalised d(s) = (1-gamma) sum_a lambda(s,a), its proof divides by
    sum_a lambda(s,a) of the occupancies it is about, which the paper does not normalise. The proof
    is right: d_0 is the smallest number of *discounted visits*, which is at least rho(s). (With the
    normalised one the constant would be too large by 1/(1-gamma), not wrong.)

    Args:
        mdp: the model.
        visits: d_0, a lower bound on the discounted visits sum_a lambda(s,a) of every state by
            every policy; the smallest initial probability when not given. With horizon=T, of every state at
            every step; when not given, what arrives there whatever is done.
    """
    if visits is None:
        least = mdp.flow.least_visits
        time, state = divmod(int(np.argmin(least)), mdp.n_states)
        visits = float(least.min())
        if visits <= 0:
            when = f" at step {time}" if time else ""
            raise TheoryError(
                f"no episode starts in state {mdp.state_label(state)}{when}, so policies may hardly "
                "visit it and nothing bounds the Lipschitz constant of the map from occupancies to "
                "policies. Give the model an initial distribution that is positive everywhere, or "
                "give visits=, a lower bound on the discounted visits of every state by every policy."
            )
    d_0 = require_real(visits, "visits (d_0)", TINY)
    n_actions = int(mdp.actions.sum(axis=1).max())
    return DirectConstants(math.sqrt(2.0 * (1.0 + n_actions)) / d_0, n_actions)
