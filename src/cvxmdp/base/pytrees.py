"""Small immutable records of numbers that compiled code takes as arguments (JAX pytrees), and their algebra."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp


class Pytree:
    """A frozen dataclass that is a JAX pytree: its fields are arrays unless named in ``static``.

    Static fields are part of the structure: another value means another compilation. All others are
    numbers: another value is only another argument.
    """

    static: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        jax.tree_util.register_pytree_node(cls, _flatten, partial(_unflatten, cls))


def _flatten(record: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    names = [field.name for field in fields(record) if field.name not in record.static]
    leaves = tuple(getattr(record, name) for name in names)
    return leaves, tuple(getattr(record, name) for name in record.static)


def _unflatten(cls: Any, fixed: tuple[Any, ...], leaves: tuple[Any, ...]) -> Any:
    names = [field.name for field in fields(cls) if field.name not in cls.static]
    return cls(**dict(zip([*names, *cls.static], [*leaves, *fixed], strict=True)))


def norm(tree: Any) -> Any:
    """The Euclidean norm over all leaves."""
    return jnp.sqrt(inner(tree, tree))


def inner(one: Any, other: Any) -> Any:
    """The inner product over all leaves."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return sum((a * b).sum() for a, b in pairs)


def moved(tree: Any, length: Any, direction: Any) -> Any:
    """tree + length * direction."""
    return jax.tree.map(lambda leaf, d: leaf + length * d, tree, direction)


def transformed(transform: Any, state: Any, ascent: Any) -> tuple[Any, Any]:
    """The ``params`` of a state, moved by an Optax transformation, and its ``optimiser``; Optax minimises."""
    downwards = jax.tree.map(jnp.negative, ascent)
    updates, optimiser = transform.update(downwards, state.optimiser, state.params)
    return moved(state.params, 1.0, updates), optimiser


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """One of two trees of the same structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
