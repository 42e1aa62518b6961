"""Sweeps, frontiers and coverage sets on a real Ray: the bits of one machine, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from command_line import Done
from cvxmdp.runs.backends import ray_backend
from cvxmdp.runs.backends.ray_backend import pack, unpack
from cvxmdp.runs.backends.ray_workers import Workers
from strategies import small_problem
from test_sweeps import OVER, SOLVER, same_bits

ray = pytest.importorskip("ray")
TWO = cm.Ray(workers=2)


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests of this module: starting it takes longer than they do."""
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=100_000_000,
    )
    yield
    ray.shutdown()


def same(mine: cm.Sweep, theirs: cm.Sweep) -> None:
    for one, other in zip(mine, theirs, strict=True):
        same_bits(one.solution, other.solution)
        assert one.solution.objective == other.solution.objective


def test_an_address_where_nobody_listens_is_an_error_at_once():  # first: a Ray that the process has is taken
    with pytest.raises(
        cm.SettingsError, match=r"no Ray cluster at '127.0.0.1:1'.*ray start --head"
    ):
        cm.sweep(small_problem(), SOLVER, seeds=[0], backend=cm.Ray("127.0.0.1:1", workers=1))


def test_a_sweep_has_the_bits_of_one_machine_and_the_same_folder(cluster, tmp_path, capsys):
    problem = small_problem()
    here = cm.sweep(problem, SOLVER, over=OVER, seeds=range(2), lanes=2, folder=tmp_path / "a")
    there = cm.sweep(
        problem,
        SOLVER,
        over=OVER,
        seeds=range(2),
        lanes=2,
        folder=tmp_path / "b",
        backend=TWO,
        progress=True,
    )
    same(there, here)
    assert there.machines == here.machines
    assert len(there.machines) == 1
    assert "of 2 workers busy" in capsys.readouterr().err
    names = [sorted(path.name for path in (tmp_path / f).glob("*.safetensors")) for f in "ab"]
    assert names[0] == names[1]
    # What one began, the other reads.
    same(cm.sweep(problem, SOLVER, over=OVER, seeds=range(2), folder=tmp_path / "b"), here)

    # The frontier, on the same cluster: every number, and the proofs.
    mine, theirs = (cm.frontier(problem, "hazard", n=4, backend=b) for b in (None, TWO))
    assert str(mine) == str(theirs)
    assert [p.budget for p in mine.points] == [p.budget for p in theirs.points]
    assert theirs.points[0].solution.problem.mdp is problem.mdp
    assert cm.check(theirs.points[1].certificate, theirs.points[1].solution.problem)


def test_models_do_not_travel_with_questions_and_answers():
    problem = cm.Problem(cm.garnet(2_000, 4, 4, seed=0), maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    packed = pack((solution, problem.mdp.flow), problem)
    table = 8 * problem.mdp.actions.size  # of a policy or an occupancy
    assert len(packed) < 5 * table < len(ray.cloudpickle.dumps(solution))
    found, flow = unpack(packed, problem)
    assert found.problem.mdp is problem.mdp
    assert flow is problem.mdp.flow
    assert found.objective == solution.objective


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1; got 0"),
        ({"workers": 1.5}, "workers must be a whole number of at least 1; got 1.5"),
        ({"address": 8265}, "address is a "),
    ],
)
def test_what_is_no_cluster_is_said(given, said):
    with pytest.raises(cm.SettingsError, match=said):
        cm.Ray(**given)


# --- shards, for schedulers without Ray ---------------------------------------------------------


def test_shards_fill_one_folder(tmp_path):
    problem = small_problem()
    whole = cm.sweep(problem, SOLVER, over=OVER, seeds=[0], lanes=1)
    parts = [
        cm.sweep(problem, SOLVER, over=OVER, seeds=[0], lanes=1, folder=tmp_path, shard=(k, 3))
        for k in (3, 1, 2)
    ]
    assert sorted(run.index for part in parts for run in part) == [0, 1, 2, 3]
    assert [len(part) for part in parts] == [1, 2, 1]
    together = cm.sweep(problem, SOLVER, over=OVER, seeds=[0], lanes=1, folder=tmp_path)
    same(together, whole)
    nothing = cm.sweep(problem, SOLVER, over=OVER, seeds=[0], lanes=1, shard=(5, 5))
    assert str(nothing).startswith("0 runs")
    for shard in [(0, 2), (3, 2), "1/2", (1.0, 2)]:
        with pytest.raises(cm.SettingsError, match="the i-th of n parts"):
            cm.sweep(problem, SOLVER, shard=shard)


SWEEP_FILE = """
problem = "learn.toml"
seeds = 2
[over]
momentum = [0.5, 1.0]
"""


