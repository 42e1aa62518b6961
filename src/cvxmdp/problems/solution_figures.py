"""Pictures of solutions, drawn with Matplotlib."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError
from cvxmdp.base.notebooks import new_figure, save_figure
from cvxmdp.models.layout import DIRECTIONS, GridLayout

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution

BINDING = 1e-6  # share of a budget below which a slack is rounding
MARKED = 100  # up to so many states, each is a point on the curve
NAMED = 30  # up to so many states, each is a bar with its name
FAR = 3.0  # shares of a budget beyond which a bar ends
DISCOUNTED = "share of (discounted) time"
ROOM = 0.3  # height of a constraint's bar and its text, in inches
MARK = "#ff5050"  # colour of the letters on a grid
VISITED = 1e-6  # share of time below which a state's arrow would only show solver noise


def plot_solution(solution: Solution, path: str | Path | None = None) -> Any:
    """The state distribution (on its grid where there is one) beside the constraints.

    Args:
        solution: one with a policy.
        path: where to write the picture; the format follows the file's ending.

    Returns:
        The Matplotlib figure.
    """
    if not solution.has_policy:
        raise CvxmdpError(f"there is nothing to plot: {solution.message}")
    constraints = solution.problem.constraints
    heights = [4.6, 0.8 + 2 * ROOM * len(constraints)] if constraints else [4.6]
    figure = new_figure(figsize=(6.4, sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    space = solution.problem.space
    layout = space.layout
    visits = solution.occupancy[: space.shape[0]]
    share = space.shown_scale * visits.sum(axis=1)
    words = DISCOUNTED if space.discount < 1 else "share of time"
    if layout is not None:
        draw_grid(axes[0], figure, layout, share, words)
        taken = (
            visits / np.where(share > 0, visits.sum(axis=1), 1.0)[:, None]
        )  # over time where it matters
        draw_arrows(axes[0], layout, share, taken, space.action_names)
        draw_legend(axes[0], layout)
    elif share.size <= NAMED:
        names = [plain(space.state_label(state)) for state in range(share.size)]
        axes[0].barh(names, share, color="#1d3557", height=0.6)
        axes[0].invert_yaxis()
        axes[0].set(xlabel=words)
    else:
        axes[0].plot(np.sort(share)[::-1], marker="." if share.size <= MARKED else None)
        axes[0].set(xlabel="states, most visited first", ylabel=words)
        axes[0].set_yscale("log")
    title = f"{solution.problem.sense} {solution.problem.utility!r} = {solution.objective:.6g}"
    axes[0].set_title(plain("\n".join(wrap(title, 70))), fontsize=10)
    if constraints:
        draw_slack(axes[1], solution)
    if path is not None:
        save_figure(figure, path)
    return figure


def plain(text: str) -> str:
    """Text in which Matplotlib sees no formula: a name may well have dollars in it."""
    return text.replace("$", r"\$")


def draw_grid(
    axes: Any, figure: Any, layout: GridLayout, values: np.ndarray, label: str = DISCOUNTED
) -> None:
    """A heat map of one number per state, with the walls, hazards, start and goal marked."""
    shown = values.reshape(layout.rows, layout.columns).astype(float).copy()
    shown.ravel()[list(layout.walls)] = np.nan
    image = axes.imshow(shown, cmap="viridis")
    figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    for _, letter, states in marks(layout):
        for state in states:
            row, column = divmod(state, layout.columns)
            axes.text(column + 0.42, row - 0.42, letter, color=MARK, ha="right", va="top")
    axes.set(xticks=[], yticks=[])


def marks(layout: GridLayout) -> list[tuple[str, str, tuple[int, ...]]]:
    """What is marked with a letter: its name, the letter, the cells."""
    named = [
        ("start", "S", layout.starts),
        ("goal", "G", layout.goals),
        ("hazard", "!", layout.hazards),
    ]
    return [mark for mark in named if mark[2]]


def draw_legend(axes: Any, layout: GridLayout) -> None:
    """What the marks of this grid mean, below it: inside it would hide cells."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    look: dict[str, Any] = {"linestyle": "", "markersize": 9, "markeredgewidth": 0.3}
    handles: list[Any] = [
        Line2D([], [], marker=rf"$\mathrm{{{letter}}}$", color=MARK, label=name, **look)
        for name, letter, _ in marks(layout)
    ]
    if layout.walls:
        handles.append(Patch(facecolor="white", edgecolor="black", linewidth=0.8, label="wall"))
    if axes.collections:  # the arrows
        meaning = "policy (longer: likelier)"
        handles.append(
            Line2D([], [], marker=r"$\rightarrow$", color="black", label=meaning, **look)
        )
    if handles:
        axes.legend(
            handles=handles,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=len(handles),
            fontsize=9,
            frameon=False,
            handlelength=1.0,
            handletextpad=0.5,
            columnspacing=1.2,
        )


def draw_arrows(
    axes: Any,
    layout: GridLayout,
    share: np.ndarray,
    probabilities: np.ndarray,
    action_names: tuple[str, ...] | None,
) -> None:
    """The policy as arrows: one per direction, as long as the action is likely."""
    for action, name in enumerate(action_names or ()):
        if name not in DIRECTIONS:
            continue
        right, down = DIRECTIONS[name]
        states = np.flatnonzero((share > VISITED) & (probabilities[:, action] > 0.02))
        rows, columns = np.divmod(states, layout.columns)
        length = 0.45 * probabilities[states, action]
        axes.quiver(
            columns,
            rows,
            right * length,
            down * length,
            angles="xy",
            scale_units="xy",
            scale=1,
            color="white",
            width=0.006,
        )


def draw_slack(axes: Any, solution: Solution) -> None:
    """How much of each budget is used, as a share of it: a bar that ends at the line is a budget used up."""
    names = list(solution.slack)
    sizes = [abs(solution.problem.constraints[name].budget) or 1.0 for name in names]
    left = np.array([solution.slack[name] / size for name, size in zip(names, sizes, strict=True)])
    colours = ["#2a9d8f" if share >= -BINDING else "#d62828" for share in left]
    # A logarithm's slack may be minus infinity: its bar ends at the border.
    used = np.clip(np.nan_to_num(1.0 - left, posinf=FAR, neginf=-FAR), -FAR, FAR)
    reach = 1.15 * max(1.0, float(used.max(initial=0.0)))
    axes.barh([plain(name) for name in names], used, color=colours, height=0.4)
    axes.axvline(1.0, color="black", linewidth=1.2)
    for position, (name, share) in enumerate(zip(names, left, strict=True)):
        state = "violated" if share < -BINDING else "used up" if share <= BINDING else "slack left"
        text = f"{state}, multiplier {solution.multipliers[name]:.4g}"
        axes.annotate(text, (0.0, position + 0.24), va="bottom", fontsize=9)
    axes.set(
        title="budgets used, as a share of each",
        xlabel="right of the line: violated",
        xlim=(min(0.0, 1.15 * float(used.min(initial=0.0))), reach),
        ylim=(-0.5, len(names) - 0.25),
    )
