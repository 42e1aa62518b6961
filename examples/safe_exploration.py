"""Safe exploration (the paper's second example): maximum entropy under a budget on hazards.

python examples/safe_exploration.py            # the answer, and what is proven about it
python examples/safe_exploration.py --figure   # renews the picture of the README
"""

from __future__ import annotations

import sys
from pathlib import Path

import cvxmdp as cm

HAZARDS = [10, 11, 14, 18, 21, 29, 30, 37, 43, 44, 51, 53]
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "safe_exploration.png"


def problem(budget: float) -> cm.Problem:
    """See as much of the grid as possible, with at most this share of the time in hazards."""
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=HAZARDS)
    return cm.Problem(
        mdp,
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") <= budget},
    )


def main() -> cm.Solution:
    asked = problem(0.05)
    solution = cm.solve(asked)
    print(solution)
    print(cm.certify(asked, solution))
    return solution


def draw() -> None:
    """Where two policies spend their time, and what every budget buys."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    free, safe, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
    for axes, budget, title in (
        (free, 1.0, "no budget"),
        (safe, 0.05, "5% of the time in hazards"),
    ):
        solution = cm.solve(problem(budget))
        share = cm.state_distribution(solution.problem.mdp, solution.occupancy).reshape(8, 8)
        axes.imshow(share, cmap="viridis", vmin=0, vmax=0.05)
        for cell in HAZARDS:
            axes.text(cell % 8, cell // 8, "×", color="#ff5050", ha="center", va="center", size=14)
        axes.set(
            xticks=[], yticks=[], title=f"{title}\nentropy {solution.objective:.3f} (proven best)"
        )
    frontier = cm.frontier(
        problem(0.05), "hazard", budgets=[0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2]
    )
    grid = np.linspace(0.005, 0.2, 200)
    bounds = np.array([frontier.envelope(float(budget)) for budget in grid])
    right.fill_between(
        grid, *bounds.T, color="#2a9d8f", alpha=0.4, label="proven: the best lies in here"
    )
    solved = [(point.budget, point.solution.objective) for point in frontier.points]
    right.plot(*zip(*solved, strict=True), "o", color="#1d3557", label="solved")
    right.set(xlabel="share of time in hazards that is allowed", ylabel="best entropy")
    right.legend()
    right.set_title("what a budget buys")
    figure.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    draw() if "--figure" in sys.argv[1:] else main()
