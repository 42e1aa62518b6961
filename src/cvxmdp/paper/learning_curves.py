"""Learning curves of a study: returns and tracking errors of episodes, averaged as in the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cvxmdp.base.interval import Interval, half_width
from cvxmdp.paper.studies import Study
from cvxmdp.runs.record import RunRecord
from cvxmdp.runs.sweep_results import interval

WINDOW = 250  # episodes of the moving average


@dataclass(frozen=True)
class Curves:
    """Several runs with what was recorded of them.

    Attributes:
        label: what they are.
        at: (n,) iterations at which something was recorded.
        returns, errors: (runs, n), undiscounted returns and tracking errors of episodes (means of a batch).
        samples: (runs,), steps in the model.
        seconds: (runs,), each on one core.
    """

    label: str
    at: np.ndarray
    returns: np.ndarray
    errors: np.ndarray
    samples: np.ndarray
    seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.returns)

    def after(self, iteration: int, window: int = WINDOW) -> tuple[np.ndarray, np.ndarray]:
        """Mean return and tracking error of every run over the last iterations up to this one."""
        inside = (self.at > iteration - window) & (self.at <= iteration)
        if not inside.any():
            return np.full(len(self), np.nan), np.full(len(self), np.nan)
        return self.returns[:, inside].mean(axis=1), self.errors[:, inside].mean(axis=1)

    @property
    def end(self) -> int:
        """The last iteration that was recorded."""
        return int(self.at[-1])

    def reaches(self, iteration: int) -> bool:
        """Whether the runs went on until this iteration."""
        return bool(self.at.size) and self.end >= iteration

    def best(self, count: int, label: str) -> Curves:
        """The runs with the highest return at their end; of equal ones those that track best.

        The paper selects "the 12 best results" and does not say by what.
        """
        returns, errors = self.after(self.end)
        chosen = np.sort(np.lexsort((errors, -returns))[:count])
        parts = {
            name: getattr(self, name)[chosen]
            for name in ("returns", "errors", "samples", "seconds")
        }
        return replace(self, label=label, **parts)

    def band(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where, mean over the runs and half of its 95% interval, of moving averages over the window."""
        each = max(1, int(self.at[1] - self.at[0])) if self.at.size > 1 else 1
        width = max(1, min(WINDOW // each, values.shape[1]))
        box = np.ones(width) / width
        smooth = np.stack([np.convolve(row, box, "valid") for row in values])
        half = half_width(smooth) if len(smooth) > 1 else np.zeros(smooth.shape[1])
        return self.at[width - 1 :], smooth.mean(axis=0), half


Found = Mapping[Study, Sequence[Curves]]  # of every study, as ``protocols`` has them


def curves_of(label: str, records: Sequence[RunRecord]) -> Curves:
    """The curves of runs with one label; one that failed has none and is left out."""
    learned = [record for record in records if "episode_return" in record.series]
    errors = [
        next(one for name, one in record.series.items() if name.startswith("tracking_error/"))
        for record in learned
    ]
    return Curves(
        label,
        learned[0].series["episode_return"].iterations,
        np.stack([record.series["episode_return"].values for record in learned]),
        np.stack([error.values for error in errors]),
        np.array([float(record.stats["samples"]) for record in learned]),
        np.array([float(record.stats["seconds"]) for record in learned]),
    )


def protocols(study: Study, curves: Curves) -> list[Curves]:
    """The curves as printed (a selection, where the paper makes one) and without selection."""
    if not study.kept:
        return [curves]
    total = len(curves)
    kept = curves.best(study.kept, f"{study.method}, best {study.kept} of {total}")
    return [kept, replace(curves, label=f"{study.method}, all {total}")]


def after(curves: Curves, iteration: int) -> tuple[Interval, Interval]:
    """Return and tracking error there, as means over the runs with 95% intervals."""
    returns, errors = curves.after(iteration)
    return interval(returns), interval(errors)
