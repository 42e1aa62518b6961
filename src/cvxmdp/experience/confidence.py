r"""Sets of models that hold the true one, for those who plan: balls around counts, largest expectations.

A *row* is a pair (s, a), or the initial distribution where it is estimated; its *outcomes* are the states and
``end``. From the counts c_x of one row, n in all, p^ = c / n, and for strengths m = 8^j with weights w_j =
1 / ((j+1)(j+2)), a_x = m p^_x and psi = digamma, the set {p: KL(s_x/s || p) <= eps} with

    s_x  = c_x - a_x (psi(a_x + c_x) - psi(a_x)),   s = sum s_x                              effective counts
    B    = log(N/(delta w_j)) + lgamma(n+m) - lgamma(m) - sum_x [lgamma(a_x+c_x) - lgamma(a_x) - c_x log p^_x]
    beta = B - sum_x s_x log p^_x + sum_x s_x log(s_x/s),   eps = beta/s

holds the true p for all N rows and at all times together with probability 1 - delta, however the data were
collected (mixtures centred at the hypothesis: Chowdhury, Saux, Maillard and Gopalan, 2023; the tangent at
p^ of a martingale's logarithm). Neither the support nor the number of outcomes enters. The j with the
smallest eps counts; where no outcome was seen twice, nothing is known of the row: eps is infinite.

The largest expectation over a ball is the least over nu >= top, top the largest W of a possible outcome, of

    nu - exp(-eps) prod_x (nu - W_x)^(s_x/s),      at p_x = exp(-eps) prod(.) (s_x/s) / (nu - W_x),

the rest of p on an outcome at the top. Newton's method in log(nu - top), kept inside a bracket.

Here float64 is taken as it comes: what is claimed, the checker computes anew (``checker.checked_confidence``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from cvxmdp.base.errors import SettingsError

STRENGTHS = 9  # m = 1, 8, ..., 8^8
DIRECT = 16  # counts up to which effective counts are summed term by term, without cancellation
NEWTON_STEPS = 40  # at most; some ten are usual
SETTLED = 1e-9  # what a step in log(nu - top) has come down to at the end: the bound is flat there
DEEPEST = 46.0  # how far below the spread of W, in logarithms, nu - top may be
LEAST_RADIUS = 1e-15


class Extreme(NamedTuple):
    """The largest expectations of J functions over every row's set, and where they are reached.

    Attributes:
        bound: (rows, J).
        chances: of the entries of ``centres``, (entries, J).
        rest: what is left for an outcome at the top, (rows, J).
        top: that outcome, (rows, J).
    """

    bound: np.ndarray
    chances: np.ndarray
    rest: np.ndarray
    top: np.ndarray


@dataclass(frozen=True, eq=False)
class RowSets(ABC):
    """A set of distributions for every row.

    Attributes:
        centres: a distribution of each, (rows, outcomes), or nothing where nothing is known. Extremes have
            their entries there, and at one more outcome.
    """

    centres: sp.csr_array

    @abstractmethod
    def largest(self, values: np.ndarray) -> Extreme:
        """Of W = values, (outcomes, J), one column each."""

    @abstractmethod
    def only(self, rows: np.ndarray) -> RowSets:
        """The sets of some rows."""


@dataclass(frozen=True, eq=False)
class Balls(RowSets):
    """Kullback-Leibler balls {p: KL(centre || p) <= radius} over what is possible.

    Attributes:
        centres: (rows, outcomes), rows sum to one or are empty.
        radius: (rows,); infinite where anything that is possible may happen.
        possible: boolean (outcomes,).
        supports: boolean like ``centres``, what is possible in each row; None where all that is ``possible``.
    """

    radius: np.ndarray
    possible: np.ndarray
    supports: sp.csr_array | None = None

    @cached_property
    def row_of(self) -> np.ndarray:
        """The row of every entry."""
        return np.repeat(np.arange(self.centres.shape[0]), np.diff(self.centres.indptr))

    @cached_property
    def _weigh(self) -> sp.csr_array:
        """Takes an array over entries to its weighted means per row."""
        entries = np.arange(self.centres.nnz)
        shape = (self.centres.shape[0], self.centres.nnz)
        return sp.csr_array((self.centres.data, entries, self.centres.indptr), shape=shape)

    def largest(self, values: np.ndarray) -> Extreme:
        top = self._top(values)
        highest = np.take_along_axis(values, top, axis=0)
        gaps = highest[self.row_of] - values[self.centres.indices]
        known = np.isfinite(self.radius)
        spread = np.zeros(top.shape)
        np.maximum.at(spread, self.row_of, gaps)
        wide = known[:, None] & (spread > 0)
        unit = np.where(wide, spread, 1.0)
        radius = np.where(known, np.maximum(self.radius, LEAST_RADIUS), 1.0)[:, None]
        d, logs = self._newton(gaps / unit[self.row_of], radius, wide)
        product = np.exp(logs - radius)
        bound = np.where(wide, highest + unit * (d - product), highest)
        inverse = 1.0 / (d[self.row_of] + gaps / unit[self.row_of])
        chances = product[self.row_of] * self.centres.data[:, None] * inverse
        total = self._sum(chances)
        chances /= np.maximum(total, 1.0)[self.row_of]
        known_rows = known[self.row_of]
        chances[~known_rows] = 0.0
        rest = np.where(known[:, None], np.maximum(1.0 - total, 0.0), 1.0)
        flat = known[:, None] & ~wide  # every distribution is as good: the centre
        chances = np.where(flat[self.row_of], self.centres.data[:, None], chances)
        return Extreme(np.minimum(bound, highest), chances, np.where(flat, 0.0, rest), top)

    def only(self, rows: np.ndarray) -> Balls:
        supports = None if self.supports is None else self.supports[rows]
        return Balls(self.centres[rows], self.radius[rows], self.possible, supports)

    def _sum(self, entries: np.ndarray) -> np.ndarray:
        ones = (np.ones(self.centres.nnz), np.arange(self.centres.nnz), self.centres.indptr)
        shape = (self.centres.shape[0], self.centres.nnz)
        return np.asarray(sp.csr_array(ones, shape=shape) @ entries)

    def _top(self, values: np.ndarray) -> np.ndarray:
        """A possible outcome with the largest value, (rows, J)."""
        places = np.flatnonzero(self.possible)
        best = places[values[places].argmax(axis=0)]
        top = np.repeat(best[None, :], self.centres.shape[0], axis=0)
        if self.supports is None:
            return top
        places = np.repeat(np.arange(top.shape[0]), np.diff(self.supports.indptr))
        allowed = self.possible[self.supports.indices] & np.asarray(self.supports.data, dtype=bool)
        places, own = places[allowed], self.supports.indices[allowed]
        for column in range(values.shape[1]):
            # The last of each row, in ascending order of values, is at the top of what the row allows.
            order = np.lexsort((values[own, column], places))
            top[places[order], column] = own[order]
        return top

    def _newton(
        self, gaps: np.ndarray, radius: np.ndarray, wide: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best d = nu - top in units of the spread, and sum_x q_x log(d + gap_x) there, (rows, J).

        With g = sum q log(d + gap) - eps and g' = sum q / (d + gap), the least of d - exp(g) is where h = g
        + log g' is zero: h falls from positive values (or is negative everywhere: then d = 0 is best) and
        is negative from 1 / (2 sqrt(eps)) on.
        """
        high = np.log(0.5 / np.sqrt(radius) + 1.0) + np.zeros(wide.shape)
        low = np.full(wide.shape, -DEEPEST)
        mean = self._weigh @ gaps
        deviation = np.sqrt(np.maximum(self._weigh @ gaps**2 - mean**2, 0.0))
        guess = np.maximum(deviation / np.sqrt(2.0 * radius) - mean, 1e-3 * deviation)
        t = np.clip(np.log(np.maximum(guess, 1e-12)), low + 1.0, high)
        h, _ = self._stationary(low, gaps, radius, wide)
        moving = wide & (h > 0)
        t = np.where(moving, t, low)
        for _ in range(NEWTON_STEPS):
            h, steep = self._stationary(t, gaps, radius, wide)
            low, high = np.where(h > 0, t, low), np.where(h > 0, high, t)
            step = t - h / np.where(steep < 0, steep, -1.0)
            inside = (step > low) & (step < high) & (steep < 0)
            following = np.where(moving, np.where(inside, step, 0.5 * (low + high)), t)
            settled = np.abs(following - t).max(initial=0.0) <= SETTLED
            t = following
            if settled:
                break
        d = np.exp(t)
        return d, np.asarray(self._weigh @ np.log(d[self.row_of] + gaps))

    def _stationary(
        self, t: np.ndarray, gaps: np.ndarray, radius: np.ndarray, wide: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """h at d = exp(t), and its derivative in t."""
        d = np.exp(t)
        inverse = 1.0 / (d[self.row_of] + gaps)
        slope = np.where(wide, self._weigh @ inverse, 1.0)
        h = np.log(slope) - self._weigh @ np.log(inverse) - radius
        return h, d * (slope - (self._weigh @ inverse**2) / slope)


@dataclass(frozen=True, eq=False)
class RelativeErrors(RowSets):
    """p_x = p^_x (1 + e g_x) with |g_x| <= 1 and sum p = 1: every probability wrong by up to a share of
    itself.

    The largest expectation is p^.W + e sum p^_x |W_x - median of W|.

    Attributes:
        centres: p^, (rows, outcomes); rows sum to one.
        share: e.
    """

    share: float

    def only(self, rows: np.ndarray) -> RelativeErrors:
        return RelativeErrors(self.centres[rows], self.share)

    def largest(self, values: np.ndarray) -> Extreme:
        """Probability moves from below the median to above it."""
        centres, count = self.centres, int(self.centres.shape[0])
        row_of = np.repeat(np.arange(count), np.diff(centres.indptr))
        chances = np.empty((centres.nnz, values.shape[1]))
        for column in range(values.shape[1]):
            seen = values[centres.indices, column]
            order = np.lexsort((seen, row_of))
            weight = centres.data[order]
            after = np.cumsum(weight)
            start = np.concatenate([[0.0], after])[centres.indptr[:-1]][row_of]
            # The half of the mass with the smaller values loses, the other half gains.
            whole = np.concatenate([[0.0], after])[centres.indptr[1:]][row_of] - start
            below = np.clip(0.5 * whole - (after - start - weight), 0.0, weight)
            moved = np.empty(centres.nnz)
            moved[order] = weight + self.share * (weight - 2.0 * below)
            chances[:, column] = moved
        sums = sp.csr_array(
            (np.ones(centres.nnz), np.arange(centres.nnz), centres.indptr), (count, centres.nnz)
        )
        bound = np.asarray(sums @ (chances * values[centres.indices]))
        nothing = np.zeros((count, values.shape[1]))
        return Extreme(bound, chances, nothing, nothing.astype(np.int64))


def confidence_level(confidence: float, rows: int) -> float:
    """log(N / delta): what N rows share, of a probability 1 - confidence that one of them is wrong."""
    plain = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not plain or not 0.0 < confidence < 1.0:
        raise SettingsError(
            f"confidence is a probability below one, such as 0.95; got {confidence!r}"
        )
    return math.log(rows / (1.0 - confidence))


def confidence_balls(
    counts: sp.csr_array,
    level: float,
    possible: np.ndarray | None = None,
    supports: sp.csr_array | None = None,
) -> Balls:
    """The balls of counts (rows, outcomes), which hold every row's distribution together.

    Args:
        counts: whole numbers.
        level: log(N / delta), see ``confidence_level``.
        possible: boolean (outcomes,); all of them when not given.
        supports: what is possible in each row.
    """
    seen = sp.csr_array(counts, dtype=np.float64, copy=True)
    seen.sum_duplicates()
    seen.eliminate_zeros()
    row_of = np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr))
    visits = np.asarray(seen.sum(axis=1)).ravel()
    shares = seen.data / np.maximum(visits, 1.0)[row_of]
    radius, weights = np.full(visits.size, np.inf), np.zeros(seen.nnz)
    for j in range(STRENGTHS):
        bar = level + math.log((j + 1) * (j + 2))
        found, own = _ball(seen, row_of, visits, shares, 8.0**j, bar)
        better = found < radius
        radius, weights = np.where(better, found, radius), np.where(better[row_of], own, weights)
    centres = sp.csr_array((weights, seen.indices, seen.indptr), shape=seen.shape)
    allowed = np.ones(seen.shape[1], dtype=bool) if possible is None else possible
    return Balls(centres, radius, allowed, supports)


