"""The store: a run is a folder of plain data.

    run.json              what is in the folder and its checksums; written last, so that it says "complete" only
                          when everything is there
    record.json           problem, status, settings, versions and hardware in words and numbers
    metrics.parquet       the history, a column per curve
    arrays.safetensors    occupancy, probabilities, targets, snapshots
    policy.safetensors    the policy and its parameters; ``load_policy`` reads it
    certificate.json      the proof; ``check`` reads it
    problem/              the problem file and the files it refers to

Every file is written whole or not at all. A folder whose ``run.json`` does not say "complete", or whose files
do not have the checksums it lists, is never read as a run. One process writes a folder at a time (a lock on
``.lock``, which the system gives back even when a process dies). Reading executes nothing: JSON, Parquet and
safetensors are data, sizes are checked before anything is allocated, and no path leads out of the folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, CvxmdpWarning, FileFormatError, reading, require
from cvxmdp.base.storage import read_arrays, require_file, whole_file, write_arrays
from cvxmdp.base.table_files import read_parquet
from cvxmdp.certificates.certificate import is_first_format
from cvxmdp.policies import load_policy
from cvxmdp.policies.tables import table_of
from cvxmdp.runs.record import SNAPSHOTS, RunRecord, Series, record_facts, record_from

FORMAT = "cvxmdp run 1"
MANIFEST = "run.json"
CHECKPOINT = "checkpoint"  # the folder in a run's, and the file in it
LOCKS = ".parts"  # the folder with a lock for every part of its work
CERTIFICATE = "certificate.json"
# Seconds of a writer: who looks whether a folder is locked has its lock for a moment.
PATIENCE = 0.2
LARGEST = 2**31  # bytes of one file, and of the numbers in it
LARGEST_MANIFEST = 2**22
MOST_FILES = 1_000
ITERATION = "iteration"
FILES = (
    "record.json",
    "metrics.parquet",
    "arrays.safetensors",
    "policy.safetensors",
    CERTIFICATE,
)


class RunState(Enum):
    """What a folder holds. The value is its sentence."""

    ABSENT = "There is no run."
    COMPLETE = "The run is complete."
    RUNNING = "Another process is writing this run."
    UNFINISHED = "The run was not finished: its writer stopped on the way."


class StoreError(CvxmdpError, OSError):
    """A folder that cannot be written, or that another process is writing."""


def state_of(folder: str | Path) -> RunState:
    """What a folder holds, by its ``run.json``. Files are checked when they are read."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        return RunState.ABSENT
    return _state(folder, _manifest(folder))


def _state(folder: Path, manifest: Mapping[str, Any]) -> RunState:
    if manifest["state"] == "complete":
        return RunState.COMPLETE
    return RunState.RUNNING if _is_locked(folder) else RunState.UNFINISHED


def require_ours(folder: Path, ours: Collection[str]) -> None:
    """An error where a folder has other things in it than these and hidden files."""
    for entry in sorted(folder.glob("*")):
        if entry.name not in ours and not entry.name.startswith("."):
            raise StoreError(
                f"{folder} is a folder with other things in it ({entry.name}); choose another"
            )


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """The run folders among these paths and below them, in order."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise FileFormatError(
                f"{path} is not a folder; runs are folders that have a {MANIFEST}"
            )
        folders = sorted(manifest.parent for manifest in path.rglob(MANIFEST))
        # Checkpoints have a file of that name, too.
        inside = [folder for folder in folders if folder == path or folder.name != CHECKPOINT]
        if not inside:
            raise FileFormatError(
                f"there are no runs in {path}: no folder has a {MANIFEST}, as cvxmdp solve -o and sweep write "
                "it. What solve(folder=...) kept is read by load_solution."
            )
        found += inside
    return list(dict.fromkeys(found))


@contextmanager
def writing(folder: str | Path, specification: str = "") -> Iterator[Path]:
    """Hold a folder for writing: made if absent, marked as unfinished, locked against other processes.

    Args:
        folder: of the run.
        specification: a checksum of what is run, so that the same command finds its own folder again.
    """
    with locked(folder) as held:
        _write_manifest(held, {"state": "unfinished", "specification": specification})
        yield held


@contextmanager
def locked(folder: str | Path, part: str = "") -> Iterator[Path]:
    """A folder, made if absent, that no other process has or gets in the meantime.

    Args:
        folder: which.
        part: of the folder's work; processes with different parts may have it at the same time.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise StoreError(f"cannot write the folder {folder}: {error.strerror}") from error
    with lock:
        if not _take(lock, shared=bool(part), patience=PATIENCE):
            raise StoreError(f"another process is writing {folder}; wait for it, or choose another")
        with locked(folder / LOCKS / part) if part else nullcontext():
            yield folder


