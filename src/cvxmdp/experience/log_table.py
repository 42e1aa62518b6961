"""Logged data as named columns: a data frame, a mapping of arrays, or a file (CSV, Parquet).

Whatever is wrong is named by its row: the line of a CSV file, else the position in the table. Rows are read to
the end before anything is raised, so that one message has them all.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, FileFormatError, ModelError, did_you_mean
from cvxmdp.base.storage import require_file
from cvxmdp.base.table_files import read_parquet

WORDS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
ZEROS = re.compile(r"0\d+")  # digits that are no way to write a number
EMPTY = ("", "nan", "none", "null", "na")
LONGEST_HEADER = 100_000  # characters
NAMES_MEANT = ". If names are meant, give all of them names: 's1' for 1"
COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
SHOWN = 10  # dirty rows that a message lists
# A column with a larger share of numbers is one of numbers, and its texts are mistakes.
MOSTLY = 0.5


@dataclass(frozen=True)
class LogTable:
    """Columns of one length, by name.

    Attributes:
        arrays: the columns; of a CSV file as text.
        source: the file's name, or "" for data in memory.
        lines: of a CSV file: the line each row begins on.
        error: the class of what is raised.
        dirt: what is wrong so far: the line (or row), and why.
    """

    arrays: Mapping[str, np.ndarray]
    source: str = ""
    lines: np.ndarray | None = None
    error: type[CvxmdpError] = ModelError
    dirt: list[tuple[int, str]] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.arrays.values()))) if self.arrays else 0

    def row(self, position: int) -> str:
        if self.lines is not None:
            return f"{self.source}, line {self.lines[position]}"
        return f"row {position}"

    def wrong(self, rows: Iterable[Any], message: Callable[[int], str]) -> None:
        """Note rows that cannot be used, and why; ``require_clean`` raises them all together."""
        for row in rows:
            line = int(row) if self.lines is None else int(self.lines[row])
            self.dirt.append((line, message(int(row))))

    def require_clean(self) -> None:
        """An error that lists the first dirty rows and says how many there are."""
        if not self.dirt:
            return
        found = sorted(self.dirt, key=lambda one: one[0])
        word = "row" if self.lines is None else "line"
        place = f"{self.source}, " if self.lines is not None else ""
        if len(found) == 1:
            raise self.error(f"{place}{word} {found[0][0]}: {found[0][1]}")
        rows = len({line for line, _ in found})
        shown = "".join(f"\n  {word} {line}: {message}" for line, message in found[:SHOWN])
        more = f"\n  and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
        raise self.error(f"{place}{rows:,} {word}s cannot be used:{shown}{more}")

    def column(self, name: str) -> np.ndarray:
        """A column, or an error that knows the others."""
        if name not in self.arrays:
            raise self.error(
                f"{self.source or 'the table'} has no column {name!r}. "
                f"{did_you_mean(name, self.arrays)} Other names are given with columns="
                f"{{{name!r}: 'your name'}}."
            )
        return self.arrays[name]

    def numbers(
        self, name: str, *, missing: np.ndarray | None = None, hint: str = ""
    ) -> np.ndarray:
        """A column as finite float64; where ``missing`` is true anything may stand (NaN is returned).

        Args:
            name: of the column.
            missing: boolean (n,).
            hint: what else to say of a text among the numbers.
        """
        given = self.column(name)
        allowed = np.zeros(len(given), dtype=bool) if missing is None else missing
        values, text = read_numbers(given)
        wrong = ~np.isfinite(values) & ~allowed
        others = f"; {int((~text).sum()):,} other rows have numbers" if text.any() else ""

        def message(row: int) -> str:
            expected = f"a number{others}{hint}" if text[row] else "a finite number"
            return f"{name} is {shown(given[row])}; expected {expected}"

        self.wrong(np.flatnonzero(wrong), message)
        return np.where(allowed & ~np.isfinite(values), np.nan, values)

    def flags(self, name: str) -> np.ndarray:
        """A column of truth values: booleans, 0 and 1, or the words true and false."""
        given = self.column(name)
        if given.dtype == bool:
            return given
        texts = [str(value).strip().lower() for value in given.tolist()]
        read = {text: WORDS.get(text) for text in set(texts)}
        bad = [row for row, text in enumerate(texts) if read[text] is None]
        self.wrong(bad, lambda row: f"{name} is {shown(given[row])}; expected true or false")
        return np.array([bool(read[text]) for text in texts], dtype=bool)

    def codes(self, name: str, *, missing: np.ndarray | None = None) -> np.ndarray | None:
        """A column as indices 0, 1, ...; -1 where it is missing; None where it holds other labels."""
        given = self.column(name)
        needed = np.ones(len(given), dtype=bool) if missing is None else ~missing
        if not is_numeric(given[needed]) or _has_zeros_in_front(given[needed]):
            return None
        values = self.numbers(name, missing=missing, hint=NAMES_MEANT)
        absent = ~np.isfinite(values)
        whole = np.where(absent, 0.0, values)
        wrong = (whole != np.floor(whole)) | (whole < 0) | (whole >= 2**53)
        absent, wrong = absent | (wrong & ~needed), wrong & needed
        kind = f"numbers of a {name} are whole and not negative{NAMES_MEANT}"
        self.wrong(np.flatnonzero(wrong), lambda row: f"{name} is {shown(given[row])}; {kind}")
        return np.where(absent | wrong, -1, whole).astype(np.int64)

    def labels(self, name: str, *, missing: np.ndarray | None = None) -> np.ndarray:
        """A column as text; empty ones are refused unless ``missing`` says that they may be."""
        texts = np.array([str(value).strip() for value in self.column(name).tolist()], dtype=object)
        allowed = np.zeros(len(texts), dtype=bool) if missing is None else missing
        empty = [row for row, t in enumerate(texts) if t.lower() in EMPTY and not allowed[row]]
        self.wrong(empty, lambda row: f"{name} is empty")
        return texts

    def episode_starts(self, over: np.ndarray, connected: np.ndarray | None = None) -> np.ndarray:
        """The rows that episodes begin with, by the column ``episode`` where there is one.

        Args:
            over: rows that end an episode or were the last before it was cut, (n,).
            connected: rows that begin where the row before led, from the second on, (n - 1,); None where
                nobody knows.
        """
        if not len(over):
            return np.zeros(0, dtype=np.int64)
        begins = over[:-1] if connected is None else over[:-1] | ~connected
        if "episode" in self.arrays:
            label = self.labels("episode")
            same = np.array(label[1:] == label[:-1], dtype=bool)
            begins = ~same
            order = label[np.concatenate([[True], begins])]
            again = [name for name, times in Counter(order).items() if times > 1]
            if again:
                raise self.error(
                    f"the rows of episode {again[0]} do not lie together; sort the table by episode and step"
                )
            self.wrong(
                np.flatnonzero(same & over[:-1]) + 1,
                lambda row: f"episode {label[row]} goes on after the row that ended it",
            )
            if connected is not None:
                self.wrong(
                    np.flatnonzero(same & ~over[:-1] & ~connected) + 1,
                    lambda row: (
                        f"episode {label[row]} goes on in state {shown(self.column('state')[row])}, but the "
                        f"row before led to {shown(self.column('next_state')[row - 1])}"
                    ),
                )
            self.require_clean()
        return np.flatnonzero(np.concatenate([[True], begins]))


def shown(cell: Any) -> str:
    """A cell as it stands in the log, without the name of NumPy's type."""
    return repr(cell.item() if isinstance(cell, np.generic) else cell)


