"""certify for models that may not be the true one: those with counts, and those with a stated error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.claims import Proof
from cvxmdp.certificates.true_claims import Reached, TrueClaims
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution

# Of a bound and of the values behind it: what another machine's rounding may change.
LOOSENED = 1e-12
NEGLIGIBLE = 1e-9  # weight of a constraint in a proof of infeasibility that is none


class TrueCertifier:
    """Certifies policies in every model that may be the true one; what does not depend on them is kept.

    Args:
        problem: its model has counts, or a stated error.
        confidence: with which the statements hold.
    """

    def __init__(self, problem: Problem, confidence: float = 0.95) -> None:
        self.problem, self.claims = problem, TrueClaims.about(problem, confidence)
        self._upper: Proof | None = None

    def certify(self, answer: Any) -> Certificate:
        """Of a solution, a policy or an (S, A) array."""
        if isinstance(answer, Solution) and not answer.has_policy:
            answer = None
        reached, matrix, misses = None, None, True
        if answer is not None:
            matrix = self.claims.matrix_of(answer)
            reached = self.claims.reached(matrix)
            # Where the estimate allows a policy, no proof can say that no model does.
            misses = min(self.claims.slack_of_estimate(matrix).values(), default=0.0) < 0
        if self.claims.slacks and misses and (reached is None or not reached.feasible):
            room = self.claims.room
            if room is not None and room.upper < 0:
                return self._infeasible(room)
        evidence = answer.evidence if isinstance(answer, Solution) else None
        return self.write(matrix, reached, self.upper(evidence, matrix))

    def upper(self, evidence: Any = None, policy: np.ndarray | None = None) -> Proof | None:
        """The proof that no feasible policy is better than some bound, found once."""
        if self._upper is None:
            self._upper = self.claims.upper(evidence, policy)
        return self._upper

    def write(
        self, policy: np.ndarray | None, reached: Reached | None, proof: Proof | None
    ) -> Certificate:
        """The certificate of what is known."""
        sign = self.problem.sign
        ceiling = math.inf if proof is None else _up(proof)
        reaches, slack, given = -math.inf, {}, {}
        if reached is not None and policy is not None:
            reaches = _down(reached.objective, reached.values)
            slack = {name: _down(one, reached.values) for name, one in reached.slack.items()}
            given = self.claims.slack_of_estimate(policy)
        floor = reaches if all(one >= 0 for one in slack.values()) else -math.inf
        return Certificate(
            upper=ceiling if sign > 0 else -floor,
            lower=floor if sign > 0 else -ceiling,
            policy=None if policy is None else self.claims.policy(policy),
            slack=slack,
            given_slack=given,
            multipliers=proof.evidence.multipliers if proof is not None else {},
            proof=self.claims.written(proof.evidence) if proof is not None else {},
            reaches=sign * reaches,
            values=() if reached is None else tuple(reached.values),
            **self._common(),
        )

    def _infeasible(self, room: Proof) -> Certificate:
        """That no policy satisfies all constraints, in any model of the set."""
        names = list(self.claims.slacks)
        weights = np.asarray(room.evidence.tangents["objective"]["weights"], dtype=np.float64)
        weights = np.where(weights > NEGLIGIBLE * weights.max(), weights, 0.0)
        tangents = dict(room.evidence.tangents)
        tangents["objective"] = {**tangents["objective"], "weights": weights}
        proof = self.claims.room_of(tangents, room)
        kept = proof.evidence.tangents["objective"]["weights"]
        used = tuple(name for name, weight in zip(names, kept, strict=True) if weight > 0)
        return Certificate(
            proof=self.claims.written(proof.evidence),
            infeasible=True,
            conflict=used,
            slack_bound=(1 - LOOSENED) * proof.upper,
            **self._common(),
        )

    def _common(self) -> dict[str, Any]:
        claims = self.claims
        stated = claims.counts is None
        return {
            "assumes": claims.checked.promises,
            "uniform": self.problem.sign * claims.uniform_value,
            "sense": self.problem.sense,
            "statement": repr(self.problem),
            "fingerprint": claims.fingerprint,
            "confidence": math.nan if stated else float(claims.confidence),
            "data": claims.data,
        }


def _size(values: Any) -> float:
    return max((float(np.abs(one).max(initial=0.0)) for one in values), default=0.0)


def _up(proof: Proof) -> float:
    values = [] if proof.evidence.values is None else [proof.evidence.values]
    return proof.upper + LOOSENED * max(abs(proof.upper), _size(values))


def _down(value: float, values: list[np.ndarray]) -> float:
    return value - LOOSENED * max(abs(value), _size(values)) if math.isfinite(value) else value
