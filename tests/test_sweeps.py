"""Sweeps: what they vary, that neighbours and stops change nothing, and what happens when things go wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base import checkpoints as checkpoint
from cvxmdp.base.errors import SolverError
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.runs import run as driver
from cvxmdp.runs.lanes import Group
from cvxmdp.runs.run import Run
from cvxmdp.runs.specification import setting_text, start_text
from cvxmdp.solvers import vr_pdpg_lanes
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.vr_pdpg_lanes import run_lanes
from cvxmdp.solvers.vr_pdpg_work import run_chunk
from strategies import on_two_devices, small_problem

SOLVER = cm.VRPDPG(60, 0.1, 0.3, 0.3, 10, dual_bound=2.0, evaluate_every=20)
OVER = {"primal_step": [0.05, 0.1], "budget/hazard": [0.1, 0.3]}


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return small_problem()


@pytest.fixture(scope="module")
def swept(problem) -> cm.Sweep:
    return cm.sweep(problem, SOLVER, over=OVER, seeds=range(3))


@pytest.fixture(scope="module")
def one_by_one(problem) -> cm.Sweep:
    return cm.sweep(problem, SOLVER, over=OVER, seeds=range(3), lanes=1)


def same_bits(first: cm.Solution, second: cm.Solution) -> None:
    np.testing.assert_array_equal(first.stats["params"], second.stats["params"])
    np.testing.assert_array_equal(first.history["gradient_norm"], second.history["gradient_norm"])
    assert first.multipliers == second.multipliers


# --- what is run --------------------------------------------------------------------------------


def test_every_combination_with_every_seed(swept):
    assert len(swept) == 12
    assert swept.axes == {"primal_step": [0.05, 0.1], "budget/hazard": [0.1, 0.3]}
    seen = {(*run.settings.values(), run.seed) for run in swept}
    assert seen == {(p, b, s) for p in (0.05, 0.1) for b in (0.1, 0.3) for s in range(3)}
    assert swept.programs == 1


def test_with_one_lane_a_run_is_the_run_that_solve_makes(problem, one_by_one):
    run = one_by_one.select(primal_step=0.1, **{"budget/hazard": 0.3})[2]
    alone = cm.solve(
        problem.with_budget("hazard", 0.3), replace(SOLVER, primal_step=0.1), seed=run.seed
    )
    same_bits(run.solution, alone)
    assert run.solution.objective == pytest.approx(alone.objective, rel=1e-12)
    assert run.solution.problem.budgets["hazard"] == 0.3


@pytest.mark.parametrize("lanes", [1, 2])
def test_numbers_do_not_compile_again(problem, lanes):
    cm.sweep(problem, SOLVER, over={"dual_step": [0.2, 0.3]}, seeds=[4], lanes=lanes)
    before = run_chunk.count, run_lanes.count
    other = replace(SOLVER, momentum=0.7)
    cm.sweep(problem, other, over={"dual_step": [0.1, 0.9]}, seeds=[5], lanes=lanes)
    assert (run_chunk.count, run_lanes.count) == before


def test_what_changes_the_shape_compiles_once_per_value(problem):
    found = cm.sweep(
        problem, SOLVER, over={"horizon": [5, 10], "momentum": [0.3, 1.0]}, seeds=[0, 1]
    )
    assert found.programs == 2
    assert "2 compiled programs" in str(found)


def test_policies_can_be_varied(problem):
    found = cm.sweep(problem, SOLVER, over={"policy": [cm.Table(), cm.MLP(4)]}, seeds=[0])
    assert [run.solution.stats["family"] for run in found] == ["Table", "MLP"]


def test_pdpg_and_programs_are_swept_too(problem):
    for solver in (cm.PDPG(100), cm.ConvexProgram()):
        found = cm.sweep(problem, solver, over={"budget/hazard": [0.1, 0.3]})
        objectives = [run.solution.objective for run in found]
        assert objectives[0] < objectives[1]
        alone = cm.solve(problem.with_budget("hazard", 0.3), solver, seed=0)
        assert objectives[1] == pytest.approx(alone.objective, rel=1e-9)


def test_histories_are_thinned(problem):
    found = cm.sweep(problem, SOLVER, seeds=[0], rows=6)[0].solution
    np.testing.assert_array_equal(found.history["recorded"], [10, 20, 30, 40, 50, 60])
    whole = cm.solve(problem, SOLVER, seed=0)
    np.testing.assert_allclose(
        found.history["gradient_norm"], whole.history["gradient_norm"][9::10], rtol=1e-5
    )


# --- what they say together ---------------------------------------------------------------------


def test_summary_is_the_mean_over_seeds_with_its_interval(swept):
    row = next(r for r in swept.summary() if r["primal_step"] == 0.1 and r["budget/hazard"] == 0.3)
    runs_of_it = swept.select(primal_step=0.1, **{"budget/hazard": 0.3})
    values = np.array([run.solution.objective for run in runs_of_it])
    assert row["runs"] == 3
    assert row["objective"].value == pytest.approx(values.mean())
    half = 4.302652729 * values.std(ddof=1) / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert row["objective"].upper - row["objective"].value == pytest.approx(half, rel=1e-6)
    assert row["objective"].method == "Student's t over 3 seeds"
    with pytest.raises(cm.SettingsError, match=r"mean was an option of cvxmdp 0\.1.*write value"):
        _ = row["objective"].mean


def test_best_respects_the_tolerance(swept):
    with pytest.raises(SolverError, match="no settings have a mean violation within tolerance=0"):
        swept.best()
    generous = swept.best(tolerance=100.0)
    means = [row["objective"].value for row in swept.summary()]
    assert generous["objective"].value == max(means)
    least = swept.best(by="violation/hazard", tolerance=100.0)
    assert least["violation/hazard"].value == min(
        r["violation/hazard"].value for r in swept.summary()
    )
    with pytest.raises(SolverError, match=r"no column 'objectve'.*objective"):
        swept.best(by="objectve")


def test_curves_have_a_band(swept):
    curve = swept.curve("slack/hazard")
    assert curve["at"].tolist() == [0, 20, 40, 60]
    assert (curve["low"] <= curve["mean"]).all()
    assert swept.curve("episode_return", smooth=10)["mean"].shape == (51,)
    with pytest.raises(SolverError, match=r"no history 'episode_retrun'.*episode_return"):
        swept.curve("episode_retrun")


def test_tables(swept):
    frame = swept.to_pandas()
    assert len(frame) == 12
    assert {"primal_step", "budget/hazard", "seed", "objective", "violation/hazard"} <= set(frame)
    assert "12 runs, 1 compiled program" in str(swept)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"primal_stp": [1]}, r"unknown axis 'primal_stp'.*Did you mean 'primal_step'"),
        ({"budget/hazrd": [1]}, r"unknown axis 'budget/hazrd'.*budget/hazard"),
        ({"primal_step": 0.1}, r"'primal_step' takes a list of values; got 0\.1"),
        ({"primal_step": []}, "'primal_step' has no values"),
        ({"primal_step": [0.1, 0.1]}, r"a value occurs twice in the axis 'primal_step': \[0\.1, 0"),
        ({"momentum": [2.0]}, r"momentum must be positive and at most 1.*got 2\.0"),
    ],
)
def test_wrong_axes_are_named_before_anything_runs(problem, over, message):
    with pytest.raises(SolverError, match=message):
        cm.sweep(problem, SOLVER, over=over)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([], "at least one seed"),
        ([0, 0], "occurs twice"),
        ([0.5], "whole numbers"),
        ([True], "whole"),
    ],
)
def test_wrong_seeds_are_named(problem, seeds, message):
    with pytest.raises(SolverError, match=message):
        cm.sweep(problem, SOLVER, seeds=seeds)


@pytest.mark.parametrize("seconds", [-1, np.nan, "x"])
def test_wrong_times_are_named(problem, seconds):
    with pytest.raises(
        SolverError, match="checkpoint_seconds must be not negative and finite; got"
    ):
        cm.sweep(problem, SOLVER, checkpoint_seconds=seconds)


@cm.concave
def breaks_when_negative(occupancy):
    import jax.numpy as jnp

    return jnp.where(occupancy.min() < -1e-3, jnp.nan, 0.0) + 0.0 * occupancy.sum()


def test_a_run_that_breaks_does_not_take_the_others_with_it():
    base = small_problem()
    limits = {**base.constraints, "odd": breaks_when_negative >= -1.0}
    problem = cm.Problem(base.mdp, maximize=cm.linear("reward"), subject_to=limits)
    wild = replace(SOLVER, primal_step=1.0)
    for lanes in (1, 2):
        found = cm.sweep(problem, wild, over={"momentum": [0.05, 1.0]}, seeds=[0], lanes=lanes)
        broken, fine = (run.solution for run in found)
        assert broken.status is cm.Status.FAILED
        assert "is not finite" in broken.message
        assert fine.status is cm.Status.ITERATION_LIMIT
    assert found.best(tolerance=100.0)["momentum"] == 1.0
    with pytest.raises(
        SolverError, match=r"SweepRun\(\{'momentum': 0\.05\}, seed 0\) failed and has"
    ):
        found.curve("objective")
    # as two seeds of the same settings, whichever of them it is
    for order in ((0, 1), (1, 0)):
        one = cm.Sweep(
            problem, wild, [like(found[k], seed=k, index=n) for n, k in enumerate(order)], 1, False
        )
        (row,) = one.summary()
        assert (row["runs"], row["failed"]) == (2, 1)
        assert np.isnan([row["objective"].value, row["violation/odd"].value]).all()
        assert "2 runs, 1 compiled program" in str(one)
        assert "1 run failed" in str(one)
        with pytest.raises(SolverError, match="a run failed"):
            one.best(tolerance=100.0)


def like(run, **changes) -> SimpleNamespace:
    """A run that somebody else may have made."""
    facts = {"settings": {}, "solution": run.solution, "machines": run.machines, "seed": run.seed}
    return SimpleNamespace(**{**facts, **changes})


def test_no_runs_and_runs_of_other_lengths_are_errors_in_words(problem, swept):
    none = cm.Sweep(problem, SOLVER, [], 0, False)
    for ask in (none.best, lambda: none.curve("objective")):
        with pytest.raises(SolverError, match="there are no runs"):
            ask()
    short = replace(swept[0].solution, history={"objective": np.zeros(2)})
    two = [like(swept[0], index=0), like(swept[0], index=1, solution=short)]
    with pytest.raises(SolverError, match=r"of one length.*has 4 records, .* has 2\. Keep like"):
        cm.Sweep(problem, SOLVER, two, 1, False).curve("objective")


# --- lanes --------------------------------------------------------------------------------------


def test_lanes_do_not_depend_on_neighbours_or_position(problem):
    first = cm.sweep(problem, SOLVER, over={"primal_step": [0.05, 0.1]}, seeds=range(3), lanes=4)
    second = cm.sweep(problem, SOLVER, over={"primal_step": [0.1]}, seeds=[9, 1, 7, 2], lanes=4)
    mine, theirs = first.select(primal_step=0.1)[1], second[1]
    assert mine.seed == theirs.seed == 1
    same_bits(mine.solution, theirs.solution)


def test_lanes_agree_with_threads_to_rounding(problem):
    short = replace(SOLVER, iterations=5)
    threads, lanes = (cm.sweep(problem, short, seeds=range(3), lanes=n) for n in (1, 2))
    for mine, theirs in zip(threads, lanes, strict=True):
        np.testing.assert_allclose(
            mine.solution.stats["params"], theirs.solution.stats["params"], atol=1e-4
        )


def found_on_devices() -> list[float]:
    """How many devices there are, over how many a sweep is split, and an objective."""
    kept, old = [], vr_pdpg_lanes.split
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vr_pdpg_lanes, "split", lambda tree: kept.append(old(tree)) or kept[-1])
        found = cm.sweep(small_problem(), SOLVER, seeds=range(4), lanes=4)
    leaf = jax.tree.leaves(kept[0])[0]
    return [len(jax.devices()), len(leaf.sharding.device_set), found[3].solution.objective]


def test_lanes_are_split_over_devices():
    split, whole = on_two_devices("test_sweeps.found_on_devices"), found_on_devices()
    assert split[:2] == ["2", "2"]
    assert whole[:2] == [1, 1]
    assert float(split[2]) == pytest.approx(whole[2], rel=1e-3)


# --- stops and starts ---------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_two_sweeps_of_the_same_call_have_the_same_bits(problem, lanes):
    first, second = (cm.sweep(problem, SOLVER, seeds=range(4), lanes=lanes) for _ in range(2))
    for mine, theirs in zip(first, second, strict=True):
        same_bits(mine.solution, theirs.solution)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_sweep_goes_on_with_the_same_bits(
    problem, tmp_path, keyboard, monkeypatch, lanes, after
):
    whole = cm.sweep(problem, SOLVER, seeds=range(4), lanes=lanes)
    plain, calls = Group.advance, []

    def interrupted(self):
        calls.append(None)
        if len(calls) == after + 1:
            signal.raise_signal(signal.SIGINT)
        return plain(self)

    monkeypatch.setattr(Group, "advance", interrupted)
    monkeypatch.setattr(driver, "PIECE_SECONDS", 1e-4)
    partial = cm.sweep(problem, SOLVER, seeds=range(4), lanes=lanes, folder=tmp_path / "s")
    assert partial.interrupted
    assert partial[0].solution.status is cm.Status.INTERRUPTED
    assert partial[0].solution.stats["iterations"] < 60
    monkeypatch.undo()
    again = cm.sweep(problem, SOLVER, seeds=range(4), lanes=lanes, folder=tmp_path / "s")
    assert not again.interrupted
    for mine, theirs in zip(again, whole, strict=True):
        same_bits(mine.solution, theirs.solution)


def test_a_finished_sweep_is_read_not_run(problem, tmp_path, monkeypatch):
    first = cm.sweep(problem, SOLVER, seeds=range(2), folder=tmp_path)

    def never(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr("cvxmdp.solvers.vr_pdpg_lanes.run_lanes", never)
    second = cm.sweep(problem, SOLVER, seeds=range(2), folder=tmp_path)
    for mine, theirs in zip(second, first, strict=True):
        same_bits(mine.solution, theirs.solution)


def test_pdpg_results_are_kept_as_well(problem, tmp_path, monkeypatch):
    first = cm.sweep(problem, cm.PDPG(60), seeds=[0], folder=tmp_path)[0].solution
    monkeypatch.setattr("cvxmdp.solvers.pdpg_work.run_piece", None)
    second = cm.sweep(problem, cm.PDPG(60), seeds=[0], folder=tmp_path)[0].solution
    assert second.objective == pytest.approx(first.objective, rel=1e-12)
    assert second.status is first.status
    assert str(second).splitlines()[-1].startswith("PDPG (natural), 60 iterations")
    np.testing.assert_array_equal(second.history["objective"], first.history["objective"])


def test_another_sweep_does_not_touch_the_folder(problem, tmp_path):
    cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SolverError, match="holds another sweep: seeds differ"):
        cm.sweep(problem, SOLVER, seeds=[1], folder=tmp_path)
    with pytest.raises(SolverError, match="holds another sweep: problem differ"):
        cm.sweep(problem.with_budget("hazard", 0.2), SOLVER, seeds=[0], folder=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_given_in_another_order_is_another_sweep(problem, tmp_path):
    """Checkpoints go by place: a run would come back with the other's budget on it."""
    call = {"problem": problem, "solver": cm.ConvexProgram(), "folder": tmp_path}
    over = {"budget/hazard": [0.1, 0.3], "tolerance": [1e-8, 1e-9]}
    swept = cm.sweep(**call, over=over, seeds=[0, 1])
    turned = {"budget/hazard": [0.3, 0.1], "tolerance": [1e-8, 1e-9]}
    for axes, seeds, what in (
        (turned, [0, 1], "axes"),
        (dict(reversed(over.items())), [0, 1], "axes"),
        (over, [1, 0], "seeds"),
    ):
        with pytest.raises(SolverError, match=f"holds another sweep: {what} differ"):
            cm.sweep(**call, over=axes, seeds=seeds)
    again = cm.sweep(**call, over=over, seeds=[0, 1])
    assert [r.solution.objective for r in again] == [r.solution.objective for r in swept]


