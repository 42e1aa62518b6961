"""``cvxmdp reproduce``: the paper's experiment from one command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cvxmdp.base.errors import FileFormatError, did_you_mean
from cvxmdp.base.text_tables import text_table
from cvxmdp.cli.outcome import Exit, note, say, say_json
from cvxmdp.paper.reproduce import Reproduction, reproduce
from cvxmdp.paper.studies import GRIDS
from cvxmdp.runs.interruption import last_words

ALL = "all"


def reproduce_paper(
    which: str, out: Path | None, quick: bool, workers: int | None, as_json: bool
) -> Exit:
    """Reproduce a grid, or both; see ``cvxmdp reproduce --help``."""
    if which not in (*GRIDS, ALL):
        raise FileFormatError(
            f"there is no experiment {which!r}. {did_you_mean(which, (*GRIDS, ALL))}"
        )
    folder = out or Path("runs") / ("reproduce-quick" if quick else "reproduce")
    documents = []
    for size in GRIDS if which == ALL else (which,):
        kept = (
            f"Runs that were made are kept in {folder / size}; the same command goes on from there."
        )
        try:
            with last_words(f"{kept}\n"):
                found = reproduce(size, folder / size, quick=quick, workers=workers)
        except KeyboardInterrupt:
            note(kept)
            raise
        documents.append(_document(size, found))
        if not as_json:
            _show(size, found)
    if as_json:
        say_json({"experiments": documents, "exit_code": 0})
    return Exit.OK


def _show(size: str, found: Reproduction) -> None:
    header, rows = found.table
    say(f"{size}: return / tracking error after so many iterations, {found.runs} runs\n")
    say("\n".join(text_table(header, rows)))
    for claim in found.claims:
        say(f"\n{claim.claim}\n  measured: {claim.measured}\n  verdict:  {claim.verdict}")
    pictures = ", ".join(path.name for path in found.figures)
    note(f"\nIn {found.folder}: {found.table_file.name}, {pictures}.")
    say(f"\n{found.seconds:.0f} s. The report: {found.reports[0]}")


def _document(size: str, found: Reproduction) -> dict[str, Any]:
    header, rows = found.table
    return {
        "experiment": size,
        "folder": str(found.folder),
        "runs": found.runs,
        "seconds": found.seconds,
        "table": [dict(zip(header, row, strict=True)) for row in rows],
        "claims": [asdict(claim) for claim in found.claims],
        "figures": [str(path) for path in found.figures],
        "reports": [str(path) for path in found.reports],
        "table_file": str(found.table_file),
    }
