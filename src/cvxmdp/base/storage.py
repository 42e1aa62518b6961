"""Portable files: named arrays and a small description, in the safetensors format.

Reading executes nothing and allocates no more than the file's size: safetensors is a header of
names, types, shapes and offsets, checked against the file's length, followed by plain numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from cvxmdp.base.errors import FileFormatError, reading
from cvxmdp.base.jsonable import to_jsonable

LARGEST_DOCUMENT = 2**28  # bytes


def write_arrays(
    path: str | Path, kind: str, arrays: dict[str, np.ndarray], description: dict[str, Any]
) -> None:
    """Write arrays and a description (plain JSON) to one file, whole or not at all.

    Args:
        path: the file to write; an existing one is replaced only when the new one is complete.
        kind: what the file holds ("model", "policy"); ``read_arrays`` asks for it again.
        arrays: the numbers, by name.
        description: everything else; numbers, strings, lists and dictionaries.
    """
    # ascontiguousarray would turn a single number into a list of one
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    written = json.dumps(description)
    metadata = {"cvxmdp": kind, "description": written, "sha256": _checksum(contiguous, written)}
    with whole_file(path) as temporary:
        try:
            safetensors.numpy.save_file(contiguous, temporary, metadata)
        except SafetensorError as error:  # a full disk, for instance
            raise OSError(f"cannot write {path}: {error}") from error


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write plain data as JSON, whole or not at all."""
    with whole_file(path) as temporary:
        text = json.dumps(to_jsonable(document), indent=1, allow_nan=False)
        temporary.write_text(text, "utf-8")


def read_document(path: Path, form: str, writer: str) -> dict[str, Any]:
    """What ``write_document`` wrote; its "format" is ``form``, and ``writer`` makes such files."""
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}; give a folder that {writer} wrote")
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise FileFormatError(f"{path} is larger than {LARGEST_DOCUMENT:,} bytes")
    with reading(f"{path} is not JSON"):
        document = json.loads(require_file(path).read_text("utf-8"))
    if not isinstance(document, dict) or document.get("format") != form:
        raise FileFormatError(f"{path} is not of the form {form!r}")
    return document


def _checksum(arrays: dict[str, np.ndarray], description: str) -> str:
    """SHA-256 of everything: names, types, shapes, numbers and the description."""
    found = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@contextmanager
def whole_file(path: str | Path, replace: bool = True) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place when the block ends without an error.

    Args:
        path: of the file.
        replace: whether one that is there already is replaced; else it stays, and ``FileExistsError`` says so.
    """
    target = Path(path)
    temporary = _temporary_beside(target)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes it private; a saved file is not
        _to_the_disk(temporary)  # or a name that is new could, after a power cut, stand for nothing
        if replace:
            temporary.replace(target)
        else:
            os.link(temporary, target)
            temporary.unlink()
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _to_the_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary_beside(target: Path) -> Path:
    """An empty file in the same folder; an error speaks of the folder, never of this file."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        folder = target.parent
        if folder.is_dir():
            raise OSError(error.errno, error.strerror, str(target)) from None
        missing = f"there is no folder {folder}; make it first"
        reason = f"{folder} is a file, not a folder" if folder.exists() else missing
        raise OSError(error.errno, f"cannot write {target}: {reason}") from None
    os.close(handle)
    return Path(name)


def require_file(path: str | Path) -> Path:
    """The path of a plain file; pipes and devices, which may never end, are refused, and links in circles."""
    given = Path(path)
    try:
        plain = stat.S_ISREG(given.stat().st_mode)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise FileFormatError(f"{given} cannot be opened: {error}") from error
    if not plain:
        raise FileFormatError(f"{given} is not a plain file")
    return given


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file written by ``write_arrays``; an error when it is not one of that kind."""
    try:
        with safe_open(require_file(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    # AttributeError: number types of safetensors that NumPy does not have.
    except (SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} is not a file that cvxmdp wrote: {error}") from error
    if metadata.get("cvxmdp") != kind:
        held = metadata.get("cvxmdp")
        raise FileFormatError(
            f"{path} does not hold a {kind} but "
            + (f"a {held}" if held else "something cvxmdp did not write")
        )
    if not set(metadata) <= {"cvxmdp", "description", "sha256"}:
        raise FileFormatError(f"{path} is damaged: its header has unknown entries")
    # Files of earlier releases have no checksum.
    if metadata.get("sha256", given := _checksum(arrays, metadata.get("description", ""))) != given:
        raise FileFormatError(f"{path} is damaged: its checksum is not that of its contents")
    try:
        description = json.loads(metadata["description"])
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} holds a damaged description: {error}") from error
    if not isinstance(description, dict):
        raise FileFormatError(f"{path} holds a damaged description: not a table of names")
    return arrays, description
