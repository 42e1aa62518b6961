r"""What a certificate rests on: two bounds, computed from the problem and checked numbers alone.

**Upper bound.** For multipliers mu >= 0 every feasible y has f(y) <= f(y) + sum mu_i g_i(y), and the
tangents of ``closed_forms`` bound that by <R, y> + c. What no return <R, y> exceeds, the flow of the problem's
horizon knows.

**Lower bound.** The flow gives a policy's occupancy x and how far it may be off, which each function's
``drift`` carries into objective and slack. The policy counts as feasible only if every slack is at least zero
after its drift is taken off.

NumPy and SciPy only; floating-point rounding is allowed for with explicit, generous terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import (
    EPS,
    LARGEST_FACTOR,
    UNDERFLOW,
    AffineBound,
    CertificateError,
    ErrorBound,
    Parameters,
    total,
)
from cvxmdp.checker.checked_average import CheckedAverage
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_finite import CheckedFinite
from cvxmdp.checker.checked_flow import CheckedFlow, Visited
from cvxmdp.checker.closed_forms import CONVEX, ClosedForm
from cvxmdp.checker.composite_forms import FormSetting, MinimumForm, read_form
from cvxmdp.checker.scalars import FLOATS, ScalarKind

RARE = 1e-9  # of the numbers added up: an error beyond it is worth another look
MOVED = 1e-3  # of the uniform policy's visits
SENSES = ("maximize", "minimize")


class PlainProblem:
    """A problem as the checker sees it: arrays of the model, closed forms of the functions.

    Args:
        plain: see ``Lowered.plain``: "transition" (sparse, (S * A, S)), "initial" (S,), "actions" (S, A),
            "discount", "sense", "statement", "note", "objective" (concave, to be maximised), "slacks" by name.
        flow: the model, or a set of models; read from the plain data when not given.
        boxes: where estimated signals lie, by name.
        scalars: what functions are computed in.
    """

    def __init__(
        self,
        plain: Mapping[str, Any],
        flow: CheckedFlow | None = None,
        boxes: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
        scalars: ScalarKind = FLOATS,
    ) -> None:
        try:
            self.flow = read_flow(plain) if flow is None else flow
            self.sense, self.statement = str(plain["sense"]), str(plain["statement"])
            self.note = str(plain.get("note", ""))
            slacks = dict(plain["slacks"])
        except CertificateError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CertificateError(f"the problem lacks something: {error!r}") from error
        if self.sense not in SENSES:
            raise CertificateError(f"the problem's sense is {self.sense!r}, not one of {SENSES}")
        self.setting = FormSetting(self.flow.usable, self.flow.miss, boxes or {}, scalars)
        self.objective = self._concave(plain.get("objective"))
        self.slacks = {str(name): self._concave(tree) for name, tree in slacks.items()}
        self.flow.require(self._charge())

    def _charge(self) -> np.ndarray:
        """What a step costs at least, (S, A), in functions that are to be large or have to be positive."""
        charge = np.zeros(self.flow.shape)
        for form in (self.objective, *self.slacks.values()):
            flat = form.flat_parameters
            reward = None if flat is None else form.tangent(flat).reward
            if reward is not None and (reward[self.flow.usable] <= 0).all():
                charge -= np.where(self.flow.usable, self.setting.scalars.rough(reward), 0.0)
        return charge

    def _concave(self, plain: Any) -> ClosedForm:
        form = read_form(plain, self.setting)
        if form.curvature == CONVEX:
            raise CertificateError("an objective or slack of the problem is not concave")
        return form

    def with_objective(self, plain: Any) -> PlainProblem:
        """The same model with another objective, and no constraints."""
        other = copy(self)
        other.objective, other.slacks = self._concave(plain), {}
        return other

    def smallest_slack(self) -> PlainProblem:
        """The same model with the smallest slack as the objective, and no constraints.

        A negative upper bound for it proves that no policy satisfies all constraints.
        """
        other = copy(self)
        other.objective, other.slacks = MinimumForm(list(self.slacks.values())), {}
        return other

    @property
    def sign(self) -> float:
        """1 when maximising, -1 when minimising: the user's objective is sign * f."""
        return 1.0 if self.sense == "maximize" else -1.0

    @property
    def promises(self) -> tuple[str, ...]:
        """What a user promised and the proof relies on."""
        forms = [self.objective, *self.slacks.values()]
        made = [promise for form in forms for promise in form.promises]
        # What is proven of an estimated model is proven of nothing else. A row that sums to less than one ends
        # episodes, or has lost an entry: no checker can tell.
        of_model = [f"it speaks of the {self.note}"] if self.note else []
        return (*dict.fromkeys(made), *of_model, *filter(None, [self.flow.endings]))


def read_flow(plain: Mapping[str, Any]) -> CheckedFlow:
    """The model of a problem, by its horizon."""
    if "average" in plain:
        return CheckedAverage(plain)
    return CheckedFinite(plain) if "horizon" in plain else CheckedEpisodes(plain)


