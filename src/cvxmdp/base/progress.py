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
        after: seconds of work before which nothing is shown: what is soon done needs no line.
    """

    def __init__(
        self, name: str, total: int, show: bool | None = None, *, after: float = 0.0
    ) -> None:
        self.name, self.total, self.after = name, total, after
        self.stream: TextIO = sys.stderr
        # While a spinner of Rich runs, it stands in for standard error and would print every update as a line.
        spinning = hasattr(self.stream, "rich_proxied_file")
        self.show = self.stream.isatty() and not spinning if show is None else show
        self.started = time.perf_counter()
        self.width = 0

    def update(self, done: float, note: str = "") -> None:
        """Rewrite the line."""
        seconds = max(time.perf_counter() - self.started, 1e-9)
        if not self.show or seconds < self.after:
            return
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
