"""Pictures of frontiers and coverage sets, drawn with Matplotlib."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.notebooks import new_figure, save_figure

if TYPE_CHECKING:
    from cvxmdp.runs.front import Front
    from cvxmdp.runs.frontier import Frontier


def plot_front(front: Front, path: str | Path | None = None) -> Any:
    """Two objectives: the proven band. More: the points, for every two, coloured by the next one."""
    pairs = list(combinations(range(len(front.objectives)), 2))
    figure = new_figure(figsize=(1.5 + 5.0 * len(pairs), 4.5), layout="constrained")
    for axes, pair in zip(figure.subplots(1, len(pairs), squeeze=False)[0], pairs, strict=True):
        if len(pairs) == 1:
            _band(axes, front)
        else:
            _cloud(figure, axes, front, pair)
        names = list(front.objectives)
        axes.set(xlabel=names[pair[0]], ylabel=names[pair[1]])
    if path is not None:
        save_figure(figure, path)
    return figure


def _band(axes: Any, front: Front) -> None:
    points = front.points
    grid = np.linspace(points[:, 0].min(), points[:, 0].max(), 401)
    order = np.argsort(points[:, 0])
    floor = np.interp(grid, points[order, 0], points[order, 1])
    heavy = front.weights[:, 1] > 0  # a bound on the first objective alone is a vertical line
    across, up = front.weights[heavy].T
    ceiling = ((front.bounds[heavy] - np.outer(grid, across)) / up).min(axis=1)
    axes.fill_between(
        grid, floor, ceiling, color="#2a9d8f", alpha=0.35, label="proven: the front lies in here"
    )
    axes.plot(grid, floor, color="#2a9d8f")
    axes.plot(*points.T, "o", color="#1d3557", label="policies")
    axes.legend()


def _cloud(figure: Any, axes: Any, front: Front, pair: tuple[int, int]) -> None:
    names, points = list(front.objectives), front.points
    other = next(place for place in range(len(names)) if place not in pair)
    drawn = axes.scatter(*points[:, pair].T, c=points[:, other], cmap="viridis")
    figure.colorbar(drawn, ax=axes, label=names[other])


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
        save_figure(figure, path)
    return figure
