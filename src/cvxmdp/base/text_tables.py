"""Numbers and tables as people read them: what every printed thing is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float) -> str:
    """A number as people read it: seven digits, no noise around zero."""
    if math.isnan(value):
        return "-"
    return f"{value:.7g}" if abs(value) >= 1e-12 or value == 0 else f"{value:.1e}"


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
