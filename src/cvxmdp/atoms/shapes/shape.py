r"""Shapes: what utilities lower to once the model is known. This file names their faces.

A shape is a small immutable record of numbers (a JAX pytree), so that compiled code takes it as an argument:
another budget or target is another number, not another compilation. It is a function phi(u) of a linear map
u = M x of the occupancy x, shape (S, A), or a sum, logarithm or minimum of others. Its faces:

- ``value(x)`` and ``gradient(x)``: NumPy in, NumPy float64 out, whatever JAX's precision flag; JAX in, JAX out,
  traceable. Where the function has a kink, the gradient is one element of the super- (sub-) differential.
  Where the gradient is unbounded at the border of the domain, the shape's own docstring says what is returned;
- ``affine()``: the reward and the offset when the function is affine, else None; ``pieces()``: several of them
  where it is their minimum;
- ``extended()``: the same function beyond its domain, for samplers only; ``softened(x)``: with its kinks made
  round;
- ``conic(program)``: the CVXPY form of phi(u), and how the tangent's parameters are read off its duals;
- ``tangent(parameters)``: an affine function that is nowhere below a concave phi (nowhere above a convex one),
  whatever admissible parameters are given (Fenchel's inequality); ``at(x)``: parameters that are good near x;
  ``mean(...)``: of an average of tangents; ``from_slope(...)``: from the duals of u = M x;
- ``second(at, rounding)``: value, gradient and Hessian in the weights of a mixture of occupancies;
- ``modulus(...)``: by how much the value changes when x moves;
- ``constants(space)``: what the paper's assumption on utilities asks for, where it is known;
- ``kind`` and ``plain()``: the shape as plain data, for files, fingerprints and the checker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from cvxmdp.atoms.maps import FirstRows, Map, OverTime, Taller
from cvxmdp.atoms.walks import Tree
from cvxmdp.base.arrays import Array
from cvxmdp.base.interval import Interval
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.space import Space

Parameters = dict[str, Any]  # of a tangent: arrays by name, and "parts" of the same kind
Plain = dict[str, Any]  # numbers, text, arrays, csr arrays and tables of such
SignalEnds = Mapping[str, tuple[np.ndarray, np.ndarray]]  # the least and the largest, by name
TINY = 1e-300
NEGLIGIBLE = 1e-9  # a factor below which a slope cannot be read off a dual


class Affine(NamedTuple):
    """<reward, x> + offset."""

    reward: np.ndarray  # (S, A)
    offset: float


@dataclass(frozen=True)
class Constants:
    """The paper's assumption on utilities, over occupancies of the model; None where not known.

    Attributes:
        lipschitz: M_lambda, a bound on the Euclidean norm of the gradient.
        smoothness: l_lambda, |grad f(x) - grad f(y)|_inf <= l_lambda |x - y|.
        bound: M, a bound on |f|.
        strength: sigma such that f is sigma-strongly concave (convex) in the Euclidean norm; 0 if
            it is not.
    """

    lipschitz: float | None
    smoothness: float | None
    bound: float | None
    strength: float = 0.0


class Local(NamedTuple):
    """A function of the weights of a mixture, at a mixture."""

    value: float
    gradient: np.ndarray  # (K,)
    hessian: np.ndarray  # (K, K)
    parameters: Parameters  # of the tangent there


class Mixed(NamedTuple):
    """What a shape looks at of a mixture of K occupancies, for each of its ``maps``.

    Attributes:
        images: M x_k of the occupancies, (K, rows) each.
        u: M x of the mixture, (rows,) each.
        live: boolean (rows,) each: rows that some policy can make differ from zero.
    """

    images: tuple[np.ndarray, ...]
    u: tuple[np.ndarray, ...]
    live: tuple[np.ndarray, ...]


class Move(NamedTuple):
    """How far an occupancy moves, in two norms."""

    l1: float
    l2: float


class Modulus(NamedTuple):
    """phi = outer(inner), inner with the modulus of continuity ``omega``, everywhere at once.

    Attributes:
        omega: |inner(x) - inner(y)| <= omega(|x - y|).
        squared: the outer function is the square of an inner one that is never negative.
        floor, ceiling: no occupancy has a smaller or larger value.
        promise: what a user said, and this rests on.
    """

    omega: Callable[[Any], float]  # of anything with ``l1`` and ``l2``
    squared: bool = False
    floor: float = 0.0
    ceiling: float = math.inf
    promise: str = ""


class ConicProgram(Protocol):
    """What ``Shape.conic`` is written in: a program over the pairs that some policy can take."""

    cp: Any  # the module cvxpy

    def inner(self, reward: np.ndarray) -> Any:
        """<reward, x>."""

    def image(self, map: Map) -> Any:
        """U = M x, (rows,); rows that no policy can move are zero."""

    def live(self, map: Map) -> np.ndarray:
        """Rows of the map that some policy can move, as indices."""

    def size(self, function: Callable[[np.ndarray], Any]) -> float:
        """Of the function's values: the unit in which the solver is to see them."""

    def require(self, *constraints: Any) -> None:
        """Add constraints to the program."""


