"""Logs from files: CSV, Parquet and Minari, in Python, in problem files and from the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from command_line import Done
from cvxmdp.base.table_files import read_parquet
from cvxmdp.runs.specs.problem_specs import SpecError, read_problem

COLUMNS = ("episode", "state", "action", "next_state", "terminated", "reward", "cost")


def recorded(episodes: int = 400) -> list[tuple]:
    """Days of somebody who walks or rides to work, named; riding is quick and costs."""
    random, rows = np.random.default_rng(0), []
    for number in range(episodes):
        state = "home"
        for _ in range(30):
            action = ("walk", "ride")[int(random.integers(2))]
            arrives = random.random() < (0.4 if action == "walk" else 0.9)
            over = state == "way" and arrives
            after = "way" if arrives and not over else state
            rows.append((number, state, action, after, over, float(over), float(action == "ride")))
            state = after
            if over:
                break
    return rows


@pytest.fixture
def folder(tmp_path) -> Path:
    with (tmp_path / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *recorded()])
    return tmp_path


PROBLEM = """
maximize = 'linear("reward")'

[subject_to]
cost = 'linear("cost") <= 1.5'

[model]
kind = "log"
path = "log.csv"
discount = 0.9
bounds = {reward = [0, 1]}
known = ["cost"]
"""


def written(folder: Path, text: str = PROBLEM) -> Path:
    path = folder / "problem.toml"
    path.write_text(text)
    return path


def test_a_problem_file_names_a_log(folder) -> None:
    spec = read_problem(written(folder))
    mdp, same = (
        spec.problem.mdp,
        cm.from_transitions(folder / "log.csv", 0.9, bounds={"reward": (0, 1)}, known=["cost"]),
    )
    assert repr(mdp) == repr(same)
    assert mdp.counts.signals["cost"].exact
    assert mdp.state_names == ("home", "way")
    assert "log.csv" in spec.files  # kept beside the run
    more = PROBLEM.replace(
        'known = ["cost"]',
        'signals = ["reward"]\nknown = {price = [0.0, 2.0]}\nactions = ["ride", "walk", "fly"]\n'
        'initial = 0\nunknown = "end"',
    )
    other = read_problem(written(folder, more.replace('linear("cost")', 'linear("price")'))).problem
    assert other.mdp.action_names == ("ride", "walk", "fly")
    assert other.mdp.counts.initial is None
    assert other.mdp.signal("price")[1, 0] == 2.0
    with pytest.raises(SpecError, match=r"problem\.toml, line 13, model.unknwon.*'unknown'"):
        read_problem(written(folder, PROBLEM + 'unknwon = "end"\n'))
    with pytest.raises(SpecError, match=r"line 4: action 'walk' is not one of actions"):
        read_problem(written(folder, PROBLEM + 'actions = ["ride", "run"]\n'))


def test_parquet_is_the_same_log(folder) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = dict(zip(COLUMNS, map(list, zip(*recorded(), strict=True)), strict=True))
    parquet.write_table(pyarrow.table(table), folder / "log.parquet")
    one, other = (cm.from_transitions(folder / f"log.{end}", 0.9) for end in ("csv", "parquet"))
    assert repr(one) == repr(other)
    expert = cm.demonstrations(folder / "log.parquet", one)
    np.testing.assert_allclose(expert.occupancy, cm.demonstrations(folder / "log.csv", one))
    (folder / "log.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(cm.ModelError, match=r"log\.parquet cannot be read as Parquet"):
        cm.from_transitions(folder / "log.parquet", 0.9)


@pytest.mark.parametrize("value", [7, "state " * 200])
def test_small_parquet_files_that_stand_for_many_bytes_are_not_unpacked(tmp_path, value) -> None:
    """A number for every row, or a long text: the file is small, the table is not."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"state": [value] * 50_000}), tmp_path / "log.parquet")
    assert (tmp_path / "log.parquet").stat().st_size < 20_000
    with pytest.raises(cm.FileFormatError, match="unpacks to more than 100,000 bytes"):
        read_parquet(tmp_path / "log.parquet", largest=100_000)
    with pytest.raises(cm.FileFormatError, match="unpacks to more than 1,000 bytes"):
        read_parquet(tmp_path / "log.parquet", largest=1_000)


