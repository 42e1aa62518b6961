"""The one loop: stopped, killed, out of time or out of room, a run goes on with the same bits."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.columns.generation import Generation
from cvxmdp.base import checkpoints, progress
from cvxmdp.base.saved_trees import Growing, Plain, from_arrays, to_arrays
from cvxmdp.runs import run as driver
from cvxmdp.runs.run import Run
from cvxmdp.solvers.contract import MOST_ROWS, Task, Work
from cvxmdp.solvers.convex_program import COLUMNS
from cvxmdp.solvers.learning import Plan
from strategies import small_problem

ROOT = Path(__file__).parent.parent
LEARNER = cm.VRPDPG(60, 0.1, 0.3, 0.3, 10, dual_bound=2.0, evaluate_every=20)
SOLVERS = {
    "ConvexProgram": cm.ConvexProgram(),
    "ColumnGeneration": cm.ColumnGeneration(iterations=12),
    "PDPG": cm.PDPG(iterations=60, check_every=10, tolerance=1e-9),
    "PDPG, found pessimism": cm.PDPG(
        iterations=40, check_every=10, tolerance=None, pessimism="auto"
    ),
    "VRPDPG": LEARNER,
    "VRPDPG, uniform": cm.VRPDPG(60, 0.1, 0.3, 0.3, 10, iterate="uniform", evaluate_every=20),
    "VRPDPG, found pessimism": cm.VRPDPG(
        30, 0.1, 0.3, 0.3, 10, pessimism="auto", evaluate_every=10
    ),
}
every_solver = pytest.mark.parametrize("name", SOLVERS)


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return small_problem()


@pytest.fixture(scope="module")
def whole(problem) -> Callable[[str], cm.Solution]:
    """The answers of runs that nothing happened to."""
    known: dict[str, cm.Solution] = {}

    def of(name: str) -> cm.Solution:
        if name not in known:
            known[name] = cm.solve(problem, SOLVERS[name], seed=3)
        return known[name]

    return of


def same_bits(first: cm.Solution, second: cm.Solution) -> None:
    assert first.status is second.status
    assert first.message == second.message
    assert first.multipliers == second.multipliers
    np.testing.assert_array_equal(first.occupancy, second.occupancy)
    np.testing.assert_array_equal(first.policy.probabilities(), second.policy.probabilities())
    assert set(first.history) == set(second.history)
    mine, theirs = (
        {f"{n}{part}": array for n, curves in one.history.items() for part, array in flat(curves)}
        for one in (first, second)
    )
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def flat(curves):
    return curves.items() if isinstance(curves, dict) else [("", curves)]


# --- kills and Ctrl-C, from outside ---------------------------------------------------------------

SCRIPT = """
import sys; sys.path.insert(0, "tests")
from test_runs import SOLVERS, driver
from strategies import small_problem
import cvxmdp as cm
driver.CHECKPOINT_SECONDS, driver.WRITING_SHARE, driver.PIECE_SECONDS = 0.0, 1.0, 0.01
problem, solve = small_problem(), cm.solve
print("ready", flush=True)
for name, solver in SOLVERS.items():
    try:
        found = solve(problem, solver, seed=3, folder=f"{sys.argv[1]}/{name}")
    except KeyboardInterrupt:
        sys.exit("inside a solve Ctrl-C is a question")
    if found.status is cm.Status.INTERRUPTED:
        sys.exit(130)
