"""The problem file with what the command line changes about its solver."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cvxmdp.runs.specs.places import SpecError
from cvxmdp.runs.specs.problem_specs import ProblemSpec, read_problem


def read_settings(given: list[str] | None) -> dict[str, Any]:
    """Settings from ``--set name=value``; a value is written as in TOML, quotes may be left out."""
    settings: dict[str, Any] = {}
    for entry in given or ():
        name, equals, text = entry.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {entry}: expected NAME=VALUE, such as iterations=500")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        settings[name.strip()] = value
    return settings


def read(path: Path, solver: str | None = None, settings: list[str] | None = None) -> ProblemSpec:
    """The problem file, with what the command line changes about its solver."""
    return read_problem(path, solver, read_settings(settings))


def written_setting(value: Any) -> str:
    """A value as ``--set`` reads it: as in TOML, words without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return _toml(value)


def _toml(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | str | list | tuple) else str(value)