def iterations_kept(problem, folder: Path) -> int:
    """How far the run in a folder is."""
    facts = json.loads((folder / "sweep.json").read_text())
    saved = checkpoint.Checkpoints(folder, "sweep", facts).load("runs-00000")
    run = Run(SOLVER.prepare(Task(problem, seed=0)))
    run.restore(saved)
    return run.work.where(run.state)[0]


def test_a_damaged_checkpoint_is_noticed_and_the_previous_one_used(problem, tmp_path):
    whole = cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path, checkpoint_seconds=0.0)
    newest = tmp_path / "runs-00000.safetensors"
    data = bytearray(newest.read_bytes())
    data[-5] ^= 1
    newest.write_bytes(data)
    assert 0 < iterations_kept(problem, tmp_path) < 60  # the one before the last
    again = cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path)
    same_bits(again[0].solution, whole[0].solution)


@pytest.mark.parametrize("left", [0, 10, 200])
def test_a_cut_checkpoint_is_noticed(problem, tmp_path, left):
    whole = cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path)
    for path in tmp_path.glob("runs-*"):
        path.write_bytes(path.read_bytes()[:left])
    again = cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path)
    same_bits(again[0].solution, whole[0].solution)


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_runs(problem, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SolverError, match=r"cannot be used for the sweep.*another folder="):
        cm.sweep(problem, SOLVER, folder=tmp_path / "file")


