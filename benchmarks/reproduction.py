"""What docs/results/experiments.md says beyond the tables of ``cvxmdp reproduce``.

    python benchmarks/reproduction.py counts    # how single runs end, from those kept in out/reproduce
    python benchmarks/reproduction.py box       # momenta on 20x20, multipliers in wider boxes; three minutes

Counts: runs at the best possible return, runs that never reach the goal, and when policies become
deterministic; Avg after as many episodes as the others. A policy is deterministic from the recorded iteration
on at which its entropy, a mean over the steps of an episode, goes below 0.05 for good. Every fifth episode is
recorded.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Before NumPy is loaded: threads inside small solves would only fight with the runs'.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning
from cvxmdp.paper.learning_curves import Curves, curves_of
from cvxmdp.paper.studies import (
    AVERAGED,
    COMPARED,
    GRIDS,
    Study,
    recommended,
    studies_of,
)
from cvxmdp.paper.study_reports import best_return
from cvxmdp.paper.study_runs import read_study
from cvxmdp.runs.record import RunRecord
from cvxmdp.runs.sweep_results import interval
from hardware import hardware

ROUNDING = 0.05
OFF = 0.01  # a tracking error that says: off the expert's way
DETERMINISTIC = 0.05  # nats a step
WINDOW = 50  # recorded episodes: those of the last 250
MULTIPLIER = "multipliers/near the expert"
BOXES = (100.0, 1_000.0, 10_000.0)
STEPS = (0.1, 0.3, 1.0, 3.0)
MOMENTA = (0.3, 1.0)


@dataclass(frozen=True)
class Ends:
    """How the runs of a study end, one number a run.

    Attributes:
        returns, errors: means over the last 250 episodes.
        arrivals: share of these episodes that reach the goal.
        ever: share of all recorded episodes that reach the goal.
        settled: the iteration from which on the policy is deterministic; infinite where it is not.
        at_bound: whether the multiplier is within a hundredth of its bound.
    """

    returns: np.ndarray
    errors: np.ndarray
    arrivals: np.ndarray
    ever: np.ndarray
    settled: np.ndarray
    at_bound: np.ndarray


def ends_of(study: Study, curves: Curves, records: list[RunRecord]) -> Ends:
    """What the recorded curves say."""
    returns, errors = curves.after(curves.end)
    # After one wasted step the goal is not reached, and returns are negative.
    reached = curves.returns > 0
    entropies = np.stack([record.series["policy_entropy"].values for record in records])
    last = np.array([record.series[MULTIPLIER].values[-WINDOW:].mean() for record in records])
    return Ends(
        returns,
        errors,
        reached[:, -WINDOW:].mean(axis=1),
        reached.mean(axis=1),
        np.array([settled(curves.at, row) for row in entropies]),
        last > 0.99 * float(np.max(study.solver.dual_bound)),
    )


def settled(at: np.ndarray, entropies: np.ndarray) -> float:
    """The first recorded iteration after the last one with an entropy that is not small."""
    moving = np.flatnonzero(entropies >= DETERMINISTIC)
    first = 0 if moving.size == 0 else int(moving[-1]) + 1
    return float(at[first]) if first < at.size else np.inf


def counts(folder: Path) -> None:
    """One row per study of the paper's grid and of the recommended settings."""
    print(
        "| instance | method | constraint | runs | best return | never at the goal, last 250 | never at all | "
        "error above 0.01 | these errors | not at the best return, multiplier at its bound | their arrivals | "
        f"deterministic from | not deterministic |\n|{' --- |' * 13}"
    )
    early = []
    for study in itertools.chain.from_iterable(studies_of(size) for size in GRIDS):
        if study.part == COMPARED:
            continue
        records = read_study(study, folder / study.size)
        curves = curves_of(study.method, records)
        print(_row(study, ends_of(study, curves, records)), flush=True)
        if study.solver.batch_size > 1:
            early.append(_early(study, curves))
    print(f"\nAvg after {AVERAGED} iterations, means of the last 25:\n\n" + "\n".join(early))


def _row(study: Study, ends: Ends) -> str:
    short = ends.returns < best_return(study.size) - ROUNDING
    bound = short & ends.at_bound
    off = ends.errors[ends.errors > OFF]
    still = ends.settled[np.isfinite(ends.settled)]
    cells = [
        f"{(~short).sum()}",
        f"{(ends.arrivals == 0).sum()}",
        f"{(ends.ever == 0).sum()}",
        f"{off.size}",
        _range(off, 3),
        f"{bound.sum()} of {short.sum()}",
        _range(ends.arrivals[bound], 2),
        _range(still, 0) + (f", median {np.median(still):.0f}" if still.size else ""),
        f"{len(ends.settled) - still.size}",
    ]
    words = [study.instance, study.method, study.norm, str(len(ends.returns)), *cells]
    return f"| {' | '.join(words)} |"


def _range(values: np.ndarray, digits: int) -> str:
    return f"{values.min():.{digits}f} to {values.max():.{digits}f}" if values.size else ""


def _early(study: Study, curves: Curves) -> str:
    returns, errors = map(interval, curves.after(AVERAGED, 25))
    return f"- {study.instance}, {study.norm}: return {returns.words(1)}, tracking error {errors.words(3)}"


def box() -> None:
    """Momenta on 20x20 with wider boxes and several steps, everything else as we recommend it."""
    head = [f"momentum {momentum:g}: all episodes | at the end" for momentum in MOMENTA]
    print(
        f"| instance | dual_bound | step | {' | '.join(head)} |\n|{' --- |' * (3 + 2 * len(head))}"
    )
    for instance in ("20x20-traj1", "20x20-traj2"):
        study = recommended(instance, "half-squared")[0]
        found = cm.sweep(
            study.problem,
            replace(study.solver, evaluate_every=study.solver.iterations),
            over={"dual_bound": BOXES, "primal_step": STEPS, "momentum": MOMENTA},
            seeds=range(len(study.settings)),
            rows=2_000,
            progress=False,
        )
        histories: dict[tuple[float, ...], list[Mapping[str, Any]]] = {}
        for run in found:
            histories.setdefault(tuple(run.settings.values()), []).append(run.solution.history)
        for bound, step in itertools.product(BOXES, STEPS):
            cells = [_summary(histories[bound, step, momentum]) for momentum in MOMENTA]
            print(f"| {instance} | {bound:,.0f} | {step:g} | {' | '.join(cells)} |", flush=True)


def _summary(histories: Sequence[Mapping[str, Any]]) -> str:
    """The return over all episodes; then return / tracking error over the last 250."""
    returns = np.stack([history["episode_return"] for history in histories])
    errors = np.stack([next(iter(history["tracking_error"].values())) for history in histories])
    every, last = interval(returns.mean(axis=1)), interval(returns[:, -WINDOW:].mean(axis=1))
    return f"{every.words(1)} | {last.words(1)} / {errors[:, -WINDOW:].mean():.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("counts", "box"))
    parser.add_argument("--folder", type=Path, default=Path("out/reproduce"), help="of the runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CvxmdpWarning)  # large steps are part of what is shown
    print(f"{hardware()}\n")
    if options.part == "counts":
        counts(options.folder)
    else:
        box()


if __name__ == "__main__":
    main()
