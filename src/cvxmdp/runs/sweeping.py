"""sweep(problem, solver, over={...}, seeds=...): a thousand runs in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from cvxmdp.base.checkpoints import Checkpoints, recorded
from cvxmdp.base.errors import SettingsError
from cvxmdp.base.progress import Progress
from cvxmdp.base.settings import number, whole
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.runs.axes import Case, read_cases
from cvxmdp.runs.backends.backend import Backend
from cvxmdp.runs.backends.this_process import ThisProcess
from cvxmdp.runs.interruption import listening
from cvxmdp.runs.run_folder import locked
from cvxmdp.runs.specification import setting_text, specification_of_run
from cvxmdp.runs.sweep_plan import SweepPlan, is_played
from cvxmdp.runs.sweep_results import Sweep, SweepRun

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
    backend: Backend | None = None,
    shard: tuple[int, int] | None = None,
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
            it had never stopped; one process has it at a time. Without a folder, everything is kept in memory.
        rows: records kept of each history, at most; longer ones are thinned.
        lanes: how many runs are lanes of one batched program; by default what is fastest: all of them on an
            accelerator, on a CPU up to 32 while the model is small, as many on each core. Bits depend on it;
            with 1 they are those of ``solve``.
        checkpoint_seconds: time between checkpoints, at least.
        progress: show a progress line; by default on a terminal.
        backend: where to compute: ``Ray()`` for the workers of a cluster; by default the threads of this
            process. Bits do not depend on it (docs/clusters.md).
        shard: (i, n) computes the i-th of n parts only, for schedulers without Ray: n such calls, at any time
            and wherever they see the same ``folder``, and one without ``shard`` reads them all.

    Returns:
        All runs with their settings, histories and solutions.
    """
    require_problem(problem, "sweep(problem, solver, over={...})")
    whole("rows", rows)
    number("checkpoint_seconds", checkpoint_seconds, positive=False)
    cases = [_rarely_evaluated(case) for case in read_cases(problem, solver, over, seeds)]
    if lanes is not None:
        whole("lanes", lanes)
    first, parts = (1, 1) if shard is None else _checked(shard)
    where: Backend = ThisProcess() if backend is None else backend
    if is_played(problem):
        if lanes not in (None, 1):
            raise SettingsError(
                f"lanes={lanes!r}: runs take turns with a simulator that Python steps; leave lanes out"
            )
        lanes = 1
    elif lanes is None:
        # A sweep that goes on keeps its lanes, also on a machine with more or fewer cores.
        lanes = _recorded_lanes(folder) or _lanes_for(problem, len(cases), parts * where.cores())
    width = min(lanes, len(cases))
    specification = _specification(problem, solver, start, cases, width, rows)
    place = None if folder is None else Checkpoints(folder, "sweep", specification)
    # No other process computes the same sweep, or the same part of it, in the folder meanwhile.
    part = "" if shard is None else f"{first}-of-{parts}"
    with nullcontext() if place is None else locked(place.path, part), listening() as stop:
        plan = SweepPlan(cases, start, rows, width)
        numbers = range(first - 1, len(plan.sets), parts)
        count = sum(len(plan.sets[number].cases) for number in numbers)
        line = Progress(f"sweep of {count:,} runs", count, progress)
        with closing(line):
            members, stopped = where.sweep(plan, numbers, place, checkpoint_seconds, stop, line)
    runs = [SweepRun(member, k) for member in members for k in range(len(member.cases))]
    return Sweep(problem, solver, runs, plan.programs, stopped is not None)


def _checked(shard: tuple[int, int]) -> tuple[int, int]:
    whole = isinstance(shard, tuple) and [type(number) for number in shard] == [int, int]
    if not whole or not 1 <= shard[0] <= shard[1]:
        raise SettingsError(f"shard is (i, n), the i-th of n parts with 1 <= i <= n; got {shard!r}")
    return shard


def _rarely_evaluated(case: Case) -> Case:
    """With at most CHUNKS exact evaluations of a run that learns: there are many runs."""
    solver = case.solver
    if not hasattr(solver, "evaluate_every"):
        return case
    every = max(solver.evaluate_every, -(-solver.iterations // CHUNKS))
    return replace(case, solver=replace(solver, evaluate_every=every))


def _lanes_for(problem: Problem, runs: int, cores: int) -> int:
    """How many runs to batch, by what is fastest: on a CPU, every core has some."""
    if jax.default_backend() != "cpu":
        return WIDEST
    share = -(-runs // cores)
    return max(1, min(MOST_ON_A_CPU, LARGEST_TABLE // problem.space.actions.size, share))


def _recorded_lanes(folder: str | Path | None) -> int | None:
    """The lanes of the sweep that a folder holds, or None."""
    lanes = recorded(folder, "sweep", "lanes")
    return lanes if isinstance(lanes, int) and lanes >= 1 else None


def _specification(
    problem: Problem, solver: Any, start: Any, cases: list[Case], width: int, rows: int
) -> dict[str, Any]:
    """What must be the same for a folder to be continued; the order, too: checkpoints go by place."""
    axes = [
        [name, list(dict.fromkeys(setting_text(case.settings[name]) for case in cases))]
        for name in cases[0].settings
    ]
    return {
        **specification_of_run(problem, solver, start, None),
        "axes": axes,
        "seeds": list(dict.fromkeys(case.seed for case in cases)),
        "rows": rows,
        "lanes": width,
    }
