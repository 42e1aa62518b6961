r"""What a certificate rests on: two bounds, computed from the problem and checked numbers alone.

**Upper bound.** For multipliers mu >= 0 every feasible y has f(y) <= f(y) + sum mu_i g_i(y), and the
tangents of ``closed_forms`` bound that by <R, y> + c. For any V, the flow equations give

    <R, y> = <rho, V> + sum y(s,a) [R + gamma P V - V](s,a)
          <= <rho, V> + max(0, max_s (T V - V)(s)) / (1 - gamma L),

T the Bellman optimality operator over available actions and reachable states, L the largest row sum
of P (one, up to rounding, which a discount near one magnifies). This holds with
missing mass (episodes that end) too; the max(0, .) is needed because an occupancy may have less
mass than 1 / (1 - gamma).

**Lower bound.** A policy's occupancy x is solved for; what the flow equations miss, e in the sum of
absolute values, means an error of at most e / (1 - gamma L) in x, which each function's ``drift`` carries
into objective and slack. The policy counts as feasible only if every slack is at least zero after
its drift is taken off.

NumPy and SciPy only; floating-point rounding is allowed for with explicit, generous terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph

from cvxmdp.checker.arithmetic import (
    EPS,
    LARGEST_FACTOR,
    UNDERFLOW,
    CertificateError,
    ErrorBound,
    Parameters,
    largest,
    numbers,
    total,
)
from cvxmdp.checker.closed_forms import CONVEX, ClosedForm
from cvxmdp.checker.composite_forms import FormSetting, MinimumForm, read_form
from cvxmdp.checker.linear_solve import solve_system

SENSES = ("maximize", "minimize")


class PlainProblem:
    """A problem as the checker sees it: arrays of the model, closed forms of the functions.

    Args:
        plain: see ``Lowered.plain``: "transition" (sparse, (S * A, S)), "initial" (S,), "actions" (S, A),
            "discount", "sense", "statement", "note", "objective" (concave, to be maximised), "slacks" by name.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        try:
            self._read_model(plain)
            self.sense, self.statement = str(plain["sense"]), str(plain["statement"])
            self.note = str(plain.get("note", ""))
            slacks = dict(plain["slacks"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CertificateError(f"the problem lacks something: {error!r}") from error
        if self.sense not in SENSES:
            raise CertificateError(f"the problem's sense is {self.sense!r}, not one of {SENSES}")
        self.setting = FormSetting(self.reached[:, None] & self.actions, self.flow_miss)
        self.objective = self._concave(plain.get("objective"))
        self.slacks = {str(name): self._concave(tree) for name, tree in slacks.items()}

    def _read_model(self, plain: Mapping[str, Any]) -> None:
        self.actions = np.asarray(plain["actions"], dtype=bool)
        if self.actions.ndim != 2 or not self.actions.any(axis=1).all():
            raise CertificateError("some state of the problem has no action")
        self.shape = (int(self.actions.shape[0]), int(self.actions.shape[1]))
        self.initial = numbers(dict(plain), "initial", self.shape[:1])
        self.discount = float(plain["discount"])
        self.transition = sp.csr_array(plain["transition"])
        if self.transition.shape != (self.actions.size, self.shape[0]):
            raise CertificateError(
                "the problem's transition matrix has another shape than its actions"
            )
        data = self.transition.data
        if not (np.isfinite(data).all() and (data >= 0).all() and (self.initial >= 0).all()):
            raise CertificateError("a probability of the problem is negative or no number")
        if not 0 <= self.discount < 1:
            raise CertificateError(f"the problem's discount is {self.discount!r}")
        self.successors = int(np.diff(self.transition.indptr).max(initial=0))
        self.reached = reachable_states(self.transition, self.initial, self.shape[1])
        # Rows may sum to a little more than one by rounding.
        rows = float(self.transition.sum(axis=1).max()) * (1 + (self.successors + 4) * EPS)
        self.shrink = 1.0 - self.discount * rows
        if not self.shrink > 0:
            raise CertificateError(
                f"with a discount of {self.discount!r} and rows that sum to up to {rows!r}, nothing "
                "bounds the mass of an occupancy"
            )
        self.mass = total(self.initial)[0] / self.shrink  # of an occupancy, at most

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

    def flow_miss(self, x: np.ndarray) -> float:
        """What the flow equations miss at x, in the sum of absolute values."""
        inflow = self.discount * (self.transition.T @ x.ravel())
        outside = float(np.abs(x[~(self.reached[:, None] & self.actions)]).sum())
        return float(np.abs(x.sum(axis=1) - self.initial - inflow).sum()) + outside

    @property
    def sign(self) -> float:
        """1 when maximising, -1 when minimising: the user's objective is sign * f."""
        return 1.0 if self.sense == "maximize" else -1.0

    @property
    def uniform(self) -> np.ndarray:
        """The policy that is uniform over the available actions, (S, A)."""
        return np.asarray(self.actions / self.actions.sum(axis=1, keepdims=True))

    @property
    def promises(self) -> tuple[str, ...]:
        """What a user promised and the proof relies on."""
        forms = [self.objective, *self.slacks.values()]
        made = [promise for form in forms for promise in form.promises]
        # What is proven of an estimated model is proven of nothing else.
        return (*dict.fromkeys(made), *([f"it speaks of the {self.note}"] if self.note else []))


def reachable_states(transition: sp.csr_array, initial: np.ndarray, n_actions: int) -> np.ndarray:
    """Boolean (S,): states that can be reached at all, by a search from one extra source state."""
    n_states = initial.size
    starts = np.flatnonzero(initial > 0)
    ends = transition.indptr[n_actions::n_actions]
    pointers = np.concatenate([[0], ends, [ends[-1] + starts.size]])
    columns = np.concatenate([transition.indices, starts])
    graph = sp.csr_array((np.ones(columns.size), columns, pointers), shape=(n_states + 1,) * 2)
    graph.sum_duplicates()
    found = csgraph.breadth_first_order(graph, n_states, return_predecessors=False)
    reached = np.zeros(n_states + 1, dtype=bool)
    reached[found] = True
    return reached[:-1]


def upper_bound(
    problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> float:
    """A number that no feasible policy's f exceeds.

    Args:
        problem: the problem.
        multipliers: one per constraint, not negative.
        proof: "objective" and, per constraint, "slacks": parameters of the tangents; "values": V.
    """
    reward, constant, size = lagrangian_tangent(problem, multipliers, proof)
    best = best_return_bound(problem, reward, read_values(problem, proof))
    return best + constant + size * 16 * EPS + UNDERFLOW


def lagrangian_tangent(
    problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> tuple[np.ndarray, float, float]:
    """Reward, constant and size (for rounding) of an affine function above the Lagrangian."""
    if set(multipliers) != set(problem.slacks):
        raise CertificateError(
            f"multipliers are for {sorted(multipliers)}, constraints are {sorted(problem.slacks)}"
        )
    tangent = problem.objective.tangent(_table(proof, "objective"))
    reward, constant = tangent.reward.copy(), [tangent.constant]
    size, steep = tangent.size, tangent.steep
    slacks = _table(proof, "slacks")
    for name, form in problem.slacks.items():
        multiplier = float(multipliers[name])
        if not 0 <= multiplier <= LARGEST_FACTOR:
            raise CertificateError(
                f"the multiplier of {name!r} must not be negative nor huge: {multiplier}"
            )
        if multiplier > 0:
            part = form.tangent(_table(slacks, name))
            reward += multiplier * part.reward
            constant.append(multiplier * part.constant)
            size += multiplier * part.size
            steep += multiplier * part.steep
    terms = 1 + len(problem.slacks) / 8
    return reward, math.fsum(constant), terms * (size + steep * problem.mass)


def _table(holder: Any, name: str) -> Parameters:
    found = holder.get(name) if isinstance(holder, Mapping) else None
    if not isinstance(found, dict):
        raise CertificateError(f"the certificate holds no parameters for {name!r}")
    return found


def read_values(problem: PlainProblem, proof: Mapping[str, Any]) -> np.ndarray:
    """V of a proof, shape (S,)."""
    try:
        values = np.asarray(proof["values"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate holds no usable 'values': {error}") from error
    if values.shape != problem.initial.shape or not np.isfinite(values[problem.reached]).all():
        raise CertificateError(
            f"'values' in the certificate must be finite numbers of shape {problem.initial.shape}"
        )
    return np.where(problem.reached, values, 0.0)


def best_return_bound(problem: PlainProblem, reward: np.ndarray, values: np.ndarray) -> float:
    """An upper bound on the return of any policy with this reward, from any V."""
    following = problem.discount * (problem.transition @ values).reshape(problem.shape)
    choices = np.where(problem.actions, reward + following, -np.inf)
    excess = (choices.max(axis=1) - values)[problem.reached]
    if np.isnan(excess).any():
        raise CertificateError("the numbers of the certificate are too large: no bound follows")
    inner, size = total(problem.initial * values)
    steepest = largest(np.where(problem.actions, reward, 0.0)[problem.reached])
    # A sum of k terms is off by at most k units in the last place of the sum of their sizes.
    rounding = (problem.successors + 8) * EPS * (steepest + 2.0 * largest(values)) * problem.mass
    room = max(0.0, float(excess.max()))
    return inner + room * problem.mass * (1 + 8 * EPS) + 4 * EPS * size + rounding


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


def achieved(problem: PlainProblem, policy: np.ndarray) -> Achieved:
    """Bounds on objective and slack of a policy, an (S, A) array of probabilities."""
    x, error, residual = occupancy(problem, policy)
    drift = problem.objective.drift(x, error)
    value = problem.objective.value(x)
    slack = {name: form.value(x) for name, form in problem.slacks.items()}
    sure = {name: slack[name] - form.drift(x, error) for name, form in problem.slacks.items()}
    objective = value - drift if math.isfinite(value) and math.isfinite(drift) else -math.inf
    return Achieved(objective, sure, slack, x, residual, drift)


def occupancy(problem: PlainProblem, policy: Any) -> tuple[np.ndarray, ErrorBound, float]:
    """The occupancy of a policy, how far it may be off, and what the flow equations miss."""
    policy = read_policy(problem, policy)
    support = policy_support(problem, policy)
    visits = solve_system(chain(problem, policy).T, problem.initial, problem.discount)
    x = np.where(support, np.maximum(visits, 0.0)[:, None] * policy, 0.0)
    residual = problem.flow_miss(x)
    if not math.isfinite(residual):
        raise CertificateError("the occupancy of the policy could not be computed")
    arrivals = np.bincount(problem.transition.indices, minlength=problem.shape[0])
    terms = int(arrivals.max(initial=0)) + problem.shape[1] + 8
    # The policy's rows were normalised, which is exact to a few units in the last place as well.
    residual += terms * EPS * (2.0 * float(x.sum()) + float(problem.initial.sum()))
    return x, ErrorBound(residual / problem.shrink * (1 + 8 * EPS), support), residual


def read_policy(problem: PlainProblem, policy: Any) -> np.ndarray:
    """A policy's probabilities, refused unless they are a policy of this model."""
    matrix = np.asarray(policy, dtype=np.float64)
    if matrix.shape != problem.shape or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise CertificateError(f"a policy is a matrix of probabilities of shape {problem.shape}")
    if (np.abs(matrix.sum(axis=1) - 1.0) > 1e-9).any():
        raise CertificateError("the rows of a policy must sum to one")
    if (matrix[~problem.actions] > 1e-12).any():
        raise CertificateError("the policy takes actions that are not available")
    matrix = np.where(problem.actions, matrix, 0.0)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def chain(problem: PlainProblem, policy: np.ndarray) -> sp.csr_array:
    """The transition matrix of a policy, (S, S)."""
    states, actions = problem.shape
    pointers = np.arange(0, states * actions + 1, actions)
    columns = np.arange(states * actions)
    choice = sp.csr_array((policy.ravel(), columns, pointers), shape=(states, states * actions))
    return sp.csr_array(choice @ problem.transition)


def policy_support(problem: PlainProblem, policy: np.ndarray) -> np.ndarray:
    """Boolean (S, A): pairs the policy takes with positive probability, at some time."""
    # By what is positive, not by products, which may underflow to zero.
    taken = np.repeat(policy.ravel() > 0, np.diff(problem.transition.indptr))
    own = problem.transition.copy()
    own.data = taken.astype(np.float64)
    own.eliminate_zeros()
    return reachable_states(own, problem.initial, problem.shape[1])[:, None] & (policy > 0)