class ConicForm(NamedTuple):
    """A shape in CVXPY, and its tangent's parameters once the program is solved.

    Attributes:
        expression: the CVXPY expression.
        parameters: of the tangent, given the factor that stands before the shape in the Lagrangian
            and the optimal occupancy.
    """

    expression: Any
    parameters: Callable[[float, np.ndarray], Parameters]


class Shape(Tree["Shape"], Pytree):
    """A concave or convex function of the occupancy; the module's docstring lists its faces."""

    kind: ClassVar[str]
    roughness: ClassVar[str] = "it is not known"  # why it has no smoothness constant
    trusted: ClassVar[bool] = False  # a user's own function, known at occupancies only
    additive: ClassVar[bool] = False  # a weighted sum of its children
    signal: str = ""  # an estimated signal that it is a multiple of the return of
    # The parameter, if the tangent's constant is a sum of its exponentials.
    log_parameter: ClassVar[str] = ""

    def value(self, x: Array) -> Any:
        """The function's value at x, shape ()."""
        raise NotImplementedError

    def gradient(self, x: Array) -> Array:
        """A gradient at x, shape (S, A)."""
        raise NotImplementedError

    def affine(self) -> Affine | None:
        """Reward and offset when the function is affine, else None."""
        return None

    def pieces(self) -> list[Affine] | None:
        """Affine functions whose minimum it is, else None."""
        affine = self.affine()
        return None if affine is None else [affine]

    def extended(self) -> Shape:
        """The same function, extended to points that are no occupancies.

        The recursive estimates of sampling algorithms leave the simplex and have negative entries, where
        entropy, kl and logarithms are not defined. Below a floor those go on along their tangent: concave
        (convex) and continuously differentiable. For sampling only; certificates and exact solvers use
        the function itself.
        """
        return self.with_children([part.extended() for part in self.children()])

    def softened(self, x: np.ndarray) -> Shape:
        """The function with its kinks made round, see ``softened``; x, a typical occupancy, gives the scale.

        A function without kinks is returned as it is. Kinks inside a function of the user's own are not seen.
        """
        parts = [part.softened(x) for part in self.children()]
        same = all(new is old for new, old in zip(parts, self.children(), strict=True))
        return self if same else self.with_children(parts)

    def followed(self, x: Array) -> Shape:
        """A softened function whose dual weights have moved towards those at x."""
        return self.with_children([part.followed(x) for part in self.children()])

    def floored(self, floor: Any) -> Shape:
        """With another floor than that of ``extended``, where something must be positive."""
        return self

    @property
    def has_conic_form(self) -> bool:
        """Whether CVXPY can write it: all but functions of the user's own."""
        return all(part.has_conic_form for part in self.children())

    def conic(self, program: ConicProgram) -> ConicForm:
        """The function in CVXPY; only where ``has_conic_form``."""
        raise NotImplementedError

    def tangent(self, parameters: Parameters) -> Affine:
        """The affine bound of these parameters."""
        raise NotImplementedError

    def at(self, x: np.ndarray) -> Parameters:
        """Parameters of the tangent at (or near) x."""
        raise NotImplementedError

    def from_slope(self, slope: np.ndarray, rows: np.ndarray, near: Parameters) -> Parameters:
        """Parameters of the tangent with this slope in u at these rows, and as nearby in the others."""
        raise NotImplementedError

    def log_weights(self) -> np.ndarray | None:
        """With a ``log_parameter``: log q is the parameter plus this, (rows,); None where q is not fixed."""
        return None

    def mean(self, many: Sequence[Parameters], weights: np.ndarray) -> Parameters:
        """Parameters of a tangent about as good as the weighted mean of these."""
        return {
            name: weighted_mean([one[name] for one in many], weights) for name in (many[-1] or {})
        }

    def maps(self) -> tuple[Map, ...]:
        """The linear maps that a shape without children looks through."""
        return ()

    def mixed_value(self, at: Mixed, rounding: float) -> float:
        """The value at a mixture, kinks made round to the safe side by ``rounding``."""
        raise NotImplementedError

    def second(self, at: Mixed, rounding: float) -> Local:
        """The same with gradient and Hessian in the weights of the mixture, and the tangent there.

        The Hessian is a product with mapped columns. The gradient of the rounded function is a convex
        combination of those that meet at a kink, and gives the dual weights that a certificate needs:
        linearising at the kink itself would prove nothing.
        """
        raise NotImplementedError

    def combined_value(self, values: Sequence[float], rounding: float = 0.0) -> float:
        """The value of a combination, from values of its children: monotone in each."""
        raise NotImplementedError

    def combined(self, parts: Sequence[Local], rounding: float) -> Local:
        raise NotImplementedError

    def combined_interval(self, parts: Sequence[Interval]) -> tuple[float, float]:
        """Where the value lies when every child lies in its interval; monotone: ends go to ends."""
        lower, upper = zip(*((part.lower, part.upper) for part in parts), strict=True)
        return self.combined_value(lower), self.combined_value(upper)

    def modulus(self, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
        """By how much a shape without children changes when x moves; None where that is not known.

        Args:
            one_hot: whether occupancies are those of a table (or of bins); entropy and kl need that.
            pairs: boolean (S, A), the entries that can differ from zero.
        """
        return None

    def constants(self, space: Space) -> Constants:
        """The constants of the paper's assumption, where known."""
        return Constants(None, None, None)

    def plain(self) -> Plain:
        """The kind and the numbers, as plain data."""
        raise NotImplementedError

    def of_taller(self, shape: tuple[int, int], by: Taller) -> Shape:
        """The same function of a taller array, of this shape: of its first rows, or its sum over time."""
        return self.with_children([part.of_taller(shape, by) for part in self.children()])

    def worst_at(self, unknown: np.ndarray, known: np.ndarray, sign: float = 1.0) -> Shape:
        """The same with the worst coefficient of all in states of which nothing is known.

        Linear parts take it; all others see mass that stays in one place, which entropy, distances and
        logarithms of returns punish already.

        Args:
            unknown: boolean (S,).
            known: boolean (S, A), the pairs that coefficients are compared on.
            sign: negative where the function is subtracted from what is maximised.
        """
        pairs = zip(self.factors(), self.children(), strict=True)
        parts = [part.worst_at(unknown, known, sign * factor) for factor, part in pairs]
        return self.with_children(parts)

    def hopeful(self, ends: SignalEnds, sign: float = 1.0) -> Shape:
        """The same with estimated signals at the ends where it is largest.

        Args:
            ends: the least and the largest value of estimated signals, (S, A) each, by name.
            sign: negative where the function is subtracted from what is maximised.
        """
        pairs = zip(self.factors(), self.children(), strict=True)
        return self.with_children([part.hopeful(ends, sign * factor) for factor, part in pairs])

    def closest(self, x: np.ndarray) -> np.ndarray | None:
        """Where a distance, seen from x, is zero, (S, A); None for all else, or where nobody knows."""
        return None

    def target(self) -> np.ndarray | None:
        """The occupancy that a distance is taken to, (S, A); None for all else."""
        return None


@dataclass(frozen=True, eq=False)
class Composite(Shape):
    """A function of other ones."""

    parts: tuple[Shape, ...]

    def children(self) -> tuple[Shape, ...]:
        return self.parts

    def with_children(self, children: Sequence[Shape]) -> Self:
        return replace(self, parts=tuple(children))

    def plain(self) -> Plain:
        return {"kind": self.kind, "parts": [part.plain() for part in self.parts]}


@dataclass(frozen=True, eq=False)
class MappedShape(Shape):
    """A function phi(M x) of a linear map."""

    map: Map

    def maps(self) -> tuple[Map, ...]:
        return (self.map,)

    def of_taller(self, shape: tuple[int, int], by: Taller) -> Shape:
        # A map of signals looks at their rows already.
        return self if self.map.shape == shape else replace(self, map=by(self.map, shape))


def measured(function: Shape, space: Space) -> Shape:
    """The function of what is measured of a space: signals' rows lie below, or each time has rows."""
    if space.measured == space.shape:
        return function
    by: Taller = FirstRows if space.horizon.steps is None else OverTime
    return function.of_taller(space.measured, by)


def slope_of(dual: Any, factor: float) -> np.ndarray | None:
    """The slope of a shape from the dual of its cone and the factor before it; None where that says nothing."""
    if dual is None or abs(factor) < NEGLIGIBLE:
        return None
    return np.ravel(np.asarray(dual, dtype=np.float64)) / factor


def weighted_mean(arrays: Any, weights: np.ndarray) -> Any:
    """The mean, or the last one where all weights are zero."""
    if not weights.sum() > 0:
        return np.asarray(arrays[-1], dtype=np.float64)
    return np.tensordot(weights / weights.sum(), np.asarray(arrays, dtype=np.float64), axes=1)
