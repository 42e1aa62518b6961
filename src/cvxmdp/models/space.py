"""What utilities are functions of: numbers per row and action. The rows of a model are its states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from cvxmdp.models.horizon import Horizon
from cvxmdp.models.layout import GridLayout


class Space:
    """Rows and actions: the states of a model, or what is measured of an environment.

    Attributes:
        horizon: how far ahead returns look.
        actions: boolean, which actions are available in which row.
        state_names, action_names: names for messages and pictures.
        layout: where the rows lie on a grid, for pictures.
        note: what whoever reads a result should know.
        unknown: boolean, rows of which nobody knows what comes after; None where there are none.
    """

    horizon: Horizon
    actions: np.ndarray
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    layout: GridLayout | None = None
    note: str = ""

    @property
    def estimated(self) -> tuple[str, ...]:
        """Names of the signals whose values are estimates."""
        return ()

    @property
    def unknown(self) -> np.ndarray | None:
        return None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and actions that utilities read: (S, A) of a model."""
        return int(self.actions.shape[0]), int(self.actions.shape[1])

    @property
    def measured(self) -> tuple[int, int]:
        """The same with the rows that signals have of their own below, where they have some."""
        return self.shape

    @property
    def deciding(self) -> Space:
        """Where policies decide: rows like those of ``measured`` where time is part of the state."""
        return self

    def in_rows(self, numbers: np.ndarray, axes: int) -> np.ndarray:
        """Numbers per state as numbers per row; so many axes has what is the same at every step."""
        return numbers

    @property
    def discount(self) -> float:
        """gamma."""
        return self.horizon.discount

    @property
    def max_mass(self) -> float:
        """The mass of an occupancy when no episode ends, 1 / (1 - discount), which also bounds its norm."""
        return self.horizon.longest

    @property
    def scale(self) -> float:
        """Occupancies times this are distributions, of a mass of at most one."""
        return self.horizon.scale

    @property
    def shown_scale(self) -> float:
        """The scale of pictures, where distributions need no unit that can be compared."""
        return self.scale

    def factor(self, per: str) -> float:
        """What <c, x> is multiplied with to be a sum "per" something."""
        return self.horizon.factor(per, lambda: self.scale)

    @property
    def reachable_pairs(self) -> np.ndarray:
        """Boolean: the pairs that some policy can take, as far as is known."""
        return self.actions

    @property
    def signal_names(self) -> tuple[str, ...]:
        """Names of the signals there are."""
        raise NotImplementedError

    def signal(self, name: str) -> np.ndarray:
        """The reward whose return is that of the signal."""
        raise NotImplementedError

    def state_label(self, state: int) -> str:
        """The state's name, or its index where states have no names."""
        return self.state_names[state] if self.state_names else str(state)

    def action_label(self, action: int) -> str:
        """The action's name, or its index where actions have no names."""
        return self.action_names[action] if self.action_names else str(action)


class StepRows(Space):
    """The states of all T steps above each other: where a policy that depends on time decides.

    Args:
        space: of one step.
        steps: T.
    """

    def __init__(self, space: Space, steps: int) -> None:
        self.horizon, self.single, self.steps = space.horizon, space.shape[0], steps
        self.actions = np.tile(space.actions, (steps, 1))
        self.action_names = space.action_names

    def in_rows(self, numbers: np.ndarray, axes: int) -> np.ndarray:
        """Those of every step, (T, S, ...), above each other; (S, ...) are the same at every step."""
        if numbers.ndim == axes + 1 and numbers.shape[:2] == (self.steps, self.single):
            return numbers.reshape(-1, *numbers.shape[2:])
        if numbers.ndim != axes or numbers.shape[0] != self.single:
            return numbers  # which whoever asks for them refuses
        return np.tile(numbers, (self.steps, *[1] * (axes - 1)))


class HasSpace(Protocol):
    """What a problem can be about: a model, or an environment."""

    def space(self, signals: Iterable[str]) -> Space:
        """What utilities are functions of that name these signals."""
