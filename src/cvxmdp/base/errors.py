"""Every error of cvxmdp: one base class, messages that say what was given and how to fix it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class CvxmdpError(Exception):
    """Base class of all errors raised on purpose by cvxmdp."""


class ModelError(CvxmdpError, ValueError):
    """A model that is not a Markov decision process as cvxmdp understands it."""


class UtilityError(CvxmdpError, ValueError):
    """A utility, constraint or target that is malformed or does not fit the model."""


class CurvatureError(UtilityError):
    """A utility used where its curvature does not allow it."""


class ProblemError(CvxmdpError, ValueError):
    """A problem that is put together wrongly."""


class PolicyError(CvxmdpError, ValueError):
    """A policy that is malformed or does not fit the model."""


class SolverError(CvxmdpError, RuntimeError):
    """A solver that cannot do what it was asked to do."""


class SettingsError(SolverError, ValueError):
    """A solver's setting that does not exist or cannot have that value."""


class DivergedError(SolverError):
    """A run that met numbers that are not finite."""


class ExperienceError(CvxmdpError, RuntimeError):
    """An environment, or data from one, that is not what its interface promises.

    Attributes:
        solution: where it came in the middle of learning, what had been learned before.
    """

    solution: Any = None


class FileFormatError(CvxmdpError, ValueError):
    """A file that is not what it should be."""


class MissingExtraError(CvxmdpError, ImportError):
    """An optional dependency that is needed and not installed."""


class CvxmdpWarning(UserWarning):
    """Base class of all warnings issued by cvxmdp."""


# What Python raises where data does not have the form that its reader takes for granted.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def reading(
    what: str, *more: type[Exception], ours: type[CvxmdpError] = FileFormatError
) -> Iterator[None]:
    """A context in which malformed data is an error that begins with ``what``.

    Args:
        what: the beginning, as in "policy.json does not hold a policy".
        more: classes of errors that malformed data raises here, besides the usual ones.
        ours: errors that say enough already.
    """
    malformed: tuple[type[Exception], ...] = (*MALFORMED, *more)
    try:
        yield
    except ours:
        raise
    except malformed as error:
        said = str(error) if isinstance(error, CvxmdpError) else repr(error)
        raise FileFormatError(f"{what}: {said}") from error


LISTED = 30  # names that a message lists
COMPARED = 20_000  # names that are compared letter by letter


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known ones, or the first of them."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(given), names[:COMPARED], n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    if names:
        rest = f", ... ({len(names):,} in all)" if len(names) > LISTED else ""
        return "Known: " + ", ".join(repr(name) for name in names[:LISTED]) + f"{rest}."
    return "None are defined."


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs {module!r}, which is not installed. Install it with: "
            f"pip install 'cvxmdp[{extra}]'"
        ) from error
