"""Risk of a whole episode: maintenance of a machine for twenty weeks, whose bill must rarely exceed its budget.

Each week the machine runs as it is, or is serviced first. Worn machines produce less and break down. A mean of
the bill says little about the one bill there will be: here the chance that it exceeds 12 is at most 5%, and
beside it stands the least mean of the worst 5% (CVaR). The weeks and the bill so far are part of the state: 20
weeks x 10 degrees of wear x 52 levels, 10,400 states.

    python examples/maintenance_risk.py
"""

from __future__ import annotations

import time

import numpy as np

import cvxmdp as cm

WEEKS, WEAR, LEVELS = 20, 10, 50
SERVICE, BREAKDOWN = 2.0, 5.0


def machine() -> cm.TabularMDP:
    """Wear 0 to 8, and 9 for broken; "run" as it is, or "service" first, which takes half of the wear away."""
    transition = np.zeros((WEAR, 2, WEAR))
    cost, made = np.zeros((WEAR, 2)), np.zeros((WEAR, 2))
    broken = WEAR - 1
    for wear in range(broken):
        for action, start in enumerate((wear, wear // 2)):
            breaks = 0.02 * start
            worn = min(start + 1, broken - 1)
            transition[wear, action, broken] = breaks
            transition[wear, action, worn] += 0.6 * (1 - breaks)
            transition[wear, action, start] += 0.4 * (1 - breaks)
            made[wear, action] = 1.0 - 0.05 * start
    cost[:broken, 1] = SERVICE
    transition[broken, :, 0], cost[broken, :] = 1.0, BREAKDOWN  # replaced, and nothing is made
    names = [*(f"wear {wear}" for wear in range(broken)), "broken"]
    signals = {"made": made, "bill": cost}
    weekly = cm.TabularMDP(
        transition, 0, 0.9, signals, state_names=names, action_names=["run", "service"]
    )
    return weekly.unroll(WEEKS).replace(discount=1.0)


def main() -> None:
    plain = machine()
    mdp = plain.with_budget_state("bill", levels=LEVELS)
    made, tail = cm.linear("made"), cm.chance("bill", above=12)
    free = cm.solve(cm.Problem(mdp, maximize=made))
    begun = time.process_time()
    problem = cm.Problem(mdp, maximize=made, subject_to={"bill above 12": tail <= 0.05})
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    seconds = time.process_time() - begun
    print(f"{mdp.n_states:,} states\n\n{solution}\n\n{certificate}\n")
    above = float(problem.bind(tail).value(free.measured))
    print(
        f"Without the constraint {free.objective:.4f} is made; the bill is above 12 with chance {above:.3f}."
    )
    print(f"{seconds:.1f} s of one processor for answer and proof\n")
    least = cm.least_cvar(mdp, "bill", 0.95, subject_to={"made": made >= 14.0})
    print(str(least).split("\n")[0])
    within = cm.within_cvar(cm.Problem(mdp, maximize=made), "bill", 0.95, at_most=12.0)
    print(str(within).split("\n")[0])


if __name__ == "__main__":
    main()
