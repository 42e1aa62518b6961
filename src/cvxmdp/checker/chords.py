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
from cvxmdp.checker.scalars import ScalarKind

Curve = Callable[[np.ndarray], np.ndarray]


class Chords(NamedTuple):
    """slope * y + constant, element by element, and the size of the numbers behind the constants."""

    slope: np.ndarray
    constant: np.ndarray
    size: np.ndarray


def chords_above(phi: Curve, low: np.ndarray, high: np.ndarray, scalars: ScalarKind) -> Chords:
    """Chords of a convex function, each between its own two ends; slopes are floats."""
    at_low, at_high = phi(low), phi(high)
    begin, end = scalars.rough(low), scalars.rough(high)
    wide = end - begin > 64 * EPS * (np.abs(begin) + np.abs(end))
    rise = scalars.rough(at_high) - scalars.rough(at_low)
    slope = scalars.array(np.where(wide, rise / np.where(wide, end - begin, 1.0), 0.0))
    constant = scalars.maximum(at_low - slope * low, at_high - slope * high)
    size = np.abs(at_low) + np.abs(at_high) + np.abs(slope) * (np.abs(low) + np.abs(high))
    return Chords(slope, constant + 16 * scalars.eps * size, size)
