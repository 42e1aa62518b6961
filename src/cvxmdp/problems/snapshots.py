"""Where a policy was on the way: occupancies along a run, few enough to keep and to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

KEPT = 40  # snapshots of a run, and up to twice as many while it goes on
LARGEST = 50_000  # state-action pairs; larger models keep none


class Snapshots(NamedTuple):
    """Occupancies along a run: every one that was offered, then every second one, and so on."""

    iterations: np.ndarray  # (K,)
    occupancies: np.ndarray  # (K, S, A)
    every: np.ndarray
    offered: np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, int]) -> Snapshots:
        return cls(np.zeros(0, np.int64), np.zeros((0, *shape)), np.array(1), np.array(0))

    def offer(self, iteration: int, occupancy: Any) -> Snapshots:
        """With the occupancy (S, A) of an iteration, if it is its turn."""
        if np.size(occupancy) > LARGEST:
            return self
        kept, occupancies, every = self.iterations, self.occupancies, self.every
        if self.offered % every == 0:
            one = np.array(occupancy, dtype=np.float64)
            kept = np.append(kept, np.int64(iteration))
            occupancies = np.concatenate([occupancies, one[None]])
        if len(kept) > 2 * KEPT:
            kept, occupancies, every = kept[::2], occupancies[::2], 2 * every
        return Snapshots(kept, occupancies, every, self.offered + 1)

    def history(self, collected: Callable[[Any], Any] = np.asarray) -> dict[str, np.ndarray]:
        """``snapshot_iteration``, (K,), and ``snapshot_occupancy``, (K, S, A); empty without any.

        Args:
            collected: of what was offered, what people look at (``Horizon.collected``).
        """
        if not len(self.iterations):
            return {}
        chosen = np.unique(np.linspace(0, len(self.iterations) - 1, KEPT).astype(int))
        return {
            "snapshot_iteration": self.iterations[chosen],
            "snapshot_occupancy": np.stack([collected(self.occupancies[k]) for k in chosen]),
        }


def snapshots_of(iterations: np.ndarray, occupancies: np.ndarray) -> dict[str, np.ndarray]:
    """The same of occupancies (n, S, A) that are known already."""
    if occupancies[:1].size > LARGEST:
        return {}
    places = Snapshots.none((0, 0))
    for place in range(len(iterations)):
        places = places.offer(place, np.zeros((0, 0)))
    chosen = places.history().get("snapshot_iteration", np.zeros(0, np.int64))
    if not chosen.size:
        return {}
    visits = np.asarray(occupancies[chosen], dtype=np.float64)
    return {"snapshot_iteration": iterations[chosen], "snapshot_occupancy": visits}
