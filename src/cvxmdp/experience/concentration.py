r"""How far the mean of n independent episodes can be from the truth. Each bound names its inequality.

**Numbers.** For n independent values in [a, b] with sample variance V, with probability at least 1 - delta

    mean >= truth - sqrt(2 V log(2/delta) / n) - 7 (b - a) log(2/delta) / (3 (n - 1)),

and the same from the other side: the empirical Bernstein bound (Maurer and Pontil 2009, theorem 4).

**Vectors.** An episode's occupancy X has |X|_2 <= |X|_1 <= M = 1 / (1 - discount). The norm of the error of
the mean of n of them changes by at most c / n when one episode is replaced, c the diameter of the set X
lies in (l1: 2 M; l2: 2 M, and sqrt(2) M where entries are never negative). By bounded differences
(McDiarmid 1989) it exceeds its expectation by more than c sqrt(log(1/delta) / (2 n)) with probability
at most delta; the expectation is at most M / sqrt(n) in l2, and sqrt(D) M / sqrt(n) in l1, D the number
of entries. Episodes that are short or spread out have a far smaller norm than M, and then this is better in
l2, with probability at least 1 - delta (Pinelis 1994, in the form of Smale and Zhou 2007, lemma 2):

    2 M log(2/delta) / n + sqrt(2 E|X|^2 log(2/delta) / n),

E|X|^2 bounded from the sample by empirical Bernstein. The smaller of the two is used, each at half of delta;
in l1 also sqrt(D) times the one in l2.

**Functions.** Let phi change by at most omega(e) when its argument moves by e. For a *concave* phi, Jensen's
inequality gives phi(truth) >= E phi(mean), and phi(mean) has bounded differences omega(c / n), so

    phi(truth) >= phi(mean) - omega(c / n) sqrt(n log(1/delta) / 2),

without a term for the dimension; the other side is phi(mean) + omega(error of the mean). For a convex phi
the sides change places.

**Truncation.** What a cut episode did not show has mass at most discount^K / (1 - discount), in expectation
tau; the truth is then within tau of the truth about the part that was seen, in l1 and so in l2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


def bernstein_radius(values: np.ndarray, width: float, delta: float) -> float:
    """The empirical Bernstein radius of the mean of values in an interval of that width, one-sided."""
    n = len(values)
    if n < 2:
        return math.inf if width > 0 else 0.0
    logarithm = math.log(2.0 / delta)
    variance = float(np.var(values, ddof=1))
    return math.sqrt(2.0 * variance * logarithm / n) + 7.0 * width * logarithm / (3.0 * (n - 1))


@dataclass(frozen=True)
class Radius:
    """How far a mean is from the truth.

    Attributes:
        l1, l2: in the two norms.
    """

    l1: float
    l2: float

    def __add__(self, other: Radius) -> Radius:
        return Radius(self.l1 + other.l1, self.l2 + other.l2)


@dataclass(frozen=True)
class VectorBound:
    """Concentration of the mean of n independent vectors.

    Attributes:
        n: how many.
        size: bounds on the norms of each, M in l1 and l2.
        nonnegative: whether entries are never negative.
        entries: D, how many entries can differ from zero.
        squares: |X|^2 of each, (n,), where they were recorded.
    """

    n: int
    size: Radius
    nonnegative: bool
    entries: int
    squares: np.ndarray | None = None

    @property
    def swap(self) -> Radius:
        """c / n: how far the mean moves when one vector is replaced."""
        factor = math.sqrt(2.0) if self.nonnegative else 2.0
        return Radius(2.0 * self.size.l1 / self.n, factor * self.size.l2 / self.n)

    def radius(self, delta: float) -> Radius:
        """Each norm of the error is below this with probability at least 1 - delta."""
        if self.squares is None:
            return self._by_differences(delta)
        differences, moments = self._by_differences(delta / 2.0), self._by_moments(delta / 2.0)
        l2 = min(differences.l2, moments)
        return Radius(min(differences.l1, math.sqrt(self.entries) * l2), l2)

    def _by_differences(self, delta: float) -> Radius:
        deviation = math.sqrt(self.n * math.log(1.0 / delta) / 2.0)
        root = math.sqrt(self.n)
        return Radius(
            math.sqrt(self.entries) * self.size.l2 / root + self.swap.l1 * deviation,
            self.size.l2 / root + self.swap.l2 * deviation,
        )

    def _by_moments(self, delta: float) -> float:
        """Half of delta for the bound on E|X|^2, half for the inequality itself."""
        if self.squares is None:
            return math.inf
        most = self.size.l2**2
        moment = float(self.squares.mean()) + bernstein_radius(self.squares, most, delta / 2.0)
        logarithm = math.log(4.0 / delta)
        spread = math.sqrt(2.0 * min(moment, most) * logarithm / self.n)
        return 2.0 * self.size.l2 * logarithm / self.n + spread
