"""Commands that are interrupted, killed, or two at once; and sweeps, which go on where they were."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from command_line import PROBLEM, SAMPLING, Done
from cvxmdp.cli import reproducing
from cvxmdp.cli.outcome import Exit
from cvxmdp.runs.interruption import leave_on_interrupts
from cvxmdp.runs.run_folder import RunState, read_run, state_of

pytestmark = pytest.mark.usefixtures("keyboard")


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM)
    return path


LONG = ("--solver", "PDPG", "--set", "iterations=100000000", "--set", "check_every=20")
# The command line, with a checkpoint after every piece.
OFTEN = (
    "import sys, cvxmdp.runs.run as r; r.CHECKPOINT_SECONDS, r.WRITING_SHARE = 0.0, 1.0\n"
    "from cvxmdp.cli import app; sys.argv[0] = 'cvxmdp'; app()"
)


def started(*words: str | Path) -> subprocess.Popen:
    """A command that keeps a run, once it has written its first checkpoint."""
    command = [sys.executable, "-c", OFTEN, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    checkpoint = Path(words[words.index("-o") + 1]) / "checkpoint" / "checkpoint.safetensors"
    ends = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < ends and process.poll() is None:
        time.sleep(0.02)
    return process


def long_run(problem: Path, run: Path) -> subprocess.Popen:
    return started("solve", problem, "-o", run, *LONG, "--set", "tolerance=1e-300", "--json")


def test_interrupted_runs_answer_with_what_there_is_and_go_on(problem, tmp_path):
    run = tmp_path / "run"
    process = long_run(problem, run)
    second = Done("solve", problem, "-o", run)  # while the first is at work
    assert second.code == Exit.BAD_INPUT
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == Exit.INTERRUPTED
    assert json.loads(out)["status"] == "interrupted"
    assert read_run(run).status == "interrupted"
    assert "Interrupted" in Done("show", run).out
    # The same command goes on: it never has fewer iterations than before.
    again = long_run(problem, run)
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=120)
    assert read_run(run).stats["iterations"] >= json.loads(out)["stats"]["iterations"]


# Ctrl-C while the command is loading a package, in a place that no exception leaves.
LOADING = """
import signal, sys
class Package:
    def find_spec(self, name, path, target=None):
        if name == "cvxmdp.cli.commands":
            Freed()
class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
from cvxmdp.cli import app
sys.meta_path.insert(0, Package())
app()
"""


def test_interrupted_before_there_is_a_run_a_command_ends_at_once(problem):
    command = [sys.executable, "-c", LOADING, "solve", str(problem), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (Exit.INTERRUPTED, "Error: interrupted\n")
    assert json.loads(done.stdout)["error"] == "interrupted"


def test_an_interrupted_reproduction_says_where_its_runs_are(tmp_path, monkeypatch, capfd):
    def left(code):
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", left)
    monkeypatch.setattr(
        reproducing, "reproduce", lambda *_, **__: signal.raise_signal(signal.SIGINT)
    )
    leave_on_interrupts("Error: interrupted\n")  # as the command does; the fixture undoes it
    assert Done("reproduce", "8x8", "-o", tmp_path).code == Exit.INTERRUPTED
    said = (
        f"Error: interrupted\nRuns that were made are kept in {tmp_path / '8x8'}; the same command"
    )
    assert capfd.readouterr().err.startswith(said)


def test_a_killed_run_is_seen_as_unfinished_and_run_again(problem, tmp_path):
    run = tmp_path / "run"
    process = long_run(problem, run)
    shown = Done("show", tmp_path)
    assert "Another process is writing this run" in shown.out
    process.kill()
    process.communicate(timeout=120)
    assert state_of(run) is RunState.UNFINISHED
    assert "not finished" in Done("show", tmp_path).out
    assert Done("show", tmp_path, "--json").json["runs"][0]["state"] == "unfinished"
    assert "no complete run" in Done("report", tmp_path, "-o", tmp_path / "r.html").err
    different = Done("solve", problem, "-o", run)
    assert different.code == Exit.BAD_INPUT  # it was another solver's
    assert Done("solve", problem, "-o", run, "--overwrite").code == Exit.OK


def test_a_run_that_ended_before_its_first_file_does_not_block_the_folder(problem, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoint").mkdir(parents=True)
    (run / ".lock").touch()
    (run / ".run.json.abc").touch()
    assert Done("solve", problem, "-o", run).code == Exit.OK
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    assert "other things in it" in Done("solve", problem, "-o", tmp_path / "other").err


def test_a_checkpoint_of_another_machine_is_not_gone_on_from_in_silence(problem, tmp_path):
    run, few = tmp_path / "run", ("--solver", "ColumnGeneration")
    words = ("solve", problem, "-o", run, *few, "--time-limit", 0.001)
    assert Done(*words).code == Exit.NOT_CONVERGED
    facts = run / "checkpoint" / "run.json"
    assert "Its checkpoint" not in Done(*words).err
    facts.write_text(facts.read_text().replace('"numpy": "', '"numpy": "0.'))
    assert "Its checkpoint is of another numpy: it begins again" in Done(*words).err
    facts.write_text("{")
    assert "is damaged" in Done(*words).err
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").write_text("no folder")
    assert "cannot be used for the run" in Done(*words).err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_learning_run_goes_on_with_the_same_bits(tmp_path, how):
    text = (PROBLEM + SAMPLING).replace("iterations = 40", "iterations = 6000")
    (tmp_path / "learn.toml").write_text(text)
    run = tmp_path / "run"
    words = ["solve", str(tmp_path / "learn.toml"), "--seed", "1"]
    process = started(*words, "-o", str(run))
    process.send_signal(how)
    process.communicate(timeout=120)
    assert process.returncode == (Exit.INTERRUPTED if how == signal.SIGINT else -how)
    assert (run / "checkpoint").is_dir()
    resumed = Done(*words, "-o", run)
    assert resumed.code == Exit.NOT_CONVERGED
    assert "It goes on" in resumed.err
    assert not (run / "checkpoint").exists()
    assert Done(*words, "-o", tmp_path / "whole").code == Exit.NOT_CONVERGED
    one, other = read_run(run), read_run(tmp_path / "whole")
    assert one.objective == other.objective
    assert set(one.series) == set(other.series)
    for name, series in one.series.items():
        assert np.array_equal(series.iterations, other.series[name].iterations), name
        assert np.array_equal(series.values, other.series[name].values), name


# --- sweeps -------------------------------------------------------------------------------------------------

SWEEP = """
problem = "learn.toml"
seeds = 2
[over]
momentum = [0.5, 1.0]
"budget/hazard" = [0.05, 0.1]
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    (tmp_path / "learn.toml").write_text(PROBLEM + SAMPLING)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path / "sweep.toml"


