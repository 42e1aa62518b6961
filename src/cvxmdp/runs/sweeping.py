"""sweep(problem, solver, over={...}, seeds=...): a thousand runs in one call."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cvxmdp.algorithms.recursion import Learning
from cvxmdp.base.checkpoints import Folder, recorded_lanes
from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import ProblemError, SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.problems.problem import Problem
from cvxmdp.runs.axes import Case, read_cases
from cvxmdp.runs.jobs import LearningJob, WholeJob
from cvxmdp.runs.lanes import Group, LaneGroup, ThreadGroup
from cvxmdp.runs.sweep_results import Sweep
from cvxmdp.solvers.start import per_constraint
from cvxmdp.solvers.vr_pdpg import VRPDPG
from cvxmdp.solvers.vr_pdpg_run import prepare

GROUP = 64  # runs that threads compute between two checkpoints
# Lanes, and the largest table of all lanes together, that a CPU still gains from (docs/sweeps.md).
MOST_ON_A_CPU, LARGEST_TABLE = 32, 8_192
WIDEST = 16_384  # lanes of one batched program
CHUNKS = 20  # of a run, at most; between them come progress, checkpoints and interruption


def sweep(
    problem: Problem,
    solver: Any,
    over: Mapping[str, Iterable[Any]] | None = None,
    seeds: Iterable[int] = (0,),
    *,
    start: Any = None,
    folder: str | Path | None = None,
    rows: int = 1_000,
    lanes: int | None = None,
    checkpoint_seconds: float = 5.0,
    progress: bool | None = None,
) -> Sweep:
    """Run a solver for every combination of settings and seeds.

    Args:
        problem: what to solve.
        solver: ``VRPDPG(...)``, ``PDPG(...)`` or any other solver, with the settings that do not vary.
        over: values by name: settings of the solver, and ``"budget/NAME"`` for budgets of constraints. Numbers
            are arguments of one compiled program; what changes its shape (``horizon``, ``batch_size``,
            ``policy``) compiles once per value.
        seeds: of the runs; every combination is run with each.
        start: a policy or solution to start from, for all runs.
        folder: where to keep checkpoints. The same call finds them again and goes on, with the same bits as if
            it had never stopped. Without a folder, everything is kept in memory.
        rows: records kept of each history, at most; longer ones are thinned.
        lanes: how many runs are lanes of one batched program; by default what is fastest: all of them on an
            accelerator, on a CPU up to 32 while the model is small, as many on each core. Bits depend on it;
            with 1 they are those of ``solve``.
        checkpoint_seconds: time between checkpoints, at least.
        progress: show a progress line; by default on a terminal.

    Returns:
        All runs with their settings, histories and solutions.
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"sweep takes a Problem; got {problem!r}")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise SolverError(f"rows must be a whole number of at least 1; got {rows!r}")
    cases = [_thinned(case, rows) for case in read_cases(problem, solver, over, seeds)]
    if lanes is not None and (isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1):
        raise SolverError(f"lanes must be a whole number of at least 1; got {lanes!r}")
    if _is_played(problem):
        lanes = 1
    elif lanes is None:
        # A sweep that goes on keeps its lanes, also on a machine with more or fewer cores.
        lanes = recorded_lanes(folder) or _lanes_for(problem, len(cases))
    width = min(lanes, len(cases))
    place = None if folder is None else Folder(folder, _spec(problem, solver, cases, width, rows))
    groups, compiled = _groups(cases, start, width)
    line = Progress(f"sweep of {len(cases):,} runs", len(cases), progress)
    interrupted, before = False, 0
    try:
        for number, group in enumerate(groups):
            let_go()
            _finish(group, number, place, checkpoint_seconds, line, before)
            before += len(group.cases)
    except KeyboardInterrupt:
        interrupted = True
        if place is not None:
            place.save(number, group.dump())
    finally:
        line.close()
    return Sweep(problem, solver, tuple(groups), len(cases), compiled, interrupted)


def _finish(
    group: Group,
    number: int,
    place: Folder | None,
    checkpoint_seconds: float,
    line: Progress,
    before: int,
) -> None:
    """Advance a group to its end, from its checkpoint if there is one."""
    saved = None if place is None else place.load(number)
    if saved is not None:
        group.restore(saved)
    written = time.perf_counter()
    while not group.finished:
        group.advance()
        line.update(round(before + group.progress, 1))
        now = time.perf_counter()
        if place is not None and (group.finished or now - written >= checkpoint_seconds):
            place.save(number, group.dump())
            written = now
    line.update(before + len(group.cases))


