"""Numbers and tables as people read them: what every printed thing is made of."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence


def number(value: float) -> str:
    """A number as people read it: seven digits, no noise around zero."""
    if math.isnan(value):
        return "-"
    return f"{value:.7g}" if abs(value) >= 1e-12 or value == 0 else f"{value:.1e}"


def several(count: int, word: str) -> str:
    """So many of something: one iteration, two iterations."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first two columns to the left, numbers to the right."""
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def exact(value: float) -> str:
    """A number that reads back as it is: six digits where they are enough."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def printable(text: str) -> str:
    """Text that only says something: codes that move a cursor or colour a terminal are shown, not sent."""
    return "".join(
        letter if letter in "\n\t" or not _is_control(letter) else _code(letter) for letter in text
    )


def _is_control(letter: str) -> bool:
    """Control codes, lone surrogates, and marks that turn the direction of writing."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Cf") and letter not in "\u200c\u200d"


def _code(letter: str) -> str:
    return (
        letter.encode("ascii", "backslashreplace").decode()
        if ord(letter) > 127
        else f"\\x{ord(letter):02x}"
    )
