"""Parquet files: sizes are checked before memory is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cvxmdp.base.errors import FileFormatError, require
from cvxmdp.base.npz_files import LARGEST
from cvxmdp.base.storage import require_file

ROWS_AT_ONCE = 4096


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
            if (
                file.metadata.num_rows * file.metadata.num_columns > largest
            ):  # a byte each, at least
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
