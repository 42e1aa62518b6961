"""Small immutable records of numbers that compiled code takes as arguments (JAX pytrees)."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

import jax


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
