"""What a certificate of a model proves, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cvxmdp.base.relative_size import ROUNDING_SHARE, largest_of
from cvxmdp.base.text_tables import number, text_table
from cvxmdp.problems.solution_text import ESTIMATED, said_of_model

if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate

ESTIMATE = f"it speaks of the {ESTIMATED}"


def certificate_words(certificate: Certificate) -> str:
    """All that is proven of a model as it stands."""
    bounds = [*_bounds(certificate), *_constraints(certificate), *_errors(certificate)]
    lines = _infeasible(certificate) if certificate.infeasible else bounds
    text = "\n".join([*lines, _promises(certificate)])
    if not any(promise.startswith(ESTIMATE) for promise in certificate.assumes):
        return text
    return f"Of the estimate alone, which says nothing of the true model:\n{said_of_model(text, ESTIMATED)}"


def _infeasible(certificate: Certificate) -> list[str]:
    names = ", ".join(repr(name) for name in certificate.conflict)
    return [
        f"Proven: no policy satisfies {names}"
        + (" together." if len(certificate.conflict) > 1 else "."),
        f"The smallest slack of every policy is at most {number(certificate.slack_bound)}.",
    ]


def _bounds(certificate: Certificate) -> list[str]:
    maximise = certificate.sense == "maximize"
    bound, reached = certificate.bound, certificate.lower if maximise else certificate.upper
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
    size = largest_of(certificate.upper, certificate.lower)
    if certificate.least_size > size:
        return (
            f"relative {relative:.2g} to what moving a thousandth of the uniform policy's visits changes "
            "(zero is between the bounds)"
        )
    if not certificate.near_zero or size == 0:
        if certificate.upper > 0 > certificate.lower:
            return "with zero between the bounds: no relative size says anything"
        return f"relative {relative:.2g}"
    share = "" if certificate.lower <= 0 <= certificate.upper else f"{ROUNDING_SHARE:.4f} of "
    return (
        f"relative {certificate.gap / size:.2g} to the objective, {relative:.2g} to {share}the uniform "
        "policy's distance from zero"
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
        return f"Rests on no promises, only on the problem as written.{level_words(certificate)}"
    promises = "; ".join(certificate.assumes)
    return f"Rests on these promises: {promises}.{level_words(certificate)}"


def level_words(certificate: Certificate) -> str:
    """The arithmetic that the claims were checked in."""
    return f" Checked in {certificate.level}."
