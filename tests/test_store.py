"""The store: what is written is read again, and nothing else is read as a run."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError
from cvxmdp.runs import run_folder
from cvxmdp.runs.record import RunRecord, record_of
from cvxmdp.runs.run_folder import (
    RunState,
    StoreError,
    find_runs,
    read_run,
    save_run,
    specification_of,
    state_of,
    write_run,
    writing,
)
from strategies import walled_problem


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return walled_problem()


@pytest.fixture(scope="module")
def record(problem: cm.Problem) -> RunRecord:
    solution = cm.solve(problem)
    history = {
        "iteration": np.array([1, 3]),
        "objective": np.array([0.5, np.nan]),
        "slack": {"hazard": np.array([0.1, -0.2]), "near expert": np.array([1.0, -np.inf])},
        "gradient_norm": np.array([3.0, 2.0, 1.0], dtype=np.float32),
        "snapshot_iteration": np.array([1, 3]),
        "snapshot_occupancy": np.ones((2, 9, 4)),
    }
    return record_of(
        replace(solution, history=history),
        title="a run",
        label="step=1",
        seed=7,
        solver=cm.ConvexProgram(),
        certificate=cm.certify(problem, solution),
        frontier=cm.frontier(problem, "hazard", budgets=[-1.0, 0.04, 0.1]),
        rerun="cvxmdp solve problem.toml",
    )


def same(left: object, right: object) -> bool:
    return json.dumps(left, default=str, sort_keys=True) == json.dumps(
        right, default=str, sort_keys=True
    )


def test_a_run_is_read_as_it_was_written(tmp_path, record):
    save_run(tmp_path / "run", record)
    found = read_run(tmp_path / "run")
    for name in (
        "title",
        "label",
        "seed",
        "sense",
        "utility",
        "model",
        "discount",
        "status",
        "message",
    ):
        assert getattr(found, name) == getattr(record, name)
    for name in ("objective", "action_names", "layout", "settings", "rerun", "environment"):
        assert getattr(found, name) == getattr(record, name)
    assert same(found.stats, record.stats)
    assert repr(found.constraints) == repr(record.constraints)
    assert repr(found.frontier) == repr(record.frontier)  # NaN is not equal to itself, its text is
    assert found.certificate == record.certificate
    assert set(found.arrays) == set(record.arrays)
    assert "target/near expert" in found.arrays
    for name, array in record.arrays.items():
        assert np.array_equal(found.arrays[name], array)
    assert set(found.series) == {"objective", "slack/hazard", "slack/near expert", "gradient_norm"}
    for name, series in record.series.items():
        assert np.array_equal(found.series[name].iterations, series.iterations)
        assert np.array_equal(found.series[name].values, series.values, equal_nan=True)
    assert np.array_equal(found.policy.probabilities(), record.policy.probabilities())


def test_the_files_are_what_other_tools_read(tmp_path, problem, record):
    save_run(tmp_path, record)
    table = pq.read_table(tmp_path / "metrics.parquet").to_pydict()
    assert table["iteration"] == [1, 2, 3]
    assert table["slack/hazard"] == [0.1, None, -0.2]
    assert cm.check(tmp_path / "certificate.json", problem)
    assert cm.load_policy(tmp_path / "policy.safetensors").n_states == 9
    words = json.loads((tmp_path / "record.json").read_text())
    assert words["environment"]["cvxmdp"] == cm.__version__
    assert words["environment"]["processor"]
    assert words["settings"]["tolerance"] == "1e-10"


def test_runs_without_a_policy(tmp_path, problem):
    infeasible = cm.solve(problem.with_budget("hazard", -1.0))
    save_run(tmp_path, record_of(infeasible))
    found = read_run(tmp_path)
    assert found.status == "infeasible"
    assert found.policy is None
    assert np.isnan(found.objective)


def test_a_folder_written_again_holds_only_the_new_run(tmp_path, problem, record):
    save_run(tmp_path, record)
    save_run(tmp_path, record_of(cm.solve(problem.with_budget("hazard", -1.0))))
    assert read_run(tmp_path).certificate is None
    assert not (tmp_path / "certificate.json").exists()


def test_states(tmp_path, record):
    folder = tmp_path / "run"
    assert state_of(folder) is RunState.ABSENT
    with writing(folder, "abc") as held:
        assert state_of(folder) is RunState.RUNNING
        with pytest.raises(FileFormatError, match="Another process is writing"):
            read_run(folder)
        with pytest.raises(StoreError, match="another process"), writing(folder):
            raise AssertionError("entered twice")
        write_run(held, record, specification="abc")
    assert state_of(folder) is RunState.COMPLETE
    assert specification_of(folder) == "abc"
    with writing(folder):
        pass
    assert state_of(folder) is RunState.UNFINISHED
    with pytest.raises(FileFormatError, match="not finished"):
        read_run(folder)


@pytest.mark.parametrize(
    "name",
    [
        "record.json",
        "metrics.parquet",
        "arrays.safetensors",
        "policy.safetensors",
        "certificate.json",
    ],
)
def test_truncated_changed_and_missing_files(tmp_path, record, name):
    save_run(tmp_path, record)
    path = tmp_path / name
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=name):
            read_run(tmp_path)
    path.unlink()
    with pytest.raises(FileFormatError, match=f"{name} is missing"):
        read_run(tmp_path)
    path.write_bytes(whole)
    read_run(tmp_path)


def relist(folder: Path, name: str) -> None:
    """Make run.json agree with a file that was tampered with: checksums do not stop an attacker."""
    from cvxmdp.runs.run_folder import _checksum

    manifest = json.loads((folder / "run.json").read_text())
    manifest["files"][name] = _checksum(folder / name)
    (folder / "run.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        b"not json",
        b'{"title": 1}',
    ],
)
def test_hostile_records(tmp_path, record, content):
    save_run(tmp_path, record)
    (tmp_path / "record.json").write_bytes(content)
    relist(tmp_path, "record.json")
    with pytest.raises(FileFormatError):
        read_run(tmp_path)


@pytest.mark.parametrize("key", ["layout", "constraints", "frontier", "stats", "objective"])
def test_hostile_entries(tmp_path, record, key):
    save_run(tmp_path, record)
    words = json.loads((tmp_path / "record.json").read_text())
    words[key] = {"rows": 1e99, "columns": "x"} if key == "layout" else ["x"]
    (tmp_path / "record.json").write_text(json.dumps(words))
    relist(tmp_path, "record.json")
    with pytest.raises(FileFormatError):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["occupancy", "target/near expert", "snapshot_occupancy"])
def test_arrays_that_do_not_fit(tmp_path, record, name):
    smaller = {**record.arrays, name: record.arrays[name][..., :2].copy()}
    save_run(tmp_path / "smaller", replace(record, arrays=smaller))
    with pytest.raises(FileFormatError, match=r"shape|snapshots"):
        read_run(tmp_path / "smaller")
    flat = {**record.arrays, name: record.arrays[name].ravel()}
    save_run(tmp_path / "flat", replace(record, arrays=flat))
    with pytest.raises(FileFormatError, match=name):
        read_run(tmp_path / "flat")


def test_layouts_and_names_that_do_not_fit(tmp_path, record):
    save_run(tmp_path / "layout", replace(record, layout=cm.GridLayout(2, 2)))
    with pytest.raises(FileFormatError, match="does not have 9 states"):
        read_run(tmp_path / "layout")
    save_run(tmp_path / "names", replace(record, action_names=("a", "b")))
    with pytest.raises(FileFormatError, match="2 names for 4 actions"):
        read_run(tmp_path / "names")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "superb"),
        ("discount", "inf"),
        ("discount", 1.5),
        ("stats", {"iterations": [1]}),
        ("stats", {"seconds": "long"}),
        ("stats", {"x": [[]]}),
        ("stats", {"x": {"y": "z"}}),
    ],
)
def test_values_that_cannot_be(tmp_path, record, key, value):
    save_run(tmp_path, record)
    words = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps({**words, key: value}))
    relist(tmp_path, "record.json")
    with pytest.raises(FileFormatError, match="valid run"):
        read_run(tmp_path)


def test_hostile_metrics(tmp_path, record, monkeypatch):
    save_run(tmp_path, record)
    path = tmp_path / "metrics.parquet"
    column = pa.nulls(20_000, pa.float64())
    columns = {f"c{k}": column for k in range(300)}
    pq.write_table(pa.table(columns), path)
    assert path.stat().st_size < 2**18  # small on the disk, 48 MB unpacked
    relist(tmp_path, "metrics.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "LARGEST", 2**23)  # instead of gigabytes, which take seconds
        with pytest.raises(FileFormatError, match="unpacks to more than"):
            read_run(tmp_path)
    pq.write_table(pa.table({"iteration": ["a"], "x": [b"bytes"]}), path)
    relist(tmp_path, "metrics.parquet")
    with pytest.raises(FileFormatError, match="not numbers"):
        read_run(tmp_path)
    for rows in ([-1, 0], [2, 1], [1, 1]):
        pq.write_table(pa.table({"iteration": rows, "x": [0.0, 1.0]}), path)
        relist(tmp_path, "metrics.parquet")
        with pytest.raises(FileFormatError, match="in order"):
            read_run(tmp_path)
    path.write_bytes(b"PAR1 not really PAR1")
    relist(tmp_path, "metrics.parquet")
    with pytest.raises(FileFormatError, match="cannot be read as Parquet"):
        read_run(tmp_path)


def test_no_path_leads_out_of_the_folder(tmp_path, record):
    folder = tmp_path / "run"
    save_run(folder, record)
    (tmp_path / "secret").write_text("secret")
    manifest = json.loads((folder / "run.json").read_text())
    for name in ("../secret", str(tmp_path / "secret"), "link"):
        if name == "link":
            (folder / "link").symlink_to(tmp_path / "secret")
        changed = {**manifest, "files": {**manifest["files"], name: {"bytes": 6, "sha256": ""}}}
        (folder / "run.json").write_text(json.dumps(changed))
        with pytest.raises(FileFormatError, match="leads out of"):
            read_run(folder)
    with (
        writing(tmp_path / "other") as held,
        pytest.raises(FileFormatError, match="leads out of"),
    ):
        write_run(held, record, problem_files={"../evil.toml": b""})


@pytest.mark.parametrize("text", ["", "{}", '{"format": "something else"}', "[1]", "\x00"])
def test_manifests_that_are_none(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"run\.json"):
        read_run(tmp_path)


def test_finding_runs(tmp_path, record):
    for name in ("b", "a", "deep/c"):
        save_run(tmp_path / name, record)
    names = [path.relative_to(tmp_path).as_posix() for path in find_runs([tmp_path])]
    assert names == ["a", "b", "deep/c"]
    assert find_runs([tmp_path / "a", tmp_path])[0] == tmp_path / "a"
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="no runs"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(FileFormatError, match="not a folder"):
        find_runs([tmp_path / "absent"])


WRITER = """
import sys, time
from pathlib import Path
from cvxmdp.runs.run_folder import writing, StoreError
try:
    with writing(sys.argv[1]) as folder:
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except StoreError as error:
    print(error, flush=True)
