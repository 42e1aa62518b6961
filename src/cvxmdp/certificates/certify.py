r"""certify: prove how good a policy is, whoever made it.

The upper bound does not depend on the policy: it comes from multipliers and tangents, found by
``search`` and computed by ``bounds``. The lower bound is the objective of the policy's own occupancy
if every constraint surely holds there; else of (1 - b) x + b x_slater with the smallest b for which
concavity proves feasibility, whose policy is the *repaired* one. Finding is not trusted; what is
claimed is what ``bounds`` computes, and the same code computes it again in ``check``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError, ProblemError, did_you_mean
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.checking import loosened
from cvxmdp.certificates.claims import ENOUGH, Claims, Proof, best
from cvxmdp.certificates.evidence import (
    by_columns,
    by_gradient,
    by_program,
    by_program_for,
    is_large,
    linearise,
)
from cvxmdp.certificates.on_truth import TrueCertifier
from cvxmdp.certificates.repair import Repaired, repair
from cvxmdp.certificates.slater import Room, Slater, room_of, slater_of
from cvxmdp.checker.bounds import Achieved
from cvxmdp.experience.confidence import confidence_level
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.solution import Solution, Status

# Claims are written down a little looser than computed, so that another machine's rounding cannot
# turn a true certificate away.
LOOSENED = 1e-13  # of the numbers that were added up
DRIFTED = 0.1  # of the margin of error, which is far above what machines differ by
SHARP = 1e-4  # relative distance of a bound to what its own policy reaches, above which a better one is sought
CHEAP = 2_000  # pairs up to which a conic program takes a fraction of a second


def certify(
    problem: Problem,
    answer: Any = None,
    multipliers: Mapping[str, float] | None = None,
    *,
    tolerance: float = 1e-7,
    confidence: float | None = 0.95,
    exact: bool = False,
) -> Certificate:
    """Prove bounds on the best objective, and on what a policy achieves.

    Where the model carries its counts, or states its error (``mdp.uncertain``), the bounds are about every
    model that may be the true one.

    Args:
        problem: what the policy is for.
        answer: a solution, a policy, or an (S, A) array of probabilities, from anywhere.
        multipliers: for the upper bound; the solution's own, or good ones that are found, when not
            given. Any that are not negative give a true bound.
        tolerance: relative gap at which looking for a better proof stops.
        confidence: with which statements about the true model hold, where the model has counts. None for bounds
            about the estimate as it stands, which say nothing of the true model.
        exact: claims loosened outwards by what exactness needs, and checked in exact arithmetic (the extra
            ``exact``).
    """
    require_problem(problem, "certify(problem, answer)")
    if answer is None:
        raise PolicyError(
            "certify needs an answer, a solution or a policy of the problem: certify(problem, solve(problem))"
        )
    mdp = problem.mdp
    if confidence is not None:
        confidence_level(confidence, 1)
    if confidence is not None and (mdp.counts is not None or mdp.relative_error):
        found = TrueCertifier(problem, confidence).certify(answer)
    else:
        found = Certifier(problem).certify(answer, multipliers, tolerance)
    return loosened(found, problem) if exact else found


class Certifier:
    """Certifies several policies of one problem; what does not depend on the policy is kept."""

    def __init__(self, problem: Problem, claims: Claims | None = None) -> None:
        self.problem = problem
        self.claims = Claims.of(problem) if claims is None else claims
        self._room: Room | None = None
        self._slater: Slater | None = None
        self._searched: Proof | None = None

    def slater(self) -> Slater:
        """The Slater point, found when it is first needed."""
        if self._slater is None:
            self._slater = slater_of(self.claims, self.room())
        return self._slater

    def room(self) -> Room:
        """The policy with the most room in the constraints: all of the Slater point that repair needs."""
        if self._room is None:
            self._room = room_of(self.claims)
        return self._room

    def take_room(self, proof: Proof) -> None:
        """Use a proof of ``claims.smallest_slack()`` that was found elsewhere."""
        self._room, self._slater = room_of(self.claims, proof), None

    def certify(
        self,
        answer: Any,
        multipliers: Mapping[str, float] | None,
        tolerance: float = 1e-7,
        known: list[Proof | None] | None = None,
    ) -> Certificate:
        """See ``certify``.

        With proofs that are ``known``, those of a solver that is still running, nothing is searched: the best
        of them is taken.
        """
        evidence = answer.evidence if isinstance(answer, Solution) else None
        if evidence is not None and evidence.infeasible:
            self._take_infeasible(evidence)
        if isinstance(answer, Solution) and not answer.has_policy:
            answer = None  # a solver that says "infeasible": there is no policy to look at
        given, kept = None, None
        if answer is not None:
            matrix = rows_of(self.problem.mdp, answer)
            given = self.claims.achieved(matrix, getattr(answer, "occupancy_or_none", None))
            if math.isinf(given.flow_residual):
                raise ProblemError(
                    "the policy has no occupancy: it was not shown to end its episodes"
                )
            kept = repair(self.claims, matrix, given, self._slater_policy)
        if kept is None and self.claims.slacks:
            if self.room().proof.upper < 0:
                return self.infeasible(given, self.slater())
            kept = self._slater_alone()
        floor = kept.achieved.objective if kept is not None else -math.inf
        if known is None:
            known = [self._upper(answer, given, multipliers, floor, tolerance)]
        return self.write(given, kept, best(known))

    def _take_infeasible(self, evidence: Evidence) -> None:
        """A solver's evidence that no policy satisfies all constraints."""
        proof = proven(self.claims.smallest_slack(), evidence) if self.claims.slacks else None
        if proof is not None and proof.upper < 0 and self._room is None:
            self.take_room(proof)

    def _slater_policy(self) -> np.ndarray:
        return self.room().policy

    def _slater_alone(self) -> Repaired | None:
        found = self.claims.achieved(self._slater_policy())
        return Repaired(self._slater_policy(), 1.0, found) if found.feasible else None

    def upper(self, answer: Solution) -> Proof | None:
        """The proof that nothing is much better than a solution."""
        given = self.claims.achieved(rows_of(self.problem.mdp, answer))
        return self._upper(answer, given, None, given.objective, ENOUGH)

    def _upper(
        self,
        answer: Any,
        given: Achieved | None,
        multipliers: Mapping[str, float] | None,
        floor: float,
        tolerance: float,
    ) -> Proof | None:
        """The best proof of an upper bound: the cheap ones first, until one is tight enough."""
        if multipliers is not None:
            return self._upper_for(self._read_multipliers(multipliers), given, floor, tolerance)
        proofs: list[Proof | None] = []
        evidence = answer.evidence if isinstance(answer, Solution) else None
        if evidence is not None and not evidence.infeasible:
            proofs.append(proven(self.claims, evidence))
            if self._tight(proofs[0], floor, max(tolerance, ENOUGH)):
                return proofs[0]
            # The solver met the gap it was asked for, or the search would be one like its own, from the
            # beginning. Only what costs next to nothing may add to that.
            met = answer.status is Status.OPTIMAL or is_large(self.claims)
            if proofs[0] is not None and met:
                cheap = int(self.claims.flow.actions.sum()) <= CHEAP
                return best([*proofs, by_program(self.claims) if cheap else None])
        own = getattr(answer, "multipliers", None) or {}
        known = set(own) == set(self.claims.slacks)  # else of another problem
        if given is not None and known and not any(math.isnan(mu) for mu in own.values()):
            proofs.append(linearise(self.claims, given.occupancy, self._read_multipliers(own)))
        if not self._tight(best(proofs), floor, tolerance):
            proofs.append(self._search())
        return best(proofs)

    def _upper_for(
        self, known: dict[str, float], given: Achieved | None, floor: float, tolerance: float
    ) -> Proof | None:
        """The best proof with multipliers that the user chose."""
        at = given.occupancy if given is not None else np.zeros(self.claims.flow.shape)
        proof = linearise(self.claims, at, known)
        if self.claims.lowered.affine or self._tight(proof, floor, tolerance):
            return proof  # affine functions are their own tangents: there is no better proof
        return best([proof, by_program_for(self.claims, known)])

    def _search(self) -> Proof | None:
        if self._searched is None:
            found = by_program(self.claims)
            if found is not None and not self._meets(found):
                found = best([found, by_program(self.claims, scaled=False)])
            if is_large(self.claims) if found is None else not self._meets(found):
                found = best([found, by_columns(self.claims)])
            self._searched = found or self._by_gradient()
        return self._searched

    def _meets(self, proof: Proof) -> bool:
        """Whether the bound is as tight as it can be: about what the policy found with it reaches."""
        policy = proof.evidence.policy
        floor = -math.inf if policy is None else self.claims.achieved(policy).objective
        return self._tight(proof, floor, SHARP)

    def _by_gradient(self) -> Proof | None:
        if not self.claims.slacks:
            return by_gradient(self.claims)
        room = self.slater()
        bound = max(room.dual_bound.values()) if room.dual_bound else 100.0
        start = rows_of(self.problem.mdp, room.policy)
        return by_gradient(self.claims, start, dual_bound=bound)

    def _tight(self, proof: Proof | None, floor: float, tolerance: float) -> bool:
        return proof is not None and self.claims.relative_gap(proof.upper, floor) <= tolerance

    def _read_multipliers(self, multipliers: Mapping[str, float]) -> dict[str, float]:
        for name in multipliers:
            if name not in self.claims.slacks:
                known = did_you_mean(name, self.claims.slacks)
                raise ProblemError(f"a multiplier for an unknown constraint {name!r}. {known}")
        missing = [name for name in self.claims.slacks if name not in multipliers]
        if missing:
            raise ProblemError(f"no multiplier for the constraint {missing[0]!r}")
        wrong = [name for name, value in multipliers.items() if not 0 <= value < math.inf]
        if wrong:
            value = multipliers[wrong[0]]
            raise ProblemError(
                f"the multiplier of {wrong[0]!r} must be finite and not negative; got {value}"
            )
        return {name: float(multipliers[name]) for name in self.claims.slacks}

    def infeasible(self, given: Achieved | None, room: Slater) -> Certificate:
        """The certificate that no policy satisfies all constraints."""
        return Certificate(
            infeasible=True,
            conflict=room.conflict,
            slack_bound=(1 - LOOSENED) * room.margin_bound,
            proof=self.claims.smallest_slack().written(room.evidence),
            flow_residual=given.flow_residual if given else 0.0,
            flow_cost=given.drift if given else 0.0,
            **self._common(given),
        )

    def _common(self, given: Achieved | None) -> dict[str, Any]:
        claims, problem = self.claims, self.problem
        uniform = claims.uniform_value
        return {
            "given_slack": dict(given.computed_slack) if given else {},
            "assumes": claims.checked.promises,
            "uniform": problem.sign * uniform,
            "one_sign": claims.one_sign,
            "sense": problem.sense,
            "statement": repr(problem),
            "fingerprint": claims.fingerprint,
        }

    def bounds(self, kept: Repaired | None, proof: Proof | None) -> tuple[float, float]:
        """Upper and lower bound in the user's sign: what certificates claim of a policy and a proof."""
        ceiling = _up(self.claims, proof) if proof is not None else math.inf
        floor = -math.inf
        if kept is not None:
            floor = _down(kept.achieved.objective, kept.achieved.drift)
        return (ceiling, floor) if self.problem.sign > 0 else (-floor, -ceiling)

    def write(
        self, given: Achieved | None, kept: Repaired | None, proof: Proof | None
    ) -> Certificate:
        """The certificate of what a solver knows already.

        Args:
            given: what its policy achieves.
            kept: that policy, or a surely feasible one near it.
            proof: of the upper bound.
        """
        upper, lower = self.bounds(kept, proof)
        slack = {}
        if kept is not None:
            computed = kept.achieved.computed_slack
            slack = {
                name: max(0.0, _down(sure, computed[name] - sure))
                for name, sure in kept.achieved.slack.items()
            }
        found = Certificate(
            upper=upper,
            lower=lower,
            policy=self.claims.policy(kept.policy) if kept is not None else None,
            slack=slack,
            multipliers=proof.evidence.multipliers if proof is not None else {},
            proof=self.claims.written(proof.evidence) if proof is not None else {},
            repaired=kept is not None and kept.share > 0,
            repair_share=kept.share if kept is not None else 0.0,
            flow_residual=kept.achieved.flow_residual if kept is not None else math.nan,
            flow_cost=kept.achieved.drift if kept is not None else math.nan,
            **self._common(given),
        )
        near_nothing = found.lower <= 0 <= found.upper and not found.one_sign
        if not (near_nothing and found.relative_gap > ENOUGH):
            return found
        return replace(found, least_size=self.claims.least_size)


def proven(claims: Claims, evidence: Evidence) -> Proof | None:
    """What follows from what a solver knew; nothing where that was about another problem."""
    try:
        return claims.prove(evidence)
    except (LookupError, TypeError, ValueError):
        return None


def _up(claims: Claims, proof: Proof) -> float:
    """A little above, of the size of the numbers that are added up: of the start, where the rest is covered."""
    values = proof.evidence.values
    # Of finitely many steps the checker adds up numbers of one sign, and nothing else, from the last one on.
    added_up = claims.one_sign and claims.lowered.horizon.steps is not None
    covered = proof.evidence.remainder is not None or added_up
    size = 0.0 if values is None else float(np.abs(values).max(initial=0.0))
    if values is not None and covered:
        size = float(claims.flow.initial @ np.abs(values))
    return proof.upper + LOOSENED * max(abs(proof.upper), size)


def _down(value: float, drift: float) -> float:
    return float(value - LOOSENED * abs(value) - DRIFTED * drift)
