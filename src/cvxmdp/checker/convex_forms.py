"""Convex and increasing functions of a convex one, as the checker computes them."""

from __future__ import annotations

import math

import numpy as np

from cvxmdp.checker.arithmetic import (
    LARGEST_FACTOR,
    AffineBound,
    CertificateError,
    ErrorBound,
    NotKnownError,
    Number,
    Parameters,
    numbers,
    parts_of,
    tangent_through,
)
from cvxmdp.checker.closed_forms import CONCAVE, CONVEX, Anywhere, ClosedForm


class ConvexOuterForm(ClosedForm):
    """An increasing convex function h of a convex one; its tangent at any t is h(t) + h'(t) (inner - t)."""

    curvature = CONVEX
    most = LARGEST_FACTOR  # of |t|

    def __init__(self, inner: ClosedForm) -> None:
        if inner.curvature == CONCAVE:
            raise CertificateError("a convex function in the problem is of one that is not convex")
        self.inner, self.promises, self.drifts = inner, inner.promises, inner.drifts
        self.scalars = inner.scalars

    def turn(self) -> None:
        self.inner.turn()

    def outer(self, t: Number) -> Number:
        """h(t)."""
        raise NotImplementedError

    def slope(self, t: Number) -> Number:
        """h'(t)."""
        raise NotImplementedError

    def value(self, x: np.ndarray) -> Number:
        try:
            return self.outer(self.inner.value(x))
        except OverflowError:
            return math.inf

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """The mean value theorem: h' is largest at the upper end."""
        inside, drift = self.inner.value(x), self.inner.drift(x, error)
        try:
            off = self.slope(inside + drift) * drift
        except OverflowError:
            return math.inf
        return off * (1 + 1e-12) + 16 * self.scalars.eps * abs(self.value(x)) + self.scalars.tiny

    def tangent(self, parameters: Parameters) -> AffineBound:
        """At any t, brought to where floats hold h."""
        given = float(numbers(parameters, "t", ()))
        (part,) = parts_of(parameters, 1)
        t = self.scalars.number(min(max(given, -self.most), self.most))
        inner, slope = self.inner.tangent(part), self.slope(t)
        if not self.scalars.finite(slope * t):
            raise CertificateError(f"'t' in the certificate is too large: {given}")
        found = tangent_through(slope, self.outer(t) - slope * t, inner)
        return found._replace(size=found.size + 2.0 * (self.outer(t) + slope * abs(t)))

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """What h is where the part is largest, in whichever model."""
        inner = self.inner.chord(anywhere)
        below = inner._replace(reward=-inner.reward, constant=-inner.constant)
        try:
            most = self.outer(self.scalars.number(-anywhere.affine_at_least(below)))
        except OverflowError:
            most = math.inf
        if not self.scalars.finite(most):
            raise NotKnownError("a convex function may be larger than any float")
        none = np.zeros(anywhere.visited.x.shape)
        return AffineBound(none, most, 2.0 * most, none)


class ExponentialForm(ConvexOuterForm):
    """exp of a convex function."""

    most = 700.0

    def outer(self, t: Number) -> Number:
        return self.scalars.exp(t)

    slope = outer


class HingePowerForm(ConvexOuterForm):
    """max(phi, 0)^p of a convex function, p > 1."""

    def __init__(self, inner: ClosedForm, exponent: float) -> None:
        super().__init__(inner)
        self.exponent = self.scalars.number(exponent)
        if not 1 < exponent < math.inf:
            raise CertificateError(f"a power of {exponent} in the problem is not above 1")

    def outer(self, t: Number) -> Number:
        return self.scalars.power(t, self.exponent)

    def slope(self, t: Number) -> Number:
        return self.exponent * self.scalars.power(t, self.exponent - 1.0)


class HuberForm(ConvexOuterForm):
    """t^2 of t = max(phi, 0) up to a width M, and 2 M t - M^2 beyond."""

    def __init__(self, inner: ClosedForm, width: float) -> None:
        super().__init__(inner)
        self.width = self.scalars.number(width)
        if not 0 < width <= LARGEST_FACTOR:
            raise CertificateError(f"a Huber function in the problem has the width {width}")

    def outer(self, t: Number) -> Number:
        near, beyond = self.slope(t) / 2.0, self.scalars.nonnegative(t - self.width)
        return near * near + 2.0 * self.width * beyond

    def slope(self, t: Number) -> Number:
        return 2.0 * self.scalars.least([self.scalars.nonnegative(t), self.width])
