"""norm(returns(r_1, ..., r_k)), and how far a vector of returns is from a point or a set. Convex.

The set is one of return vectors in R^k, not of occupancies, as in the work that the paper cites for its example
on convex sets. In x this is a distance under the map x -> (<r_1, x>, ..., <r_k, x>).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import Linear, linear, utility_of
from cvxmdp.atoms.maps import DenseMap
from cvxmdp.atoms.minimum import maximum
from cvxmdp.atoms.sets import ConvexSet, spelled
from cvxmdp.atoms.shapes import NormShape, Shape
from cvxmdp.atoms.shapes.norm_sets import NormSet, Singleton
from cvxmdp.atoms.shapes.shape import measured
from cvxmdp.atoms.utility import Utility, require_curvature
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.space import Space
from cvxmdp.models.table import model_of
from cvxmdp.policies.occupancies import measured_occupancy


@dataclass(frozen=True, repr=False)
class ReturnVector:
    """The returns of several rewards, as ``distance`` takes them."""

    rewards: tuple[Utility, ...]

    def __repr__(self) -> str:
        return f"returns({', '.join(_named(reward) for reward in self.rewards)})"


def returns(*rewards: Any) -> ReturnVector:
    """The vector of the returns of several rewards, (<r_1, x>, ..., <r_k, x>), for ``distance``.

    Args:
        *rewards: names of signals, arrays (S,) or (S, A), or sums of ``linear`` such as
            ``linear("cost", per="step")``; no constants, which belong into the target.
    """
    if not rewards:
        raise UtilityError("returns needs at least one reward")
    parts = tuple(given if isinstance(given, Utility) else linear(given) for given in rewards)
    for part in parts:
        if require_curvature(part, Curvature.CONCAVE, "returns").curvature is not Curvature.AFFINE:
            raise UtilityError(f"returns takes rewards, which are linear in x; got {part!r}")
        if part.offset:
            raise UtilityError(
                f"returns takes rewards without a constant; got {part!r}. Move the target instead."
            )
    return ReturnVector(parts)


def norm(vector: Any, kind: str = "l2") -> Utility:
    """A norm of a vector of returns. Convex.

    Args:
        vector: ``returns(r_1, ..., r_k)``; or one affine utility or signal, whose absolute value is meant.
        kind: "l1", "l2" or "linf", the largest absolute value.
    """
    if kind not in ("l1", "l2", "linf"):
        raise UtilityError(
            f'a norm is "l1", "l2" or "linf"; got {kind!r}. The square of a return is square(...), of a vector '
            'of them distance(returns(...), zeros, norm="l2-squared").'
        )
    if isinstance(vector, list | tuple) and all(isinstance(one, str | Utility) for one in vector):
        vector = returns(*vector)
    if not isinstance(vector, ReturnVector):
        return NormOfReturns.of(utility_of(vector), "l1")
    if kind == "linf":
        return maximum(*(part for reward in vector.rewards for part in (reward, -reward)))
    return NormOfReturns(vector.rewards, np.zeros(len(vector.rewards)), kind)


@dataclass(frozen=True, eq=False, repr=False)
class ReturnsDistance(Utility):
    """A norm of the vector of returns to a point (or a policy's returns), or to a set of R^k."""

    rewards: tuple[Utility, ...]
    target: Any
    norm: str
    word: ClassVar[str] = "distance of returns"
    bends: ClassVar[Curvature] = Curvature.CONVEX
    nonnegative: ClassVar[bool] = True

    def lower(self, space: Space) -> Shape:
        """The rows of the map are the rewards."""
        seen = DenseMap(
            np.stack([self._row(reward, space) for reward in self.rewards]), space.measured
        )
        return NormShape(seen, self._set(space, seen), self.norm)

    @staticmethod
    def _row(reward: Utility, space: Space) -> np.ndarray:
        affine = measured(reward.lower(space), space).affine()
        assert affine is not None, "returns() checked that"
        return affine.reward.ravel()

    def _set(self, space: Space, seen: DenseMap) -> NormSet:
        shape = (len(self.rewards),)

        def read_point(point: Any, what: str) -> np.ndarray:
            if not isinstance(point, np.ndarray):
                return np.asarray(seen.apply(measured_occupancy(model_of(space, what), point)))
            if point.shape != shape:
                raise UtilityError(
                    f"{what} has shape {point.shape}; a number is needed for each of {shape[0]} returns"
                )
            return point

        if isinstance(self.target, ConvexSet):
            return self.target.among(shape, read_point)
        return Singleton(read_point(self.target, "the target of a distance of returns"))

    def children(self) -> tuple[Utility, ...]:
        return self.rewards

    def with_children(self, children: Sequence[Utility]) -> Utility:
        return replace(self, rewards=tuple(children))

    def __repr__(self) -> str:
        target = (
            self.target.spelled() if isinstance(self.target, ConvexSet) else spelled(self.target)
        )
        return f'distance({ReturnVector(self.rewards)!r}, {target}, norm="{self.norm}")'


@dataclass(frozen=True, eq=False, repr=False)
class NormOfReturns(ReturnsDistance):
    """|r - t| or (r - t)^2 of one return, or a norm of several."""

    word: ClassVar[str] = "norm of returns"

    @classmethod
    def of(cls, utility: Utility, norm: str) -> NormOfReturns:
        """Of an affine utility: its constant becomes the target."""
        rule = "|u| and u^2 fall and rise, so they are convex of affine utilities only"
        for wanted in (Curvature.CONCAVE, Curvature.CONVEX):
            require_curvature(utility, wanted, "norm", rule)
        return cls((utility - utility.offset,), np.array([-utility.offset]), norm)

    @property
    def argument(self) -> Utility:
        """Of one return: with its constant."""
        return self.rewards[0] - float(self.target[0])

    def __repr__(self) -> str:
        if self.norm == "l2-squared":
            return f"square({self.argument!r})"
        inside = self.argument if len(self.rewards) == 1 else ReturnVector(self.rewards)
        return f'norm({inside!r}, "{self.norm}")'


def _named(reward: Utility) -> str:
    """A signal by its name alone, as it was probably written."""
    plain = isinstance(reward, Linear) and reward.per == "total" and reward.signals()
    return f'"{reward.signals()[0]}"' if plain else repr(reward)
