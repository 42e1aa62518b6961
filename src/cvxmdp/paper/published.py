"""The learning curves that the authors published; ``data/README.md`` says where they are from."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import scipy.stats

from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.paper.tracking import INSTANCES

COLUMNS = ("episode", "return_mean", "return_std", "violation_mean", "violation_std")
VARIANCE_REDUCED, WITHOUT_MEMORY = "vr-pdpg", "alpha=1"


@dataclass(frozen=True)
class PublishedCurve:
    """Means over runs of moving averages over 250 episodes.

    Attributes:
        runs: how many there were.
        episode: (n,), where each average ends.
        returns, returns_std: of the undiscounted return.
        errors, errors_std: of the tracking error, half the squared distance of an episode to the expert.
    """

    runs: int
    episode: np.ndarray
    returns: np.ndarray
    returns_std: np.ndarray
    errors: np.ndarray
    errors_std: np.ndarray

    def half_width(self, std: np.ndarray) -> np.ndarray:
        """Half of the 95% interval of the mean over runs."""
        return scipy.stats.t.ppf(0.975, self.runs - 1) * std / math.sqrt(self.runs)

    def at(self, iteration: int) -> tuple[float, float]:
        """Return and tracking error of the last average that ends by this episode."""
        row = self.row(iteration)
        return float(self.returns[row]), float(self.errors[row])

    def row(self, iteration: int) -> int:
        """The place of that average."""
        return max(int(np.searchsorted(self.episode, iteration, side="right")) - 1, 0)


@lru_cache(maxsize=1)
def _rows() -> list[dict[str, str]]:
    text = files("cvxmdp.paper").joinpath("data", "published_curves.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def published_curves(instance: str) -> dict[str, PublishedCurve]:
    """The curves of an instance, by algorithm: "vr-pdpg", and "alpha=1" where it was published."""
    if instance not in INSTANCES:
        raise ProblemError(f"unknown instance {instance!r}. {did_you_mean(instance, INSTANCES)}")
    mine = [row for row in _rows() if row["instance"] == instance]
    found = {}
    for algorithm in dict.fromkeys(row["algorithm"] for row in mine):
        rows = [row for row in mine if row["algorithm"] == algorithm]
        columns = [np.array([float(row[name]) for row in rows]) for name in COLUMNS]
        found[algorithm] = PublishedCurve(int(rows[0]["runs"]), *columns)
    return found
