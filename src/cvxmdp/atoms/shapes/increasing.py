"""h(phi), h increasing: what logarithms and roots of concave, and exponentials of convex functions share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvxmdp.atoms.shapes.shape import Affine, Composite, Local, Parameters, Shape

LEAST = 1e-100  # where tangents are taken


def admissible(t: float) -> float:
    """A point of tangency that the checker takes: beyond, products underflow."""
    return min(max(t, LEAST), 1.0 / LEAST) if t > 0 else 1.0


@dataclass(frozen=True, eq=False)
class IncreasingShape(Composite):
    """h of its only part, on the positive numbers; its tangent at t > 0 is h(t) + h'(t) (phi - t).

    Concave of a concave part here; ``convex_increasing`` has the other kind.
    """

    def height(self, t: float) -> float:
        """h(t); minus infinity outside the domain."""
        raise NotImplementedError

    def slope(self, t: float) -> float:
        """h'(t)."""
        raise NotImplementedError

    def bend(self, t: float) -> float:
        """h''(t)."""
        raise NotImplementedError

    def of_slope(self, slope: float) -> float:
        """The t with h'(t) = slope."""
        raise NotImplementedError

    def admitted(self, t: float) -> float:
        """A point where a tangent can be taken, near t."""
        return admissible(t)

    def inside(self, value: float) -> float:
        """Where derivatives are taken, for a value of the part."""
        return max(value, LEAST)

    def positive(self) -> tuple[Shape, ...]:
        return self.parts

    def tangent(self, parameters: Parameters) -> Affine:
        t = float(parameters["t"])
        inner, slope = self.parts[0].tangent(parameters["parts"][0]), self.slope(t)
        return Affine(slope * inner.reward, self.height(t) + slope * (inner.offset - t))

    def at(self, x: np.ndarray) -> Parameters:
        """T = phi(x), or something that is admitted."""
        inside = float(self.parts[0].value(x))
        return {"t": self.admitted(inside), "parts": [self.parts[0].at(x)]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Slopes are averaged."""
        slopes = weights * np.array([self.slope(float(one["t"])) for one in many])
        known = slopes.sum() > 0
        t = self.of_slope(float(slopes.sum() / weights.sum())) if known else float(many[-1]["t"])
        return {"t": t, "parts": [self.parts[0].mean([one["parts"][0] for one in many], slopes)]}

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        return self.height(values[0]) if values[0] >= 0 or not self.positive() else -math.inf

    def combined(self, parts: Sequence[Local], rounding: float) -> Local:
        """h' g and h' H + h'' g g'."""
        (inner,) = parts
        inside = self.inside(inner.value)
        slope = self.slope(inside)
        bent = self.bend(inside) * np.outer(inner.gradient, inner.gradient)
        parameters = {"t": self.admitted(inside), "parts": [inner.parameters]}
        hessian = slope * inner.hessian + bent
        return Local(self.height(inside), slope * inner.gradient, hessian, parameters)
