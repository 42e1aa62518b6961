"""solve(problem): one driver for all solvers."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from cvxmdp.base.checkpoints import Checkpoints
from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import ExperienceError, SettingsError
from cvxmdp.base.progress import Progress
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.problem_folder import DOCUMENT, write_problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.problems.solution_folder import write_solution
from cvxmdp.runs.interruption import listening
from cvxmdp.runs.run import Keeper, Run, drive
from cvxmdp.runs.run_folder import CHECKPOINT, StoreError, locked
from cvxmdp.runs.specification import specification_of_run
from cvxmdp.runs.tensorboard import Scalars
from cvxmdp.solvers.cautious import Cautious
from cvxmdp.solvers.choice import choose_solver
from cvxmdp.solvers.contract import Solver, Task


def solve(
    problem: Problem,
    solver: Solver | None = None,
    start: Any = None,
    seed: int | None = None,
    *,
    steps: int | None = None,
    cautious: float | None = None,
    folder: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    tensorboard: str | Path | None = None,
) -> Solution:
    """Solve a problem.

    Ctrl-C ends the iterations and gives the best answer so far; a second one raises ``KeyboardInterrupt``.

    Args:
        problem: what to solve.
        solver: how; without one, a solver is chosen and the solution says which and why.
        start: a solution, a policy, a saved policy's path or a run's folder to start from, for solvers that can
            use one; ``stats["start"]`` says what was taken over.
        seed: of the random numbers, for solvers that sample.
        steps: of an environment that may be played, where no solver is given: a learner is chosen.
        cautious: a confidence, such as 0.95, for models that were estimated from a log: the plan's constraints
            hold in the true model with that confidence, or the answer says which pairs would have to be tried.
            For ``mdp.uncertain`` they hold in every model within the stated error, whatever the number.
        folder: where to keep the run. Stopped or killed, the same call goes on from its last checkpoint, with
            the same bits as if it had never stopped; a finished run is read, not run again. ``load_solution``
            reads the answer.
        time_limit: seconds after which the iterations end, with the best answer so far.
        progress: False for no progress line. By default a line on a terminal, elsewhere now and then one.
        tensorboard: a folder for TensorBoard, in which everything that the solver records appears as it comes.
    """
    require_problem(problem, "solve(problem, solver)")
    let_go()
    reason = None
    if solver is None:
        solver, reason = choose_solver(problem, steps)
    elif steps is not None:
        raise SettingsError(
            f"steps={steps!r} goes without a solver; a learner has its own setting: ModelBased(steps={steps!r})"
        )
    check_solver(solver, seed)
    if cautious is not None:
        solver = Cautious(solver, cautious)
    task = Task(problem, start, seed)
    # To the last file that is written: Ctrl-C ends iterations, and nothing else.
    with listening(), nullcontext() if folder is None else locked(folder) as held:
        place = None
        if held is not None:
            facts = specification_of_run(problem, solver, start, seed)
            place = Checkpoints(held / CHECKPOINT, "run", facts)
        solution = run_task(solver, task, place, time_limit, progress, tensorboard)
    if reason is None:
        return solution
    return replace(solution, stats={**solution.stats, "chosen": reason})


def solve_among_many(
    problem: Problem, solver: Solver | None = None, start: Any = None, **options: Any
) -> Solution:
    """``solve``; but after Ctrl-C what it gives is no answer to go on with, and the whole ends."""
    with listening() as stop:
        solution = solve(problem, solver, start, **options)
    if stop.asked:
        raise KeyboardInterrupt
    return solution


def write_question(folder: Path, problem: Problem) -> None:
    """Keep the problem beside its run; of an environment, which cannot be kept, nor one of an earlier run."""
    if problem.environment is None:
        write_problem(folder, problem)
    else:
        (folder / DOCUMENT).unlink(missing_ok=True)


def write_answer(folder: Path, solution: Solution) -> None:
    """Keep the solution there, so that a run's folder is a solution's."""
    try:
        write_solution(folder, solution)
    except OSError as error:
        raise StoreError(
            f"the answer cannot be written: {error}. The run is in {folder / CHECKPOINT}; make room and "
            "repeat the call to have its answer."
        ) from error


def check_solver(solver: Any, seed: Any) -> None:
    """An error for what is no solver, and for one that samples without a seed."""
    if isinstance(solver, type) or not isinstance(solver, Solver):
        name = solver if isinstance(solver, str) else getattr(solver, "__name__", "")
        hint = f"; write {name}()" if isinstance(solver, type | str) else ""
        raise SettingsError(
            f"solver must be a solver object such as ConvexProgram(); got {solver!r}{hint}"
        )
    if solver.needs_seed and (isinstance(seed, bool) or not hasattr(seed, "__index__")):
        raise SettingsError(
            f"sampling needs a seed, so that the run can be repeated: solve(..., seed=0); got {seed!r}"
        )


def run_task(
    solver: Solver,
    task: Task,
    place: Checkpoints | None,
    time_limit: float | None,
    progress: bool | None,
    tensorboard: str | Path | None = None,
) -> Solution:
    """A run from its beginning, or from its checkpoint, to its end; with checkpoints, kept beside them."""
    if place is not None:
        write_question(place.path.parent, task.problem)
    started = time.perf_counter()
    deadline = math.inf if time_limit is None else started + read_seconds(time_limit)
    timed = replace(task, seconds_left=lambda: deadline - time.perf_counter())
    with listening() as stop:
        work = solver.prepare(timed)
        run = Run(work, time.perf_counter() - started)
        keeper = None if place is None else Keeper(place, {CHECKPOINT: run})
        if keeper is not None:
            keeper.take_up()
        line = Progress(work.name, 1, progress)
        scalars = None if tensorboard is None else Scalars(tensorboard, task.problem)
        run.watch = None if scalars is None else scalars.rows

        def show(line: Progress) -> None:
            done, total = work.where(run.state)
            line.update(done, run.note, total)

        try:
            stopped = drive(run, stop, line, show, keeper, deadline)
        except ExperienceError as error:
            # Hours of simulation may be behind it: what was learned so far goes with the error.
            done = 0 if run.state is None else work.where(run.state)[0]
            run.error = error
            error.solution = run.solution() if done else None
            if place is not None:
                error.args = (f"{error} The same call goes on from iteration {done}.",)
            raise
        finally:
            line.close()
    solution = run.solution(stopped or Status.INTERRUPTED)
    if scalars is not None:
        scalars.close(solution)
    if place is not None:
        write_answer(place.path.parent, solution)
    return solution


def read_seconds(given: Any) -> float:
    """A time limit, or an error."""
    plain = isinstance(given, int | float) and not isinstance(given, bool)
    if not plain or not given > 0:
        raise SettingsError(f"time_limit is a positive number of seconds; got {given!r}")
    return float(given)
