"""h(phi) of a convex phi, h convex and increasing: exponentials, powers above one, Huber's function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.increasing import LEAST, IncreasingShape
from cvxmdp.atoms.shapes.shape import ConicForm, ConicProgram, Constants, Parameters, Plain, Shape
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.models.space import Space

LARGEST_LOG = 700.0  # of an exponential's tangent: beyond, floats overflow or vanish


@dataclass(frozen=True, eq=False)
class ConvexIncreasingShape(IncreasingShape):
    """h of its only part, on all numbers; its tangent at any t is h(t) + h'(t) (phi - t), nowhere above."""

    roughness: ClassVar[str] = "no smoothness constant of such a composition is written down"

    def curve(self, t: Array) -> Array:
        """h(t), of NumPy or JAX."""
        raise NotImplementedError

    def steepness(self, t: Array) -> Array:
        """h'(t), of NumPy or JAX."""
        raise NotImplementedError

    def written(self, program: ConicProgram, inside: Any) -> Any:
        """h of a CVXPY expression."""
        raise NotImplementedError

    def value(self, x: Array) -> Any:
        return self.curve(self.parts[0].value(x))

    def gradient(self, x: Array) -> Array:
        return self.steepness(self.parts[0].value(x)) * self.parts[0].gradient(x)

    def height(self, t: float) -> float:
        return float(self.curve(np.float64(t)))

    def slope(self, t: float) -> float:
        return float(self.steepness(np.float64(t)))

    def positive(self) -> tuple[Shape, ...]:
        return ()

    def admitted(self, t: float) -> float:
        return min(max(t, -1.0 / LEAST), 1.0 / LEAST) if math.isfinite(t) else 0.0

    def inside(self, value: float) -> float:
        return value

    def conic(self, program: ConicProgram) -> ConicForm:
        inner = self.parts[0].conic(program)
        expression = self.written(program, inner.expression)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            known = inner.expression.value
            t = self.admitted(math.nan if known is None else float(np.ravel(known)[0]))
            return {"t": t, "parts": [inner.parameters(factor * self.slope(t), x)]}

        return ConicForm(expression, parameters)

    def constants(self, space: Space) -> Constants:
        """Steepest and largest where the part is largest."""
        inner = self.parts[0].constants(space)
        if inner.bound is None:
            return Constants(None, None, None)
        steep = None if inner.lipschitz is None else self.slope(inner.bound) * inner.lipschitz
        return Constants(steep, None, self.height(inner.bound))


@dataclass(frozen=True, eq=False)
class ExponentialShape(ConvexIncreasingShape):
    """exp(phi)."""

    kind: ClassVar[str] = "exponential"

    def curve(self, t: Array) -> Array:
        with np.errstate(over="ignore"):  # infinite is what it is
            return namespace(t).exp(t)

    steepness = curve

    def bend(self, t: float) -> float:
        return self.height(t)

    def of_slope(self, slope: float) -> float:
        return self.admitted(math.log(slope))

    def admitted(self, t: float) -> float:
        return min(max(t, -LARGEST_LOG), LARGEST_LOG) if not math.isnan(t) else 0.0

    def written(self, program: ConicProgram, inside: Any) -> Any:
        """unit * exp(phi - log unit)."""
        unit = program.size(self.value)
        return unit * program.cp.sum(program.cp.exp(inside - math.log(unit)))


@dataclass(frozen=True, eq=False)
class HingePowerShape(ConvexIncreasingShape):
    """max(phi, 0)^p, p > 1: the power of what is never negative."""

    exponent: float
    static: ClassVar[tuple[str, ...]] = ("exponent",)
    kind: ClassVar[str] = "hinge_power"

    def curve(self, t: Array) -> Array:
        return namespace(t).maximum(t, 0.0) ** self.exponent

    def steepness(self, t: Array) -> Array:
        return self.exponent * namespace(t).maximum(t, 0.0) ** (self.exponent - 1.0)

    def bend(self, t: float) -> float:
        if t <= 0:
            return 0.0
        return float(self.exponent * (self.exponent - 1.0) * max(t, LEAST) ** (self.exponent - 2.0))

    def of_slope(self, slope: float) -> float:
        return float((slope / self.exponent) ** (1.0 / (self.exponent - 1.0)))

    def written(self, program: ConicProgram, inside: Any) -> Any:
        """A power cone, or a square; in units of phi."""
        cp, unit = program.cp, program.size(self.parts[0].value)
        v = cp.Variable(1, nonneg=True)
        program.require(v >= inside / unit)
        if self.exponent == 2.0:
            return unit**2 * cp.sum_squares(v)
        raised = cp.Variable(1)
        program.require(cp.PowCone3D(raised, np.ones(1), v, [1.0 / self.exponent]))
        return unit**self.exponent * cp.sum(raised)

    def plain(self) -> Plain:
        fixed = {"kind": self.kind, "exponent": float(self.exponent)}
        return {**fixed, "parts": [self.parts[0].plain()]}


@dataclass(frozen=True, eq=False)
class HuberShape(ConvexIncreasingShape):
    """Huber's function of what is never negative: t^2 up to the width M, then 2 M t - M^2; zero below zero."""

    width: float
    kind: ClassVar[str] = "huber"

    def curve(self, t: Array) -> Array:
        xp = namespace(t)
        near = xp.clip(t, 0.0, self.width)
        return near**2 + 2.0 * self.width * xp.maximum(t - self.width, 0.0)

    def steepness(self, t: Array) -> Array:
        return 2.0 * namespace(t).clip(t, 0.0, self.width)

    def bend(self, t: float) -> float:
        return 2.0 if 0.0 < t < self.width else 0.0

    def of_slope(self, slope: float) -> float:
        return 0.5 * slope

    def written(self, program: ConicProgram, inside: Any) -> Any:
        cp, unit = program.cp, program.size(self.parts[0].value)
        v = cp.Variable(1, nonneg=True)
        program.require(v >= inside / unit)
        return unit**2 * cp.sum(cp.huber(v, self.width / unit))

    def plain(self) -> Plain:
        fixed = {"kind": self.kind, "width": float(self.width)}
        return {**fixed, "parts": [self.parts[0].plain()]}
