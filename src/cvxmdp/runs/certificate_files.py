"""Certificates read back from JSON, to be shown. What they claim is only true if ``check`` says so."""

from __future__ import annotations

import json
from typing import Any

from cvxmdp.base.errors import FileFormatError
from cvxmdp.certificates.certificate import FORMAT, Certificate, decode, decode_tree
from cvxmdp.checker.closed_forms import CertificateError
from cvxmdp.policies import TabularPolicy


def certificate_from(text: str) -> Certificate:
    """The certificate of a JSON text, unchecked."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise FileFormatError(f"this is not a certificate in the format {FORMAT!r}")
        return _rebuilt(document)
    except FileFormatError:
        raise
    except (
        AttributeError,
        CertificateError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FileFormatError(f"this is not a certificate: {error!r}") from error


def _rebuilt(document: Any) -> Certificate:
    claims, notes, evidence = document["claims"], document["notes"], document["evidence"]
    policy = evidence["policy"]
    return Certificate(
        upper=float(claims["upper"]),
        lower=float(claims["lower"]),
        policy=None if policy is None else TabularPolicy(decode(policy)),
        slack=_numbers(claims["slack"]),
        given_slack=_numbers(notes["given_slack"]),
        repaired=bool(notes["repaired"]),
        repair_share=float(notes["repair_share"]),
        multipliers=_numbers(claims["multipliers"]),
        flow_residual=float(notes["flow_residual"]),
        flow_cost=float(notes["flow_cost"]),
        infeasible=bool(claims["infeasible"]),
        conflict=tuple(str(name) for name in claims["conflict"]),
        slack_bound=float(claims["slack_bound"]),
        assumes=tuple(str(promise) for promise in claims["assumes"]),
        uniform=float(notes["uniform"]),
        sense=str(claims["sense"]),
        statement=str(claims["statement"]),
        proof=decode_tree(evidence["proof"]),
        fingerprint=str(document["problem"]),
    )


def _numbers(table: Any) -> dict[str, float]:
    return {str(name): float(number) for name, number in table.items()}
