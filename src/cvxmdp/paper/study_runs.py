"""The runs of the studies: each kept in a folder of its own, so that the same command goes on where it was."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cvxmdp.base.checkpoints import AnotherRunError
from cvxmdp.base.errors import CvxmdpWarning, FileFormatError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.paper.studies import Study
from cvxmdp.runs.record import SNAPSHOTS, RunRecord
from cvxmdp.runs.run_folder import is_run_of, read_run, write_run, writing
from cvxmdp.runs.sweep_records import label_of, sweep_record
from cvxmdp.runs.sweep_results import Sweep
from cvxmdp.runs.sweeping import sweep

ROWS = 2_000  # records of a history: every fifth of 10,000 iterations
CHECKPOINTS = "checkpoints"
KEPT = ("objective", "slack", "multipliers", "episode_return", "tracking_error", "policy_entropy")


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    study: Study
    number: int
    folder: Path

    @property
    def place(self) -> Path:
        """Where the run is kept."""
        return self.folder / "runs" / self.study.name / f"{self.number:02d}"

    @property
    def specification(self) -> str:
        """What must be the same for a run that is there to be this one."""
        study = self.study
        own = label_of(study.settings[self.number])
        return f"{fingerprint(study.problem)[:16]} {study.solver!r} {own} seed {self.number}"

    @property
    def is_there(self) -> bool:
        """Whether the run is complete. A damaged folder is none, and is written anew."""
        try:
            return is_run_of(self.place, self.specification)
        except FileFormatError:
            return False


def run_studies(
    studies: Sequence[Study], folder: Path, *, workers: int, progress: bool | None = None
) -> None:
    """Make every run that is not there yet, ``workers`` at a time, each on one core."""
    tasks = [StudyRun(study, k, folder) for study in studies for k in range(len(study.settings))]
    missing = _ordered([task for task in tasks if not task.is_there])
    line = Progress("runs", len(missing), progress)
    pool = ThreadPoolExecutor(workers)
    try:
        with warnings.catch_warnings():
            # Steps that drive the policy into a corner are part of what is shown; each run would say so.
            warnings.simplefilter("ignore", CvxmdpWarning)
            begun: list[Future[None]] = [pool.submit(_make, task) for task in missing]
            for count, done in enumerate(as_completed(begun), 1):
                done.result()
                line.update(count)
    finally:  # interrupted, too: runs under way are finished and kept, others are left for the next time
        pool.shutdown(cancel_futures=True)
        line.close()
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _ordered(tasks: list[StudyRun]) -> list[StudyRun]:
    """One run of every program first, so that none is compiled twice; then the longest first."""
    firsts: dict[object, StudyRun] = {}
    for task in tasks:
        firsts.setdefault(task.study.program, task)
    others = [task for task in tasks if firsts[task.study.program] is not task]
    others.sort(
        key=lambda task: -task.study.solver.iterations * (task.study.solver.batch_size or 1)
    )
    return [*firsts.values(), *others]


def _make(task: StudyRun) -> None:
    """One run, from its checkpoint where there is one, into the store."""
    study, settings = task.study, task.study.settings[task.number]
    checkpoint = task.folder / CHECKPOINTS / study.name / f"{task.number:02d}"
    over = {name: [value] for name, value in settings.items()}
    try:
        (run,) = found = _sweep(study, over, task.number, checkpoint)
    except AnotherRunError:
        # Of other settings or another version: what it holds is of no use here.
        shutil.rmtree(checkpoint, ignore_errors=True)
        (run,) = found = _sweep(study, over, task.number, checkpoint)
    title = f"{study.instance}, {'half squared distance' if study.norm != 'l2' else 'distance'}"
    record = sweep_record(found, run, title=title, rerun=f"cvxmdp reproduce {study.size}")
    with writing(task.place, task.specification) as held:
        write_run(held, _smaller(record, task), specification=task.specification)
    shutil.rmtree(checkpoint, ignore_errors=True)


def _sweep(study: Study, over: dict[str, list[Any]], seed: int, checkpoint: Path) -> Sweep:
    # One run a sweep: its seed is its own, and settings that share one would share their luck.
    return sweep(
        study.problem, study.solver, over, (seed,), folder=checkpoint, rows=ROWS, progress=False
    )


def _smaller(record: RunRecord, task: StudyRun) -> RunRecord:
    """With the curves that are looked at; there are hundreds of runs, and the report maps one per study."""
    series = {name: one for name, one in record.series.items() if name.partition("/")[0] in KEPT}
    dropped = SNAPSHOTS if task.number else ()
    arrays = {name: one for name, one in record.arrays.items() if name not in dropped}
    return replace(record, label=task.study.method, series=series, arrays=arrays)


def read_study(study: Study, folder: Path) -> list[RunRecord]:
    """The records of a study's runs."""
    return [read_run(StudyRun(study, k, folder).place) for k in range(len(study.settings))]
