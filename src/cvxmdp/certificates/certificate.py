"""Certificates: what is proven about a problem and a policy, in words and in a file.

A file has *claims*, which ``check`` computes anew, their *evidence*, and *notes* on how the proof was found,
which nobody checks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.jsonable import encode_array, to_jsonable
from cvxmdp.base.storage import whole_file
from cvxmdp.base.text_tables import number, text_table
from cvxmdp.checker.certificate_document import (
    FIRST_FORMAT,
    FORMAT,
    decode,
    decode_tree,
    evidence_digest,
)
from cvxmdp.models.table import endings_in
from cvxmdp.policies import TabularPolicy

# What a file claims, by what is proven; ``check`` knows the same lists.
COMMON = ("infeasible", "sense", "statement", "assumes")
BOUNDS = (*COMMON, "upper", "lower", "slack", "multipliers", "uniform")
INFEASIBLE = (*COMMON, "slack_bound", "conflict")
NOTES = ("given_slack", "repaired", "repair_share", "flow_residual", "flow_cost")

# Of what separates the uniform policy from the bound: an objective below is near zero.
NEAR_ZERO = 2e-2


@dataclass(frozen=True)
class Certificate:
    """What is proven. All bounds are in the user's sign, and upper is never below lower.

    When maximising, ``upper`` bounds what any feasible policy can achieve and ``lower`` is achieved by
    ``policy``. When minimising it is the other way round: no feasible policy gets below ``lower``, and
    ``policy`` is surely not above ``upper``.

    Attributes:
        upper, lower: the bounds; infinite where nothing is proven, NaN where it is proven that there is
            no feasible policy to bound.
        policy: the policy that achieves its bound and surely satisfies every constraint, or None.
        slack: its slack per constraint is at least this.
        given_slack: the slack of the policy that was given, as computed.
        repaired: whether ``policy`` is the given one mixed with one that has room in every constraint.
        repair_share: the share of that one in the mixture.
        multipliers: of the upper bound: it rises by this per unit of slack that is given away.
        flow_residual: what the flow equations miss at the computed occupancy of ``policy``.
        flow_cost: how much objective was given up for that and for rounding.
        infeasible: proven: no policy satisfies all constraints.
        conflict: the constraints in that proof.
        slack_bound: the proven upper bound on the smallest slack of any policy in that proof.
        assumes: promises the proof rests on.
        uniform: objective of the uniform policy, which ``relative_gap`` refers to where the objective is
            near zero.
        sense: "maximize" or "minimize".
        statement: the problem in words.
        proof: parameters of the upper bound (or of infeasibility), for the checker.
        fingerprint: of the problem.
    """

    upper: float
    lower: float
    policy: TabularPolicy | None
    slack: Mapping[str, float]
    given_slack: Mapping[str, float]
    repaired: bool
    repair_share: float
    multipliers: Mapping[str, float]
    flow_residual: float
    flow_cost: float
    infeasible: bool
    conflict: tuple[str, ...]
    slack_bound: float
    assumes: tuple[str, ...]
    uniform: float
    sense: str
    statement: str
    proof: Mapping[str, Any]
    fingerprint: str

    @property
    def gap(self) -> float:
        """upper - lower."""
        return self.upper - self.lower if not self.infeasible else math.nan

    @property
    def size(self) -> float:
        """What ``relative_gap`` refers to: max(|upper|, |lower|), the size of the objective.

        Where both bounds are near zero (a fiftieth of ``range`` or less), as in imitation, it is ``range``.
        Elsewhere it is not: beside a uniform policy that is terrible every gap looks small.
        """
        return size_of(self.upper, self.lower, self.range)

    @property
    def range(self) -> float:
        """|bound - objective of the uniform policy|; zero where there is none."""
        bound = self.upper if self.sense == "maximize" else self.lower
        return _largest(bound - self.uniform)

    @property
    def near_zero(self) -> bool:
        """Whether the best objective is near zero, compared with what there is to gain."""
        return _largest(self.upper, self.lower) <= NEAR_ZERO * self.range

    @property
    def contradicts(self) -> bool:
        """True when a policy surely beats the bound: then a promise in ``assumes`` is false."""
        return self.gap < -1e-9 * max(self.size, self.range)

    @property
    def relative_gap(self) -> float:
        """gap / size; infinite where the bounds contradict each other."""
        if not math.isfinite(self.gap):
            return self.gap
        if self.contradicts:
            return math.inf
        return self.gap / self.size if self.size > 0 else 0.0

    def worth(self, constraint: str) -> float:
        """Proven: a unit of slack in a constraint improves the best objective by at most this.

        With a budget that allows one unit more, no policy gets beyond the bound plus the multiplier, and with
        the budget as it is the policy reaches its own bound: what lies between is gap + multiplier.
        """
        return self.gap + self.multipliers.get(constraint, math.inf)

    def __str__(self) -> str:
        bounds = [*_bounds(self), *_constraints(self), *_errors(self)]
        lines = _infeasible(self) if self.infeasible else bounds
        return "\n".join([*lines, _promises(self)])

    def __repr__(self) -> str:
        if self.infeasible:
            return f"Certificate(infeasible: {', '.join(self.conflict)})"
        return f"Certificate(lower {self.lower:.8g}, upper {self.upper:.8g}, gap {self.gap:.2g})"

    def to_json(self) -> str:
        """The certificate as JSON; arrays keep every bit."""
        evidence = {
            "policy": None if self.policy is None else encode_array(self.policy.probabilities()),
            "proof": _encoded(self.proof),
        }
        claimed = INFEASIBLE if self.infeasible else BOUNDS
        document = {
            "format": FORMAT,
            "problem": self.fingerprint,
            "claims": to_jsonable({name: getattr(self, name) for name in claimed}),
            "notes": to_jsonable({name: getattr(self, name) for name in NOTES}),
            "evidence": evidence,
            "evidence_sha256": evidence_digest(evidence),
        }
        return json.dumps(document, indent=1)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a JSON file, whole or not at all."""
        with whole_file(path) as temporary:
            temporary.write_text(self.to_json(), "utf-8")

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """What ``to_json`` wrote, to be shown; it is only true if ``check`` says so."""
        try:
            document = json.loads(text)
            if document["format"] == FIRST_FORMAT:
                raise FileFormatError(
                    f"this is a certificate of cvxmdp 0.1 ({FIRST_FORMAT!r}): certify the problem again"
                )
            if document["format"] != FORMAT:
                raise FileFormatError(f"this is not a certificate in the format {FORMAT!r}")
            return _rebuilt(document)
        except FileFormatError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise FileFormatError(f"this is not a certificate: {error!r}") from error


