"""Certificates: what is proven about a problem and a policy, in words and in a file.

A file has *claims*, which ``check`` computes anew, their *evidence*, and *notes* on how the proof was found,
which nobody checks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, reading
from cvxmdp.base.jsonable import encode_array, numbers_by_name, to_jsonable
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.relative_size import largest_of, size_of
from cvxmdp.base.storage import whole_file
from cvxmdp.certificates.certificate_words import certificate_words
from cvxmdp.certificates.words_on_truth import words_on_truth
from cvxmdp.checker.certificate_document import (
    FIRST_FORMAT,
    FORMAT,
    decode,
    decode_tree,
    evidence_digest,
)
from cvxmdp.checker.proof_arithmetic import FLOATING
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.timed_policy import table_policy

# What a file claims, by what is proven; ``check`` knows the same lists.
COMMON = ("infeasible", "sense", "statement", "assumes")
BOUNDS = (*COMMON, "upper", "lower", "slack", "multipliers", "uniform")
NEAR_NOTHING = ("least_size",)  # where relative gaps refer to it
INFEASIBLE = (*COMMON, "slack_bound", "conflict")
ON_TRUTH = ("confidence", "data", "reaches")
NOTES = (
    "given_slack",
    "repaired",
    "repair_share",
    "flow_residual",
    "flow_cost",
    "level",
    "one_sign",
)
NAMES = ("state_names", "action_names")  # of the policy, where it has some

UNDERFLOW = 1e-290  # bounds allow for it, and are no further from zero where everything is zero


@dataclass(frozen=True)
class Certificate(InNotebooks):
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
        least_size: what the objective changes by, at most, when a thousandth of the uniform policy's visits
            move: what ``relative_gap`` refers to where zero is between the bounds, near to both; else NaN.
        sense: "maximize" or "minimize".
        statement: the problem in words.
        proof: parameters of the upper bound (or of infeasibility), for the checker.
        fingerprint: of the problem.
        confidence: of a statement about the true model, from counts: with which it holds. Then ``policy`` is
            the one that was given, ``slack`` is of either sign, minus infinity where nothing is known, and
            ``lower`` (when maximising) is finite only where every slack is surely at least zero. NaN for one
            about every model within a stated error; None for one about the model as it stands.
        data: what such a statement rests on, in words: rows, pairs, pairs never tried; or the error.
        reaches: the objective of ``policy`` is surely as good as this, feasible or not.
        values: V of the policy's worst models, for the checker.
        level: the arithmetic its claims were computed and checked in; a note, which ``check`` does not believe.
        one_sign: the objective adds up numbers of one sign alone, such as the chance of an event: near zero it
            is rare, and gaps are relative to itself and nothing else.
    """

    sense: str
    statement: str
    fingerprint: str
    assumes: tuple[str, ...]
    uniform: float = math.nan
    upper: float = math.nan
    lower: float = math.nan
    policy: TabularPolicy | None = None
    slack: Mapping[str, float] = field(default_factory=dict)
    given_slack: Mapping[str, float] = field(default_factory=dict)
    repaired: bool = False
    repair_share: float = 0.0
    multipliers: Mapping[str, float] = field(default_factory=dict)
    flow_residual: float = 0.0
    flow_cost: float = 0.0
    infeasible: bool = False
    conflict: tuple[str, ...] = ()
    slack_bound: float = math.inf
    proof: Mapping[str, Any] = field(default_factory=dict)
    confidence: float | None = None
    data: str = ""
    reaches: float = math.nan
    values: tuple[np.ndarray, ...] = ()
    least_size: float = math.nan
    level: str = FLOATING
    one_sign: bool = False

    @property
    def bound(self) -> float:
        """No feasible policy is better: ``upper`` where it is maximised, ``lower`` where it is minimised."""
        return self.upper if self.sense == "maximize" else self.lower

    @property
    def gap(self) -> float:
        """upper - lower."""
        return self.upper - self.lower if not self.infeasible else math.nan

    @property
    def size(self) -> float:
        """What ``relative_gap`` refers to: max(|upper|, |lower|), the size of the objective.

        Where zero is between the bounds and near to both (a fiftieth of ``range`` or less), as in imitation, it
        is ``range``, and at least ``least_size``. Elsewhere a ten-thousandth of ``range`` is the least there
        is: beside a uniform policy that is terrible every gap would look small.
        """
        return max(size_of(self.upper, self.lower, self.range), largest_of(self.least_size))

    @property
    def range(self) -> float:
        """|bound - objective of the uniform policy|; zero where there is none, or ``one_sign``."""
        return 0.0 if self.one_sign else largest_of(self.bound - self.uniform)

    @property
    def near_zero(self) -> bool:
        """Whether the best objective is so near zero that gaps are not relative to its own size."""
        size = size_of(self.upper, self.lower, self.range)
        return largest_of(self.upper, self.lower) < size

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
        return self.gap / self.size if self.size > UNDERFLOW else 0.0

    def worth(self, constraint: str, slack: float = 1.0) -> float:
        """Proven: so much slack in a constraint improves the best objective by at most this.

        With a budget that allows so much more, no policy gets beyond the bound plus the multiplier times it,
        and with the budget as it is the policy reaches its own bound: what lies between is gap + multiplier *
        slack.
        """
        return self.gap + slack * self.multipliers.get(constraint, math.inf)

    @property
    def feasible(self) -> bool:
        """Whether ``policy`` surely satisfies every constraint."""
        return self.policy is not None and all(slack >= 0 for slack in self.slack.values())

    def __str__(self) -> str:
        return certificate_words(self) if self.confidence is None else words_on_truth(self)

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
        if not math.isnan(self.least_size):
            claimed = (*claimed, *NEAR_NOTHING)
        if self.confidence is not None:
            claimed = (*claimed, *ON_TRUTH)
            evidence["values"] = [encode_array(one) for one in self.values]
        notes = {name: getattr(self, name) for name in NOTES}
        # Names of states and actions: by them another model uses the policy.
        notes |= {name: getattr(self.policy, name, None) for name in NAMES}
        document = {
            "format": FORMAT,
            "problem": self.fingerprint,
            "claims": to_jsonable({name: getattr(self, name) for name in claimed}),
            "notes": to_jsonable({name: note for name, note in notes.items() if note is not None}),
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
        with reading("this is not a certificate"):
            document = json.loads(text)
            if document["format"] == FIRST_FORMAT:
                raise FileFormatError(
                    f"this is a certificate of cvxmdp 0.1 ({FIRST_FORMAT!r}): certify the problem again"
                )
            if document["format"] != FORMAT:
                raise FileFormatError(f"this is not a certificate in the format {FORMAT!r}")
            return _rebuilt(document)


def is_first_format(text: str) -> bool:
    """Whether a release wrote this that named things by how the program was written."""
    try:
        document = json.loads(text)
    except (RecursionError, ValueError):
        return False  # no certificate at all, which is said where it is read
    return isinstance(document, dict) and document.get("format") == FIRST_FORMAT


def _encoded(tree: Any) -> Any:
    """Nested tables and lists with their arrays (and numbers) encoded."""
    if isinstance(tree, Mapping):
        return {name: _encoded(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_encoded(value) for value in tree]
    return encode_array(np.asarray(tree, dtype=np.float64))


def _rebuilt(document: Any) -> Certificate:
    claims, notes = document["claims"], document["notes"]
    given, names = document["evidence"]["policy"], [notes.get(name) for name in NAMES]
    policy = None if given is None else table_policy(decode(given)).named(*names)
    on_truth: dict[str, Any] = {}
    if "confidence" in claims:
        values = tuple(decode(one) for one in document["evidence"]["values"])
        on_truth = {name: float(claims[name]) for name in ("confidence", "reaches")}
        on_truth |= {"data": str(claims["data"]), "values": values}
    # An infeasible problem has no bounds, and one with bounds no conflict.
    numbers = ("upper", "lower", "uniform", "least_size", "slack_bound")
    known: dict[str, Any] = {name: float(claims[name]) for name in numbers if name in claims}
    known |= {name: float(notes[name]) for name in ("repair_share", "flow_residual", "flow_cost")}
    return Certificate(
        **known,
        policy=policy,
        slack=numbers_by_name(claims.get("slack", {})),
        given_slack=numbers_by_name(notes["given_slack"]),
        multipliers=numbers_by_name(claims.get("multipliers", {})),
        repaired=bool(notes["repaired"]),
        infeasible=bool(claims["infeasible"]),
        conflict=tuple(str(name) for name in claims.get("conflict", ())),
        assumes=tuple(str(promise) for promise in claims["assumes"]),
        sense=str(claims["sense"]),
        statement=str(claims["statement"]),
        proof=decode_tree(document["evidence"]["proof"]),
        fingerprint=str(document["problem"]),
        level=str(notes.get("level", FLOATING)),  # files of earlier releases know one level
        one_sign=bool(notes.get("one_sign", False)),
        **on_truth,
    )


def certificate_facts(certificate: Certificate) -> dict[str, Any]:
    """What is proven, for machines."""
    on_truth = {name: getattr(certificate, name) for name in ON_TRUTH}
    return {
        **(on_truth if certificate.confidence is not None else {}),
        "upper": certificate.upper,
        "lower": certificate.lower,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "infeasible": certificate.infeasible,
        "conflict": list(certificate.conflict),
        "slack": dict(certificate.slack),
        "assumes": list(certificate.assumes),
        "level": certificate.level,
    }
