"""``cvxmdp solve``: a problem file in, an answer, its proof and a run's folder out."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cvxmdp.base.checkpoints import AnotherRunError, Checkpoints
from cvxmdp.base.errors import FileFormatError
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.cli.outcome import Exit, note, say, say_json, working
from cvxmdp.cli.overrides import read
from cvxmdp.cli.policy_arguments import read_policy
from cvxmdp.problems.solution import Solution, Status, load_solution
from cvxmdp.runs.record import RunRecord, record_of, settings_of
from cvxmdp.runs.record_text import holds, record_json, record_text
from cvxmdp.runs.run import STOPPED
from cvxmdp.runs.run_folder import (
    CHECKPOINT,
    RunState,
    StoreError,
    read_run,
    require_ours,
    specification_of,
    state_of,
    write_run,
    writing,
)
from cvxmdp.runs.solving import run_task
from cvxmdp.runs.specification import machine_text, start_text
from cvxmdp.runs.specs.imports import allow_imports
from cvxmdp.runs.specs.places import SpecError
from cvxmdp.runs.specs.problem_specs import ProblemSpec
from cvxmdp.solvers.choice import choose_solver
from cvxmdp.solvers.contract import Task

CONFIDENCE = 0.95  # of statements about the true model, where the solver has none of its own
GOES_ON = "It goes on from its last checkpoint; without one it begins again."
# Statuses of runs that the same command goes on with.
UNFINISHED = [status.name.lower() for status in STOPPED]


def solve_file(
    problem: Path,
    out: Path | None,
    seed: int | None,
    solver: str | None,
    settings: list[str] | None,
    prove: bool,
    gap: float | None,
    time_limit: float | None,
    overwrite: bool,
    start: str | None,
    modules: list[str] | None,
    tensorboard: Path | None,
    as_json: bool,
) -> Exit:
    """Solve a problem file; see ``cvxmdp solve --help`` for the arguments."""
    allow_imports(modules or ())
    spec = read(problem, solver, settings)
    seed = spec.seed if seed is None else seed
    chosen, reason = spec.solver, None
    if chosen is None:
        chosen, reason = choose_solver(spec.problem, spec.steps)
    if seed is None and chosen.needs_seed:
        raise SpecError(
            f"{type(chosen).__name__} samples and needs a seed, so that the run can be repeated: give "
            "--seed 0, or seed = 0 under [solver]"
        )
    played = spec.problem.environment is not None  # of which nothing is proven
    if gap is not None and (played or not prove):
        why = "nothing is proven of an environment" if played else "leave out --no-certify"
        raise SpecError(f"--gap needs a certificate: {why}")
    prove = prove and not played
    # A folder has more than a policy: a learner takes over multipliers and scales, too.
    begin = start if start is None or Path(start).is_dir() else read_policy(start)
    task = SolveCommand(
        spec,
        chosen,
        reason,
        seed,
        prove,
        rerun_line(problem, solver, settings, seed, start, modules or ()),
        out,
        specification(spec, chosen, seed, begin),
        time_limit,
        begin,
        tensorboard,
    )
    record = _finished(out, task.specification, overwrite)
    if record is not None and tensorboard is not None:
        note(f"There is nothing to write to {tensorboard}: curves come from a run on its way.")
    if record is None or (prove and record.certificate is None and record.policy is not None):
        with writing(out, task.specification) if out else nullcontext():
            record = task.run() if record is None else task.proven(record)
            if out:
                files = problem_files(spec)
                write_run(out, record, problem_files=files, specification=task.specification)
                if record.status not in UNFINISHED:
                    shutil.rmtree(out / CHECKPOINT, ignore_errors=True)
    code = exit_code(record, gap)
    if as_json:
        extra = {"run": None if out is None else str(out), "exit_code": int(code)}
        say_json({**record_json(record), **extra})
    else:
        say(record_text(record))
        if out:
            note(f"\nKept in {out}. Look at it: cvxmdp report {out} -o report.html")
    return code


@dataclass(frozen=True)
class SolveCommand:
    """What one call of ``cvxmdp solve`` is to do."""

    spec: ProblemSpec
    solver: Any
    reason: str | None  # why this solver, where it was chosen
    seed: int | None
    prove: bool
    rerun: str
    folder: Path | None
    specification: str
    time_limit: float | None
    start: Any = None
    tensorboard: Path | None = None

    def run(self) -> RunRecord:
        task = Task(self.spec.problem, self.start, self.seed)
        place = None
        if self.folder is not None:
            place = _checkpoints(self.folder / CHECKPOINT, self.specification)
        solution = run_task(self.solver, task, place, self.time_limit, None, self.tensorboard)
        proving = self.prove and solution.status.name.lower() not in UNFINISHED
        record = record_of(
            solution,
            title=self.spec.title,
            seed=self.seed,
            solver=self.solver,
            certificate=self._certificate(solution) if proving else None,
            rerun=self.rerun,
        )
        if self.reason is None:
            return record
        return replace(record, stats={**record.stats, "chosen": self.reason})

    def proven(self, record: RunRecord) -> RunRecord:
        """A finished run, with the certificate that nobody had asked for yet."""
        assert self.folder is not None  # it was read from there
        return replace(record, certificate=self._certificate(load_solution(self.folder)).to_json())

    def _certificate(self, solution: Solution) -> Certificate:
        with working("proving"):
            sure = getattr(self.solver, "confidence", CONFIDENCE)
            return certify(self.spec.problem, solution, confidence=sure)


def _finished(out: Path | None, wanted: str, overwrite: bool) -> RunRecord | None:
    """The run that is already there, or None where it is to be run (again)."""
    if out is None:
        return None
    state = state_of(out)
    if state is RunState.ABSENT:
        require_ours(out, (CHECKPOINT,))
        return None
    if specification_of(out) != wanted and not overwrite:
        raise StoreError(
            f"{out} holds a different run (another problem, solver or seed); choose another folder, or "
            "replace it with --overwrite"
        )
    if state is RunState.UNFINISHED:
        note(f"{out}: {state.value} {GOES_ON}")
    if state is not RunState.COMPLETE or specification_of(out) != wanted:
        return None
    record = read_run(out)
    if record.status in UNFINISHED:
        note(f"{out} was stopped before its end. {GOES_ON}")
        return None
    note(f"{out} is finished already; this is what it found.")
    return record


def _checkpoints(path: Path, specification: str) -> Checkpoints:
    """The folder's checkpoints; those of another run, or of another machine, are thrown away."""
    facts = {"specification": specification, **machine_text()}
    try:
        return Checkpoints(path, "run", facts)
    except AnotherRunError as error:
        if "specification" not in error.different:  # else --overwrite was asked for
            note(f"Its checkpoint is of another {' and '.join(error.different)}: it begins again.")
    except FileFormatError as error:
        note(f"{error}: it begins again.")
    shutil.rmtree(path)
    return Checkpoints(path, "run", facts)


