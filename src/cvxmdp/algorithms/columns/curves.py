r"""Functions of an occupancy as functions of the weights of a mixture: value, gradient, Hessian, tangent.

The concave master mixes K columns x_k with weights w, so phi(sum_k w_k x_k) is a function of K numbers. Its
gradient is (<grad phi, x_k>)_k and its Hessian (<x_k, H x_l>)_kl. Each atom has both in closed form;
of a user's function JAX computes them.

Kinks are made round, always to the safe side: |u| becomes sqrt(u^2 + e^2) and a minimum becomes
-e log sum exp(-u/e), so a mixture that is feasible for the rounded functions is feasible. The gradient of the
rounded function is then a convex combination of those that meet at the kink, and gives the dual weights that
a certificate needs: linearising at the kink itself would prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.atoms import nodes as atoms
from cvxmdp.atoms.nodes import Node, Parameters
from cvxmdp.base.precision import double_precision

TINY = 1e-300


class Local(NamedTuple):
    """A function at a mixture."""

    value: float
    gradient: np.ndarray  # (K,)
    hessian: np.ndarray  # (K, K)
    parameters: Parameters  # of the tangent there


class Matrix:
    """Rows that are added and dropped, in one contiguous array."""

    def __init__(self, width: int) -> None:
        self.held = np.empty((4, width))
        self.count = 0

    def add(self, row: np.ndarray) -> None:
        """One more row."""
        if self.count == len(self.held):
            self.held = np.concatenate([self.held, np.empty_like(self.held)])
        self.held[self.count] = row
        self.count += 1

    def keep(self, stay: np.ndarray) -> None:
        """Drop the others."""
        self.held[: stay.size] = self.held[stay]
        self.count = stay.size

    @property
    def rows(self) -> np.ndarray:
        """The rows, (K, width)."""
        return self.held[: self.count]


class Store:
    """What functions need of the columns: visits (K, S), pairs (K, S * A) only where a function needs them."""

    def __init__(self, shape: tuple[int, int], states: bool, pairs: bool) -> None:
        self.shape = shape
        self.states = Matrix(shape[0]) if states else None
        self.pairs = Matrix(shape[0] * shape[1]) if pairs else None

    def add(self, column: Column) -> None:
        """One more column."""
        if self.states is not None:
            self.states.add(column.visits)
        if self.pairs is not None:
            x = np.zeros(self.shape)
            column.add_to(x, 1.0)
            self.pairs.add(x.ravel())

    def keep(self, stay: np.ndarray) -> None:
        """Drop the others."""
        for matrix in (self.states, self.pairs):
            if matrix is not None:
                matrix.keep(stay)


class Blend:
    """A mixture; what functions look at is computed once."""

    def __init__(self, store: Store, weights: np.ndarray) -> None:
        self.store, self.weights = store, weights
        self._visits: np.ndarray | None = None
        self._x: np.ndarray | None = None

    @property
    def visits(self) -> np.ndarray:
        """(S,)."""
        if self._visits is None:
            assert self.store.states is not None
            self._visits = self.weights @ self.store.states.rows
        return self._visits

    @property
    def x(self) -> np.ndarray:
        """(S, A)."""
        if self._x is None:
            assert self.store.pairs is not None
            self._x = (self.weights @ self.store.pairs.rows).reshape(self.store.shape)
        return self._x


class Curve:
    """A function of the weights."""

    def add(self, column: Column) -> None:
        """Take a column into account."""

    def keep(self, stay: np.ndarray) -> None:
        """Forget the other columns."""

    def value(self, blend: Blend, rounding: float) -> float:
        """The (rounded) function at a mixture."""
        raise NotImplementedError

    def local(self, blend: Blend, rounding: float) -> Local:
        """Value, gradient, Hessian and tangent."""
        raise NotImplementedError


class LinearCurve(Curve):
    """<r, x>: one number per column."""

    def __init__(self, node: atoms.LinearNode) -> None:
        self.reward, self.numbers = node.reward, np.zeros(0)

    def add(self, column: Column) -> None:
        """Its number."""
        self.numbers = np.append(self.numbers, column.inner(self.reward))

    def keep(self, stay: np.ndarray) -> None:
        """Forget the others."""
        self.numbers = self.numbers[stay]

    def value(self, blend: Blend, rounding: float) -> float:
        """The mean."""
        return float(self.numbers @ blend.weights)

    def local(self, blend: Blend, rounding: float) -> Local:
        """No curvature."""
        count = self.numbers.size
        return Local(self.value(blend, 0.0), self.numbers, np.zeros((count, count)), {})


class CombinedCurve(Curve):
    """A function of other ones, its ``parts``, which keep the columns."""

    parts: list[Curve]

    def add(self, column: Column) -> None:
        """Each part."""
        for part in self.parts:
            part.add(column)

    def keep(self, stay: np.ndarray) -> None:
        """Each part."""
        for part in self.parts:
            part.keep(stay)


class SumCurve(CombinedCurve):
    """sum_k weight_k phi_k + offset."""

    def __init__(self, node: atoms.SumNode, parts: list[Curve]) -> None:
        self.weights, self.offset, self.parts = node.weights, node.offset, parts

    def value(self, blend: Blend, rounding: float) -> float:
        """The weighted sum."""
        pairs = zip(self.weights, self.parts, strict=True)
        return self.offset + sum(weight * part.value(blend, rounding) for weight, part in pairs)

    def local(self, blend: Blend, rounding: float) -> Local:
        """Weighted sums."""
        locals_ = [part.local(blend, rounding) for part in self.parts]
        return Local(
            self.offset + sum(w * one.value for w, one in zip(self.weights, locals_, strict=True)),
            np.sum(
                [w * one.gradient for w, one in zip(self.weights, locals_, strict=True)], axis=0
            ),
            np.sum([w * one.hessian for w, one in zip(self.weights, locals_, strict=True)], axis=0),
            {"parts": [one.parameters for one in locals_]},
        )


class EntropyCurve(Curve):
    """-sum p log p with p = scale times visits, or pairs."""

    def __init__(self, node: atoms.EntropyNode) -> None:
        self.node, self.scale, self.of_states = node, node.scale, node.of == "state"
        self.cells = node.cells.ravel()

    def _parts(self, blend: Blend) -> tuple[np.ndarray, np.ndarray]:
        if self.of_states:
            assert blend.store.states is not None
            return blend.store.states.rows, self.scale * blend.visits
        assert blend.store.pairs is not None
        return blend.store.pairs.rows, self.scale * blend.x.ravel()

    def value(self, blend: Blend, rounding: float) -> float:
        """The entropy."""
        _, p = self._parts(blend)
        return -float(np.einsum("i,i->", p, np.log(np.maximum(p, TINY))))

    def local(self, blend: Blend, rounding: float) -> Local:
        """Slope -scale (log p + 1), curvature -scale^2 / p."""
        rows, p = self._parts(blend)
        logs = np.log(np.maximum(p, TINY))
        bent = rows * (self.scale / np.sqrt(np.maximum(p, TINY)))
        # A floor under the tangent's point lifts the function by at most ``rounding``, and keeps the slope
        # at places that are hardly visited from drowning all others.
        floor = math.log(max(rounding, TINY) / self.cells.size)
        log_q = np.where(self.cells, np.maximum(logs, floor), 0.0).reshape(self.node.cells.shape)
        return Local(
            -float(np.einsum("i,i->", p, logs)),
            rows @ (-self.scale * (logs + 1.0)),
            -(bent @ bent.T),
            {"log_q": log_q},
        )


class KLCurve(Curve):
    """sum p log(p/t) - p + t with p = scale times pairs. Convex."""

    def __init__(self, node: atoms.KLNode) -> None:
        self.node = node

    def value(self, blend: Blend, rounding: float) -> float:
        """The divergence."""
        p = self.node.scale * blend.x
        return float((p * (np.log(np.maximum(p, TINY)) - self.node.log_t) - p + self.node.t).sum())

    def local(self, blend: Blend, rounding: float) -> Local:
        """Slope scale log(p/t), curvature scale^2 / p."""
        assert blend.store.pairs is not None
        rows, scale = blend.store.pairs.rows, self.node.scale
        p = np.maximum(scale * blend.x, TINY)
        slope = np.where(self.node.cells, scale * (np.log(p) - self.node.log_t), 0.0)
        bent = rows * (scale / np.sqrt(p)).ravel()
        return Local(
            self.value(blend, 0.0), rows @ slope.ravel(), bent @ bent.T, {"log_q": np.log(p)}
        )


class DistanceCurve(Curve):
    """A norm of the distance to a convex set. Convex; l1 and l2 are rounded."""

    def __init__(self, node: atoms.DistanceNode) -> None:
        self.node = node

    def value(self, blend: Blend, rounding: float) -> float:
        """The rounded norm of the residual."""
        residual = blend.x - self.node.target.nearest(blend.x)
        if self.node.norm == "l2-squared":
            return float((residual**2).sum())
        if self.node.norm == "l1":
            edge = rounding / residual.size
            return float(np.sqrt(residual**2 + edge**2).sum())
        return math.sqrt(float((residual**2).sum()) + rounding**2)

    def local(self, blend: Blend, rounding: float) -> Local:
        """The projection counts as fixed in the Hessian, which then bends at least as much."""
        assert blend.store.pairs is not None
        rows = blend.store.pairs.rows
        residual = blend.x - self.node.target.nearest(blend.x)
        flat = residual.ravel()
        value = self.value(blend, rounding)
        if self.node.norm == "l2-squared":
            return Local(value, rows @ (2.0 * flat), 2.0 * rows @ rows.T, self._at(residual))
        if self.node.norm == "l1":
            edge = rounding / flat.size
            sizes = np.sqrt(flat**2 + edge**2)
            direction = flat / sizes
            bent = rows * (edge / sizes**1.5)
            hessian = bent @ bent.T
        else:
            direction = flat / value
            along = rows @ direction
            hessian = (rows @ rows.T - np.outer(along, along)) / value
        parameters = self._at(direction.reshape(residual.shape))
        return Local(value, rows @ direction, hessian, parameters)

    def _at(self, direction: np.ndarray) -> Parameters:
        return self.node.target.at(direction)


class QuadraticCurve(Curve):
    """|F x|^2. Convex."""

    def __init__(self, node: atoms.QuadraticNode) -> None:
        self.node = node
        self.images: list[np.ndarray] = []

    def _image(self, x: np.ndarray) -> np.ndarray:
        node = self.node
        return (node.root * x).ravel() if node.diagonal else node.root @ x.ravel()

    def add(self, column: Column) -> None:
        """F x_k."""
        x = np.zeros(self.node.shape)
        column.add_to(x, 1.0)
        self.images.append(self._image(x))

    def keep(self, stay: np.ndarray) -> None:
        """Forget the others."""
        self.images = [self.images[k] for k in stay]

    def value(self, blend: Blend, rounding: float) -> float:
        """The square of the mixed image."""
        image = blend.weights @ np.array(self.images)
        return float(image @ image)

    def local(self, blend: Blend, rounding: float) -> Local:
        """2 F'F."""
        images = np.array(self.images)
        image = blend.weights @ images
        v = image.reshape(self.node.shape) if self.node.diagonal else image
        return Local(float(image @ image), 2.0 * images @ image, 2.0 * images @ images.T, {"v": v})


