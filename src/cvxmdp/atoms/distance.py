"""distance(target): how far the occupancy, or a vector of returns, is from a point or a convex set. Convex."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.action_distance import NORMS as ACTION_NORMS
from cvxmdp.atoms.action_distance import ActionDistance
from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.maps import Entries
from cvxmdp.atoms.returns import ReturnsDistance, ReturnVector
from cvxmdp.atoms.sets import ConvexSet, as_occupancy, point_like
from cvxmdp.atoms.shapes import NormShape, RelativeEntropyShape, Shape
from cvxmdp.atoms.shapes.norm_sets import Singleton
from cvxmdp.atoms.utility import Utility, read_unit, scale_of
from cvxmdp.base.errors import UtilityError, did_you_mean
from cvxmdp.base.text_tables import exact
from cvxmdp.models.space import Space
from cvxmdp.models.table import model_of
from cvxmdp.policies.occupancies import occupancy_of, uniform_policy
from cvxmdp.policies.tables import TabularPolicy

NORMS = ("l1", "l2", "l2-squared", "kl", "chi2")
DIVERGENCES = ("kl", "chi2")  # of distributions: smoothing and units go with them


def distance(
    target: Any,
    to: Any = None,
    *,
    norm: str = "l2",
    smoothing: float = 0.0,
    of: str = "occupancy",
    unit: float | None = None,
) -> Utility:
    """How far the occupancy x, the decisions in it or returns are from ``target``. Convex.

    Args:
        target: an occupancy (an (S, A) array), a policy (or a mapping from states to actions) or a solution
            (their occupancy is meant), or a convex set: ``ball``, ``box``, ``polytope``. Or
            ``returns(r_1, ..., r_k)``, and then
        to: what the vector of these returns is compared with: a vector of k numbers, a policy or a solution
            (their returns are meant), or a convex set in R^k.
        norm: "l1", "l2", "l2-squared" (the plain square, without a factor 1/2), "kl" or "chi2". With p, q
            the two occupancies times (1 - discount), "kl" is sum p log(p/q) - p + q and "chi2" is
            sum (p - q)^2 / q. Sets take "l2" and "l2-squared"; a box also "l1". Returns have neither
            "kl" nor "chi2".
        smoothing: for "kl" and "chi2": mix the target with this share of the uniform policy's occupancy, which
            is positive wherever a policy can go.
        of: "occupancy"; or "actions" for the change of decisions against a policy pi_0 (or the (S, A) array
            of its probabilities), weighted by how often they are taken: sum_s d(s) |pi(.|s) - pi_0(.|s)|_1
            for "l1", or with the divergence KL(pi(.|s) || pi_0(.|s)) for "kl", d the state distribution.
        unit: for "kl", "chi2" and of "actions": what occupancies are divided by instead of the model's own.
    """
    unit = read_unit(unit)
    if unit is not None and norm not in DIVERGENCES and of != "actions":
        raise UtilityError(
            f'unit only goes with norm="kl" or "chi2" and of="actions"; got norm={norm!r}'
        )
    if of not in ("occupancy", "actions"):
        raise UtilityError(f'distance is of "occupancy" or "actions"; got {of!r}')
    if norm not in NORMS:
        raise UtilityError(f"unknown norm {norm!r}. {did_you_mean(str(norm).lower(), NORMS)}")
    if not isinstance(smoothing, Real) or not 0.0 <= smoothing < 1.0:
        raise UtilityError(f"smoothing is a share, at least 0 and less than 1; got {smoothing!r}")
    if smoothing and norm not in DIVERGENCES:
        raise UtilityError(f'smoothing only goes with norm="kl" or "chi2"; got norm={norm!r}')
    if isinstance(target, ReturnVector):
        return _of_returns(target, to, norm, of)
    if to is not None:
        raise UtilityError(
            f"distance(target) takes one target; got {to!r} besides. A norm is given by name, "
            'distance(target, norm="l1"); returns are compared with a second argument, '
            "distance(returns(...), box(...))."
        )
    if of == "actions":
        return _of_actions(target, norm, float(smoothing), unit)
    point = _read_target(target, norm)
    if isinstance(point, np.ndarray) and point.ndim != 2:
        raise UtilityError(
            f"the target of a distance must be a finite (S, A) array; got shape {point.shape}. A vector of "
            "returns has a distance as well: distance(returns(...), vector)."
        )
    if norm in DIVERGENCES and isinstance(point, np.ndarray) and (point < 0).any():
        raise UtilityError(f"the target of a {norm} distance has negative entries")
    return Distance(point, norm, smoothing, unit)


def _read_target(target: Any, norm: str) -> Any:
    """A point or a set, which has not every norm."""
    if not isinstance(target, ConvexSet):
        return point_like(target, "the target of a distance")
    allowed = ("l1", "l2", "l2-squared") if target.kind == "box" else ("l2", "l2-squared")
    if norm not in allowed:
        raise UtilityError(
            f"the distance to a {target.kind} is available in {', '.join(allowed)}; got {norm!r}"
        )
    return target


def _of_returns(vector: ReturnVector, to: Any, norm: str, of: str) -> Utility:
    if to is None:
        raise UtilityError(
            f"distance({vector!r}) needs a second argument, what the returns are compared with: a vector "
            "of numbers, a policy, ball(...), box(...) or polytope(...)"
        )
    if norm in DIVERGENCES or of != "occupancy":
        asked = f'norm="{norm}"' if norm in DIVERGENCES else f"of={of!r}"
        raise UtilityError(
            f"the distance of returns is available in l1, l2 and l2-squared; got {asked}"
        )
    return ReturnsDistance(vector.rewards, _read_target(to, norm), norm)


def _of_actions(target: Any, norm: str, smoothing: float, unit: float | None) -> Utility:
    policy = (
        None if isinstance(target, ConvexSet) else point_like(target, "the target of a distance")
    )
    if isinstance(policy, np.ndarray):
        policy = TabularPolicy(policy)
    if policy is None:
        raise UtilityError(
            'distance(..., of="actions") compares with a policy, its probabilities as an (S, A) array, or a '
            f"solution; got {target!r}"
        )
    if norm not in ACTION_NORMS:
        raise UtilityError(
            f"the distance of actions is available in {', '.join(ACTION_NORMS)}: give norm="
            f'"{ACTION_NORMS[0]}"; got {norm!r}'
        )
    return ActionDistance(policy, norm, smoothing, unit)


@dataclass(frozen=True, eq=False, repr=False)
class Distance(Utility):
    """A distance as written."""

    target: Any
    norm: str
    smoothing: float
    unit: float | None = None
    word: ClassVar[str] = "distance"
    bends: ClassVar[Curvature] = Curvature.CONVEX
    nonnegative: ClassVar[bool] = True

    def lower(self, space: Space) -> Shape:
        """A policy becomes its occupancy; divergences need a target that is positive where policies go."""
        whole = Entries(None, space.shape)
        if isinstance(self.target, ConvexSet):
            return NormShape(whole, self.target.lower(space), self.norm)
        target = as_occupancy(self.target, space, "the target of a distance")
        if self.norm in DIVERGENCES:
            return self._divergence(target, space)
        return NormShape(whole, Singleton(target.ravel()), self.norm)

    def _divergence(self, target: np.ndarray, space: Space) -> Shape:
        """With q fixed, chi2 is the squared length of (p - q) / sqrt(q)."""
        if self.smoothing:
            mdp, share = model_of(space, "smoothing"), self.smoothing
            target = (1 - share) * target + share * occupancy_of(mdp, uniform_policy(mdp))
        self._require_positive(target, space)
        scale = scale_of(self.unit, space)
        q = scale * target.ravel()
        if self.norm == "kl":
            return RelativeEntropyShape(Entries(scale, target.shape), None, q)
        root = np.sqrt(q)
        inverse = np.where(root > 0, scale / np.where(root > 0, root, 1.0), 0.0)
        return NormShape(
            Entries(inverse.reshape(target.shape), target.shape), Singleton(root), "l2-squared"
        )

    def _require_positive(self, target: np.ndarray, space: Space) -> None:
        empty = space.reachable_pairs & (target <= 0)
        if empty.any():
            state, action = np.argwhere(empty)[0]
            raise UtilityError(
                f"the target of the {self.norm} distance is zero at state {space.state_label(state)}, action "
                f"{space.action_label(action)} and at {int(empty.sum()) - 1} more pairs that a policy can "
                "take, so the distance of almost every policy is infinite. Use distance(..., "
                f'norm="{self.norm}", smoothing=0.01), which mixes some of the uniform policy into the target.'
            )

    def target_occupancy(self, space: Space) -> np.ndarray | None:
        if isinstance(self.target, ConvexSet):
            return None
        return as_occupancy(self.target, space, "the target")

    def __repr__(self) -> str:
        if isinstance(self.target, np.ndarray):
            target = "<occupancy>"
        elif isinstance(self.target, ConvexSet):
            target = repr(self.target)
        else:
            target = "<policy>"
        smoothing = f", smoothing={exact(self.smoothing)}" if self.smoothing else ""
        unit = "" if self.unit is None else f", unit={exact(self.unit)}"
        return f'distance({target}, norm="{self.norm}"{smoothing}{unit})'
