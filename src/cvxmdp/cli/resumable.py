"""A run of VR-PDPG that can be killed: with checkpoints in its folder, and the same bits when it goes on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from cvxmdp.base.checkpoints import Folder
from cvxmdp.base.errors import SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.runs.axes import Case
from cvxmdp.runs.jobs import LearningJob
from cvxmdp.solvers.start import per_constraint
from cvxmdp.solvers.vr_pdpg import VRPDPG
from cvxmdp.solvers.vr_pdpg_run import prepare

CHECKPOINT = "checkpoint"
SECONDS = 5.0  # between checkpoints


def can_resume(solver: Any) -> bool:
    """Whether a run of this solver can go on where it was; pessimism "auto" is several runs."""
    return isinstance(solver, VRPDPG) and not isinstance(solver.pessimism, str)


def learn(
    problem: Problem, solver: VRPDPG, seed: int, folder: Path, specification: str
) -> Solution:
    """What ``solve`` gives, from the checkpoint in the folder where there is one.

    Args:
        problem, solver, seed: as for ``solve``.
        folder: of the run.
        specification: a checkpoint of anything else is not taken up.
    """
    learning = prepare(solver, problem, per_constraint(solver.pessimism, problem, "pessimism"))
    job = LearningJob(Case(0, {}, seed, problem, solver), None, learning)
    place = _checkpoints(folder / CHECKPOINT, specification)
    saved = place.load(0)
    if saved is not None:
        job.restore(saved)
    progress = Progress("VR-PDPG", solver.iterations, solver.progress)
    written = time.perf_counter()
    try:
        while not job.finished:
            job.advance()
            progress.update(job.run.done, job.run.note() if job.error is None else "")
            if time.perf_counter() - written >= SECONDS and not job.finished:
                place.save(0, job.dump())
                written = time.perf_counter()
    except KeyboardInterrupt:
        place.save(0, job.dump())
    finally:
        progress.close()
    if job.error is not None:
        if job.may_go_on:
            place.save(0, job.dump())
            raise SolverError(
                f"{job.error} The same command goes on from iteration {job.run.done}."
            )
        raise SolverError(job.error)
    if job.finished:
        shutil.rmtree(place.path)
    return job.solution()


def _checkpoints(path: Path, specification: str) -> Folder:
    """The folder's checkpoints; those of another run are thrown away."""
    spec = {"specification": specification}
    try:
        return Folder(path, spec)
    except SolverError:
        shutil.rmtree(path)
        return Folder(path, spec)
