"""The paper's figures (gridworld with trajectories, returns, violations), published curves beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.notebooks import new_figure, save_figure
from cvxmdp.paper.authors_study import AuthorsCurves
from cvxmdp.paper.learning_curves import Found
from cvxmdp.paper.published import VARIANCE_REDUCED, published_curves
from cvxmdp.paper.studies import MEMORY
from cvxmdp.paper.tracking import expert_trajectory, tracking_model

COLOURS = ("#1d3557", "#d62828", "#2a9d8f", "#f4a261", "#7b2cbf", "#6c757d")
DPI = 90
PUBLISHED = {True: "#457b9d", False: "#e07a7a"}  # of VR-PDPG, of momentum 1


def draw_figure(found: Found, path: Path, title: str, *, best_return: float) -> Path:
    """One row per reference trajectory: the grid, returns below the best possible, tracking errors."""
    instances = list(dict.fromkeys(study.instance for study in found))
    figure = new_figure(figsize=(15, 4.4 * len(instances)), layout="constrained")
    axes = figure.subplots(len(instances), 3, squeeze=False, width_ratios=(0.8, 1.0, 1.0))
    for row, instance in zip(axes, instances, strict=True):
        _draw_grid(row[0], instance)
        mine = [c for study, many in found.items() if study.instance == instance for c in many]
        _draw_published(row[1:], instance)
        for colour, curves in zip(cycle(COLOURS), mine, strict=False):
            for axis, values in zip(row[1:], (curves.returns, curves.errors), strict=True):
                at, mean, half = curves.band(values)
                axis.plot(at, mean, color=colour, label=f"{curves.label} ({len(curves)} runs)")
                axis.fill_between(at, mean - half, mean + half, color=colour, alpha=0.2, lw=0)
        row[1].axhline(best_return, color="black", lw=0.8, ls=":", label="best possible")
        row[1].set(
            xlabel="iterations",
            ylabel="return of episodes",
            ylim=(-20, best_return + 15),
            title=f"{instance}: returns",
        )
        row[2].set(
            xlabel="iterations",
            ylabel="tracking error of episodes",
            yscale="log",
            ylim=(1e-4, 60),
            title=f"{instance}: tracking error",
        )
        row[1].legend(fontsize=7)
        for axis in row[1:]:
            axis.grid(alpha=0.3)
    figure.suptitle(f"{title}; mean over runs of averages over 250 episodes, with the 95% band")
    save_figure(figure, path, DPI)
    return path


def draw_authors(found: Sequence[AuthorsCurves], path: Path, title: str) -> Path:
    """One row per instance: the published bands, and the median and range over seeds of the program again."""
    instances = list(dict.fromkeys(curves.study.instance for curves in found))
    figure = new_figure(figsize=(12, 4 * len(instances)), layout="constrained")
    axes = figure.subplots(len(instances), 2, squeeze=False)
    for row, instance in zip(axes, instances, strict=True):
        _draw_published(row, instance, deviations=True)
        for curves in (one for one in found if one.study.instance == instance):
            colour = COLOURS[0 if curves.study.method == MEMORY else 1]
            label = f"again: {curves.study.method} ({len(curves.returns)} seeds)"
            for axis, values in zip(row, (curves.returns, curves.errors), strict=True):
                axis.plot(curves.at, np.median(values, axis=0), color=colour, label=label)
                ends = values.min(axis=0), values.max(axis=0)
                axis.fill_between(curves.at, *ends, color=colour, alpha=0.2, lw=0)
        row[0].set(xlabel="episodes", ylabel="return", title=f"{instance}: returns")
        row[1].set(
            xlabel="episodes", ylabel="tracking error", yscale="log", title=f"{instance}: error"
        )
        row[0].legend(fontsize=7)
        for axis in row:
            axis.grid(alpha=0.3)
    figure.suptitle(f"{title}; dashed: published, mean ± standard deviation over runs")
    save_figure(figure, path, DPI)
    return path


def _draw_published(axes: Sequence[Any], instance: str, *, deviations: bool = False) -> None:
    """With the 95% interval of the mean, or with standard deviations, as the authors' figures have them."""
    for algorithm, curve in published_curves(instance).items():
        first = algorithm == VARIANCE_REDUCED
        name = f"published: {'VR-PDPG' if first else 'momentum 1'} ({curve.runs} runs)"
        pairs = ((curve.returns, curve.returns_std), (curve.errors, curve.errors_std))
        for axis, (mean, std) in zip(axes, pairs, strict=True):
            half = std if deviations else curve.half_width(std)
            axis.plot(curve.episode, mean, color=PUBLISHED[first], ls="--", label=name)
            axis.fill_between(
                curve.episode, mean - half, mean + half, color=PUBLISHED[first], alpha=0.12, lw=0
            )


def _draw_grid(axes: Any, instance: str) -> None:
    """The grid with the reference trajectory as arrows from start to goal."""
    layout = tracking_model(instance).layout
    assert layout is not None
    cells = [state for state, _ in expert_trajectory(instance)] + list(layout.goals)
    rows, columns = np.divmod(np.array(cells), layout.columns)
    axes.set(
        xlim=(-0.5, layout.columns - 0.5),
        ylim=(layout.rows - 0.5, -0.5),
        xticks=np.arange(layout.columns + 1) - 0.5,
        yticks=np.arange(layout.rows + 1) - 0.5,
        aspect="equal",
        title=f"{instance}: grid and reference trajectory",
    )
    axes.grid(color="#cccccc", lw=0.6)
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    arrows = (columns[:-1], rows[:-1], np.diff(columns), np.diff(rows))
    look: dict[str, Any] = {"color": COLOURS[0], "width": 0.008}
    axes.quiver(*arrows, angles="xy", scale_units="xy", scale=1, **look)
    for states, letter in ((layout.starts, "S"), (layout.goals, "G")):
        for state in states:
            row, column = divmod(state, layout.columns)
            axes.text(column, row, letter, ha="center", va="center", color="#d62828", weight="bold")
