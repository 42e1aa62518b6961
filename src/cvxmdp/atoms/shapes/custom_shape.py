"""A user's function of the occupancy, with the promise that it is concave or convex."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import numpy as np

from cvxmdp.atoms.maps import FirstRows, Map
from cvxmdp.atoms.shapes.shape import Constants, Parameters, Plain, Shape, Tangent
from cvxmdp.base.arrays import Array
from cvxmdp.base.precision import double_precision, on_device
from cvxmdp.models.space import Space

Function = Callable[[Any], Any]


@lru_cache(maxsize=16)
def _compiled(function: Function) -> tuple[Function, Function]:
    return jax.jit(function), jax.jit(jax.grad(function))


@dataclass(frozen=True, eq=False)
class CustomShape(Shape):
    """A user's function of an (S, A) array; the gradient is automatic.

    Attributes:
        map: which rows it looks at.
        function: the function.
        name: how the user calls it.
        curvature: "concave" or "convex", as declared.
        declared: the constants that were declared with it.
    """

    map: Map
    function: Function
    name: str
    curvature: str
    declared: Constants
    static: ClassVar[tuple[str, ...]] = ("function", "name", "curvature", "declared")
    kind: ClassVar[str] = "custom"
    roughness: ClassVar[str] = (
        "it was not declared; see the arguments of concave(...) and convex(...)"
    )

    def value(self, x: Array) -> Any:
        """The function's value; in float64 for NumPy input."""
        if isinstance(x, np.ndarray):
            with double_precision():
                return np.float64(_compiled(self.function)[0](on_device(self.map.seen(x))))
        return self.function(self.map.seen(x))

    def gradient(self, x: Array) -> Array:
        """Its automatic derivative."""
        if isinstance(x, np.ndarray):
            with double_precision():
                found = _compiled(self.function)[1](on_device(self.map.seen(x)))
            return self.map.pull_back(np.array(found, dtype=np.float64).ravel())
        return self.map.pull_back(jax.grad(self.function)(self.map.seen(x)).reshape(-1))

    @property
    def has_conic_form(self) -> bool:
        """Only its values and gradients are known."""
        return False

    def tangent(self, parameters: Parameters) -> Tangent:
        """The gradient at an occupancy z."""
        z = parameters["z"]
        gradient = self.gradient(z)
        return Tangent(gradient, float(self.value(z)) - float(np.vdot(gradient, z)))

    def at(self, x: np.ndarray) -> Parameters:
        """Z = x."""
        return {"z": x}

    def constants(self, space: Space) -> Constants:
        """As declared."""
        return self.declared

    def plain(self) -> Plain:
        """Name and declaration; the function itself stays in memory."""
        return {
            "kind": self.kind,
            "name": self.name,
            "curvature": self.curvature,
            "source": hashlib.sha256(_source(self.function).encode()).hexdigest(),
            "lipschitz": self.declared.lipschitz,
            "smoothness": self.declared.smoothness,
            "bound": self.declared.bound,
            "function": self,
        }

    def on_first_rows(self, shape: tuple[int, int]) -> Shape:
        """Under another map."""
        return replace(self, map=FirstRows(self.map, shape))


def _source(function: Any) -> str:
    """A user's function by its text, or by its name where the text is not to be had."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{getattr(function, '__qualname__', type(function).__name__)}"
