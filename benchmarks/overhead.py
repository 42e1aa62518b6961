"""What cvxmdp adds on top of bare CVXPY: the same program written by hand, in the same run.

Garnet, entropy objective, one budget. Both sides start from the model and end with the policy; both
use Clarabel with the same tolerances. The ratio of the best of several alternating rounds is
reported.
"""

from __future__ import annotations

import argparse

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import cvxmdp as cm
from hardware import hardware, timed


def by_hand(mdp: cm.TabularMDP, budget: float, tolerance: float) -> float:
    """What a user of CVXPY writes."""
    states, actions = mdp.n_states, mdp.n_actions
    x = cp.Variable(states * actions, nonneg=True)
    sums = sp.kron(sp.eye_array(states), np.ones((1, actions)), format="csr")
    flow = sums - mdp.discount * mdp.transition.T
    entropy = cp.sum(cp.entr((1 - mdp.discount) * (sums @ x)))
    cost = (1 - mdp.discount) * mdp.signal("cost").ravel()
    program = cp.Problem(cp.Maximize(entropy), [flow @ x == mdp.initial, cost @ x <= budget])
    names = ("gap_abs", "gap_rel", "feas")
    options = {f"tol_{name}": tolerance for name in names}
    program.solve(solver=cp.CLARABEL, **options, **{f"reduced_tol_{n}": 1e-8 for n in names})
    policy = x.value.reshape(states, actions)
    policy = policy / policy.sum(axis=1, keepdims=True)
    return float(program.value)


def with_cvxmdp(mdp: cm.TabularMDP, budget: float, tolerance: float) -> float:
    """The same in cvxmdp."""
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy(),
        subject_to={"cost": cm.linear("cost", per="step") <= budget},
    )
    return cm.solve(problem, cm.ConvexProgram(tolerance=tolerance)).objective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tolerance", type=float, default=1e-10)
    options = parser.parse_args()
    mdp = cm.garnet(options.states, 4, 4, seed=0, discount=0.95)
    budget = 0.3
    hand, ours = [], []
    for _ in range(options.rounds + 1):  # the first round warms both up and is not counted
        hand.append(timed(lambda: by_hand(mdp, budget, options.tolerance)))
        ours.append(timed(lambda: with_cvxmdp(mdp, budget, options.tolerance)))
    best_hand, best_ours = (min(seconds for seconds, _ in runs[1:]) for runs in (hand, ours))
    print(hardware())
    print(
        f"Garnet with {options.states:,} states, entropy under one budget, best of {options.rounds}"
    )
    print(
        f"bare CVXPY {best_hand:.2f} s, cvxmdp {best_ours:.2f} s: ratio {best_ours / best_hand:.2f}"
    )
    print(f"objectives {hand[-1][1]:.9f} and {ours[-1][1]:.9f}")


if __name__ == "__main__":
    main()
