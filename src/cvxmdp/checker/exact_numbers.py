r"""Numbers without rounding: balls that surely hold the true value, at 256 bits.

A float is a binary fraction and is read as the number it is. What arithmetic cannot hold exactly (a third, a
logarithm) is a ball: a centre and a radius, which Arb computes so that the true value is always inside
(Johansson, 2017). An inequality is taken as true only if it holds for everything in the balls.

Balls stand in NumPy arrays of objects, so that formulas read as they do elsewhere (``BALLS``). The library is
python-flint, the extra ``exact``; nothing else needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.scalars import ScalarKind

BITS = 256
Ball = Any  # flint.arb


def flint() -> Any:
    """The library, or what to do where it is not installed."""
    try:
        import flint as library
    except ImportError as error:
        raise ImportError(
            "exact checking needs python-flint: pip install 'cvxmdp[exact]' (or pip install python-flint)"
        ) from error
    return library


@contextmanager
def precisely() -> Iterator[None]:
    """Inside, balls have ``BITS`` bits."""
    with flint().ctx.workprec(BITS):
        yield


def ball(value: float, radius: Ball = 0) -> Ball:
    """A float as the number it is, or a ball around it."""
    return flint().arb(value, radius)


def balls(array: Any) -> np.ndarray:
    """An array of floats as the numbers they are."""
    values = np.asarray(array, dtype=np.float64)
    arb = flint().arb
    return np.asarray(_shaped([arb(value) for value in values.ravel().tolist()], values.shape))


def add_up(terms: Iterable[Ball]) -> Ball:
    """The sum."""
    return sum(terms, ball(0.0))


def greatest(terms: Iterable[Ball]) -> Ball:
    """The largest of them."""
    values = iter(terms)
    found = next(values)
    for value in values:
        found = found.max(value)
    return found


def at_most(value: Ball) -> float:
    """The smallest float that is surely not below."""
    return -at_least(-value)


def at_least(value: Ball) -> float:
    """The largest float that is surely not above; a ball that holds everything has none."""
    if not value.is_finite():
        return -math.inf
    below = float(value.lower())
    while not ball(below) <= value:
        below = math.nextafter(below, -math.inf)
    return below


class ExactMatrix:
    """A sparse matrix of balls, (rows, columns).

    Args:
        matrix: its pattern, and its entries where they are floats.
        entries: others, in the order of the pattern's rows.
    """

    def __init__(self, matrix: sp.csr_array, entries: np.ndarray | None = None) -> None:
        self.shape, self.pointers, self.columns = matrix.shape, matrix.indptr, matrix.indices
        self.entries = balls(matrix.data) if entries is None else entries
        order = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
        across = order.tocsc()
        self.order, self.across = across.data, across.indptr
        self.rows = across.indices

    def times(self, v: np.ndarray) -> np.ndarray:
        """M v."""
        return _sums(self.entries * v[self.columns], self.pointers)

    def changes(self, v: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """sum_j M_ij (v_j - v_owner(i)) of every row i: exactly zero where all of these are the same."""
        rows = np.repeat(owner, np.diff(self.pointers))
        return _sums(self.entries * (v[self.columns] - v[rows]), self.pointers)

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """M' v."""
        return _sums(self.entries[self.order] * v[self.rows], self.across)


def _sums(terms: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """The sums of consecutive pieces of an array."""
    found = np.empty(pointers.size - 1, dtype=object)
    found[:] = [add_up(terms[begin:end]) for begin, end in pairwise(pointers)]
    return found


def refuse_unless(condition: bool, message: str) -> None:
    """Raise where something that a proof needs does not surely hold."""
    if not condition:
        raise CertificateError(message)


class BallScalars(ScalarKind):
    """Balls of ``BITS`` bits, inside ``precisely()``."""

    eps, tiny = 0.0, 0.0

    def number(self, value: float) -> Ball:
        return ball(value)

    def array(self, values: Any) -> np.ndarray:
        given = np.asarray(values)
        return given if given.dtype == object else balls(given)

    def about(self, values: Any, radius: Any) -> Any:
        given = np.asarray(values, dtype=np.float64)
        within = np.broadcast_to(radius, given.shape).ravel().tolist()
        pairs = zip(given.ravel().tolist(), within, strict=True)
        return _shaped([ball(one, off) for one, off in pairs], given.shape)

    def matrix(self, matrix: sp.csr_array) -> ExactMatrix:
        return ExactMatrix(matrix)

    def rough(self, values: Any) -> np.ndarray:
        given = np.asarray(values, dtype=object)
        near = [float(ball(one).mid()) for one in given.ravel()]
        return np.array(near).reshape(given.shape)

    def at_least(self, value: Any) -> float:
        return at_least(ball(value))

    def finite(self, values: Any) -> bool:
        return all(ball(one).is_finite() for one in np.asarray(values, dtype=object).ravel())

    def total(self, terms: np.ndarray) -> tuple[Ball, Ball]:
        return add_up(terms.ravel()), ball(0.0)  # of what rounding needs there is nothing

    def added(self, terms: Iterable[Ball]) -> Ball:
        return add_up(terms)

    def sums(self, places: np.ndarray, terms: np.ndarray, size: int) -> np.ndarray:
        found = np.full(size, ball(0.0))
        for place, term in zip(places.tolist(), terms, strict=True):
            found[place] = found[place] + term
        return found

    def greatest(self, values: Iterable[Any]) -> Ball:
        return greatest(ball(value) for value in values)

    def tops(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(_shaped([greatest(one) for one in values.T], values.shape[1:]))

    def largest(self, values: np.ndarray) -> Ball:
        return greatest([ball(0.0), *np.abs(values).ravel()])

    def maximum(self, first: Any, second: Any) -> Any:
        one, other = np.broadcast_arrays(
            np.asarray(first, dtype=object), np.asarray(second, dtype=object)
        )
        pairs = zip(one.ravel(), other.ravel(), strict=True)
        return _shaped([ball(a).max(ball(b)) for a, b in pairs], one.shape)

    def nonnegative(self, values: Any) -> Any:
        given = np.asarray(values, dtype=object)
        return _shaped([ball(one).nonnegative_part() for one in given.ravel()], given.shape)

    def times_log(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(_shaped([_times_log(u) for u in values.ravel()], values.shape))

    def power(self, value: Ball, exponent: Ball) -> Ball:
        top = value if value > 0 else ball(value).upper()
        return top**exponent if top > 0 else ball(0.0)

    def log(self, value: Ball) -> Ball:
        return ball(value).log()

    def log1p(self, value: Ball) -> Ball:
        return ball(value).log1p()

    def exp(self, value: Ball) -> Ball:
        return ball(value).exp()

    def sqrt(self, value: Ball) -> Ball:
        return ball(value).nonnegative_part().sqrt()


def _shaped(values: list[Ball], shape: tuple[int, ...]) -> Any:
    """An array of balls; one ball where there is no shape."""
    if not shape:
        return values[0]
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found.reshape(shape)


def _times_log(u: Ball) -> Ball:
    """U log u is not above this, for u >= 0: where the ball of u holds zero, it is not above zero."""
    if u > 0:
        return u * u.log()
    refuse_unless(bool(u < 1), "an argument of a logarithm is not known well enough")
    return ball(0.0)


BALLS = BallScalars()
