"""float64 where exactness counts, without touching the user's global JAX flag."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np


def double_precision() -> AbstractContextManager[None]:
    """A context in which JAX computes in float64. Entered outside ``jit``, never inside."""
    return jax.enable_x64(True)


def on_device(tree: Any) -> Any:
    """Every leaf as an array of the device, in the precision of the context.

    Python's numbers have a weak type, with which programs are compiled again; and ``jnp.asarray`` compiles a
    program for every shape that it copies.
    """
    return jax.device_put(host(tree))


def host(tree: Any) -> Any:
    """Every leaf as an array of NumPy."""
    return jax.tree.map(np.asarray, tree)


def precise_anywhere(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A user's function of one array, with the NumPy arrays it closes over in the precision of the context.

    JAX remembers a NumPy array as it first met it, in float32 or float64, while a program holds it, and
    fails where the other is wanted. So programs hold copies.
    """

    def copying(x: Any) -> Any:
        form = jax.ShapeDtypeStruct(x.shape, x.dtype)  # type: ignore[no-untyped-call]
        # A trace of its own, which is let go.
        traced = jax.make_jaxpr(lambda given: function(given))(form)
        with jax.ensure_compile_time_eval():
            held = [jax.device_put(np.array(one)) for one in traced.consts]
        (found,) = jax.core.eval_jaxpr(traced.jaxpr, held, x)
        return found

    return copying
