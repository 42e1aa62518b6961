"""A problem twice: lowered, for those who search, and as the checker reads it, for what is claimed.

Whatever is found is found with ``Claims.lowered``. Every number that is claimed comes from the checker's own
code, which ``check`` runs again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms import Shape
from cvxmdp.base.errors import ProblemError
from cvxmdp.base.relative_size import largest_of, size_of
from cvxmdp.certificates.certificate import UNDERFLOW
from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.bounds import (
    Achieved,
    PlainProblem,
    achieved,
    blur_of,
    change_of,
    lagrangian_tangent,
    upper_bound,
)
from cvxmdp.checker.fingerprint import fingerprint
from cvxmdp.models.flow import Flow
from cvxmdp.models.rare_events import one_sign
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import from_rows
from cvxmdp.problems.lowered import Evidence, Lowered
from cvxmdp.problems.problem import Problem

SHORT = 1 - 1e-6  # a size that is claimed stays below what any machine computes
ROUNDING = 1e-9  # of the most a policy could have: a bound that misses zero by less
ENOUGH = 1e-6  # certified relative gap at which an answer is called optimal


class Proof(NamedTuple):
    """An upper bound, which is a finite number, and what proves it."""

    upper: float
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Claims:
    """What can be claimed about a problem.

    Attributes:
        lowered: the problem as searches see it.
        checked: the same as the checker reads it.
        plain: the problem as plain data; None for problems that were made of another.
    """

    lowered: Lowered
    checked: PlainProblem
    plain: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, problem: Problem) -> Claims:
        """Both readings of a problem."""
        lowered = Lowered(problem)
        plain = lowered.plain()
        try:
            return cls(lowered, PlainProblem(plain), plain)
        except CertificateError as error:
            raise ProblemError(f"nothing can be proven about this problem: {error}") from error

    @cached_property
    def fingerprint(self) -> str:
        """Of the problem; empty for problems that were made of another."""
        return "" if self.plain is None else fingerprint(self.plain)

    @property
    def flow(self) -> Flow:
        return self.lowered.flow

    @property
    def slacks(self) -> Mapping[str, Shape]:
        """The constraints' slacks by name."""
        return self.lowered.slacks

    def with_objective(self, objective: Shape) -> Claims:
        """The same model with another objective and without constraints."""
        checked = self.checked.with_objective(objective.plain())
        return Claims(self.lowered.with_objective(objective), checked)

    def smallest_slack(self) -> Claims:
        """The same model with the smallest slack as the objective, and no constraints."""
        return Claims(self.lowered.smallest_slack(), self.checked.smallest_slack())

    def without_constraints(self) -> Claims:
        """The same model and objective, unconstrained."""
        return self.with_objective(self.lowered.objective)

    def policy(self, rows: np.ndarray) -> TabularPolicy:
        """The policy that has these rows in the flow."""
        return from_rows(rows, self.lowered.model)

    def achieved(self, policy: np.ndarray, near: np.ndarray | None = None) -> Achieved:
        """What a policy, (S, A) probabilities, surely achieves: nothing where it never ends its episodes.

        ``near`` is what its occupancy is said to be, (S, A), if that is known.
        """
        known = near is not None and near.shape == self.flow.shape and np.isfinite(near).all()
        guess = np.maximum(near, 0.0).sum(axis=1) if near is not None and known else None
        try:
            return achieved(self.checked, policy, guess)
        except CertificateError:
            nothing = dict.fromkeys(self.slacks, -math.inf)
            return Achieved(
                -math.inf, nothing, nothing, np.zeros(self.flow.shape), math.inf, math.inf
            )

    @cached_property
    def uniform_value(self) -> float:
        """f of the uniform policy, as computed."""
        return self.checked.objective.value(self.flow.uniform_occupancy)

    def relative_gap(self, upper: float, lower: float) -> float:
        """(upper - lower) / size, as ``Certificate.relative_gap``."""
        gap = abs(upper - lower)
        if not math.isfinite(gap):
            return math.inf
        size = size_of(upper, lower, 0.0 if self.one_sign else abs(upper) + self.most)
        if self.one_sign:
            return gap / size if size > UNDERFLOW else 0.0
        # It may be near zero: what the uniform policy has decides.
        if size > largest_of(upper, lower):
            span = abs(upper - self.uniform_value)
            size = size_of(upper, lower, span if math.isfinite(span) else 0.0)
        if min(upper, lower) <= 0 <= max(upper, lower) and gap > ENOUGH * size:
            size = max(size, self.least_size)
        return gap / size if size > UNDERFLOW else 0.0

    @cached_property
    def one_sign(self) -> bool:
        """f adds up numbers of one sign alone: where it is near zero it is rare, and has digits of its own."""
        found = self.lowered.objective.affine()
        if found is None or found.offset != 0.0:
            return False
        return bool(one_sign(found.reward[self.flow.usable]))

    @cached_property
    def most(self) -> float:
        """What no policy's f exceeds in size, where that costs nothing to know; else infinity."""
        found = self.lowered.objective.affine()
        if found is None:
            return math.inf
        steepest = float(np.abs(found.reward[self.flow.usable]).max(initial=0.0))
        return abs(found.offset) + steepest * self.flow.mass

    @cached_property
    def least_size(self) -> float:
        """See ``Certificate.least_size``; zero where it is not known."""
        try:
            found = SHORT * change_of(self.checked, self.flow.uniform_occupancy)
        except CertificateError:
            return 0.0
        return found if math.isfinite(found) else 0.0

    def prove(self, evidence: Evidence, guess: np.ndarray | None = None) -> Proof | None:
        """The bound of the evidence; None where none follows.

        Where it has no values, the best ones are found, from the guess on.
        """
        kept = {name: float(value) for name, value in evidence.multipliers.items()}
        evidence = replace(evidence, multipliers=kept)
        try:
            if evidence.values is None:
                kept, values = self.lowered.proving_values(kept, evidence.tangents, guess)
                if values is None:
                    return None
                evidence = replace(evidence, multipliers=kept, values=values)
            if evidence.remainder is None:
                evidence = replace(evidence, remainder=self._remainder(kept, evidence))
            found = Proof(upper_bound(self.checked, kept, self.written(evidence)), evidence)
            if not math.isfinite(found.upper):
                return None
            rounding = self.one_sign and 0 < found.upper <= ROUNDING * self.most
            return self._at_zero(found) if rounding else found
        except CertificateError:
            return None

    def _at_zero(self, found: Proof) -> Proof:
        """A sum of what costs something, or nothing, is worth nothing at best: no rounding is in that bound."""
        nothing, free = np.zeros(self.flow.shape[0]), dict.fromkeys(self.slacks, 0.0)
        trivial = replace(found.evidence, multipliers=free, values=nothing, remainder=nothing)
        upper = upper_bound(self.checked, free, self.written(trivial))
        return Proof(upper, trivial) if upper < found.upper else found

    def _remainder(self, multipliers: dict[str, float], evidence: Evidence) -> np.ndarray | None:
        if self.flow.endless:  # a bound needs none
            return None
        proof = self.written(evidence)
        tangent = lagrangian_tangent(self.checked, multipliers, proof)
        excess = self.checked.flow.excess(tangent.reward, blur_of(tangent), proof)
        if excess is None or evidence.values is None:
            return None
        return self.flow.covering(excess, abs(float(self.flow.initial @ evidence.values)))

    def written(self, evidence: Evidence) -> dict[str, Any]:
        """Evidence as certificates hold it: parameters of tangents, values and what covers their rest."""
        rest = {} if evidence.remainder is None else {"remainder": evidence.remainder}
        return {**evidence.tangents, "values": evidence.values, **rest}


def best(candidates: list[Proof | None]) -> Proof | None:
    """The proof with the lowest bound."""
    found = (proof for proof in candidates if proof is not None)
    return min(found, key=lambda proof: proof.upper, default=None)
