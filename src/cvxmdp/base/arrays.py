"""Arrays of NumPy and JAX side by side: which of the two computes, and numbers as users give them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.errors import UtilityError
from cvxmdp.base.masks import refuse_masked

Array = Any  # a NumPy or JAX array


def namespace(x: Array) -> Any:
    """NumPy for NumPy arrays, else jax.numpy: exact evaluation must not depend on JAX's flags."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def detached(x: Array) -> Array:
    """The value without its derivative, under JAX."""
    return x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)


def on_simplex(vectors: Array, allowed: Any = True) -> Array:
    """The nearest points of the simplex, (..., n), by sorting; zero where entries are not ``allowed``."""
    ordered = -jnp.sort(-jnp.where(allowed, vectors, -jnp.inf), axis=-1)
    counts = jnp.arange(1, vectors.shape[-1] + 1)
    inside = counts <= jnp.broadcast_to(allowed, vectors.shape).sum(axis=-1, keepdims=True)
    sums = jnp.cumsum(jnp.where(inside, ordered, 0.0), axis=-1) - 1.0
    last = (inside & (ordered - sums / counts > 0)).sum(axis=-1, keepdims=True) - 1
    threshold = jnp.take_along_axis(sums / counts, last, axis=-1)
    return jnp.where(allowed, jnp.maximum(vectors - threshold, 0.0), 0.0)


def real_array(given: Any, what: str) -> np.ndarray:
    """A copy as an array of float64, or an error that names what was given."""
    try:
        refuse_masked(given)
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UtilityError(f"{what} must be made of numbers; got {given!r}") from error
