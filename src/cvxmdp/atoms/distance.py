"""distance(target): how far the occupancy is from a point, a policy or a convex set. Convex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.function import (
    Array,
    Constants,
    OccupancyFunction,
    Space,
    detached,
    namespace,
)
from cvxmdp.atoms.sets import BoundSet, ConvexSet, Point, as_occupancy, point_like
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError, did_you_mean, require

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.occupancies import occupancy_of, uniform_policy

FLOOR = 0.01  # of the target, below which the extension of kl for sampling is linear
NORMS = ("l1", "l2", "l2-squared", "kl")


def distance(target: Any, norm: str = "l2", *, smoothing: float = 0.0) -> Utility:
    """How far the occupancy x is from ``target``. Convex.

    Args:
        target: an occupancy (an (S, A) array), a policy or a solution (their occupancy is meant), or a
            convex set: ``ball``, ``box``, ``polytope``.
        norm: "l1", "l2", "l2-squared" (the plain square, without a factor 1/2), or "kl". With p, q
            the two occupancies times (1 - discount), "kl" is sum p log(p/q) - p + q. Sets take "l2"
            and "l2-squared"; a box also "l1".
        smoothing: for "kl": mix the target with this share of the uniform policy's occupancy, which
            is positive wherever a policy can go.
    """
    if norm not in NORMS:
        raise UtilityError(f"unknown norm {norm!r}. {did_you_mean(str(norm).lower(), NORMS)}")
    if not isinstance(smoothing, Real) or not 0.0 <= smoothing < 1.0:
        raise UtilityError(f"smoothing is a share, at least 0 and less than 1; got {smoothing!r}")
    if smoothing and norm != "kl":
        raise UtilityError(f'smoothing only goes with norm="kl"; got norm={norm!r}')
    if isinstance(target, ConvexSet):
        allowed = ("l1", "l2", "l2-squared") if target.kind == "box" else ("l2", "l2-squared")
        if norm not in allowed:
            raise UtilityError(
                f"the distance to a {target.kind} is available in {', '.join(allowed)}; got {norm!r}"
            )
        return Distance(target, norm, smoothing)
    point = point_like(target, "the target of a distance")
    if norm == "kl" and isinstance(point, np.ndarray) and (point < 0).any():
        raise UtilityError("the target of a kl distance has negative entries")
    return Distance(point, norm, smoothing)


@dataclass(frozen=True, eq=False, repr=False)
class Distance(Utility):
    """A distance as written."""

    target: Any
    norm: str
    smoothing: float

    @property
    def curvature(self) -> Curvature:
        """Convex."""
        return Curvature.CONVEX

    def bind(self, mdp: TabularMDP) -> OccupancyFunction:
        """A policy becomes its occupancy; kl needs a target that is positive where policies go."""
        if isinstance(self.target, ConvexSet):
            return DistanceFunction(self.target.bind(mdp), self.norm)
        target = as_occupancy(self.target, mdp, "the target of a distance")
        if self.norm == "kl":
            return _bind_kl(target, self.smoothing, mdp)
        return DistanceFunction(Point(target), self.norm)

    def __repr__(self) -> str:
        if isinstance(self.target, np.ndarray):
            target = "<occupancy>"
        elif isinstance(self.target, ConvexSet):
            target = repr(self.target)
        else:
            target = "<policy>"
        smoothing = f", smoothing={self.smoothing:g}" if self.smoothing else ""
        return f'distance({target}, norm="{self.norm}"{smoothing})'


def _bind_kl(target: np.ndarray, smoothing: float, mdp: TabularMDP) -> OccupancyFunction:
    if smoothing:
        target = (1 - smoothing) * target + smoothing * occupancy_of(mdp, uniform_policy(mdp))
    empty = mdp.reachable_pairs & (target <= 0)
    if empty.any():
        state, action = np.argwhere(empty)[0]
        raise UtilityError(
            f"the target of the kl distance is zero at state {mdp.state_label(state)}, action "
            f"{mdp.action_label(action)} and at {int(empty.sum()) - 1} more pairs that a policy can "
            'take, so the distance of almost every policy is infinite. Use distance(..., norm="kl", '
            "smoothing=0.01), which mixes a share of the uniform policy into the target."
        )
    return KLFunction(target, 1.0 - mdp.discount)


@dataclass(frozen=True, eq=False)
class DistanceFunction(OccupancyFunction):
    """A norm of x - projection(x).

    Where the norm has a kink (l1 at equal entries, l2 at distance zero) the gradient is the
    subgradient with zeros there.
    """

    set: BoundSet
    norm: str
    static: ClassVar[tuple[str, ...]] = ("norm",)

    def _residual(self, x: Array) -> Array:
        # By the envelope theorem the projection may be held fixed while differentiating.
        return x - self.set.project(detached(x))

    def value(self, x: Array) -> Any:
        """The norm of the residual."""
        xp = namespace(x)
        residual = self._residual(x)
        if self.norm == "l1":
            # |r|, but with derivative 0 at r = 0 (jnp.abs has 1 there): inside a box it is flat
            return (residual * xp.sign(residual)).sum()
        square = (residual * residual).sum()
        if self.norm == "l2-squared":
            return square
        # sqrt has no derivative at zero; the inner where keeps automatic differentiation finite.
        return xp.where(square == 0, 0.0, xp.sqrt(xp.where(square == 0, 1.0, square)))

    def gradient(self, x: Array) -> Array:
        """Sign, direction, or twice the residual."""
        xp = namespace(x)
        residual = self._residual(x)
        if self.norm == "l1":
            return xp.sign(residual)
        if self.norm == "l2-squared":
            return 2.0 * residual
        length = xp.sqrt((residual * residual).sum())
        return residual / xp.where(length > 0, length, 1.0)

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """The norm of x - z, with z a variable of the program that lies in the set."""
        cp = require("cvxpy", "convex")
        if isinstance(self.set, Point):
            residual = x.flat - self.set.target.ravel()
        else:
            nearest = cp.Variable(x.flat.shape[0])
            x.side_constraints.extend(self.set.to_cvxpy(nearest))
            residual = x.flat - nearest
        norms = {"l1": cp.norm1, "l2": cp.norm2, "l2-squared": cp.sum_squares}
        return norms[self.norm](residual)

    def constants(self, space: Space) -> Constants:
        """l1: sqrt(S*A)-Lipschitz; l2: 1-Lipschitz; squared: 2-smooth, strong for a point."""
        reach = space.max_mass + self.set.size()  # Euclidean; no occupancy is further away
        pairs = space.n_states * space.n_actions
        if self.norm == "l1":
            return Constants(math.sqrt(pairs), None, math.sqrt(pairs) * reach)
        if self.norm == "l2":
            return Constants(1.0, None, reach)
        strength = 2.0 if isinstance(self.set, Point) else 0.0
        return Constants(2.0 * reach, 2.0, reach**2, strength)


@dataclass(frozen=True, eq=False)
class KLFunction(OccupancyFunction):
    """sum p log(p/q) - p + q with p = scale * x and q = scale * target; never negative.

    The gradient scale * log(p/q) is unbounded at p = 0. There it is evaluated at the smallest normal
    number: finite, and only met at pairs that the policy never takes. Pairs with q = 0, which no
    policy can take, count as p = 0. Below p = 0 the value is infinite.
    """

    target: Array
    scale: float

    def _ratio(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        inside = self.target > 0
        p = xp.where(inside, self.scale * x, 0.0)
        q = self.scale * self.target
        tiny = xp.finfo(p.dtype).tiny
        logs = xp.log(xp.maximum(p, tiny)) - xp.log(xp.where(inside, q, 1.0))
        return p, q, xp.where(inside, logs, 0.0)

    def value(self, x: Array) -> Any:
        """The divergence."""
        xp = namespace(x)
        p, q, logs = self._ratio(x)
        return xp.where(p < 0, xp.inf, p * logs - p + q).sum()

    def gradient(self, x: Array) -> Array:
        """Scale * log(p/q)."""
        return self.scale * self._ratio(x)[2]

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """CVXPY's kl_div over the pairs a policy can take; the others add the constant q."""
        cp = require("cvxpy", "convex")
        q = self.scale * x.select(self.target)
        outside = self.scale * (self.target.sum() - x.select(self.target).sum())
        return cp.sum(cp.kl_div(self.scale * x.pairs, q)) + outside

    def extended(self) -> OccupancyFunction:
        """Linear where p is below ``FLOOR`` times its target."""
        return ExtendedKLFunction(self.target, self.scale)


@dataclass(frozen=True, eq=False)
class ExtendedKLFunction(KLFunction):
    """The divergence with each term continued along its tangent below ``FLOOR`` times its target."""

    def _ratio(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        inside = self.target > 0
        p = xp.where(inside, self.scale * x, 0.0)
        q = self.scale * self.target
        share = xp.maximum(p / xp.where(inside, q, 1.0), FLOOR)
        return p, q, xp.where(inside, xp.log(share), 0.0)

    def value(self, x: Array) -> Any:
        """p log(r/t) - r + t with r = max(p, floor): the tangent at r."""
        xp = namespace(x)
        p, q, logs = self._ratio(x)
        return (p * logs - xp.maximum(p, FLOOR * q) + q).sum()

    def extended(self) -> OccupancyFunction:
        """Itself."""
        return self
