r"""Kinks made round: how a line search gets past ``minimum`` and the l1 and l2 distances.

At a kink no single gradient says which way is up, and a method that only goes up stops there. Each of
these functions is a minimum (for distances, a maximum) over dual weights,

    minimum(u)(x) = min_{w in simplex} <w, u(x)>,      |r| = max_{w in dual ball} <w, r>,

and weights that stay near their last value w_0 make it smooth:

    min_w <w, u(x)> + |w - w_0|^2 / (2 s),   attained at   w = nearest admissible to w_0 - s u(x).

w_0 follows w slowly, so the rounding is no error in the end: at a fixed point the smooth function and the
true one have the same value and w is a supergradient. It is what the augmented Lagrangian does for the
multipliers. The distance to a convex set C is max <w, x> - (support function of C)(w) over the dual ball; near
w_0 that is Huber's function of the distance of z = x + w_0 / s to C (a Moreau envelope).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from cvxmdp.atoms.distance import DistanceFunction
from cvxmdp.atoms.function import OccupancyFunction
from cvxmdp.atoms.logarithm import LogFunction
from cvxmdp.atoms.minimum import MinimumFunction
from cvxmdp.atoms.sets import BoundSet
from cvxmdp.atoms.utility import SumFunction

Array = Any
RATE = 0.1  # how fast the weights' centre follows them


def rounded(function: OccupancyFunction, x: np.ndarray) -> OccupancyFunction:
    """The function with its kinks made round; x, a typical occupancy, gives the scale.

    A function without kinks is returned as it is. Kinks inside a function of the user's own are not seen.
    """
    if isinstance(function, SumFunction):
        parts = tuple(rounded(part, x) for part in function.functions)
        return replace(function, functions=parts) if parts != function.functions else function
    if isinstance(function, LogFunction):
        inner = rounded(function.inner, x)
        return replace(function, inner=inner) if inner is not function.inner else function
    if isinstance(function, MinimumFunction):
        parts = tuple(rounded(part, x) for part in function.functions)
        values = np.array([float(part.value(x)) for part in function.functions])
        known = values[np.isfinite(values)]
        size = float(np.ptp(known) or np.abs(known).max()) if known.size else 1.0
        count = len(parts)
        return RoundMinimum(parts, np.full(count, 1.0 / count), 1.0 / max(size, 1e-9))
    if isinstance(function, DistanceFunction) and function.norm in ("l1", "l2"):
        # The typical size: of a pair for l1, whose weights are separate, else a tenth of the whole.
        size = float(np.abs(x).mean() if function.norm == "l1" else 0.1 * np.linalg.norm(x))
        return RoundDistance(function.set, np.zeros(x.shape), 1.0 / max(size, 1e-9), function.norm)
    return function


def follow(function: OccupancyFunction, x: Array) -> OccupancyFunction:
    """The function with its weights moved towards those at x."""
    if isinstance(function, SumFunction):
        return replace(function, functions=tuple(follow(part, x) for part in function.functions))
    if isinstance(function, LogFunction):
        return replace(function, inner=follow(function.inner, x))
    if isinstance(function, RoundMinimum | RoundDistance):
        return function.follow(x)
    return function


@dataclass(frozen=True, eq=False)
class RoundMinimum(OccupancyFunction):
    """min over weights w on the simplex of <w, u(x)> + |w - centre|^2 / (2 sharpness)."""

    functions: tuple[OccupancyFunction, ...]
    centre: Array
    sharpness: Array

    def _weights(self, x: Array) -> tuple[Array, Array]:
        values = jnp.stack([function.value(x) for function in self.functions])
        return on_simplex(self.centre - self.sharpness * values), values

    def value(self, x: Array) -> Any:
        """At the best weights."""
        weights, values = self._weights(x)
        away = ((weights - self.centre) ** 2).sum() / (2.0 * self.sharpness)
        return (weights * values).sum() + away

    def gradient(self, x: Array) -> Array:
        """The weighted sum of the gradients."""
        weights, _ = self._weights(x)
        gradients = jnp.stack([function.gradient(x) for function in self.functions])
        return jnp.tensordot(weights, gradients, axes=1)

    def follow(self, x: Array) -> RoundMinimum:
        """The centre moves towards the weights."""
        weights, _ = self._weights(x)
        parts = tuple(follow(part, x) for part in self.functions)
        centre = self.centre + RATE * (weights - self.centre)
        return RoundMinimum(parts, centre, self.sharpness)


@dataclass(frozen=True, eq=False)
class RoundDistance(OccupancyFunction):
    """The maximum over w in the dual ball of <w, x> - support(w) - |w - centre|^2 / (2 sharpness).

    With l1 the set is a point or a box, and everything is separate for each pair.
    """

    set: BoundSet
    centre: Array  # (S, A)
    sharpness: Array
    norm: str
    static: ClassVar[tuple[str, ...]] = ("norm",)

    def _lengths(self, x: Array) -> tuple[Array, Array]:
        """The residual of z = x + centre / sharpness, and its length: per pair for l1."""
        z = x + self.centre / self.sharpness
        residual = z - self.set.project(z)
        if self.norm == "l1":
            return residual, jnp.abs(residual)
        return residual, jnp.sqrt((residual * residual).sum())

    def value(self, x: Array) -> Any:
        """Huber's function of the lengths, less what it is at the centre."""
        _, length = self._lengths(x)
        inside = jnp.minimum(self.sharpness * length, 1.0)
        beyond = jnp.maximum(length - 1.0 / self.sharpness, 0.0)
        huber = (beyond + inside**2 / (2.0 * self.sharpness)).sum()
        return huber - (self.centre**2).sum() / (2.0 * self.sharpness)

    def gradient(self, x: Array) -> Array:
        """The weights."""
        residual, length = self._lengths(x)
        return residual / jnp.maximum(length, 1.0 / self.sharpness)

    def follow(self, x: Array) -> RoundDistance:
        """The centre moves towards the weights."""
        return replace(self, centre=self.centre + RATE * (self.gradient(x) - self.centre))


def on_simplex(vector: Array) -> Array:
    """The nearest point of the simplex (by sorting)."""
    ordered = -jnp.sort(-vector)
    sums = jnp.cumsum(ordered) - 1.0
    counts = jnp.arange(1, vector.shape[0] + 1)
    last = (ordered - sums / counts > 0).sum() - 1
    return jnp.maximum(vector - (sums / counts)[last], 0.0)
