"""linear(r) = <r, x>: the discounted return of a reward or cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.shapes import LinearShape, Shape
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.masks import refuse_masked
from cvxmdp.models.horizon import UNITS
from cvxmdp.models.space import Space


def linear(reward: Any, *, per: str = "total") -> Utility:
    """The discounted sum of a reward or cost, <r, x>. Affine.

    Args:
        reward: the name of one of the model's signals, or an array (S,) or (S, A); (T, S, A) with a horizon
            of T steps.
        per: "total" for the discounted sum; "step" for (1 - discount) times it, the average per step
            of an unending episode; "episode" for the plain sum over an episode, with discount=1.
    """
    if per not in UNITS:
        known = " or ".join(f'"{one}"' for one in UNITS)
        raise UtilityError(f"per must be {known}; got {per!r}")
    if isinstance(reward, str):
        return Linear(reward, per)
    if isinstance(reward, Mapping):
        raise UtilityError(
            "linear takes the name of a signal or an array of numbers; numbers by name are a signal of the "
            'model: mdp.with_signals(broken={"worn out": 1.0}), then linear("broken")'
        )
    try:
        refuse_masked(reward)
        array = np.array(reward, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UtilityError(
            f"linear takes the name of a signal or an array of numbers ({error}); got {reward!r}"
        ) from error
    if array.ndim not in (1, 2, 3) or not np.isfinite(array).all():
        raise UtilityError(
            f"linear takes a finite array of shape (S,), (S, A) or (T, S, A); got shape {array.shape}"
            + ("" if np.isfinite(array).all() else " with NaN or infinity in it")
        )
    array.flags.writeable = False
    return Linear(array, per)


def utility_of(given: Any) -> Utility:
    """A utility as it is, and a signal's name or an array as its return."""
    return given if isinstance(given, Utility) else linear(given)


@dataclass(frozen=True, eq=False, repr=False)
class OfReward(Utility):
    """What is made of one reward: a signal's name or an array."""

    reward: str | np.ndarray

    def signals(self) -> tuple[str, ...]:
        return (self.reward,) if isinstance(self.reward, str) else ()


@dataclass(frozen=True, eq=False, repr=False)
class Linear(OfReward):
    """A linear utility as written: a reward and its unit."""

    per: str
    word: ClassVar[str] = "linear"
    bends: ClassVar[Curvature] = Curvature.AFFINE

    def lower(self, space: Space) -> Shape:
        """Look the signal up; the unit goes into the reward."""
        factor = self.factor(space)
        reward = factor * per_pair(self.reward, space)
        named = isinstance(self.reward, str) and self.reward in space.estimated
        return LinearShape(reward, str(self.reward), factor) if named else LinearShape(reward)

    def factor(self, space: Space) -> float:
        return space.factor(self.per)

    def __repr__(self) -> str:
        if isinstance(self.reward, str):
            name = f'"{self.reward}"'
        else:
            name = f"<{' x '.join(str(size) for size in self.reward.shape)} array>"
        return f"linear({name})" if self.per == "total" else f'linear({name}, per="{self.per}")'


def per_pair(reward: str | np.ndarray, space: Space) -> np.ndarray:
    """A reward as an (S, A) array, zero where the action is not available."""
    if isinstance(reward, str):
        return space.signal(reward)
    expected = space.shape
    if reward.ndim == 3:
        if reward.shape != (space.horizon.steps, *expected):
            raise UtilityError(
                f"a reward has shape {reward.shape}: one by time is (T, S, A), for a model with horizon=T; "
                f"this one has {expected} and {space.horizon}"
            )
        return np.where(space.actions, reward, 0.0).reshape(space.measured)
    if reward.shape == expected[:1]:
        reward = np.repeat(reward[:, None], expected[1], axis=1)
    elif reward.shape != expected:
        raise UtilityError(
            f"a reward has shape {reward.shape}; the model needs {expected[:1]} or {expected}"
        )
    return np.where(space.actions, reward, 0.0)
