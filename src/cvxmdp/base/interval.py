"""A number and how well it is known: the one kind of interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

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
        return f"{self.value:.5g} ± {self.upper - self.value:.2g}"

    def __getattr__(self, name: str) -> NoReturn:
        refuse_removed("Interval", [name])
        raise AttributeError(
            f"an Interval has no {name!r}; it has value, lower, upper, method, proven"
        )
