"""The report: one HTML file with everything in it. It needs no network, and it lets nothing in.

The data is a JSON document inside the page, the pictures are SVG drawn by a small script (``page/report.js``),
in light and dark, for a phone and for a wide screen. Texts from files reach the page as text only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from cvxmdp.base.errors import CvxmdpError
from cvxmdp.base.storage import whole_file
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.problems.solution import Solution
from cvxmdp.reports.html_comparison import beside_baseline, from_episodes
from cvxmdp.reports.html_data import Chapter, report_data
from cvxmdp.runs.frontier import Frontier
from cvxmdp.runs.record import RunRecord, record_of
from cvxmdp.runs.record_text import record_text
from cvxmdp.runs.sweep_records import sweep_records
from cvxmdp.runs.sweep_results import Sweep

# The page may run its own script and style, and load nothing from anywhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def report(
    what: Solution
    | RunRecord
    | Sweep
    | Iterable[Solution | RunRecord]
    | Mapping[str, Solution | RunRecord],
    path: str | Path,
    *,
    title: str = "",
    certificate: Certificate | None = None,
    frontier: Frontier | None = None,
    solver: Any = None,
    baseline: Any = None,
    evaluations: PolicyEvaluation | Mapping[str, PolicyEvaluation] | None = None,
) -> Path:
    """Write a report: one self-contained HTML page about a solution, or about several.

    Args:
        what: a solution; several of them; solutions by label; or a sweep. Records of a store work too.
        path: the HTML file to write.
        title: of the page.
        certificate, frontier, solver: of a single solution, to be shown with it.
        baseline: today's policy, of a single solution of a model: a column beside the answer.
        evaluations: what ``evaluate`` gave, one or several by title: shown with their intervals.

    Returns:
        The path.
    """
    given = _labelled(what)
    if not given:
        raise CvxmdpError("there is nothing to report: give a solution, or several")
    extras = {"certificate": certificate, "frontier": frontier, "solver": solver}
    if len(given) > 1 and any(extra is not None for extra in extras.values()):
        raise CvxmdpError(
            "certificate=, frontier= and solver= go with a single solution; for several make records with "
            "cvxmdp.runs.record.record_of(solution, certificate=..., label=...)"
        )
    records = [
        one if isinstance(one, RunRecord) else record_of(one, label=label, title=title, **extras)
        for label, one in given
    ]
    findings = []
    if baseline is not None:
        alone = given[0][1]
        if len(given) > 1 or not isinstance(alone, Solution):
            raise CvxmdpError("baseline= goes with a single solution, which has its problem")
        findings.append(beside_baseline(alone, baseline))
    findings += [] if evaluations is None else from_episodes(evaluations)
    return write_report(records, path, title=title, findings=findings)


def _labelled(what: Any) -> list[tuple[str, Any]]:
    if isinstance(what, Solution | RunRecord):
        return [("", what)]
    if isinstance(what, Sweep):
        what = sweep_records(what)
    if isinstance(what, Mapping):
        pairs = [(str(label), one) for label, one in what.items()]
    elif isinstance(what, str | Path):
        raise CvxmdpError(
            f"a report is made of solutions; got a path: load_solution({str(what)!r}) reads one; "
            f"the command cvxmdp report {what} makes a page of all runs there"
        )
    elif isinstance(what, Iterable):
        pairs = [("", one) for one in what]
    else:
        raise CvxmdpError(f"a report is made of solutions; got {what!r}")
    for _, one in pairs:
        if not isinstance(one, Solution | RunRecord):
            raise CvxmdpError(f"a report is made of solutions; got {one!r}")
    return pairs


def write_report(
    records: Iterable[RunRecord],
    path: str | Path,
    *,
    title: str = "",
    findings: Sequence[Chapter] = (),
) -> Path:
    """Write the page of these runs, whole or not at all; findings are told below what they show."""
    path = Path(path)
    page = report_page(list(records), title, findings)
    with whole_file(path) as temporary:
        temporary.write_text(page, "utf-8", errors="backslashreplace")
    return path


def report_page(records: list[RunRecord], title: str = "", findings: Sequence[Chapter] = ()) -> str:
    """The page as text."""
    data = report_data(records, title, findings)
    # Inside a script element only "<" could end it; as an escape it is the same JSON.
    document = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    plain = "\n\n".join(f"{record.title}\n{record_text(record)}" for record in records)
    parts = files("cvxmdp.reports").joinpath("page")
    style = parts.joinpath("report.css").read_text("utf-8")
    script = parts.joinpath("report.js").read_text("utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="cvxmdp {escape(data["version"])}">
<link rel="icon" href="data:,">
<title>{escape(data["title"])}</title>
<style>
{style}</style>
</head>
<body>
<noscript><pre>{escape(plain)}</pre></noscript>
<main id="report"></main>
<script id="data" type="application/json">{document}</script>
<script>
{script}</script>
</body>
</html>
"""
