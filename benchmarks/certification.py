"""Time and memory of certification against the size of the model, beside one solve.

Garnets with 4 actions and 4 successors, discount 0.95, reward under one budget. The policy is the best
one for reward - cost (a Lagrangian with multiplier 1), which is certified with that multiplier. Up to
``--program`` states the exact solution is certified as well and compared with the time of solving; beyond
that the yardstick is the unconstrained Markov decision problem, solved to the same accuracy. Each size
runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import multiprocessing

import numpy as np

import cvxmdp as cm
from cvxmdp.models.planning import optimal_values
from hardware import hardware, peak, timed


def measure(states: int, program_limit: int) -> str:
    mdp = cm.garnet(states, 4, 4, seed=0, discount=0.95)
    price = {"cost": 1.0}
    reward = mdp.signal("reward") - mdp.signal("cost")
    mdp_seconds, (_, greedy) = timed(lambda: optimal_values(mdp.flow, reward))
    policy = np.zeros((states, 4))
    policy[np.arange(states), greedy] = 1.0
    budget = float(np.vdot(mdp.signal("cost"), cm.occupancy_of(mdp, policy))) * 1.000001
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= budget}
    )
    seconds, certificate = timed(lambda: cm.certify(problem, policy, price))
    assert not certificate.repaired, "the budget was chosen so that the policy meets it"
    solve = "            -            -"
    if states <= program_limit:
        solve_seconds, solution = timed(lambda: cm.solve(problem))
        again, _ = timed(lambda: cm.certify(problem, solution))
        solve = f"{solve_seconds:11.2f} s {again / solve_seconds:12.2f}"
    return (
        f"{states:>10,} {seconds:9.2f} s {mdp_seconds:9.2f} s {seconds / mdp_seconds:7.2f} {solve} "
        f"{peak():9.2f} GB {certificate.relative_gap:9.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--program", type=int, default=3_000)
    options = parser.parse_args()
    print(hardware())
    print(
        "    states     certify   one MDP    ratio  exact solve   its certify       peak       gap\n"
        "                                             (HiGHS)      / solve"
    )
    context = multiprocessing.get_context("spawn")
    for states in options.states:
        with context.Pool(1) as pool:
            print(pool.apply(measure, (states, options.program)), flush=True)


if __name__ == "__main__":
    main()