def _ball(
    seen: sp.csr_array,
    row_of: np.ndarray,
    visits: np.ndarray,
    shares: np.ndarray,
    strength: float,
    bar: float,
) -> tuple[np.ndarray, np.ndarray]:
    """eps of every row, and s_x / s of every entry."""

    def sums(entries: np.ndarray) -> np.ndarray:
        return np.bincount(row_of, entries, minlength=visits.size)

    counts, a, logs = seen.data, strength * shares, np.log(shares)
    effective = _effective(counts, a)
    gained = gammaln(a + counts) - gammaln(a) - counts * logs
    beta = bar + gammaln(visits + strength) - gammaln(strength) - sums(gained + effective * logs)
    total = sums(effective)
    known = total > 0
    weights = effective / np.where(known, total, 1.0)[row_of]
    beta += sums(effective * np.log(np.where(weights > 0, weights, 1.0)))
    return np.where(known, beta / np.where(known, total, 1.0), np.inf), weights


def _effective(counts: np.ndarray, a: np.ndarray) -> np.ndarray:
    """c - a (psi(a + c) - psi(a)) = sum_{k < c} k / (a + k), the sum itself where counts are small."""
    found = counts - a * (digamma(a + counts) - digamma(a))
    few = counts <= DIRECT
    place = np.flatnonzero(few)
    direct = np.zeros(place.size)
    for k in range(1, DIRECT):
        direct += np.where(counts[place] > k, k / (a[place] + k), 0.0)
    found[place] = direct
    return np.maximum(found, 0.0)
