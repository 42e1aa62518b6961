"""The tail of an episode's cost: chances to exceed a number, and CVaR by its auxiliary threshold. Affine.

With q_j the probability that an episode ends at the level l_j of a budget state (``mdp.with_budget_state``),
which is linear in the occupancy,

    chance of C > b = sum_{l_j > b} q_j,      CVaR_a(C) = min_t  t + E (C - t)^+ / (1 - a)

(Rockafellar and Uryasev, 2000). For each threshold t the right-hand side is linear and not below the CVaR: a
constraint on it is safe whatever t is, and the best t is one of the levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.shapes import LinearShape, Shape
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.text_tables import exact
from cvxmdp.models.budget_states import OVER, SAME, SO_FAR
from cvxmdp.models.space import Space
from cvxmdp.models.table import model_of


def chance(cost: str, above: float) -> Utility:
    """The probability that an episode costs more than a number: ``chance("cost", above=10) <= 0.05``. Affine.

    Args:
        cost: a signal that is part of the state, by ``mdp.with_budget_state(cost, levels)``.
        above: the number.
    """
    return Tail(_named(cost), _number(above, "above"), False)


def excess(cost: str, above: float) -> Utility:
    """The mean of what an episode costs beyond a number, E (C - above)^+. Affine.

    Args:
        cost: a signal that is part of the state, by ``mdp.with_budget_state(cost, levels)``.
        above: the number.
    """
    return Tail(_named(cost), _number(above, "above"), True)


def cvar(cost: str, level: float, threshold: float) -> Utility:
    """The CVaR of an episode's cost with a given threshold, threshold + excess / (1 - level). Affine.

    It is not below the true CVaR, the mean of the worst share 1 - level of the episodes, and equal to it where
    the threshold is their quantile. ``least_cvar`` and ``within_cvar`` find the best one.

    Args:
        cost: a signal that is part of the state, by ``mdp.with_budget_state(cost, levels)``.
        level: such as 0.95, at least 0 and less than 1.
        threshold: t.
    """
    if not isinstance(level, Real) or not 0.0 <= level < 1.0:
        raise UtilityError(f"the level of a CVaR is at least 0 and less than 1; got {level!r}")
    worst = 1 - Fraction(str(float(level)))  # as written: 1 - 0.95 is 1/20
    return excess(cost, threshold) * float(1 / worst) + float(threshold)


def _named(cost: Any) -> str:
    if not isinstance(cost, str):
        raise UtilityError(f"the tail is that of a signal, by its name; got {cost!r}")
    return cost


def _number(given: Any, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given):
        raise UtilityError(f"{what} must be a number; got {given!r}")
    return float(given)


@dataclass(frozen=True, eq=False, repr=False)
class Tail(Utility):
    """The chance that an episode's cost exceeds a number, or the mean of what it does so by."""

    cost: str
    above: float
    mean: bool
    word: ClassVar[str] = "tail"
    bends: ClassVar[Curvature] = Curvature.AFFINE
    nonnegative: ClassVar[bool] = True

    def lower(self, space: Space) -> Shape:
        mdp = model_of(space, "the tail of a cost")
        if not mdp.horizon.plain_sums:
            raise UtilityError(
                f"{self!r} speaks of whole episodes: discount=1; the model has {mdp.horizon}"
            )
        missing = {self.cost + SO_FAR, self.cost + OVER} - set(mdp.signal_names)
        if missing:
            raise UtilityError(
                f"{self!r} needs what an episode has cost so far: "
                f"mdp.with_budget_state({self.cost!r}, levels=...)"
            )
        after, over = mdp.signal(self.cost + SO_FAR), mdp.signal(self.cost + OVER) > 0
        if not self.mean:
            room = SAME * max(1.0, abs(self.above))
            return LinearShape(mdp.ending * (over | (after > self.above + room)))
        if (over & (mdp.ending > 0) & mdp.reachable_pairs).any():
            raise UtilityError(
                f"{self!r}: episodes can cost more than the last level, {after.max():g}, and nobody knows "
                f"how much. Give with_budget_state({self.cost!r}, levels=...) levels up to what one can cost."
            )
        return LinearShape(mdp.ending * np.maximum(after - self.above, 0.0))

    def signals(self) -> tuple[str, ...]:
        return (self.cost + SO_FAR, self.cost + OVER)

    def __repr__(self) -> str:
        name = "excess" if self.mean else "chance"
        return f'{name}("{self.cost}", above={exact(self.above)})'
