r"""Sets of models from counts, as the checker computes them: the second implementation, nothing shared.

**One row.** Its outcomes are the states and ``end``; c_x counts outcome x among n draws, p^ = c / n. For a
strength m and any p, the product over draws of (c_x + m p_x) / ((t + m) p_x), t and c_x counted before the
draw, is a non-negative martingale under p. By Ville's inequality its logarithm stays below log(N / (delta
w_j)) for all strengths m = 8^j (weights w_j = 1 / ((j+1)(j+2))), all times and all N rows together, with
probability 1 - delta. It is convex in each log p_x, and its tangent at p^ is a Kullback-Leibler ball: with
a_x = m p^_x

    s_x  = sum_{k < c_x} k / (a_x + k)  =  c_x - a_x (psi(a_x + c_x) - psi(a_x)),   s = sum s_x
    B    = log(N/(delta w_j)) + lgamma(n+m) - lgamma(m) - sum_x [lgamma(a_x+c_x) - lgamma(a_x) - c_x log p^_x]
    -sum s_x log p_x  <=  B - sum s_x log p^_x,      that is      KL(s_x/s || p) <= eps.

Less s_x on the left and more on the right only make the set larger: that is how rounding enters.

**Largest expectation.** By Jensen's inequality, for every nu above the largest W of a possible outcome,

    p.W  <=  nu - exp(-eps) prod_x (nu - W_x)^(s_x/s)      for every p of the ball.

Any nu will do; a golden section finds a good one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, digamma, gammaln

from cvxmdp.checker.arithmetic import EPS, CertificateError

STRENGTHS = 9  # m = 1, 8, ..., 8^8
SMALL = 32  # counts up to which s_x is summed term by term, without cancellation
ULPS = 64 * EPS  # generous: what lgamma, digamma and a few operations on their results are off by
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
STEPS = 48  # of the golden section
DEEPEST = 50.0  # how far below the spread of W the logarithm of nu - top is looked for
BISECTIONS = 60


class Places(NamedTuple):
    """Where a sparse matrix has entries: their rows and outcomes, and how many rows there are."""

    row: np.ndarray
    outcome: np.ndarray
    height: int

    def sums(self, entries: np.ndarray) -> np.ndarray:
        """Per row, of an array (entries,) or (entries, J)."""
        ones = (np.ones(self.row.size), (self.row, np.arange(self.row.size)))
        return np.asarray(sp.csr_array(ones, shape=(self.height, self.row.size)) @ entries)


def entries_of(matrix: sp.csr_array) -> Places:
    """The places of a sparse matrix's entries."""
    height = int(matrix.shape[0])
    return Places(np.repeat(np.arange(height), np.diff(matrix.indptr)), matrix.indices, height)


class NuSearch(NamedTuple):
    """What bounds the largest expectations, found by a search.

    Attributes:
        top: the largest W of what can happen, (rows, J).
        rows: those with a ball, (K,).
        nu: how far nu is above the top, (K, J); zero where all that was seen is at the top.
        bound: nu - exp(-eps) prod (nu - W_x)^(s_x/s) less the top, rounded up, (K, J).
    """

    top: np.ndarray
    rows: np.ndarray
    nu: np.ndarray
    bound: np.ndarray


