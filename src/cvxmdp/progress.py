"""A progress line for long work: on a terminal, rewritten in place; elsewhere, silent."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Shows ``name: done/total, rate, time left, note`` on standard error.

    Args:
        name: of the work.
        total: how many steps there are.
        show: True or False; by default only when standard error is a terminal.
    """

    def __init__(self, name: str, total: int, show: bool | None = None) -> None:
        self.name, self.total = name, total
        self.stream: TextIO = sys.stderr
        self.show = self.stream.isatty() if show is None else show
        self.started = time.perf_counter()
        self.width = 0

    def update(self, done: float, note: str = "") -> None:
        """Rewrite the line."""
        if not self.show:
            return
        seconds = max(time.perf_counter() - self.started, 1e-9)
        rate = done / seconds
        left = (self.total - done) / rate if rate > 0 else float("inf")
        bar = "#" * int(20 * done / max(self.total, 1))
        line = f"{self.name} [{bar:<20}] {done:,}/{self.total:,} {rate:,.0f}/s {left:.0f} s left  {note}"
        self.stream.write("\r" + line.ljust(self.width))
        self.stream.flush()
        self.width = len(line)

    def close(self) -> None:
        """End the line."""
        if self.show and self.width:
            self.stream.write("\n")
            self.stream.flush()
