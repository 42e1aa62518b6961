"""Lines and numbers of PRISM's files, one line in memory at a time; what is wrong is named by its line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.storage import require_file

LONGEST_LINE = 1_000_000
Place = tuple[str, int]  # a file and a line; put into words only when something is wrong


def at(place: Place) -> str:
    """A place in words."""
    return f"{place[0]}, line {place[1]}"


def unexpected(place: Place, line: str, expected: str) -> FileFormatError:
    """The error about a line that is not what was expected."""
    return FileFormatError(f"{at(place)}: {line[:60]!r}; expected {expected}")


def lines_of(path: Path) -> Iterator[tuple[Place, str]]:
    """Lines with their place; blank ones and comments are passed over. One line in memory at a time."""
    with require_file(path).open(encoding="utf-8") as file:
        number = 0
        while True:
            number += 1
            place = (path.name, number)
            try:
                line = file.readline(LONGEST_LINE)
            except UnicodeDecodeError as error:
                raise FileFormatError(f"{at(place)}: not text ({error})") from error
            if not line:
                return
            if len(line) >= LONGEST_LINE:
                raise FileFormatError(f"{at(place)}: longer than {LONGEST_LINE:,} characters")
            if line.strip() and not line.lstrip().startswith("#"):
                yield place, line.strip()


def whole(text: str, below: int | None, what: str, place: Place) -> int:
    """A whole number that is not negative, and below ``below``."""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise FileFormatError(f"{at(place)}: {what} is {text!r}; expected a whole number")
    value = int(text)
    if below is not None and value >= below:
        raise FileFormatError(f"{at(place)}: {what} is {value}; expected one below {below:,}")
    return value


def number(text: str, what: str, place: Place) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FileFormatError(f"{at(place)}: {what} is {text!r}; expected a number")
    return value


def header(lines: Iterator[tuple[Place, str]], path: Path, counts: tuple[int, ...]) -> list[int]:
    """The sizes on the first line, as many as one of ``counts``."""
    try:
        place, line = next(lines)
    except StopIteration:
        raise FileFormatError(f"{path.name} is empty") from None
    words = line.split()
    if len(words) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise FileFormatError(
            f"{at(place)}: the first line is {line[:60]!r}; expected {expected} whole numbers"
        )
    return [whole(word, None, "a size", place) for word in words]
