"""The master of column generation for concave problems, as ``generation`` talks to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cvxmdp.algorithms.columns.curves import Curve
from cvxmdp.algorithms.columns.interior_point import Solved, interior_point
from cvxmdp.algorithms.columns.linear_master import Answer, Price
from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.algorithms.conic import least_size
from cvxmdp.atoms.shapes import Local, Move, Shape
from cvxmdp.problems.lowered import Lowered

FIRST_SHARE = 0.1  # of a safe mixture in the weights that an interior point starts from
EVENLY = 0.1  # share of even weights in that
LEAST_ROOM = 1e-4  # slack of a start, in units and per share of the safe mixture
ROOM_ACCURACY = 1e-4  # in units, of the largest smallest slack
NEEDED = 1e-3  # weight in the safe mixture that makes a column worth keeping
ACCURACY = 1e-3  # of the gap, left open by the interior point
# Times the accuracy asked for: an interior point that ended beyond it solved nothing.
FAR_OFF = 100.0
TINY = 1e-300
ROUNDING = 0.1  # of the gap, by which kinks are rounded


class ConcaveMaster:
    """Concave objective and slacks: an interior point over the weights.

    Args:
        lowered: the problem.
        error: of the visits of columns, absolute; margins allow for it.
    """

    def __init__(self, lowered: Lowered, error: float) -> None:
        self.lowered, self.error = lowered, error
        self.curves = [Curve(function, lowered.flow.usable) for function in lowered.functions]
        self.count = 0
        self.units = np.ones(len(lowered.slacks))
        self.margins = np.zeros(len(lowered.slacks))
        self.weights = np.zeros(0)
        self.safe, self.room = np.zeros(0), -math.inf
        self.gap = math.inf  # of the whole problem, absolute: sets accuracy and rounding
        self.size = 1.0
        self.unsolved = 0  # interior points in a row that ended far off

    def add(self, column: Column) -> None:
        """Take one more column into account."""
        for curve in self.curves:
            curve.add(column)
        self.count += 1
        self.weights = np.append(self.weights, 0.0)
        self.safe = np.append(self.safe, 0.0)
        if self.count == 1:
            self.weights[:] = 1.0
            self._measure(column)
        alone = np.zeros(self.count)
        alone[-1] = 1.0
        self._offer_safe(alone)

    def _offer_safe(self, weights: np.ndarray) -> None:
        """Remember the mixture with the most room: every start leans on it."""
        values = self._values(weights)
        room = float((values[1:] / self.units).min(initial=math.inf))
        if math.isfinite(values[0]) and room > self.room:
            self.safe, self.room = weights, room

    def needed(self) -> np.ndarray:
        """The columns of the mixture with the most room."""
        return self.safe > NEEDED

    def _measure(self, column: Column) -> None:
        """Units of the slacks and margins, from the first column."""
        first = [curve.local(np.ones(1), 1e-3) for curve in self.curves]
        spans = least_size(self.lowered)
        self.size = max(abs(first[0].value), spans) if math.isfinite(first[0].value) else 1.0
        for k, one in enumerate(first[1:]):
            value = one.value if math.isfinite(one.value) else 0.0
            slope = float(one.gradient[0]) if math.isfinite(one.gradient[0]) else 0.0
            self.units[k] = max(abs(value), abs(slope), 1e-12)
        x = np.zeros(self.lowered.flow.shape)
        column.add_to(x, 1.0)
        step, usable = Move(self.error, self.error), self.lowered.flow.usable
        falls = [fall(slack, x, step, usable) for slack in self.lowered.slacks.values()]
        self.margins = np.array([2.0 * d if math.isfinite(d) else 0.0 for d in falls])

    def keep(self, stay: np.ndarray) -> None:
        for curve in self.curves:
            curve.keep(stay)
        self.weights = self.weights[stay] / self.weights[stay].sum()
        self.safe = self.safe[stay] / max(self.safe[stay].sum(), 1e-300)
        self.count = stay.size

    @property
    def rounding(self) -> float:
        """How far kinks are rounded."""
        return ROUNDING * max(min(self.gap, 0.1 * self.size), TINY)

    def _values(self, weights: np.ndarray) -> np.ndarray:
        found = [curve.value(weights, self.rounding) for curve in self.curves]
        found[1:] = [value - margin for value, margin in zip(found[1:], self.margins, strict=True)]
        return np.array(found)

    def _locals(self, weights: np.ndarray) -> list[Local]:
        found = [curve.local(weights, self.rounding) for curve in self.curves]
        for k, margin in enumerate(self.margins, start=1):
            found[k] = found[k]._replace(value=found[k].value - margin)
        return found

    def solve(self) -> Answer:
        """The best mixture or, while none is feasible, the one with the most room."""
        start = self._inside()
        if start is None:
            found = self.safest()
            if found.value <= 0:
                return found._replace(feasible=False)
            self.weights = found.weights
            start = self._inside()
            if start is None:
                return found._replace(feasible=False)
        accuracy = ACCURACY * min(self.gap, 0.1 * self.size)
        solved = interior_point(
            self._locals,
            self._values,
            start,
            np.ones(self.count),
            np.ones(self.count, dtype=bool),
            accuracy,
            self.units,
        )
        self._count(solved, accuracy)
        weights = self._into(solved.weights / solved.weights.sum())
        if weights is None:
            return self.safest()._replace(feasible=False)
        self.weights = weights
        here = self._locals(self.weights)
        value = self._true_value(self.weights, here)
        return Answer(self.weights, value, solved.multipliers, self._tangents(here), True)

    def _count(self, solved: Solved, accuracy: float) -> None:
        self.unsolved = self.unsolved + 1 if solved.gap > FAR_OFF * accuracy else 0

    def _into(self, weights: np.ndarray) -> np.ndarray | None:
        """The weights, with as little of the safe mixture as makes up for what the interior point left."""
        share = 0.0
        while share <= 1.0:
            trial = (1.0 - share) * weights + share * self.safe
            values = self._values(trial)
            if np.isfinite(values).all() and (values[1:] >= -0.5 * self.margins).all():
                return trial
            if not self.room > 0:
                return None
            share = max(1e-9, 4.0 * share)
        return self.safe.copy()

    def _true_value(self, weights: np.ndarray, here: list[Local]) -> float:
        """The objective, kinks as they are."""
        return max(here[0].value, self.curves[0].value(weights, 0.0))

    def _tangents(self, here: list[Local]) -> dict[str, Any]:
        slacks = dict(zip(self.lowered.slacks, (one.parameters for one in here[1:]), strict=True))
        return {"objective": here[0].parameters, "slacks": slacks}

    def _inside(self) -> np.ndarray | None:
        """A start strictly inside all constraints, near the last mixture."""
        even = np.full(self.count, 1.0 / self.count)
        inner = self.safe if self.room > -math.inf else even
        share = FIRST_SHARE
        while share > 1e-8:
            trial = (1.0 - share) * self.weights + share * ((1.0 - EVENLY) * inner + EVENLY * even)
            values = self._values(trial)
            if np.isfinite(values).all() and (values[1:] > LEAST_ROOM * share * self.units).all():
                return trial
            share *= 0.3
        return None

    def safest(self) -> Answer:
        """The mixture with the largest smallest slack in units."""
        k = self.count
        n = len(self.curves) - 1

        def extended(z: np.ndarray) -> list[Local]:
            here = self._locals(z[:-1])[1:]
            objective = np.append(np.zeros(k), 1.0)
            found = [Local(float(z[-1]), objective, np.zeros((k + 1, k + 1)), {})]
            for one, unit in zip(here, self.units, strict=True):
                hessian = np.zeros((k + 1, k + 1))
                hessian[:k, :k] = one.hessian / unit
                slope = np.append(one.gradient / unit, -1.0)
                found.append(Local(one.value / unit - float(z[-1]), slope, hessian, one.parameters))
            return found

        def values(z: np.ndarray) -> np.ndarray:
            slacks = self._values(z[:-1])[1:] / self.units
            return np.append(float(z[-1]), slacks - float(z[-1]))

        first, level = self._finite()
        start = np.append(first, level - 1.0)
        fixed = np.append(np.ones(k), 0.0)
        solved = interior_point(
            extended, values, start, fixed, np.arange(k + 1) < k, ROOM_ACCURACY, np.ones(n)
        )
        self._count(solved, ROOM_ACCURACY)
        weights = solved.weights[:-1] / solved.weights[:-1].sum()
        here = self._locals(weights)
        room = min(float(one.value / unit) for one, unit in zip(here[1:], self.units, strict=True))
        self._offer_safe(weights)
        duals = np.maximum(solved.multipliers, 0.0)
        duals = duals / duals.sum() if duals.sum() > 0 else np.full(n, 1.0 / n)
        return Answer(weights, room, duals, self._tangents(here), room >= 0)

    def _finite(self) -> tuple[np.ndarray, float]:
        """Weights at which every slack is finite, as even as that allows, and the smallest one in units."""
        even = np.full(self.count, 1.0 / self.count)
        nearby = self.safe if self.room > -math.inf else self.weights
        for share, inner in (
            (1 - EVENLY, self.weights),
            (0.0, even),
            (1 - 1e-3, nearby),
            (1 - 1e-8, nearby),
        ):
            first = share * inner + (1.0 - share) * even
            level = float((self._values(first)[1:] / self.units).min())
            if math.isfinite(level):
                break
        return first, level

    def price(self, answer: Answer) -> Price:
        """The reward and constant of the tangents."""
        if answer.feasible:
            named = self.lowered.named(answer.multipliers)
            return Price(*self.lowered.lagrangian_tangent(named, answer.tangents))
        reward, constant = np.zeros(self.lowered.flow.shape), 0.0
        factors = answer.multipliers / self.units
        for factor, (name, node) in zip(factors, self.lowered.slacks.items(), strict=True):
            part = node.tangent(answer.tangents["slacks"][name])
            reward += factor * part.reward
            constant += factor * part.offset
        return Price(reward, constant)

    def between(self, first: Answer, second: Answer, share: float) -> Answer:
        """The second: multipliers of natural steps are steadied elsewhere."""
        return second


def fall(function: Shape, x: np.ndarray, step: Move, pairs: np.ndarray) -> float:
    """How far a function can fall when x moves by a step; to first order where no modulus is known."""
    value = float(function.value(x))
    parts = function.children()
    if not parts:
        modulus = function.modulus(True, pairs)
        if modulus is None:
            return float(np.abs(function.gradient(x)[pairs]).max()) * step.l1
        moved = modulus.omega(step)
        return (2.0 * math.sqrt(abs(value)) + moved) * moved if modulus.squared else moved
    if not math.isfinite(value):
        return math.inf
    lowest = [
        float(part.value(x)) - math.copysign(fall(part, x, step, pairs), factor)
        for factor, part in zip(function.factors(), parts, strict=True)
    ]
    return value - function.combined_value(lowest)
