"""Columns: the occupancies that column generation mixes, stored as what is needed of them.

A deterministic policy's occupancy is its visits (S,) and its actions (S,), a ninth of the full (S, A) array
with eight actions. Linear functions only ever see one number per column; the state entropy sees the visits;
other functions see pairs, which are formed when they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cvxmdp.models.systems import dot

NEGLIGIBLE = 1e-9  # weight of a column that an interior point does without


@dataclass(frozen=True, eq=False)
class Column:
    """An occupancy.

    Attributes:
        visits: sum over actions, (S,).
        actions: of a deterministic policy, (S,); or
        policy: probabilities (S, A). Exactly one of the two.
        error: bound on what ``visits`` is off by, in the sum of absolute values.
    """

    visits: np.ndarray
    actions: np.ndarray | None
    policy: np.ndarray | None
    error: float

    def places(self, n_actions: int) -> np.ndarray:
        """Index of each state's pair in a flat (S * A,) array, for a deterministic policy."""
        assert self.actions is not None
        actions = np.asarray(self.actions)  # they may be on an accelerator
        return np.arange(actions.size, dtype=np.int64) * n_actions + actions

    def inner(self, reward: np.ndarray) -> float:
        """<reward, x> for a reward (S, A)."""
        if self.policy is not None:
            return float(np.einsum("s,sa,sa->", self.visits, self.policy, reward))
        return dot(reward.ravel()[self.places(reward.shape[1])], self.visits)

    def add_to(self, total: np.ndarray, weight: float) -> None:
        """total += weight * x, total of shape (S, A)."""
        if self.policy is not None:
            total += (weight * np.asarray(self.visits))[:, None] * self.policy
        else:
            places = self.places(total.shape[1])
            total.reshape(-1)[places] += weight * np.asarray(self.visits)


def small_actions(actions: np.ndarray, n_actions: int) -> np.ndarray:
    """Actions in the smallest integers that hold them."""
    return actions.astype(np.min_scalar_type(max(n_actions - 1, 1)))


class Columns(Sequence[Column]):
    """Columns in the order they were found; those no mixture uses are forgotten when room is needed.

    Args:
        shape: (S, A).
        most: how many are kept.
    """

    def __init__(self, shape: tuple[int, int], most: int) -> None:
        self.shape, self.most = shape, most
        self.kept: list[Column] = []
        self.idle: list[int] = []  # mixtures in a row that did without the column
        self.last = np.zeros(0)  # weights in the last mixture

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Column:  # type: ignore[override]
        return self.kept[index]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.kept)

    def add(self, column: Column) -> None:
        self.kept.append(column)
        self.idle.append(0)

    def used(self, weights: np.ndarray) -> None:
        """Note which columns the last mixture used."""
        for index, weight in enumerate(weights):
            self.idle[index] = 0 if weight > NEGLIGIBLE else self.idle[index] + 1
        self.last = np.concatenate([weights, np.full(len(self.kept) - weights.size, np.inf)])

    def forget(self, needed: np.ndarray, room: int) -> np.ndarray:
        """Drop the longest idle columns beyond ``room``; the indices of those that stay.

        Args:
            needed: boolean (K,), columns that stay in any case.
            room: how many may stay.
        """
        # Of those as long idle as each other, the ones with less weight go first; new ones stay.
        weights = np.concatenate([self.last, np.full(len(self.kept) - self.last.size, np.inf)])
        order = np.lexsort((-weights, np.array(self.idle), ~needed))[: max(room, int(needed.sum()))]
        stay = np.sort(order)
        self.last = weights[stay]
        self.kept = [self.kept[k] for k in stay]
        self.idle = [self.idle[k] for k in stay]
        return stay

    def mix(self, weights: np.ndarray) -> np.ndarray:
        """The occupancy sum_k w_k x_k, (S, A)."""
        total = np.zeros(self.shape)
        for weight, column in zip(weights, self.kept, strict=True):
            if weight > 0:
                column.add_to(total, float(weight))
        return total
