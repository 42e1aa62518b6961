r"""What a certificate rests on: two bounds, computed from the problem and checked numbers alone.

**Upper bound.** For multipliers mu >= 0 every feasible y has f(y) <= f(y) + sum mu_i g_i(y), and the
tangents of ``atoms`` bound that by <R, y> + c. For any V, the flow equations give

    <R, y> = <rho, V> + sum y(s,a) [R + gamma P V - V](s,a)
          <= <rho, V> + max(0, max_s (T V - V)(s)) / (1 - gamma L),

T the Bellman optimality operator over available actions and reachable states, L the largest row sum
of P (one, up to rounding, which a discount near one magnifies). This holds with
missing mass (episodes that end) too; the max(0, .) is needed because an occupancy may have less
mass than 1 / (1 - gamma).

**Lower bound.** A policy's occupancy x is solved for; what the flow equations miss, e in the sum of
absolute values, means an error of at most e / (1 - gamma L) in x, which each atom's ``drift`` carries
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

from cvxmdp.checker.closed_forms import (
    EPS,
    LARGEST_FACTOR,
    CertificateError,
    Error,
    MinimumNode,
    Node,
    Parameters,
    largest,
    read_function,
    total,
)
from cvxmdp.models.systems import solve_discounted


class Claims:
    """A problem as the checker sees it: arrays of the model, closed forms of the functions."""

    def __init__(self, problem: Any) -> None:
        problem.require_model("a proof")
        mdp = problem.mdp
        self.discount = float(mdp.discount)
        self.initial = np.asarray(mdp.initial, dtype=np.float64)
        self.transition = sp.csr_array(mdp.transition)
        self.actions = np.asarray(mdp.actions, dtype=bool)
        self.shape = (int(self.actions.shape[0]), int(self.actions.shape[1]))
        self.reached = reachable_states(self.transition, self.initial, self.shape[1])
        self.shrink = self._shrink()
        pairs = self.reached[:, None] & self.actions
        self.objective: Node = read_function(problem.objective_function, pairs, self.flow_miss)
        self.slacks: dict[str, Node] = {
            name: read_function(g, pairs, self.flow_miss)
            for name, g in problem.slack_functions.items()
        }

    def _shrink(self) -> float:
        """1 - gamma * the largest row sum: rows may sum to a little more than one by rounding."""
        successors = int(np.diff(self.transition.indptr).max(initial=0))
        rows = float(self.transition.sum(axis=1).max()) * (1 + (successors + 4) * EPS)
        shrink = 1.0 - self.discount * rows
        if not shrink > 0:
            raise CertificateError(
                f"with a discount of {self.discount!r} and rows that sum to up to {rows!r}, nothing "
                "bounds the mass of an occupancy"
            )
        return shrink

    def flow_miss(self, x: np.ndarray) -> float:
        """What the flow equations miss at x, in the sum of absolute values."""
        inflow = self.discount * (self.transition.T @ x.ravel())
        outside = float(np.abs(x[~(self.reached[:, None] & self.actions)]).sum())
        return float(np.abs(x.sum(axis=1) - self.initial - inflow).sum()) + outside

    def smallest_slack(self) -> Claims:
        """The same model with the smallest slack as the objective, and no constraints.

        A negative upper bound for it proves that no policy satisfies all constraints; a policy that
        is good at it is a Slater point.
        """
        other = copy(self)
        other.objective = MinimumNode(list(self.slacks.values()))
        other.slacks = {}
        return other

    @property
    def mass(self) -> float:
        """The largest mass of an occupancy."""
        return total(self.initial)[0] / self.shrink

    @property
    def affine(self) -> bool:
        """True when every function is its own tangent."""
        return all(node.affine for node in (self.objective, *self.slacks.values()))

    @property
    def promises(self) -> tuple[str, ...]:
        """What a user promised and the proof relies on."""
        nodes = [self.objective, *self.slacks.values()]
        return tuple(dict.fromkeys(promise for node in nodes for promise in node.promises))


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
    claims: Claims, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> float:
    """A number that no feasible policy's f exceeds.

    Args:
        claims: the problem.
        multipliers: one per constraint, not negative.
        proof: "objective" and, per constraint, "slacks": parameters of the tangents; "values": V.
    """
    reward, constant, size = lagrangian_tangent(claims, multipliers, proof)
    return (
        best_return_bound(claims, reward, read_values(claims, proof)) + constant + size * 16 * EPS
    )


def lagrangian_tangent(
    claims: Claims, multipliers: Mapping[str, float], proof: Mapping[str, Any]
) -> tuple[np.ndarray, float, float]:
    """Reward, constant and size (for rounding) of an affine function above the Lagrangian."""
    if set(multipliers) != set(claims.slacks):
        raise CertificateError(
            f"multipliers are for {sorted(multipliers)}, constraints are {sorted(claims.slacks)}"
        )
    tangent = claims.objective.tangent(_table(proof, "objective"))
    reward, constant = tangent.reward.copy(), [tangent.constant]
    size, steep = tangent.size, tangent.steep
    slacks = _table(proof, "slacks")
    for name, node in claims.slacks.items():
        multiplier = float(multipliers[name])
        if not 0 <= multiplier <= LARGEST_FACTOR:
            raise CertificateError(
                f"the multiplier of {name!r} must not be negative nor huge: {multiplier}"
            )
        if multiplier > 0:
            part = node.tangent(_table(slacks, name))
            reward += multiplier * part.reward
            constant.append(multiplier * part.constant)
            size += multiplier * part.size
            steep += multiplier * part.steep
    terms = 1 + len(claims.slacks) / 8
    return reward, math.fsum(constant), terms * (size + steep * claims.mass)


def _table(holder: Any, name: str) -> Parameters:
    found = holder.get(name) if isinstance(holder, Mapping) else None
    if not isinstance(found, dict):
        raise CertificateError(f"the certificate holds no parameters for {name!r}")
    return found


def read_values(claims: Claims, proof: Mapping[str, Any]) -> np.ndarray:
    """V of a proof, shape (S,)."""
    try:
        values = np.asarray(proof["values"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate holds no usable 'values': {error}") from error
    if values.shape != claims.initial.shape or not np.isfinite(values[claims.reached]).all():
        raise CertificateError(
            f"'values' in the certificate must be finite numbers of shape {claims.initial.shape}"
        )
    return np.where(claims.reached, values, 0.0)


def best_return_bound(claims: Claims, reward: np.ndarray, values: np.ndarray) -> float:
    """An upper bound on the return of any policy with this reward, from any V."""
    following = claims.discount * (claims.transition @ values).reshape(claims.shape)
    choices = np.where(claims.actions, reward + following, -np.inf)
    excess = (choices.max(axis=1) - values)[claims.reached]
    if np.isnan(excess).any():
        raise CertificateError("the numbers of the certificate are too large: no bound follows")
    inner, size = total(claims.initial * values)
    successors = int(np.diff(claims.transition.indptr).max(initial=0))
    steepest = largest(np.where(claims.actions, reward, 0.0)[claims.reached])
    # A sum of k terms is off by at most k units in the last place of the sum of their sizes.
    rounding = (successors + 8) * EPS * (steepest + 2.0 * largest(values)) * claims.mass
    room = max(0.0, float(excess.max()))
    return inner + room * claims.mass * (1 + 8 * EPS) + 4 * EPS * size + rounding


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


def achieved(claims: Claims, policy: np.ndarray) -> Achieved:
    """Bounds on objective and slack of a policy, an (S, A) array of probabilities."""
    policy = read_policy(claims, policy)
    x = solve_occupancy(claims, policy)
    residual = claims.flow_miss(x)
    if not math.isfinite(residual):
        raise CertificateError("the occupancy of the policy could not be computed")
    arrivals = np.bincount(claims.transition.indices, minlength=claims.shape[0])
    terms = int(arrivals.max(initial=0)) + claims.shape[1] + 8
    # The policy's rows were normalised, which is exact to a few units in the last place as well.
    residual += terms * EPS * (2.0 * float(x.sum()) + float(claims.initial.sum()))
    support = policy_support(claims, policy)
    error = Error(residual / claims.shrink * (1 + 8 * EPS), support)
    drift = claims.objective.drift(x, error)
    value = claims.objective.value(x)
    slack = {name: node.value(x) for name, node in claims.slacks.items()}
    sure = {name: slack[name] - node.drift(x, error) for name, node in claims.slacks.items()}
    objective = value - drift if math.isfinite(value) and math.isfinite(drift) else -math.inf
    return Achieved(objective, sure, slack, x, residual, drift)


def read_policy(claims: Claims, policy: Any) -> np.ndarray:
    """A policy's probabilities, refused unless they are a policy of this model."""
    matrix = np.asarray(policy, dtype=np.float64)
    if matrix.shape != claims.shape or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise CertificateError(f"a policy is a matrix of probabilities of shape {claims.shape}")
    if (np.abs(matrix.sum(axis=1) - 1.0) > 1e-9).any():
        raise CertificateError("the rows of a policy must sum to one")
    if (matrix[~claims.actions] > 1e-12).any():
        raise CertificateError("the policy takes actions that are not available")
    matrix = np.where(claims.actions, matrix, 0.0)
    return matrix / matrix.sum(axis=1, keepdims=True)


