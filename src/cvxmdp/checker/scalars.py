"""What formulas are computed in: floats, or balls that surely hold the true number.

Every function of a problem is written once, for both. Where floats round, its text adds a term with the factor
``eps``, the rounding of one operation, or ``tiny``, more than products of small numbers lose; both are zero for
balls, which carry their own radius. Arrays are NumPy's in both (of objects, for balls), and ``np.log`` and its
like work on either. Inequalities between balls are true only if they hold for everything in them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import EPS, UNDERFLOW, Number, largest, total


class NumberMatrix(Protocol):
    """A sparse matrix of numbers."""

    def times(self, v: np.ndarray) -> np.ndarray:
        """M v."""

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """M' v."""


class ScalarKind(ABC):
    """A kind of numbers.

    Attributes:
        eps: relative rounding of one operation.
        tiny: what underflow may hide.
    """

    eps: float
    tiny: float

    @property
    def exact(self) -> bool:
        """Whether inequalities hold as they stand."""
        return self.eps == 0

    @abstractmethod
    def number(self, value: float) -> Number:
        """A float as the number it is."""

    @abstractmethod
    def array(self, values: Any) -> np.ndarray:
        """Floats as the numbers they are."""

    @abstractmethod
    def about(self, values: Any, radius: Any) -> Any:
        """Floats that are known up to a radius, which terms for rounding count where these are floats."""

    @abstractmethod
    def matrix(self, matrix: sp.csr_array) -> NumberMatrix:
        """A sparse matrix of floats as the numbers they are."""

    @abstractmethod
    def rough(self, values: Any) -> np.ndarray:
        """Floats near them."""

    @abstractmethod
    def at_least(self, value: Number) -> float:
        """The largest float that is surely not above."""

    def at_most(self, value: Number) -> float:
        """The smallest float that is surely not below."""
        return -self.at_least(-value)

    def rounded_down(self, values: np.ndarray) -> np.ndarray:
        """``at_least``, element by element."""
        return np.array([self.at_least(one) for one in values.tolist()])

    def rounded_up(self, values: np.ndarray) -> np.ndarray:
        """``at_most``, element by element."""
        return -self.rounded_down(-values)

    @abstractmethod
    def finite(self, values: Any) -> bool:
        """Whether all are."""

    @abstractmethod
    def total(self, terms: np.ndarray) -> tuple[Number, Number]:
        """The sum, and the sum of absolute values, for rounding."""

    @abstractmethod
    def added(self, terms: Iterable[Number]) -> Number:
        """The sum of a few numbers."""

    @abstractmethod
    def sums(self, places: np.ndarray, terms: np.ndarray, size: int) -> np.ndarray:
        """The sum of the terms of each place, (size,)."""

    @abstractmethod
    def greatest(self, values: Iterable[Number]) -> Number:
        """The largest."""

    def least(self, values: Iterable[Number]) -> Number:
        """The smallest."""
        return -self.greatest(-value for value in values)

    @abstractmethod
    def tops(self, values: np.ndarray) -> np.ndarray:
        """The largest of each column, (J,)."""

    @abstractmethod
    def largest(self, values: np.ndarray) -> Number:
        """The largest absolute value, zero if there is none."""

    @abstractmethod
    def maximum(self, first: Any, second: Any) -> Any:
        """Element by element."""

    def nonnegative(self, values: Any) -> Any:
        """max(t, 0), element by element."""
        return self.maximum(values, self.number(0.0))

    @abstractmethod
    def times_log(self, values: np.ndarray) -> np.ndarray:
        """U log u of u >= 0, zero at zero; of balls that hold zero, something that is not below."""

    @abstractmethod
    def power(self, value: Number, exponent: Number) -> Number:
        """max(t, 0)^p, p > 0; of balls that hold zero, something that is not below."""

    @abstractmethod
    def log(self, value: Number) -> Number:
        """Of one number."""

    @abstractmethod
    def log1p(self, value: Number) -> Number:
        """log(1 + t) of one number."""

    @abstractmethod
    def exp(self, value: Number) -> Number:
        """Of one number."""

    @abstractmethod
    def sqrt(self, value: Number) -> Number:
        """Of one number that is not negative, whatever its ball says."""

    def length(self, v: np.ndarray) -> Number:
        """|v|, Euclidean."""
        return self.sqrt(self.total(v * v)[0])


class FloatMatrix:
    """A sparse matrix of floats."""

    def __init__(self, matrix: sp.csr_array) -> None:
        self.entries = matrix

    def times(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.entries @ v)

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.entries.T @ v)


class FloatScalars(ScalarKind):
    """NumPy's float64."""

    eps, tiny = EPS, UNDERFLOW

    def number(self, value: float) -> float:
        return float(value)

    def array(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def about(self, values: Any, radius: Any) -> Any:
        return values

    def matrix(self, matrix: sp.csr_array) -> FloatMatrix:
        return FloatMatrix(matrix)

    def rough(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def at_least(self, value: float) -> float:
        return float(value)

    def finite(self, values: Any) -> bool:
        return bool(np.isfinite(values).all())

    def total(self, terms: np.ndarray) -> tuple[float, float]:
        return total(terms)

    def added(self, terms: Iterable[float]) -> float:
        return math.fsum(terms)

    def sums(self, places: np.ndarray, terms: np.ndarray, size: int) -> np.ndarray:
        return np.bincount(places, terms, minlength=size)

    def greatest(self, values: Iterable[float]) -> float:
        return max(values)

    def tops(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values.max(axis=0))

    def largest(self, values: np.ndarray) -> float:
        return largest(values)

    def maximum(self, first: Any, second: Any) -> Any:
        return np.maximum(first, second)

    def times_log(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values * np.log(np.where(values > 0, values, 1.0)))

    def power(self, value: float, exponent: float) -> float:
        return float(max(float(value), 0.0) ** exponent)

    def log(self, value: float) -> float:
        return math.log(value)

    def log1p(self, value: float) -> float:
        return math.log1p(value)

    def exp(self, value: float) -> float:
        return math.exp(value)

    def sqrt(self, value: float) -> float:
        return math.sqrt(max(value, 0.0))


FLOATS = FloatScalars()
