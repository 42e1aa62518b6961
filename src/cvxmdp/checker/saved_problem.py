"""Problems that ``Problem.save`` wrote, as plain data: JSON beside safetensors, both read here and bounded.

A safetensors file is eight bytes with the length of a JSON header, the header (name, number type, shape and
offsets of every array), and plain numbers. Nothing is executed, and no more is allocated than the files hold.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.certificate_document import read_json

PROBLEM_FORMAT = "cvxmdp problem 2"
HORIZON = ("discount", "average", "horizon")  # what a horizon is told by
DOCUMENT, ARRAYS = "problem.json", "problem.safetensors"
LARGEST_DOCUMENT, LARGEST_ARRAYS, LARGEST_HEADER = 2**28, 2**36, 2**27  # bytes
NUMBER_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}


def read_problem(folder: str | Path) -> dict[str, Any]:
    """The plain data of a saved problem, for ``PlainProblem`` and ``fingerprint``."""
    place = Path(folder)
    document = read_json(_bytes(place / DOCUMENT, LARGEST_DOCUMENT))
    if not isinstance(document, dict) or document.get("format") != PROBLEM_FORMAT:
        raise CertificateError(
            f"{place / DOCUMENT} is not a problem of the form {PROBLEM_FORMAT!r}"
        )
    arrays = read_safetensors(place / ARRAYS)
    try:
        mask = arrays["actions"]
        size = (mask.size, mask.shape[0])
        known = document.get("uncertainty")
        more = {} if known is None else {"uncertainty": _tree(known, arrays)}
        return {
            **more,
            "sense": document["sense"],
            "statement": document["statement"],
            "note": document["note"],
            **{name: document[name] for name in HORIZON if name in document},
            "transition": _sparse(arrays, "transition", size),
            "initial": arrays["initial"],
            "actions": mask,
            "objective": _tree(document["objective"], arrays),
            "slacks": {name: _tree(tree, arrays) for name, tree in document["slacks"].items()},
        }
    except (
        ArithmeticError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise CertificateError(f"{place} does not hold a whole problem: {error!r}") from error


def _tree(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Plain data from JSON, with the arrays it names put in."""
    if isinstance(tree, dict) and set(tree) == {"array"}:
        return arrays[tree["array"]]
    if isinstance(tree, dict) and set(tree) == {"sparse", "shape"}:
        rows, columns = (int(size) for size in tree["shape"])
        return _sparse(arrays, tree["sparse"], (rows, columns))
    if isinstance(tree, dict):
        return {name: _tree(value, arrays) for name, value in tree.items()}
    return [_tree(value, arrays) for value in tree] if isinstance(tree, list) else tree


def _sparse(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, int]) -> sp.csr_array:
    parts = tuple(arrays[f"{name}/{part}"] for part in ("data", "indices", "indptr"))
    matrix = sp.csr_array(parts, shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _bytes(path: Path, most: int) -> bytes:
    if not path.is_file():
        raise CertificateError(f"there is no file {path}; give a folder that Problem.save wrote")
    if path.stat().st_size > most:
        raise CertificateError(f"{path} is larger than {most:,} bytes")
    return path.read_bytes()


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, by name."""
    raw = _bytes(path, LARGEST_ARRAYS)
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(LARGEST_HEADER, len(raw) - 8):
        raise CertificateError(f"{path} is no safetensors file")
    header = read_json(raw[8 : 8 + length])
    try:
        tables = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _array(entry, raw, 8 + length) for name, entry in tables.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CertificateError(f"{path} is a damaged safetensors file: {error!r}") from error


def _array(entry: dict[str, Any], raw: bytes, start: int) -> np.ndarray:
    kind = np.dtype(NUMBER_TYPES[entry["dtype"]])
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = (int(offset) for offset in entry["data_offsets"])
    count = math.prod(shape)
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(raw) - start:
        raise ValueError(f"an array of shape {shape} from {begin} to {end}")
    if end - begin != count * kind.itemsize:
        raise ValueError(f"{end - begin} bytes for an array of shape {shape}")
    return np.frombuffer(raw, kind, count, start + begin).reshape(shape)