def upper_bound(
    problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> float:
    """A number that no feasible policy's f exceeds.

    Args:
        problem: the problem.
        multipliers: one per constraint, not negative.
        proof: "objective" and, per constraint, "slacks": parameters of the tangents; and what the horizon needs
            to bound a return, such as "values", V.
    """
    tangent = lagrangian_tangent(problem, multipliers, proof)
    best = problem.flow.best_return(tangent.reward, blur_of(tangent), proof)
    return float(best + tangent.constant + tangent.size * 16 * EPS + UNDERFLOW)


def blur_of(tangent: AffineBound) -> np.ndarray:
    """By how much each entry of a tangent's reward may be off, (S, A)."""
    return tangent.steep * 16 * EPS


def lagrangian_tangent(
    problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> AffineBound:
    """An affine function above the Lagrangian."""
    if set(multipliers) != set(problem.slacks):
        raise CertificateError(
            f"multipliers are for {sorted(multipliers)}, constraints are {sorted(problem.slacks)}"
        )
    tangent = problem.objective.tangent(proof_part(proof, "objective"))
    reward, constant = tangent.reward, [tangent.constant]
    size, steep = tangent.size, tangent.steep
    slacks = proof_part(proof, "slacks")
    for name, form in problem.slacks.items():
        multiplier = float(multipliers[name])
        if not 0 <= multiplier <= LARGEST_FACTOR:
            raise CertificateError(
                f"the multiplier of {name!r} must not be negative nor huge: {multiplier}"
            )
        if multiplier > 0:
            part = form.tangent(proof_part(slacks, name))
            reward = reward + multiplier * part.reward
            constant.append(multiplier * part.constant)
            size += multiplier * part.size
            steep = steep + multiplier * part.steep
    terms = 1 + len(problem.slacks) / 8
    whole = problem.setting.scalars.added(constant)
    return AffineBound(reward, whole, terms * size, terms * steep)


def proof_part(holder: Any, name: str) -> Parameters:
    """The parameters of one function in a proof."""
    found = holder.get(name) if isinstance(holder, Mapping) else None
    if not isinstance(found, dict):
        raise CertificateError(f"the certificate holds no parameters for {name!r}")
    return found


@dataclass(frozen=True)
class Achieved:
    """What a policy surely achieves.

    Attributes:
        objective: f is at least this.
        slack: each constraint's slack is at least this.
        computed_slack: the slack as computed, without its margin of error.
        occupancy: as computed, (S, A).
        flow_residual: what the flow equations miss, in the sum of absolute values.
        drift: how much of the objective was taken off for errors.
    """

    objective: float
    slack: dict[str, float]
    computed_slack: dict[str, float]
    occupancy: np.ndarray
    flow_residual: float
    drift: float

    @property
    def feasible(self) -> bool:
        """True when every constraint surely holds."""
        return all(slack >= 0 for slack in self.slack.values()) and math.isfinite(self.objective)


def change_of(problem: PlainProblem, uniform: np.ndarray | None = None) -> float:
    """What the objective changes by, at most, when a thousandth of the uniform policy's visits move, in floats.

    ``uniform`` is its occupancy, (S, A), where that is known.
    """
    x = problem.flow.visited(problem.flow.uniform).x if uniform is None else uniform
    moved = ErrorBound(MOVED * float(x.sum()), problem.flow.usable)
    return float(problem.objective.drift(x, moved))


def surely(form: ClosedForm, visited: Visited) -> float:
    """What a function of a policy's occupancy is at least."""
    value = float(form.value(visited.x))
    if not math.isfinite(value):
        return -math.inf
    drift = form.drift(visited.x, visited.error)
    return max(float(value - drift), _as_a_return(form, visited, drift))


def _as_a_return(form: ClosedForm, visited: Visited, drift: float) -> float:
    """The same of an affine function that is rarely paid, so that the error of visits, ``drift``, hides it."""
    flat = form.flat_parameters
    if flat is None or visited.least_return is None:
        return -math.inf
    affine = form.tangent(flat)
    if drift <= RARE * (total(affine.reward * visited.x)[1] + abs(affine.constant)):
        return -math.inf
    least = visited.least_return(affine.reward, blur_of(affine))
    return float(least + affine.constant - affine.size * 16 * EPS - UNDERFLOW)


def achieved(
    problem: PlainProblem, policy: np.ndarray, guess: np.ndarray | None = None
) -> Achieved:
    """Bounds on objective and slack of a policy, an (S, A) array of probabilities.

    ``guess``, (S,), is how often it may visit states: that is measured, not believed.
    """
    visited = problem.flow.visited(policy, guess)
    slack = {name: form.value(visited.x) for name, form in problem.slacks.items()}
    sure = {name: surely(form, visited) for name, form in problem.slacks.items()}
    objective = surely(problem.objective, visited)
    off = problem.objective.value(visited.x) - objective
    drift = abs(off) if math.isfinite(off) else math.inf
    return Achieved(objective, sure, slack, visited.x, visited.residual, drift)
