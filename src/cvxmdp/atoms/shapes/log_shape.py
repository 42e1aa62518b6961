"""log phi of a concave function. Concave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.shape import (
    Composite,
    ConicProgram,
    Form,
    Parameters,
    Plain,
    Shape,
    Tangent,
)
from cvxmdp.base.arrays import Array, namespace

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
        """gradient(part) / part."""
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
        """What is inside."""
        return self.parts

    def conic(self, program: ConicProgram) -> Form:
        """CVXPY's log of a variable that is at most the part."""
        inner, t = self.parts[0].conic(program), program.cp.Variable()
        program.require(t <= inner.expression)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            at = float(t.value) if t.value is not None and float(t.value) > 0 else 1.0
            return {"t": at, "parts": [inner.parameters(factor / at, x)]}

        return Form(program.cp.log(t), parameters)

    def tangent(self, parameters: Parameters) -> Tangent:
        """Log u <= log t - 1 + u / t for every t > 0."""
        t = float(parameters["t"])
        inner = self.parts[0].tangent(parameters["parts"][0])
        return Tangent(inner.reward / t, math.log(t) - 1.0 + inner.constant / t)

    def at(self, x: np.ndarray) -> Parameters:
        """T = part(x), or something positive."""
        inside = float(self.parts[0].value(x))
        return {"t": inside if inside > 0 else 1.0, "parts": [self.parts[0].at(x)]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Slopes 1/t are averaged."""
        slopes = weights / np.array([float(one["t"]) for one in many])
        t = weights.sum() / slopes.sum() if slopes.sum() > 0 else many[-1]["t"]
        inner = self.parts[0].mean([one["parts"][0] for one in many], slopes)
        return {"t": t, "parts": [inner]}

    def plain(self) -> Plain:
        """The part."""
        return {"kind": self.kind, "parts": [self.parts[0].plain()]}