def write_run(
    folder: str | Path,
    record: RunRecord,
    *,
    problem_files: Mapping[str, bytes] | None = None,
    specification: str = "",
) -> None:
    """Write a run, inside ``writing``: each file whole or not at all, ``run.json`` last.

    Args:
        folder: of the run.
        record: what to write.
        problem_files: the problem file and what it refers to, by relative path; kept under ``problem/``.
        specification: as given to ``writing``.
    """
    folder = Path(folder)
    parts = _contents(folder, record)
    for relative, content in (problem_files or {}).items():
        parts.append(_write_bytes(folder, f"problem/{_inside(relative)}", content))
    listed = {name: _checksum(folder / name) for name in parts}
    for name in FILES:
        if name not in listed:
            (folder / name).unlink(missing_ok=True)  # of an earlier run in the same folder
    _write_manifest(folder, {"state": "complete", "specification": specification, "files": listed})


def save_run(folder: str | Path, record: RunRecord) -> None:
    """Write a run into a folder of its own."""
    with writing(folder) as held:
        write_run(held, record)


def specification_of(folder: str | Path) -> str:
    """The checksum of what was run in a folder."""
    return str(_manifest(Path(folder)).get("specification", ""))


def is_run_of(folder: str | Path, specification: str) -> bool:
    """Whether a folder holds the whole run of this checksum."""
    complete = state_of(folder) is RunState.COMPLETE
    return complete and specification_of(folder) == specification