def test_sweep(sweep_file, tmp_path):
    folder = tmp_path / "swept"
    done = Done("sweep", sweep_file, "-o", folder, "--certify")
    assert done.code == Exit.OK
    assert "8 runs" in done.out
    assert "momentum=0.5, budget/hazard=0.05" in Done("show", folder).out
    listed = Done("show", folder, "--json").json["runs"]
    assert len(listed) == 8
    assert [entry["seed"] for entry in listed] == [0, 1] * 4
    assert all(entry["certificate"]["upper"] >= entry["certificate"]["lower"] for entry in listed)
    first = read_run(folder / "runs" / "00000")
    assert first.label == "momentum=0.5, budget/hazard=0.05"
    assert first.constraints[0].budget == 0.05
    assert read_run(folder / "runs" / "00007").settings["momentum"] == "1.0"
    # a run of the sweep is the run that its own command makes
    again = Done("solve", tmp_path / "learn.toml", "--seed", 0, "-o", tmp_path / "one")
    assert again.code == Exit.NOT_CONVERGED
    assert read_run(tmp_path / "one").objective == first.objective
    for_machines = Done("sweep", sweep_file, "-o", folder, "--certify", "--json").json
    assert for_machines["runs"] == 8
    assert len(for_machines["summary"]) == 4
    assert for_machines["summary"][0]["runs"] == 2
    assert "2 seeds" in for_machines["summary"][0]["objective"]["method"]
    report = tmp_path / "report.html"
    assert Done("report", folder, "-o", report).code == Exit.OK
    assert "momentum=0.5, budget/hazard=0.05" in report.read_text()


def test_another_sweep_is_not_mixed_in(sweep_file, tmp_path):
    assert Done("sweep", sweep_file, "-o", tmp_path / "swept").code == Exit.OK
    sweep_file.write_text(SWEEP.replace("1.0", "0.9"))
    done = Done("sweep", sweep_file, "-o", tmp_path / "swept")
    assert done.code == Exit.BAD_INPUT
    assert "holds another sweep" in done.err
    assert "other things in it" in Done("sweep", sweep_file, "-o", tmp_path).err
    sweep_file.write_text(SWEEP.replace("momentum", "momentun"))
    done = Done("sweep", sweep_file, "-o", tmp_path / "other")
    assert done.code == Exit.BAD_INPUT
    assert "Did you mean 'momentum'" in done.err


def test_runs_of_an_earlier_sweep_are_replaced(sweep_file, tmp_path):
    folder, problem = tmp_path / "swept", tmp_path / "learn.toml"
    sweep_file.write_text('problem = "learn.toml"\n')
    text = PROBLEM + '[solver]\nname = "ConvexProgram"\n'
    for budget in (0.05, 0.1):
        problem.write_text(text.replace("<= 0.05", f"<= {budget}"))
        assert Done("sweep", sweep_file, "-o", folder).code == Exit.OK
        kept = read_run(folder / "runs" / "00000")
        assert kept.constraints[0].budget == budget
        assert kept.rerun == "cvxmdp solve learn.toml --solver ConvexProgram --seed 0"
        shutil.rmtree(folder / "checkpoints")  # as the command says of a folder with another sweep


def test_an_interrupted_sweep_goes_on_with_the_same_bits(sweep_file, tmp_path):
    text = (PROBLEM + SAMPLING).replace("iterations = 40", "iterations = 5000")
    (tmp_path / "learn.toml").write_text(text)
    folder = tmp_path / "swept"
    command = [
        sys.executable,
        "-m",
        "cvxmdp",
        "sweep",
        str(sweep_file),
        "-o",
        str(folder),
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ends = time.monotonic() + 120
    while not (folder / "checkpoints" / "sweep.json").exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert "another process" in Done("sweep", sweep_file, "-o", folder).err
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    interrupted = process.returncode == Exit.INTERRUPTED
    resumed = Done("sweep", sweep_file, "-o", folder)
    assert resumed.code == Exit.OK
    assert Done("sweep", sweep_file, "-o", tmp_path / "whole").code == Exit.OK
    for index in range(8):
        one, other = (read_run(f / "runs" / f"{index:05d}") for f in (folder, tmp_path / "whole"))
        assert one.objective == other.objective
        assert np.array_equal(one.arrays["probabilities"], other.arrays["probabilities"])
    assert interrupted
