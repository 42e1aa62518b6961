"""Learning curves for the report: histories thinned, averaged over seeds, and sorted into panels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cvxmdp.runs.record import RunRecord, Series

LINEAR_BINS, LOG_BINS = 150, 75  # both, so that a curve is fine on either axis
MOST_POINTS = 400
QUANTILE = 0.975  # each side of the 95% band


@dataclass(frozen=True)
class Panel:
    """Where a curve is drawn and what it is called there."""

    title: str
    curve: str
    explanation: str


EXACT, ESTIMATED = "exact, of the policy", "estimated, of the policy"
WORTH = "What the policy of each iteration is worth"
KNOWN = {
    "objective": Panel("Objective", EXACT, f"{WORTH}, computed exactly."),
    "episode_objective": Panel("Objective", "seen in episodes", ""),
    "played_objective": Panel("Objective", "of the policies played", ""),
    "upper": Panel(
        "Proven bounds", "upper", "What is proven at each iteration: the optimum lies between."
    ),
    "lower": Panel("Proven bounds", "lower", ""),
    "columns": Panel("Columns", "kept", "Occupancies that are mixed."),
    "gradient_norm": Panel(
        "Norm of the gradient", "gradient", "How strongly the method is pulled."
    ),
    "primal_step": Panel("Step size", "primal step", "The length of each step in the parameters."),
    "weight_mean": Panel("Importance weights", "mean", "Near 1 while the policy changes slowly."),
    "weight_max": Panel("Importance weights", "largest", ""),
    "effective_sample_size": Panel(
        "Effective sample size",
        "of the batch",
        "In episodes: as many as the batch has when all weights are equal.",
    ),
    "policy_entropy": Panel(
        "Entropy of the policy",
        "mean over states",
        "Near zero once the policy has made up its mind.",
    ),
    "episode_return": Panel(
        "Return of episodes", "undiscounted", "The plain sum of the reward in the sampled episodes."
    ),
    "episode_length": Panel("Length of episodes", "steps", "Mean number of steps per episode."),
    "tracking_error": Panel(
        "Tracking error",
        "of single episodes",
        "Half the squared distance of single episodes to the expert; its mean is larger than the distance of "
        "the policy (Jensen).",
    ),
}
PER_CONSTRAINT = {
    "slack": EXACT,
    "episode_slack": "seen in episodes",
    "recursive_slack": "recursive estimate",
    "played_slack": "of the policies played",
}


def panel_of(name: str, estimated: bool = False) -> Panel:
    """The panel of a series; names nobody foresaw get one of their own.

    Args:
        name: of the series.
        estimated: whether the policy was measured in episodes of an environment, not computed.
    """
    panel = _panel_of(name)
    if not estimated or panel.curve != EXACT:
        return panel
    words = f"{WORTH}, as episodes show it." if panel.title == "Objective" else panel.explanation
    return replace(panel, curve=ESTIMATED, explanation=words)


def _panel_of(name: str) -> Panel:
    kind, _, constraint = name.partition("/")
    if constraint and kind in PER_CONSTRAINT:
        text = "At least zero where the constraint holds." if kind == "slack" else ""
        return Panel(f"Slack of {constraint}", PER_CONSTRAINT[kind], text)
    if constraint and kind == "tracking_error":
        return Panel("Tracking error", constraint, KNOWN[kind].explanation)
    if constraint and kind == "multipliers":
        return Panel(
            "Multipliers",
            constraint,
            "What a unit of slack in each constraint is worth: the dual variables.",
        )
    if name in KNOWN:
        return KNOWN[name]
    words = kind.replace("_", " ").capitalize()
    return Panel(words, constraint or words.lower(), "")


def groups_of(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs by what tells them apart. Those of a group differ in their seeds only, and are averaged."""
    facts = [_facts(record) for record in records]
    varied = [
        name for name in dict.fromkeys(key for f in facts for key in f) if _varies(name, facts)
    ]
    groups: dict[str, list[RunRecord]] = {}
    for record, known in zip(records, facts, strict=True):
        parts = [
            known[name] if name in ("title", "label", "solver") else f"{name}={known[name]}"
            for name in varied
            if known.get(name)
        ]
        groups.setdefault(", ".join(parts) or known["label"] or known["solver"], []).append(record)
    return groups


def _facts(record: RunRecord) -> dict[str, str]:
    solver = record.settings.get("solver") or str(record.stats.get("solver", ""))
    known = {"title": record.title, "label": record.label, "solver": solver}
    if record.label:
        return known  # whoever gave the label has named the differences
    known |= {f"budget/{facts.name}": f"{facts.budget:g}" for facts in record.constraints}
    return {**known, **{key: value for key, value in record.settings.items() if key != "solver"}}


