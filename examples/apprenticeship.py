"""Safety-aware apprenticeship (the paper's third example): imitate an expert who is too careless.

The expert heads for the lower right corner through everything and spends 11.7% of the time in
hazards. We want to be as near to him as a budget of 8% allows, in the l2 distance and in
Kullback-Leibler divergence.
"""

from __future__ import annotations

import numpy as np

import cvxmdp as cm
from safe_exploration import HAZARDS


def main() -> dict[str, cm.Solution]:
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=HAZARDS)
    expert = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))  # left, down, right, up
    solutions = {}
    for norm in ("l2", "kl"):
        problem = cm.Problem(
            mdp,
            minimize=cm.distance(expert, norm=norm),
            subject_to={"hazard": cm.linear("hazard", per="step") <= 0.08},
        )
        solutions[norm] = cm.solve(problem)
        print(solutions[norm], "\n")
    return solutions


if __name__ == "__main__":
    main()
