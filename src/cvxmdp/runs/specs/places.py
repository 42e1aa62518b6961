"""Errors of TOML files with their place: the file, the line, the key, and what was probably meant."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from cvxmdp.base.errors import CvxmdpError, FileFormatError, did_you_mean
from cvxmdp.base.storage import require_file

LARGEST_FILE = 2**22  # bytes of TOML


class SpecError(FileFormatError):
    """A problem or sweep file that is not what it should be."""


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and what it says."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"{path} has more than {LARGEST_FILE:,} bytes; a problem file is small")
        text = require_file(path).read_text("utf-8")
        return text, tomllib.loads(text)
    except FileNotFoundError as error:
        raise SpecError(f"there is no file {path}") from error
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not text in UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        unquoted = "Invalid value" in str(error)
        hint = '. Expressions stand in quotes: maximize = "entropy()"' if unquoted else ""
        raise SpecError(f"{path} is not TOML: {error}{hint}") from error


class LocatedError(CvxmdpError):
    """An error with the keys that lead to its place."""

    def __init__(self, keys: tuple[str, ...], cause: Exception) -> None:
        super().__init__(str(cause))
        self.keys = keys


@contextmanager
def errors_in(path: Path, text: str) -> Iterator[None]:
    """Turns every error of a block into one that names the file, the line and the key."""
    try:
        yield
    except LocatedError as error:
        line = line_of(text, error.keys)
        where = f"{path}, line {line}" if line else f"{path}"
        # The original message and class of error stay visible as the cause.
        raise SpecError(f"{where}, {_dotted(error.keys)}: {error}") from error.__cause__
    except (CvxmdpError, ValidationError) as error:
        raise SpecError(f"{path}: {error}") from error


def at(keys: tuple[str, ...], build: Callable[..., Any], *arguments: Any) -> Any:
    """``build(*arguments)``; its errors will name the place that these keys lead to."""
    try:
        return build(*arguments)
    except LocatedError:
        raise
    except (CvxmdpError, OverflowError, MemoryError) as error:
        named = re.findall(r"setting '([^']+)'", str(error))[:1]
        raise LocatedError(keys if named == [keys[-1]] else (*keys, *named), error) from error


def validated(model: type[Any], table: Any, keys: tuple[str, ...]) -> Any:
    """A table as a Pydantic model, or the first error in our words."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: (e["type"] != "extra_forbidden", len(e["loc"])))
        raise LocatedError(*_explained(model, first, keys)) from error


def _explained(
    model: type[Any], found: Mapping[str, Any], keys: tuple[str, ...]
) -> tuple[tuple[str, ...], Exception]:
    """The keys of a Pydantic error, and the error in our words."""
    place = [str(part) for part in found["loc"]]
    key = place[0] if place else ""
    if found["type"] == "extra_forbidden":
        owner, key = _owner(model, place), place[-1]
        hint = did_you_mean(key, owner.model_fields)
        return (*keys, *place), SpecError(f"there is no key {key!r} here. {hint}")
    if found["type"] == "missing":
        return keys, SpecError(f"the key {place[-1]!r} is missing")
    expected = found["msg"].removeprefix("Input ").removeprefix("should be ")
    given = repr(found["input"])
    shown = given if len(given) < 80 else given[:77] + "..."
    return (*keys, key), SpecError(f"expected {_kinds(key) or expected}; got {shown}")


def _owner(model: type[Any], place: list[str]) -> type[Any]:
    """The model whose key it is: a table inside a table has a model of its own."""
    for part in place[:-1]:
        options = getattr(model.model_fields.get(part), "annotation", None)
        inner = (one for one in (*get_args(options), options) if hasattr(one, "model_fields"))
        model = next(inner, model)
    return model


def _kinds(key: str) -> str:
    """What fields with several forms take; Pydantic would list every form that failed."""
    words = {
        "size": "a whole number, or [rows, columns]",
        "start": "a cell, or a list of cells; a cell is a number or [row, column]",
        "rewards": 'numbers by cell, such as {"63" = 1.0}',
        "initial": "a state's number, a list of probabilities, or the name of a file",
        "signals": "names (garnet), or arrays by name: files or lists of numbers (table)",
        "transition": "the name of a file, or P as lists [state][action][next_state]",
        "seeds": "how many seeds (0, 1, ...), or a list of them",
        "subject_to": "constraints by name, each a string such as 'linear(\"cost\") <= 1'",
        "maximize": 'a utility in quotes, such as "entropy()"',
        "minimize": 'a utility in quotes, such as "distance(...)"',
    }
    words |= dict.fromkeys(("goal", "hazards", "walls"), words["start"])
    return words.get(key, "")


def _dotted(keys: Iterable[str]) -> str:
    return ".".join(key if re.fullmatch(r"[\w-]+", key) else f'"{key}"' for key in keys)


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line of a TOML text in which a key stands, or its nearest table; None where it is not found."""
    table: tuple[str, ...] = ()
    best, depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.fullmatch(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?", line)
        if header and "=" not in header[1]:
            table = _parts(header[1])
            here = table
        else:
            key = re.match(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[\w\"'-]+)*)\s*=", line)
            if not key:
                continue
            here = table + _parts(key[1])
        if here == keys[: len(here)] and len(here) > depth:
            best, depth = number, len(here)
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    found = re.findall(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)", dotted)
    return tuple(next(part for part in group if part) for group in found if any(group))
