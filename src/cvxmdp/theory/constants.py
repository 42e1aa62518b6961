r"""Constants of a problem: the assumption on utilities, Slater's condition, and what they imply.

| paper                  | here                                                        |
|------------------------|-------------------------------------------------------------|
| M                      | ``objective_magnitude`` for f, ``slack_magnitude`` for g_i  |
| M_lambda, l_lambda     | ``lipschitz``, ``smoothness``                               |
| sigma, gamma           | ``strength``, ``discount``                                  |
| xi, f(tilde theta)     | ``margins``, ``slater_objective``                           |
| M in C_0               | ``objective_bound``, certified                              |
| C_0                    | ``dual_bound``                                              |
| l_theta                | ``parameter_smoothness``                                    |

The paper bounds |f| and |g| by one number M. Keeping two is the same proof with smaller numbers,
and makes the zero-violation theorem the exact theorem for other constants (``pessimistic``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from cvxmdp.atoms.shapes import Constants
from cvxmdp.atoms.shapes.shape import measured
from cvxmdp.atoms.utility import Utility
from cvxmdp.certificates.slater import Slater
from cvxmdp.certificates.slater import slater as find_slater
from cvxmdp.models.space import Space
from cvxmdp.problems.problem import Problem
from cvxmdp.theory.parameterisation import (
    BELOW_ONE,
    DirectConstants,
    ParameterisationConstants,
    TheoryError,
    require_real,
)


def require_iterations(given: Any) -> int:
    """T as a positive integer, or an error."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise TheoryError(f"iterations must be a positive integer; got {given!r}")
    return int(given)


@dataclass(frozen=True)
class ProblemConstants:
    """Everything the theorems ask of a problem and its parameterisation.

    Attributes:
        objective_magnitude: M for f, a bound on |f| over occupancies.
        slack_magnitude: M for g, a bound on every |g_i| over occupancies; 0 without constraints.
        lipschitz: M_lambda of f and every g_i, in the Euclidean norm.
        smoothness: l_lambda of f and every g_i.
        strength: sigma, f is sigma-strongly concave in the occupancy; 0 if it is not.
        discount: gamma.
        parameterisation: constants of the parameterisation.
        margins: xi_i per constraint, the slacks of a Slater point.
        slater_objective: f of the Slater point at least, in the sign that is maximised.
        objective_bound: a certified upper bound on f; the M of C_0.
    """

    objective_magnitude: float
    slack_magnitude: float
    lipschitz: float
    smoothness: float
    strength: float
    discount: float
    parameterisation: ParameterisationConstants | DirectConstants
    margins: dict[str, float]
    slater_objective: float
    objective_bound: float

    def __post_init__(self) -> None:
        sizes = ("objective_magnitude", "slack_magnitude", "lipschitz", "smoothness", "strength")
        for name in sizes:
            require_real(getattr(self, name), name)
        require_real(self.discount, "discount", 0.0, BELOW_ONE)
        for name, margin in self.margins.items():
            if not margin > 0:
                raise TheoryError(
                    f"the margin of {name!r} at the Slater point is {margin}, not > 0"
                )
        if self.margins and not math.isfinite(self.objective_bound - self.slater_objective):
            raise TheoryError(
                "C_0 needs finite bounds on f; got objective_bound "
                f"{self.objective_bound} and slater_objective {self.slater_objective}"
            )

    @property
    def bound(self) -> float:
        """M, a bound on |f| and every |g_i|."""
        return max(self.objective_magnitude, self.slack_magnitude)

    @property
    def n_constraints(self) -> int:
        return len(self.margins)

    @property
    def margin(self) -> float:
        """xi, the smallest margin; infinite without constraints."""
        return min(self.margins.values(), default=math.inf)

    @property
    def dual_bound(self) -> dict[str, float]:
        """C_0 = 1 + (M - f(slater)) / xi_i per constraint (lemma duality).

        The remark on several constraints drops the "1 +", which the proof of lemma
        obtain_opt_const_exact needs: the multipliers plus a unit vector must lie in the box.
        """
        room = max(0.0, self.objective_bound - self.slater_objective) if self.margins else 0.0
        return {name: 1.0 + room / xi for name, xi in self.margins.items()}

    @property
    def total_dual_bound(self) -> float:
        """The sum of C_0 over the constraints."""
        return sum(self.dual_bound.values())

    @property
    def parameter_smoothness(self) -> float:
        """l_theta: f and every g_i are this smooth in the parameters."""
        return self.parameterisation.smoothness(self.lipschitz, self.smoothness, self.discount)

    @property
    def lagrangian_smoothness(self) -> float:
        """(1 + sum_i C_0,i) l_theta, the Lagrangian's smoothness in the parameters (ibid., IV)."""
        return (1.0 + self.total_dual_bound) * self.parameter_smoothness

    @property
    def primal_step(self) -> float:
        """eta_theta = 1 / ((1 + sum_i C_0,i) l_theta) of the exact theorems."""
        smoothness = self.lagrangian_smoothness
        if smoothness == 0:
            raise TheoryError(
                "objective and constraints are linear in the parameters (l_theta = 0): the theorem "
                "allows any primal step and names none"
            )
        return 1.0 / smoothness

    def pessimistic(self, pessimism: float) -> ProblemConstants:
        """The constants of the problem with g_i - delta >= 0 (eq. prob_pessimistic_new).

        Margins are xi_i - delta, so that ``dual_bound`` is the theorem's C_{0,delta}, and
        |g_i - delta| is at most M + xi (eq. new_bound_pessimistic).

        Args:
            pessimism: delta, less than every margin.
        """
        if not 0 <= pessimism < self.margin:
            raise TheoryError(
                "pessimism must be at least 0 and less than the smallest margin "
                f"{self.margin:.6g} of the Slater point; got {pessimism!r}"
            )
        if not self.margins:
            return self
        margins = {name: xi - pessimism for name, xi in self.margins.items()}
        return replace(self, margins=margins, slack_magnitude=self.slack_magnitude + self.margin)


