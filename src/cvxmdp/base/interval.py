"""A number and how well it is known: the one kind of interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy.special import stdtrit

from cvxmdp.base.removed import refuse_removed


@dataclass(frozen=True)
class Interval:
    """A value with its confidence bounds.

    Attributes:
        value: the estimate.
        lower, upper: the bounds; infinite where nothing is known, NaN where there is one number only.
        method: how they were found.
        proven: true for inequalities that hold for every n; false for those that only approximate, as a
            bootstrap or Student's t.
    """

    value: float
    lower: float
    upper: float
    method: str
    proven: bool

    def __str__(self) -> str:
        half = self.upper - self.value
        return f"{self.value:.5g}" + ("" if math.isnan(half) else f" ± {half:.2g}")

    def words(self, digits: int) -> str:
        """With so many digits behind the point."""
        half = self.upper - self.value
        return f"{self.value:.{digits}f}" + (f" ± {half:.{digits}f}" if math.isfinite(half) else "")

    def __getattr__(self, name: str) -> NoReturn:
        refuse_removed("Interval", [name])
        raise AttributeError(
            f"an Interval has no {name!r}; it has value, lower, upper, method, proven"
        )


def half_width(values: np.ndarray) -> np.ndarray:
    """Half of the 95% interval (Student's t) of the mean over the first axis; NaN for fewer than two."""
    count = len(values)
    if count < 2:
        return np.full(np.shape(values)[1:], np.nan)
    error = np.std(values, axis=0, ddof=1) / np.sqrt(count)
    return np.asarray(stdtrit(count - 1, 0.975) * error)
