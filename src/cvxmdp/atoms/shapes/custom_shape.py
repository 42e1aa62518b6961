"""A user's function of the occupancy, with the promise that it is concave or convex."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import numpy as np

from cvxmdp.atoms.maps import Entries, Map
from cvxmdp.atoms.shapes.shape import (
    Affine,
    Constants,
    Local,
    MappedShape,
    Mixed,
    Modulus,
    Parameters,
    Plain,
)
from cvxmdp.base.arrays import Array
from cvxmdp.base.described import behind, text_of
from cvxmdp.base.precision import double_precision, on_device, precise_anywhere
from cvxmdp.models.space import Space

Function = Callable[[Any], Any]


@lru_cache(maxsize=16)
def _compiled(function: Function) -> tuple[Function, Function]:
    own = precise_anywhere(function)
    return jax.jit(own), jax.jit(jax.grad(own))


@lru_cache(maxsize=32)
def _products(function: Function) -> Callable[[Any, Any], Any]:
    """Products of the Hessian with several occupancies, compiled."""

    def products(x: Any, many: Any) -> Any:
        return jax.lax.map(
            lambda one: jax.jvp(jax.grad(precise_anywhere(function)), (x,), (one,))[1], many
        )

    return jax.jit(products)


@dataclass(frozen=True, eq=False)
class CustomShape(MappedShape):
    """A user's function of an (S, A) array; the gradient is automatic.

    Attributes:
        map: which rows it looks at.
        function: the function.
        name: how the user calls it.
        curvature: "concave" or "convex", as declared.
        declared: the constants that were declared with it.
    """

    function: Function
    name: str
    curvature: str
    declared: Constants
    static: ClassVar[tuple[str, ...]] = ("function", "name", "curvature", "declared")
    kind: ClassVar[str] = "custom"
    trusted: ClassVar[bool] = True
    roughness: ClassVar[str] = (
        "it was not declared; see the arguments of concave(...) and convex(...)"
    )

    def value(self, x: Array) -> Any:
        """The function's value; in float64 for NumPy input."""
        if isinstance(x, np.ndarray):
            with double_precision():
                return np.float64(_compiled(self.function)[0](on_device(self.map.seen(x))))
        return precise_anywhere(self.function)(self.map.seen(x))

    def gradient(self, x: Array) -> Array:
        if isinstance(x, np.ndarray):
            with double_precision():
                found = _compiled(self.function)[1](on_device(self.map.seen(x)))
            return self.map.pull_back(np.array(found, dtype=np.float64).ravel())
        gradient = jax.grad(precise_anywhere(self.function))(self.map.seen(x))
        return self.map.pull_back(gradient.reshape(-1))

    @property
    def has_conic_form(self) -> bool:
        """Only its values and gradients are known."""
        return False

    def tangent(self, parameters: Parameters) -> Affine:
        """The gradient at an occupancy z."""
        z = parameters["z"]
        gradient = self.gradient(z)
        return Affine(gradient, float(self.value(z)) - float(np.vdot(gradient, z)))

    def at(self, x: np.ndarray) -> Parameters:
        return {"z": x}

    def maps(self) -> tuple[Map, ...]:
        """All of x: a proof holds the occupancy at which the function was linearised, time by time."""
        return (Entries(None, self.map.shape),)

    def mixed_value(self, at: Mixed, rounding: float) -> float:
        """Whatever the function says; minus infinity where that is not a number."""
        value = float(self.value(at.u[0].reshape(self.map.shape)))
        return value if not math.isnan(value) else -math.inf

    def second(self, at: Mixed, rounding: float) -> Local:
        (images,), (u,), _ = at
        x = u.reshape(self.map.shape)
        gradient = np.asarray(self.gradient(x), dtype=np.float64)
        with double_precision():
            seen = np.array([self.map.seen(one) for one in images.reshape(-1, *x.shape)])
            bent = _products(self.function)(on_device(self.map.seen(x)), on_device(seen))
        hessian = seen.reshape(len(images), -1) @ np.asarray(bent).reshape(len(images), -1).T
        # Where a function has no second derivative, the steepest ascent has to do.
        hessian = np.where(np.isfinite(hessian), 0.5 * (hessian + hessian.T), 0.0)
        return Local(self.mixed_value(at, 0.0), images @ gradient.ravel(), hessian, {"z": x})

    @property
    def _promised(self) -> Constants:
        """What was declared of f, as it holds for f of the sum over T steps: times sqrt(T), or T."""
        stretch, given = self.map.singular()[0], self.declared
        return replace(
            given,
            lipschitz=None if given.lipschitz is None else stretch * given.lipschitz,
            smoothness=None if given.smoothness is None else stretch**2 * given.smoothness,
        )

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
        slope = self._promised.lipschitz
        if slope is None:
            return None
        promise = f"{self.name} has the curvature and Lipschitz constant declared"
        return Modulus(lambda step: slope * float(step.l2), floor=-math.inf, promise=promise)

    def constants(self, space: Space) -> Constants:
        return self._promised

    @property
    def _written(self) -> str:
        """The user's function: its text and the values it closes over."""
        return text_of(self.function) + behind(self.function)

    def plain(self) -> Plain:
        """Name and declaration; the function itself stays in memory."""
        return {
            "kind": self.kind,
            "name": self.name,
            "curvature": self.curvature,
            "source": hashlib.sha256(self._written.encode()).hexdigest(),
            "lipschitz": self._promised.lipschitz,
            "smoothness": self._promised.smoothness,
            "bound": self.declared.bound,
            "function": self,
        }
