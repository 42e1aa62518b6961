"""-sum u log u with u = M x. Concave."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.shape import (
    TINY,
    Affine,
    ConicForm,
    ConicProgram,
    Constants,
    Local,
    MappedShape,
    Mixed,
    Modulus,
    Parameters,
    Plain,
    Shape,
    slope_of,
)
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.models.space import Space

FLOOR = 0.01  # of the uniform share, below which the extension for sampling is linear
LARGEST_LOG = 1.0  # of q in a tangent that duals suggest: no distribution needs more
NEVER = math.log(TINY)  # of q at rows that no policy reaches


@dataclass(frozen=True, eq=False)
class EntropyShape(MappedShape):
    """-sum u log u, with 0 log 0 = 0 and minus infinity below zero.

    The gradient -M'(log u + 1) is unbounded at u = 0. There it is evaluated at the smallest normal number:
    finite, so that 0 * gradient is 0 at states no policy reaches, which are the only ones where a softmax
    policy has u = 0.

    With a ``floor`` each term goes on along its tangent below that share of the uniform distribution: slopes
    are then at most log(rows / floor).
    """

    floor: float = 0.0
    static: ClassVar[tuple[str, ...]] = ("floor",)
    kind: ClassVar[str] = "entropy"
    log_parameter: ClassVar[str] = "log_q"
    roughness: ClassVar[str] = "its gradient is unbounded where the distribution goes to zero"

    def value(self, x: Array) -> Any:
        """The entropy at x; beyond the floor -q log q - (log q + 1)(u - q) with q = max(u, floor)."""
        xp, u = namespace(x), self.map.apply(x)
        if self.floor:
            q = xp.maximum(u, self.floor / u.size)
            logs = xp.log(q)
            return (-q * logs - (logs + 1.0) * (u - q)).sum()
        inside = u > 0
        terms = -u * xp.log(xp.where(inside, u, 1.0))
        border = xp.where(u < 0, -xp.inf, 0.0 * u)  # zero, or NaN where u is
        return xp.where(inside, terms, border).sum()

    def gradient(self, x: Array) -> Array:
        xp, u = namespace(x), self.map.apply(x)
        least = self.floor / u.size if self.floor else xp.finfo(u.dtype).tiny
        return self.map.pull_back(-(xp.log(xp.maximum(u, least)) + 1.0))

    def extended(self) -> Shape:
        """Linear where u is below ``FLOOR`` of the uniform share."""
        return replace(self, floor=FLOOR)

    def conic(self, program: ConicProgram) -> ConicForm:
        """T <= -u log u is u exp(t/u) <= 1, an exponential cone; the dual of its u is the slope.

        In units of its own size, u = c v, it is c (-v log v) - u log c.
        """
        cp, rows, unit = program.cp, program.live(self.map), program.size(self.map.apply)
        t, u = cp.Variable(rows.size), program.image(self.map)[rows]
        cone = cp.ExpCone(t, u / unit, np.ones(rows.size))
        program.require(cone)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            slope = slope_of(cone.dual_value[1], factor * unit)
            if slope is None:
                return self.at(x)
            return self.from_slope(slope - math.log(unit), rows, self.at(x))

        return ConicForm(unit * cp.sum(t) - math.log(unit) * cp.sum(u), parameters)

    def tangent(self, parameters: Parameters) -> Affine:
        """-u log u <= -u log q - u + q for every q > 0."""
        log_q = parameters["log_q"]
        return Affine(self.map.pull_back(-(log_q + 1.0)), float(np.exp(log_q).sum()))

    def at(self, x: np.ndarray) -> Parameters:
        return {"log_q": np.log(np.maximum(self.map.apply(x), TINY))}

    def from_slope(self, slope: np.ndarray, rows: np.ndarray, near: Parameters) -> Parameters:
        """log q = -slope - 1 in these rows, as nearby in the others."""
        log_q = near["log_q"].copy()
        log_q[rows] = np.minimum(-slope - 1.0, LARGEST_LOG)
        return {"log_q": log_q}

    def mixed_value(self, at: Mixed, rounding: float) -> float:
        (u,) = at.u
        return -float(np.einsum("i,i->", u, np.log(np.maximum(u, TINY))))

    def second(self, at: Mixed, rounding: float) -> Local:
        """Slope -(log u + 1), curvature -1 / u."""
        (images,), (u,), (live,) = at
        logs = np.log(np.maximum(u, TINY))
        bent = images / np.sqrt(np.maximum(u, TINY))
        # A floor under the tangent's point lifts the function by at most ``rounding``, and keeps the slope
        # at places that are hardly visited from drowning all others.
        floor = math.log(max(rounding, TINY) / u.size)
        log_q = np.where(live, np.maximum(logs, floor), NEVER)
        value = -float(np.einsum("i,i->", u, logs))
        return Local(value, images @ -(logs + 1.0), -(bent @ bent.T), {"log_q": log_q})

    def log_weights(self) -> np.ndarray:
        """Log q is the parameter itself."""
        return np.zeros(self.map.rows)

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
        if not one_hot:
            return None
        cells, scale = int(self.map.live(pairs).sum()), self.map.column_norms()[0]
        # of n numbers that sum to at most one: log n for n >= 3, less than log 3 for fewer
        most = math.log(max(cells, 3))
        return Modulus(lambda step: entropy_change(cells, scale * step.l1), ceiling=most)

    def constants(self, space: Space) -> Constants:
        """|f| <= log n, or n/e for n < 3 cells; neither Lipschitz nor smooth at the border."""
        # Where episodes end the mass m is below one; m log(n / m) is largest at m = min(1, n / e).
        cells = self.map.rows
        return Constants(None, None, math.log(cells) if cells > math.e else cells / math.e)

    def plain(self) -> Plain:
        return {"kind": self.kind, "map": self.map.to_sparse()}


def entropy_change(cells: int, step: float) -> float:
    """A bound on sum |eta(p) - eta(p')|, eta(t) = -t log t, for |p - p'|_1 <= step, p, p' in [0, 1].

    |eta(p) - eta(p')| <= eta(|p - p'|) for differences up to 1/2 and eta is concave, so the sum is at most
    e log(n / e) for a step e <= 1/e; further away, no more than the entropy can be at all.
    """
    if step <= 0 or not cells:
        return 0.0
    most = math.log(cells) + 1.0
    return min(step * math.log(cells / step), most) if step < 0.3 else most
