r"""What is known of the rows of a model, as the checker reads it: a set of distributions for each of them.

From counts (``checked_confidence``), or within a stated share of every probability. A set is about single steps
and knows no horizon; ``checked_models`` and ``checked_finite_models`` look ahead with it. For every p of a
ball around q of radius eps |p - p^|_1 <= min(sqrt(2 eps), 2 sqrt(1 - exp(-eps))) + |q - p^|_1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import EPS, CertificateError, total
from cvxmdp.checker.checked_confidence import ConfidenceRows, RelativeRows, mean_bounds
from cvxmdp.checker.checked_flow import CheckedFlow, Visited
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


def with_open_actions(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """A problem's plain data with all pairs that there are: an estimate masks those that nobody tried."""
    known = plain["uncertainty"]
    if known["kind"] == "relative":
        return plain
    return {**plain, "actions": opened(known["available"])}


def opened(available: Any) -> np.ndarray:
    """Which actions there are, (S, A); a number that is no state gets one, which nothing leads to."""
    actions = np.array(available, dtype=bool)
    actions[~actions.any(axis=1), 0] = True
    return actions


class SetOfModels(CheckedFlow):
    """A flow whose rows are only known to lie in sets; its own numbers are the estimate's.

    Args:
        plain: the problem, with "uncertainty": what is known of its rows.
        confidence: with which the sets hold the true rows; of no account where errors are stated.

    Attributes:
        rows: the sets of the pairs, of one step.
        starts: that of the initial distribution, or None where it is known.
        moved, start_moved: |p - p^|_1 is at most this in every pair, (S, A), and at the start.
        boxes: of the estimated signals, by name; a row for each of the flow's.
        promises: what the set rests on.
        confidence, count: how many sets hold together with which confidence.
        visits: of each pair, (S, A).
        signals: what is said of the estimated signals, by name.
    """

    rows: ConfidenceRows | RelativeRows
    starts: ConfidenceRows | None = None
    start_moved = 0.0
    promises: tuple[str, ...]
    scalars = FLOATS
    discount: float

    @property
    def gamma(self) -> float:
        return self.discount

    def __init__(self, plain: Mapping[str, Any], confidence: float) -> None:
        super().__init__(with_open_actions(plain))
        known = plain["uncertainty"]
        self.boxes: dict[str, SignalBox] = {}
        self.confidence, self.count = confidence, 0
        self.visits, self.signals = np.zeros(self.ends.shape), dict[str, Mapping[str, Any]]()
        if known["kind"] == "relative":
            self._take_stated(known)
        else:
            self._take_counts(known, confidence)

    def _take_stated(self, known: Mapping[str, Any]) -> None:
        """Every probability wrong by up to a share of itself."""
        share = float(known["share"])
        sums = np.asarray(self.transition.sum(axis=1)).ravel()
        ending = np.where(self.ends.ravel(), np.maximum(1.0 - sums, 0.0), 0.0)
        whole = sp.csr_array(sp.hstack([self.transition, sp.csr_array(ending[:, None])]))
        self.rows = RelativeRows(whole, share)
        self.moved = np.full(self.ends.shape, share)
        self.promises = (
            f"every probability is wrong by at most {share:.6g} of itself",
            *(str(one) for one in known.get("promises", ())),
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
        counts, supports = known["outcomes"], known["supports"]
        self.rows = ConfidenceRows(counts, np.append(listed, True), supports, level)
        usable = available & listed[:, None]
        times = self.shape[0] // listed.size  # in some model one may be anywhere at any time
        self.reached, self.usable = np.tile(listed, times), np.tile(usable, (times, 1))
        self.visits = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(usable.shape)
        self.moved = _distances(self.rows, _with_endings(self.transition)).reshape(usable.shape)
        if known["initial"] is not None:
            begun = sp.csr_array(np.append(known["initial"], 0.0)[None, :])
            self.starts = ConfidenceRows(begun, np.append(listed, False), None, level)
            start = sp.csr_array(np.append(self.initial, 0.0)[None, :])
            self.start_moved = float(_distances(self.starts, start)[0])
        found = {name: _box(one, self.visits, level, usable) for name, one in self.signals.items()}
        self.boxes = {
            name: SignalBox(np.tile(box.low, (times, 1)), np.tile(box.high, (times, 1)))
            for name, box in found.items()
        }
        self.promises = (*DATA_PROMISES, *(str(one) for one in known["promises"]))

    def chosen(self, policy: Any) -> np.ndarray:
        """A policy's probabilities, refused unless they are some."""
        return self.read_policy(policy)

    def near(self, policy: Any) -> Visited:
        """Its occupancy in the estimate, and how far those in other models may be from it."""
        return self.visited(policy)

    def start(self, values: np.ndarray) -> np.ndarray:
        """The largest rho.W of W = values, (S + 1, J), rounding included."""
        if self.starts is not None:
            return np.asarray(self.starts.largest(values, np.ones(1, dtype=bool))[0])
        found = [total(self.initial * column) for column in values[:-1].T]
        return np.array([inner + 4 * EPS * size for inner, size in found])


def _with_endings(transition: sp.csr_array) -> sp.csr_array:
    """p^ of every pair with its ending, (S * A, S + 1)."""
    ending = np.maximum(1.0 - np.asarray(transition.sum(axis=1)).ravel(), 0.0)
    return sp.csr_array(sp.hstack([transition, sp.csr_array(ending[:, None])]))


def _distances(rows: ConfidenceRows, estimate: sp.csr_array) -> np.ndarray:
    """|p - p^|_1 for every p of a row's set is at most this, (rows,)."""
    eps = rows.radius
    ball = np.minimum(np.sqrt(2.0 * eps), 2.0 * np.sqrt(-np.expm1(-eps)))
    places = (rows.centre, (rows.places.row, rows.places.outcome))
    centres = sp.csr_array(places, shape=estimate.shape)
    away = np.asarray(abs(centres - estimate).sum(axis=1)).ravel()
    bound = (ball + away) * (1 + 64 * EPS) + 64 * EPS
    return np.where(np.isfinite(eps), np.minimum(bound, 2.0), 2.0)


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
        raise CertificateError(
            f"the signal {said['name']!r} was seen outside the bounds {low:g} to {high:g} promised of it"
        )
    below, above = mean_bounds(np.clip(scaled, 0.0, visits), visits, level)
    # A sum of n numbers is off by at most n units in the last place of their sizes.
    off = (visits + 16.0) * EPS * (abs(low) + abs(high))
    return SignalBox(
        np.maximum(low + width * below - off, low), np.minimum(low + width * above + off, high)
    )
