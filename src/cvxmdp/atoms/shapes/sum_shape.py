"""sum_k weight_k phi_k + offset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.shape import (
    Affine,
    Composite,
    ConicForm,
    ConicProgram,
    Constants,
    Local,
    Parameters,
    Plain,
)
from cvxmdp.base.arrays import Array
from cvxmdp.base.interval import Interval
from cvxmdp.models.space import Space


@dataclass(frozen=True, eq=False)
class SumShape(Composite):
    """sum_k weights[k] * parts[k](x) + offset. Weights and offset are numbers, not structure."""

    weights: tuple[float, ...]
    offset: float
    kind: ClassVar[str] = "sum"
    additive: ClassVar[bool] = True

    def factors(self) -> tuple[float, ...]:
        return self.weights

    def value(self, x: Array) -> Any:
        total = self.offset
        for weight, part in zip(self.weights, self.parts, strict=True):
            total = total + weight * part.value(x)
        return total

    def gradient(self, x: Array) -> Array:
        total = 0.0 * x
        for weight, part in zip(self.weights, self.parts, strict=True):
            total = total + weight * part.gradient(x)
        return total

    def affine(self) -> Affine | None:
        """The sum of the affine parts, when all are affine."""
        found = [part.affine() for part in self.parts]
        pairs = [(w, part) for w, part in zip(self.weights, found, strict=True) if part is not None]
        if len(pairs) < len(found):
            return None
        reward = sum(weight * part.reward for weight, part in pairs)
        offset = self.offset + sum(weight * part.offset for weight, part in pairs)
        return Affine(np.asarray(reward), float(offset))

    def conic(self, program: ConicProgram) -> ConicForm:
        forms = [part.conic(program) for part in self.parts]
        total = self.offset
        for weight, form in zip(self.weights, forms, strict=True):
            total = total + weight * form.expression

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            pairs = zip(self.weights, forms, strict=True)
            return {"parts": [form.parameters(factor * weight, x) for weight, form in pairs]}

        return ConicForm(total, parameters)

    def tangent(self, parameters: Parameters) -> Affine:
        pairs = zip(self.parts, parameters["parts"], strict=True)
        tangents = [part.tangent(given) for part, given in pairs]
        reward = sum(w * one.reward for w, one in zip(self.weights, tangents, strict=True))
        terms = [w * one.offset for w, one in zip(self.weights, tangents, strict=True)]
        return Affine(np.asarray(reward), math.fsum([*terms, self.offset]))

    def at(self, x: np.ndarray) -> Parameters:
        return {"parts": [part.at(x) for part in self.parts]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        columns = zip(*(one["parts"] for one in many), strict=True)
        pairs = zip(self.parts, columns, strict=True)
        return {"parts": [part.mean(column, weights) for part, column in pairs]}

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        return self.offset + sum(w * value for w, value in zip(self.weights, values, strict=True))

    def combined_interval(self, parts: Sequence[Interval]) -> tuple[float, float]:
        """Behind a negative weight ends change places."""
        signed = list(zip(self.weights, parts, strict=True))
        low = [one.lower if weight >= 0 else one.upper for weight, one in signed]
        high = [one.upper if weight >= 0 else one.lower for weight, one in signed]
        return self.combined_value(low), self.combined_value(high)

    def combined(self, parts: Sequence[Local], rounding: float) -> Local:
        pairs = list(zip(self.weights, parts, strict=True))
        return Local(
            self.combined_value([one.value for one in parts]),
            np.sum([weight * one.gradient for weight, one in pairs], axis=0),
            np.sum([weight * one.hessian for weight, one in pairs], axis=0),
            {"parts": [one.parameters for one in parts]},
        )

    def constants(self, space: Space) -> Constants:
        """Constants add up with the absolute weights."""
        parts = [part.constants(space) for part in self.parts]
        sizes = [abs(weight) for weight in self.weights]

        def total(values: list[float | None], start: float = 0.0) -> float | None:
            if any(value is None for value in values):
                return None
            return start + sum(s * v for s, v in zip(sizes, values, strict=True) if v is not None)

        return Constants(
            total([part.lipschitz for part in parts]),
            total([part.smoothness for part in parts]),
            total([part.bound for part in parts], abs(self.offset)),
            total([part.strength for part in parts]) or 0.0,
        )

    def plain(self) -> Plain:
        return {
            "kind": self.kind,
            "weights": np.array(self.weights, dtype=np.float64),
            "offset": float(self.offset),
            "parts": [part.plain() for part in self.parts],
        }
