r"""Numbers without rounding: balls that surely hold the true value, at 256 bits.

A float is a binary fraction and is read as the number it is. What arithmetic cannot hold exactly (a third, a
logarithm) is a ball: a centre and a radius, which Arb computes so that the true value is always inside
(Johansson, 2017). An inequality is taken as true only if it holds for everything in the balls.

Balls stand in NumPy arrays of objects, so that formulas read as they do elsewhere. The library is
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
    found = np.empty(values.size, dtype=object)
    found[:] = [arb(value) for value in values.ravel().tolist()]
    return found.reshape(values.shape)


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