def _largest(*numbers: float) -> float:
    return max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)


def size_of(upper: float, lower: float, span: float) -> float:
    """What a gap between these bounds is compared with; ``span`` as ``Certificate.range``."""
    size = _largest(upper, lower)
    return span if size <= NEAR_ZERO * span else size


def _encoded(tree: Any) -> Any:
    """Nested tables and lists with their arrays (and numbers) encoded."""
    if isinstance(tree, Mapping):
        return {name: _encoded(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_encoded(value) for value in tree]
    return encode_array(np.asarray(tree, dtype=np.float64))


def _rebuilt(document: Any) -> Certificate:
    # An infeasible problem has no bounds, and one with bounds no conflict.
    neither = {
        "upper": math.nan,
        "lower": math.nan,
        "uniform": math.nan,
        "slack": {},
        "multipliers": {},
        "slack_bound": math.inf,
        "conflict": [],
    }
    claims, notes = {**neither, **document["claims"]}, document["notes"]
    policy = document["evidence"]["policy"]
    numbers = ("upper", "lower", "uniform", "slack_bound")
    return Certificate(
        **{name: float(claims[name]) for name in numbers},
        **{name: float(notes[name]) for name in ("repair_share", "flow_residual", "flow_cost")},
        policy=None if policy is None else TabularPolicy(decode(policy)),
        slack=_numbers(claims["slack"]),
        given_slack=_numbers(notes["given_slack"]),
        multipliers=_numbers(claims["multipliers"]),
        repaired=bool(notes["repaired"]),
        infeasible=bool(claims["infeasible"]),
        conflict=tuple(str(name) for name in claims["conflict"]),
        assumes=tuple(str(promise) for promise in claims["assumes"]),
        sense=str(claims["sense"]),
        statement=str(claims["statement"]),
        proof=decode_tree(document["evidence"]["proof"]),
        fingerprint=str(document["problem"]),
    )


def _numbers(table: Any) -> dict[str, float]:
    return {str(name): float(number) for name, number in table.items()}


def certificate_facts(certificate: Certificate) -> dict[str, Any]:
    """What is proven, for machines."""
    return {
        "upper": certificate.upper,
        "lower": certificate.lower,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "infeasible": certificate.infeasible,
        "conflict": list(certificate.conflict),
        "slack": dict(certificate.slack),
        "assumes": list(certificate.assumes),
    }


def _infeasible(certificate: Certificate) -> list[str]:
    names = ", ".join(repr(name) for name in certificate.conflict)
    return [
        f"Proven: no policy satisfies {names}"
        + (" together." if len(certificate.conflict) > 1 else "."),
        f"The smallest slack of every policy is at most {number(certificate.slack_bound)}.",
    ]


def _bounds(certificate: Certificate) -> list[str]:
    maximise = certificate.sense == "maximize"
    bound, reached = certificate.upper, certificate.lower
    if not maximise:
        bound, reached = reached, bound
    lines = []
    if math.isfinite(bound):
        side = "above" if maximise else "below"
        lines.append(f"Proven: no feasible policy gets {side} {number(bound)}.")
    else:
        lines.append("No bound on the best objective was found.")
    if certificate.policy is not None:
        whose = "The repaired policy" if certificate.repaired else "The policy"
        most = "at least" if maximise else "at most"
        all_hold = " and satisfies every constraint" if certificate.slack else ""
        lines.append(f"{whose} reaches {most} {number(reached)}{all_hold} (proven).")
    else:
        lines.append("No policy was found that surely satisfies every constraint.")
    if certificate.contradicts:
        lines.append(
            "These two contradict each other, so a promise they rest on is false: probe your function with "
            "check_utility."
        )
    elif math.isfinite(certificate.gap):
        lines.append(f"Gap {certificate.gap:.2g}, {gap_words(certificate)}.")
    return lines


def gap_words(certificate: Certificate) -> str:
    """The relative gap, and what it is relative to."""
    relative = certificate.relative_gap
    size = _largest(certificate.upper, certificate.lower)
    if not certificate.near_zero or size == 0:
        return f"relative {relative:.2g}"
    return (
        f"relative {certificate.gap / size:.2g} to the objective, {relative:.2g} to the uniform policy's "
        "distance from zero"
    )


def _constraints(certificate: Certificate) -> list[str]:
    if not certificate.multipliers:
        return []
    rows = [
        (
            name,
            number(certificate.given_slack[name]) if name in certificate.given_slack else "-",
            number(certificate.slack[name]) if name in certificate.slack else "-",
            number(certificate.worth(name)),
        )
        for name in certificate.multipliers
    ]
    header = ("constraint", "slack given", "slack, surely", "a unit of slack is worth at most")
    lines = ["", *text_table(header, rows)]
    if certificate.repaired:
        lines += [
            "",
            "The policy given is not surely feasible: a share of "
            f"{certificate.repair_share:.2g} of it was replaced.",
        ]
    return lines


def _errors(certificate: Certificate) -> list[str]:
    if certificate.policy is None:
        return []
    return [
        "",
        f"Flow residual {certificate.flow_residual:.1e}; it and rounding cost "
        f"{certificate.flow_cost:.1e} of the objective (already taken off).",
    ]


def _promises(certificate: Certificate) -> str:
    if not certificate.assumes:
        endings = endings_in(certificate.statement)
        where = f", in which {endings}" if endings else ""
        return f"Rests on no promises, only on the problem as written{where}."
    return "Rests on these promises: " + "; ".join(certificate.assumes) + "."