"""


def test_killed_and_interrupted_at_random_times_runs_end_with_the_same_bits(
    tmp_path, problem, whole
):
    random = np.random.default_rng(1)
    signals = [signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT]
    codes = []
    for how in [*signals, None]:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        try:
            codes.append(process.wait(timeout=None if how is None else 4.0 * random.random()))
            break
        except subprocess.TimeoutExpired:
            process.send_signal(how)
            codes.append(process.wait(timeout=60))
            # -SIGINT: between two solves, or after the last one while the interpreter ends, Ctrl-C is
            # Python's own. Inside a solve it would be 1.
            assert codes[-1] in (-signal.SIGKILL, -signal.SIGINT, 130, 0), "nothing else ends it"
    assert codes[-1] == 0
    for name, solver in SOLVERS.items():
        same_bits(cm.solve(problem, solver, seed=3, folder=tmp_path / name), whole(name))
        saved = cm.load_solution(tmp_path / name)
        assert saved.status is whole(name).status
        np.testing.assert_array_equal(saved.occupancy, whole(name).occupancy)


# --- the same from inside, at chosen times --------------------------------------------------------


def stopping_after(pieces: int, monkeypatch) -> None:
    """Ctrl-C while the piece after this many is computed; before the first one for -1."""
    advance, begin, done = Run.advance, Run.begin, []

    def interrupted(self):
        done.append(None)
        if len(done) == pieces + 1:
            signal.raise_signal(signal.SIGINT)
        advance(self)

    def at_once(self):
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(Run, "begin", begin)
        begin(self)

    monkeypatch.setattr(driver, "PIECE_SECONDS", 0.0)  # as if an iteration took long
    monkeypatch.setattr(Run, "advance", interrupted)
    if pieces < 0:
        monkeypatch.setattr(Run, "begin", at_once)


def risky() -> cm.TabularMDP:
    mdp = cm.garnet(3, 2, 2, discount=0.5, seed=0).unroll(2).replace(discount=1.0)
    return mdp.with_budget_state("cost", levels=4)


@pytest.mark.parametrize(
    "driver_of_many",
    [
        lambda problem: cm.frontier(problem, "hazard", [0.1, 0.2]),
        lambda problem: cm.pareto(problem, {"far": cm.entropy(), "safe": -cm.linear("hazard")}),
        lambda problem: cm.least_cvar(risky(), "cost", 0.9),
        cm.deterministic,
    ],
    ids=["frontier", "pareto", "least_cvar", "deterministic"],
)
def test_one_stop_ends_a_search_of_many_solves(driver_of_many, problem, keyboard, monkeypatch):
    """The solve that it comes up in gives what it has, which is nothing to go on with."""
    stopping_after(-1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        driver_of_many(problem)


@every_solver
@pytest.mark.parametrize("pieces", [-1, 0, 7])
def test_stopped_early_a_run_goes_on_with_the_same_bits(
    name, pieces, problem, whole, keyboard, monkeypatch, tmp_path
):
    with monkeypatch.context() as patch:
        stopping_after(pieces, patch)
        first = cm.solve(problem, SOLVERS[name], seed=3, folder=tmp_path)
    if name != "ConvexProgram":
        assert first.status is cm.Status.INTERRUPTED
        assert first.has_policy
        assert first.stats["iterations"] <= pieces + 2
    same_bits(cm.solve(problem, SOLVERS[name], seed=3, folder=tmp_path), whole(name))


@every_solver
def test_a_finished_run_is_read_and_not_run_again(name, problem, monkeypatch, tmp_path):
    first = cm.solve(problem, SOLVERS[name], seed=3, folder=tmp_path)
    monkeypatch.setattr(Run, "advance", None)
    same_bits(cm.solve(problem, SOLVERS[name], seed=3, folder=tmp_path), first)


def test_a_second_ctrl_c_raises(problem, keyboard, monkeypatch, tmp_path):
    advance = Run.advance

    def impatient(self):
        advance(self)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "advance", impatient)
    with pytest.raises(KeyboardInterrupt):
        cm.solve(problem, LEARNER, seed=3, folder=tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (tmp_path / "checkpoint" / "checkpoint.safetensors").exists()


# --- time ------------------------------------------------------------------------------------------


def test_a_time_limit_ends_a_run_that_goes_on_later(problem, tmp_path):
    endless = cm.PDPG(iterations=10**6, tolerance=None, check_every=50)
    first = cm.solve(problem, endless, folder=tmp_path, time_limit=0.5)
    assert first.status is cm.Status.TIME_LIMIT
    assert "time ran out" in first.message
    assert 0 < first.stats["iterations"] < 10**6
    second = cm.solve(problem, endless, folder=tmp_path, time_limit=0.5)
    assert second.stats["iterations"] > first.stats["iterations"]
    assert second.stats["seconds"] > first.stats["seconds"]


@pytest.mark.parametrize("wrong", [0, -1.0, "soon", True, float("nan")], ids=repr)
def test_a_time_limit_is_a_number_of_seconds(problem, wrong):
    with pytest.raises(cm.SolverError, match="time_limit is a positive number of seconds"):
        cm.solve(problem, time_limit=wrong)


def test_a_convex_program_is_told_the_seconds_left():
    mdp = cm.garnet(400, 5, 20, seed=0, discount=0.99)
    hard = cm.Problem(mdp, maximize=cm.entropy())
    found = cm.solve(hard, cm.ConvexProgram(), time_limit=1e-3)
    assert found.status is cm.Status.TIME_LIMIT


def test_a_program_that_falls_back_to_columns_is_told_too(monkeypatch):
    problem = cm.Problem(cm.garnet(30, 3, 5, seed=0, discount=0.99), maximize=cm.entropy())
    taken, step = [], Generation.step
    monkeypatch.setattr(Generation, "step", lambda self: (taken.append(0), step(self)))
    cm.ConvexProgram().answer(problem, left=lambda: 1e-9, ways=[COLUMNS])
    assert len(taken) == 1
    cm.ConvexProgram().answer(problem, ways=[COLUMNS])
    assert len(taken) > 2


# --- folders ---------------------------------------------------------------------------------------


def test_another_run_does_not_touch_the_folder(problem, tmp_path):
    cm.solve(problem, LEARNER, seed=3, folder=tmp_path)
    start = cm.uniform_policy(problem.mdp)
    for message, arguments in {
        "seed differ": {"seed": 4},
        "start differ": {"seed": 3, "start": start},
    }.items():
        with pytest.raises(cm.SolverError, match=f"holds another run: {message}"):
            cm.solve(problem, LEARNER, folder=tmp_path, **arguments)


def test_a_full_disk_keeps_what_was_computed(problem, whole, monkeypatch, tmp_path):
    write, calls = checkpoints.write_arrays, []

    def full(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_arrays", full)
        patch.setattr(driver, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(driver, "WRITING_SHARE", 1e9)
        with pytest.raises(cm.SolverError, match=r"No space left on device.*make room"):
            cm.solve(problem, LEARNER, seed=3, folder=tmp_path)
    same_bits(cm.solve(problem, LEARNER, seed=3, folder=tmp_path), whole("VRPDPG"))


@pytest.mark.parametrize("damage", ["cut", "empty", "none"])
def test_half_written_folders_are_no_obstacle(damage, problem, whole, tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / ".lock").touch()
    if damage != "none":
        cm.solve(problem, LEARNER, seed=3, folder=tmp_path)
        for path in (tmp_path / "checkpoint").glob("*.safetensors"):
            path.write_bytes(path.read_bytes()[: 100 if damage == "cut" else 0])
    same_bits(cm.solve(problem, LEARNER, seed=3, folder=tmp_path), whole("VRPDPG"))


def test_states_are_read_back_as_they_were():
    state = {
        "fixed": (np.arange(3.0), np.array(2)),
        "more": Growing([(np.array(k), np.full(2, k)) for k in range(3)]),
        "plain": Plain(text="'array 0", none=None, inf=np.inf, parts=[{"x": np.eye(2)}, {}]),
    }
    like = {
        "fixed": (np.zeros(3), np.array(0)),
        "more": Growing([(np.array(0), np.zeros(2, int))]),
        "plain": Plain(),
    }
    found = from_arrays(to_arrays(state), like)
    np.testing.assert_array_equal(found["fixed"][0], np.arange(3.0))
    assert [int(entry[0]) for entry in found["more"]] == [0, 1, 2]
    assert found["plain"]["text"] == "'array 0"
    assert found["plain"]["none"] is None
    assert found["plain"]["inf"] == np.inf
    np.testing.assert_array_equal(found["plain"]["parts"][0]["x"], np.eye(2))
    assert found["plain"]["parts"][1] == {}
    with pytest.raises(cm.FileFormatError, match="another form"):
        from_arrays(to_arrays(state), {**like, "fixed": (np.zeros((3, 2)), np.array(0))})


# --- where runs start, what they record, what people see --------------------------------------------


@pytest.mark.parametrize("kind", ["policy", "run"])
@pytest.mark.parametrize("name", ["ColumnGeneration", "PDPG", "VRPDPG"])
def test_saved_policies_and_folders_of_runs_are_starts(name, kind, problem, tmp_path):
    earlier = cm.solve(problem, SOLVERS["PDPG"], folder=tmp_path / "run")
    earlier.policy.save(tmp_path / "policy.safetensors")
    place = tmp_path / ("run" if kind == "run" else "policy.safetensors")
    found = cm.solve(problem, SOLVERS[name], start=place, seed=3)
    same = cm.solve(
        problem, SOLVERS[name], start=earlier if kind == "run" else earlier.policy, seed=3
    )
    np.testing.assert_array_equal(found.occupancy, same.occupancy)
    assert ("multipliers" in found.stats["start"]) == (kind == "run")


def test_an_explicit_multiplier_wins_over_that_of_the_start(problem):
    earlier = cm.solve(problem, cm.PDPG())
    paper = {"primal_step": 0.1, "dual_step": 0.1, "iterations": 2, "tolerance": None}
    for given, expected in ((None, earlier.multipliers["hazard"]), (0.7, 0.7)):
        solver = cm.PDPG(**paper, initial_multiplier=given, dual_bound=5.0)
        found = cm.solve(problem, solver, start=earlier)
        assert found.history["multipliers"]["hazard"][0] == pytest.approx(expected)


def test_histories_have_a_bounded_number_of_rows(problem):
    def every(solver: cm.VRPDPG) -> int:
        return Plan.of(solver, None).every

    assert every(cm.VRPDPG(MOST_ROWS, 0.1, 0.3, 0.3, 10)) == 1
    assert every(cm.VRPDPG(MOST_ROWS + 1, 0.1, 0.3, 0.3, 10)) == 2
    assert every(cm.VRPDPG(10**6, 0.1, 0.3, 0.3, 10, record_every=3)) == 3
    solver = cm.PDPG(iterations=60, tolerance=None)
    full, thin = (finished(solver.prepare(Task(problem, rows=rows))) for rows in (None, 9))
    np.testing.assert_array_equal(thin.history["iteration"], np.arange(7, 61, 7))
    for name in ("objective", "gradient_norm"):
        np.testing.assert_array_equal(thin.history[name], full.history[name][6::7])
    np.testing.assert_array_equal(thin.occupancy, full.occupancy)


def finished(work: Work) -> cm.Solution:
    run = Run(work)
    while not run.finished:
        run.advance()
    return run.solution()


def test_without_a_terminal_long_work_says_a_line_now_and_then(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("sys.stderr", io.StringIO())
    line = progress.Progress("work", 1_000)
    for second in range(1_000):
        now[0] = float(second)
        line.update(second)
    line.close()
    lines = sys.stderr.getvalue().splitlines()
    assert len(lines) == 5  # after 1, 2, 4, 8 and 16 minutes
    assert lines[0] == "work [#                   ] 60/1,000 1/s 940 s left"
    silent = progress.Progress("work", 10, show=False)
    silent.update(10)
    assert len(sys.stderr.getvalue().splitlines()) == 5


def test_certify_proves_no_less_than_pdpg_has_proven(problem):
    found = cm.solve(problem, cm.PDPG(iterations=100, tolerance=1e-9))
    assert found.evidence is not None
    proven = cm.certify(problem, found).relative_gap
    assert proven <= found.stats["certified_gap"] * (1.0 + 1e-9)


@pytest.mark.parametrize("bound", [0.01, 50.0])
def test_a_multiplier_at_the_end_of_its_box_is_said(problem, bound):
    steps = {"primal_step": 0.05, "dual_step": 5.0, "dual_bound": bound}
    for solver in (
        cm.VRPDPG(60, momentum=0.3, horizon=10, **steps),
        cm.PDPG(iterations=60, tolerance=None, **steps),
    ):
        said = "At the end of its box" in cm.solve(problem, solver, seed=0).message
        assert said == (bound < 1)
