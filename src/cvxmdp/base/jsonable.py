"""Dataclasses as JSON, and back: every field of the type it is declared with, or an error.

JSON has no infinities and no NaN: they become texts that ``float`` reads again. Arrays become their shape and
base64 of their little-endian bytes, so that every bit is kept.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

Kind = TypeVar("Kind")


def to_jsonable(value: Any) -> Any:
    """Plain data for ``json.dumps``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: to_jsonable(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): to_jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.ndarray):
        return encode_array(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """Shape and base64 of little-endian float64 bytes."""
    numbers = np.asarray(array, dtype="<f8")
    return {"shape": list(numbers.shape), "float64": base64.b64encode(numbers.tobytes()).decode()}


def numbers_by_name(table: Any) -> dict[str, float]:
    """A table of numbers, read back."""
    return {str(name): float(number) for name, number in table.items()}


def from_jsonable(kind: type[Kind], data: Any) -> Kind:
    """A dataclass from what ``to_jsonable`` made of it.

    Raises ValueError, TypeError or KeyError where a field is missing or of another type; names that are no
    fields are left alone, so that files of later versions can be read.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"expected a table for {kind.__name__}; got {data!r:.80}")
    names = vars(sys.modules[kind.__module__])  # what the annotations of its fields refer to
    given = {
        field.name: _read(_kind(field, names), data[field.name], field.name)
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.init and (field.name in data or _required(field))
    }
    return kind(**given)


def _kind(field: dataclasses.Field[Any], names: Mapping[str, Any]) -> Any:
    """The type of a field; only of those that are read, since others may be known to type checkers alone."""
    written = field.type
    return eval(written, dict(names)) if isinstance(written, str) else written


def _required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _read(kind: Any, value: Any, name: str) -> Any:
    """A value of this type, from JSON."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, name)
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r:.80}, not a list")
        entries = [_read(arguments[0], item, name) for item in value]
        return tuple(entries) if origin is tuple else entries
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} is {value!r:.80}, not a table")
        return {str(key): _read(arguments[1], item, f"{name}/{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return from_jsonable(typing.cast(type[Any], kind), value)
    return _read_plain(kind, value, name)


def _read_union(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds[:-1]:
        try:
            return _read(kind, value, name)
        except (TypeError, ValueError, KeyError):
            continue
    return _read(kinds[-1], value, name)


def _read_plain(kind: type, value: Any, name: str) -> Any:
    if issubclass(kind, enum.Enum):
        return kind[str(value)]
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(f"{name} is {value!r:.80}, not a number")
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name} is {value!r:.80}, not of type {kind.__name__}")
    return value
