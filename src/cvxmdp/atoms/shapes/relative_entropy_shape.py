"""sum p log(p/q) - p + q with p = M x and q = N x + c. Convex, jointly in both, and never negative."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from cvxmdp.atoms.maps import Map, Taller
from cvxmdp.atoms.shapes.entropy_shape import entropy_change
from cvxmdp.atoms.shapes.shape import (
    TINY,
    Affine,
    ConicForm,
    ConicProgram,
    Local,
    MappedShape,
    Mixed,
    Modulus,
    Move,
    Parameters,
    Plain,
    Shape,
    slope_of,
)
from cvxmdp.base.arrays import Array, namespace

FLOOR = 0.01  # of q, below which the extension for sampling is linear
CEILING = 1e4  # times q, above which it is linear where q depends on x: q may be negative there
LARGEST_LOG = 700.0  # of a ratio in a tangent


@dataclass(frozen=True, eq=False)
class RelativeEntropyShape(MappedShape):
    """The divergence of p from q; pairs with q = 0, which no policy can take, count as p = 0.

    The gradient M' log(p/q) + N' (1 - p/q) is unbounded at p = 0. There it is evaluated at the smallest normal
    number: finite, and only met at pairs that the policy never takes. Below p = 0 the value is infinite.

    With a ``floor`` each term goes on along its tangent where p is below that share of q.

    Attributes:
        map: M.
        base_map: N, or None for zero.
        base_offset: c, (rows,), or None for zero.
        floor: of the extension; zero means none.
    """

    base_map: Map | None
    base_offset: Array
    floor: float = 0.0
    static: ClassVar[tuple[str, ...]] = ("floor",)
    kind: ClassVar[str] = "relative_entropy"
    log_parameter: ClassVar[str] = "log_ratio"
    roughness: ClassVar[str] = "its gradient is unbounded where the occupancy goes to zero"

    def _base(self, x: Array) -> Array:
        if self.base_map is None:
            return self.base_offset
        q = self.base_map.apply(x)
        return q if self.base_offset is None else q + self.base_offset

    def _ratio(self, x: Array) -> tuple[Array, Array, Array]:
        """P, q and log(p/q), zero where q is."""
        xp, q = namespace(x), self._base(x)
        inside = q > 0
        p = xp.where(inside, self.map.apply(x), 0.0)
        if self.floor:
            share = xp.maximum(p / xp.where(inside, q, 1.0), self.floor)
            return p, q, xp.where(inside, xp.log(share), 0.0)
        tiny = xp.finfo(p.dtype).tiny
        logs = xp.log(xp.maximum(p, tiny)) - xp.log(xp.where(inside, q, 1.0))
        return p, q, xp.where(inside, logs, 0.0)

    def _steepest(self, x: Array) -> tuple[Array, Array, Array]:
        """P, q and the a between the logarithms of floor and ceiling that makes a p - (e^a - 1) q largest."""
        xp, p, q = namespace(x), self.map.apply(x), self._base(x)
        low, high = math.log(self.floor), math.log(CEILING)
        inside = (q > 0) & (p > 0)
        ratio = xp.log(xp.where(inside, p, 1.0)) - xp.log(xp.where(inside, q, 1.0))
        # Where q is not positive this is convex in a, and largest at one of the ends.
        upper = (high - low) * p > (math.exp(high) - math.exp(low)) * q
        ends = xp.where((q <= 0) & upper, high, low)
        return p, q, xp.where(inside, xp.clip(ratio, low, high), ends)

    def value(self, x: Array) -> Any:
        """The divergence; with a floor, the largest of its tangents."""
        xp = namespace(x)
        if self.floor and self.base_map is not None:
            p, q, logs = self._steepest(x)
            return (logs * p - (xp.exp(logs) - 1.0) * q).sum()
        p, q, logs = self._ratio(x)
        if self.floor:
            return (p * logs - xp.maximum(p, self.floor * q) + q).sum()
        return xp.where(p < 0, xp.inf, p * logs - p + q).sum()

    def gradient(self, x: Array) -> Array:
        if self.base_map is None:
            return self.map.pull_back(self._ratio(x)[2])
        logs = (self._steepest(x) if self.floor else self._ratio(x))[2]
        less = 1.0 - namespace(x).exp(logs)
        return self.map.pull_back(logs) + self.base_map.pull_back(less)

    def extended(self) -> Shape:
        """Linear where p is below ``FLOOR`` times q."""
        return replace(self, floor=FLOOR)

    def conic(self, program: ConicProgram) -> ConicForm:
        """T <= p log(q/p) is an exponential cone over the rows a policy can move; the others add q."""
        cp, rows, unit = program.cp, program.live(self.map), program.size(self.map.apply)
        p = program.image(self.map)[rows]
        q = np.zeros(self.map.rows) if self.base_offset is None else self.base_offset
        q = q if self.base_map is None else q + program.image(self.base_map)
        t = cp.Variable(rows.size)
        cone = cp.ExpCone(t, p / unit, q[rows] / unit)
        program.require(cone)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            slope = slope_of(cone.dual_value[1], factor * unit)
            return self.at(x) if slope is None else self.from_slope(slope - 1.0, rows, self.at(x))

        return ConicForm(cp.sum(q) - unit * cp.sum(t) - cp.sum(p), parameters)

    def tangent(self, parameters: Parameters) -> Affine:
        """A p - (e^a - 1) q for any a."""
        ratio = parameters["log_ratio"]
        less = 1.0 - np.exp(ratio)
        reward = self.map.pull_back(ratio)
        if self.base_map is not None:
            reward = reward + self.base_map.pull_back(less)
        constant = 0.0 if self.base_offset is None else float(less @ self.base_offset)
        return Affine(reward, constant)

    def at(self, x: np.ndarray) -> Parameters:
        """A = log(p/q); zero where both are."""
        p, q = self.map.apply(x), self._base(x)
        ratio = np.log(np.maximum(p, TINY)) - np.log(np.maximum(q, TINY))
        return {"log_ratio": np.minimum(ratio, LARGEST_LOG)}

    def from_slope(self, slope: np.ndarray, rows: np.ndarray, near: Parameters) -> Parameters:
        """The slope in p is a."""
        ratio = near["log_ratio"].copy()
        ratio[rows] = np.minimum(slope, LARGEST_LOG)
        return {"log_ratio": ratio}

    def maps(self) -> tuple[Map, ...]:
        """Of p, and of q where it moves."""
        return (self.map,) if self.base_map is None else (self.map, self.base_map)

    def _mixed(self, at: Mixed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p = at.u[0]
        q = np.zeros(p.size) if self.base_offset is None else self.base_offset
        q = q if self.base_map is None else q + at.u[1]
        return p, q, np.log(np.maximum(p, TINY)) - np.log(np.maximum(q, TINY))

    def mixed_value(self, at: Mixed, rounding: float) -> float:
        p, q, logs = self._mixed(at)
        return float((p * logs - p + q).sum())

    def second(self, at: Mixed, rounding: float) -> Local:
        """Slopes log(p/q) and 1 - p/q; the curvature is that of one direction per row, (dp - p/q dq)^2 / p."""
        p, q, logs = self._mixed(at)
        images, slope = at.images[0], at.images[0] @ logs
        if self.base_map is not None:
            ratio = np.exp(np.minimum(logs, LARGEST_LOG))
            slope = slope + at.images[1] @ (1.0 - ratio)
            images = images - ratio * at.images[1]
        bent = images / np.sqrt(np.maximum(p, TINY))
        value = float((p * logs - p + q).sum())
        return Local(value, slope, bent @ bent.T, {"log_ratio": np.minimum(logs, LARGEST_LOG)})

    def log_weights(self) -> np.ndarray | None:
        """Log q is the parameter plus that of a fixed q; None where q moves."""
        return None if self.base_map is not None else np.log(np.maximum(self.base_offset, TINY))

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
        """As for the entropy, plus the linear part; not known where q moves."""
        if not one_hot or self.base_map is not None:
            return None
        inside = np.asarray(self.base_offset) > 0
        steepest = float(np.abs(np.log(self.base_offset[inside])).max()) + 1.0
        cells, scale = int(inside.sum()), self.map.column_norms()[0]

        def omega(step: Move) -> float:
            moved = scale * step.l1
            return entropy_change(cells, moved) + steepest * moved

        return Modulus(omega)

    def closest(self, x: np.ndarray) -> np.ndarray | None:
        """Where p = q: at the fixed q, or at that of the same visits."""
        both = self.base_map is not None and self.base_offset is not None
        return None if both else self.map.towards(self._base(x), x)

    def plain(self) -> Plain:
        matrix, zero = self.map.to_sparse(), np.zeros(self.map.rows)
        none = sp.csr_array(matrix.shape)
        base = none if self.base_map is None else self.base_map.to_sparse()
        offset = zero if self.base_offset is None else np.asarray(self.base_offset)
        moved = {"base_map": base, "base_offset": offset}
        return {"kind": self.kind, "map": matrix, "offset": zero, **moved}

    def of_taller(self, shape: tuple[int, int], by: Taller) -> Shape:
        base = None if self.base_map is None else by(self.base_map, shape)
        return replace(self, map=by(self.map, shape), base_map=base)
