"""Where a policy was on the way: occupancies along a run, few enough to keep and to look at."""

from __future__ import annotations

from typing import Any

import numpy as np

KEPT = 40  # snapshots of a run, and up to twice as many while it goes on
LARGEST = 50_000  # state-action pairs; larger models keep none


class Snapshots:
    """Keeps occupancies while a solver iterates, every one, then every second one, and so on."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, np.ndarray]] = []
        self._every, self._seen = 1, 0

    def add(self, iteration: int, occupancy: Any) -> None:
        """Keep the occupancy (S, A) of an iteration, if it is its turn."""
        if np.size(occupancy) > LARGEST:
            return
        if self._seen % self._every == 0:
            self._kept.append((int(iteration), np.array(occupancy, dtype=np.float64)))
        self._seen += 1
        if len(self._kept) > 2 * KEPT:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def history(self) -> dict[str, np.ndarray]:
        """``snapshot_iteration``, (K,), and ``snapshot_occupancy``, (K, S, A); empty without any."""
        if not self._kept:
            return {}
        chosen = np.unique(np.linspace(0, len(self._kept) - 1, KEPT).astype(int))
        return {
            "snapshot_iteration": np.array([self._kept[k][0] for k in chosen]),
            "snapshot_occupancy": np.stack([self._kept[k][1] for k in chosen]),
        }


def snapshots_of(iterations: np.ndarray, occupancies: np.ndarray) -> dict[str, np.ndarray]:
    """The same of occupancies (n, S, A) that are known already."""
    found = Snapshots()
    for iteration, occupancy in zip(iterations, occupancies, strict=True):
        found.add(int(iteration), occupancy)
    return found.history()
