"""float64 where exactness counts, without touching the user's global JAX flag."""

from __future__ import annotations

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
    return jax.device_put(jax.tree.map(np.asarray, tree))
