"""What utilities are functions of: numbers per row and action. The rows of a model are its states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from cvxmdp.base.errors import UtilityError
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.table import TabularMDP


class Space(Protocol):
    """Rows and actions: the states of a model, or what is measured of an environment."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and actions that utilities read."""
        ...

    @property
    def measured(self) -> tuple[int, int]:
        """The same with the rows that signals have of their own below, where they have some."""
        ...

    @property
    def discount(self) -> float:
        """Gamma."""
        ...

    @property
    def max_mass(self) -> float:
        """The largest mass of an occupancy, which also bounds its Euclidean norm."""
        ...

    @property
    def actions(self) -> np.ndarray:
        """Boolean: which actions are available in which row."""
        ...

    @property
    def reachable_pairs(self) -> np.ndarray:
        """Boolean: the pairs that some policy may take."""
        ...

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """Names of the actions, for pictures."""
        ...

    @property
    def layout(self) -> GridLayout | None:
        """Where rows lie on a grid, for pictures."""
        ...

    @property
    def note(self) -> str:
        """What whoever reads a result should know."""
        ...

    @property
    def signal_names(self) -> tuple[str, ...]:
        """Names of the signals there are."""
        ...

    def signal(self, name: str) -> np.ndarray:
        """The reward whose return is that of the signal."""
        ...

    def state_label(self, state: int) -> str:
        """A row in words."""
        ...

    def action_label(self, action: int) -> str:
        """An action in words."""
        ...


class HasSpace(Protocol):
    """What a problem can be about: a model, or an environment."""

    def space(self, signals: Iterable[str]) -> Space:
        """What utilities are functions of that name these signals."""
        ...


def model_of(space: Space, what: str) -> TabularMDP:
    """The model, or an error that says what is asked of it."""
    if not isinstance(space, TabularMDP):
        raise UtilityError(
            f"{what} needs a model, and an environment has none. Give an occupancy as an array, for example "
            "from demonstrations(...), or signals by name."
        )
    return space