def _varies(name: str, facts: Sequence[dict[str, str]]) -> bool:
    """Whether a fact tells runs apart that could be confused without it; settings only within a solver."""
    if name in ("title", "label", "solver"):
        return len({known.get(name) for known in facts}) > 1
    by_solver: dict[str, set[str | None]] = {}
    for known in facts:
        by_solver.setdefault(known["solver"], set()).add(known.get(name))
    return any(len(values) > 1 for values in by_solver.values())


def panels(
    groups: dict[str, list[RunRecord]], bounds: Sequence[tuple[str, float]]
) -> list[dict[str, Any]]:
    """Every panel with its curves; ``bounds`` are lines of the objective's panel: what is proven."""
    found: dict[str, dict[str, Any]] = {}
    for index, (group, records) in enumerate(groups.items()):
        names = dict.fromkeys(name for record in records for name in record.series)
        for name in names:
            panel = panel_of(name, any(record.estimated for record in records))
            empty: dict[str, Any] = {"explanation": "", "curves": [], "lines": []}
            entry = found.setdefault(panel.title, {"title": panel.title, **empty})
            entry["explanation"] = entry["explanation"] or panel.explanation
            curve = averaged([r.series[name] for r in records if name in r.series])
            label = f"{group}: {panel.curve}" if len(groups) > 1 else panel.curve
            entry["curves"].append({"label": label, "group": index, "kind": panel.curve, **curve})
    for title, entry in found.items():
        if title == "Objective":
            entry["lines"] = [{"label": label, "y": y} for label, y in bounds if math.isfinite(y)]
        elif title.startswith("Slack of "):
            entry["lines"] = [{"label": "holds above", "y": 0.0}]
        kinds = dict.fromkeys(curve["kind"] for curve in entry["curves"])
        for curve in entry["curves"]:
            curve["style"] = list(kinds).index(curve["kind"])
    order = {"Objective": 0, "Proven": 0, "Slack": 1, "Tracking": 2, "Multipliers": 3}
    return sorted(found.values(), key=lambda entry: order.get(entry["title"].split()[0], 9))


def averaged(series: Sequence[Series]) -> dict[str, Any]:
    """The mean over the runs at thinned iterations, and its 95% confidence band."""
    x, columns, per_point = _common(series)
    with np.errstate(invalid="ignore"):
        count = np.isfinite(columns).sum(axis=0)
        mean = np.where(count > 0, np.nansum(columns, axis=0) / np.maximum(count, 1), np.nan)
    curve: dict[str, Any] = {"x": rounded(x), "y": rounded(mean)}
    curve |= {"runs": len(series), "each": per_point}
    if len(series) > 1:
        spread = np.nansum((columns - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
        error = np.sqrt(spread / np.maximum(count, 1))
        half = stdtrit(np.maximum(count - 1, 1), QUANTILE) * error
        half = np.where(count > 1, half, np.nan)
        curve["low"], curve["high"] = rounded(mean - half), rounded(mean + half)
    return curve


def _common(series: Sequence[Series]) -> tuple[np.ndarray, np.ndarray, int]:
    """Common iterations, one row of values per run, and how many iterations a point stands for."""
    first = series[0].iterations
    equal = all(np.array_equal(one.iterations, first) for one in series)
    if equal and first.size <= MOST_POINTS:
        return first.astype(float), np.array([finite(one.values) for one in series]), 1
    last = max(1, *(int(one.iterations.max(initial=1)) for one in series))
    # Bins (e_k, e_k+1]; the first holds iteration 0.
    spaced = np.concatenate(
        [np.linspace(0, last, LINEAR_BINS + 1), np.geomspace(1, last, LOG_BINS)]
    )
    edges = np.unique(np.append(spaced.astype(int), -1))
    rows, places, counts = [], np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    for one in series:
        values = finite(one.values)
        there = np.isfinite(values)
        at = np.searchsorted(edges, one.iterations[there], side="left") - 1
        hits = np.bincount(at, minlength=edges.size - 1)
        total = np.bincount(at, weights=values[there], minlength=edges.size - 1)
        rows.append(np.where(hits > 0, total / np.maximum(hits, 1), np.nan))
        places += np.bincount(at, weights=one.iterations[there], minlength=edges.size - 1)
        counts += hits
    kept = counts > 0
    per_point = max(1, round(float(np.median(counts[kept])) / len(series))) if kept.any() else 1
    return places[kept] / counts[kept], np.array(rows)[:, kept], per_point


def finite(values: np.ndarray) -> np.ndarray:
    """Infinite values cannot be drawn or averaged: they become gaps."""
    return np.where(np.isfinite(values), values, np.nan)


def rounded(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Six digits are more than a screen shows; what is not finite becomes a gap."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