def read_run(folder: str | Path) -> RunRecord:
    """Read a run that is complete; an error that says what is wrong with any other."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        raise FileFormatError(f"{folder}: {RunState.ABSENT.value}")
    manifest = _manifest(folder)  # read once: a writer may replace it at any moment
    state = _state(folder, manifest)
    if state is not RunState.COMPLETE:
        raise FileFormatError(f"{folder}: {state.value}")
    listed = manifest.get("files", {})
    unnamed = [name for name in ("record.json", "arrays.safetensors") if name not in listed]
    if unnamed:  # or it would be read without its checksum
        raise FileFormatError(f"{folder} does not hold a valid run: its list has no {unnamed[0]}")
    try:
        for name, facts in listed.items():
            _verify(folder, name, facts)
    except OSError as error:
        raise FileFormatError(f"{folder} cannot be read: {error}") from error
    with reading(f"{folder} does not hold a valid run", OSError):
        found = _read_files(folder, listed)
    if _manifest(folder) != manifest:  # or the files could be of two different runs
        raise FileFormatError(f"{folder} was written anew while it was read; read it again")
    wrong = _inconsistency(found)
    if wrong:
        raise FileFormatError(f"{folder} does not hold a valid run: {wrong}")
    return found


def _inconsistency(record: RunRecord) -> str:
    """What does not fit together in a record; empty when everything does."""
    arrays, policy, layout = record.arrays, record.policy, record.layout
    shape = next((array.shape for array in arrays.values() if array.ndim == 2), None)
    for name, array in arrays.items():
        expected = {SNAPSHOTS[0]: 1, SNAPSHOTS[1]: 3}.get(name, 2)
        if array.ndim != expected or array.dtype.kind not in "fi":
            return f"{name} has shape {array.shape} and type {array.dtype}"
        if not np.isfinite(array).all():
            return f"{name} has NaN or infinity in it"
        if expected == 2 and array.shape != shape:
            return f"{name} has shape {array.shape}, others have {shape}"
    if SNAPSHOTS[1] in arrays and arrays[SNAPSHOTS[1]].shape[1:] != shape:
        return "the snapshots are of another model"
    table = table_of(policy)
    if table is not None and table.shape[-2:] != shape:  # (T, S, A) where it depends on time
        return f"the policy has shape {table.shape}, its occupancy {shape}"
    if shape is not None and layout is not None and layout.rows * layout.columns != shape[0]:
        return f"a grid of {layout.rows} x {layout.columns} does not have {shape[0]} states"
    if shape is not None and record.action_names and len(record.action_names) != shape[1]:
        return f"{len(record.action_names)} names for {shape[1]} actions"
    return ""


def _read_files(folder: Path, listed: Mapping[str, Any]) -> RunRecord:
    record = record_from(json.loads((folder / "record.json").read_text("utf-8")))
    certificate, policy = folder / CERTIFICATE, folder / "policy.safetensors"
    metrics = folder / "metrics.parquet"
    return dataclasses.replace(
        record,
        arrays=read_arrays(folder / "arrays.safetensors", "run")[0],
        series=_read_metrics(metrics) if metrics.name in listed else {},
        certificate=_read_certificate(certificate) if certificate.name in listed else None,
        policy=load_policy(policy) if policy.name in listed else None,
    )


def _read_certificate(path: Path) -> str | None:
    """The text of a certificate; nothing, with a warning, where it is of the first format."""
    text = path.read_text("utf-8")
    if not is_first_format(text):
        return text
    warnings.warn(
        f"{path} is a certificate of cvxmdp 0.1, which this version does not read: what follows is the run "
        "without it. Prove it again: cvxmdp certify PROBLEM.toml POLICY, with the run's policy.safetensors.",
        CvxmdpWarning,
        stacklevel=2,
    )
    return None


# --- writing --------------------------------------------------------------------------------------------


def _contents(folder: Path, record: RunRecord) -> list[str]:
    written = [
        _write_bytes(folder, "record.json", json.dumps(record_facts(record), indent=1).encode())
    ]
    write_arrays(folder / "arrays.safetensors", "run", dict(record.arrays), {})
    written.append("arrays.safetensors")
    if record.series:
        _write_metrics(folder / "metrics.parquet", record.series)
        written.append("metrics.parquet")
    if record.policy is not None:
        record.policy.save(folder / "policy.safetensors")
        written.append("policy.safetensors")
    if record.certificate is not None:
        written.append(_write_bytes(folder, CERTIFICATE, record.certificate.encode()))
    return written


def _write_bytes(folder: Path, relative: str, content: bytes) -> str:
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
    return relative


def _write_manifest(folder: Path, entries: dict[str, Any]) -> None:
    now = time.time()
    written = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    document = {"format": FORMAT, **entries, "written": written}
    try:
        _write_bytes(folder, MANIFEST, json.dumps(document, indent=1).encode())
    except OSError as error:
        raise StoreError(f"cannot write the folder {folder}: {error.strerror}") from error


def _write_metrics(path: Path, series: Mapping[str, Series]) -> None:
    """A row per iteration; a curve that has no value there has none in its column."""
    pyarrow, parquet = require("pyarrow", "report"), require("pyarrow.parquet", "report")
    rows = np.unique(np.concatenate([curve.iterations for curve in series.values()]))
    columns = {ITERATION: pyarrow.array(rows.astype(np.int64))}
    for name, curve in series.items():
        values = np.zeros(rows.size)
        at = np.searchsorted(rows, curve.iterations)
        values[at] = curve.values
        absent = np.ones(rows.size, dtype=bool)
        absent[at] = False
        columns[name] = pyarrow.array(values, mask=absent)
    with whole_file(path) as temporary:
        parquet.write_table(pyarrow.table(columns), temporary)


# --- reading --------------------------------------------------------------------------------------------


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise FileFormatError(f"{path} is too large to be a run's list of files")
        document = json.loads(require_file(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"{path} is not the list of files of a run ({FORMAT!r})")
    if document.get("state") not in ("complete", "unfinished"):
        raise FileFormatError(f"{path} says neither complete nor unfinished")
    files = document.get("files", {})
    if not isinstance(files, dict) or len(files) > MOST_FILES:
        raise FileFormatError(f"{path} lists no files, or too many")
    return document


def _inside(relative: str) -> str:
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise FileFormatError(f"{relative!r} leads out of the run's folder")
    return str(path)


def _verify(folder: Path, name: str, facts: Any) -> None:
    path = (folder / _inside(name)).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise FileFormatError(f"{name!r} leads out of the run's folder")
    if not path.is_file():
        raise FileFormatError(f"{folder}: {name} is missing; the run is damaged")
    if path.stat().st_size > LARGEST:
        raise FileFormatError(f"{folder}: {name} has more than {LARGEST:,} bytes")
    if not isinstance(facts, dict) or _checksum(path) != facts:
        raise FileFormatError(
            f"{folder}: {name} is not what {MANIFEST} says (cut short, changed or being written); run the "
            "same command again, or take the folder from a backup"
        )


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _read_metrics(path: Path) -> dict[str, Series]:
    table = read_parquet(path, LARGEST)
    if any(str(column.type) not in ("double", "int64") for column in table.schema):
        raise FileFormatError(f"{path} holds columns that are not numbers")
    rows = table.column(ITERATION).to_numpy()
    if rows.dtype.kind != "i" or (rows < 0).any() or (np.diff(rows) <= 0).any():
        raise FileFormatError(f"{path}: the iterations are not 0, 1, 2, ... in order")
    series = {}
    for name in table.column_names:
        if name == ITERATION:
            continue
        column = table.column(name)
        there = column.is_valid().to_numpy()
        series[name] = Series(rows[there], column.drop_null().to_numpy())
    return series


# --- the lock -------------------------------------------------------------------------------------------


def _take(file: Any, shared: bool = False, patience: float = 0.0) -> bool:
    """Take the lock of an open file, for as long as it is open; False when another process has it."""
    import fcntl  # part of Python on Linux and macOS

    ends = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= ends:
                return False
            time.sleep(0.01)


def _is_locked(folder: Path) -> bool:
    try:
        with (folder / ".lock").open("r") as file:
            return not _take(file)
    except OSError:
        return False
