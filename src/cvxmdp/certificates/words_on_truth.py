"""What a certificate says of the true model, in words: never of the estimate alone.

Every bound holds in all models of a set that contains the true one with the stated confidence, at all times and
however the data were collected; or in every model within a stated error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cvxmdp.base.text_tables import number, text_table
from cvxmdp.certificates.certificate_words import gap_words, level_words

if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate

NO_RANGE = (
    "Of estimated signals nothing is proven without their ranges: bounds={name: (least, largest)}."
)


def words_on_truth(certificate: Certificate) -> str:
    """All that is proven."""
    lines = _none(certificate) if certificate.infeasible else _bounds(certificate)
    if certificate.contradicts:
        lines.append("These two contradict each other: one of the promises below is false.")
    promises = (
        f"Rests on these promises: {'; '.join(certificate.assumes)}.{level_words(certificate)}"
    )
    return "\n".join([f"{subject_of(certificate.confidence, certificate.data)}:", *lines, promises])


def subject_of(confidence: float | None, data: str) -> str:
    """What every bound is about."""
    if confidence is None or math.isnan(confidence):
        return f"In every model {data}"
    return f"Of the true model, with confidence {confidence:g} ({data})"


def _none(certificate: Certificate) -> list[str]:
    names = ", ".join(repr(name) for name in certificate.conflict)
    together = " together" if len(certificate.conflict) > 1 else ""
    bound = number(certificate.slack_bound)
    return [
        f"no policy satisfies {names}{together}; the smallest slack of every policy is at most {bound}."
    ]


def _bounds(certificate: Certificate) -> list[str]:
    maximise = certificate.sense == "maximize"
    bound = certificate.bound
    side = "above" if maximise else "below"
    known = f"no feasible policy gets {side} {number(bound)};"
    lines = [known if math.isfinite(bound) else "no bound on the best objective is known;"]
    if certificate.policy is None:
        return [*lines, "there is no policy to speak of."]
    most = "at least" if maximise else "at most"
    reached = f"this policy reaches {most} {number(certificate.reaches)}."
    lines.append(
        reached if math.isfinite(certificate.reaches) else "what this policy reaches is not known."
    )
    if certificate.slack:
        lines += ["", *_table(certificate), ""]
    said = (bound, certificate.reaches, *certificate.slack.values())
    if math.isfinite(certificate.confidence or math.nan) and not all(map(math.isfinite, said)):
        lines.append(NO_RANGE)
    if math.isfinite(certificate.gap) and not certificate.contradicts:
        lines.append(f"Gap {certificate.gap:.2g}, {gap_words(certificate)}.")
    return lines


def _table(certificate: Certificate) -> list[str]:
    given = certificate.given_slack
    rows = [
        (
            name,
            number(given[name]) if name in given else "-",
            number(slack) if math.isfinite(slack) else "-",
            "proven" if slack >= 0 else "not known",
        )
        for name, slack in certificate.slack.items()
    ]
    header = ("constraint", "slack in the estimate", "slack, at least", "it holds:")
    return [line.rstrip() for line in text_table(header, rows)]
