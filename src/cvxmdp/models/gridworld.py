"""Gridworlds: the paper's experiments and everybody's first example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cvxmdp.base.errors import ModelError
from cvxmdp.models.horizon import horizon_arguments
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import read_table

ACTIONS = ("left", "down", "right", "up")
MOVES = np.array([(0, -1), (1, 0), (0, 1), (-1, 0)])  # (row, column) per action

Cell = int | tuple[int, int]
CELL = "a cell is a number or a pair (row, column), written as a tuple such as (1, 2)"


def gridworld(
    size: int | tuple[int, int] = 8,
    *,
    slip: float = 0.0,
    discount: float | None = None,
    start: Cell | Iterable[Cell] = 0,
    goal: Cell | Iterable[Cell] | None = None,
    goal_reward: float = 1.0,
    step_reward: float = 0.0,
    rewards: Mapping[Cell, float] | None = None,
    hazards: Iterable[Cell] = (),
    walls: Iterable[Cell] = (),
    horizon: int | None = None,
    average: bool = False,
) -> TabularMDP:
    """A grid where one moves left, down, right or up; moving into a wall or the border means staying.

    States are numbered row by row from the upper left, state = row * columns + column. Wherever a
    cell is asked for, give that number or the tuple (row, column), both counted from 0. Several cells come in
    a list or a set: ``hazards=[10, 11]`` and ``hazards=[(1, 2), (1, 3)]`` are the same cells of an 8 x 8 grid.
    A bare tuple of two numbers is always one cell: ``hazards=(1, 2)`` is row 1, column 2.

    Args:
        size: n for an n x n grid, or (rows, columns).
        slip: probability that the move goes in one of the other three directions, slip/3 each.
        discount: gamma; 0.95 where no other horizon is given.
        start: the first cell, or several, one of which is drawn uniformly.
        goal: cell or cells that end the episode. The step that enters one pays ``goal_reward`` instead
            of anything else; nobody ever acts in a goal.
        goal_reward: reward of the step that enters a goal.
        step_reward: reward of every other step.
        rewards: further reward for every action taken in a cell, by cell: ``{(1, 2): 0.5}``.
        hazards: cells where the signal "hazard" is 1 for every action taken there.
        walls: cells that cannot be entered.
        horizon, average: instead of a discount, a number of steps, or True for the long run (``TabularMDP``).

    Returns:
        A model with the signals "reward" and "hazard", and a layout: ``print(mdp.render())``.
    """
    rows, columns = _read_size(size)
    n_states = rows * columns
    to_states = _CellReader(rows, columns)
    wall_states = to_states(walls, "walls")
    hazard_states = to_states(hazards, "hazards")
    start_states = to_states(start, "start")
    goal_states = to_states(goal, "goal")
    extra_rewards = read_table(rewards, "rewards", "{(1, 2): 0.5}")
    if not start_states:
        raise ModelError("start names no cell; give at least one")
    paid_states = to_states(list(extra_rewards), "rewards")
    named = {"start": start_states, "goal": goal_states, "hazards": hazard_states}
    _check_disjoint(named, "walls", wall_states, columns)
    # Nobody ever acts in a goal, so a hazard or a reward there would silently do nothing.
    named = {"start": start_states, "hazards": hazard_states, "rewards": paid_states}
    _check_disjoint(named, "goal", goal_states, columns)
    if not 0.0 <= slip <= 1.0:
        raise ModelError(f"slip must be a probability; got {slip}")

    target = _targets(rows, columns, wall_states)
    # Successor lists: entry d of (s, a) is where direction d leads, with the chance of going there.
    chance = np.full((4, 4), slip / 3.0)
    np.fill_diagonal(chance, 1.0 - slip)
    indices = np.broadcast_to(target[:, None, :], (n_states, 4, 4))
    probabilities = np.broadcast_to(chance, (n_states, 4, 4)).copy()

    is_goal = np.zeros(n_states, dtype=bool)
    is_goal[list(goal_states)] = True
    enters = np.where(is_goal[indices], probabilities, 0.0).sum(axis=2)
    enters[is_goal] = 0.0  # nobody acts in a goal: its rows end the episode and pay nothing
    probabilities[is_goal[indices]] = 0.0
    probabilities[is_goal] = 0.0

    extra = np.zeros(n_states)
    for cell, value in extra_rewards.items():
        (state,) = to_states([cell], "rewards")
        extra[state] += value
    paid = enters * goal_reward + (1.0 - enters) * (step_reward + extra[:, None])
    reward = np.where(is_goal[:, None], 0.0, paid)
    hazard = np.zeros(n_states)
    hazard[list(hazard_states)] = 1.0
    initial = np.zeros(n_states)
    initial[list(start_states)] = 1.0 / len(start_states)
    return TabularMDP(
        (indices, probabilities),
        initial,
        **horizon_arguments(discount, horizon, average, otherwise=0.95),
        signals={"reward": reward, "hazard": hazard},
        action_names=ACTIONS,
        layout=GridLayout(rows, columns, wall_states, hazard_states, start_states, goal_states),
    )


def _read_size(size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int | np.integer) else size
    if (
        not isinstance(pair, Sequence)
        or len(pair) != 2
        or not all(isinstance(n, int | np.integer) and n >= 1 for n in pair)
    ):
        raise ModelError(f"size must be n or (rows, columns), at least 1 each; got {size!r}")
    return int(pair[0]), int(pair[1])


class _CellReader:
    """Turns cells, as numbers or (row, column), into sorted state numbers."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns

    def __call__(self, cells: Any, what: str) -> tuple[int, ...]:
        if cells is None:
            return ()
        if isinstance(cells, int | np.integer) or self._is_pair(cells):
            cells = [cells]
        if not isinstance(cells, Iterable):
            raise ModelError(f"{what}: {CELL}; got {cells!r}")
        return tuple(sorted({self._state(cell, what) for cell in cells}))

    @staticmethod
    def _is_pair(cells: Any) -> bool:
        # A tuple of two numbers is one cell (row, column); several cells come in a list or a set.
        return (
            isinstance(cells, tuple)
            and len(cells) == 2
            and all(isinstance(part, int | np.integer) for part in cells)
        )

    def _state(self, cell: Any, what: str) -> int:
        if isinstance(cell, int | np.integer):
            row, column = divmod(int(cell), self.columns)
        elif self._is_pair(cell):
            row, column = int(cell[0]), int(cell[1])
        else:
            raise ModelError(f"{what}: {CELL}; got {cell!r}")
        if not (0 <= row < self.rows and 0 <= column < self.columns):
            outside = f"{what}: {cell!r} lies outside the {self.rows} x {self.columns} grid"
            if self._is_pair(cell):
                outside += (
                    f". A tuple of two is one cell (row, column); two cells are {[row, column]}"
                )
            raise ModelError(outside)
        return row * self.columns + column


def _check_disjoint(
    named: Mapping[str, tuple[int, ...]], other: str, others: tuple[int, ...], columns: int
) -> None:
    for what, states in named.items():
        both = sorted(set(states) & set(others))
        if both:
            raise ModelError(f"cell {divmod(both[0], columns)} is both in {what} and in {other}")


def _targets(rows: int, columns: int, walls: tuple[int, ...]) -> np.ndarray:
    """Where each direction leads from each state, (S, 4)."""
    states = np.arange(rows * columns)
    here = np.stack(np.divmod(states, columns), axis=1)
    there = here[:, None, :] + MOVES
    inside = ((there >= 0) & (there < (rows, columns))).all(axis=2)
    target = there[..., 0] * columns + there[..., 1]
    blocked = np.zeros(rows * columns, dtype=bool)
    blocked[list(walls)] = True
    stays = ~inside | blocked[np.where(inside, target, 0)]
    return np.where(stays, states[:, None], target)
