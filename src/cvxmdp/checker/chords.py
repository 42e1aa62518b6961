r"""Chords: affine functions on the far side of a convex function of one number, between two ends.

An affine function that is not below a convex phi at l and at h is nowhere below it in between. (It is the
tangent at the point where the Bregman distances to both ends are equal, raised by that distance.) So
whatever the slope, the constant max(phi(l) - k l, phi(h) - k h) makes a bound, and no care is needed where
the ends nearly meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cvxmdp.checker.arithmetic import EPS

Curve = Callable[[np.ndarray], np.ndarray]


class Chords(NamedTuple):
    """slope * y + constant, element by element, and the size of the numbers behind the constants."""

    slope: np.ndarray
    constant: np.ndarray
    size: np.ndarray


def chords_above(phi: Curve, low: np.ndarray, high: np.ndarray) -> Chords:
    """Chords of a convex function, each between its own two ends."""
    at_low, at_high = phi(low), phi(high)
    width = high - low
    wide = width > 64 * EPS * (np.abs(low) + np.abs(high))
    slope = np.where(wide, (at_high - at_low) / np.where(wide, width, 1.0), 0.0)
    constant = np.maximum(at_low - slope * low, at_high - slope * high)
    size = np.abs(at_low) + np.abs(at_high) + np.abs(slope) * (np.abs(low) + np.abs(high))
    return Chords(slope, constant + 16 * EPS * size, size)


def times_log(y: np.ndarray) -> np.ndarray:
    """Y log y, zero at zero."""
    return np.asarray(y * np.log(np.where(y > 0, y, 1.0)))
