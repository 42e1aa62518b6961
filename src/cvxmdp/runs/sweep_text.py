"""Sweeps as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cvxmdp.base.text_tables import number, text_table

if TYPE_CHECKING:
    from cvxmdp.runs.sweep_results import Sweep

SHOWN = (
    "objective",
    "slack/",
    "multiplier/",
    "learning_violated",
    "episode_return",
    "tracking_error/",
)
MOST_ROWS = 40


def sweep_text(sweep: Sweep) -> str:
    """One line per combination of settings: means over seeds with 95% intervals."""
    if not sweep.runs:
        return "0 runs: there are fewer sets of runs than parts of the sweep"
    summary, axes = sweep.summary(), list(sweep.axes)
    columns = [name for name in summary[0] if name.startswith(SHOWN)]
    rows = [
        [
            *(
                number(row[name]) if isinstance(row[name], float) else str(row[name])
                for name in axes
            ),
            str(row["runs"]),
            *(str(row[name]) for name in columns),
        ]
        for row in summary[:MOST_ROWS]
    ]
    lines = text_table([*axes, "runs", *columns], rows)
    if len(summary) > MOST_ROWS:
        lines.append(f"... and {len(summary) - MOST_ROWS} more: summary() has them all")
    head = f"{len(sweep):,} runs"
    if sweep.programs:
        head += f", {sweep.programs} compiled program{'s' if sweep.programs != 1 else ''}"
    if any(row["runs"] > 1 for row in summary):
        head += "; mean over seeds ± half of the 95% interval"
    if sweep.interrupted:
        head += "; interrupted: repeat the call to go on"
    machines = sweep.machines
    if len(machines) > 1:
        head += f"; on machines of {len(machines)} kinds, between which bits differ: {'; '.join(machines)}"
    return "\n".join([head, "", *lines])
