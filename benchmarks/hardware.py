"""The machine a benchmark ran on, in one line, to be printed beside its numbers; its clock and its memory."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from typing import TypeVar

from cvxmdp.base.machine import processor

Result = TypeVar("Result")


def hardware() -> str:
    """Processor, cores, memory and Python of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"


def timed(function: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds of the clock that a call takes, and what it gives."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def peak() -> float:
    """Peak memory of this process, GB; Linux says it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
