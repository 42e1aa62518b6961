"""``cvxmdp sweep``: many runs from one file, kept as runs that ``show`` and ``report`` read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cvxmdp.base.interval import Interval
from cvxmdp.certificates.certify import certify
from cvxmdp.cli.outcome import Exit, note, say, say_json, working
from cvxmdp.cli.overrides import written_setting
from cvxmdp.cli.proving import ray_at
from cvxmdp.cli.solve_command import problem_files, specification
from cvxmdp.problems.solution import Status
from cvxmdp.runs.axes import BUDGET
from cvxmdp.runs.run_folder import is_run_of, locked, require_ours, write_run, writing
from cvxmdp.runs.specs.imports import allow_imports
from cvxmdp.runs.specs.places import SpecError
from cvxmdp.runs.specs.problem_specs import SweepSpec, read_sweep
from cvxmdp.runs.sweep_records import label_of, sweep_record
from cvxmdp.runs.sweep_results import Sweep, SweepRun
from cvxmdp.runs.sweeping import sweep

CHECKPOINTS, RUNS = "checkpoints", "runs"


def run_sweep(
    file: Path,
    out: Path | None,
    prove: bool,
    ray: str | None,
    shard: str | None,
    modules: list[str] | None,
    as_json: bool,
) -> Exit:
    """Run a sweep file; see ``cvxmdp sweep --help``."""
    allow_imports(modules or ())
    spec, part = read_sweep(file), None if shard is None else _part(shard)
    if spec.base.seed is not None:
        note("seed under [solver] plays no part in a sweep: its own seeds do.")
    folder = Path("runs") / file.stem if out is None else out
    require_ours(folder, (CHECKPOINTS, RUNS))
    with locked(folder, "" if part is None else f"{part[0]}-of-{part[1]}"):
        found = sweep(
            spec.base.problem,
            spec.base.solver,
            spec.over,
            spec.seeds,
            folder=folder / CHECKPOINTS,
            backend=ray_at(ray),
            shard=part,
        )
        with working("writing the runs"):
            failed = _keep(spec, found, folder / RUNS, prove)
    code = Exit.NOT_CONVERGED if failed else Exit.OK
    code = Exit.INTERRUPTED if found.interrupted else code
    if as_json:
        counts = {"runs": len(found), "failed": failed, "interrupted": found.interrupted}
        summary = [_numbers(row) for row in found.summary()]
        say_json({"folder": str(folder), **counts, "summary": summary, "exit_code": int(code)})
        return code
    say(str(found))
    if failed:
        note(f"{failed} runs failed; cvxmdp show {folder / RUNS} says why")
    if found.interrupted:
        note("Interrupted. The same command goes on from here.")
    elif part is not None:
        note(
            f"\nPart {part[0]} of {part[1]} is in {folder}. When all are: the same without --shard"
        )
    else:
        note(f"\nKept in {folder}. Look at it: cvxmdp report {folder / RUNS} -o report.html")
    return code


def _part(text: str) -> tuple[int, int]:
    place, _, parts = text.partition("/")
    if not (place.isdecimal() and parts.isdecimal() and 1 <= int(place) <= int(parts)):
        raise SpecError(f"--shard {text}: expected i/n with 1 <= i <= n, as in --shard 3/8")
    return int(place), int(parts)


def _keep(spec: SweepSpec, found: Sweep, folder: Path, prove: bool) -> int:
    """Write every finished run that is not there yet; returns how many failed."""
    files, failed = problem_files(spec.base), 0
    same = specification(spec.base, spec.base.solver, None)
    for run in found:
        place = folder / f"{run.index:05d}"
        wanted = f"{same}; {label_of(run.settings)}; seed {run.seed}; certified {prove}"
        solution = run.solution
        failed += solution.status is Status.FAILED
        if solution.status is Status.INTERRUPTED:
            continue
        if is_run_of(place, wanted):
            continue
        certificate = certify(solution.problem, solution) if prove and solution.has_policy else None
        record = sweep_record(
            found, run, title=spec.base.title, certificate=certificate, rerun=_rerun(spec, run)
        )
        with writing(place, wanted) as held:
            write_run(held, record, problem_files=files, specification=wanted)
    return failed


def _rerun(spec: SweepSpec, run: SweepRun) -> str:
    """The command that makes one run of a sweep; budgets are changed in the problem file."""
    table = dict(spec.base.solver_table)
    words = ["cvxmdp", "solve", spec.base.path.name]
    words += ["--solver", table["name"]] if "name" in table else []  # else a cautious one is chosen
    notes = []
    for name, value in {**table, **run.settings}.items():
        if name.startswith(BUDGET):
            notes.append(f"{name}={value}")
        elif name not in ("name", "seed"):
            words += ["--set", f"{name}={written_setting(value)}"]
    line = shlex.join([*words, "--seed", str(run.seed)])
    return f"{line}  # with {', '.join(notes)}" if notes else line


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the summary with its intervals as plain data."""
    return {n: asdict(value) if isinstance(value, Interval) else value for n, value in row.items()}
