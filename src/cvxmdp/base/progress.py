"""How far long work is: on a terminal a line that is rewritten, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TextIO

REFRESH = 0.1  # seconds between two looks of a line on a terminal
FIRST_LINE = 60.0  # seconds of work before the first plain line; the second comes after twice that, and so on


class Progress:
    """Shows ``name: done/total, rate, time left, note``.

    Args:
        name: of the work.
        total: how many steps there are.
        show: False for nothing at all; True for a line that is rewritten even where there is no terminal.
        after: seconds of work before which nothing is shown: what is soon done needs no line.
    """

    def __init__(
        self, name: str, total: int, show: bool | None = None, *, after: float = 0.0
    ) -> None:
        self.name, self.total, self.after = name, total, after
        self.stream: TextIO = sys.stderr
        # While a spinner of Rich runs, it stands in for standard error and would print every update as a line.
        spinning = hasattr(self.stream, "rich_proxied_file")
        terminal = self.stream.isatty()
        self.show = terminal and not spinning if show is None else show
        self.plain = show is None and not terminal
        self.next_plain = FIRST_LINE
        self.started = time.perf_counter()
        self.shown, self.width, self.pending = -REFRESH, 0, ""
        # Where the work was when it was first looked at: a run that goes on.
        self.first: float | None = None

    def update(self, done: float, note: str = "", total: int | None = None) -> None:
        """Say where the work is, if it is time to."""
        self.total = self.total if total is None else total
        self.first = done if self.first is None else min(self.first, done)
        seconds = max(time.perf_counter() - self.started, 1e-9)
        if self.show and seconds >= self.after:
            self.pending = self._line(done, seconds, note)
            if seconds - self.shown >= REFRESH:
                self.shown = seconds
                self._rewrite()
        elif self.plain and seconds >= self.next_plain:
            self.stream.write(self._line(done, seconds, note) + "\n")
            self.stream.flush()
            self.next_plain = 2.0 * seconds

    def _rewrite(self) -> None:
        self.stream.write("\r" + self.pending.ljust(self.width))
        self.stream.flush()
        self.width, self.pending = len(self.pending), ""

    def _line(self, done: float, seconds: float, note: str) -> str:
        rate = (done - (self.first or 0.0)) / seconds
        left = f"{(self.total - done) / rate:,.0f} s left" if rate > 0 else "time left unknown"
        bar = "#" * int(20 * done / max(self.total, 1))
        pace = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        line = f"{self.name} [{bar:<20}] {done:,}/{self.total:,} {pace} {left}  {note}"
        return line.rstrip()

    def close(self) -> None:
        """End the line, at what was last said of the work."""
        if self.pending:
            self._rewrite()
        if self.width:
            self.stream.write("\n")
            self.stream.flush()