def test_a_full_disk_keeps_what_was_computed(problem, tmp_path, monkeypatch):
    write, calls = checkpoint.write_arrays, []

    def full(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "write_arrays", full)
    with pytest.raises(SolverError, match=r"No space left on device.*repeat the call"):
        cm.sweep(problem, SOLVER, seeds=[0], folder=tmp_path, checkpoint_seconds=0.0)
    monkeypatch.undo()
    assert 0 < iterations_kept(problem, tmp_path) < 60


KILLED = """
import sys; sys.path.insert(0, "tests")
import jax.numpy as jnp
import numpy as np
from dataclasses import replace
from strategies import small_problem
from test_sweeps import SOLVER
import cvxmdp as cm
solver = replace(SOLVER, iterations=20_000, evaluate_every=200)
print("ready", flush=True)
found = cm.sweep(small_problem(), solver, seeds=range(3), folder=sys.argv[1], checkpoint_seconds=0.0)
np.savez(sys.argv[2], *[run.solution.stats["params"] for run in found])
"""


def test_killed_at_random_points_a_sweep_ends_with_the_same_bits(tmp_path):
    """A process that is killed outright, again and again, until one run through."""
    root = Path(__file__).parent.parent

    def start(folder: Path, out: Path) -> subprocess.Popen:
        command = [sys.executable, "-c", KILLED, str(folder), str(out)]
        return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)

    whole = start(tmp_path / "whole", tmp_path / "whole.npz")
    assert whole.wait(timeout=300) == 0
    random, kills = np.random.default_rng(0), 0
    for patience in [*(0.2 + random.random(2)), None]:
        process = start(tmp_path / "killed", tmp_path / "killed.npz")
        process.stdout.readline()
        try:
            process.wait(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills >= 1
    with np.load(tmp_path / "whole.npz") as mine, np.load(tmp_path / "killed.npz") as theirs:
        for name in mine.files:
            np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_run_has_its_share_of_the_time(problem, lanes):
    for run in cm.sweep(problem, SOLVER, seeds=range(3), lanes=lanes):
        assert run.solution.stats["seconds"] > 0


# --- what tells one sweep from another -----------------------------------------------------------


def weighted(weight):
    @cm.concave
    def covered(occupancy):
        return (weight * jnp.sqrt(occupancy.sum() + 0.1)).sum()

    return covered


def test_values_that_a_function_closes_over_make_another_problem(problem):
    def mark(weight):
        return fingerprint(cm.Problem(problem.mdp, maximize=weighted(weight)))

    assert mark(1.0) == mark(1.0) != mark(2.0)
    assert mark(np.ones(3)) != mark(np.zeros(3))


def test_functions_whose_text_does_not_tell_them_apart_are_other_problems(problem):
    """Two on one line have one text; those typed in, or made by exec, have none."""

    def mark(function):
        return fingerprint(cm.Problem(problem.mdp, maximize=cm.concave(function)))

    both = [lambda x: -1.0 * (x**2).sum(), lambda x: -2.0 * (x**2).sum()]  # fmt: skip
    assert mark(both[0]) == mark(both[0]) != mark(both[1])

    def typed(number):
        made = {}
        exec(f"def worth(x):\n    return -{number} * (x**2).sum()", made)
        return made["worth"]

    assert mark(typed(1.0)) == mark(typed(1.0)) != mark(typed(2.0))


def test_arguments_and_signals_make_another_environment():
    pytest.importorskip("gymnasium")

    def mark(signals=None, absent=None, **arguments):
        env = cm.GymnasiumEnv(
            "FrozenLake-v1", 0.9, n_envs=1, signals=signals, absent=absent, **arguments
        )
        found = fingerprint(cm.Problem(env, maximize=cm.linear("reward")))
        env.close()
        return found

    def told(unit):
        return {"fall": lambda *step: unit * step[-1]}

    assert mark(is_slippery=False) == mark(is_slippery=False)
    different = [
        mark(is_slippery=False),
        mark(is_slippery=True),
        mark(signals=told(1.0)),
        mark(signals=told(2.0)),
        mark(absent={"cost": 0.0}),
    ]
    assert len(set(different)) == len(different)


def test_a_path_is_the_same_start_however_it_is_written(tmp_path):
    cm.TabularPolicy(np.eye(2)).save(tmp_path / "policy.safetensors")
    path = tmp_path / "policy.safetensors"
    assert start_text(path) == start_text(str(path)) != start_text(np.eye(2))


RULE = "import optax; from cvxmdp.runs.specification import setting_text as text; "


def test_an_optimiser_is_the_same_in_every_process_and_another_with_another_step():
    optax = pytest.importorskip("optax")
    code = RULE + "print(text(optax.adam(0.05)))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == setting_text(optax.adam(0.05)) != setting_text(optax.adam(0.1))
    assert " at 0x" not in there.stdout


@pytest.mark.parametrize("seeds", [3, "many", None])
def test_seeds_are_several(seeds) -> None:
    mdp = cm.garnet(4, 2, 2, discount=0.9, seed=0)
    with pytest.raises(cm.SolverError, match=r"seeds=range\(16\); got"):
        cm.sweep(cm.Problem(mdp, maximize=cm.linear("reward")), cm.PDPG(), seeds=seeds)


def test_one_run_has_no_interval():
    grid = cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4])
    found = cm.sweep(cm.Problem(grid, maximize=cm.entropy()), cm.PDPG(iterations=2), seeds=[0])
    assert "nan" not in str(found)
    assert "±" not in str(found)