class LogCurve(Curve):
    """log of a concave function."""

    def __init__(self, inner: Curve) -> None:
        self.inner = inner

    def add(self, column: Column) -> None:
        """The inner one."""
        self.inner.add(column)

    def keep(self, stay: np.ndarray) -> None:
        """The inner one."""
        self.inner.keep(stay)

    def value(self, blend: Blend, rounding: float) -> float:
        """Minus infinity outside the domain."""
        inside = self.inner.value(blend, rounding)
        return math.log(inside) if inside > 0 else -math.inf

    def local(self, blend: Blend, rounding: float) -> Local:
        """g / u and H / u - g g' / u^2."""
        inner = self.inner.local(blend, rounding)
        inside = inner.value if inner.value > 0 else TINY
        slope = inner.gradient / inside
        return Local(
            math.log(inside),
            slope,
            inner.hessian / inside - np.outer(slope, slope),
            {"t": inside, "parts": [inner.parameters]},
        )


class MinimumCurve(CombinedCurve):
    """The smallest of several concave functions, rounded: -e log sum exp(-u/e)."""

    def __init__(self, parts: list[Curve]) -> None:
        self.parts = parts

    def _soft(self, values: np.ndarray, rounding: float) -> tuple[float, np.ndarray]:
        edge = max(rounding, TINY) / max(math.log(len(values)), 1.0)
        least = float(values.min())
        weights = np.exp(-(values - least) / edge)
        return least - edge * math.log(float(weights.sum())), weights / weights.sum()

    def value(self, blend: Blend, rounding: float) -> float:
        """The rounded minimum."""
        values = np.array([part.value(blend, rounding) for part in self.parts])
        return self._soft(values, rounding)[0] if np.isfinite(values).all() else float(values.min())

    def local(self, blend: Blend, rounding: float) -> Local:
        """Convex combinations, and the curvature of the rounding."""
        locals_ = [part.local(blend, rounding) for part in self.parts]
        value, weights = self._soft(np.array([one.value for one in locals_]), rounding)
        slopes = np.array([one.gradient for one in locals_])
        mean = weights @ slopes
        edge = max(rounding, TINY) / max(math.log(len(locals_)), 1.0)
        spread = (slopes - mean) * np.sqrt(weights)[:, None]
        curved = np.tensordot(weights, np.array([one.hessian for one in locals_]), axes=1)
        parameters = {"weights": weights, "parts": [one.parameters for one in locals_]}
        return Local(value, mean, curved - spread.T @ spread / edge, parameters)


