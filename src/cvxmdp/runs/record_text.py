"""Runs in words: the table of one, a line for each of many, and the same as JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cvxmdp.base.interval import Interval
from cvxmdp.base.text_tables import number
from cvxmdp.certificates.certificate import Certificate, certificate_facts
from cvxmdp.models.table import endings_in, estimate_in
from cvxmdp.problems.findings import Finding, verdict_in_short, verdict_words
from cvxmdp.problems.solution import violation_of
from cvxmdp.problems.solution_text import ConstraintRow, constraint_lines, run_line
from cvxmdp.problems.while_learning import learning_words
from cvxmdp.runs.record import ConstraintFacts, RunRecord

ROUNDING = 1e-9  # of a budget or of what is compared with it: a violation that nobody means


def status_words(record: RunRecord) -> str:
    """The status as a person writes it, with the verdict on a learner's answer."""
    return record.status.capitalize().replace("_", " ") + verdict_in_short(*_verdict(record))


def worst_violation(record: RunRecord) -> float:
    """The largest violation of a constraint; zero when all hold, NaN where there is no policy."""
    violations = violation_of({facts.name: facts.slack for facts in record.constraints})
    return float(np.max(list(violations.values()), initial=0.0))


def violation_words(record: RunRecord) -> str:
    """The largest violation for a cell of a table."""
    worst = worst_violation(record)
    return "-" if math.isnan(worst) or not record.constraints else f"{worst:.2g}"


def holds(facts: ConstraintFacts) -> bool:
    """Whether a constraint holds up to rounding, in units of its own."""
    return facts.slack >= -ROUNDING * max(abs(facts.budget), abs(facts.value))


def constraints_hold(record: RunRecord) -> str:
    """That every constraint holds, with or without rounding; empty where one does not."""
    if not all(holds(facts) for facts in record.constraints):
        return ""
    exactly = worst_violation(record) == 0
    return "Every constraint holds." if exactly else "Every constraint holds, up to rounding."


def record_text(record: RunRecord) -> str:
    """A run as text: what was asked, what was found, what is proven."""
    lines = [f"{status_words(record)}: {record.message}", ""]
    lines += [f"{record.sense} {record.utility} = {number(record.objective)}", *record.inside]
    estimate, endings = estimate_in(record.model), endings_in(record.model)
    lines += [f"Of the {estimate}."] if estimate else []
    lines += [f"{endings}."] if endings else []
    lines += constraint_lines([_row(facts) for facts in record.constraints])
    played = learning_words(record.stats, record.estimated)
    lines += ["", *verdict_lines(record), *([played] if played else []), run_line(record.stats)]
    if record.certificate is not None:
        lines += ["", "Certificate", "-----------", str(Certificate.from_json(record.certificate))]
    return "\n".join(lines)


def _row(facts: ConstraintFacts) -> ConstraintRow:
    numbers = (number(one) for one in (facts.value, facts.slack, facts.multiplier))
    return ConstraintRow((facts.name, facts.requires, *numbers), facts.units, facts.inside)


def verdict_lines(record: RunRecord) -> list[str]:
    """What a learner's answer knows of itself."""
    return verdict_words(*_verdict(record))


def _verdict(
    record: RunRecord,
) -> tuple[dict[str, str], dict[str, Interval], tuple[Finding, ...]]:
    judged = {facts.name: facts.interval for facts in record.constraints if facts.interval}
    return {facts.name: facts.status for facts in record.constraints}, judged, record.findings


def record_json(record: RunRecord) -> dict[str, Any]:
    """A run for machines: plain numbers and texts."""
    document: dict[str, Any] = {
        "title": record.title,
        "status": record.status,
        "message": record.message,
        "sense": record.sense,
        "objective": record.objective,
        "slack": {facts.name: facts.slack for facts in record.constraints},
        "violation": violation_of({facts.name: facts.slack for facts in record.constraints}),
        "multipliers": {facts.name: facts.multiplier for facts in record.constraints},
        "constraint_status": {facts.name: facts.status for facts in record.constraints},
        "slack_interval": {
            facts.name: [facts.interval.lower, facts.interval.upper]
            for facts in record.constraints
            if facts.interval is not None
        },
        "findings": [vars(finding) for finding in record.findings],
        "seed": record.seed,
        "settings": dict(record.settings),
        "stats": dict(record.stats),
        "certificate": None,
    }
    if record.certificate is not None:
        document["certificate"] = certificate_facts(Certificate.from_json(record.certificate))
    return document
