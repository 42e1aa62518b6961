"""The reports of a reproduction: recommended runs first; what the printed settings do is a finding below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cvxmdp.paper.learning_curves import Found
from cvxmdp.paper.studies import COMPARED, HORIZON, MEMORY, NORMS, OURS, PAPER, Study
from cvxmdp.paper.study_tables import main_table
from cvxmdp.paper.verdicts import Claim
from cvxmdp.reports.html_data import Chapter
from cvxmdp.reports.html_page import write_report
from cvxmdp.runs.record import RunRecord

WORDS = {"half-squared": "half the squared distance", "l2": "the distance"}
Records = Mapping[Study, Sequence[RunRecord]]


def best_return(size: str) -> float:
    """Of an episode on the shortest way: -0.2 for all steps but the last, which pays 100."""
    return 100.0 - 0.2 * (HORIZON[size] - 1)


def write_reports(
    size: str, folder: Path, records: Records, found: Found, claims: Sequence[Claim]
) -> list[Path]:
    """For each distance a page that leads with the recommended runs, and one of all the others."""
    written = []
    for norm in NORMS:
        mine = {s: r for s, r in records.items() if s.norm == norm and s.part != COMPARED}
        lead = [s for s in mine if s.part == OURS and s.method.startswith(MEMORY)]
        others = [study for study in mine if study not in lead]
        findings = _findings(found, others, claims if norm == NORMS[0] else ())
        for studies, name, title, told in (
            (lead, "", _success(size, norm, found, lead), findings),
            (
                others,
                "-others",
                f"{size} tracking, {WORDS[norm]}: printed settings and baselines",
                (),
            ),
        ):
            runs = [record for study in studies for record in mine[study]]
            if runs:
                path = folder / f"report-{size}-{norm}{name}.html"
                written.append(write_report(runs, path, title=title, findings=told))
    return written


def _success(size: str, norm: str, found: Found, lead: Sequence[Study]) -> str:
    """How many of the recommended runs end at the best possible return."""
    best, reached, count = best_return(size), 0, 0
    for study in lead:
        curves = found[study][-1]
        ends = curves.after(curves.end)[0]
        reached, count = reached + int((ends > best - 0.05).sum()), count + len(ends)
    what = f"{size} tracking, {WORDS[norm]}"
    return f"{what}: {reached} of {count} runs end at the best possible return, {best:g}"


def _findings(found: Found, others: Sequence[Study], claims: Sequence[Claim]) -> list[Chapter]:
    """What the printed settings and the baselines do, and what that says about the paper's claims."""
    if not others:
        return []
    header, rows = main_table({study: found[study] for study in others})
    printed = any(study.part == PAPER for study in others)
    sentences = (
        "The same algorithm with the steps that the paper prints, and its baselines: return / tracking error "
        "of the last 250 episodes after so many iterations.",
        "Steps of a fixed length and a small momentum point the same way again and again: the softmax is "
        "driven into a corner before it has explored, and stays there. The runs above differ in numbers only.",
    )
    told = [
        Chapter(
            "A finding: the settings that the paper prints" if printed else "Beside it",
            sentences if printed else (),
            tuple(header),
            tuple(tuple(row) for row in rows),
        )
    ]
    if claims:
        verdicts = tuple((one.claim, one.measured, one.verdict) for one in claims)
        told.append(Chapter("The paper's claims", (), ("claim", "measured", "verdict"), verdicts))
    return told
