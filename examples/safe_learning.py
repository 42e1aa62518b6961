"""Safe learning (the paper's first example): reward with a log barrier on the cost.

The barrier is minus infinity where the budget is exceeded, so every method that climbs it from a
feasible start stays feasible on its way.
"""

from __future__ import annotations

import cvxmdp as cm
from safe_exploration import HAZARDS


def main() -> cm.Solution:
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=HAZARDS, rewards={63: 1.0})
    barrier = cm.log_barrier(cm.linear("hazard") <= 1.0)
    problem = cm.Problem(mdp, maximize=cm.linear("reward") + 0.1 * barrier)
    solution = cm.solve(problem)
    print(solution)
    return solution


if __name__ == "__main__":
    main()
