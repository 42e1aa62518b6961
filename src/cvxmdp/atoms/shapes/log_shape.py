"""log phi of a concave function. Concave."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.increasing import IncreasingShape, admissible
from cvxmdp.atoms.shapes.shape import ConicForm, ConicProgram, Parameters
from cvxmdp.base.arrays import Array, namespace

FLOOR = 0.01  # of the argument, below which the extension for sampling is linear


@dataclass(frozen=True, eq=False)
class LogShape(IncreasingShape):
    """log of its only part; minus infinity where that is not positive.

    The gradient is gradient(part) / part, unbounded towards the border. Outside the domain there is
    none, and NaN is returned: a solver that gets there stops and says so. With a ``floor`` the logarithm goes
    on along its tangent there.
    """

    floor: Any = None
    kind: ClassVar[str] = "log"
    roughness: ClassVar[str] = "its gradient is unbounded where the argument goes to zero"

    def value(self, x: Array) -> Any:
        """The logarithm of the inner value; log q + (u - q) / q with q = max(u, floor)."""
        xp = namespace(x)
        inside = self.parts[0].value(x)
        if self.floor is not None:
            raised = xp.maximum(inside, self.floor)
            return xp.log(raised) + (inside - raised) / raised
        outside = inside <= 0  # false for NaN, which must not pass for minus infinity
        return xp.where(outside, -xp.inf, xp.log(xp.where(outside, 1.0, inside)))

    def gradient(self, x: Array) -> Array:
        xp = namespace(x)
        inside, floor = self.parts[0].value(x), self.floor
        defined = (
            xp.where(inside > 0, inside, xp.nan) if floor is None else xp.maximum(inside, floor)
        )
        return self.parts[0].gradient(x) / defined

    def extended(self) -> LogShape:
        """Linear where the inside is below ``FLOOR``."""
        return replace(self, parts=(self.parts[0].extended(),)).floored(FLOOR)

    def floored(self, floor: Any) -> LogShape:
        return replace(self, floor=floor)

    def conic(self, program: ConicProgram) -> ConicForm:
        """Log (phi / unit) + log unit."""
        inner, unit = self.parts[0].conic(program), program.size(self.parts[0].value)
        # The sum of one number is that number: CVXPY 1.9 gives log(number - sum_squares) a wrong shape.
        inside = program.cp.sum(inner.expression / unit)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            t = admissible(0.0 if inside.value is None else unit * float(inside.value))
            return {"t": t, "parts": [inner.parameters(factor / t, x)]}

        return ConicForm(program.cp.log(inside) + math.log(unit), parameters)

    def height(self, t: float) -> float:
        return math.log(t) if t > 0 else -math.inf

    def slope(self, t: float) -> float:
        return 1.0 / t

    def bend(self, t: float) -> float:
        return -1.0 / t / t

    def of_slope(self, slope: float) -> float:
        return 1.0 / slope