def test_a_minari_dataset_is_a_log(tmp_path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "main_data.hdf5", "w") as file:
        for number, ends in enumerate((True, False)):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.array([0, 1, 1, 0])
            group["actions"] = np.array([0, 1, 0])
            group["rewards"] = np.array([1.0, 2.0, 4.0])
            group["terminations"] = np.array([False, False, ends])
            group["truncations"] = np.array([False, False, not ends])
    mdp = cm.from_transitions(tmp_path, 0.9)
    np.testing.assert_array_equal(mdp.counts.visits, [[2, 0], [2, 2]])
    assert mdp.ending[1, 0] == 0.5
    assert mdp.signal("reward")[1, 1] == 2.0
    text = 'maximize = \'linear("reward")\'\n[model]\nkind = "log"\npath = "main_data.hdf5"\ndiscount = 0.9'
    assert repr(read_problem(written(tmp_path, text)).problem.mdp) == repr(mdp)
    with h5py.File(tmp_path / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        file["episode_0/observations"] = np.zeros((4, 3))
    with pytest.raises(cm.ExperienceError, match=r"episode_0: observations .* cannot be counted"):
        cm.from_transitions(tmp_path, 0.9)


def test_demonstrations_are_read_in_expressions(folder) -> None:
    text = PROBLEM.replace(
        "maximize = 'linear(\"reward\")'",
        'minimize = \'distance(demonstrations("log.csv"), norm="l2")\'',
    )
    spec = read_problem(written(folder, text))
    mdp = spec.problem.mdp
    by_hand = cm.Problem(
        mdp, minimize=cm.distance(cm.demonstrations(folder / "log.csv", mdp), norm="l2")
    )
    found = cm.solve(spec.problem)
    assert found.slack["cost"] >= -1e-9
    ours, theirs = (one.evaluate(found.policy).objective for one in (spec.problem, by_hand))
    assert ours == pytest.approx(theirs)
    strange = text.replace('demonstrations("log.csv")', 'demonstrations("other.csv")')
    (folder / "other.csv").write_text(
        "episode,state,action,terminated\n0,home,walk,false\n0,pub,walk,true\n"
    )
    with pytest.raises(SpecError, match=r"other\.csv, line 3: the model has no state 'pub'"):
        read_problem(written(folder, strange))


def test_cautious_plans_and_learners_from_files(folder) -> None:
    """A plan that is proven to hold in reality; a learner that is chosen, or named."""
    path = written(folder, PROBLEM + "[solver]\ncautious = 0.9\n")
    found = cm.solve(read_problem(path).problem, cautious=0.9)
    done = Done("solve", path, "--json")
    assert done.code == 0, done.err
    assert done.json["status"] == "cautious"
    assert done.json["objective"] == pytest.approx(found.objective)
    told = Done("solve", path).out
    assert "Of the true model, with confidence 0.9" in told
    assert Done("solve", written(folder), "--set", "cautious=2").code == 2
    lake = """
maximize = 'linear("reward")'
[subject_to]
falls = 'linear("fall") <= 0.3'
[model]
kind = "environment"
id = "FrozenLake-v1"
discount = 0.9
failure = "fall"
n_envs = 8
bounds = {reward = [0, 1], fall = [0, 1]}
[solver]
seed = 0
steps = 2000
"""
    learned = Done("solve", written(folder, lake), "-o", folder / "run", "--json")
    assert learned.code in (0, 4), learned.err
    assert learned.json["stats"]["solver"] == "ModelBased"
    assert "16 states can be counted" in learned.json["stats"]["chosen"]
    assert "Of the true model, with confidence 0.95" in learned.json["message"]
    assert learned.json["stats"]["true_slack"].keys() == {"falls"}
    named = Done("solve", written(folder, lake + 'name = "ModelBased"\n'), "--json")
    assert named.json["objective"] == learned.json["objective"]


def test_the_command_line_proves_what_holds_in_reality(folder) -> None:
    """The statement about the true model, in words and in JSON."""
    done = Done("solve", written(folder), "--json")
    assert done.code in (0, 4), done.err
    found = done.json
    assert found["objective"] > 0
    told = Done("solve", written(folder)).out
    assert "Of the estimated model" in told
    assert "Of the true model, with confidence 0.95" in told
