"""Safe exploration (the paper's second example): maximum entropy under a budget on hazards."""

from __future__ import annotations

import cvxmdp as cm

HAZARDS = [10, 11, 14, 18, 21, 29, 30, 37, 43, 44, 51, 53]


def main() -> cm.Solution:
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=HAZARDS)
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") <= 0.05},
    )
    solution = cm.solve(problem)
    print(solution)
    return solution


if __name__ == "__main__":
    main()
