r"""Sets of models in exact arithmetic; the proofs are those of ``checked_confidence`` and ``checked_models``.

What searches find in floats (which strength m, which nu, which end of a mean) is taken as it is, because any
would do; what follows from it is computed with balls. So the few logarithms that a statistical certificate
rests on (lgamma, digamma, log, exp) are Arb's, whose errors are bounded, and counts are whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound
from cvxmdp.checker.checked_confidence import ConfidenceRows, RelativeRows, mean_bounds
from cvxmdp.checker.checked_flow import Proof, Visited
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.exact_flow import ExactEpisodes, exact_policy
from cvxmdp.checker.exact_numbers import BALLS, Ball, add_up, at_most, ball, balls, greatest
from cvxmdp.checker.model_sets import SignalBox

SURE = 2.0  # no two distributions are further apart, in the sum of absolute values


class ExactRows:
    """The exact counterpart of ``ConfidenceRows``: of each row the ball of the strength that floats found best.

    Args:
        rows: in floats.
        level: log(N / delta).

    Attributes:
        centre: s_x / s of every entry.
        radius: eps of every row; a ball that holds everything where nothing is known.
    """

    def __init__(self, rows: ConfidenceRows, level: Ball) -> None:
        self.floats = rows
        self.centre = np.full(rows.places.row.size, ball(0.0))
        self.radius = np.full(rows.places.height, ball(0.0, math.inf))
        for row in np.flatnonzero(np.isfinite(rows.radius)).tolist():
            piece = rows.piece(row)
            counts, strength = rows.counts[piece].tolist(), int(rows.strength[row])
            self.centre[piece], self.radius[row] = _ball(counts, strength, level)

    def largest(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """See ``CheckedRows.largest``: nu of floats, and nu - exp(-eps) prod (nu - W_x)^(s_x/s)."""
        found = self.floats.search(values, wanted)
        top = balls(found.top)
        for row, depth in zip(found.rows.tolist(), found.nu, strict=True):
            piece = self.floats.piece(row)
            weights, seen = self.centre[piece], values[self.floats.places.outcome[piece]]
            for column in np.flatnonzero(depth > 0):
                nu = ball(float(depth[column]))
                gaps = top[row, column] - balls(seen[:, column])
                logs = add_up(w * (nu + gap).log() for w, gap in zip(weights, gaps, strict=True))
                most = nu - (logs - self.radius[row]).exp()
                if most < 0:
                    top[row, column] = top[row, column] + most
        return top

    def away(self, row: int) -> Ball:
        """|p - q|_1 for every p of the row's ball around q: min(sqrt(2 eps), 2 sqrt(1 - exp(-eps)))."""
        eps = self.radius[row]
        return (2 * eps).sqrt().min(2 * (-(-eps).expm1()).nonnegative_part().sqrt())


def _ball(counts: list[float], strength: int, level: Ball) -> tuple[np.ndarray, Ball]:
    """s_x / s, and eps, of whole numbers c_x with m = 8^strength."""
    n, m = ball(sum(counts)), ball(8.0**strength)
    room = (
        level + ball(float((strength + 1) * (strength + 2))).log() + (n + m).lgamma() - m.lgamma()
    )
    low = []
    for count in counts:
        c = ball(count)
        share = c / n
        a, logs = share * m, share.log()
        s = c - a * ((a + c).digamma() - a.digamma()) if count > 1 else ball(0.0)
        room -= (a + c).lgamma() - a.lgamma() - c * logs + s * logs
        low.append(s.lower().nonnegative_part())
    whole = add_up(low)
    if not whole > 0:
        return np.array(low, dtype=object), ball(0.0, math.inf)
    weights = [one / whole for one in low]
    spent = add_up(one * w.log() for one, w in zip(low, weights, strict=True) if w > 0)
    return np.array(weights, dtype=object), ((room + spent) / whole).nonnegative_part()