"""


def test_a_writer_that_dies_leaves_an_unfinished_run_and_no_lock(tmp_path, record):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run"), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "held"
        assert state_of(tmp_path / "run") is RunState.RUNNING
        with pytest.raises(StoreError, match="another process"), writing(tmp_path / "run"):
            pass
        writer.send_signal(signal.SIGKILL)
    assert state_of(tmp_path / "run") is RunState.UNFINISHED
    save_run(tmp_path / "run", record)
    assert state_of(tmp_path / "run") is RunState.COMPLETE


REWRITER = """
import sys
from cvxmdp.runs.run_folder import read_run
from cvxmdp.runs.run_folder import save_run
record = read_run(sys.argv[1])
print("ready", flush=True)
for _ in range(20):
    save_run(sys.argv[2], record)
"""


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_a_whole_run_or_an_error(tmp_path, record):
    save_run(tmp_path / "source", record)
    save_run(tmp_path / "run", record)
    command = [sys.executable, "-c", REWRITER, str(tmp_path / "source"), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "ready"
        whole = 0
        while writer.poll() is None:
            try:
                found = read_run(tmp_path / "run")
            except FileFormatError:
                continue
            assert np.array_equal(found.arrays["occupancy"], record.arrays["occupancy"])
            whole += 1
            time.sleep(0.001)
    assert writer.returncode == 0
    assert whole > 0, "a reader that only ever sees errors would pass everything above"
    assert read_run(tmp_path / "run").title == record.title


def test_a_writer_waits_for_those_who_look_whether_there_is_one(tmp_path):
    with writing(tmp_path):
        pass
    looking = (tmp_path / ".lock").open("r")
    fcntl.flock(looking, fcntl.LOCK_EX)
    threading.Timer(0.05, looking.close).start()
    with writing(tmp_path):
        assert state_of(tmp_path) is RunState.RUNNING


def test_unwritable_folders(tmp_path, record):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        save_run(tmp_path / "file" / "run", record)
    if os.geteuid() != 0:  # root may write everywhere
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match="cannot write"):
            save_run(tmp_path / "closed" / "run", record)


@pytest.mark.parametrize("name", ["record.json", "arrays.safetensors"])
def test_files_that_the_list_does_not_name_are_not_read(tmp_path, record, name):
    """Or they would be read without their checksum."""
    save_run(tmp_path, record)
    manifest = json.loads((tmp_path / "run.json").read_text())
    del manifest["files"][name]
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(cm.CvxmdpError, match=name):
        read_run(tmp_path)
