"""Modules of the user's that problem files may name: those that were asked for by name, and no others.

A problem file is data and runs no code. ``cvxmdp solve --import my_package`` says that this package may run: it
is imported, which registers its environments, and files may then name what is in it as ``my_package:MyEnv``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from cvxmdp.base.errors import did_you_mean
from cvxmdp.runs.specs.places import SpecError

_ALLOWED: dict[str, ModuleType] = {}  # in this process, as imports are


def allow_imports(names: Iterable[str]) -> None:
    """Import modules, the folder one is in included, and let problem files name what is in them."""
    for name in names:
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            _ALLOWED[name] = importlib.import_module(name)
        except Exception as error:
            raise SpecError(
                f"--import {name}: {type(error).__name__}: {error}. It is looked for in this folder and where "
                "Python's packages are."
            ) from error


def imported(name: str) -> Any:
    """What a file means by ``module:Class``; an error where nobody allowed the module."""
    module, _, inside = name.partition(":")
    if module not in _ALLOWED:
        raise SpecError(
            f"id = {name!r}: only environments that are already registered, since a file runs no code of its "
            f"own. If you trust the module, say so on the command line: --import {module}"
        )
    found = getattr(_ALLOWED[module], inside, None)
    if not callable(found):
        known = [known for known, thing in vars(_ALLOWED[module]).items() if callable(thing)]
        raise SpecError(
            f"id = {name!r}: the module {module!r} has no class or function {inside!r}. "
            f"{did_you_mean(inside, known)}"
        )
    return found
