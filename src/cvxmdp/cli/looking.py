"""``cvxmdp show``, ``report`` and ``export``: looking at runs, and taking policies elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.table_files import WRITERS
from cvxmdp.base.text_tables import number, printable
from cvxmdp.cli.outcome import Exit, note, out, say, say_json
from cvxmdp.cli.policy_arguments import known_columns, read_policy, write_policy
from cvxmdp.policies.tables import table_of
from cvxmdp.reports.html_page import write_report
from cvxmdp.runs.record import RunRecord
from cvxmdp.runs.record_text import record_json, record_text, status_words, violation_words
from cvxmdp.runs.run_folder import RunState, find_runs, read_run, state_of

LONGEST_LABEL = 40  # of what is different about a run, in one line
WIDEST_GRID = 40  # columns of a grid that is drawn in the terminal


def readable(runs: list[Path]) -> tuple[list[tuple[Path, RunRecord]], list[tuple[Path, str, bool]]]:
    """The runs that can be read, and the others: why not, and whether something is wrong with them."""
    found, others = [], []
    for folder in find_runs(runs):
        try:
            state = state_of(folder)
            if state is RunState.COMPLETE:
                found.append((folder, read_run(folder)))
            else:
                others.append((folder, state.value, False))
        except FileFormatError as error:
            others.append((folder, str(error), True))
    return found, others


def show_runs(runs: list[Path], as_json: bool) -> Exit:
    """See ``cvxmdp show --help``."""
    found, others = readable(runs)
    damaged = any(wrong for _, _, wrong in others)
    code = Exit.BAD_INPUT if damaged else Exit.OK
    if as_json:
        listed: list[dict[str, Any]] = [
            {"run": str(folder), "state": "complete", **record_json(record)}
            for folder, record in found
        ]
        for folder, reason, wrong in others:
            state = "damaged" if wrong else "unfinished"
            listed.append({"run": str(folder), "state": state, "message": reason})
        say_json({"runs": listed, "exit_code": int(code)})
        return code
    if len(found) == 1 and not others:
        say(_in_full(found[0][1]))
        return code
    out.print(_table(found, others))
    return code


def _in_full(record: RunRecord) -> str:
    parts = [f"{record.title}\n{'=' * len(record.title)}\n{record_text(record)}"]
    layout, moves = record.layout, record.arrays.get("probabilities")
    if layout is not None and layout.columns <= WIDEST_GRID and moves is not None:
        drawn = layout.render(moves, record.action_names)
        parts.append(f"The likeliest moves\n-------------------\n{drawn}")
    return "\n\n".join(parts)


def _table(found: list[tuple[Path, RunRecord]], others: list[tuple[Path, str, bool]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    table.add_column("problem", overflow="ellipsis", no_wrap=True)
    table.add_column("solver", no_wrap=True)
    # Of sweeps: what is different about a run.
    labels = max((len(record.label) for _, record in found), default=0)
    if labels:
        table.add_column("settings", overflow="fold", min_width=min(labels, LONGEST_LABEL))
    for column in ("seed", "objective", "violation", "gap", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("status", overflow="fold")
    for folder, record in found:
        gap = (record_json(record)["certificate"] or {}).get("relative_gap")
        seconds = record.stats.get("seconds")
        cells = [
            str(folder),
            record.title,
            record.settings.get("solver", str(record.stats.get("solver", ""))),
            *([record.label] if labels else []),
            "" if record.seed is None else str(record.seed),
            number(record.objective),
            violation_words(record),
            "" if gap is None or math.isnan(gap) else f"{gap:.1e}",
            "" if seconds is None else f"{seconds:.2g} s",
            status_words(record),
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    for folder, reason, wrong in others:
        style = "red" if wrong else "yellow"
        said = Text(printable(reason), style=style)
        table.add_row(Text(printable(str(folder))), *([""] * (8 if labels else 7)), said)
    return table


def make_report(runs: list[Path], file: Path, title: str | None, as_json: bool) -> Exit:
    """See ``cvxmdp report --help``."""
    found, others = readable(runs)
    for folder, reason, _ in others:
        note(f"left out {folder}: {reason}")
    if not found:
        raise FileFormatError("there is no complete run to report")
    write_report([record for _, record in found], file, title=title or "")
    code = Exit.BAD_INPUT if any(wrong for _, _, wrong in others) else Exit.OK
    if as_json:
        listed = [str(folder) for folder, _ in found]
        left_out = [str(folder) for folder, _, _ in others]
        document = {"report": str(file), "runs": listed, "left_out": left_out}
        say_json({**document, "exit_code": int(code)})
    else:
        runs_word = "run" if len(found) == 1 else "runs"
        say(
            f"{file} ({file.stat().st_size / 1024:.0f} kB, {len(found)} {runs_word}): open it in a browser."
        )
    return code


def export_policy(policy: str, file: Path, as_json: bool) -> Exit:
    """See ``cvxmdp export --help``."""
    given = read_policy(policy)
    write_policy(given, file, known_columns(policy) if file.suffix in WRITERS else None)
    table = table_of(given)
    if as_json:
        shape = None if table is None else list(table.shape)
        names = getattr(getattr(given, "table", given), "action_names", None)
        say_json({"file": str(file), "shape": shape, "actions": names, "exit_code": 0})
    else:
        what = "a network" if table is None else f"{given.n_states:,} states"
        say(f"{file}: {what}, {given.n_actions} actions.")
    return Exit.OK
