"""Compiled programs: how they are made, and when they are let go.

Every jitted function of the library is a ``Program``. Its compiled forms, one per shape, stay until there are
``MOST_PROGRAMS`` of them in all; then ``let_go`` drops them between two runs, so that a process that solves
models of many sizes does not grow (about 10 MB for each program).

On a CPU, XLA hands sums of 4,096 entries and more to a library (YNNPACK) and products of matrices to threads,
and orders the parts of a program so that threads may share them. Inside a loop over arrays as small as ours
each costs many times the work itself (docs/sweeps.md has the measurement), so they are turned off for such
loops (``small_loop``), and for them alone. What runs once, at the start of a run (``run_once``), is compiled
with little care: a third of the time, and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np

SMALL_LOOPS: dict[str, Any] = {
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
}
RUN_ONCE: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
MOST_PROGRAMS = 32
LEAST_ROWS = 256
FEW = 32  # entries, such as the actions of a state
_programs: list[Program] = []  # all there are: they are made when modules are imported


def has_accelerator() -> bool:
    """Whether programs run elsewhere than on the processor."""
    return jax.default_backend() != "cpu"


def written_out(entries: int) -> bool:
    """Whether a sum of so many entries is written out: it is a kernel of its own otherwise on accelerators."""
    return has_accelerator() and entries <= FEW


@lru_cache(maxsize=1)
def known_options() -> dict[str, Any]:
    """The options above that this version of XLA understands; none where there is an accelerator."""
    if has_accelerator():
        return {}
    options = SMALL_LOOPS | RUN_ONCE
    if _understood(options):
        return options
    return {name: value for name, value in options.items() if _understood({name: value})}


def _understood(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda x: x + 1.0, compiler_options=options)(0.0)
    except Exception:  # versions of JAX differ in what they raise
        return False
    return True


class Program:
    """``jax.jit``, made when it is first called.

    Which options there are depends on the device, and asking for the device when a module is imported would
    start it.

    Args:
        function: what is compiled.
        static: names of its static arguments.
        wanted: options of the compiler, of which those that it understands are given.
    """

    def __init__(
        self, function: Callable[..., Any], static: tuple[str, ...], wanted: Iterable[str] = ()
    ) -> None:
        self.function, self.static, self.wanted = function, static, frozenset(wanted)
        self.__doc__ = function.__doc__
        _programs.append(self)

    @cached_property
    def jitted(self) -> Any:
        known = known_options() if self.wanted else {}
        options = {name: value for name, value in known.items() if name in self.wanted}
        return jax.jit(self.function, static_argnames=self.static, compiler_options=options or None)

    @property
    def count(self) -> int:
        """How many compiled forms it has."""
        return int(self.jitted._cache_size()) if "jitted" in self.__dict__ else 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.jitted(*arguments, **named)


def program(*static: str) -> Callable[[Callable[..., Any]], Program]:
    """A decorator: compile, with these static arguments."""
    return lambda function: Program(function, static)


def small_loop(*static: str) -> Callable[[Callable[..., Any]], Program]:
    """A decorator: compile for small arrays, with these static arguments."""
    return lambda function: Program(function, static, SMALL_LOOPS)


def run_once(*static: str) -> Callable[[Callable[..., Any]], Program]:
    """A decorator: compile quickly what is run once, with these static arguments."""
    return lambda function: Program(function, static, RUN_ONCE)


def rows_for(count: int) -> int:
    """Rows of a table with room for ``count``: few sizes, so that runs of many lengths share programs.

    An accelerator, whose tables have thousands of lanes and a way to go, does without rows that stay empty.
    """
    least = 1 if has_accelerator() else LEAST_ROWS
    return max(least, 1 << (count - 1).bit_length())


def let_go(most: int = MOST_PROGRAMS) -> None:
    """Drop what is compiled where it is more than ``most`` programs. Between runs, never inside of one."""
    if sum(one.count for one in _programs) <= most:
        return
    for one in _programs:
        if one.count:
            one.jitted.clear_cache()


def split(tree: Any, axis: int = 0) -> Any:
    """Arrays split along an axis over all devices; as they are where there is one, or the parts would differ.

    Compiled code follows its arguments: each device computes its part, and what it needs of others travels.
    """
    devices = jax.local_devices()
    lengths = {np.shape(leaf)[axis] for leaf in jax.tree.leaves(tree)}
    if len(devices) == 1 or any(length % len(devices) for length in lengths):
        return tree
    mesh = jax.sharding.Mesh(np.array(devices), ("parts",))
    names = jax.sharding.PartitionSpec(*[None] * axis, "parts")  # type: ignore[no-untyped-call]
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, names))
