"""The picture of a frontier, drawn with Matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.notebooks import new_figure

if TYPE_CHECKING:
    from cvxmdp.runs.frontier import Frontier


def plot_frontier(frontier: Frontier, path: str | Path | None = None) -> Any:
    """The proven envelopes of the best objective against the budget."""
    figure = new_figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    budgets = np.array([point.budget for point in frontier.points])
    grid = np.linspace(budgets.min(), budgets.max(), 401)
    bounds = np.array([frontier.envelope(float(budget)) for budget in grid])
    finite = np.isfinite(bounds).all(axis=1)
    axes.fill_between(
        grid[finite], *bounds[finite].T, color="#2a9d8f", alpha=0.35, label="proven: lies in here"
    )
    solved = [point for point in frontier.points if point.certificate.feasible]
    axes.plot(
        [point.budget for point in solved],
        [point.solution.objective for point in solved],
        "o",
        color="#1d3557",
        label="solved",
    )
    if np.isfinite(frontier.infeasible_until):
        axes.axvline(frontier.infeasible_until, color="#d62828", label="infeasible from here")
    if np.isfinite(frontier.free_from):
        axes.axvline(
            frontier.free_from, color="#6c757d", linestyle=":", label="not binding from here"
        )
    constraint = frontier.problem.constraints[frontier.constraint]
    axes.set(
        xlabel=f"budget: {constraint.utility!r} {constraint.sense} budget",
        ylabel=f"{frontier.problem.sense} {frontier.problem.utility!r}",
    )
    axes.legend()
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
