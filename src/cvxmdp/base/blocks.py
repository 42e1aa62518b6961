"""Large arrays in blocks of rows, on as many threads as this process has cores.

Blocks have one size whatever the number of threads, so results have the same bits with one as with many. They
are small enough for a core's own cache: what is done to a block in several steps is read from memory once.
NumPy and SciPy let other threads run while they compute.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache

BLOCK = 2**14  # rows


def own_cores() -> int:
    """Cores that this process may use: on a cluster those of its job, not of its machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores() -> int:
    """The same; fewer where ``OMP_NUM_THREADS`` says so, as Ray does to its workers."""
    mine = own_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(mine, int(asked))) if asked.isdigit() else mine


def in_blocks(work: Callable[[int, int], object], count: int, block: int = BLOCK) -> None:
    """Call ``work(begin, end)`` for blocks that make up ``range(count)``, in any order and on several threads.

    Args:
        work: writes into its own rows, and waits for nobody.
        count: of rows.
        block: rows of a block; the last may be shorter.
    """
    if count <= block:
        work(0, count)
        return
    begins = iter(range(0, count, block))  # threads take the next one from it

    def some() -> None:
        for begin in begins:
            work(begin, min(begin + block, count))

    helping = min(cores(), -(-count // block)) - 1
    helpers = [_pool(os.getpid()).submit(some) for _ in range(helping)]
    try:
        some()
    finally:
        # Those that never began have nothing left to do; the others are in their last block.
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of a parent are not there after a fork."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="cvxmdp")
