"""Dataclasses as JSON, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pytest

from cvxmdp.base.jsonable import from_jsonable, to_jsonable
from cvxmdp.checker.certificate_document import decode


class Colour(Enum):
    RED = "red, as text"


@dataclass(frozen=True)
class Inner:
    number: float
    words: tuple[str, ...]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    several: tuple[Inner, ...]
    table: Mapping[str, float]
    maybe: Inner | None
    count: int
    colour: Colour
    anything: Any = None
    names: dict[str, str] = field(default_factory=dict)


def example() -> Outer:
    inner = Inner(math.inf, ("a", "b"))
    return Outer(inner, (inner, Inner(0.1, ())), {"x": -math.inf}, None, 3, Colour.RED, [1])


def test_there_and_back() -> None:
    text = json.dumps(to_jsonable(example()), allow_nan=False)
    assert from_jsonable(Outer, json.loads(text)) == example()


def test_arrays_keep_every_bit() -> None:
    array = np.random.default_rng(0).normal(size=(3, 2)) * 1e-300
    np.testing.assert_array_equal(decode(json.loads(json.dumps(to_jsonable(array)))), array)
    assert to_jsonable(np.float64("nan")) == "nan"
    assert to_jsonable(np.int64(3)) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inner", 5),
        ("inner", {"number": "many", "words": []}),
        ("inner", {"number": True, "words": []}),
        ("several", {"number": 1.0}),
        ("table", [1.0]),
        ("table", {"x": None}),
        ("count", 2.5),
        ("count", True),
        ("colour", "BLUE"),
        ("maybe", "something"),
    ],
)
def test_fields_of_another_type_are_errors(name: str, value: Any) -> None:
    data = {**to_jsonable(example()), name: value}
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_jsonable(Outer, data)


def test_missing_fields_are_errors_unless_they_have_a_default() -> None:
    data = to_jsonable(example())
    del data["names"]
    assert from_jsonable(Outer, {**data, "later": 1}).names == {}
    del data["count"]
    with pytest.raises(KeyError):
        from_jsonable(Outer, data)
