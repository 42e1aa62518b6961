"""Arrays from files beside a problem file: csv, npz, npy and safetensors. Data only, nothing else.

A reference is a path relative to the problem file, with the array's name after ``#`` where a file holds
several: ``"expert.npz#occupancy"``. A path never leads out of the problem file's folder, nothing in a file is
executed (no pickle), and nothing larger than ``LARGEST`` is read.
"""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open

from cvxmdp.base.errors import FileFormatError, did_you_mean
from cvxmdp.base.npz_files import LARGEST, NUMBERS, read_npy, read_npz
from cvxmdp.base.storage import require_file

LARGEST_CSV = 2**25  # bytes of text, which take some thirty times the memory while they are read
ENDINGS = (".csv", ".npz", ".npy", ".safetensors")
SPARSE = ("data", "indices", "indptr", "shape", "format")  # what scipy.sparse.save_npz writes
TRANSITION_COLUMNS = ("state", "action", "next_state", "probability")


class ArrayFolder:
    """The folder of a problem file, and which of its files were read; references stay inside."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.used: dict[str, Path] = {}

    def path(self, relative: str) -> Path:
        """The file that is meant; an error when it is missing or lies outside the folder."""
        given = PurePosixPath(relative)
        outside = given.is_absolute() or PureWindowsPath(relative).is_absolute()
        try:
            path = (self.root / given).resolve()
        except (OSError, RuntimeError) as error:  # links that lead in circles
            raise FileFormatError(f"{relative!r} leads nowhere: {error}") from error
        if outside or not path.is_relative_to(self.root):
            raise FileFormatError(
                f"{relative!r} leads out of the problem file's folder. Files are named relative to the "
                "problem file and lie in its folder or below: copy the file there."
            )
        if not path.is_file():
            near = [entry.name for entry in path.parent.glob("*")] if path.parent.is_dir() else []
            hint = did_you_mean(path.name, near[:50]) if near else ""
            if path.exists():
                raise FileFormatError(f"{relative!r} is not a plain file")
            raise FileFormatError(f"there is no file {relative!r} in {self.root}. {hint}".rstrip())
        if path.stat().st_size > LARGEST:
            raise FileFormatError(f"{relative!r} has more than {LARGEST:,} bytes; it is not read")
        self.used[str(given)] = path
        return path

    def array(self, reference: str) -> np.ndarray:
        """The array of a reference such as ``"cost.csv"`` or ``"expert.npz#occupancy"``."""
        relative, _, name = reference.partition("#")
        path = self.path(relative)
        if path.suffix == ".csv":
            if name:
                raise FileFormatError(
                    f"{reference!r}: a csv file holds one array; leave out #{name}"
                )
            return read_csv(path)
        if path.suffix == ".npy":
            with require_file(path).open("rb") as file:
                return read_npy(file, path.stat().st_size, relative)
        arrays = self._several(path, relative)
        if not name:
            if len(arrays) != 1:
                raise FileFormatError(
                    f"{relative!r} holds {len(arrays)} arrays; say which: {relative}#NAME with one of "
                    + ", ".join(sorted(arrays))
                )
            (name,) = arrays
        if name not in arrays:
            raise FileFormatError(
                f"{relative!r} holds no array {name!r}. {did_you_mean(name, arrays)}"
            )
        if arrays[name].dtype.kind not in NUMBERS:
            raise FileFormatError(f"{reference!r} holds {arrays[name].dtype}, not numbers")
        return arrays[name]

    def named_or_array(self, reference: str) -> np.ndarray | dict[Any, float]:
        """Numbers of states or pairs: an array, or a csv with the columns state, action (if any) and value."""
        path = self.path(reference.partition("#")[0])
        named = read_named(path) if path.suffix == ".csv" else None
        return self.array(reference) if named is None else named

    def transition(self, reference: str) -> Any:
        """A transition table: an array, a SciPy sparse npz, or a csv of single probabilities."""
        relative, _, name = reference.partition("#")
        path = self.path(relative)
        if path.suffix == ".csv":
            return _read_transition_csv(path, relative)
        if path.suffix in (".npz", ".safetensors") and not name:
            arrays = self._several(path, relative)
            if all(part in arrays for part in SPARSE):
                parts = tuple(arrays[part] for part in SPARSE[:3])
                form = arrays["format"].astype(str).item()
                if form != "csr":
                    raise FileFormatError(
                        f"{relative!r} is a sparse matrix in {form} format; save it as csr: "
                        "scipy.sparse.save_npz(path, matrix.tocsr())"
                    )
                try:
                    rows, columns = (int(size) for size in arrays["shape"])
                    return sp.csr_array(parts, shape=(rows, columns))
                except (TypeError, ValueError) as error:
                    raise FileFormatError(f"{relative!r} is no sparse matrix: {error}") from error
        return self.array(reference)

    def _several(self, path: Path, relative: str) -> dict[str, np.ndarray]:
        if path.suffix == ".npz":
            return read_npz(path)
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        raise FileFormatError(
            f"{relative!r}: arrays come from files that end in {', '.join(ENDINGS)}"
        )


def read_csv(path: Path) -> np.ndarray:
    """Numbers separated by commas; one column (or row) becomes a vector. A first line of words is skipped."""
    text = _small_enough(path).read_text("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    skip = 1 if lines and not _is_numbers(lines[0]) else 0
    if not lines[skip:]:
        raise FileFormatError(f"{path.name} holds no numbers")
    try:
        table = np.loadtxt(lines[skip:], delimiter=",", ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise FileFormatError(f"{path.name} is not a table of numbers: {error}") from error
    return table.ravel() if 1 in table.shape else table


def read_named(path: Path) -> dict[Any, float] | None:
    """Numbers by state, or by state and action, from a csv whose first line says so; None for another csv."""
    with _small_enough(path).open(encoding="utf-8", errors="replace", newline="") as file:
        header, *lines = [row for row in csv.reader(file) if row] or [[]]
    columns = [cell.strip().lstrip("# ") for cell in header]
    keys = [name for name in ("state", "action") if name in columns]
    if "state" not in keys or len(columns) != len(keys) + 1:
        return None
    (value,) = (name for name in columns if name not in keys)
    found: dict[Any, float] = {}
    for number, row in enumerate(lines, 2):
        cells = dict(zip(columns, (cell.strip() for cell in row), strict=False))
        try:
            key = tuple(cells[name] for name in keys)
            amount = float(cells[value])
        except (KeyError, ValueError) as error:
            raise FileFormatError(
                f"{path.name}, line {number}: expected {', '.join(columns)}; got {', '.join(row)}"
            ) from error
        if key in found:
            raise FileFormatError(f"{path.name}, line {number}: {', '.join(key)} occurs twice")
        found[key] = amount
    return found if len(keys) == 2 else {state: amount for (state,), amount in found.items()}


def _small_enough(path: Path) -> Path:
    if require_file(path).stat().st_size > LARGEST_CSV:
        raise FileFormatError(
            f"{path.name} has more than {LARGEST_CSV:,} bytes: save it as npy or npz, which need less"
        )
    return path


def _is_numbers(line: str) -> bool:
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True


def _read_transition_csv(path: Path, relative: str) -> Any:
    """A dense (S*A, S) table, or lines ``state, action, next_state, probability`` under that header."""
    with _small_enough(path).open(encoding="utf-8", errors="replace", newline="") as file:
        first = next(csv.reader(file), [])
    names = tuple(cell.strip() for cell in first)
    if names != TRANSITION_COLUMNS:
        if names and not _is_numbers(",".join(names)):
            raise FileFormatError(
                f"{relative!r} starts with {', '.join(names[:10])}; a transition table in csv is either "
                f"(S*A, S) numbers or has the columns {', '.join(TRANSITION_COLUMNS)}"
            )
        table = np.atleast_2d(read_csv(path))
        return sp.csr_array(table)
    entries = np.atleast_2d(read_csv(path))
    state, action, successor = (entries[:, column].astype(np.int64) for column in range(3))
    if (entries[:, :3] < 0).any() or (entries[:, :3] != np.floor(entries[:, :3])).any():
        raise FileFormatError(f"{relative!r}: states and actions are numbered 0, 1, 2, ...")
    n_states = int(max(state.max(), successor.max())) + 1
    n_actions = int(action.max()) + 1
    if n_states * n_actions > LARGEST // 8:
        raise FileFormatError(f"{relative!r} speaks of {n_states:,} states; that is not read")
    shape = (n_states * n_actions, n_states)
    return sp.csr_array((entries[:, 3], (state * n_actions + action, successor)), shape=shape)


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path.name} is not a safetensors file: {error}") from error
