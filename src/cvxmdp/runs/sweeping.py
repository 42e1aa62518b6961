"""sweep(problem, solver, over={...}, seeds=...): a thousand runs in one call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

from cvxmdp.base.checkpoints import Checkpoints, recorded
from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import ProblemError, SettingsError
from cvxmdp.base.progress import Progress
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.problems.problem import Problem
from cvxmdp.runs.axes import Case, read_cases
from cvxmdp.runs.interruption import listening
from cvxmdp.runs.lanes import Group, Member
from cvxmdp.runs.run import Keeper, asked_to_stop, drive
from cvxmdp.runs.specification import setting_text, specification_of_run
from cvxmdp.runs.sweep_results import Sweep
from cvxmdp.solvers.contract import Task, Work

GROUP = 64  # runs that threads compute between two checkpoints
# Lanes, and the largest table of all lanes together, that a CPU still gains from (docs/sweeps.md).
MOST_ON_A_CPU, LARGEST_TABLE = 32, 8_192
WIDEST = 16_384  # lanes of one batched program
CHUNKS = 20  # of a run, at most, at whose ends it is evaluated exactly


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
        raise SettingsError(f"rows must be a whole number of at least 1; got {rows!r}")
    cases = [_rarely_evaluated(case) for case in read_cases(problem, solver, over, seeds)]
    if lanes is not None and (isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1):
        raise SettingsError(f"lanes must be a whole number of at least 1; got {lanes!r}")
    if _is_played(problem):
        lanes = 1
    elif lanes is None:
        # A sweep that goes on keeps its lanes, also on a machine with more or fewer cores.
        lanes = _recorded_lanes(folder) or _lanes_for(problem, len(cases))
    width = min(lanes, len(cases))
    specification = _specification(problem, solver, start, cases, width, rows)
    place = None if folder is None else Checkpoints(folder, "sweep", specification)
    with listening() as stop:
        groups, compiled = _groups([(case, _task(case, start, rows)) for case in cases], width)
        line = Progress(f"sweep of {len(cases):,} runs", len(cases), progress)
        before, stopped = 0, asked_to_stop(stop)
        for number, group in enumerate(groups):
            let_go()
            keeper = None
            if place is not None:
                keeper = Keeper(place, f"group-{number:05d}", checkpoint_seconds)
                keeper.take_up(group)

            def show(line: Progress, before: int = before, group: Group = group) -> None:
                line.update(round(before + group.progress, 1))

            if stopped is None:
                stopped = drive(group, stop, line, show, keeper)
            before += len(group.cases)
        line.close()
    return Sweep(problem, solver, tuple(groups), len(cases), compiled, stopped is not None)


def _task(case: Case, start: Any, rows: int) -> Task:
    return Task(case.problem, start, case.seed, rows=rows)


def _rarely_evaluated(case: Case) -> Case:
    """With at most CHUNKS exact evaluations of a run that learns: there are many runs."""
    solver = case.solver
    if not hasattr(solver, "evaluate_every"):
        return case
    every = max(solver.evaluate_every, -(-solver.iterations // CHUNKS))
    return replace(case, solver=replace(solver, evaluate_every=every))


def _groups(cases: list[tuple[Case, Task]], lanes: int) -> tuple[list[Group], int]:
    """Cases that share a compiled program, in groups; and how many programs there are."""
    threads = 1 if _is_played(cases[0][0].problem) else os.cpu_count() or 1
    alike: dict[Any, list[tuple[Case, Work[Any]]]] = {}
    others: list[Member] = []
    for case, task, work in _prepared(cases):
        if work is not None and work.program is not None:
            alike.setdefault(work.program, []).append((case, work))
        else:
            prepare = partial(case.solver.prepare, task) if work is None else partial(_same, work)
            others.append(Member([case], prepare))
    groups: list[Group] = []
    for members in alike.values():
        width = min(lanes, len(members))
        sets = [
            _lane_set(members[begin : begin + width], width)
            for begin in range(0, len(members), width)
        ]
        together = max(threads, GROUP // width)
        groups += [Group(sets[k : k + together], threads) for k in range(0, len(sets), together)]
    groups += [Group(others[k : k + GROUP], threads) for k in range(0, len(others), GROUP)]
    return groups, len(alike)


def _prepared(
    cases: list[tuple[Case, Task]],
) -> Iterator[tuple[Case, Task, Work[Any] | None]]:
    """The work of every case whose solver has lanes; those that differ in their seed alone share the rest."""
    made: dict[Any, Work[Any]] = {}
    for case, task in cases:
        if not case.solver.has_lanes:
            yield case, task, None
            continue
        key = (id(case.problem), *((name, id(value)) for name, value in case.settings.items()))
        if key in made:
            yield case, task, made[key].reseeded(task)
        else:
            made[key] = case.solver.prepare(task)
            yield case, task, made[key]


def _same(work: Work[Any]) -> Work[Any]:
    return work


def _lane_set(members: list[tuple[Case, Work[Any]]], width: int) -> Member:
    """Runs that are computed at once."""
    cases, works = [case for case, _ in members], [work for _, work in members]
    if width == 1:
        return Member(cases, partial(_same, works[0]))
    # The last lanes are filled up: bits depend on the width.
    filled = [*works, *works[-1:] * (width - len(works))]
    return Member(cases, partial(_batch, filled))


def _batch(works: list[Work[Any]]) -> Work[Any]:
    together = works[0].batch(works[1:])
    assert together is not None  # their programs are equal
    return together


def _lanes_for(problem: Problem, runs: int) -> int:
    """How many runs to batch, by what is fastest: on a CPU, every core has some."""
    if jax.default_backend() != "cpu":
        return WIDEST
    share = -(-runs // (os.cpu_count() or 1))
    return max(1, min(MOST_ON_A_CPU, LARGEST_TABLE // problem.space.actions.size, share))


def _recorded_lanes(folder: str | Path | None) -> int | None:
    """The lanes of the sweep that a folder holds, or None."""
    lanes = recorded(folder, "sweep", "lanes")
    return lanes if isinstance(lanes, int) and lanes >= 1 else None


def _is_played(problem: Problem) -> bool:
    """Whether there is one simulator, outside of compiled code, that all runs must take turns with."""
    environment = environment_of(problem)
    return environment is not None and not environment.compiled


def _specification(
    problem: Problem, solver: Any, start: Any, cases: list[Case], width: int, rows: int
) -> dict[str, Any]:
    """What must be the same for a folder to be continued."""
    axes = {
        name: sorted({setting_text(case.settings[name]) for case in cases})
        for name in cases[0].settings
    }
    return {
        **specification_of_run(problem, solver, start, None),
        "axes": axes,
        "seeds": sorted({case.seed for case in cases}),
        "rows": rows,
        "lanes": width,
    }
