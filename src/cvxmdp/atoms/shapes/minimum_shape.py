"""min_k phi_k of concave functions. Concave, with kinks where two are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.shapes.shape import (
    NEGLIGIBLE,
    TINY,
    Affine,
    Composite,
    ConicForm,
    ConicProgram,
    Constants,
    Local,
    Parameters,
    Shape,
    weighted_mean,
)
from cvxmdp.atoms.shapes.softened import SoftMinimum
from cvxmdp.atoms.shapes.sum_shape import SumShape
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.models.space import Space


@dataclass(frozen=True, eq=False)
class MinimumShape(Composite):
    """min_k parts[k](x). At a kink the gradient is that of the first smallest one."""

    kind: ClassVar[str] = "minimum"
    roughness: ClassVar[str] = "its gradient jumps where two of its utilities are equal"

    def _values(self, x: Array) -> Array:
        return namespace(x).stack([part.value(x) for part in self.parts])

    def value(self, x: Array) -> Any:
        return self._values(x).min()

    def gradient(self, x: Array) -> Array:
        smallest = self._values(x).argmin()
        return namespace(x).stack([part.gradient(x) for part in self.parts])[smallest]

    def softened(self, x: np.ndarray) -> Shape:
        """Weights that start equal; the sharpness by how far the parts are apart."""
        values = np.array([float(part.value(x)) for part in self.parts])
        known = values[np.isfinite(values)]
        size = float(np.ptp(known) or np.abs(known).max()) if known.size else 1.0
        count = len(self.parts)
        parts = tuple(part.softened(x) for part in self.parts)
        return SoftMinimum(parts, np.full(count, 1.0 / count), 1.0 / max(size, 1e-9))

    def pieces(self) -> list[Affine] | None:
        parts = [affine for part in self.parts if (affine := part.affine()) is not None]
        return parts if len(parts) == len(self.parts) else None

    def conic(self, program: ConicProgram) -> ConicForm:
        """A variable that is at most each part, in units of the minimum; the duals are the weights."""
        forms, unit = [part.conic(program) for part in self.parts], program.size(self.value)
        smallest = program.cp.Variable()
        below = [smallest <= form.expression / unit for form in forms]
        program.require(*below)

        def parameters(factor: float, x: np.ndarray) -> Parameters:
            found = [0.0 if one.dual_value is None else one.dual_value for one in below]
            duals = np.array([float(np.ravel(dual)[0]) for dual in found])  # shapes () and (1,)
            weights = np.maximum(duals, 0.0)
            if not weights.sum() > NEGLIGIBLE:
                return self.at(x)
            weights = weights / weights.sum()
            pairs = zip(weights, forms, strict=True)
            parts = [form.parameters(factor * weight, x) for weight, form in pairs]
            return {"weights": weights, "parts": parts}

        return ConicForm(unit * smallest, parameters)

    def tangent(self, parameters: Parameters) -> Affine:
        """A convex combination of tangents."""
        weights = np.maximum(np.asarray(parameters["weights"], dtype=np.float64), 0.0)
        weights = weights / weights.sum()
        combined = SumShape(self.parts, tuple(weights.tolist()), 0.0)
        return combined.tangent({"parts": parameters["parts"]})

    def at(self, x: np.ndarray) -> Parameters:
        weights = np.zeros(len(self.parts))
        weights[int(self._values(x).argmin())] = 1.0
        return {"weights": weights, "parts": [part.at(x) for part in self.parts]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Each function's parameters count as much as it weighed."""
        shares = np.array([one["weights"] for one in many], dtype=np.float64)
        parts = [
            part.mean([one["parts"][k] for one in many], weights * shares[:, k])
            for k, part in enumerate(self.parts)
        ]
        return {"weights": weighted_mean(shares, weights), "parts": parts}

    def _edge(self, rounding: float) -> float:
        return max(rounding, TINY) / max(math.log(len(self.parts)), 1.0)

    def _soft(self, values: np.ndarray, rounding: float) -> tuple[float, np.ndarray]:
        """-e log sum exp(-u/e) and its weights: never above the minimum."""
        edge, least = self._edge(rounding), float(values.min())
        weights = np.exp(-(values - least) / edge)
        return least - edge * math.log(float(weights.sum())), weights / weights.sum()

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        known = np.asarray(values, dtype=np.float64)
        if not (rounding > 0 and np.isfinite(known).all()):
            return float(known.min())
        return self._soft(known, rounding)[0]

    def combined(self, parts: Sequence[Local], rounding: float) -> Local:
        """Convex combinations, and the curvature of the rounding."""
        value, weights = self._soft(np.array([one.value for one in parts]), rounding)
        slopes = np.array([one.gradient for one in parts])
        mean = weights @ slopes
        spread = (slopes - mean) * np.sqrt(weights)[:, None]
        curved = np.tensordot(weights, np.array([one.hessian for one in parts]), axes=1)
        parameters = {"weights": weights, "parts": [one.parameters for one in parts]}
        return Local(value, mean, curved - spread.T @ spread / self._edge(rounding), parameters)

    def constants(self, space: Space) -> Constants:
        """As Lipschitz and as large as the worst of them; not smooth; as strong as the weakest."""
        parts = [part.constants(space) for part in self.parts]
        if len(parts) == 1:
            return parts[0]

        def largest(values: list[float | None]) -> float | None:
            known = [value for value in values if value is not None]
            return max(known) if len(known) == len(values) else None

        return Constants(
            largest([part.lipschitz for part in parts]),
            None,
            largest([part.bound for part in parts]),
            min(part.strength for part in parts),
        )
