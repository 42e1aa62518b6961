"""Your own utility: a JAX function with the promise that it is concave, or convex."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import jax
import jax.numpy as jnp

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import Entries
from cvxmdp.atoms.shapes import Constants, CustomShape, Shape
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.precision import double_precision
from cvxmdp.models.space import Space

Function = Callable[[Any], Any]


@overload
def concave(function: Function) -> Custom: ...
@overload
def concave(
    *, lipschitz: float | None = None, smoothness: float | None = None, bound: float | None = None
) -> Callable[[Function], Custom]: ...
def concave(
    function: Function | None = None,
    *,
    lipschitz: float | None = None,
    smoothness: float | None = None,
    bound: float | None = None,
) -> Any:
    """Declare a function of the occupancy to be concave. Use it as a decorator.

    The function takes the occupancy, an (S, A) JAX array, and returns a scalar; write it with
    ``jax.numpy``, the gradient is automatic. Concavity is your promise: certificates list it among
    what they assume, and ``check_utility`` probes it.

        @concave
        def coverage(occupancy):
            return jnp.log(occupancy.sum(axis=1) + 1e-3).mean()

    Args:
        function: the function.
        lipschitz, smoothness, bound: the constants of the paper's assumption on utilities, if you
            know them; the theory's step sizes need them.
    """
    return _declare(function, Curvature.CONCAVE, Constants(lipschitz, smoothness, bound))


@overload
def convex(function: Function) -> Custom: ...
@overload
def convex(
    *, lipschitz: float | None = None, smoothness: float | None = None, bound: float | None = None
) -> Callable[[Function], Custom]: ...
def convex(
    function: Function | None = None,
    *,
    lipschitz: float | None = None,
    smoothness: float | None = None,
    bound: float | None = None,
) -> Any:
    """Declare a function of the occupancy to be convex. See ``concave``."""
    return _declare(function, Curvature.CONVEX, Constants(lipschitz, smoothness, bound))


def _declare(function: Function | None, curvature: Curvature, constants: Constants) -> Any:
    if function is None:
        return lambda given: _declare(given, curvature, constants)
    if isinstance(function, Utility) or not callable(function):
        raise UtilityError(
            f"@{curvature.value} goes on a function of the occupancy; got {function!r}"
        )
    try:
        hash(function)
    except TypeError as error:
        raise UtilityError(
            f"@{curvature.value}: JAX compiles functions that can be hashed, and {function!r} cannot. "
            "Wrap it: a function that takes the occupancy and calls it."
        ) from error
    return Custom(function, curvature, constants)


@dataclass(frozen=True, eq=False, repr=False)
class Custom(Utility):
    """A declared function; still callable with an occupancy."""

    function: Function
    declared: Curvature
    declared_constants: Constants
    word: ClassVar[str] = "custom"

    @property
    def curvature(self) -> Curvature:
        return self.declared

    def __call__(self, occupancy: Any) -> Any:
        return self.function(occupancy)

    def lower(self, space: Space) -> Shape:
        """Check that the function returns a scalar for this model's shape."""
        shape = space.shape
        try:
            with double_precision():
                form = jax.ShapeDtypeStruct(shape, float)  # type: ignore[no-untyped-call]
                result = jax.eval_shape(lambda x: self.function(x), form)
        except Exception as error:
            raise UtilityError(
                f"{self!r} cannot be traced by JAX with an occupancy of shape {shape}: {error}. "
                "Write it with jax.numpy, without NumPy calls or Python branches on values."
            ) from error
        if getattr(result, "shape", None) != ():
            raise UtilityError(
                f"{self!r} must return a scalar; for an occupancy of shape {shape} it returns "
                f"{getattr(result, 'shape', result)!r}"
            )
        if not jnp.issubdtype(result.dtype, jnp.floating):
            raise UtilityError(
                f"{self!r} must return a real number with a gradient; it returns {result.dtype}, as "
                "counts and comparisons do"
            )
        declared = (self.declared.value, self.declared_constants)
        return CustomShape(Entries(None, shape), self.function, repr(self), *declared)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)