class ExactRelativeRows:
    """The exact counterpart of ``RelativeRows``.

    Args:
        rows: in floats, for the medians.
        entries: by row, the outcomes and their chances, which sum to one.
    """

    def __init__(self, rows: RelativeRows, entries: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.floats, self.entries, self.share = rows, entries, ball(rows.share)

    def largest(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """See ``CheckedRows.largest``."""
        middle, exactly = balls(self.floats.medians(values)), balls(values)
        found = np.full(middle.shape, ball(0.0))
        for row in np.flatnonzero(wanted):
            places, chances = self.entries[row]
            for column in range(values.shape[1]):
                seen = exactly[places, column]
                away = add_up(chances * abs(seen - middle[row, column]))
                found[row, column] = add_up(chances * seen) + self.share * away
        return found


class ExactModels(ExactEpisodes):
    """The exact counterpart of ``CheckedModels``; a ``ModelSet``.

    Attributes:
        rows: the sets of the pairs.
        boxes: of the estimated signals, by name.
    """

    scalars = BALLS

    def __init__(self, flow: CheckedModels, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.shape = flow.shape
        self.reached, self.usable, self.gamma = flow.reached, flow.usable, self.discount
        self.longest = add_up(self.initial).max(ball(1.0)) / (1 - self.discount)
        self.boxes: dict[str, SignalBox] = {}
        self.rows: ExactRows | ExactRelativeRows
        self.moved: np.ndarray
        self.starts: ExactRows | None = None
        self.start_moved = ball(0.0)
        estimate = [self._estimate(row) for row in range(self.transition.shape[0])]
        if isinstance(flow.rows, RelativeRows):
            self.rows = ExactRelativeRows(flow.rows, estimate)
            self.moved = np.asarray(np.where(flow.usable.ravel(), self.rows.share, ball(0.0)))
            return
        level = ball(float(max(flow.count, 1))).log() - (1 - ball(flow.confidence)).log()
        self.rows = ExactRows(flow.rows, level)
        self.moved = np.array(
            [_distance(self.rows, row, *one) for row, one in enumerate(estimate)], dtype=object
        )
        if flow.starts is not None:
            self.starts = ExactRows(flow.starts, level)
            states = np.arange(self.initial.size)
            self.start_moved = _distance(self.starts, 0, states, self.initial)
        visits = np.asarray(flow.visits)
        for name, said in flow.signals.items():
            self.boxes[name] = _box(said, visits, level, flow.boxes[name])

    def _estimate(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The outcomes of a row and their chances, ``end`` last."""
        piece = slice(self.transition.pointers[row], self.transition.pointers[row + 1])
        chances = self.transition.entries[piece]
        end = (1 - add_up(chances)).nonnegative_part()
        outcomes = np.append(self.transition.columns[piece], self.initial.size)
        return outcomes, np.append(chances, end)

    def chosen(self, policy: Any) -> np.ndarray:
        """A policy's probabilities, (S, A)."""
        return exact_policy(self.flow, policy)[1].reshape(self.shape)

    def near(self, policy: Any) -> Visited:
        """In the estimate; the error is how far it may be from the occupancy in any model of the set."""
        x = self.visited(policy)
        away = (add_up(x * self.moved) * self.discount + self.start_moved) * self.longest
        error = ErrorBound(ball(at_most(away.min(2 * self.longest))), self.usable)
        return Visited(x.reshape(self.shape), error, 0.0)

    def start(self, values: np.ndarray) -> np.ndarray:
        """The largest rho.W of W = values, (S + 1, J)."""
        if self.starts is not None:
            return np.asarray(self.starts.largest(values, np.ones(1, dtype=bool))[0])
        found = [add_up(self.initial * balls(column)) for column in values[:-1].T]
        return np.array(found, dtype=object)

    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        values = np.append(self.flow.per_state(proof, "values"), 0.0)[:, None]
        usable = self.usable.ravel()
        after = self.rows.largest(values, usable)[:, 0]
        left = (reward + after * self.discount - balls(values[:-1, 0])[self.owner])[usable]
        if not BALLS.finite(left):
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        return self.start(values)[0] + greatest(left).nonnegative_part() * self.longest


def _distance(rows: ExactRows, row: int, outcomes: np.ndarray, chances: np.ndarray) -> Ball:
    """|p - p^|_1 for every p of a row's set is at most this."""
    if not rows.radius[row].is_finite():
        return ball(SURE)
    apart = dict(zip(outcomes.tolist(), chances, strict=True))
    piece = rows.floats.piece(row)
    for outcome, weight in zip(rows.floats.places.outcome[piece], rows.centre[piece], strict=True):
        apart[int(outcome)] = apart.get(int(outcome), ball(0.0)) - weight
    return (rows.away(row) + add_up(abs(one) for one in apart.values())).min(ball(SURE))


def _box(said: Mapping[str, Any], visits: np.ndarray, level: Ball, floats: SignalBox) -> SignalBox:
    """Of an estimated signal; see ``model_sets``."""
    sums = np.asarray(said["sums"], dtype=np.float64)
    low, high = (-math.inf, math.inf) if said["bounds"] is None else map(float, said["bounds"])
    least, most = np.full(sums.shape, ball(low)), np.full(sums.shape, ball(high))
    for place in np.argwhere(np.isfinite(floats.low) & np.isfinite(floats.high)).tolist():
        at = tuple(place)
        total, n = ball(float(sums[at])), ball(float(visits[at]))
        if said["exact"] and n > 0:
            value = total / n
            off = 8 * EPS * abs(value)
            least[at], most[at] = value - off, value + off
        elif low < high and not said["exact"]:
            ends = _means(total, n, ball(low), ball(high), level)
            # A sum of n numbers is off by at most n units in the last place of their sizes.
            off = (n + 16) * EPS * (abs(low) + abs(high))
            least[at] = (ends[0] - off).max(ball(low))
            most[at] = (ends[1] + off).min(ball(high))
    return SignalBox(least, most)


def _means(total: Ball, n: Ball, low: Ball, high: Ball, level: Ball) -> tuple[Ball, Ball]:
    """Bounds on the mean of n numbers between low and high with this sum: those of floats, if they are."""
    y = ((total - n * low) / (high - low)).nonnegative_part().min(n)
    rest = n - y
    half = ball(0.5)
    mixture = (y + half).lgamma() + (rest + half).lgamma() - (n + 1).lgamma() - 2 * half.lgamma()
    bar = level - mixture
    seen, visits = (np.array([float(one.mid())]) for one in (y, n))
    below, above = mean_bounds(seen, visits, float(level.mid()))
    q, p = ball(float(below[0])), ball(float(above[0]))
    if not (q > 0 and q * n < y and -y * q.log() - rest * (1 - q).log() > bar):
        q = ball(0.0)
    if not (p < 1 and p * n > y and -y * p.log() - rest * (1 - p).log() > bar):
        p = ball(1.0)
    return low + (high - low) * q, low + (high - low) * p
