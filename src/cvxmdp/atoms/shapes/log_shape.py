"""log phi of a concave function. Concave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.shape import (
    TINY,
    Affine,
    Composite,
    ConicForm,
    ConicProgram,
    Local,
    Parameters,
    Plain,
    Shape,
)
from cvxmdp.base.arrays import Array, namespace

LEAST = 1e-100  # where tangents are taken
FLOOR = 0.01  # of the argument, below which the extension for sampling is linear


@dataclass(frozen=True, eq=False)
class LogShape(Composite):
    """log of its only part; minus infinity where that is not positive.

    The gradient is gradient(part) / part, unbounded towards the border. Outside the domain there is
    none, and NaN is returned: a solver that gets there stops and says so. With a ``floor`` the logarithm goes
    on along its tangent there.
    """

    floor: float = 0.0
    static: ClassVar[tuple[str, ...]] = ("floor",)
    kind: ClassVar[str] = "log"
    roughness: ClassVar[str] = "its gradient is unbounded where the argument goes to zero"

    def value(self, x: Array) -> Any:
        """The logarithm of the inner value; log q + (u - q) / q with q = max(u, floor)."""
        xp = namespace(x)
        inside = self.parts[0].value(x)
        if self.floor:
            raised = xp.maximum(inside, self.floor)
            return xp.log(raised) + (inside - raised) / raised
        outside = inside <= 0  # false for NaN, which must not pass for minus infinity
        return xp.where(outside, -xp.inf, xp.log(xp.where(outside, 1.0, inside)))

    def gradient(self, x: Array) -> Array:
        xp = namespace(x)
        inside = self.parts[0].value(x)
        inside = (
            xp.maximum(inside, self.floor) if self.floor else xp.where(inside > 0, inside, xp.nan)
        )
        return self.parts[0].gradient(x) / inside

    def extended(self) -> LogShape:
        """Linear where the inside is below ``FLOOR``."""
        return replace(self, parts=(self.parts[0].extended(),), floor=FLOOR)

    def positive(self) -> tuple[Shape, ...]:
        return self.parts

    def conic(self, program: ConicProgram) -> ConicForm:
        inner = self.parts[0].conic(program)
        # The sum of one number is that number: CVXPY 1.9 gives log(number - sum_squares) a wrong shape.
        inside = program.cp.sum(inner.expression)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            t = 0.0 if inside.value is None else float(inside.value)
            t = _admissible(t)
            return {"t": t, "parts": [inner.parameters(factor / t, x)]}

        return ConicForm(program.cp.log(inside), parameters)

    def tangent(self, parameters: Parameters) -> Affine:
        """Log u <= log t - 1 + u / t for every t > 0."""
        t = float(parameters["t"])
        inner = self.parts[0].tangent(parameters["parts"][0])
        return Affine(inner.reward / t, math.log(t) - 1.0 + inner.offset / t)

    def at(self, x: np.ndarray) -> Parameters:
        """T = part(x), or something positive."""
        inside = float(self.parts[0].value(x))
        return {"t": _admissible(inside), "parts": [self.parts[0].at(x)]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Slopes 1/t are averaged."""
        slopes = weights / np.array([float(one["t"]) for one in many])
        t = weights.sum() / slopes.sum() if slopes.sum() > 0 else many[-1]["t"]
        inner = self.parts[0].mean([one["parts"][0] for one in many], slopes)
        return {"t": t, "parts": [inner]}

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        """Minus infinity outside the domain."""
        return math.log(values[0]) if values[0] > 0 else -math.inf

    def combined(self, parts: Sequence[Local], rounding: float) -> Local:
        """g / u and H / u - g g' / u^2."""
        (inner,) = parts
        inside = inner.value if inner.value > 0 else TINY
        slope = inner.gradient / inside
        hessian = inner.hessian / inside - np.outer(slope, slope)
        parameters = {"t": _admissible(inside), "parts": [inner.parameters]}
        return Local(math.log(inside), slope, hessian, parameters)

    def plain(self) -> Plain:
        return {"kind": self.kind, "parts": [self.parts[0].plain()]}


def _admissible(t: float) -> float:
    """A point of tangency that the checker takes: beyond, products underflow."""
    return min(max(t, LEAST), 1.0 / LEAST) if t > 0 else 1.0