def test_shards_by_command(tmp_path):
    from test_cli_resume import PROBLEM, SAMPLING

    (tmp_path / "learn.toml").write_text(PROBLEM + SAMPLING)
    (tmp_path / "sweep.toml").write_text(SWEEP_FILE)
    folder = tmp_path / "swept"
    for part in ("2/2", "1/2"):
        done = Done("sweep", tmp_path / "sweep.toml", "-o", folder, "--shard", part)
        assert done.code == 0
        assert "2 runs" in done.out
        assert f"Part {part[0]} of 2" in done.err
    assert len(list((folder / "runs").iterdir())) == 4
    done = Done("sweep", tmp_path / "sweep.toml", "-o", folder)
    assert "4 runs" in done.out
    wrong = Done("sweep", tmp_path / "sweep.toml", "-o", folder, "--shard", "3/2")
    assert wrong.code == 2
    assert "expected i/n" in wrong.err


# --- longer: who dies, and who asks -------------------------------------------------------------


LONG = replace(SOLVER, iterations=30_000, evaluate_every=1_500)


@pytest.mark.long
def test_a_killed_worker_costs_its_last_piece_alone(cluster, tmp_path, monkeypatch):
    problem = small_problem()
    whole = cm.sweep(problem, LONG, seeds=range(4), lanes=1)
    plain, killed, taken = Workers.collect, [], []

    def killing(self, seconds):
        for job, actor, piece, arrays in plain(self, seconds):
            if piece is not None:
                taken.append((job.key, piece.progress))
                if len(killed) < 3 and not piece.finished:
                    killed.append(job.key)
                    pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
                    os.kill(pid, signal.SIGKILL)
            yield job, actor, piece, arrays

    monkeypatch.setattr(Workers, "collect", killing)
    found = cm.sweep(
        problem,
        LONG,
        seeds=range(4),
        lanes=1,
        folder=tmp_path,
        backend=TWO,
        checkpoint_seconds=0.2,
    )
    assert len(killed) == 3
    same(found, whole)
    for number in range(
        4
    ):  # progress is never lost: every piece begins where the last one taken ended
        shares = [share for key, share in taken if key == number]
        assert shares == sorted(shares)
        assert len(set(shares)) == len(shares)


@pytest.mark.long
def test_a_task_that_kills_every_worker_is_named(cluster):
    problem = small_problem()

    class Deadly(cm.PDPG):
        def prepare(self, task):
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(cm.SolverError, match="3 workers in a row died at the same task"):
        cm.sweep(problem, Deadly(5), seeds=[0], backend=TWO)


DRIVER = """
import sys; sys.path.insert(0, "tests")
import numpy as np
from strategies import small_problem
from test_ray import LONG
import cvxmdp as cm
if __name__ == "__main__":
    found = cm.sweep(
        small_problem(), LONG, seeds=range(4), lanes=1, folder=sys.argv[1], backend=cm.Ray(workers=2),
        checkpoint_seconds=0.2,
    )
    np.savez(sys.argv[2], *[run.solution.stats["params"] for run in found])
"""


@pytest.mark.long
def test_a_killed_driver_goes_on_with_the_same_bits(tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "s"), "out.npz"]
    command[-1] = str(tmp_path / "out.npz")
    root = Path(__file__).parent.parent
    first = subprocess.Popen(command, cwd=root)
    ends = time.monotonic() + 240
    while not list((tmp_path / "s").glob("runs-*.previous")) and time.monotonic() < ends:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "out.npz").exists()
    assert list((tmp_path / "s").glob("runs-*"))
    subprocess.run(command, cwd=root, check=True, timeout=300)
    whole = cm.sweep(small_problem(), LONG, seeds=range(4), lanes=1)
    with np.load(tmp_path / "out.npz") as found:
        for name, run in zip(found.files, whole, strict=True):
            np.testing.assert_array_equal(found[name], run.solution.stats["params"])


@pytest.mark.long
@pytest.mark.parametrize("solver", [cm.PDPG(200), cm.ColumnGeneration(), cm.ConvexProgram()])
def test_other_solvers(cluster, solver):
    problem = small_problem()
    over = {"budget/hazard": [0.1, 0.2, 0.3]}
    here, there = (cm.sweep(problem, solver, over=over, backend=b) for b in (None, TWO))
    for mine, theirs in zip(here, there, strict=True):
        assert mine.solution.objective == theirs.solution.objective
        assert mine.solution.status is theirs.solution.status


@pytest.mark.long
def test_coverage_sets(cluster, monkeypatch):
    problem = small_problem()
    objectives = {"reward": cm.linear("reward"), "safe": -cm.linear("hazard"), "h": cm.entropy()}
    asked = []
    plain = ray_backend._Asking.ask
    monkeypatch.setattr(ray_backend._Asking, "ask", lambda *a: asked.append(None) or plain(*a))
    here, there = (cm.pareto(problem, objectives, tolerance=0.05, backend=b) for b in (None, TWO))
    assert str(here) == str(there)
    for mine, theirs in zip(here.solved, there.solved, strict=True):
        np.testing.assert_array_equal(mine.values, theirs.values)
    # Some questions are asked ahead in vain, but not most.
    assert len(here.solved) <= len(asked) <= 2 * len(here.solved)
