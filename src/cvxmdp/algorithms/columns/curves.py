r"""Functions of an occupancy as functions of the weights of a mixture: value, gradient, Hessian, tangent.

The concave master mixes K columns x_k with weights w, so phi(sum_k w_k x_k) is a function of K numbers. Its
gradient is (<grad phi, x_k>)_k and its Hessian (<x_k, H x_l>)_kl; with u = M x both are products with the
images M x_k, and a shape's face ``second`` forms them. Here the images are kept, one matrix per map, so that no
function ever looks at pairs that it does not need.
"""

from __future__ import annotations

import numpy as np

from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.atoms.maps import Map
from cvxmdp.atoms.shapes import Local, Mixed, Shape


class Rows:
    """Rows that are added and dropped, in one contiguous array."""

    def __init__(self, width: int) -> None:
        self.held = np.empty((4, width))
        self.count = 0

    def add(self, row: np.ndarray) -> None:
        if self.count == len(self.held):
            self.held = np.concatenate([self.held, np.empty_like(self.held)])
        self.held[self.count] = row
        self.count += 1

    def keep(self, stay: np.ndarray) -> None:
        self.held[: stay.size] = self.held[stay]
        self.count = stay.size

    @property
    def rows(self) -> np.ndarray:
        """The rows, (K, width)."""
        return self.held[: self.count]


class Curve:
    """A function of the weights.

    Args:
        shape: the function of the occupancy.
        usable: boolean (S, A), the pairs that some policy can take.
    """

    def __init__(self, shape: Shape, usable: np.ndarray) -> None:
        self.shape = shape
        self.affine = shape.affine()
        # Of an affine function only one number per column is needed, whatever it is made of.
        inner = shape.children() if self.affine is None else ()
        self.parts = [Curve(part, usable) for part in inner]
        self.maps = () if self.affine is not None else shape.maps()
        self.live = tuple(map.live(usable) for map in self.maps)
        self.images = tuple(Rows(map.rows) for map in self.maps)
        self.numbers = np.zeros(0)
        self.parameters = {} if self.affine is None else shape.at(np.zeros(usable.shape))

    def add(self, column: Column) -> None:
        """Take a column into account."""
        if self.affine is not None:
            self.numbers = np.append(self.numbers, column.inner(self.affine.reward))
        for map, images in zip(self.maps, self.images, strict=True):
            images.add(image(map, column))
        for part in self.parts:
            part.add(column)

    def keep(self, stay: np.ndarray) -> None:
        if self.affine is not None:
            self.numbers = self.numbers[stay]
        for images in self.images:
            images.keep(stay)
        for part in self.parts:
            part.keep(stay)

    def _mixed(self, weights: np.ndarray) -> Mixed:
        images = tuple(images.rows for images in self.images)
        return Mixed(images, tuple(_mixed(weights, rows) for rows in images), self.live)

    def value(self, weights: np.ndarray, rounding: float) -> float:
        """The (rounded) function at a mixture."""
        if self.affine is not None:
            return float(self.numbers @ weights) + self.affine.offset
        if self.parts:
            inner = [part.value(weights, rounding) for part in self.parts]
            return self.shape.combined_value(inner, rounding)
        return self.shape.mixed_value(self._mixed(weights), rounding)

    def local(self, weights: np.ndarray, rounding: float) -> Local:
        """Value, gradient, Hessian and tangent."""
        if self.affine is not None:
            flat = np.zeros((weights.size, weights.size))
            return Local(self.value(weights, 0.0), self.numbers, flat, self.parameters)
        if self.parts:
            inner = [part.local(weights, rounding) for part in self.parts]
            return self.shape.combined(inner, rounding)
        return self.shape.second(self._mixed(weights), rounding)


def _mixed(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """weights @ rows without BLAS, whose threads would decide the last digits."""
    return np.asarray(np.einsum("k,kw->w", weights, rows))


def image(map: Map, column: Column) -> np.ndarray:
    """M x of a column; where sums over actions are enough, its pairs are never formed."""
    if not map.needs_pairs:
        return np.asarray(map.apply(column.visits[:, None]))
    x = np.zeros(map.shape)
    column.add_to(x, 1.0)
    return np.asarray(map.apply(x))
