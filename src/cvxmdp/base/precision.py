"""float64 where exactness counts, without touching the user's global JAX flag."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax


def double_precision() -> AbstractContextManager[None]:
    """A context in which JAX computes in float64. Entered outside ``jit``, never inside."""
    return jax.enable_x64(True)
