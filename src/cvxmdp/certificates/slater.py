r"""Slater points: the policy with the largest smallest slack, and what follows from it.

The paper's lemma on strong duality: with a point whose slacks are xi_i > 0, optimal multipliers lie in
the box 0 <= mu_i <= (f* - f(slater)) / xi_i, so searching mu_i in [0, 1 + (M - f(slater)) / xi_i] is
enough, M any upper bound on f. (The paper's remark on several constraints drops the "1 +", which the
convergence proofs need.) When no policy has a positive smallest slack, a certified upper bound on it
says so: weights on the constraints whose weighted sum no policy can make positive.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.shapes import MinimumShape, SumShape
from cvxmdp.base.errors import ProblemError, SolverError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.certificates.claims import Claims, Proof
from cvxmdp.certificates.evidence import (
    by_columns,
    by_gradient,
    by_program,
    conflict_by_columns,
    is_large,
    room_by_columns,
)
from cvxmdp.checker.bounds import Achieved
from cvxmdp.policies import TabularPolicy
from cvxmdp.problems.conic_statement import sizes_of
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.solution_text import said_of_model

NEGLIGIBLE = 1e-6  # weight of a constraint that is a solver's rounding, not part of a conflict
SHARES = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of a policy inside f's domain


@dataclass(frozen=True)
class Slater(InNotebooks):
    """The answer to: is there room inside the constraints?

    Attributes:
        policy: the policy with the largest smallest slack that was found.
        margins: its slack per constraint, surely at least this (the paper's xi_i).
        margin: the smallest of them.
        margin_bound: proven: no policy has a smallest slack above this.
        objective: f of the policy at least, in the sign that is maximised.
        objective_bound: M, a proven upper bound on f over all policies; infinite if none was found.
        dual_bound: per constraint 1 + (M - f(policy)) / xi_i; None without a Slater point or a finite M.
        conflict: the constraints that cannot hold together strictly; empty with a Slater point.
        weights: of the constraints in the proof of ``margin_bound``.
        evidence: what proves it: multipliers, tangents and values of the smallest slack.
        note: of the model: of an estimate nothing is proven.
    """

    policy: TabularPolicy
    margins: dict[str, float]
    margin: float
    margin_bound: float
    objective: float
    objective_bound: float
    dual_bound: dict[str, float] | None
    conflict: tuple[str, ...]
    weights: dict[str, float]
    evidence: Evidence
    note: str = ""

    @property
    def exists(self) -> bool:
        """True when every constraint can hold with room to spare."""
        return self.margin > 0

    @property
    def infeasible(self) -> bool:
        """True when it is proven that no policy satisfies all constraints."""
        return self.margin_bound < 0

    def __str__(self) -> str:
        return said_of_model(self._words(), self.note)

    def _words(self) -> str:
        lines = []
        if self.exists:
            lines.append(
                f"Slater point found: every constraint holds with at least {self.margin:.6g}."
            )
            lines.append(f"No policy has a smallest slack above {self.margin_bound:.6g} (proven).")
            for name, margin in self.margins.items():
                bound = self.dual_bound[name] if self.dual_bound else math.inf
                lines.append(f"  {name}: slack {margin:.6g}, multiplier at most {bound:.6g}")
            return "\n".join(lines)
        names = ", ".join(repr(name) for name in self.conflict)
        if self.infeasible:
            together = " together" if len(self.conflict) > 1 else ""
            lines.append(f"Infeasible: no policy satisfies {names}{together} (proven).")
            mean = " + ".join(
                f"{self.weights[name]:.4g} * slack of {name!r}" for name in self.conflict
            )
            lines.append(f"  {mean} is at most {self.margin_bound:.6g} for every policy.")
        else:
            lines.append(f"No policy was found that satisfies {names} with room to spare.")
            lines.append(
                f"  The best smallest slack found is {self.margin:.3g}; none above "
                f"{self.margin_bound:.3g} exists (proven)."
            )
        return "\n".join(lines)


def slater(problem: Problem) -> Slater:
    """The policy with the largest smallest slack, its margins, and the dual bound that follows.

    Args:
        problem: one with at least one constraint.
    """
    require_problem(problem, "slater(problem)")
    if not problem.constraints:
        raise ProblemError("slater needs a problem with constraints; this one has none")
    return slater_of(Claims.of(problem))


class Room(NamedTuple):
    """The policy with the largest smallest slack that was found, and the proof that there is no larger one."""

    policy: np.ndarray
    achieved: Achieved
    proof: Proof


def room_of(claims: Claims, known: Proof | None = None) -> Room:
    """How much room the constraints leave; ``known`` is a proof that was found already."""
    known = _search_room(claims) if known is None else known
    proof = _without_bystanders(claims.smallest_slack(), known)
    return Room(*_into_domain(claims, proof.evidence.policy), proof)


def _search_room(claims: Claims) -> Proof:
    """The best bound on the smallest slack with the best policy for it, of as many ways as it takes.

    One that proves infeasibility, or a policy with room, decides; a conic solver's rounding may do neither.
    """
    smallest = claims.smallest_slack()
    found: list[Proof] = []
    ways = ((by_program, smallest), (room_by_columns, claims), (conflict_by_columns, claims))
    for way, asked in ways:
        proof = way(asked)
        if proof is not None:
            found.append(proof)
            if proof.upper < 0 or _room_in(claims, proof) > 0:
                break
    if not found:
        return prove(smallest)
    roomiest = max(found, key=lambda proof: _room_in(claims, proof))
    lowest = min(found, key=lambda proof: proof.upper)
    return lowest._replace(evidence=replace(lowest.evidence, policy=roomiest.evidence.policy))


def _room_in(claims: Claims, proof: Proof) -> float:
    policy = proof.evidence.policy
    return -math.inf if policy is None else min(claims.achieved(policy).slack.values())


def empty_domain(claims: Claims) -> bool:
    """Whether it is proven that no feasible policy makes positive what must be for f to be finite."""
    proof = _inside(claims)
    return proof is not None and proof.upper < 0


def _inside(claims: Claims) -> Proof | None:
    """The policy with the most room in constraints and arguments of logarithms, each in its own units."""
    arguments = claims.lowered.arguments
    if not arguments:
        return None
    slacks = [*claims.slacks.values(), *arguments]
    sizes = sizes_of(claims.lowered, slacks)
    scaled = [SumShape((g,), (1.0 / size,), 0.0) for g, size in zip(slacks, sizes, strict=True)]
    try:
        return prove(claims.with_objective(MinimumShape(tuple(scaled))))
    except SolverError:
        return None


def slater_of(claims: Claims, room: Room | None = None) -> Slater:
    """``slater`` for claims at hand."""
    policy, found, proof = room_of(claims) if room is None else room
    margin = min(found.slack.values())
    shares = _weights(proof.evidence.tangents["objective"], len(claims.slacks))
    weights = dict(zip(claims.slacks, shares, strict=True))
    unconstrained, dual_bound = math.inf, None
    if margin > 0:
        with suppress(SolverError):  # constraints may be all that bounds the objective
            unconstrained = prove(claims.without_constraints()).upper
            dual_bound = {
                name: 1.0 + max(0.0, unconstrained - found.objective) / xi
                for name, xi in found.slack.items()
            }
    conflict = () if margin > 0 else tuple(name for name, w in weights.items() if w > 0)
    return Slater(
        claims.policy(policy),
        found.slack,
        margin,
        proof.upper,
        found.objective,
        unconstrained,
        dual_bound,
        conflict,
        weights,
        proof.evidence,
        claims.checked.note,
    )


def prove(claims: Claims) -> Proof:
    """The best proof of an upper bound that can be found for claims without constraints."""
    found = by_program(claims)
    if found is None and is_large(claims):
        found = by_columns(claims)
    found = found or by_gradient(claims)
    if found is None:
        raise SolverError(
            "no finite bound was found. Likely causes: a utility that is infinite or has no finite "
            "gradient at the occupancy of the uniform policy."
        )
    return found


def _without_bystanders(room: Claims, proof: Proof) -> Proof:
    """The proof without weights that are a solver's rounding, and, if it proves infeasibility,

    without every constraint that it can do without: it then names those in conflict, no others.
    """
    weights = _weights(proof.evidence.tangents["objective"], 1)
    negligible = weights <= NEGLIGIBLE * weights.max()
    proof = _reweigh(room, proof, np.where(negligible, 0.0, weights))
    for index in np.argsort(weights):
        weights = _weights(proof.evidence.tangents["objective"], 1)
        others = np.where(np.arange(weights.size) == index, 0.0, weights)
        if proof.upper < 0 and weights[index] > 0 and others.any():
            proof = _reweigh(room, proof, others)
    return proof


def _reweigh(room: Claims, proof: Proof, weights: np.ndarray) -> Proof:
    """The proof with other weights, unless infeasibility would no longer follow."""
    objective = {**proof.evidence.tangents["objective"], "weights": weights}
    tangents = {"objective": objective, "slacks": {}}
    other = room.prove(Evidence({}, tangents, None, proof.evidence.policy), proof.evidence.values)
    if other is None or (proof.upper < 0 and not other.upper < 0):
        return proof
    return other


def _into_domain(claims: Claims, policy: np.ndarray | None) -> tuple[np.ndarray, Achieved]:
    """Mix in a policy inside f's domain until f is finite: a log utility may be infinite at the first try."""
    uniform = claims.flow.uniform
    policy = uniform if policy is None else policy
    first = claims.achieved(policy)
    if math.isfinite(first.objective) or min(first.slack.values()) <= 0:
        return policy, first
    inside = _inside(claims)
    end = None if inside is None else inside.evidence.policy
    other = claims.achieved(uniform if end is None else end)
    for share in SHARES:
        mixed = (1 - share) * first.occupancy + share * other.occupancy
        candidate = claims.flow.policy(mixed)
        found = claims.achieved(candidate)
        if math.isfinite(found.objective) and min(found.slack.values()) > 0:
            return candidate, found
    return policy, first


def _weights(parameters: dict[str, Any], count: int) -> np.ndarray:
    weights = np.maximum(np.asarray(parameters["weights"], dtype=np.float64), 0.0)
    return weights / weights.sum() if count else weights