def problem_constants(
    problem: Problem,
    parameterisation: ParameterisationConstants | DirectConstants,
    slater: Slater | None = None,
) -> ProblemConstants:
    """Gather the constants of a problem, or say which atom has none.

    Args:
        problem: the problem.
        parameterisation: from ``softmax_table_constants``, ``direct_constants``, or your own.
        slater: from ``cvxmdp.slater(problem)``; computed when not given.
    """
    space = problem.mdp
    objective = _known("the objective", problem.utility, space)
    slacks = [
        _known(f"constraint {name!r}", constraint.slack, space)
        for name, constraint in problem.constraints.items()
    ]
    parts = [objective, *slacks]
    margins: dict[str, float] = {}
    slater_objective = objective_bound = math.nan
    if problem.constraints:
        found = find_slater(problem) if slater is None else slater
        if not found.exists:
            raise TheoryError(f"the theorems need a Slater point. {found}")
        margins = dict(found.margins)
        slater_objective, objective_bound = found.objective, found.objective_bound
    return ProblemConstants(
        objective_magnitude=objective.bound or 0.0,
        slack_magnitude=max((part.bound or 0.0 for part in slacks), default=0.0),
        lipschitz=max(part.lipschitz or 0.0 for part in parts),
        smoothness=max(part.smoothness or 0.0 for part in parts),
        strength=objective.strength,
        discount=problem.mdp.flow.effective_discount,
        parameterisation=parameterisation,
        margins=margins,
        slater_objective=slater_objective,
        objective_bound=objective_bound,
    )


def _known(role: str, utility: Utility, space: Space) -> Constants:
    """The constants of a utility, all of them known, or an error that names the atom without."""
    for _, atom in utility.terms():
        function = measured(atom.lower(space), space)
        constants = function.constants(space)
        missing = {
            "Lipschitz constant": constants.lipschitz,
            "smoothness constant": constants.smoothness,
            "bound": constants.bound,
        }
        names = [name for name, value in missing.items() if value is None]
        if names:
            raise TheoryError(
                f"the theorems do not cover {role}: {atom!r} has no {' and no '.join(names)}; "
                f"{function.roughness}. Solvers work without the theory's steps."
            )
    return measured(utility.lower(space), space).constants(space)
