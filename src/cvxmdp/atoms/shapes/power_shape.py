"""phi^p of a concave function, 0 < p < 1. Concave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.increasing import IncreasingShape, admissible
from cvxmdp.atoms.shapes.shape import ConicForm, ConicProgram, Constants, Parameters, Plain
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.models.space import Space

FLOOR = 0.01  # of the argument, below which the extension for sampling is linear
LEAST = 1e-12  # of the argument, where the gradient is evaluated at the border


@dataclass(frozen=True, eq=False)
class PowerShape(IncreasingShape):
    """Its only part to the power of ``exponent``; minus infinity where that is negative.

    The gradient p phi^(p-1) gradient(phi) is unbounded at phi = 0. There it is evaluated at ``LEAST``; outside
    the domain there is none, and NaN is returned: a solver that gets there stops and says so. With a ``floor``
    the power goes on along its tangent there.
    """

    exponent: float
    floor: float = 0.0
    static: ClassVar[tuple[str, ...]] = ("floor",)
    kind: ClassVar[str] = "power"
    roughness: ClassVar[str] = "its gradient is unbounded where the argument goes to zero"

    def value(self, x: Array) -> Any:
        """The power of the inner value; q^p + p q^(p-1) (u - q) with q = max(u, floor)."""
        xp, p = namespace(x), self.exponent
        inside = self.parts[0].value(x)
        if self.floor:
            raised = xp.maximum(inside, self.floor)
            return raised**p + p * raised ** (p - 1.0) * (inside - raised)
        outside = inside < 0  # false for NaN, which must not pass for minus infinity
        return xp.where(outside, -xp.inf, xp.where(outside, 1.0, inside) ** p)

    def gradient(self, x: Array) -> Array:
        xp, p = namespace(x), self.exponent
        inside = self.parts[0].value(x)
        raised = xp.maximum(inside, self.floor or LEAST)
        if not self.floor:
            raised = xp.where(inside >= 0, raised, xp.nan)
        return p * raised ** (p - 1.0) * self.parts[0].gradient(x)

    def extended(self) -> PowerShape:
        """Linear where the inside is below ``FLOOR``."""
        return replace(self, parts=(self.parts[0].extended(),), floor=FLOOR)

    def conic(self, program: ConicProgram) -> ConicForm:
        """T <= u^p is a power cone; u is phi / unit."""
        cp, inner = program.cp, self.parts[0].conic(program)
        u, t, unit = cp.Variable(1), cp.Variable(1), program.size(self.parts[0].value)
        program.require(
            u <= inner.expression / unit, cp.PowCone3D(u, np.ones(1), t, [self.exponent])
        )

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            t = admissible(0.0 if u.value is None else unit * float(u.value[0]))
            return {"t": t, "parts": [inner.parameters(factor * self.slope(t), x)]}

        return ConicForm(unit**self.exponent * cp.sum(t), parameters)

    def height(self, t: float) -> float:
        return float(t**self.exponent)

    def slope(self, t: float) -> float:
        return float(self.exponent * t ** (self.exponent - 1.0))

    def bend(self, t: float) -> float:
        return (self.exponent - 1.0) * self.slope(t) / t

    def of_slope(self, slope: float) -> float:
        return float((slope / self.exponent) ** (1.0 / (self.exponent - 1.0)))

    def constants(self, space: Space) -> Constants:
        """Bounded as the part is; neither Lipschitz nor smooth at the border."""
        inner = self.parts[0].constants(space)
        return Constants(None, None, None if inner.bound is None else inner.bound**self.exponent)

    def plain(self) -> Plain:
        fixed = {"kind": self.kind, "exponent": float(self.exponent)}
        return {**fixed, "parts": [self.parts[0].plain()]}
