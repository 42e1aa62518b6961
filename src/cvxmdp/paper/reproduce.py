"""The paper's experiment again: every run of its grids, the figures, one table, and a report to look at.

``studies`` says what is run, ``study_runs`` runs it, ``learning_curves`` averages, ``study_figures`` and
``study_tables`` show, ``verdicts`` judges. ``authors_study`` runs the program that made the published curves.
Everything is kept in one folder; called again, it goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cvxmdp.base.blocks import own_cores
from cvxmdp.base.machine import environment
from cvxmdp.base.storage import whole_file
from cvxmdp.paper.authors_study import (
    AuthorsCurves,
    agreement_table,
    authors_studies,
    run_authors_study,
)
from cvxmdp.paper.learning_curves import Curves, curves_of, protocols
from cvxmdp.paper.studies import COMPARED, NORMS, OURS, PAPER, Study, studies_of
from cvxmdp.paper.study_figures import draw_authors, draw_figure
from cvxmdp.paper.study_reports import WORDS, best_return, write_reports
from cvxmdp.paper.study_runs import read_study, run_studies
from cvxmdp.paper.study_tables import Table, main_table, markdown, samples_table, steps_table
from cvxmdp.paper.theorem_claims import theorem_claims
from cvxmdp.paper.verdicts import Claim, claims_of, claims_table
from cvxmdp.runs.record import RunRecord
from cvxmdp.runs.run_folder import locked


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction left.

    Attributes:
        folder: of everything.
        table: return and tracking error of every method at the checkpoints.
        claims: each claim of the paper, what was measured, and the verdict.
        figures, reports: files, the first the one to look at first.
        table_file: the tables as Markdown.
        runs: how many there are.
        seconds: since the call; runs that were there already take none.
    """

    folder: Path
    table: Table
    claims: tuple[Claim, ...]
    figures: tuple[Path, ...]
    reports: tuple[Path, ...]
    table_file: Path
    runs: int
    seconds: float


def reproduce(
    size: str,
    folder: str | Path,
    *,
    quick: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
    studies: Sequence[Study] | None = None,
) -> Reproduction:
    """Run the paper's experiment on one grid, or what is missing of it, and show what came out.

    Args:
        size: "8x8" or "20x20".
        folder: for runs, figures, tables and reports.
        quick: a short form: three runs of 2,000 iterations per method, half the squared distance only.
        workers: runs at a time; as many as there are cores by default.
        progress: show a progress line; by default on a terminal.
        studies: what to run instead of everything.
    """
    started, folder = time.perf_counter(), Path(folder)
    chosen = list(studies_of(size, quick=quick) if studies is None else studies)
    load = os.getloadavg()[0]
    with locked(folder):
        run_studies(chosen, folder, workers=workers or own_cores(), progress=progress)
        records = {study: read_study(study, folder) for study in chosen}
        found = {s: protocols(s, curves_of(s.method, many)) for s, many in records.items()}
        figures = _draw(size, folder, found)
        authors = [
            run_authors_study(study, folder / "authors")
            for study in authors_studies(size, quick=quick)
            if studies is None
        ]
        if authors:
            title, path = f"{size}, the authors' program again", folder / f"{size}-authors.png"
            figures.append(draw_authors(authors, path, title))
        claims = claims_of(found, authors) + (theorem_claims() if studies is None else [])
        reports = write_reports(size, folder, records, found, claims)
        seconds = time.perf_counter() - started
        table = main_table(found)
        runs = sum(map(len, records.values()))
        page = _page(size, quick, found, records, seconds, load)
        page += _verdicts(authors, claims)
        with whole_file(folder / "table.md") as temporary:
            temporary.write_text(page, "utf-8")
    return Reproduction(
        folder,
        table,
        tuple(claims),
        tuple(figures),
        tuple(reports),
        folder / "table.md",
        runs,
        seconds,
    )


def _draw(size: str, folder: Path, found: dict[Study, list[Curves]]) -> list[Path]:
    """The recommended settings and the printed grid, for each distance."""
    figures = []
    for norm in NORMS:
        for part, name in ((OURS, "recommended"), (PAPER, "grid")):
            mine = {s: c for s, c in found.items() if (s.norm, s.part) == (norm, part)}
            if mine:
                title, path = f"{size}, {part}, {WORDS[norm]}", folder / f"{size}-{norm}-{name}.png"
                figures.append(draw_figure(mine, path, title, best_return=best_return(size)))
    return figures


def _page(
    size: str,
    quick: bool,
    found: dict[Study, list[Curves]],
    records: dict[Study, list[RunRecord]],
    seconds: float,
    load: float,
) -> str:
    """The tables with what they were made by."""
    machine = environment()
    every = [record for many in records.values() for record in many]
    spent = sum(float(record.stats.get("seconds", 0.0)) for record in every)
    parts = [
        f"# cvxmdp reproduce {size}{' --quick' if quick else ''}",
        f"{len(every)} runs, {spent:.0f} s in them together; this call took {seconds:.0f} s. "
        f"{machine.get('processor', '')}, {machine.get('cores', '?')} cores, load {load:.1f} at the start, "
        f"JAX {machine.get('jax', '?')}.",
        "Return / tracking error, means over the runs of the last 250 episodes up to the iteration (± half of "
        "the 95% interval of the mean); samples and time per run.",
        markdown(main_table(found)),
    ]
    if any(study.part == PAPER for study in found):
        parts += [
            "## Avg: the same number of iterations, the same number of episodes",
            "After 100 iterations Avg has seen as many episodes as the others after 10,000.",
            markdown(samples_table(found)),
        ]
    if any(study.part == COMPARED for study in found):
        parts += [
            "## Momentum at the same steps",
            "A table of logits, half the squared distance at most 0.01: mean return of all episodes (how "
            "fast), then return / tracking error of the last 250.",
            markdown(steps_table(found)),
        ]
    return "\n\n".join(parts) + "\n"


def _verdicts(authors: Sequence[AuthorsCurves], claims: Sequence[Claim]) -> str:
    parts = []
    if authors:
        parts += [
            "## The program behind the published curves",
            "Return / tracking error of the last 250 episodes: published mean ± standard deviation over its "
            "runs; the program again, median and range over seeds; the share of windows in which our median "
            "lies in their band, and in which their mean lies within our range.",
            markdown(agreement_table(authors)),
        ]
    parts += ["## Claims, measurements, verdicts", markdown(claims_table(claims))]
    return "\n" + "\n\n".join(parts) + "\n"