class ConfidenceRows:
    """Kullback-Leibler balls, one per row.

    Args:
        counts: (rows, outcomes), whole numbers.
        possible: boolean (outcomes,): what can happen at all.
        supports: like ``counts``, what can happen in each row, or None.
        level: log(N / delta).

    Attributes:
        centre: s_x / s of every entry.
        radius: eps of every row.
        strength: j of every row, its m being 8^j.
    """

    def __init__(
        self,
        counts: sp.csr_array,
        possible: np.ndarray,
        supports: sp.csr_array | None,
        level: float,
    ) -> None:
        matrix = sp.csr_array(counts, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if (matrix.data != np.floor(matrix.data)).any() or (matrix.data < 0).any():
            raise CertificateError("counts are whole numbers that are not negative")
        self.possible, self.supports = possible, _supports(supports, matrix)
        self.places, self.counts, self.pointers = entries_of(matrix), matrix.data, matrix.indptr
        self.strength = np.zeros(self.places.height, dtype=np.int64)
        if not possible[matrix.indices].all():
            raise CertificateError("something was counted that is said to be impossible")
        self.centre, self.radius = self._balls(matrix.data, level)

    def _balls(self, counts: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """s_x / s of every entry and eps of every row: of the strength with the smallest eps."""
        rows = self.places
        visits = rows.sums(counts)
        centre, radius = np.zeros(counts.size), np.full(rows.height, np.inf)
        shares = counts / visits[rows.row]
        for j in range(STRENGTHS):
            bar = level + math.log((j + 1) * (j + 2))
            weights, found = self._ball(counts, visits, shares, 8.0**j, bar)
            better = found < radius
            radius = np.where(better, found, radius)
            self.strength = np.where(better, j, self.strength)
            centre = np.where(better[rows.row], weights, centre)
        return centre, radius

    def _ball(
        self, counts: np.ndarray, visits: np.ndarray, shares: np.ndarray, m: float, bar: float
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, a = self.places, m * shares
        low, high = effective_counts(counts, a)
        logs = np.log(shares)
        gained = gammaln(a + counts) - gammaln(a) - counts * logs
        size = gammaln(a + counts) + np.abs(gammaln(a)) + counts * np.abs(logs)
        room = bar + gammaln(visits + m) - gammaln(m) - rows.sums(gained) - rows.sums(high * logs)
        sizes = bar + 2.0 * (gammaln(visits + m + 1.0) + abs(gammaln(m)))
        sizes = sizes + rows.sums(np.abs(size)) + rows.sums(high * np.abs(logs))
        room = room + ULPS * sizes
        total = rows.sums(low)
        known = total > 0
        weights = low / np.where(known, total, 1.0)[rows.row]
        inside = np.where(weights > 0, low * np.log(np.where(weights > 0, weights, 1.0)), 0.0)
        spent = rows.sums(inside) + ULPS * rows.sums(np.abs(inside))
        eps = (room + spent) / np.where(known, total, 1.0)
        return weights, np.where(known, np.maximum(eps, 0.0) * (1 + ULPS) + ULPS, np.inf)

    def piece(self, row: int) -> slice:
        """The entries of a row."""
        return slice(int(self.pointers[row]), int(self.pointers[row + 1]))

    def largest(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """No p of a row's set has a larger p.W: (rows, J) for W = values, (outcomes, J).

        Args:
            values: W, one column each.
            wanted: boolean (rows,); the bound of other rows is left at the largest W.
        """
        top, rows, _, bound = self.search(values, wanted)
        highest = top[rows]
        # A sum and a difference of numbers of about this size.
        sizes = np.abs(highest) + np.abs(bound)
        top[rows] = np.minimum(highest, highest + bound + 8 * EPS * sizes)
        return top

    def search(self, values: np.ndarray, wanted: np.ndarray) -> NuSearch:
        """A good nu for every row that is wanted, and what it shows."""
        top = _tops(values, self.possible, self.supports, self.places.height)
        used = wanted & np.isfinite(self.radius)
        keep = used[self.places.row] & (self.centre > 0)
        if not keep.any():
            none = np.zeros((0, values.shape[1]))
            return NuSearch(top, np.zeros(0, dtype=np.int64), none, none)
        old = np.flatnonzero(used)
        place = np.zeros(self.places.height, dtype=np.int64)
        place[old] = np.arange(old.size)
        rows = Places(place[self.places.row[keep]], self.places.outcome[keep], old.size)
        gaps = top[old][rows.row] - values[rows.outcome]
        if self.supports is not None and (gaps < 0).any():
            raise CertificateError("something was counted outside the supports that were declared")
        return NuSearch(top, old, *_lowest_nu(rows, self.centre[keep], gaps, self.radius[old]))


def _lowest_nu(
    rows: Places, weight: np.ndarray, gaps: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A d > 0 that a golden section finds, and d - exp(-eps) prod (d + gap)^weight there, rounded up.

    Args:
        rows: of the entries.
        weight: s_x / s, (entries,).
        gaps: top - W, (entries, J), none negative.
        radius: eps, (rows,).
    """
    spread = np.zeros((rows.height, gaps.shape[1]))
    np.maximum.at(spread, rows.row, gaps)
    flat = spread <= 0
    spread = np.where(flat, 1.0, spread)
    terms = np.bincount(rows.row, minlength=rows.height)[:, None] + 16.0
    weigh = sp.csr_array(
        (weight, (rows.row, np.arange(weight.size))), shape=(rows.height, weight.size)
    )
    shift, share = radius[:, None], gaps / spread[rows.row]

    def height(depth: np.ndarray) -> np.ndarray:
        """At d = spread * exp(depth), in units of the spread, with what rounding may hide."""
        d = np.exp(depth)
        logs = np.log(d[rows.row] + share)
        product = np.exp(np.asarray(weigh @ logs) - shift)
        off = terms * EPS * (np.asarray(weigh @ np.abs(logs)) + shift + 2.0)
        return np.asarray(d - product * (1.0 - np.minimum(off, 1.0)) + 4 * EPS * d)

    # Where d is above 1 / (2 sqrt(eps)) the derivative is positive.
    high = np.log(0.5 / np.sqrt(np.maximum(shift, ULPS)) + 2.0) + np.zeros_like(spread)
    low = np.full_like(spread, -DEEPEST)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = height(left), height(right)
    for _ in range(STEPS):
        lower = at_left < at_right
        high, low = np.where(lower, right, high), np.where(lower, low, left)
        inner = np.where(lower, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        fresh = height(inner)
        left, right = np.where(lower, inner, right), np.where(lower, left, inner)
        at_left, at_right = np.where(lower, fresh, at_right), np.where(lower, at_left, fresh)
    best = spread * np.exp(np.where(at_left < at_right, left, right))
    found = spread * np.minimum(at_left, at_right)
    return np.where(flat, 0.0, best), np.where(flat, 0.0, found)


def effective_counts(counts: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on s_x = sum_{k < c} k / (a + k) from below and above."""
    wide = a * (digamma(a + counts) - digamma(a))
    sizes = counts + a * (np.abs(digamma(a + counts)) + np.abs(digamma(a)) + 1.0)
    middle, off = counts - wide, ULPS * sizes
    few = np.flatnonzero(counts <= SMALL)
    plain = np.zeros(few.size)
    for k in range(1, SMALL):
        plain += np.where(counts[few] > k, k / (a[few] + k), 0.0)
    middle[few], off[few] = plain, ULPS * plain
    return np.clip(middle - off, 0.0, counts), np.clip(middle + off, 0.0, counts)


def _supports(supports: sp.csr_array | None, counts: sp.csr_array) -> sp.csr_array | None:
    if supports is None:
        return None
    kept = sp.csr_array(supports, dtype=np.float64, copy=True)
    kept.sum_duplicates()
    kept.eliminate_zeros()
    if kept.shape != counts.shape:
        raise CertificateError("the declared supports have another shape than the counts")
    return kept


def _tops(
    values: np.ndarray, possible: np.ndarray, supports: sp.csr_array | None, count: int
) -> np.ndarray:
    """The largest value of what can happen, (rows, J)."""
    if supports is None:
        return np.repeat(values[possible].max(axis=0)[None, :], count, axis=0)
    rows = entries_of(supports)
    top = np.full((count, values.shape[1]), -np.inf)
    inside = possible[rows.outcome]
    np.maximum.at(top, rows.row[inside], values[rows.outcome[inside]])
    # Nothing was declared of a row: anything may happen.
    return np.where(np.isfinite(top), top, values[possible].max(axis=0))


class RelativeRows:
    """Every probability wrong by up to a share e of itself: p_x = p^_x (1 + e g_x), |g_x| <= 1, sum p = 1.

    The largest expectation is p^.W + e sum p^_x |W_x - median of W|; with any number for the median it is a
    bound, since sum p^_x g_x = 0.

    Args:
        chances: p^, (rows, outcomes), the last one ``end``.
        share: e, between 0 and 1.
    """

    def __init__(self, chances: sp.csr_array, share: float) -> None:
        matrix = sp.csr_array(chances, dtype=np.float64, copy=True)
        matrix.eliminate_zeros()
        self.rows, self.chances, self.share = entries_of(matrix), matrix, share
        if not 0 <= share <= 1:
            raise CertificateError(f"a relative error of {share} is not between 0 and 1")

    def largest(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """See ``ConfidenceRows.largest``."""
        rows, weight = self.rows, self.chances.data[:, None]
        seen = values[rows.outcome]
        middle = self.medians(values)
        away = rows.sums(weight * np.abs(seen - middle[rows.row]))
        found = rows.sums(weight * seen) + self.share * away
        terms = int(np.bincount(rows.row, minlength=1).max()) + 16
        sizes = rows.sums(weight * (np.abs(seen) + np.abs(middle[rows.row])))
        return found + terms * EPS * (sizes + np.abs(middle))

    def medians(self, values: np.ndarray) -> np.ndarray:
        """Of every row and column of W, weighted; where rows sum to one."""
        rows, seen, starts = self.rows, values[self.rows.outcome], self.chances.indptr
        found = np.zeros((rows.height, seen.shape[1]))
        for column in range(seen.shape[1]):
            order = np.lexsort((seen[:, column], rows.row))
            reached = np.cumsum(self.chances.data[order])
            before = np.concatenate([[0.0], reached])[starts[:-1]]
            half = before + 0.5 * rows.sums(self.chances.data)
            place = np.minimum(np.searchsorted(reached, half), np.maximum(starts[1:] - 1, 0))
            if order.size:
                found[:, column] = seen[order[np.minimum(place, order.size - 1)], column]
        return found


def mean_bounds(
    total: np.ndarray, visits: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the mean of values in [0, 1] whose sum over ``visits`` is ``total``, element by element.

    For every q that is the mean, the product of q's own likelihood ratios against a Beta(1/2, 1/2) mixture
    is a supermartingale: -Y log q - (n-Y) log(1-q) <= level - log(Beta(Y+1/2, n-Y+1/2) / Beta(1/2, 1/2)).
    """
    y = np.clip(total, 0.0, visits)
    rest = visits - y
    bar = level - (betaln(y + 0.5, rest + 0.5) - betaln(0.5, 0.5))
    bar = bar + ULPS * (np.abs(bar) + gammaln(visits + 2.0) + 1.0)
    middle = np.where(visits > 0, y / np.maximum(visits, 1.0), 0.5)

    def outside(q: np.ndarray) -> np.ndarray:
        """Surely not the mean."""
        with np.errstate(divide="ignore", invalid="ignore"):
            price = np.where(y > 0, -y * np.log(q), 0.0) + np.where(
                rest > 0, -rest * np.log1p(-q), 0.0
            )
        return np.asarray(price * (1 - ULPS) > bar)

    ends = []
    for end in (0.0, 1.0):
        out, inner = np.full_like(middle, end), middle.copy()
        for _ in range(BISECTIONS):
            half = 0.5 * (out + inner)
            gone = outside(half)
            out, inner = np.where(gone, half, out), np.where(gone, inner, half)
        ends.append(out)
    return ends[0], ends[1]