def _thinned(case: Case, rows: int) -> Case:
    """With a history of at most ``rows`` records and at most CHUNKS chunks."""
    solver = case.solver
    if not isinstance(solver, VRPDPG):
        return case
    every = max(solver.record_every, -(-solver.iterations // rows))
    length = max(solver.evaluate_every, -(-solver.iterations // CHUNKS))
    return replace(case, solver=replace(solver, record_every=every, evaluate_every=length))


def _groups(cases: list[Case], start: Any, lanes: int) -> tuple[list[Group], int]:
    """Cases that share a compiled program, in groups; and how many programs there are."""
    threads = 1 if _is_played(cases[0].problem) else os.cpu_count() or 1
    chunked = [case for case in cases if _is_chunked(case.solver)]
    learnings = _learnings(chunked)
    alike: dict[Any, list[Case]] = {}
    for case in chunked:
        alike.setdefault(_signature(case.solver, learnings[case.index]), []).append(case)
    groups: list[Group] = []
    for members in alike.values():
        width = min(lanes, len(members))
        sets = [
            _lane_set(members[begin : begin + width], start, learnings, width)
            for begin in range(0, len(members), width)
        ]
        together = max(threads, GROUP // width)
        for begin in range(0, len(sets), together):
            part = sets[begin : begin + together]
            groups.append(part[0] if len(part) == 1 else ThreadGroup(part, threads))
    whole = [case for case in cases if not _is_chunked(case.solver)]
    for begin in range(0, len(whole), GROUP):
        jobs = [WholeJob(case, start) for case in whole[begin : begin + GROUP]]
        groups.append(ThreadGroup(jobs, threads))
    return groups, len(alike)


def _lane_set(cases: list[Case], start: Any, learnings: dict[int, Learning], width: int) -> Group:
    """Runs that are computed at once."""
    mine = [learnings[case.index] for case in cases]
    if width == 1:
        return LearningJob(cases[0], start, mine[0])
    # The last lanes are filled up: bits depend on the width.
    return LaneGroup(cases, start, mine, idle=width - len(cases))


def _lanes_for(problem: Problem, runs: int) -> int:
    """How many runs to batch, by what is fastest: on a CPU, every core has some."""
    if jax.default_backend() != "cpu":
        return WIDEST
    share = -(-runs // (os.cpu_count() or 1))
    return max(1, min(MOST_ON_A_CPU, LARGEST_TABLE // problem.space.actions.size, share))


def _is_played(problem: Problem) -> bool:
    """Whether there is one simulator, outside of compiled code, that all runs must take turns with."""
    environment = environment_of(problem)
    return environment is not None and not environment.compiled


def _is_chunked(solver: Any) -> bool:
    return isinstance(solver, VRPDPG) and not isinstance(solver.pessimism, str)


def _learnings(cases: list[Case]) -> dict[int, Learning]:
    """By the case's index; those that differ in their seed alone share one."""
    made: dict[Any, Learning] = {}
    found = {}
    for case in cases:
        key = (id(case.problem), *((name, id(value)) for name, value in case.settings.items()))
        if key not in made:
            pessimism = per_constraint(case.solver.pessimism, case.problem, "pessimism")
            made[key] = prepare(case.solver, case.problem, pessimism)
        found[case.index] = made[key]
    return found


def _signature(solver: VRPDPG, learning: Learning) -> Any:
    """Equal for runs of one compiled program."""
    leaves, form = jax.tree.flatten(learning)
    shapes = tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)
    plan = (solver.iterations, solver.evaluate_every, solver.record_every, solver.iterate)
    return form, shapes, plan


def _spec(
    problem: Problem, solver: Any, cases: list[Case], width: int, rows: int
) -> dict[str, Any]:
    """What must be the same for a folder to be continued."""
    axes = {
        name: sorted({repr(case.settings[name]) for case in cases}) for name in cases[0].settings
    }
    return {
        "problem": fingerprint(problem),
        "solver": type(solver).__name__,
        "settings": {
            field.name: repr(getattr(solver, field.name))
            for field in fields(solver)
            if field.name != "progress"
        },
        "axes": axes,
        "seeds": sorted({case.seed for case in cases}),
        "rows": rows,
        "lanes": width,
        "device": f"{jax.default_backend()} {platform.machine()}",
        "jax": jax.__version__,
        "numpy": np.__version__,
    }
