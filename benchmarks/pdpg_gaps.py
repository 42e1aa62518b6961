"""What PDPG reaches with default settings: certified gaps and multipliers, natural and vanilla.

The seven problems of tests/reference/problems.json, the distance to a ball, a linear CMDP with 3 budgets
(Garnet, 200 states) and one with 10 (Garnet, 100 states), 2,000 iterations each, no early stopping. The gap is
the relative gap of ``certify(problem, solution)``, the lower bound being that of the repaired policy; the error
of the multipliers is relative to the largest one of ConvexProgram.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import cvxmdp as cm
from hardware import hardware
from pdpg import reference_problems


def further_problems() -> Iterator[tuple[str, cm.Problem]]:
    """A ball, three budgets, ten budgets."""
    grid = cm.gridworld(8, slip=0.1, discount=0.95, rewards={63: 1.0})
    expert = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))
    near = {"near": cm.distance(cm.ball(expert, 1.0), norm="l2") <= 0.5}
    yield "distance to a ball", cm.Problem(grid, maximize=cm.linear("reward"), subject_to=near)
    for count, states, shape, budget in ((3, 200, (5, 5), 0.42), (10, 100, (4, 4), 0.46)):
        costs = [f"cost {index}" for index in range(count)]
        mdp = cm.garnet(states, *shape, seed=3, discount=0.95, signals=("reward", *costs))
        budgets = {name: cm.linear(name, per="step") <= budget for name in costs}
        problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets)
        yield f"linear, {count} budgets", problem


def multiplier_error(solution: cm.Solution, exact: cm.Solution) -> float:
    """The largest error, relative to the largest exact multiplier."""
    names = list(exact.multipliers)
    if not names:
        return 0.0
    mine, theirs = (np.array([s.multipliers[name] for name in names]) for s in (solution, exact))
    return float(np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=2_000)
    options = parser.parse_args()
    print(hardware())
    print(f"{options.iterations:,} iterations, default settings\n")
    print("| problem | natural: gap | multipliers off by | vanilla: gap | multipliers off by |")
    print("|---|---|---|---|---|")
    for name, problem in [*reference_problems(), *further_problems()]:
        exact = cm.solve(problem, cm.ConvexProgram())
        cells = []
        for direction in ("natural", "vanilla"):
            solver = cm.PDPG(options.iterations, direction=direction, tolerance=None)
            solution = cm.solve(problem, solver)
            gap = cm.certify(problem, solution).relative_gap
            cells.append(f"{gap:.1e} | {multiplier_error(solution, exact):.1e}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
