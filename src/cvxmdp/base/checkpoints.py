"""Checkpoints of a sweep: whole files with a checksum, of which the previous one is kept."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, SolverError
from cvxmdp.base.storage import read_arrays, whole_file, write_arrays
from cvxmdp.solvers.saved_runs import Arrays

KIND = "sweep checkpoint"


class Folder:
    """Where a sweep keeps what it has computed: ``sweep.json`` and a file per group of runs."""

    def __init__(self, path: str | Path, spec: dict[str, Any]) -> None:
        self.path, self.spec = Path(path), spec
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_spec()
        except OSError as error:
            raise SolverError(
                f"the folder {self.path} cannot be used for the sweep: {error}. Give another folder=, or "
                "none to keep everything in memory."
            ) from error

    def _check_spec(self) -> None:
        """The same call finds its own folder; another one is refused before anything is overwritten."""
        place = self.path / "sweep.json"
        if not place.exists():
            with whole_file(place) as temporary:
                temporary.write_text(
                    json.dumps(self.spec, indent=1, sort_keys=True) + "\n", "utf-8"
                )
            return
        try:
            theirs = json.loads(place.read_text("utf-8"))
        except ValueError as error:
            raise FileFormatError(f"{place} is damaged: {error}") from error
        different = [name for name in self.spec if theirs.get(name) != self.spec[name]]
        if different:
            raise SolverError(
                f"the folder {self.path} holds another sweep: {', '.join(different)} differ. Give another "
                f"folder=, or delete this one."
            )

    def _place(self, group: int) -> Path:
        return self.path / f"group-{group:05d}.safetensors"

    def save(self, group: int, arrays: Arrays) -> None:
        """Replace the checkpoint of a group; the one before it stays as ``.previous``."""
        place = self._place(group)
        try:
            fresh = place.with_suffix(".new")
            write_arrays(fresh, KIND, arrays, {"checksum": _checksum(arrays)})
            if place.exists():
                place.replace(place.with_suffix(".previous"))
            fresh.replace(place)
        except OSError as error:
            raise SolverError(
                f"the checkpoint {place} cannot be written: {error}. What was computed before is in "
                f"{self.path}; make room and repeat the call to go on from there."
            ) from error

    def load(self, group: int) -> Arrays | None:
        """The newest whole checkpoint of a group, or None."""
        place = self._place(group)
        for path in (place, place.with_suffix(".previous")):
            try:
                arrays, description = read_arrays(path, KIND)
            except (OSError, FileFormatError):
                continue
            if description.get("checksum") == _checksum(arrays):
                return arrays
        return None


def recorded_lanes(folder: str | Path | None) -> int | None:
    """The lanes of the sweep that a folder holds, or None."""
    place = None if folder is None else Path(folder) / "sweep.json"
    try:
        lanes = json.loads(place.read_text("utf-8"))["lanes"] if place is not None else None
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that will be refused
        return None
    return lanes if isinstance(lanes, int) and lanes >= 1 else None


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
