"""Functions of features where the rows of signals lie below them: what is bound to a ``FeatureSpace``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.function import Array, OccupancyFunction, namespace
from cvxmdp.atoms.linear import LinearFunction


def lifted(function: OccupancyFunction, rows: int, size: int) -> OccupancyFunction:
    """A function of the first ``size`` rows, as one of all ``rows`` that are measured."""
    if rows == size:
        return function
    if isinstance(function, LinearFunction):
        return LinearFunction(
            np.pad(function.reward, ((0, rows - function.reward.shape[0]), (0, 0)))
        )
    found: Any = function
    if hasattr(found, "functions"):
        parts = tuple(lifted(one, rows, size) for one in found.functions)
        return replace(found, functions=parts)
    if isinstance(getattr(found, "inner", None), OccupancyFunction):
        return replace(found, inner=lifted(found.inner, rows, size))
    return OnFeatures(found, size)


@dataclass(frozen=True, eq=False)
class OnFeatures(OccupancyFunction):
    """A function of the first ``size`` rows."""

    inner: OccupancyFunction
    size: int
    static: ClassVar[tuple[str, ...]] = ("size",)

    def value(self, x: Array) -> Any:
        """Of the features alone."""
        return self.inner.value(x[: self.size])

    def gradient(self, x: Array) -> Array:
        """Zero on the rows of the signals."""
        below = ((0, x.shape[0] - self.size), (0, 0))
        return namespace(x).pad(self.inner.gradient(x[: self.size]), below)

    def extended(self) -> OccupancyFunction:
        """The inner function extended."""
        return OnFeatures(self.inner.extended(), self.size)
