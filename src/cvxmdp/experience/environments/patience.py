"""A limit on how long a simulator may take for one answer: a step that hangs must not hang whoever learns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class ImpatientError(Exception):
    """A simulator did not answer in time."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise ``ImpatientError`` inside the block once it has taken that long.

    By the alarm clock of the main thread, which costs a microsecond: code that waits, sleeps or loops in Python
    is interrupted, code that never comes back from a library is not. In other threads there is no limit.
    """
    known = hasattr(signal, "setitimer")  # not on Windows
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise ImpatientError(f"no answer within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
