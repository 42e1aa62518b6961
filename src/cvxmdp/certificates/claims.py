"""A problem twice: lowered, for those who search, and as the checker reads it, for what is claimed.

Whatever is found is found with ``Claims.lowered``. Every number that is claimed comes from the checker's own
code, which ``check`` runs again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cvxmdp.atoms.nodes import Node
from cvxmdp.checker import bounds
from cvxmdp.checker.bounds import Achieved
from cvxmdp.checker.closed_forms import CertificateError
from cvxmdp.models.flow import Flow
from cvxmdp.models.planning import optimal_values
from cvxmdp.problems.lowered import Evidence, Lowered
from cvxmdp.problems.problem import Problem


class Proof(NamedTuple):
    """An upper bound and what proves it."""

    upper: float
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Claims:
    """What can be claimed about a problem.

    Attributes:
        lowered: the problem as searches see it.
        checked: the same as the checker reads it.
    """

    lowered: Lowered
    checked: bounds.Claims

    @classmethod
    def of(cls, problem: Problem) -> Claims:
        """Both readings of a problem."""
        return cls(Lowered(problem), bounds.Claims(problem))

    @property
    def flow(self) -> Flow:
        """The model."""
        return self.lowered.flow

    @property
    def slacks(self) -> Mapping[str, Node]:
        """The constraints' slacks by name."""
        return self.lowered.slacks

    def with_objective(self, objective: Node) -> Claims:
        """The same model with another objective and without constraints."""
        checked = copy(self.checked)
        checked.objective, checked.slacks = objective, {}
        return Claims(self.lowered.with_objective(objective), checked)

    def smallest_slack(self) -> Claims:
        """The same model with the smallest slack as the objective, and no constraints."""
        return self.with_objective(self.lowered.smallest_slack().objective)

    def without_constraints(self) -> Claims:
        """The same model and objective, unconstrained."""
        return self.with_objective(self.lowered.objective)

    def achieved(self, policy: np.ndarray) -> Achieved:
        """What a policy, (S, A) probabilities, surely achieves."""
        return bounds.achieved(self.checked, policy)

    @cached_property
    def uniform_value(self) -> float:
        """f of the uniform policy, as computed."""
        return self.checked.objective.value(self.achieved(self.flow.uniform).occupancy)

    def prove(self, evidence: Evidence) -> Proof | None:
        """The bound of the evidence, with the best values where it has none; None where none follows."""
        kept = {name: float(value) for name, value in evidence.multipliers.items()}
        evidence = replace(evidence, multipliers=kept)
        try:
            if evidence.values is None:
                reward, _ = self.lowered.lagrangian_tangent(kept, evidence.tangents)
                evidence = replace(evidence, values=optimal_values(self.flow, reward)[0])
            proof = {**evidence.tangents, "values": evidence.values}
            return Proof(bounds.upper_bound(self.checked, kept, proof), evidence)
        except CertificateError:
            return None


def best(candidates: list[Proof | None]) -> Proof | None:
    """The proof with the lowest bound."""
    found = [proof for proof in candidates if proof is not None and math.isfinite(proof.upper)]
    return min(found, key=lambda proof: proof.upper) if found else None
