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
    Number,
    Parameters,
    largest,
)
from cvxmdp.checker.chords import chords_above
from cvxmdp.checker.closed_forms import CONVEX, Anywhere, ClosedForm
from cvxmdp.checker.target_sets import PointSet


class NormForm(ClosedForm):
    """The distance of u = M x + b to a convex set, or its square. Convex."""

    curvature = CONVEX

    def __init__(self, inner: AffineMap, target: PointSet, norm: str) -> None:
        self.inner, self.target, self.norm = inner, target, norm
        self.scalars, self.promises = inner.scalars, target.promises
        if norm not in ("l1", "l2", "l2-squared"):
            raise CertificateError(f"there is no closed form to certify a norm {norm!r}")
        if norm == "l1" and not target.splits:
            raise CertificateError(
                "an l1 distance in the problem is to a set that is no point or box"
            )

    def value(self, x: np.ndarray) -> Number:
        """The norm of the way to the set."""
        return self.target.distance(self.inner(x), self.norm)

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """Distances change by no more than the point moves; squares by (2 D + e) e."""
        of, length = self.scalars, self.value(x)
        if self.norm == "l2-squared":
            length = of.sqrt(length)
        moved = self.inner.column_norm(error.support, 1 if self.norm == "l1" else 2) * error.size
        if not of.exact:
            moved += self._rounding(x)
        if self.norm == "l2-squared":
            return (2 * length + moved) * moved + 16 * of.eps * length * length
        return moved + 16 * of.eps * length

    def _rounding(self, x: np.ndarray) -> float:
        """Each entry of the way is off by a few units in the last place of u and of the way itself."""
        u, order = self.inner(x), 1 if self.norm == "l1" else 2
        off = self.inner.rounding(x)
        off += 16 * EPS * (2 * np.abs(u) + np.abs(u - self.target.nearest(u)))
        rounding = float(np.linalg.norm(off, order)) * (1 + off.size * EPS)
        return rounding + self.target.astray(u) + UNDERFLOW

    def tangent(self, parameters: Parameters) -> AffineBound:
        """<v, u> - support(v), or the same for the square."""
        of = self.scalars
        v, sizes = self.target.direction(parameters, self.inner.rows)
        scale = of.number(self.scale(of.rough(v), of.rough(sizes)))
        # What floats took is as good as sure: now it is sure.
        if of.exact and self.norm != "l2-squared":
            size = scale * (of.largest(v) if self.norm == "l1" else of.length(v))
            scale = scale / of.greatest([size, of.number(1.0)])
        v, sizes = scale * v, scale * sizes
        support, size = self.target.support(v, parameters, scale)
        if not of.finite(support):
            raise CertificateError("a direction in the certificate has an infinite support")
        reward, steep = self.inner.pull_back(v, sizes)
        constant = of.total(v * self.inner.offset)[0] - support
        size += of.total(sizes * np.abs(self.inner.offset))[0]
        if self.norm == "l2-squared":
            square, spread = of.total(v * v)[0], of.total(sizes * sizes)[0]
            return AffineBound(
                2.0 * reward, 2.0 * constant - square, 2.0 * size + spread, 2.0 * steep
            )
        return AffineBound(reward, constant, size, steep)

    def scale(self, v: np.ndarray, sizes: np.ndarray) -> float:
        """What brings a direction into the unit ball of the dual norm, by floats."""
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
        of = self.scalars
        low, high = anywhere.enclosure(self.inner)
        middle = np.clip(of.rough(self.inner(anywhere.visited.x)), of.rough(low), of.rough(high))
        near = self.target.nearest(middle)
        t, astray = of.array(near), self.target.outside(near)
        furthest = of.length(of.maximum(np.abs(low - t), np.abs(high - t)))
        if self.norm == "l1":
            astray = astray * of.sqrt(of.number(t.size))
            return self._chord(lambda y: np.abs(y - t), low, high, astray)
        more = (2.0 * furthest + astray) * astray
        square = self._chord(lambda y: (y - t) * (y - t), low, high, more)
        if self.norm == "l2-squared":
            return square
        below = square._replace(reward=-square.reward, constant=-square.constant)
        # Beside numbers of this size, a smaller r would only magnify rounding.
        least = math.sqrt(EPS) * (float(of.rough(furthest)) + float(np.linalg.norm(near)))
        nearby = math.sqrt(max(-anywhere.affine_at_least(below), 0.0))
        r = of.number(max(nearby, least + UNDERFLOW))
        half = 0.5 / r
        constant = 0.5 * r + half * square.constant + astray
        size = r + half * (abs(square.constant) + square.size)
        return AffineBound(half * square.reward, constant, size, half * square.steep)

    def _chord(
        self,
        phi: Callable[[np.ndarray], np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        more: Number,
    ) -> AffineBound:
        of = self.scalars
        found = chords_above(phi, low, high, of)
        reward, steep = self.inner.pull_back(found.slope)
        constant, size = of.total(found.constant + found.slope * self.inner.offset)
        return AffineBound(reward, constant + more, size + of.total(found.size)[0], steep)
