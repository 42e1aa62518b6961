"""Logged data as named columns: a data frame, a mapping of arrays, or a CSV file.

Whatever is wrong is named by its row: the line of a CSV file, else the position in the table.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, ModelError, did_you_mean
from cvxmdp.base.storage import require_file

WORDS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
EMPTY = ("", "nan", "none", "null", "na")


@dataclass(frozen=True)
class LogTable:
    """Columns of one length, by name.

    Attributes:
        arrays: the columns; of a CSV file as text.
        source: the file's name, or "" for data in memory.
        lines: of a CSV file: the line each row begins on.
        error: the class of what is raised.
    """

    arrays: Mapping[str, np.ndarray]
    source: str = ""
    lines: np.ndarray | None = None
    error: type[CvxmdpError] = ModelError

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.arrays.values()))) if self.arrays else 0

    def row(self, position: int) -> str:
        if self.lines is not None:
            return f"{self.source}, line {self.lines[position]}"
        return f"row {position}"

    def fail(self, position: Any, message: str) -> CvxmdpError:
        """The error that names a row."""
        return self.error(f"{self.row(int(position))}: {message}")

    def column(self, name: str) -> np.ndarray:
        """A column, or an error that knows the others."""
        if name not in self.arrays:
            raise self.error(
                f"{self.source or 'the table'} has no column {name!r}. "
                f"{did_you_mean(name, self.arrays)} Other names are given with columns="
                f"{{{name!r}: 'your name'}}."
            )
        return self.arrays[name]

    def numbers(self, name: str, *, missing: np.ndarray | None = None) -> np.ndarray:
        """A column as finite float64; where ``missing`` is true anything may stand (NaN is returned)."""
        given = self.column(name)
        allowed = np.zeros(len(given), dtype=bool) if missing is None else missing
        values = as_numbers(given)
        if values is None:
            place = next(i for i, v in enumerate(given) if as_numbers(np.array([v])) is None)
            raise self.fail(place, f"{name} is {given[place]!r}; expected a number")
        wrong = ~np.isfinite(values) & ~allowed
        if wrong.any():
            place = int(np.argmax(wrong))
            raise self.fail(place, f"{name} is {given[place]!r}; expected a finite number")
        return np.where(allowed & ~np.isfinite(values), np.nan, values)

    def flags(self, name: str) -> np.ndarray:
        """A column of truth values: booleans, 0 and 1, or the words true and false."""
        given = self.column(name)
        if given.dtype == bool:
            return given
        texts = [str(value).strip().lower() for value in given.tolist()]
        read = {text: WORDS.get(text) for text in set(texts)}
        if None in read.values():
            place = next(i for i, text in enumerate(texts) if read[text] is None)
            raise self.fail(place, f"{name} is {given[place]!r}; expected true or false")
        return np.array([read[text] for text in texts], dtype=bool)

    def codes(self, name: str, *, missing: np.ndarray | None = None) -> np.ndarray | None:
        """A column as indices 0, 1, ...; -1 where it is missing; None where it holds other labels."""
        given = self.column(name)
        values = as_numbers(given)
        if values is None:
            return None
        values = self.numbers(name, missing=missing)
        absent = np.isnan(values)
        whole = np.where(absent, 0.0, values)
        wrong = (whole != np.floor(whole)) | (whole < 0) | (whole >= 2**53)
        if missing is not None:
            absent, wrong = absent | (missing & wrong), wrong & ~missing
        if wrong.any():
            place = int(np.argmax(wrong))
            raise self.fail(
                place, f"{name} is {given[place]!r}; numbers of a {name} are whole and not negative"
            )
        return np.where(absent, -1, whole).astype(np.int64)

    def labels(self, name: str, *, missing: np.ndarray | None = None) -> np.ndarray:
        """A column as text; empty ones are refused unless ``missing`` says that they may be."""
        texts = np.array([str(value).strip() for value in self.column(name).tolist()], dtype=object)
        for place, text in enumerate(texts):
            if text.lower() in EMPTY and not (missing is not None and missing[place]):
                raise self.fail(place, f"{name} is empty")
        return texts

    def episode_starts(self, over: np.ndarray, connected: np.ndarray | None = None) -> np.ndarray:
        """The rows that episodes begin with, by the column ``episode`` where there is one.

        Args:
            over: rows that end an episode or were the last before it was cut, (n,).
            connected: rows that begin where the row before led, from the second on, (n - 1,); None where
                nobody knows.
        """
        begins = over[:-1] if connected is None else over[:-1] | ~connected
        if "episode" in self.arrays:
            label = self.labels("episode")
            same = np.array(label[1:] == label[:-1], dtype=bool)
            begins = ~same
            late = same & over[:-1]
            if late.any():
                place = int(np.argmax(late)) + 1
                raise self.fail(
                    place, f"episode {label[place]} goes on after the row that ended it"
                )
            if connected is not None and (same & ~connected).any():
                place = int(np.argmax(same & ~connected)) + 1
                raise self.fail(
                    place,
                    f"episode {label[place]} goes on in state {self.column('state')[place]!r}, but the "
                    f"row before led to {self.column('next_state')[place - 1]!r}",
                )
            order = label[np.concatenate([[True], begins])]
            again = [name for name, times in Counter(order).items() if times > 1]
            if again:
                raise self.error(
                    f"the rows of episode {again[0]} do not lie together; sort the table by episode and step"
                )
        return np.flatnonzero(np.concatenate([[True], begins]))


def as_numbers(given: np.ndarray) -> np.ndarray | None:
    """float64, with NaN for empty cells; None where something is not a number."""
    if given.dtype.kind in "iufb":
        return given.astype(np.float64)
    if given.dtype.kind in "US":
        try:
            return given.astype(np.float64)  # no cell is empty: fast
        except ValueError:
            pass
    cells = [
        np.nan if value is None or str(value).strip().lower() in EMPTY else value
        for value in given.tolist()
    ]
    try:
        return np.array(cells, dtype=object).astype(np.float64)
    except (TypeError, ValueError):
        return None


def read_log_table(
    table: Any, renamed: Mapping[str, str] | None = None, error: type[CvxmdpError] = ModelError
) -> LogTable:
    """Named columns from a data frame, a mapping of arrays, or the path of a CSV file.

    Args:
        table: a pandas (or similar) data frame, a mapping from names to arrays of one length, or a path.
        renamed: what our columns are called there, {"next_state": "s2"}.
        error: the class of what is raised.
    """
    on_disk = isinstance(table, str | Path)
    columns = _read_csv(Path(table), error) if on_disk else _read_memory(table, error)
    arrays = dict(columns.arrays)
    for ours, theirs in (renamed or {}).items():
        if theirs not in columns.arrays:
            raise error(f"there is no column {theirs!r}. {did_you_mean(theirs, columns.arrays)}")
        arrays[ours] = arrays.pop(theirs) if theirs in arrays else columns.arrays[theirs]
    if not arrays or len(next(iter(arrays.values()))) == 0:
        raise error(f"{columns.source or 'the table'} has no rows")
    return LogTable(arrays, columns.source, columns.lines, error)


def _read_memory(table: Any, error: type[CvxmdpError]) -> LogTable:
    # of pyarrow; of pandas and polars; of an opened .npz
    known = (getattr(table, name, None) for name in ("column_names", "columns", "files"))
    names = next((one for one in known if one is not None), None)
    if names is None and isinstance(table, Mapping):
        names = table.keys()
    if names is None:
        raise error(
            f"a table is a data frame, a mapping of names to arrays, or the path of a CSV file; got "
            f"{type(table).__name__}"
        )
    arrays = {str(name): np.asarray(table[name]) for name in names}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise error(f"column {name!r} has shape {array.shape}; expected one value per row")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise error(f"the columns of a table have one length; these have {lengths}")
    return LogTable(arrays, error=error)


def _read_csv(path: Path, error: type[CvxmdpError]) -> LogTable:
    with require_file(path).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader)]
        except StopIteration:
            raise error(f"{path.name} is empty; its first line names the columns") from None
        if len(set(header)) != len(header):
            raise error(f"{path.name}, line 1: a column is named twice in {header}")
        cells: list[list[str]] = [[] for _ in header]
        lines = []
        try:
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise error(
                        f"{path.name}, line {reader.line_num}: {len(row)} values for the "
                        f"{len(header)} columns {', '.join(header)}"
                    )
                lines.append(reader.line_num)
                for column, value in zip(cells, row, strict=True):
                    column.append(value)
        except (csv.Error, UnicodeDecodeError) as cause:
            raise error(f"{path.name}, line {reader.line_num}: {cause}") from cause
    arrays = {name: np.array(column) for name, column in zip(header, cells, strict=True)}
    return LogTable(arrays, path.name, np.array(lines), error)
