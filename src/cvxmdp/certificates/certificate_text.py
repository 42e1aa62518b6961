"""Certificates in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cvxmdp.base.text_tables import number, text_table

if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate


def certificate_text(certificate: Certificate) -> str:
    """What is proven, under which promises, and what budgets are worth."""
    if certificate.infeasible:
        lines = _infeasible(certificate)
    else:
        lines = [*_bounds(certificate), *_constraints(certificate), *_errors(certificate)]
    return "\n".join([*lines, _promises(certificate)])


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
        relative = certificate.relative_gap
        lines.append(f"Gap {certificate.gap:.2g}, relative {relative:.2g}.")
    return lines


def _constraints(certificate: Certificate) -> list[str]:
    if not certificate.multipliers:
        return []
    rows = [
        (
            name,
            number(certificate.given_slack[name]) if name in certificate.given_slack else "-",
            number(certificate.slack[name]) if name in certificate.slack else "-",
            number(multiplier),
        )
        for name, multiplier in certificate.multipliers.items()
    ]
    header = ("constraint", "slack given", "slack, surely", "one more unit buys at most")
    lines = ["", *text_table(header, rows)]
    if certificate.repaired:
        lines += [
            "",
            "The policy given is not surely feasible: it was mixed with a share of "
            f"{certificate.repair_share:.2g} of the Slater policy.",
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
        return "Rests on no promises, only on the problem as written."
    return "Rests on these promises: " + "; ".join(certificate.assumes) + "."