def read_numbers(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64, with NaN for empty cells and for texts; and which cells are texts."""
    if given.dtype.kind in "iufb":
        return given.astype(np.float64), np.zeros(len(given), dtype=bool)
    if given.dtype.kind in "US":
        try:
            return given.astype(np.float64), np.zeros(len(given), dtype=bool)  # fast
        except ValueError:
            pass
    values = np.full(len(given), np.nan)
    text = np.zeros(len(given), dtype=bool)
    for row, cell in enumerate(given.tolist()):
        if cell is None or str(cell).strip().lower() in EMPTY:
            continue
        try:
            values[row] = float(cell)
        except (TypeError, ValueError):
            text[row] = True
    return values, text


def is_numeric(given: np.ndarray) -> bool:
    """Whether a column is one of numbers; a few texts in it are mistakes, and so are a few empty cells."""
    values, text = read_numbers(given)
    filled = int(np.isfinite(values).sum() + text.sum())
    return not text.sum() > (1 - MOSTLY) * filled


def _has_zeros_in_front(given: np.ndarray) -> bool:
    """Whether some text is a number only by its digits: "007" is a name, and another one than "7"."""
    if given.dtype.kind not in "USO":
        return False
    return any(ZEROS.fullmatch(str(cell).strip()) for cell in set(given.tolist()))


def read_log_table(
    table: Any,
    renamed: Mapping[str, str] | None = None,
    error: type[CvxmdpError] = ModelError,
    *,
    empty: bool = False,
) -> LogTable:
    """Named columns from a data frame, a mapping of arrays, or the path of a CSV or Parquet file.

    Args:
        table: a pandas (or similar) data frame, a mapping from names to arrays of one length, or a path.
        renamed: what our columns are called there, {"next_state": "s2"}.
        error: the class of what is raised.
        empty: whether a table without rows will do.
    """
    columns = (
        _read_file(Path(table), error)
        if isinstance(table, str | Path)
        else _read_memory(table, error)
    )
    arrays = dict(columns.arrays)
    for ours, theirs in (renamed or {}).items():
        if theirs not in columns.arrays:
            raise error(f"there is no column {theirs!r}. {did_you_mean(theirs, columns.arrays)}")
        arrays[ours] = arrays.pop(theirs) if theirs in arrays else columns.arrays[theirs]
    if not arrays or (len(next(iter(arrays.values()))) == 0 and not empty and not columns.dirt):
        raise error(f"{columns.source or 'the table'} has no rows")
    return LogTable(arrays, columns.source, columns.lines, error, columns.dirt)


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


def _read_file(path: Path, error: type[CvxmdpError]) -> LogTable:
    if path.suffix != ".parquet":
        return _read_csv(path, error)
    try:
        return _read_memory(read_parquet(path), error)
    except FileFormatError as cause:
        raise error(str(cause)) from cause


def delimiter_of(header: str) -> str:
    """What separates the cells of a file whose first line this is: a comma, else a semicolon or a tab."""
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _not_unicode(path: Path) -> str:
    if path.suffix in COMPRESSED:
        return f"{path.name} is compressed; unpack it, or give a data frame: pandas.read_csv({path.name!r})"
    return (
        f"{path.name} is not text in UTF-8; save it with that encoding (in spreadsheets: CSV UTF-8)"
    )


def _read_csv(path: Path, error: type[CvxmdpError]) -> LogTable:
    with require_file(path).open(newline="", encoding="utf-8-sig") as file:
        try:
            reader = csv.reader(file, delimiter=delimiter_of(file.readline(LONGEST_HEADER)))
            file.seek(0)
            header = [name.strip() for name in next(reader)]
        except StopIteration:
            raise error(f"{path.name} is empty; its first line names the columns") from None
        except UnicodeDecodeError as cause:
            raise error(_not_unicode(path)) from cause
        except csv.Error as cause:
            raise error(f"{path.name}, line 1: {cause}") from cause
        if len(set(header)) != len(header):
            raise error(
                f"{path.name}, line 1: a column is named twice in {header}; the first line names the columns"
            )
        cells: list[list[str]] = [[] for _ in header]
        lines: list[int] = []
        dirt: list[tuple[int, str]] = []
        try:
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    columns = f"{len(header)} columns {', '.join(header)}"
                    dirt.append((reader.line_num, f"{len(row)} values for the {columns}"))
                    continue
                lines.append(reader.line_num)
                for column, value in zip(cells, row, strict=True):
                    column.append(value)
        except UnicodeDecodeError as cause:
            raise error(_not_unicode(path)) from cause
        except csv.Error as cause:
            raise error(f"{path.name}, line {reader.line_num}: {cause}") from cause
    arrays = {name: np.array(column) for name, column in zip(header, cells, strict=True)}
    return LogTable(arrays, path.name, np.array(lines, dtype=np.int64), error, dirt)
