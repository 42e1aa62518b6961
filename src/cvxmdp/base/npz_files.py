"""NumPy's own files, read as plain numbers: nothing is unpickled, sizes are checked before memory is taken."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.storage import require_file

# Bytes of numbers; a table of a million states and ten actions has some 1e8 entries.
LARGEST = 2**31
# What zipfile raises for broken archives: offsets that lead nowhere, methods nobody knows, passwords.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
NUMBERS = "fiub"  # the kinds of NumPy types that are read as numbers


def read_npz(path: Path, largest: int = LARGEST) -> dict[str, np.ndarray]:
    """The arrays of an npz file. A header that promises more than the file holds is refused unread.

    Args:
        path: the file.
        largest: how many bytes of numbers are read, at most.
    """
    found = require_file(path)
    try:
        with zipfile.ZipFile(found) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            if sum(entry.file_size for entry in members) > largest:
                raise FileFormatError(f"{path.name} unpacks to more than {largest:,} bytes")
            arrays = {}
            for entry in members:
                with archive.open(entry) as file:
                    name = entry.filename.removesuffix(".npy")
                    arrays[name] = read_npy(file, entry.file_size, f"{path.name}#{name}")
    except BROKEN as error:
        raise FileFormatError(f"{path.name} is not an npz file: {error}") from error
    return arrays


def read_npy(file: IO[bytes], size: int, what: str) -> np.ndarray:
    """One array in NumPy's format, read only if the file is as long as its header says."""
    form = np.lib.format
    try:
        version = form.read_magic(file)
        read_header = {1: form.read_array_header_1_0, 2: form.read_array_header_2_0}[version[0]]
        shape, fortran, dtype = read_header(file)
    except (ValueError, KeyError, OSError, TypeError, SyntaxError, TokenError) as error:
        raise FileFormatError(f"{what} is not an array in NumPy's format: {error}") from error
    if dtype.hasobject or dtype.kind not in NUMBERS + "SU":
        raise FileFormatError(f"{what} holds {dtype}, not numbers; save it as float64")
    if any(length < 0 for length in shape):
        raise FileFormatError(f"{what} has the shape {shape}")
    expected = math.prod(shape) * dtype.itemsize
    if expected > size:
        raise FileFormatError(f"{what} promises {expected:,} bytes of numbers and is shorter")
    content = file.read(expected)
    if len(content) != expected:
        raise FileFormatError(f"{what} is cut short")
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if fortran else "C").copy()