@lru_cache(maxsize=32)
def _second(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Products of the Hessian with several occupancies, compiled."""

    def products(x: Any, many: Any) -> Any:
        return jax.lax.map(lambda one: jax.jvp(jax.grad(function), (x,), (one,))[1], many)

    return jax.jit(products)


class CustomCurve(Curve):
    """A user's function; gradient and Hessian by JAX."""

    def __init__(self, node: atoms.CustomNode) -> None:
        self.node = node

    def value(self, blend: Blend, rounding: float) -> float:
        """Whatever the function says."""
        value = float(self.node.function.value(blend.x))
        return value if not math.isnan(value) else -math.inf

    def local(self, blend: Blend, rounding: float) -> Local:
        """By automatic differentiation."""
        assert blend.store.pairs is not None
        rows, x = blend.store.pairs.rows, blend.x
        gradient = np.asarray(self.node.function.gradient(x), dtype=np.float64)
        with double_precision():
            many = jnp.asarray(rows.reshape(-1, *x.shape))
            bent = np.asarray(_second(self.node.function.function)(jnp.asarray(x), many))
        hessian = rows @ bent.reshape(len(rows), -1).T
        # Where a function has no second derivative, the steepest ascent has to do.
        hessian = np.where(np.isfinite(hessian), 0.5 * (hessian + hessian.T), 0.0)
        return Local(self.value(blend, 0.0), rows @ gradient.ravel(), hessian, {"z": x})


def curve_of(node: Node) -> Curve:
    """The function of weights that belongs to a function of occupancies."""
    if isinstance(node, atoms.LinearNode):
        return LinearCurve(node)
    if isinstance(node, atoms.SumNode):
        return SumCurve(node, [curve_of(part) for part in node.nodes])
    if isinstance(node, atoms.EntropyNode):
        return EntropyCurve(node)
    if isinstance(node, atoms.KLNode):
        return KLCurve(node)
    if isinstance(node, atoms.DistanceNode):
        return DistanceCurve(node)
    if isinstance(node, atoms.QuadraticNode):
        return QuadraticCurve(node)
    if isinstance(node, atoms.LogNode):
        return LogCurve(curve_of(node.inner))
    if isinstance(node, atoms.MinimumNode):
        return MinimumCurve([curve_of(part) for part in node.nodes])
    assert isinstance(node, atoms.CustomNode), node
    return CustomCurve(node)


def needs(node: Node) -> tuple[bool, bool]:
    """Whether a function looks at visits, and at pairs."""
    if isinstance(node, atoms.EntropyNode):
        return node.of == "state", node.of != "state"
    if isinstance(node, atoms.KLNode | atoms.DistanceNode | atoms.CustomNode):
        return False, True
    inner: list[Node] = []
    if isinstance(node, atoms.SumNode | atoms.MinimumNode):
        inner = node.nodes
    elif isinstance(node, atoms.LogNode):
        inner = [node.inner]
    found = [needs(part) for part in inner]
    return any(states for states, _ in found), any(pairs for _, pairs in found)
