"""Settings as users give them: whole numbers, numbers within limits, one of several words; or an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, SettingsError


def whole(
    name: str, given: Any, least: int = 1, error: type[CvxmdpError] = SettingsError, what: str = ""
) -> int:
    """A whole number of at least ``least``, Python's or NumPy's.

    Args:
        name: of the setting.
        given: what the user gave.
        least: the smallest one allowed.
        error: the class of the error.
        what: the setting is, for its message.
    """
    try:
        number = index(given)
    except TypeError:
        number = least - 1
    if number < least or isinstance(given, bool):
        said = f"{name} is {what}," if what else f"{name} must be"
        raise error(f"{said} a whole number of at least {least}; got {given!r}")
    return number


def number(
    name: str, given: Any, *, positive: bool = True, most: float = math.inf, other: str = ""
) -> None:
    """A finite number that is positive, or at least not negative.

    Args:
        name, given: as above.
        positive: whether zero is refused.
        most: the largest one allowed.
        other: what the setting may be besides, in words.
    """
    plain = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    inside = plain and math.isfinite(given) and 0 <= given <= most
    if not inside or (positive and given == 0):
        sign = "positive" if positive else "not negative"
        limit = f"at most {most:g}" if math.isfinite(most) else "finite"
        also = f", or {other}" if other else ""
        raise SettingsError(f"{name} must be {sign} and {limit}{also}; got {given!r}")


def one_of(
    name: str,
    given: Any,
    words: Sequence[str],
    other: str = "",
    error: type[CvxmdpError] = SettingsError,
) -> None:
    """One of these words; ``other``: what the setting may be besides."""
    if given not in words:
        listed = ", ".join([*map(repr, words), *([other] if other else [])])
        raise error(f"{name} must be one of {listed}; got {given!r}")
