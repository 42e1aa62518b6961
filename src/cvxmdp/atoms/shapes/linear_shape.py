"""<reward, x>: affine, and its own tangent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.maps import Taller
from cvxmdp.atoms.shapes.shape import (
    Affine,
    ConicForm,
    ConicProgram,
    Constants,
    Modulus,
    Parameters,
    Plain,
    Shape,
    SignalEnds,
)
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.models.space import Space


@dataclass(frozen=True, eq=False)
class LinearShape(Shape):
    """<reward, x> with reward of shape (S, A).

    Attributes:
        reward: it.
        signal: the name of the signal that it is a multiple of, where that is estimated; else empty.
        factor: of the signal.
    """

    reward: Array
    signal: str = ""
    factor: float = 1.0
    static: ClassVar[tuple[str, ...]] = ("signal", "factor")
    kind: ClassVar[str] = "linear"

    def value(self, x: Array) -> Any:
        if namespace(x) is np:  # without BLAS, whose threads would decide the last digits
            return np.einsum("i,i->", np.ravel(self.reward), np.ravel(x))
        return namespace(x).vdot(self.reward, x)

    def gradient(self, x: Array) -> Array:
        return self.reward + 0.0 * x

    def affine(self) -> Affine:
        return Affine(self.reward, 0.0)

    def conic(self, program: ConicProgram) -> ConicForm:
        return ConicForm(program.inner(self.reward), lambda factor, x: {})

    def tangent(self, parameters: Parameters) -> Affine:
        return Affine(self.reward, 0.0)

    def at(self, x: np.ndarray) -> Parameters:
        return {}

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus:
        """By the largest reward of these pairs, or its Euclidean norm."""
        used = self.reward[pairs]
        steepest, length = float(np.abs(used).max(initial=0.0)), float(np.linalg.norm(used))
        return Modulus(lambda step: min(steepest * step.l1, length * step.l2), floor=-math.inf)

    def constants(self, space: Space) -> Constants:
        """M_lambda = |r|, l_lambda = 0, M = max |r| / (1 - gamma)."""
        size = float(np.abs(self.reward).max())
        return Constants(float(np.linalg.norm(self.reward)), 0.0, size * space.max_mass)

    def plain(self) -> Plain:
        named = {"signal": self.signal, "factor": float(self.factor)} if self.signal else {}
        return {"kind": self.kind, "reward": np.asarray(self.reward, dtype=np.float64), **named}

    def worst_at(self, unknown: np.ndarray, known: np.ndarray, sign: float = 1.0) -> Shape:
        seen = self.reward[known] if known.any() else self.reward
        worst = seen.max() if sign < 0 else seen.min()
        return LinearShape(np.where(unknown[:, None], worst, self.reward))

    def hopeful(self, ends: SignalEnds, sign: float = 1.0) -> Shape:
        if self.signal not in ends:
            return self
        low, high = ends[self.signal]
        end = self.factor * (high if self.factor * sign > 0 else low)
        return replace(self, reward=np.where(np.isfinite(end), end, self.reward))

    def of_taller(self, shape: tuple[int, int], by: Taller) -> Shape:
        """Nothing for the rows below, which a signal's reward has already; the same at all times."""
        return replace(self, reward=by.spread(np.asarray(self.reward), shape))
