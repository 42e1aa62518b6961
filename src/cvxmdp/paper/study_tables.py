"""The tables of the reproduction: what every method reaches and when, beside what was published."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvxmdp.paper.learning_curves import Curves, Found, after
from cvxmdp.paper.published import VARIANCE_REDUCED, published_curves
from cvxmdp.paper.studies import AVERAGED, COMPARED, PAPER, STEPS

AT = (1_000, 2_000, 5_000, 10_000)
WORDS = {"half-squared": "half squared", "l2": "norm"}
Table = tuple[list[str], list[list[str]]]


def main_table(found: Found) -> Table:
    """One row per study: return / tracking error at each checkpoint, samples and time of a run."""
    shown = [at for at in AT if any(c.reaches(at) for many in found.values() for c in many)]
    header = ["instance", "method", "constraint", "runs", *(f"{at:,}" for at in shown)]
    rows: list[list[str]] = []
    said: set[str] = set()
    for study, many in found.items():
        if study.part == COMPARED:
            continue
        if study.instance not in said:
            rows += _published_rows(study.instance, shown)
            said.add(study.instance)
        prefix = "grid: " if study.part == PAPER else "ours: "
        for curves in many:
            cells = [_cell(curves, at) if curves.reaches(at) else "" for at in shown]
            what = [study.instance, prefix + curves.label, WORDS[study.norm], str(len(curves))]
            samples = _thousands(float(curves.samples.mean()))
            rows.append([*what, *cells, samples, f"{float(np.median(curves.seconds)):.2g} s"])
    return [*header, "samples", "time"], rows


def _published_rows(instance: str, shown: Sequence[int]) -> list[list[str]]:
    rows = []
    for algorithm, curve in published_curves(instance).items():
        name = "VR-PDPG" if algorithm == VARIANCE_REDUCED else "momentum 1"
        cells = ["{:.1f} / {:.3f}".format(*curve.at(at)) for at in shown]
        rows.append(
            [instance, f"published: {name}", "half squared", str(curve.runs), *cells, "", ""]
        )
    return rows


def _cell(curves: Curves, at: int) -> str:
    returns, errors = after(curves, at)
    return f"{returns.words(1)} / {errors.value:.3f}"


def _thousands(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k"


def steps_table(found: Found) -> Table:
    """Momenta at the same steps: the return over all episodes (how fast), and at the end (how far)."""
    header = ["instance", "step"]
    momenta = sorted({float(s.solver.momentum or 0) for s in found if s.part == COMPARED})
    for momentum in momenta:
        header += [f"momentum {momentum:g}: all episodes", "at the end"]
    rows = []
    for instance in dict.fromkeys(study.instance for study in found):
        for step in STEPS:
            cells: list[str] = []
            for momentum in momenta:
                for study, (curves, *_) in found.items():
                    mine = (study.part, study.instance, study.solver.primal_step)
                    if mine == (COMPARED, instance, step) and study.solver.momentum == momentum:
                        whole = curves.after(curves.end, curves.end)[0]
                        last = after(curves, curves.end)
                        cells += [
                            f"{whole.mean():.1f}",
                            f"{last[0].value:.1f} / {last[1].value:.3f}",
                        ]
            if cells:
                rows.append([instance, f"{step:g}", *cells])
    return header, rows


def samples_table(found: Found) -> Table:
    """Avg beside the others after the same number of iterations, and of episodes."""
    header = ["instance", "method", "constraint", "runs", "100 iterations", "at the end"]
    rows = []
    for study, many in found.items():
        if study.part != PAPER:
            continue
        curves = many[-1]
        averaging = (study.solver.batch_size or 1) > 1
        # After 100 iterations Avg has seen as many episodes as the others after 10,000.
        early = curves.after(AVERAGED, 25)
        cells = [f"{early[0].mean():.1f} / {early[1].mean():.3f}" if averaging else ""]
        cells.append(_cell(curves, curves.end))
        rows.append([study.instance, curves.label, WORDS[study.norm], str(len(curves)), *cells])
    return header, rows


def markdown(table: Table) -> str:
    """A table for a page."""
    header, rows = table
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
