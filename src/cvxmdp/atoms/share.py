"""share(c) <= b: the share of the steps taken, <c, x> / <1, x>. No concave function: it is only compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.linear import Linear, OfReward, linear, per_pair
from cvxmdp.atoms.shapes import LinearShape, Shape
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.space import Space
from cvxmdp.models.table import model_of


def share(signal: Any) -> Utility:
    """The share of the steps taken that a signal marks, for comparison: ``share("hazard") <= 0.05``.

    Where episodes end, steps after the end are none: the share is <c, x> / <1, x>, of discounted steps where
    the model has a discount. The constraint <c - b, x> <= 0 is linear, the share itself is not; maximising
    one is average reward on ``mdp.restarting()``.

    Args:
        signal: the name of one of the model's signals, or an array (S,) or (S, A), by time (T, S, A).
    """
    given = linear(signal)
    assert isinstance(given, Linear)
    return Share(given.reward)


@dataclass(frozen=True, eq=False, repr=False)
class Share(OfReward):
    """A share as written."""

    word: ClassVar[str] = "share"
    bends: ClassVar[Curvature] = Curvature.UNKNOWN
    bends_in_budget: ClassVar[bool] = True

    def lower(self, space: Space) -> Shape:
        raise UtilityError(
            f"{self!r} is a quotient: it can be compared with a number, and nothing else. To maximise a share, "
            "take average reward on mdp.restarting()."
        )

    def check_comparison(self, sense: str, shown: str) -> None:
        """Both ways are linear."""

    def slack(self, sense: str, budget: float) -> Utility:
        return ShareSlack(self.reward, budget, 1.0 if sense == "<=" else -1.0)

    def measured(self, bind: Callable[[Utility], Shape], x: np.ndarray) -> float:
        return float(bind(Linear(self.reward, "total")).value(x)) / float(x.sum())

    def __repr__(self) -> str:
        return repr(Linear(self.reward, "total")).replace("linear", "share", 1)


@dataclass(frozen=True, eq=False, repr=False)
class ShareSlack(OfReward):
    """sign * <b - c, x>: the slack of a share with the budget b."""

    budget: float
    sign: float
    word: ClassVar[str] = "slack of a share"
    bends: ClassVar[Curvature] = Curvature.AFFINE

    def lower(self, space: Space) -> Shape:
        mdp = model_of(space, "share")
        reward = per_pair(self.reward, space)  # by time, the rows of all steps above each other
        available = np.tile(mdp.actions, (len(reward) // mdp.n_states, 1))
        left = np.where(available, self.budget - reward, 0.0)
        return LinearShape(self.sign * left)

    def __repr__(self) -> str:
        return f"the slack of {Share(self.reward)!r}"
