"""Sums taken apart: the logarithms and powers that are added to a function, and the rest of it."""

from __future__ import annotations

from cvxmdp.atoms.shapes.increasing import IncreasingShape
from cvxmdp.atoms.shapes.shape import Shape
from cvxmdp.atoms.shapes.sum_shape import SumShape


def separated(function: Shape) -> tuple[Shape, tuple[IncreasingShape, ...], tuple[float, ...]]:
    """f_0, the logarithms that are added to it, and their weights w_k."""
    if isinstance(function, IncreasingShape) and function.positive():
        return SumShape((), (), 0.0), (function,), (1.0,)
    if not isinstance(function, SumShape):
        return function, (), ()
    rest: list[Shape] = []
    logs: list[IncreasingShape] = []
    weights: list[float] = []
    for factor, part in zip(function.weights, function.parts, strict=True):
        own, found, before = separated(part)
        rest.append(own)
        logs += found
        weights += [factor * weight for weight in before]
    return SumShape(tuple(rest), function.weights, function.offset), tuple(logs), tuple(weights)
