"""Tables of columns in files, by their ending: csv and json for people, Parquet for programs."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, reading, require
from cvxmdp.base.npz_files import LARGEST
from cvxmdp.base.storage import require_file, whole_file

Columns = dict[str, np.ndarray]
ROWS_AT_ONCE = 4096


def write_columns(path: Path, columns: Columns) -> None:
    """Write a table in the format of the file's ending, whole or not at all."""
    with whole_file(path) as temporary:
        WRITERS[path.suffix](temporary, columns)


def read_columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a table that ``write_columns`` wrote, or somebody by hand."""
    given = require_file(path)
    with reading(f"{path} does not hold a table", OSError):
        return READERS[path.suffix](given)


def _write_csv(path: Path, columns: Columns) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _read_csv(path: Path) -> dict[str, list[Any]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    names = [name.strip() for name in header]
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise FileFormatError(
                f"{path}, row {number} has {len(row)} cells; the header has {len(names)}"
            )
    return {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}


def _write_json(path: Path, columns: Columns) -> None:
    cells = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = [dict(zip(columns, map(_finite, row), strict=True)) for row in cells]
    path.write_text(json.dumps({"rows": rows}, indent=1), "utf-8")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read_json(path: Path) -> dict[str, list[Any]]:
    document = json.loads(path.read_text("utf-8"))
    if not isinstance(document, dict) or not document.get("rows"):
        raise FileFormatError(f"{path} does not hold a table: it has no 'rows'")
    rows = document["rows"]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _write_parquet(path: Path, columns: Columns) -> None:
    pyarrow, parquet = require("pyarrow", "report"), require("pyarrow.parquet", "report")
    parquet.write_table(
        pyarrow.table({name: pyarrow.array(c) for name, c in columns.items()}), path
    )


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = read_parquet(path).to_pydict()
    return found


WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".parquet": _write_parquet,
}
READERS: dict[str, Callable[[Path], dict[str, list[Any]]]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".parquet": _read_parquet,
}


def read_parquet(path: Path, largest: int = LARGEST) -> Any:
    """The table of a file, a ``pyarrow.Table``.

    A few bytes can stand for billions of rows, and one text for all rows of a column: the promise is looked at
    first, and what is unpacked is counted on the way.

    Args:
        path: the file.
        largest: how many bytes are unpacked, at most.
    """
    pyarrow, parquet = require("pyarrow", "report"), require("pyarrow.parquet", "report")
    too_large = f"{path.name} unpacks to more than {largest:,} bytes; split it into smaller files"
    try:
        with parquet.ParquetFile(require_file(path)) as file:
            # A byte each, at least.
            if file.metadata.num_rows * file.metadata.num_columns > largest:
                raise FileFormatError(too_large)
            batches, unpacked = [], 0
            for batch in file.iter_batches(ROWS_AT_ONCE):
                unpacked += batch.nbytes
                if unpacked > largest:
                    raise FileFormatError(too_large)
                batches.append(batch)
            return pyarrow.Table.from_batches(batches, file.schema_arrow)
    except FileNotFoundError:
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path.name} cannot be read as Parquet: {error}") from error
