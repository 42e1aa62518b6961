"""check: verify a certificate file against a problem, trusting neither its author nor our solvers.

Everything that is claimed is computed anew from the problem: the upper bound from the file's
multipliers, tangents and values; the lower bound and the slacks from its policy. A claim passes if it
is no stronger than what was computed, so bounds that somebody loosened by hand still pass (they
remain true) and bounds that somebody tightened do not. NumPy and SciPy only.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cvxmdp.certificates.certificate import FORMAT, decode, decode_tree, evidence_digest
from cvxmdp.checker.bounds import Claims, achieved, upper_bound
from cvxmdp.checker.closed_forms import CertificateError
from cvxmdp.checker.fingerprint import fingerprint

LARGEST_FILE = 2**31  # bytes; a certificate for a million states has some 200 MB


@dataclass(frozen=True)
class Check:
    """The outcome of checking a certificate.

    Attributes:
        accepted: every claim was verified.
        reasons: what was wrong, in words; empty when accepted.
        upper, lower: the bounds as computed by the checker, in the user's sign; NaN where it did not
            get that far, or where no policy is feasible.
        assumes: promises that the proof rests on, which no checker can verify.
    """

    accepted: bool
    reasons: tuple[str, ...]
    upper: float = math.nan
    lower: float = math.nan
    assumes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.accepted

    def __str__(self) -> str:
        if not self.accepted:
            return "Rejected: " + " ".join(self.reasons)
        text = "Accepted: every claim follows from the problem."
        if self.assumes:
            text += " It rests on these promises: " + "; ".join(self.assumes) + "."
        return text


def check(certificate: str | Path, problem: Any) -> Check:
    """Verify a certificate file.

    Args:
        certificate: path of a JSON file written by ``Certificate.save``.
        problem: the problem it claims to be about.

    Returns:
        The outcome; true when every claim was verified. A file that is no certificate is rejected,
        not an error; only a file that cannot be opened is.
    """
    try:
        document = _read(Path(certificate))
        claims = Claims(problem)
        stated = _claims(document, problem, claims)
        if stated["infeasible"]:
            return _check_infeasible(document, stated, claims)
        return _check_bounds(document, stated, claims, problem.sign)
    except CertificateError as error:
        return Check(False, (str(error),))
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        # Claims are compared only after everything was read and computed, so a file that breaks the
        # arithmetic (numbers that overflow, tables where arrays belong) has proven nothing.
        return Check(False, (f"the certificate cannot be evaluated: {error!r}.",))


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST_FILE:
        raise CertificateError(f"the file is larger than {LARGEST_FILE:,} bytes")
    try:
        document = json.loads(
            path.read_text("utf-8"), parse_constant=_refuse, object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"the file is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CertificateError(f"the file is not a certificate of the form {FORMAT!r}")
    for name in ("claims", "evidence"):
        if not isinstance(document.get(name), dict):
            raise CertificateError(f"the file has no {name!r}")
    if document.get("evidence_sha256") != evidence_digest(document["evidence"]):
        raise CertificateError("the evidence was changed after it was written: its checksum is off")
    return document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number that JSON knows")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table whose names occur once: of two claims of one name readers would see either."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"some name among {sorted(table)} occurs twice in one table")
    return table


def _claims(document: dict[str, Any], problem: Any, claims: Claims) -> dict[str, Any]:
    """The claims with their types, after it is clear that they are about this problem."""
    if document.get("problem") != fingerprint(problem):
        raise CertificateError(
            "the certificate is about another problem: the fingerprints of model, objective, "
            "constraints or budgets differ"
        )
    stated = document["claims"]
    if stated.get("sense") != problem.sense:
        raise CertificateError(f"the certificate claims to {stated.get('sense')!r}")
    if stated.get("statement") != repr(problem):
        raise CertificateError("the certificate states another problem in words")
    assumes = stated.get("assumes")
    if not isinstance(assumes, list):
        raise CertificateError("the certificate does not list the promises it rests on")
    missing = [promise for promise in claims.promises if promise not in assumes]
    if missing:
        raise CertificateError(f"the certificate hides a promise it rests on: {missing[0]}")
    if not isinstance(stated.get("infeasible"), bool):
        raise CertificateError("the certificate does not say whether the problem is infeasible")
    return stated


def _number(table: Any, name: str) -> float:
    try:
        value = float(table[name])
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate has no usable {name!r}") from error
    if math.isnan(value):
        raise CertificateError(f"the certificate claims that {name!r} is not a number")
    return value


def _claims_bound(stated: dict[str, Any], name: str) -> bool:
    """Whether a bound is claimed at all: NaN and infinities claim nothing."""
    claimed = stated.get(name)
    try:
        return math.isfinite(float(claimed))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise CertificateError(f"the certificate has no usable {name!r}") from error


def _named(stated: dict[str, Any], name: str) -> dict[str, float]:
    table = stated.get(name)
    if not isinstance(table, dict):
        raise CertificateError(f"the certificate has no usable {name!r}")
    return {key: _number(table, key) for key in table}


def _check_infeasible(document: dict[str, Any], stated: dict[str, Any], claims: Claims) -> Check:
    if not claims.slacks:
        raise CertificateError("the problem has no constraints and cannot be infeasible")
    proof = decode_tree(document["evidence"].get("proof"))
    bound = upper_bound(claims.smallest_slack(), {}, {**proof, "slacks": {}})
    _check_conflict(stated.get("conflict"), proof["objective"]["weights"], claims)
    stated_bound = _number(stated, "slack_bound")
    reasons = []
    if _claims_bound(stated, "upper") or _claims_bound(stated, "lower"):
        reasons.append("an infeasible problem has no bounds, yet one is claimed.")
    if not bound < 0:
        reasons.append(
            f"infeasibility is not proven: the smallest slack is only shown to be at most {bound:.6g}."
        )
    if stated_bound < bound:
        reasons.append(
            f"the smallest slack is claimed to be at most {stated_bound:.17g}; the evidence shows "
            f"{bound:.17g}."
        )
    return Check(not reasons, tuple(reasons), assumes=claims.promises)


def _check_conflict(conflict: Any, weights: Any, claims: Claims) -> None:
    """The proof may only use the constraints that are said to be in conflict."""
    if not isinstance(conflict, list) or not set(conflict) <= set(claims.slacks):
        raise CertificateError("the conflict does not name constraints of the problem")
    for name, weight in zip(claims.slacks, weights, strict=True):
        if weight > 0 and name not in conflict:
            raise CertificateError(f"the proof uses {name!r}, which the conflict does not name")


def _check_bounds(
    document: dict[str, Any], stated: dict[str, Any], claims: Claims, sign: float
) -> Check:
    stated_upper, stated_lower = _number(stated, "upper"), _number(stated, "lower")
    ceiling, floor = math.inf, -math.inf
    reasons = []
    evidence = document["evidence"]
    if evidence.get("proof"):
        proof = decode_tree(evidence["proof"])
        ceiling = upper_bound(claims, _named(stated, "multipliers"), proof)
    if evidence.get("policy") is not None:
        found = achieved(claims, decode(evidence["policy"]))
        stated_slack = _named(stated, "slack")
        if set(stated_slack) != set(claims.slacks):
            raise CertificateError("the slack of some constraint is not claimed")
        for name, slack in found.slack.items():
            if slack < max(0.0, stated_slack[name]):
                reasons.append(
                    f"the slack of {name!r} is claimed to be at least {stated_slack[name]:.17g}; it is "
                    f"only shown to be at least {slack:.17g}."
                )
        if found.feasible:
            floor = found.objective
    upper, lower = (ceiling, floor) if sign > 0 else (-floor, -ceiling)
    if not stated_upper >= upper:
        reasons.append(f"upper bound {stated_upper:.17g} is claimed; {upper:.17g} is shown.")
    if not stated_lower <= lower:
        reasons.append(f"lower bound {stated_lower:.17g} is claimed; {lower:.17g} is shown.")
    return Check(not reasons, tuple(reasons), upper, lower, claims.promises)
