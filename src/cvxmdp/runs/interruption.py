"""Ctrl-C as a question that is looked at between pieces of work.

An exception in the middle of compiled code, or of the compiler itself, ends a process in bad ways. So the first
Ctrl-C only raises a flag; the second one raises ``KeyboardInterrupt``, for work that does not come to look.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Stop:
    """Whether somebody asked for an end."""

    asked = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Take Ctrl-C as a question, in the main thread; elsewhere signals do not arrive, and nothing changes."""
    stop = Stop()
    own = signal.getsignal(signal.SIGINT) if _is_main() else None
    # Only Python's own way with Ctrl-C is replaced, and a command's: whoever has another one (a server, a run
    # around this one) keeps it.
    if own is not signal.default_int_handler and not isinstance(own, _Leaving):
        yield stop if not isinstance(own, _Handler) else own.stop
        return
    signal.signal(signal.SIGINT, _Handler(stop))
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, own)


def leave_on_interrupts(error: str, output: str = "") -> None:
    """For a command: outside of a run Ctrl-C ends the process at once, with these words.

    An exception would come up inside the compiled code of a package that is being loaded, or of the compiler,
    where it ends in a segmentation fault or is printed and goes no further. Nothing is lost without one: files
    are written whole or not at all.
    """
    if _is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Leaving(error, output))


@contextmanager
def last_words(more: str) -> Iterator[None]:
    """What a command says besides, where Ctrl-C ends it in this block."""
    own = signal.getsignal(signal.SIGINT) if _is_main() else None
    if not isinstance(own, _Leaving):
        yield
        return
    signal.signal(signal.SIGINT, _Leaving(own.error + more, own.output))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, own)


class _Leaving:
    def __init__(self, error: str, output: str) -> None:
        self.error, self.output = error, output

    def __call__(self, number: int, frame: Any) -> None:
        with suppress(Exception):  # a line may be half printed
            sys.stdout.flush()
            os.write(1, self.output.encode())
            os.write(2, self.error.encode())
        os._exit(128 + number)


class _Handler:
    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def __call__(self, number: int, frame: Any) -> None:
        if self.stop.asked:
            signal.default_int_handler(number, frame)
        self.stop.asked = True


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
