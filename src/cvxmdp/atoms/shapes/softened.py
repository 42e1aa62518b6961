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

from cvxmdp.atoms.maps import Map
from cvxmdp.atoms.shapes.norm_sets import NormSet
from cvxmdp.atoms.shapes.shape import Composite, Shape
from cvxmdp.base.arrays import Array, on_simplex

RATE = 0.1  # how fast the weights' centre follows them


@dataclass(frozen=True, eq=False)
class SoftMinimum(Composite):
    """min over weights w on the simplex of <w, u(x)> + |w - centre|^2 / (2 sharpness)."""

    centre: Array
    sharpness: Array

    def _weights(self, x: Array) -> tuple[Array, Array]:
        values = jnp.stack([part.value(x) for part in self.parts])
        return on_simplex(self.centre - self.sharpness * values), values

    def value(self, x: Array) -> Any:
        weights, values = self._weights(x)
        away = ((weights - self.centre) ** 2).sum() / (2.0 * self.sharpness)
        return (weights * values).sum() + away

    def gradient(self, x: Array) -> Array:
        weights, _ = self._weights(x)
        return jnp.tensordot(weights, jnp.stack([part.gradient(x) for part in self.parts]), axes=1)

    def followed(self, x: Array) -> Shape:
        weights, _ = self._weights(x)
        parts = tuple(part.followed(x) for part in self.parts)
        centre = self.centre + RATE * (weights - self.centre)
        return SoftMinimum(parts, centre, self.sharpness)


@dataclass(frozen=True, eq=False)
class SoftNorm(Shape):
    """The maximum over w in the dual ball of <w, u> - support(w) - |w - centre|^2 / (2 sharpness).

    With l1 the set is a point or a box, and everything is separate for each row.
    """

    map: Map
    set: NormSet
    centre: Array  # (rows,)
    sharpness: Array
    norm: str
    static: ClassVar[tuple[str, ...]] = ("norm",)

    def _lengths(self, x: Array) -> tuple[Array, Array]:
        """The residual of z = u + centre / sharpness, and its length: per row for l1."""
        z = self.map.apply(x) + self.centre / self.sharpness
        residual = z - self.set.project(z)
        if self.norm == "l1":
            return residual, jnp.abs(residual)
        return residual, jnp.sqrt((residual * residual).sum())

    def _weights(self, x: Array) -> Array:
        residual, length = self._lengths(x)
        return residual / jnp.maximum(length, 1.0 / self.sharpness)

    def value(self, x: Array) -> Any:
        """Huber's function of the lengths, less what it is at the centre."""
        _, length = self._lengths(x)
        inside = jnp.minimum(self.sharpness * length, 1.0)
        beyond = jnp.maximum(length - 1.0 / self.sharpness, 0.0)
        huber = (beyond + inside**2 / (2.0 * self.sharpness)).sum()
        return huber - (self.centre**2).sum() / (2.0 * self.sharpness)

    def gradient(self, x: Array) -> Array:
        return self.map.pull_back(self._weights(x))

    def followed(self, x: Array) -> Shape:
        return replace(self, centre=self.centre + RATE * (self._weights(x) - self.centre))
