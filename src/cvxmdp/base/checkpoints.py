"""Checkpoints: whole files with a checksum, of which the previous one is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cvxmdp.base.errors import FileFormatError, SolverError
from cvxmdp.base.saved_trees import Arrays
from cvxmdp.base.storage import read_arrays, whole_file, write_arrays

KIND = "checkpoint"


class AnotherRunError(SolverError):
    """Checkpoints of other work than what is to go on; ``different`` names what differs."""

    def __init__(self, path: Path, what: str, different: list[str]) -> None:
        super().__init__(
            f"the folder {path} holds another {what}: {', '.join(different)} differ. Give another folder=, or "
            "delete this one."
        )
        self.different = different


class Checkpoints:
    """The checkpoints of some work in a folder, and what the work is.

    Args:
        path: of the folder, made if absent.
        what: of the work: "sweep", "run".
        specification: by name, all that must be the same for the work to go on from here.
    """

    def __init__(self, path: str | Path, what: str, specification: dict[str, Any]) -> None:
        self.path, self.what, self.specification = Path(path), what, specification
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_specification()
        except OSError as error:
            raise SolverError(
                f"the folder {self.path} cannot be used for the {what}: {error}. Give another folder=, or "
                "none to keep everything in memory."
            ) from error

    def _check_specification(self) -> None:
        """The same call finds its own folder; another one is refused before anything is overwritten."""
        place = self.path / f"{self.what}.json"
        if not place.exists():
            text = json.dumps(self.specification, indent=1, sort_keys=True)
            try:
                with whole_file(place, replace=False) as temporary:
                    temporary.write_text(text + "\n", "utf-8")
                return
            except FileExistsError:  # of another process, which was quicker
                pass
        try:
            theirs = json.loads(place.read_text("utf-8"))
        except ValueError as error:
            raise FileFormatError(f"{place} is damaged: {error}") from error
        names = {**self.specification, **theirs}
        different = [name for name in names if theirs.get(name) != self.specification.get(name)]
        if different:
            raise AnotherRunError(self.path, self.what, different)

    def _place(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def save(self, name: str, arrays: Arrays) -> None:
        """Replace a checkpoint; the one before it stays as ``.previous``."""
        place = self._place(name)
        try:
            fresh = place.with_suffix(".new")
            write_arrays(fresh, KIND, arrays, {})
            if place.exists():
                place.replace(place.with_suffix(".previous"))
            fresh.replace(place)
        except OSError as error:
            raise SolverError(
                f"the checkpoint {place} cannot be written: {error}. What was computed before is in "
                f"{self.path}; make room and repeat the call to go on from there."
            ) from error

    def load(self, name: str) -> Arrays | None:
        """The newest whole checkpoint of this name, or None."""
        place = self._place(name)
        for path in (place, place.with_suffix(".previous")):
            try:
                return read_arrays(path, KIND)[0]
            except (OSError, FileFormatError):
                continue
        return None


def recorded(folder: str | Path | None, what: str, name: str) -> Any:
    """One entry of the specification that a folder holds, or None."""
    place = None if folder is None else Path(folder) / f"{what}.json"
    try:
        return json.loads(place.read_text("utf-8"))[name] if place is not None else None
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that will be refused
        return None
