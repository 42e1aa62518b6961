"""Ctrl-C as a question that is looked at between pieces of work.

An exception in the middle of compiled code, or of the compiler itself, ends a process in bad ways. So the first
Ctrl-C only raises a flag; the second one raises ``KeyboardInterrupt``, for work that does not come to look.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Whether somebody asked for an end."""

    asked = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Take Ctrl-C as a question, in the main thread; elsewhere signals do not arrive, and nothing changes."""
    stop = Stop()
    own = signal.getsignal(signal.SIGINT) if _is_main() else None
    # Only Python's own way with Ctrl-C is replaced: whoever has another one (a server, a run around this one)
    # keeps it.
    if isinstance(own, _Remembering):
        stop.asked = own.asked
    elif own is not signal.default_int_handler:
        yield stop if not isinstance(own, _Handler) else own.stop
        return
    signal.signal(signal.SIGINT, _Handler(stop))
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, own)


def remember_interrupts() -> None:
    """For a command: Ctrl-C before there is a run is an exception as ever, and remembered.

    An exception that comes up in a callback of compiled code, or while an object is freed, is printed there
    and goes no further; the run that begins next would know nothing of it.
    """
    if _is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Remembering())


class _Remembering:
    asked = False

    def __call__(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.default_int_handler(number, frame)


class _Handler:
    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def __call__(self, number: int, frame: Any) -> None:
        if self.stop.asked:
            signal.default_int_handler(number, frame)
        self.stop.asked = True


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
