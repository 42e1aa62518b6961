"""What disks, signals and other processes do to files: nothing is left half-written, and no word is wrong."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from conftest import resident_kilobytes
from strategies import small_problem

REPORT = """
import cvxmdp as cm
print("ready", flush=True)
cm.report(cm.load_solution({sources!r}), {target!r})
"""


@pytest.fixture(scope="module")
def solution() -> cm.Solution:
    return cm.solve(small_problem(), cm.ConvexProgram())


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: writing more is an OSError, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


WRITERS: dict[str, Callable[[cm.Solution, Path], object]] = {
    "model.safetensors": lambda found, path: found.problem.mdp.save(path),
    "policy.safetensors": lambda found, path: found.policy.save(path),
    "policy.csv": lambda found, path: found.policy.save(path),
    "certificate.json": lambda found, path: cm.certify(found.problem, found).save(path),
    "problem": lambda found, path: found.problem.save(path),
    "solution": lambda found, path: found.save(path),
    "run": lambda found, path: cm.solve(found.problem, cm.ColumnGeneration(1e-2), folder=path),
}


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one): one.read_bytes() for one in files if one.name != ".lock"}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("room", [0, 150])
def test_a_full_disk_is_an_error_and_leaves_no_half_file(
    name: str, room: int, solution: cm.Solution, tmp_path: Path
) -> None:
    with full_disk(room), pytest.raises((OSError, cm.CvxmdpError)):
        WRITERS[name](solution, tmp_path / name)
    assert all(len(data) <= room for data in contents(tmp_path).values())
    WRITERS[name](solution, tmp_path / name)  # the folder is not blocked


@pytest.mark.parametrize("name", ["model.safetensors", "policy.safetensors", "certificate.json"])
def test_what_was_there_stays_when_the_disk_is_full(
    name: str, solution: cm.Solution, tmp_path: Path
) -> None:
    WRITERS[name](solution, tmp_path / name)
    before = contents(tmp_path)
    with full_disk(100), pytest.raises(OSError):
        WRITERS[name](solution, tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write")
@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written_is_named(name: str, solution: cm.Solution) -> None:
    with pytest.raises(OSError, match="/proc"):
        WRITERS[name](solution, Path("/proc") / name)


def test_a_report_that_was_killed_is_whole_or_not_there(
    solution: cm.Solution, tmp_path: Path
) -> None:
    kills(solution, tmp_path, 3)


@pytest.mark.long
def test_a_report_that_was_killed_fifty_times(solution: cm.Solution, tmp_path: Path) -> None:
    kills(solution, tmp_path, 50)


def kills(solution: cm.Solution, folder: Path, times: int) -> None:
    run, target = folder / "run", folder / "report.html"
    cm.solve(solution.problem, cm.ColumnGeneration(1e-2), folder=run)
    code = REPORT.format(sources=str(run), target=str(target))
    random = np.random.default_rng(3)
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(3.0 * random.random())
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        assert not target.exists() or target.read_text("utf-8").rstrip().endswith("</html>")
        assert {one.name for one in folder.glob("*") if not one.name.startswith(".")} <= {
            "run",
            "report.html",
        }
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    assert target.read_text("utf-8").rstrip().endswith("</html>")


@pytest.mark.long
def test_memory_stays_bounded_over_a_thousand_solves_and_a_hundred_sweeps() -> None:
    def solve_some(count: int) -> None:
        for seed in range(count):
            mdp = cm.garnet(4 + seed % 5, 2, 2, discount=0.9, seed=seed)
            cm.solve(cm.Problem(mdp, maximize=cm.entropy()), cm.ColumnGeneration(1e-2))

    def sweep_some(count: int) -> None:
        for _ in range(count):
            over = {"tolerance": [1e-1, 1e-2]}
            cm.sweep(small_problem(), cm.ColumnGeneration(), over, progress=False)

    solve_some(200)
    sweep_some(20)
    before = resident_kilobytes()
    solve_some(800)
    sweep_some(80)
    assert resident_kilobytes() - before < 200_000
