"""Distances to a convex set, as the checker computes them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    EPS,
    UNDERFLOW,
    AffineBound,
    CertificateError,
    ErrorBound,
    Parameters,
    largest,
    total,
)
from cvxmdp.checker.chords import chords_above
from cvxmdp.checker.closed_forms import CONVEX, Anywhere, ClosedForm
from cvxmdp.checker.target_sets import PointSet


class NormForm(ClosedForm):
    """The distance of u = M x + b to a convex set, or its square. Convex."""

    curvature = CONVEX

    def __init__(self, inner: AffineMap, target: PointSet, norm: str) -> None:
        self.inner, self.target, self.norm = inner, target, norm
        self.promises = target.promises
        if norm not in ("l1", "l2", "l2-squared"):
            raise CertificateError(f"there is no closed form to certify a norm {norm!r}")
        if norm == "l1" and not target.splits:
            raise CertificateError(
                "an l1 distance in the problem is to a set that is no point or box"
            )

    def _residual(self, x: np.ndarray) -> np.ndarray:
        u = self.inner(x)
        return u - self.target.nearest(u)

    def value(self, x: np.ndarray) -> float:
        """The norm of the residual."""
        residual = self._residual(x)
        if self.norm == "l1":
            return total(np.abs(residual))[0]
        square = total(residual * residual)[0]
        return square if self.norm == "l2-squared" else math.sqrt(square)

    def drift(self, x: np.ndarray, error: ErrorBound) -> float:
        """Distances change by no more than the point moves; squares by (2 D + e) e."""
        u, residual = self.inner(x), self._residual(x)
        # Rounding moves each entry of the residual by a few units in the last place of u and z.
        off = self.inner.rounding(x) + 16 * EPS * (2 * np.abs(u) + np.abs(residual))
        order = 1 if self.norm == "l1" else 2
        rounding = float(np.linalg.norm(off, order)) * (1 + off.size * EPS)
        moved = self.inner.column_norm(error.support, order) * error.size
        moved += rounding + self.target.astray(u) + UNDERFLOW
        length = self.value(x)
        if self.norm == "l2-squared":
            length = math.sqrt(length)
            return (2 * length + moved) * moved + 16 * EPS * length**2
        return moved + 16 * EPS * length

    def tangent(self, parameters: Parameters) -> AffineBound:
        """<v, u> - support(v), or the same for the square."""
        v, sizes = self.target.direction(parameters, self.inner.rows)
        scale = self.scale(v, sizes)
        v, sizes = scale * v, scale * sizes
        support, size = self.target.support(v, parameters, scale)
        if not math.isfinite(support):
            raise CertificateError("a direction in the certificate has an infinite support")
        reward, steep = self.inner.pull_back(v, sizes)
        constant = total(v * self.inner.offset)[0] - support
        size += total(sizes * np.abs(self.inner.offset))[0]
        if self.norm == "l2-squared":
            square, spread = total(v * v)[0], total(sizes * sizes)[0]
            return AffineBound(
                2.0 * reward, 2.0 * constant - square, 2.0 * size + spread, 2.0 * steep
            )
        return AffineBound(reward, constant, size, steep)

    def scale(self, v: np.ndarray, sizes: np.ndarray) -> float:
        """What brings a direction into the unit ball of the dual norm."""
        if self.norm == "l1":
            return 1.0 / max(1.0, largest(v))
        if self.norm == "l2":
            length = float(np.linalg.norm(v)) + 8 * v.size * EPS * largest(sizes)
            return 1.0 / max(1.0, length * (1 + 2 * v.size * EPS))
        return 1.0

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """Through the point t of the set that is nearest to the estimate's u: |u - C| <= |u - t|.

        Entry by entry for l1 and for squares; |d| <= (r + |d|^2 / r) / 2 for every r > 0, best at r = |d|.
        """
        low, high = anywhere.enclosure(self.inner)
        t = self.target.nearest(np.clip(self.inner(anywhere.visited.x), low, high))
        furthest = float(np.linalg.norm(np.maximum(np.abs(low - t), np.abs(high - t))))
        astray = self.target.astray(t) + 16 * EPS * float(np.linalg.norm(t))
        if self.norm == "l1":
            astray *= math.sqrt(t.size)
            return self._chord(lambda y: np.abs(y - t), low, high, astray)
        square = self._chord(lambda y: (y - t) ** 2, low, high, (2.0 * furthest + astray) * astray)
        if self.norm == "l2-squared":
            return square
        below = square._replace(reward=-square.reward, constant=-square.constant)
        # Beside numbers of this size, a smaller r would only magnify rounding.
        least = math.sqrt(EPS) * (furthest + float(np.linalg.norm(t))) + UNDERFLOW
        r = max(math.sqrt(max(-anywhere.affine_at_least(below), 0.0)), least)
        half = 0.5 / r
        constant = 0.5 * r + half * square.constant + astray
        size = r + half * (abs(square.constant) + square.size)
        return AffineBound(half * square.reward, constant, size, half * square.steep)

    def _chord(
        self,
        phi: Callable[[np.ndarray], np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        more: float,
    ) -> AffineBound:
        found = chords_above(phi, low, high)
        reward, steep = self.inner.pull_back(found.slope)
        constant, size = total(found.constant + found.slope * self.inner.offset)
        return AffineBound(reward, constant + more, size + float(found.size.sum()), steep)
