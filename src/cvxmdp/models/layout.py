"""Where the states of a grid lie, so that people can look at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp.base.errors import ModelError

ARROWS = {"left": "←", "down": "↓", "right": "→", "up": "↑"}
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}  # x right, y down


@dataclass(frozen=True)
class GridLayout:
    """A grid of states, numbered row by row: state = row * columns + column.

    Attributes:
        rows, columns: the size of the grid.
        walls, hazards, starts, goals: the states that are such.
    """

    rows: int
    columns: int
    walls: tuple[int, ...] = ()
    hazards: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    goals: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = (self.rows, self.columns)
        if not all(isinstance(size, int | np.integer) and size >= 1 for size in sizes):
            raise ModelError(f"a layout has at least one row and one column; got {sizes}")
        every = range(self.rows * self.columns)
        for what in ("walls", "hazards", "starts", "goals"):
            states = getattr(self, what)
            known = isinstance(states, tuple) and all(
                isinstance(state, int | np.integer) and state in every for state in states
            )
            if not known:
                raise ModelError(
                    f"the {what} of a layout are a tuple of states of its {self.rows} x "
                    f"{self.columns} grid; got {states!r}"
                )

    def render(
        self, probabilities: np.ndarray | None = None, action_names: tuple[str, ...] | None = None
    ) -> str:
        """The grid as text: S start, G goal, # wall, ! hazard; with a policy, its likeliest moves.

        Args:
            probabilities: a policy's (S, A) matrix. A cell shows the arrow of its likeliest action,
                or ``o`` where several are equally likely; a hazard keeps its ``!`` beside it.
            action_names: names of the actions; left, down, right and up are drawn as arrows.
        """
        lines = []
        for row in range(self.rows):
            cells = []
            for column in range(self.columns):
                state = row * self.columns + column
                mark = self._mark(state)
                if probabilities is not None and mark not in "#G":
                    mark = self._arrow(probabilities[state], action_names) + (
                        "!" if state in self.hazards else " "
                    )
                cells.append(mark.ljust(2))
            lines.append("".join(cells).rstrip())
        return "\n".join(lines)

    def _mark(self, state: int) -> str:
        places = ((self.walls, "#"), (self.goals, "G"), (self.starts, "S"), (self.hazards, "!"))
        return next((mark for states, mark in places if state in states), ".")

    @staticmethod
    def _arrow(row: np.ndarray, action_names: tuple[str, ...] | None) -> str:
        likeliest = np.flatnonzero(row >= row.max() - 1e-9)
        if likeliest.size > 1:
            return "o"
        name = action_names[likeliest[0]] if action_names else str(likeliest[0])
        return ARROWS.get(name, name[0])
