"""What a report says: runs as one JSON document that the page's script draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cvxmdp.base.text_tables import number
from cvxmdp.base.version import __version__
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certificate_words import gap_words
from cvxmdp.models.horizon import horizon_of
from cvxmdp.models.layout import DIRECTIONS
from cvxmdp.problems.solution_text import run_line
from cvxmdp.problems.while_learning import learning_words, share_violated
from cvxmdp.reports.html_curves import groups_of, panels, rounded
from cvxmdp.reports.html_states import listed_states
from cvxmdp.runs.record import SNAPSHOTS, FrontierFacts, RunRecord
from cvxmdp.runs.record_text import (
    constraints_hold,
    holds,
    status_words,
    verdict_lines,
    violation_words,
    worst_violation,
)

MOST_CELLS = 10_000  # states of a grid that is drawn
MOST_FRAMES = 40
MOST_NUMBERS = 2_000_000  # in the frames of all maps together: some ten megabytes
MOST_MAPS = 12


@dataclass(frozen=True)
class Chapter:
    """Something that was found out besides, told further down: a heading, sentences, and a table.

    Attributes:
        title: the heading.
        sentences: paragraphs below it.
        header, rows: the table; none where there are no rows.
    """

    title: str
    sentences: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def report_data(
    records: Sequence[RunRecord], title: str = "", findings: Sequence[Chapter] = ()
) -> dict[str, Any]:
    """The whole document; without a title it has that of the first run."""
    groups = groups_of(records)
    proofs = [
        None if r.certificate is None else Certificate.from_json(r.certificate) for r in records
    ]
    group_of = {id(run): group for group, runs in groups.items() for run in runs}
    alone = len(groups) == 1  # then the user's own title says more than the solver's name
    names = [_name(record, "" if alone else group_of[id(record)]) for record in records]
    shown = [(group, runs[0]) for group, runs in groups.items()][:MOST_MAPS]
    return {
        "version": __version__,
        "title": title or records[0].title,
        "headline": headline(records, proofs),
        "tiles": tiles(records, proofs),
        "problems": [_problem(runs) for runs in _by_problem(records)],
        "groups": [{"label": label, "runs": len(runs)} for label, runs in groups.items()],
        "panels": panels(groups, _bounds(records, proofs)),
        "maps": [
            _map(label, record, MOST_NUMBERS // len(shown))
            for label, record in shown
            if "occupancy" in record.arrays
        ],
        "proofs": [
            _proof(record, proof, name)
            for record, proof, name in zip(records, proofs, names, strict=True)
            if proof is not None
        ],
        "frontiers": [
            _frontier(record, record.frontier) for record in records if record.frontier is not None
        ],
        "findings": [asdict(finding) for finding in findings],
        "runs": [_row(r, p, n) for r, p, n in zip(records, proofs, names, strict=True)],
        "settings": [
            {"label": label, "settings": dict(runs[0].settings), "rerun": runs[0].rerun}
            for label, runs in groups.items()
        ],
        "environment": dict(records[0].environment),
        "computed": not all(record.estimated for record in records),
    }


def _by_problem(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """The runs of every problem; other budgets make no other problem."""
    found: dict[Any, list[RunRecord]] = {}
    for record in records:
        names = tuple(facts.name for facts in record.constraints)
        found.setdefault((record.title, record.utility, names), []).append(record)
    return list(found.values())


def _one_question(records: Sequence[RunRecord]) -> bool:
    """Whether all runs are of one problem with the same budgets, so that their objectives can be compared."""
    asked = {tuple(facts.requires for facts in record.constraints) for record in records}
    return len(asked) == 1 and len(_by_problem(records)) == 1


def headline(records: Sequence[RunRecord], proofs: Sequence[Certificate | None]) -> list[str]:
    """What happened, in sentences."""
    if len(records) > 1:
        return _headline_of_many(records)
    record, proof = records[0], proofs[0]
    if record.status == "infeasible":
        conflict = ", ".join(proof.conflict) if proof is not None and proof.infeasible else ""
        proven = f" This is proven, from: {conflict}." if conflict else ""
        return [f"No policy satisfies all constraints.{proven}"]
    lines = [f"The policy reaches {number(record.objective)} ({record.sense} {record.utility})."]
    if proof is not None and not proof.infeasible and math.isfinite(proof.bound):
        word = "above" if record.sense == "maximize" else "below"
        lines.append(
            f"No policy that satisfies the constraints gets {word} {number(proof.bound)}; this is proven."
        )
    judged = record.estimated and any(facts.interval for facts in record.constraints)
    lines += (
        verdict_lines(record)
        if judged
        else [*_violations(record, proof), *map(str, record.findings)]
    )
    lines.append(record.message)
    played = learning_words(record.stats, record.estimated)
    return [*lines, played] if played else lines


def _violations(record: RunRecord, proof: Certificate | None) -> list[str]:
    """Which constraints are violated by what was computed, or that none is."""
    violated = [facts.name for facts in record.constraints if not holds(facts)]
    if not violated:
        return [constraints_hold(record)] if record.constraints else []
    line = f"Violated: {', '.join(violated)}, by up to {worst_violation(record):.3g}."
    if proof is not None and proof.repaired:
        line += " A repaired policy that violates nothing is in the certificate."
    return [line]


def _headline_of_many(records: Sequence[RunRecord]) -> list[str]:
    groups = groups_of(records)
    lines = [f"{_counted(records, groups)}."]
    sign = 1.0 if records[0].sense == "maximize" else -1.0
    means = {
        label: float(np.mean([sign * run.objective for run in runs]))
        for label, runs in groups.items()
    }
    known = {label: mean for label, mean in means.items() if math.isfinite(mean)}
    # Of different problems, or budgets, the best is only the one that was asked for the least.
    if len(known) > 1 and _one_question(records):
        best = max(known, key=lambda label: known[label])
        mean = "mean " if len(records) > len(groups) else ""
        lines.append(
            f"The best {mean}objective at the end, {number(sign * known[best])}, is that of: {best}."
        )
    holding = sum(bool(constraints_hold(record)) for record in records)
    if any(record.constraints for record in records):
        lines.append(f"Every constraint holds at the end of {holding} of {len(records)} runs.")
    return lines


def _counted(records: Sequence[RunRecord], groups: dict[str, list[RunRecord]]) -> str:
    """How many runs of how much, in words."""
    runs, problems = len(records), len(_by_problem(records))
    if len(groups) == 1:
        seeds = {record.seed for record in records}
        return f"{runs} runs" + (" that differ in their seeds alone" if len(seeds) == runs else "")
    what = f"{problems} problems" if problems > 1 else f"{len(groups)} settings of one problem"
    return what if runs == len(groups) else f"{runs} runs of {what}"


def tiles(
    records: Sequence[RunRecord], proofs: Sequence[Certificate | None]
) -> list[dict[str, str]]:
    """The numbers one looks for first."""
    objectives = [record.objective for record in records if math.isfinite(record.objective)]
    gaps = [
        proof.relative_gap for proof in proofs if proof is not None and math.isfinite(proof.gap)
    ]
    found = []
    if objectives and len(groups_of(records)) == 1:  # a mean over different settings says nothing
        several = len(objectives) > 1
        value = number(float(np.mean(objectives))) if several else number(objectives[0])
        found.append(_tile("objective" + (", mean" if several else ""), value, records[0].utility))
    if gaps:
        note = "relative" + (", worst" if len(gaps) > 1 else "")
        found.append(_tile("proven gap", f"{max(gaps):.1e}", note))
    worst = max((worst_violation(r) for r in records if r.constraints and r.policy), default=None)
    if worst is not None:
        found.append(_tile("worst violation", f"{worst:.2g}", "0 means that all hold"))
    total = {
        name: sum(record.stats.get(name) or 0 for record in records)
        for name in ("iterations", "samples", "seconds")
    }
    if total["samples"]:
        where = {"the simulator" if record.estimated else "the model" for record in records}
        note = f"steps in {' and '.join(sorted(where))}"
        found.append(_tile("samples", f"{total['samples']:,}", note))
    if total["iterations"]:
        note = "all runs together" if len(records) > 1 else ""
        found.append(_tile("iterations", f"{total['iterations']:,}", note))
    if total["seconds"]:
        found.append(_tile("time", f"{total['seconds']:.3g} s", "in the solver"))
    return found


def _tile(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _problem(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """A problem in words, with what its runs reach: side by side where settings differ, means over seeds."""
    first = runs[0]
    words = {name: getattr(first, name) for name in ("title", "sense", "utility", "model")}
    asked = [
        {
            "name": facts.name,
            "requires": " / ".join(dict.fromkeys(one.constraints[k].requires for one in runs)),
        }
        for k, facts in enumerate(first.constraints)
    ]
    below = [("objective", "", first.inside)]
    below += [(facts.name, facts.units, facts.inside) for facts in first.constraints]
    units = [
        f"{name}: "
        + "; ".join(part for part in (unit, *(" ".join(line.split()) for line in inside)) if part)
        for name, unit, inside in below
        if unit or inside
    ]
    signals = [
        {"name": name, "total": number(total), "step": number(mean)}
        for name, (total, mean) in first.signals.items()
    ]
    answers = [_answer(label, mine) for label, mine in groups_of(runs).items()]
    alone = len(runs) == 1
    return {
        **words,
        "constraints": asked,
        "answers": answers,
        "units": units if alone else [],
        "signals": signals if alone else [],
    }


def _answer(label: str, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """What the runs of one setting reach, on average over their seeds."""
    means = [
        {
            name: number(float(np.mean([getattr(run.constraints[k], name) for run in runs])))
            for name in ("value", "slack", "multiplier")
        }
        for k in range(len(runs[0].constraints))
    ]
    objective = number(float(np.mean([run.objective for run in runs])))
    return {"label": label, "runs": len(runs), "objective": objective, "constraints": means}


def _bounds(
    records: Sequence[RunRecord], proofs: Sequence[Certificate | None]
) -> list[tuple[str, float]]:
    """The tightest proven bound on the objective, where all runs are of one problem."""
    if not _one_question(records):
        return []
    known = [proof.bound for proof in proofs if proof is not None and not proof.infeasible]
    if not known:
        return []
    tightest = min(known) if records[0].sense == "maximize" else max(known)
    return [("no feasible policy does better", tightest)]


def _map(label: str, record: RunRecord, room: int) -> dict[str, Any]:
    """Where the policy goes: on its grid, its frames of at most so many numbers, or the most visited states."""
    layout, occupancy = record.layout, record.arrays["occupancy"]
    probabilities = record.arrays.get("probabilities")
    entry: dict[str, Any] = {"label": label, "final": _frame(record, occupancy, probabilities)}
    entry["targets"] = [
        {"name": name, **_frame(record, target, None)} for name, target in record.targets.items()
    ]
    if layout is None or layout.rows * layout.columns > MOST_CELLS:
        share = _scale(record) * occupancy.sum(axis=1)
        return {"label": label, "final": {}, "targets": [], **listed_states(record, share)}
    entry["grid"] = {
        "rows": layout.rows,
        "columns": layout.columns,
        "walls": list(layout.walls),
        "marks": {"S": list(layout.starts), "G": list(layout.goals), "!": list(layout.hazards)},
        "actions": list(record.action_names or ()),
        "directions": [DIRECTIONS.get(name) for name in record.action_names or ()],
    }
    if all(name in record.arrays for name in SNAPSHOTS):
        iterations, visits = (record.arrays[name] for name in SNAPSHOTS)
        if visits.shape[1:] == occupancy.shape and iterations.shape == visits.shape[:1]:
            count = min(MOST_FRAMES, max(2, room // (occupancy.size + occupancy.shape[0])))
            kept = np.unique(np.linspace(0, len(iterations) - 1, count).astype(int))
            entry["frames"] = [
                {"iteration": int(iterations[k]), **_frame(record, visits[k], None)} for k in kept
            ]
    return entry


def _scale(record: RunRecord) -> float:
    """What makes distributions of occupancies; earlier records knew discounts alone."""
    return horizon_of(record.discount).scale if record.scale is None else record.scale


def _frame(
    record: RunRecord, occupancy: np.ndarray, probabilities: np.ndarray | None
) -> dict[str, Any]:
    """Share of time per state, and the probabilities of its actions; three digits are enough to look at."""
    visits = np.maximum(occupancy, 0.0)
    total = visits.sum(axis=1)
    if probabilities is None:
        probabilities = visits / np.where(total > 0, total, 1.0)[:, None]
    share = _scale(record) * total
    return {
        "share": [float(f"{value:.3g}") for value in share],
        # What the policy would do where it never is, nobody sees.
        "policy": [
            [round(float(p), 3) for p in row] if visited else []
            for row, visited in zip(probabilities, total > 0, strict=True)
        ],
    }


def _proof(record: RunRecord, proof: Certificate, name: str) -> dict[str, Any]:
    if proof.infeasible:
        return {
            "name": name,
            "infeasible": True,
            "conflict": list(proof.conflict),
            "slack_bound": number(proof.slack_bound),
        }
    budgets = {facts.name: facts.budget for facts in record.constraints}
    given = {facts.name: facts.slack for facts in record.constraints}
    return {
        "name": name,
        "infeasible": False,
        "sense": proof.sense,
        "lower": _number(proof.lower),
        "upper": _number(proof.upper),
        "reached": _number(record.objective),
        "uniform": _number(proof.uniform),
        "gap": f"{proof.gap:.2g}",
        "relative": gap_words(proof),
        "repaired": proof.repaired,
        "assumes": list(proof.assumes),
        "slack": [
            {
                "name": key,
                "given": _number(given.get(key, math.nan)),
                "sure": _number(proof.slack.get(key, math.nan)),
                "budget": _number(budgets.get(key, math.nan)),
                "worth": _number(proof.worth(key)),
            }
            for key in proof.multipliers
        ],
    }


def _frontier(record: RunRecord, facts: FrontierFacts) -> dict[str, Any]:
    return {
        "title": record.title,
        "constraint": facts.constraint,
        "sense": facts.sense,
        "objective": f"{record.sense} {record.utility}",
        "x": rounded(facts.grid, 12),
        "low": rounded(facts.floor, 12),
        "high": rounded(facts.ceiling, 12),
        "points": [
            {"x": _number(b), "low": _number(low), "high": _number(high), "price": _number(price)}
            for b, low, high, price in zip(
                facts.budgets, facts.lower, facts.upper, facts.prices, strict=True
            )
        ],
        "step": facts.step,
        "infeasible_until": _number(facts.infeasible_until),
        "free_from": _number(facts.free_from),
    }


def _row(record: RunRecord, proof: Certificate | None, name: str) -> dict[str, str]:
    gap = math.nan if proof is None else proof.relative_gap
    return {
        "run": name,
        "seed": "" if record.seed is None else str(record.seed),
        "status": status_words(record),
        "objective": number(record.objective),
        "violation": violation_words(record),
        "learning": _while_learning(record),
        "gap": f"{gap:.1e}" if math.isfinite(gap) else "-",
        "how": run_line(record.stats),
    }


def _while_learning(record: RunRecord) -> str:
    """The share of the policies played that violated a constraint."""
    share = share_violated(record.stats)
    return "-" if share is None else f"{share:.1%}"


def _name(record: RunRecord, group: str) -> str:
    parts = [group or record.title]
    if record.seed is not None:
        parts.append(f"seed {record.seed}")
    return ", ".join(parts)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