def specification(spec: ProblemSpec, solver: Any, seed: int | None, start: Any = None) -> str:
    """A checksum of everything a run depends on: the problem file, its files, solver, seed and start."""
    digest = hashlib.sha256()
    for name, content in sorted(problem_files(spec).items()):
        digest.update(json.dumps([name, hashlib.sha256(content).hexdigest()]).encode())
    digest.update(json.dumps([settings_of(solver), seed]).encode())
    digest.update((start_text(start) or "").encode())
    if spec.problem.environment is not None:  # whose code is in no file of the problem
        digest.update(spec.problem.environment.identity.encode())
    return digest.hexdigest()


def problem_files(spec: ProblemSpec) -> dict[str, bytes]:
    """The problem file and the files it refers to, so that a run's folder can be run again."""
    files = {name: path.read_bytes() for name, path in spec.files.items()}
    return {**files, "problem.toml": spec.text.encode()}


def rerun_line(
    problem: Path,
    solver: str | None,
    settings: list[str] | None,
    seed: int | None,
    start: str | None,
    modules: Sequence[str],
) -> str:
    """The command that runs it again."""
    words = ["cvxmdp", "solve", problem.name]
    words += ["--solver", solver] if solver else []
    for setting in settings or ():
        words += ["--set", setting]
    words += ["--seed", str(seed)] if seed is not None else []
    words += ["--start", start] if start is not None else []
    for module in modules:
        words += ["--import", module]
    return shlex.join(words)


def exit_code(record: RunRecord, gap: float | None) -> Exit:
    """What a run's end means for scripts."""
    status = Status[record.status.upper()]
    if status is Status.INTERRUPTED:
        return Exit.INTERRUPTED
    if status is Status.INFEASIBLE:
        return Exit.INFEASIBLE
    if gap is None:
        return Exit.OK if status in (Status.OPTIMAL, Status.CAUTIOUS) else Exit.NOT_CONVERGED
    if record.certificate is None:  # stopped before it was proven
        return Exit.NOT_CONVERGED
    proven = Certificate.from_json(record.certificate).relative_gap
    # A repaired policy's gap is not that of the policy which is kept and exported.
    kept = all(holds(facts) for facts in record.constraints)
    return Exit.OK if proven <= gap and kept else Exit.NOT_CONVERGED
