r"""A set of models as the checker sees it: a flow whose rows are only known to lie in sets.

With a set of distributions for every row (``checked_confidence``), T+ V(s) = max_a r(s,a) + gamma max_p p.V
and any V, for every policy and every model of the set

    <r, y>  <=  max_rho rho.V + max(0, max_s (T+ V - V)(s)) / (1 - gamma),

y the policy's occupancy there; W of ``end`` is zero. The occupancies y and y^ of one policy in a model of
the set and in the estimate differ by |y - y^|_1 <= (|rho - rho^|_1 + gamma <y^, |p - p^|_1>) / (1 - gamma),
and for every p of a ball around q of radius eps |p - p^|_1 <= min(sqrt(2 eps), 2 sqrt(1 - exp(-eps))) + |q
- p^|_1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound, largest, total
from cvxmdp.checker.checked_confidence import ConfidenceRows, RelativeRows, mean_bounds
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_flow import Proof, Visited
from cvxmdp.checker.scalars import FLOATS

DATA_PROMISES = (
    "the rows of a pair are independent draws of one law",
    "every row was recorded once, and none was chosen by its outcome",
    "the listed states are all there are",
)


class SignalBox(NamedTuple):
    """Where a signal lies, (S, A) each; infinite where nobody knows."""

    low: np.ndarray
    high: np.ndarray


class CheckedModels(CheckedEpisodes):
    """Discounted episodes in every model of a set; ``transition`` and ``initial`` are the estimate's.

    Args:
        plain: the problem, with "uncertainty": what is known of its rows.
        confidence: with which the set holds the true model; of no account where errors are stated.

    Attributes:
        rows: the sets of the pairs.
        starts: that of the initial distribution, or None where it is known.
        boxes: of the estimated signals, by name.
        promises: what the set rests on.
        count: sets that hold together with the confidence.
        visits: of each pair, (S, A).
        signals: what is said of the estimated signals, by name.
    """

    def __init__(self, plain: Mapping[str, Any], confidence: float) -> None:
        known = plain["uncertainty"]
        stated = known["kind"] == "relative"
        super().__init__(plain if stated else {**plain, "actions": opened(known["available"])})
        if self.discount == 1:
            raise CertificateError("what holds in every model needs a discount below one")
        self.boxes: dict[str, SignalBox] = {}
        self.starts: ConfidenceRows | None = None
        self.confidence, self.count = confidence, 0
        self.visits, self.signals = np.zeros(self.shape), dict[str, Mapping[str, Any]]()
        self.start_moved = 0.0
        if stated:
            self._take_stated(float(known["share"]))
        else:
            self._take_counts(known, confidence)

    def _take_stated(self, share: float) -> None:
        """Every probability wrong by up to a share of itself."""
        sums = np.asarray(self.transition.sum(axis=1)).ravel()
        ending = np.where(self.ends.ravel(), np.maximum(1.0 - sums, 0.0), 0.0)
        whole = sp.csr_array(sp.hstack([self.transition, sp.csr_array(ending[:, None])]))
        self.rows: ConfidenceRows | RelativeRows = RelativeRows(whole, share)
        self.moved = np.where(self.usable, share, 0.0)
        self.promises: tuple[str, ...] = (
            f"every probability is wrong by at most {share:.6g} of itself",
        )

    def _take_counts(self, known: Mapping[str, Any], confidence: float) -> None:
        if not 0 < confidence < 1:
            raise CertificateError(f"a confidence of {confidence} is no probability below one")
        available = np.asarray(known["available"], dtype=bool)
        listed = np.asarray(available.any(axis=1))
        pairs = int(available.sum())
        self.signals = {str(one["name"]): one for one in known["signals"]}
        bounded = (not one["exact"] and one["bounds"] is not None for one in self.signals.values())
        self.count = pairs * (1 + sum(bounded)) + int(known["initial"] is not None)
        level = math.log(max(self.count, 1)) - math.log(1.0 - confidence)
        level += 8 * EPS * (abs(level) + 1.0)
        possible = np.append(listed, True)
        counts, supports = known["outcomes"], known["supports"]
        self.rows = ConfidenceRows(counts, possible, supports, level)
        self.reached = listed
        self.usable = available & listed[:, None]
        self.visits = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(self.shape)
        self.moved = self._distances(self.rows, self._estimate()).reshape(self.shape)
        if known["initial"] is not None:
            begun = sp.csr_array(np.append(known["initial"], 0.0)[None, :])
            self.starts = ConfidenceRows(begun, np.append(listed, False), None, level)
            start = sp.csr_array(np.append(self.initial, 0.0)[None, :])
            self.start_moved = float(self._distances(self.starts, start)[0])
        self.boxes = {
            name: _box(one, self.visits, level, self.usable) for name, one in self.signals.items()
        }
        self.promises = (*DATA_PROMISES, *(str(one) for one in known["promises"]))

    def _estimate(self) -> sp.csr_array:
        """p^ of every pair with its ending, (S * A, S + 1)."""
        sums = np.asarray(self.transition.sum(axis=1)).ravel()
        ending = np.maximum(1.0 - sums, 0.0)
        return sp.csr_array(sp.hstack([self.transition, sp.csr_array(ending[:, None])]))

    def _distances(self, rows: ConfidenceRows, estimate: sp.csr_array) -> np.ndarray:
        """|p - p^|_1 for every p of a row's set is at most this, (rows,)."""
        eps = rows.radius
        ball = np.minimum(np.sqrt(2.0 * eps), 2.0 * np.sqrt(-np.expm1(-eps)))
        places = (rows.centre, (rows.places.row, rows.places.outcome))
        centres = sp.csr_array(places, shape=estimate.shape)
        away = np.asarray(abs(centres - estimate).sum(axis=1)).ravel()
        bound = (ball + away) * (1 + 64 * EPS) + 64 * EPS
        return np.where(np.isfinite(eps), np.minimum(bound, 2.0), 2.0)

    def start(self, values: np.ndarray) -> np.ndarray:
        """The largest rho.W of W = values, (S + 1, J), rounding included."""
        if self.starts is not None:
            return np.asarray(self.starts.largest(values, np.ones(1, dtype=bool))[0])
        found = [total(self.initial * column) for column in values[:-1].T]
        return np.array([inner + 4 * EPS * size for inner, size in found])

    scalars = FLOATS

    @property
    def gamma(self) -> float:
        return self.discount

    def chosen(self, policy: Any) -> np.ndarray:
        return self.read_policy(policy)

    def near(self, policy: Any) -> Visited:
        return self.visited(policy)

    def excess(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> np.ndarray | None:
        """What values leave open grows with the longest stay, which no model's row shortens for sure."""
        return None

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        values = np.append(self.per_state(proof, "values"), 0.0)[:, None]
        after = self.rows.largest(values, self.usable.ravel())[:, 0].reshape(self.shape)
        excess = (reward + self.discount * after - values[:-1])[self.usable]
        if not np.isfinite(excess).all():
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        sizes = largest(reward[self.usable]) + 2.0 * largest(values)
        room = max(0.0, float(excess.max())) + largest(blur[self.usable]) + 8 * EPS * sizes
        return float(self.start(values)[0]) + room * self.longest * (1 + 8 * EPS)

    @property
    def longest(self) -> float:
        """No occupancy of any model has more mass."""
        return (1.0 + 8 * EPS) / (1.0 - self.discount)

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        """In the estimate; the error is how far it may be from the occupancy in any model of the set."""
        found = super().visited(policy, guess)
        # What the computed occupancy is off by itself may be moved as well, by two at most.
        moved = total(found.x * self.moved)[0] + 2.0 * found.error.size
        away = (moved * self.discount + self.start_moved) * (1 + 8 * EPS) * self.longest
        error = ErrorBound(found.error.size + min(away, 2.0 * self.longest), self.usable)
        return found._replace(error=error, least_return=None)


def opened(available: Any) -> np.ndarray:
    """Which actions there are, (S, A); a number that is no state gets one, which nothing leads to."""
    actions = np.array(available, dtype=bool)
    actions[~actions.any(axis=1), 0] = True
    return actions


def _box(
    said: Mapping[str, Any], visits: np.ndarray, level: float, usable: np.ndarray
) -> SignalBox:
    """Of an estimated signal: a function of pairs is known where one was tried; others by their means."""
    sums = np.asarray(said["sums"], dtype=np.float64)
    low, high = -math.inf, math.inf
    if said["bounds"] is not None:
        low, high = (float(end) for end in said["bounds"])
    if not low <= high:
        raise CertificateError(f"a signal is promised to lie between {low} and {high}")
    least, most = np.full(sums.shape, low), np.full(sums.shape, high)
    if said["exact"]:
        tried = visits > 0
        value = sums / np.maximum(visits, 1.0)
        off = 8 * EPS * np.abs(value)
        return SignalBox(np.where(tried, value - off, least), np.where(tried, value + off, most))
    if said["bounds"] is None or low == high:
        return SignalBox(least, most)
    width = high - low
    scaled = (sums - visits * low) / width
    if ((scaled < -1e-9 * (visits + 1)) | (scaled > visits + 1e-9 * (visits + 1)))[usable].any():
        raise CertificateError("a signal was seen outside the bounds that were promised of it")
    below, above = mean_bounds(np.clip(scaled, 0.0, visits), visits, level)
    # A sum of n numbers is off by at most n units in the last place of their sizes.
    off = (visits + 16.0) * EPS * (abs(low) + abs(high))
    return SignalBox(
        np.maximum(low + width * below - off, low), np.minimum(low + width * above + off, high)
    )
