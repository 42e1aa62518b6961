r"""How the best objective changes with a budget or a signal, from the multipliers and the occupancy.

At an optimum x with multipliers mu, the best objective is that of the Lagrangian f + sum_i mu_i g_i, and where
it is differentiable (Danskin) its derivative is that of the Lagrangian at fixed x and mu:

    d f* / d b_i     = mu_i dg_i/db_i,                     +-mu_i; times the steps taken for a share,
    d f* / d r(s,a)  = W x(s,a),                           W the weight of the return of r in the Lagrangian.

W is read off the tangents of f and g_i, which are linear in the rewards they are made of and carry the dual
weights where functions have kinks.

A linear program's optimum is differentiable in a budget where its multipliers are unique: as many randomised
decisions as budgets that bind. With fewer the price jumps there; with more several policies are optimal, and
then it is the gradient in a signal that is not unique.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms.utility import signal_names
from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number
from cvxmdp.problems.lowered import Lowered

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution

TAKEN = 1e-9  # of the largest visit, beyond which a pair counts as taken
BINDING = 1e-6  # of a budget's own size, up to which a slack counts as zero


@dataclass(frozen=True, eq=False)
class Sensitivity(InNotebooks):
    """A derivative of the best objective, in the user's sign.

    Attributes:
        of: "budget/NAME" or "signal/NAME".
        value: a number for a budget, an array (S, A) for a signal.
        statement: why it is one of several, or one-sided; empty where nothing speaks against it.
    """

    of: str
    value: float | np.ndarray
    statement: str

    @property
    def differentiable(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.statement

    def __float__(self) -> float:
        return float(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype)

    def __str__(self) -> str:
        shown = number(float(self.value)) if np.ndim(self.value) == 0 else "an array (S, A)"
        return f"d objective / d {self.of} = {shown}" + (
            f". {self.statement}" if self.statement else ""
        )


def sensitivity(solution: Solution, of: str) -> Sensitivity:
    """The derivative of the best objective with respect to a budget or a signal."""
    kind, _, name = of.partition("/")
    problem = solution.problem
    problem.require_model("a sensitivity")
    if kind not in ("budget", "signal") or not name:
        raise ProblemError(f'gradient takes "budget/NAME" or "signal/NAME"; got {of!r}')
    if kind == "budget":
        return _of_budget(solution, of, name)
    return _of_signal(solution, of, name)


def _of_budget(solution: Solution, of: str, name: str) -> Sensitivity:
    problem = solution.problem
    if name not in problem.constraints:
        raise ProblemError(f"no constraint {name!r}. {did_you_mean(name, problem.constraints)}")
    constraint, x = problem.constraints[name], solution.measured
    step = max(1.0, abs(constraint.budget))  # slacks are affine in budgets: any step is exact
    ends = [problem.bind(constraint.with_budget(b).slack) for b in (0.0, step)]
    slope = (float(ends[1].value(x)) - float(ends[0].value(x))) / step
    value = problem.sign * solution.multipliers[name] * slope
    return Sensitivity(of, value + 0.0, _about_prices(solution, name))


def _of_signal(solution: Solution, of: str, name: str) -> Sensitivity:
    problem = solution.problem
    used = [problem.utility, *(one.utility for one in problem.constraints.values())]
    known = set().union(*(signal_names(one) for one in used))
    if name not in known:
        raise ProblemError(
            f"no utility of the problem reads a signal {name!r}. {did_you_mean(name, sorted(known))}"
        )
    weight = _weight(solution, name)
    value = problem.sign * weight * solution.occupancy
    return Sensitivity(of, value, _about_policies(solution))


def _weight(solution: Solution, name: str) -> float:
    """W: by how much the Lagrangian's tangent rises when the signal is one more everywhere."""
    problem, mdp = solution.problem, solution.problem.mdp
    signal = mdp.signal(name).reshape(-1, *mdp.actions.shape) + mdp.actions  # by time, or (1, S, A)
    more = mdp.with_signals(**{name: signal if len(signal) > 1 else signal[0]})
    before, after = Lowered(problem), Lowered(problem.with_model(more))
    evidence = solution.evidence
    known = evidence is not None and not evidence.infeasible
    multipliers = evidence.multipliers if known else solution.multipliers  # type: ignore[union-attr]
    tangents = evidence.tangents if known else before.tangents_at(solution.measured)  # type: ignore[union-attr]
    rewards = [one.lagrangian_tangent(multipliers, tangents)[0] for one in (after, before)]
    pair = np.unravel_index(int(solution.measured.argmax()), solution.measured.shape)
    return float((rewards[0] - rewards[1])[pair])


def _binding(solution: Solution) -> dict[str, bool]:
    """Constraints without room, and whether their multiplier is positive."""
    found = {}
    for name, budget in solution.problem.budgets.items():
        if abs(solution.slack[name]) <= BINDING * max(1.0, abs(budget)):
            found[name] = solution.multipliers[name] > BINDING * max(1.0, abs(solution.objective))
    return found


def _randomised(solution: Solution) -> int:
    """Decisions beyond one per visited state."""
    x = solution.measured
    taken = x > TAKEN * x.max()
    return int(taken.sum() - taken.any(axis=1).sum())


def _about_prices(solution: Solution, name: str) -> str:
    binding = _binding(solution)
    if name in binding and not binding[name]:
        return f"The budget of {name!r} is just met and costs nothing: less of it would, more would not."
    if Lowered(solution.problem).affine and _randomised(solution) < len(binding):
        return (
            "The price jumps here: the best policy randomises in fewer states than budgets bind, so the "
            "multiplier is one of several, between the slopes to the left and to the right."
        )
    return ""


def _about_policies(solution: Solution) -> str:
    if Lowered(solution.problem).affine and _randomised(solution) > len(_binding(solution)):
        return "Several policies are optimal; this is the gradient at this one."
    return ""
