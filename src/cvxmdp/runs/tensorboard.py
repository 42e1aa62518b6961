"""Records of a run for TensorBoard, as they come: ``solve(..., tensorboard=folder)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import require
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.contract import Rows


class Scalars:
    """Writes what a solver records, a curve for each number: "slack/hazard" for those of constraints.

    Args:
        folder: TensorBoard's.
        problem: that is solved; its sense and its constraints name the curves.
    """

    def __init__(self, folder: str | Path, problem: Problem) -> None:
        self.problem, self.names = problem, list(problem.constraints)
        self.writer: Any = require("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def rows(self, done: int, until: int, rows: Rows) -> None:
        """The records of the iterations from ``done`` to ``until``."""
        for name, values in rows.items():
            columns = np.asarray(values, dtype=np.float64)
            if not columns.size or columns.ndim > 2:
                continue
            sign = self.problem.sign if name.endswith("objective") else 1.0
            at = np.round(np.linspace(done, until, len(columns) + 1)[1:]).astype(int)
            for label, column in self._curves(name, sign * columns):
                for iteration, number in zip(at.tolist(), column.tolist(), strict=True):
                    self.writer.add_scalar(label, number, iteration)
        self.writer.flush()

    def _curves(self, name: str, columns: np.ndarray) -> list[tuple[str, np.ndarray]]:
        if columns.ndim == 1:
            return [(name, columns)]
        same = columns.shape[1] == len(self.names)
        parts = self.names if same else [str(k) for k in range(columns.shape[1])]
        if columns.shape[1] == 1 and not same:
            return [(name, columns[:, 0])]
        return [(f"{name}/{part}", columns[:, k]) for k, part in enumerate(parts)]

    def close(self, solution: Solution) -> None:
        """With what the answer is worth, where there is a policy."""
        if solution.has_policy:
            at = int(solution.stats.get("iterations") or 0)
            self.writer.add_scalar("answer/objective", solution.objective, at)
            for name, slack in solution.slack.items():
                self.writer.add_scalar(f"answer/slack/{name}", slack, at)
        self.writer.close()