def chain(claims: Claims, policy: np.ndarray) -> sp.csr_array:
    """The transition matrix of a policy, (S, S)."""
    states, actions = claims.shape
    pointers = np.arange(0, states * actions + 1, actions)
    columns = np.arange(states * actions)
    choice = sp.csr_array((policy.ravel(), columns, pointers), shape=(states, states * actions))
    return sp.csr_array(choice @ claims.transition)


def solve_occupancy(claims: Claims, policy: np.ndarray) -> np.ndarray:
    """The occupancy of a policy; its quality is measured afterwards, not assumed."""
    visits = solve_discounted(chain(claims, policy).T, claims.initial, claims.discount)
    x = np.maximum(visits, 0.0)[:, None] * policy
    return np.where(policy_support(claims, policy), x, 0.0)


def policy_support(claims: Claims, policy: np.ndarray) -> np.ndarray:
    """Boolean (S, A): pairs the policy takes with positive probability, at some time."""
    # By what is positive, not by products, which may underflow to zero.
    taken = np.repeat(policy.ravel() > 0, np.diff(claims.transition.indptr))
    own = claims.transition.copy()
    own.data = taken.astype(np.float64)
    own.eliminate_zeros()
    return reachable_states(own, claims.initial, claims.shape[1])[:, None] & (policy > 0)
