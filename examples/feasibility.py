"""Feasibility-constrained MDP (the paper's fourth example): reward, but near what is known to be safe.

First near a single known policy, with a budget on hazards as well; then near a whole convex set, the
box of occupancies within 20% below and 25% above the known one.
"""

from __future__ import annotations

import numpy as np

import cvxmdp as cm
from safe_exploration import HAZARDS


def main() -> dict[str, cm.Solution]:
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=HAZARDS, rewards={63: 1.0})
    known = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))  # left, down, right, up
    near_point = {
        "near known": cm.distance(known, norm="l2") <= 1.0,
        "hazard": cm.linear("hazard", per="step") <= 0.095,
    }
    visits = cm.occupancy_of(mdp, known)
    near_box = {"near box": cm.distance(cm.box(0.8 * visits, 1.25 * visits), norm="l2") <= 0.5}
    solutions = {}
    for name, constraints in (("point", near_point), ("box", near_box)):
        problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=constraints)
        solutions[name] = cm.solve(problem)
        print(solutions[name], "\n")
    return solutions


if __name__ == "__main__":
    main()
