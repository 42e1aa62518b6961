"""phi^p of a concave function, 0 < p < 1, or -phi^p with p < 0. Concave."""

from __future__ import annotations

import math
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
    """Its only part to the power of ``exponent``, with the exponent's sign; minus infinity outside the domain.

    The gradient p phi^(p-1) gradient(phi) is unbounded at phi = 0. There it is evaluated at ``LEAST``; outside
    the domain there is none, and NaN is returned: a solver that gets there stops and says so. With a ``floor``
    the power goes on along its tangent there.
    """

    exponent: float
    floor: Any = None
    static: ClassVar[tuple[str, ...]] = ("exponent",)
    kind: ClassVar[str] = "power"
    roughness: ClassVar[str] = "its gradient is unbounded where the argument goes to zero"

    @property
    def sign(self) -> float:
        """Of the exponent: -u^p is what increases where p < 0."""
        return math.copysign(1.0, self.exponent)

    def value(self, x: Array) -> Any:
        """The power of the inner value; q^p + p q^(p-1) (u - q) with q = max(u, floor)."""
        xp, p = namespace(x), self.exponent
        inside = self.parts[0].value(x)
        if self.floor is not None:
            raised = xp.maximum(inside, self.floor)
            return self.sign * raised**p + self.slope(raised) * (inside - raised)
        # Both are false for NaN, which must not pass for minus infinity.
        outside = inside < 0 if p > 0 else inside <= 0
        return xp.where(outside, -xp.inf, self.sign * xp.where(outside, 1.0, inside) ** p)

    def gradient(self, x: Array) -> Array:
        xp = namespace(x)
        inside = self.parts[0].value(x)
        raised = xp.maximum(inside, LEAST if self.floor is None else self.floor)
        if self.floor is None:
            raised = xp.where(inside >= 0, raised, xp.nan)
        return self.slope(raised) * self.parts[0].gradient(x)

    def extended(self) -> PowerShape:
        """Linear where the inside is below ``FLOOR``."""
        return replace(self, parts=(self.parts[0].extended(),)).floored(FLOOR)

    def floored(self, floor: Any) -> PowerShape:
        return replace(self, floor=floor)

    def conic(self, program: ConicProgram) -> ConicForm:
        """T <= u^p is a power cone, and so is u^-p t >= 1; u is phi / unit."""
        cp, inner, p = program.cp, self.parts[0].conic(program), self.exponent
        u, t, unit = cp.Variable(1), cp.Variable(1), program.size(self.parts[0].value)
        one = np.ones(1)
        cone = cp.PowCone3D(u, one, t, [p]) if p > 0 else cp.PowCone3D(u, t, one, [p / (p - 1.0)])
        program.require(u <= inner.expression / unit, cone)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            t = admissible(0.0 if u.value is None else unit * float(u.value[0]))
            return {"t": t, "parts": [inner.parameters(factor * self.slope(t), x)]}

        return ConicForm(self.sign * unit**p * cp.sum(t), parameters)

    def height(self, t: float) -> float:
        if t == 0 and self.exponent < 0:
            return -math.inf
        return self.sign * float(t**self.exponent)

    def slope(self, t: Any) -> Any:
        """|p| t^(p-1), of a number or of arrays."""
        return abs(self.exponent) * t ** (self.exponent - 1.0)

    def bend(self, t: float) -> float:
        return (self.exponent - 1.0) * float(self.slope(t)) / t

    def of_slope(self, slope: float) -> float:
        return float((slope / abs(self.exponent)) ** (1.0 / (self.exponent - 1.0)))

    def constants(self, space: Space) -> Constants:
        """Bounded as the part is, for p > 0; neither Lipschitz nor smooth at the border."""
        bound = self.parts[0].constants(space).bound if self.exponent > 0 else None
        return Constants(None, None, None if bound is None else bound**self.exponent)

    def plain(self) -> Plain:
        fixed = {"kind": self.kind, "exponent": float(self.exponent)}
        return {**fixed, "parts": [self.parts[0].plain()]}
