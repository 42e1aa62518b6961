"""States and actions by name: wherever a number is accepted, a name or the tuple it was made of is, too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, ModelError, did_you_mean


def name_of(thing: Any) -> str:
    """The name of a state or action: its text; NumPy's numbers in a tuple are written like Python's."""
    return str(_plain(thing))


def _plain(thing: Any) -> Any:
    if isinstance(thing, np.generic):
        return thing.item()
    return tuple(map(_plain, thing)) if type(thing) is tuple else thing


def thing_named(name: str) -> Any:
    """What a name was made of where that was a tuple of plain things, else the name."""
    if not name.startswith("("):
        return name
    try:
        return ast.literal_eval(name)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name


@dataclass(frozen=True)
class Names:
    """The numbers of states or actions by name.

    Attributes:
        what: "state" or "action", for messages.
        count: how many there are.
        known: their names in order; where there are none, their numbers as text.
        error: what is raised for one that is not there.
        where: they are given, where that is not plain from the call: the beginning of a message.
    """

    what: str
    count: int
    known: tuple[str, ...] | None
    error: type[CvxmdpError] = ModelError
    where: str = ""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        labels: Iterable[str] = self.known or map(str, range(self.count))
        return {name: number for number, name in enumerate(labels)}

    def __contains__(self, given: Any) -> bool:
        return name_of(given) in self._numbers

    def number(self, given: Any) -> int:
        """The number of one, from its number, its name or its tuple."""
        named = self._numbers.get(name_of(given), -1)
        try:
            place = index(given)
        except TypeError:
            place = named
        if named not in (place, -1) and 0 <= place < self.count and self.known is not None:
            raise self.refused(
                f"{given} is the number of the {self.what} {self.known[place]!r} and the name of another: "
                f"write {name_of(given)!r}, or {self.known[place]!r}"
            )
        if not isinstance(given, bool | np.bool_) and 0 <= place < self.count:
            return place
        shown = given.item() if isinstance(given, np.generic) else given
        raise self.refused(f"there is no {self.what} {shown!r}: {self._hint(given)}")

    def numbers(self, given: Any) -> np.ndarray:
        """Numbers of one (no axis) or of many, an array of numbers or names, or a list of tuples.

        A tuple is one state, never several: (9, 3, 4) is a state of a model whose states are such.
        """
        if isinstance(given, tuple | str | int | np.integer):
            return np.asarray(self.number(given))
        if isinstance(given, list) and any(isinstance(one, tuple) for one in given):
            return np.array([self.number(one) for one in given])
        found = np.asarray(given)
        if found.dtype.kind in "USO" and found.size:
            flat = [self.number(one) for one in found.ravel()]
            return np.array(flat).reshape(found.shape)
        if found.dtype.kind not in "iu" or not found.size:
            raise self.error(
                f"expected {self.what}s, whole numbers from 0 to {self.count - 1} or names; got {given!r}. "
                "Observations of another kind need features."
            )
        outside = (found < 0) | (found >= self.count)
        if outside.any():
            self.number(found[outside].ravel()[0])
        return found

    def column(self, given: Mapping[Any, Any]) -> np.ndarray:
        """An array with the numbers of a mapping at their places, zero elsewhere."""
        found = np.zeros(self.count)
        for key, value in given.items():
            found[self.number(key)] = self.value(value, key)
        return found

    def value(self, given: Any, at: Any) -> float:
        """A number that stands at one of them."""
        try:
            return float(given)
        except (TypeError, ValueError) as cause:
            raise self.refused(f"expected a number at {at!r}; got {given!r}") from cause

    def refused(self, why: str) -> CvxmdpError:
        """The error with these words."""
        return self.error(f"{self.where}: {why}" if self.where else why)

    def _hint(self, given: Any) -> str:
        known, several = f"{self.what}s are 0 to {self.count - 1}", ""
        if isinstance(given, tuple) and all(isinstance(one, int | np.integer) for one in given):
            several = (
                f" Several {self.what}s are a list or an array, np.array({list(map(int, given))})."
            )
        if self.known is None:
            return f"{known}, and have no names.{several}"
        if isinstance(given, int | np.integer):
            text = f", or names: {name_of(given)!r} is one" if given in self else ""
            return f"{known}{text}."
        return f"{known}, or names. {did_you_mean(name_of(given), self.known)}{several}"


@dataclass(frozen=True)
class PairNames:
    """Numbers per state, or per state and action, given by name: ``{"broken": 1.0}``."""

    states: Names
    actions: Names

    def table(self, given: Mapping[Any, Any]) -> np.ndarray:
        """The array (S,), or (S, A) where pairs are given, of a mapping from states or pairs to numbers.

        Pairs are ``{("broken", "repair"): 5.0}`` or ``{"broken": {"repair": 5.0}}``. What is not named is
        zero. A tuple is a state where there is one of that name, else a pair.
        """
        found = np.zeros((self.states.count, self.actions.count))
        for key, value in given.items():
            for state, action, one in self._places(key, value):
                found[state, action] = self.states.value(one, key)
        return found

    def _places(self, key: Any, value: Any) -> Iterator[tuple[int, int | slice, Any]]:
        if isinstance(value, Mapping):
            for action, one in value.items():
                yield self.states.number(key), self.actions.number(action), one
        elif isinstance(key, tuple) and len(key) == 2 and key not in self.states:
            yield self.states.number(key[0]), self.actions.number(key[1]), value
        else:
            yield self.states.number(key), slice(None), value
