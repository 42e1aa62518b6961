"""Functions of the occupancy with their tangents, as searches use them (until shapes take their place)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog, nnls

from cvxmdp.base.errors import CvxmdpError

EPS = float(np.finfo(np.float64).eps)
Parameters = dict[str, Any]
# Factors beyond this (or below its inverse) are refused: with them underflow would not be harmless.
LARGEST_FACTOR = 1e100
FLOW_ROUNDING = 1e-8  # what the flow equations may miss at a point that passes for an occupancy
FlowMiss = Callable[[np.ndarray], float]


class TangentError(CvxmdpError, ValueError):
    """Parameters that give no tangent."""


class NodeTangent(NamedTuple):
    """<reward, y> + constant, and how large the numbers were that were added up, for rounding.

    Attributes:
        reward: shape (S, A).
        constant: the constant.
        size: the sum of the absolute values behind the constant.
        steep: the largest such sum behind an entry of the reward. It can be far above the entry
            itself: huge multipliers of opposite constraints cancel, and take digits with them.
    """

    reward: np.ndarray
    constant: float
    size: float
    steep: float


def total(terms: np.ndarray) -> tuple[float, float]:
    """A correctly rounded sum and the sum of absolute values."""
    flat = np.asarray(terms, dtype=np.float64).ravel()
    if not np.isfinite(flat).all():
        return float(flat.sum()), math.inf
    try:
        return math.fsum(flat), float(np.abs(flat).sum())
    except OverflowError as error:
        raise TangentError(f"the numbers are too large to be added up: {error}") from error


def largest(array: np.ndarray) -> float:
    """The largest absolute value, zero if there is none."""
    return float(np.abs(array).max(initial=0.0))


def numbers(parameters: Parameters, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a certificate, of the shape it must have, with finite entries."""
    try:
        array = np.asarray(parameters[name], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise TangentError(f"the certificate holds no usable {name!r}: {error}") from error
    if array.shape != shape or not np.isfinite(array).all():
        raise TangentError(
            f"{name!r} in the certificate has shape {array.shape}; expected finite numbers of shape "
            f"{shape}"
        )
    return array


def weighted_mean(arrays: Any, weights: np.ndarray) -> Any:
    """The mean, or the last one where all weights are zero."""
    if not weights.sum() > 0:
        return np.asarray(arrays[-1], dtype=np.float64)
    return np.tensordot(weights / weights.sum(), np.asarray(arrays, dtype=np.float64), axes=1)


class NodeError(NamedTuple):
    """How far the true occupancy x' may be from the computed x.

    Attributes:
        size: |x' - x|_1 is at most this.
        support: boolean (S, A): x and x' are exactly zero elsewhere.
    """

    size: float
    support: np.ndarray


class Node:
    """A concave or convex function of an (S, A) occupancy."""

    promises: tuple[str, ...] = ()
    affine: bool = False
    source: Any = None  # the shape it was read from

    def value(self, x: np.ndarray) -> float:
        """phi(x)."""
        raise NotImplementedError

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """A bound on |phi(x') - computed phi(x)| for x' as near to x as ``error`` says."""
        raise NotImplementedError

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """The affine bound of these parameters."""
        raise NotImplementedError

    def at(self, x: np.ndarray) -> Parameters:
        """Parameters of the tangent at (or near) x."""
        raise NotImplementedError

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Parameters of a tangent about as good as the weighted mean of these."""
        return {
            name: weighted_mean([one[name] for one in many], weights) for name in (many[-1] or {})
        }


class LinearNode(Node):
    """<r, x>: its own tangent."""

    affine = True

    def __init__(self, reward: np.ndarray) -> None:
        self.reward = np.asarray(reward, dtype=np.float64)

    def value(self, x: np.ndarray) -> float:
        """The inner product."""
        return total(self.reward * x)[0]

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """max |r| times the error."""
        # Where the policy never goes, nothing can be off: a cost it surely avoids is exactly zero.
        steepest = largest(self.reward[error.support])
        return steepest * error.size + 4 * EPS * total(self.reward * x)[1]

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """Itself."""
        return NodeTangent(self.reward, 0.0, 0.0, largest(self.reward))

    def at(self, x: np.ndarray) -> Parameters:
        """Nothing to choose."""
        return {}


def entropy_drift(cells: int, e: float) -> float:
    """A bound on sum |eta(p) - eta(p')|, eta(t) = -t log t, for |p - p'|_1 <= e, p, p' in [0, 1].

    |eta(p) - eta(p')| <= eta(|p - p'|) for differences up to 1/2 and eta is concave, so the sum is
    at most e log(n / e) for e <= 1/e.
    """
    if e <= 0:
        return 0.0
    return e * math.log(cells / e) if e < 0.3 else math.inf


class EntropyNode(Node):
    """-sum p log p with p = scale * (x summed over actions, or x itself)."""

    def __init__(
        self, scale: float, of: str, shape: tuple[int, int], reachable: np.ndarray
    ) -> None:
        self.scale, self.of, self.shape = float(scale), of, shape
        # Cells that no policy visits have p = 0 for every occupancy and need no tangent.
        self.cells = reachable.any(axis=1) if of == "state" else reachable

    def _p(self, x: np.ndarray) -> np.ndarray:
        return self.scale * (x.sum(axis=1) if self.of == "state" else x)

    def value(self, x: np.ndarray) -> float:
        """The entropy."""
        p = self._p(x)
        return total(-p[p > 0] * np.log(p[p > 0]))[0] if (p >= 0).all() else -math.inf

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """See ``entropy_drift``; rounding is relative in p and absolute in its logarithm."""
        p = self._p(x)
        positive = p[p > 0]
        size = total(positive * (np.abs(np.log(positive)) + 2.0))[1]
        cells = int(self.cells.sum())
        return entropy_drift(cells, self.scale * error.size) + (8 + self.shape[1]) * EPS * size

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """Slope -scale (log q + 1), constant sum q."""
        log_q = numbers(parameters, "log_q", self.cells.shape)
        slope = np.where(self.cells, -self.scale * (log_q + 1.0), 0.0)
        constant, size = total(np.exp(log_q[self.cells]))
        if not math.isfinite(constant):
            raise TangentError("'log_q' in the certificate is too large: its bound is infinite")
        reward = np.repeat(slope[:, None], self.shape[1], axis=1) if self.of == "state" else slope
        return NodeTangent(reward, constant, size, self.scale * (largest(log_q[self.cells]) + 1.0))

    def at(self, x: np.ndarray) -> Parameters:
        """log q = log p."""
        p = self._p(x)
        return {"log_q": np.log(np.maximum(p, 1e-300))}


class KLNode(Node):
    """sum p log(p/t) - p + t with p = scale * x and t = scale * target."""

    def __init__(self, target: np.ndarray, scale: float, reachable: np.ndarray) -> None:
        self.scale = float(scale)
        self.t = self.scale * np.asarray(target, dtype=np.float64)
        self.cells = reachable
        if (self.t[reachable] <= 0).any() or (self.t < 0).any():
            raise TangentError("the target of a kl distance must be positive where policies go")
        self.log_t = np.log(np.where(self.t > 0, self.t, 1.0))

    def value(self, x: np.ndarray) -> float:
        """The divergence."""
        p = self.scale * x
        if (p < 0).any():
            return math.inf
        logs = np.log(np.where(p > 0, p, 1.0)) - self.log_t
        return total(np.where(p > 0, p * logs, 0.0) - p + self.t)[0]

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """As for the entropy, plus the linear part."""
        p = self.scale * x
        logs = np.abs(np.log(np.where(p > 0, p, 1.0))) + np.abs(self.log_t)
        size = total(p * (logs + 4.0) + self.t)[1]
        step = self.scale * error.size
        spread = float(np.abs(self.log_t[self.cells]).max()) + 1.0
        return entropy_drift(int(self.cells.sum()), step) + spread * step + 8 * EPS * size

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """Slope scale log(q/t), constant sum t - q."""
        log_q = numbers(parameters, "log_q", self.t.shape)
        slope = np.where(self.cells, self.scale * (log_q - self.log_t), 0.0)
        q = np.where(self.cells, np.exp(log_q), 0.0)
        constant, size = total(np.stack([self.t, -q]))
        if not math.isfinite(constant):
            raise TangentError("'log_q' in the certificate is too large: its bound is infinite")
        logs = np.abs(log_q) + np.abs(self.log_t) + 1.0
        return NodeTangent(slope, constant, size, self.scale * largest(logs[self.cells]))

    def at(self, x: np.ndarray) -> Parameters:
        """log q = log p."""
        return {"log_q": np.log(np.maximum(self.scale * x, 1e-300))}


class PointTarget:
    """A convex set: the point nearest to x, and its support max <v, z>. This one is a single point."""

    promises: tuple[str, ...] = ()

    def __init__(self, point: np.ndarray) -> None:
        self.point = np.asarray(point, dtype=np.float64)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """The point of the set nearest to x."""
        return self.point

    def astray(self, x: np.ndarray) -> float:
        """How far the computed nearest point may be outside the set, beyond rounding its entries."""
        return 0.0

    def direction(self, parameters: Parameters, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
        """The direction v that the parameters stand for, and its ``NodeTangent.steep``."""
        v = numbers(parameters, "v", shape)
        return v, largest(v)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """max <v, z> over the set (or an upper bound), and the size of the terms."""
        return total(v * self.point)

    def at(self, residual: np.ndarray) -> Parameters:
        """Parameters of the direction of a residual x - nearest(x)."""
        return {"v": residual}


class BallTarget(PointTarget):
    """A Euclidean ball."""

    def __init__(self, center: np.ndarray, radius: float) -> None:
        super().__init__(center)
        self.radius = float(radius)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Towards the center."""
        away = x - self.point
        length = float(np.linalg.norm(away))
        return x if length <= self.radius else self.point + away * (self.radius / length)

    def astray(self, x: np.ndarray) -> float:
        """Rounding of the way to the center, which can be much longer than x."""
        return (8 + x.size) * EPS * (float(np.abs(self.point).sum()) + self.radius)

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """<v, center> + radius |v|."""
        value, size = total(v * self.point)
        reach = self.radius * float(np.linalg.norm(v)) * (1 + v.size * EPS)
        return value + reach, size + reach


class BoxTarget(PointTarget):
    """lower <= z <= upper."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.lower = np.asarray(lower, dtype=np.float64)
        self.upper = np.asarray(upper, dtype=np.float64)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Clip."""
        return np.clip(x, self.lower, self.upper)

    def direction(self, parameters: Parameters, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
        """A direction along which the box ends; elsewhere the support would be infinite."""
        v, steep = super().direction(parameters, shape)
        endless = ((v > 0) & ~np.isfinite(self.upper)) | ((v < 0) & ~np.isfinite(self.lower))
        return np.where(endless, 0.0, v), steep

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """Each coordinate on its own."""
        corner = np.where(v > 0, self.upper, np.where(v < 0, self.lower, 0.0))
        return total(np.where(v == 0, 0.0, v * np.where(v == 0, 0.0, corner)))


class PolytopeTarget(PointTarget):
    """matrix @ z <= bounds; the direction is matrix' w with w >= 0, its support at most <w, bounds>."""

    def __init__(self, matrix: np.ndarray, bounds: np.ndarray) -> None:
        self.matrix = np.asarray(matrix, dtype=np.float64)
        self.bounds = np.asarray(bounds, dtype=np.float64)
        self.inside = self._deep_inside()
        self.promises = (
            ()
            if (self._excess(self.inside) < 0).all()
            else ("a polytope has no interior, and the projection on it is computed to rounding",)
        )

    def _deep_inside(self) -> np.ndarray:
        """The point furthest from all faces, up to a distance of one; what it is worth is measured."""
        lengths = np.linalg.norm(self.matrix, axis=1)
        size = self.matrix.shape[1]
        found = linprog(
            np.append(np.zeros(size), -1.0),
            A_ub=np.column_stack([self.matrix, lengths]),
            b_ub=self.bounds,
            bounds=[(None, None)] * size + [(None, 1.0)],
        )
        return np.zeros(size) if found.x is None else np.asarray(found.x[:-1])

    def _excess(self, z: np.ndarray) -> np.ndarray:
        """An upper bound on matrix @ z - bounds."""
        sizes = np.abs(self.matrix) @ np.abs(z) + np.abs(self.bounds)
        return self.matrix @ z - self.bounds + (z.size + 4) * EPS * sizes

    def astray(self, x: np.ndarray) -> float:
        """How far the computed projection has to go towards the inside to be surely in the set."""
        if self.promises:
            return 0.0
        z = self.nearest(x).ravel()
        out = np.maximum(self._excess(z), 0.0)
        share = float((out / (out - self._excess(self.inside))).max())
        return share * float(np.linalg.norm(z - self.inside)) * (1 + (z.size + 8) * EPS)

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """The projection, from its dual: non-negative least squares (Lawson and Hanson)."""
        return x - (self.matrix.T @ self._weights(x)).reshape(x.shape)

    def _weights(self, x: np.ndarray) -> np.ndarray:
        excess = self.matrix @ x.ravel() - self.bounds
        if (excess <= 0).all():
            return np.zeros(len(self.bounds))
        scale = float(np.abs(excess).max())
        stacked = np.vstack([-self.matrix.T, excess[None, :] / scale])
        wanted = np.concatenate([np.zeros(x.size), [1.0]])
        weights, _ = nnls(stacked, wanted, maxiter=100 * len(self.bounds))
        return scale * weights / max(1.0 - float(stacked[-1] @ weights), 1e-300)

    def direction(self, parameters: Parameters, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
        """matrix' w."""
        weights = np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0)
        steep = largest(np.abs(self.matrix).T @ weights) * (1 + len(weights) / 8)
        return (self.matrix.T @ weights).reshape(shape), steep

    def support(self, v: np.ndarray, parameters: Parameters, scale: float) -> tuple[float, float]:
        """<w, bounds>."""
        weights = np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0)
        return total(scale * weights * self.bounds)

    def at(self, residual: np.ndarray) -> Parameters:
        """Weights w with matrix' w nearest to the residual."""
        return {"w": nnls(self.matrix.T, residual.ravel(), maxiter=100 * len(self.bounds))[0]}


class DistanceNode(Node):
    """A norm of the distance to a convex set. Convex."""

    def __init__(self, target: PointTarget, norm: str, shape: tuple[int, int]) -> None:
        self.target, self.norm, self.shape = target, norm, shape
        self.promises = target.promises

    def _residual(self, x: np.ndarray) -> np.ndarray:
        return x - self.target.nearest(x)

    def value(self, x: np.ndarray) -> float:
        """The norm of the residual."""
        residual = self._residual(x)
        if self.norm == "l1":
            return total(np.abs(residual))[0]
        square = total(residual * residual)[0]
        return square if self.norm == "l2-squared" else math.sqrt(square)

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """Distances change by no more than the point moves; squares by (2 D + e) e."""
        residual = self._residual(x)
        # Rounding moves each entry of the residual by a few units in the last place of x and z.
        rounding = 16 * EPS * float((2 * np.abs(x) + np.abs(residual)).sum())
        moved = error.size + rounding + self.target.astray(x)
        length = self.value(x)
        if self.norm == "l2-squared":
            length = math.sqrt(length)
            return (2 * length + moved) * moved + 16 * EPS * length**2
        return moved + 16 * EPS * length

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """<v, x> - support(v), or the same for the square."""
        v, steep = self.target.direction(parameters, self.shape)
        scale = 1.0
        if self.norm == "l1":
            scale = 1.0 / max(1.0, largest(v))
        elif self.norm == "l2":
            length = float(np.linalg.norm(v)) + 8 * v.size * EPS * steep
            scale = 1.0 / max(1.0, length * (1 + 2 * v.size * EPS))
        v, steep = scale * v, scale * steep
        support, size = self.target.support(v, parameters, scale)
        if not math.isfinite(support):
            raise TangentError("a direction in the certificate has an infinite support")
        if self.norm == "l2-squared":
            square = total(v * v)[0]
            return NodeTangent(2.0 * v, -2.0 * support - square, 2.0 * size + square, 2.0 * steep)
        return NodeTangent(v, -support, size, steep)

    def at(self, x: np.ndarray) -> Parameters:
        """The residual's sign, direction, or itself."""
        residual = self._residual(x)
        if self.norm == "l1":
            residual = np.sign(residual)
        elif self.norm == "l2":
            residual = residual / max(float(np.linalg.norm(residual)), 1e-300)
        return self.target.at(residual)


class QuadraticNode(Node):
    """|F x|^2, F diagonal (``root``, (S, A)) or full (k, S*A). Convex."""

    def __init__(self, root: np.ndarray, shape: tuple[int, int], diagonal: bool) -> None:
        self.root = np.asarray(root, dtype=np.float64)
        self.diagonal, self.shape = diagonal, shape

    def _product(self, x: np.ndarray) -> np.ndarray:
        return self.root * x if self.diagonal else self.root @ x.ravel()

    def _column_norm(self) -> float:
        if self.diagonal:
            return float(np.abs(self.root).max())
        return float(np.sqrt((self.root**2).sum(axis=0).max()))

    def value(self, x: np.ndarray) -> float:
        """The square of the norm."""
        return total(self._product(x) ** 2)[0]

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """F moves by at most its largest column times the error."""
        terms = 4 if self.diagonal else 4 + x.size
        moved = self._column_norm() * (error.size + terms * EPS * float(np.abs(x).sum()))
        length = math.sqrt(self.value(x))
        return (2 * length + moved) * moved + 8 * EPS * length**2

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """2 <v, F x> - |v|^2."""
        shape = self.shape if self.diagonal else (self.root.shape[0],)
        v = numbers(parameters, "v", shape)
        square = total(v * v)[0]
        if self.diagonal:
            back = self.root * v
            return NodeTangent(2.0 * back, -square, square, 2.0 * largest(back))
        back = (self.root.T @ v).reshape(self.shape)
        steep = largest(np.abs(self.root).T @ np.abs(v)) * (1 + v.size / 8)
        return NodeTangent(2.0 * back, -square, square, 2.0 * steep)

    def at(self, x: np.ndarray) -> Parameters:
        """v = F x."""
        return {"v": self._product(x)}


class CustomNode(Node):
    """A user's function. Its concavity (convexity), value and gradient are taken on trust."""

    def __init__(self, function: Any, shape: tuple[int, int], flow_miss: FlowMiss) -> None:
        self.function, self.shape, self.flow_miss = function, shape, flow_miss
        self.promises = (
            f"{function.name} has the curvature it was declared with on the model's occupancies, and "
            "JAX computes its value and gradient to rounding",
        )

    def value(self, x: np.ndarray) -> float:
        """Whatever the function says."""
        return float(self.function.value(x))

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """With a declared Lipschitz constant; otherwise to first order, which the promise covers."""
        declared = self.function.declared.lipschitz
        slope = float(np.abs(self.function.gradient(x)).max()) if declared is None else declared
        return slope * error.size + 64 * EPS * abs(self.value(x))

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """The gradient at any occupancy z: elsewhere nobody promised concavity (-x^3)."""
        z = numbers(parameters, "z", self.shape)
        if (z < 0).any() or not self.flow_miss(z) <= FLOW_ROUNDING * (1.0 + float(z.sum())):
            raise TangentError(
                f"'z' in the certificate, where {self.function.name} is linearised, is no occupancy"
            )
        gradient = np.asarray(self.function.gradient(z), dtype=np.float64)
        value = float(self.function.value(z))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise TangentError(f"{self.function.name} has no finite gradient at the point given")
        inner, size = total(gradient * z)
        return NodeTangent(gradient, value - inner, size + abs(value), largest(gradient))

    def at(self, x: np.ndarray) -> Parameters:
        """z = x."""
        return {"z": x}


class SumNode(Node):
    """sum_k weight_k phi_k + offset."""

    def __init__(self, weights: Sequence[float], nodes: Sequence[Node], offset: float) -> None:
        self.weights = [float(weight) for weight in weights]
        self.nodes, self.offset = list(nodes), float(offset)
        self.promises = tuple(promise for node in nodes for promise in node.promises)
        self.affine = all(node.affine for node in nodes)

    def value(self, x: np.ndarray) -> float:
        """The weighted sum."""
        values = [w * node.value(x) for w, node in zip(self.weights, self.nodes, strict=True)]
        return math.fsum([*values, self.offset])

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """The weighted sum of the drifts, and rounding."""
        drift = sum(
            abs(w) * n.drift(x, error) for w, n in zip(self.weights, self.nodes, strict=True)
        )
        size = sum(abs(w * n.value(x)) for w, n in zip(self.weights, self.nodes, strict=True))
        return drift + 4 * EPS * (size + abs(self.offset))

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """The weighted sum of tangents."""
        parts = children(parameters, len(self.nodes))
        tangents = [node.tangent(part) for node, part in zip(self.nodes, parts, strict=True)]
        pairs = list(zip(self.weights, tangents, strict=True))
        reward = sum(weight * tangent.reward for weight, tangent in pairs)
        constant = math.fsum([*(w * tangent.constant for w, tangent in pairs), self.offset])
        size = sum(abs(w) * t.size for w, t in pairs) + abs(self.offset)
        steep = sum(abs(w) * t.steep for w, t in pairs)
        terms = 1 + len(pairs) / 8  # each further term, and weights that sum to one, round again
        return NodeTangent(np.asarray(reward), constant, terms * size, terms * steep)

    def at(self, x: np.ndarray) -> Parameters:
        """Each at x."""
        return {"parts": [node.at(x) for node in self.nodes]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Each on its own."""
        columns = zip(*(one["parts"] for one in many), strict=True)
        means = [
            n.mean(list(column), weights) for n, column in zip(self.nodes, columns, strict=True)
        ]
        return {"parts": means}


class LogNode(Node):
    """log of a concave function."""

    def __init__(self, inner: Node) -> None:
        self.inner, self.promises = inner, inner.promises

    def value(self, x: np.ndarray) -> float:
        """Minus infinity outside the domain."""
        inside = self.inner.value(x)
        return math.log(inside) if inside > 0 else -math.inf

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """-log(1 - drift / value), if the inside is surely positive."""
        inside, drift = self.inner.value(x), self.inner.drift(x, error)
        if not inside > drift:
            return math.inf
        return -math.log1p(-drift / inside) + 4 * EPS * (1 + abs(math.log(inside)))

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """log t - 1 + inner / t."""
        t = float(numbers(parameters, "t", ()))
        if not 1.0 / LARGEST_FACTOR <= t <= LARGEST_FACTOR:
            raise TangentError(f"'t' in the certificate must be positive; it is {t}")
        (part,) = children(parameters, 1)
        inner = self.inner.tangent(part)
        constant = math.log(t) - 1.0 + inner.constant / t
        size = inner.size / t + abs(math.log(t)) + 1.0
        return NodeTangent(inner.reward / t, constant, size, inner.steep / t)

    def at(self, x: np.ndarray) -> Parameters:
        """t = inner(x), or something positive."""
        inside = self.inner.value(x)
        return {"t": inside if inside > 0 else 1.0, "parts": [self.inner.at(x)]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Slopes 1/t are averaged."""
        slopes = weights / np.array([float(one["t"]) for one in many])
        t = weights.sum() / slopes.sum() if slopes.sum() > 0 else many[-1]["t"]
        return {"t": t, "parts": [self.inner.mean([one["parts"][0] for one in many], slopes)]}


class MinimumNode(Node):
    """The smallest of several concave functions."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.promises = tuple(promise for node in nodes for promise in node.promises)

    def value(self, x: np.ndarray) -> float:
        """The smallest value."""
        return min(node.value(x) for node in self.nodes)

    def drift(self, x: np.ndarray, error: NodeError) -> float:
        """The largest drift."""
        return max(node.drift(x, error) for node in self.nodes)

    def tangent(self, parameters: Parameters) -> NodeTangent:
        """A convex combination of tangents."""
        weights = np.maximum(numbers(parameters, "weights", (len(self.nodes),)), 0.0)
        if not largest(weights) > 0:
            raise TangentError("the weights of a minimum in the certificate are all zero")
        weights = weights / largest(weights)  # or their sum could overflow, and all become zero
        parts = children(parameters, len(self.nodes))
        return SumNode(list(weights / weights.sum()), self.nodes, 0.0).tangent({"parts": parts})

    def at(self, x: np.ndarray) -> Parameters:
        """All weight on the smallest."""
        values = [node.value(x) for node in self.nodes]
        weights = np.zeros(len(values))
        weights[int(np.argmin(values))] = 1.0
        return {"weights": weights, "parts": [node.at(x) for node in self.nodes]}

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Each function's parameters count as much as it weighed."""
        shares = np.array([one["weights"] for one in many], dtype=np.float64)
        parts = [
            node.mean([one["parts"][k] for one in many], weights * shares[:, k])
            for k, node in enumerate(self.nodes)
        ]
        return {"weights": weighted_mean(shares, weights), "parts": parts}


def children(parameters: Parameters, count: int) -> list[Parameters]:
    """The parameters of the parts of a node."""
    parts = parameters.get("parts") if isinstance(parameters, dict) else None
    if not isinstance(parts, list) or len(parts) != count:
        raise TangentError(f"the certificate must hold parameters for {count} parts here")
    if not all(isinstance(part, dict) for part in parts):
        raise TangentError("the parameters of a part in the certificate are not a table of names")
    return parts


def read_function(function: Any, reachable: np.ndarray, flow_miss: FlowMiss) -> Node:
    """The tangents' form of a problem's function, read from its numbers.

    Args:
        function: a shape; only its kind and its numbers are looked at.
        reachable: boolean (S, A), the pairs that some policy can take.
        flow_miss: what the flow equations miss at an (S, A) array, to see that it is an occupancy.
    """
    node = _read_function(function, reachable, flow_miss)
    node.source = function
    return node


def _read_function(function: Any, reachable: np.ndarray, flow_miss: FlowMiss) -> Node:
    shape = (int(reachable.shape[0]), int(reachable.shape[1]))
    kind, parts = function.kind, function.children()

    def read(part: Any) -> Node:
        return read_function(part, reachable, flow_miss)

    if kind == "linear":
        return LinearNode(function.reward)
    if kind == "sum":
        return SumNode(function.weights, [read(part) for part in parts], function.offset)
    if kind == "entropy":
        of = "state" if function.map.rows == shape[0] != math.prod(shape) else "state-action"
        return EntropyNode(function.map.scale, of, shape, reachable)
    if kind == "relative_entropy":
        target = function.base_offset.reshape(shape) / function.map.scale
        return KLNode(target, function.map.scale, reachable)
    if kind == "norm" and function.map.is_identity:
        return DistanceNode(_read_set(function.set, shape), function.norm, shape)
    if kind == "norm":
        diagonal = not hasattr(function.map, "matrix")
        root = function.map.scale if diagonal else function.map.matrix
        return QuadraticNode(root, shape, diagonal)
    if kind == "log":
        return LogNode(read(parts[0]))
    if kind == "minimum":
        return MinimumNode([read(part) for part in parts])
    if kind == "custom":
        return CustomNode(function, shape, flow_miss)
    raise TangentError(f"there is no closed form to certify a {kind}")


def _read_set(described: Any, shape: tuple[int, int]) -> PointTarget:
    if described.kind == "point":
        return PointTarget(described.target.reshape(shape))
    if described.kind == "ball":
        return BallTarget(described.center.reshape(shape), described.radius)
    if described.kind == "box":
        return BoxTarget(described.lower.reshape(shape), described.upper.reshape(shape))
    if described.kind == "polytope":
        return PolytopeTarget(described.matrix, described.bounds)
    raise TangentError(f"there is no closed form to certify the distance to a {described.kind}")


def plain_of(node: Node) -> dict[str, Any]:
    """A function as plain data: its kind and its numbers."""
    if node.source is not None:
        return dict(node.source.plain())
    assert isinstance(node, SumNode | MinimumNode)
    parts = [plain_of(part) for part in node.nodes]
    if isinstance(node, MinimumNode):
        return {"kind": "minimum", "parts": parts}
    weights = np.array(node.weights)
    return {"kind": "sum", "weights": weights, "offset": node.offset, "parts": parts}


def parameters_of(node: Node, parameters: Parameters) -> Parameters:
    """Parameters of a tangent as the plain form takes them: vectors, and log ratios for kl."""
    if isinstance(node, KLNode):
        return {"log_ratio": (np.asarray(parameters["log_q"]) - node.log_t).ravel()}
    if isinstance(node, EntropyNode | DistanceNode | QuadraticNode):
        return {name: np.ravel(array) for name, array in parameters.items()}
    parts: list[Node] = list(getattr(node, "nodes", ()))
    parts += [node.inner] if isinstance(node, LogNode) else []
    if not parts:
        return parameters
    given = zip(parts, parameters["parts"], strict=True)
    return {**parameters, "parts": [parameters_of(part, one) for part, one in given]}
