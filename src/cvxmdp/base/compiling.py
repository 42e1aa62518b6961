"""How loops over small arrays are compiled.

On a CPU, XLA hands sums of 4,096 entries and more to a library (YNNPACK) and products of matrices to threads.
Inside a loop over arrays as small as ours both cost many times the work itself (docs/sweeps.md has the
measurement), so they are turned off for such loops, and for them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax

SMALL_LOOPS: dict[str, Any] = {
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_cpu_multi_thread_eigen": False,
}


@lru_cache(maxsize=1)
def known_options() -> dict[str, Any]:
    """Those of ``SMALL_LOOPS`` that this version of XLA understands; none where there is an accelerator."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in SMALL_LOOPS.items() if _understood(name, value)}


def _understood(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda x: x + 1.0, compiler_options={name: value})(0.0)
    except Exception:  # versions of JAX differ in what they raise
        return False
    return True


class CompiledLoop:
    """``jax.jit`` with the options for small loops.

    It is made when it is first called: which options there are depends on the device, and asking for the device
    when a module is imported would start it.

    Args:
        function: what is compiled.
        static: names of its static arguments.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...]) -> None:
        self.function, self.static = function, static
        self.__doc__ = function.__doc__

    @cached_property
    def program(self) -> Any:
        """The function, jitted."""
        options = known_options() or None
        return jax.jit(self.function, static_argnames=self.static, compiler_options=options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self.program(*arguments, **named)


def small_loop(*static: str) -> Callable[[Callable[..., Any]], CompiledLoop]:
    """A decorator: compile for small arrays, with these static arguments."""
    return lambda function: CompiledLoop(function, static)
