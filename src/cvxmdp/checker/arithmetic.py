"""Numbers whose rounding is accounted for, and the reading of numbers that somebody else wrote."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

EPS = float(np.finfo(np.float64).eps)
# Products of tiny numbers lose digits that no relative error speaks of; this is far above what they lose.
UNDERFLOW = 1e-300
# Factors beyond this (or below its inverse) are refused: with them underflow would not be harmless.
LARGEST_FACTOR = 1e100
EXACTLY = 1_000  # numbers that are added up one by one
Parameters = dict[str, Any]
Number = Any  # a float, or a ball


class CertificateError(ValueError):
    """A certificate that proves nothing: malformed, or not about what it claims."""


class NotVerifiableError(CertificateError):
    """A claim that rests on a function of the user's own, which is not at hand."""


class NotKnownError(CertificateError):
    """Something that no bound is known of: it is not claimed either."""


class AffineBound(NamedTuple):
    """<reward, y> + constant, and how large the numbers were that were added up, for rounding.

    Attributes:
        reward: shape (S, A).
        constant: the constant.
        size: the sum of the absolute values behind the constant.
        steep: the same behind each entry of the reward, (S, A). It can be far above the entry
            itself: huge multipliers of opposite constraints cancel, and take digits with them.
    """

    reward: np.ndarray
    constant: Number
    size: Number
    steep: np.ndarray


def tangent_through(slope: Number, height: Number, inner: AffineBound) -> AffineBound:
    """height + slope * inner, for a slope and a height that are good to a few units in the last place."""
    return AffineBound(
        slope * inner.reward,
        height + slope * inner.constant,
        2.0 * (slope * inner.size + abs(height) + slope * abs(inner.constant)),
        2.0 * slope * inner.steep,
    )


class ErrorBound(NamedTuple):
    """How far the true occupancy x' may be from the computed x.

    Attributes:
        size: |x' - x|_1 is at most this.
        support: boolean (S, A): x and x' are exactly zero elsewhere.
    """

    size: Number
    support: np.ndarray


def total(terms: np.ndarray) -> tuple[float, float]:
    """The sum, rounded once (and by n eps^2 of the sum of absolute values), and the sum of absolute values."""
    flat = np.asarray(terms, dtype=np.float64).ravel()
    size = float(np.abs(flat).sum())
    if not np.isfinite(flat).all():
        return float(flat.sum()), math.inf
    if not math.isfinite(4.0 * size):
        raise CertificateError("the numbers are too large to be added up: their sum is not finite")
    # Columns of a table are added up, a row at a time that stays in the cache. What the sum of two numbers
    # misses is a number itself (Knuth); only the sum of these is rounded.
    width = max(EXACTLY, math.isqrt(flat.size))
    sums, missed = flat[:width], np.zeros(min(width, flat.size))
    whole = flat.size - flat.size % width
    for row in flat[width:whole].reshape(-1, width):
        following = sums + row
        part = following - sums
        missed += (sums - (following - part)) + (row - part)
        sums = following
    rest = flat[max(whole, width) :]
    return math.fsum([*sums.tolist(), *rest.tolist(), *missed.tolist()]), size


def largest(array: np.ndarray) -> float:
    """The largest absolute value, zero if there is none."""
    return float(np.abs(array).max(initial=0.0))


def numbers(parameters: Parameters, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a certificate, of the shape it must have, with finite entries."""
    try:
        array = np.asarray(parameters[name], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate holds no usable {name!r}: {error}") from error
    if array.shape != shape or not np.isfinite(array).all():
        raise CertificateError(
            f"{name!r} in the certificate has shape {array.shape}; expected finite numbers of shape "
            f"{shape}"
        )
    return array


def parts_of(parameters: Parameters, count: int) -> list[Parameters]:
    """The parameters of the parts of a function."""
    parts = parameters.get("parts") if isinstance(parameters, dict) else None
    if not isinstance(parts, list) or len(parts) != count:
        raise CertificateError(f"the certificate must hold parameters for {count} parts here")
    if not all(isinstance(part, dict) for part in parts):
        raise CertificateError(
            "the parameters of a part in the certificate are not a table of names"
        )
    return parts
