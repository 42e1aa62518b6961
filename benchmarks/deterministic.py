"""Deterministic policies on random linear problems with two budgets: feasible, how near to the best, how long.

    python benchmarks/deterministic.py [--problems 50] [--seed 0]

For every problem: the search alone (no branch and bound), its objective against the proven bound on all
policies, against the best deterministic policy where branch and bound finds that in time, and its processor
time in units of one certified solve of the problem.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import cvxmdp as cm

SIZES = (20, 30, 50, 100, 200)
BRANCHED = 150  # pairs up to which branch and bound is asked for the best
SECONDS = 20.0


def random_linear_problem(random: np.random.Generator) -> cm.Problem:
    """A Garnet of 20 to 200 states with two budgets, each between the least and what the best policy spends."""
    states, actions = int(random.choice(SIZES)), int(random.integers(2, 5))
    mdp = cm.garnet(states, actions, 3, seed=int(random.integers(10**6)), discount=0.95)
    mdp = mdp.with_signals(second=random.random(mdp.actions.shape))
    free = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")), progress=False)
    limits = {}
    for name in ("cost", "second"):
        least = cm.solve(cm.Problem(mdp, minimize=cm.linear(name)), progress=False).objective
        spent = float((mdp.signal(name) * free.occupancy).sum())
        share = float(random.uniform(0.3, 0.8))
        limits[name] = cm.linear(name) <= least + share * (spent - least)
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def measured(problem: cm.Problem) -> dict[str, float | bool | str] | None:
    """One row; None where no policy at all satisfies the budgets."""
    begun = time.process_time()
    relaxed = cm.solve(problem, progress=False)
    if not relaxed.has_policy:
        return None
    cm.certify(problem, relaxed)
    one = time.process_time() - begun
    begun = time.process_time()
    found = cm.deterministic(problem, branch=False)
    row: dict[str, float | bool | str] = {
        "states": problem.mdp.n_states,
        "feasible": found.feasible,
        "to the bound": found.relative_gap if found.feasible else np.nan,
        "solves": (time.process_time() - begun) / one,
    }
    if int(problem.mdp.flow.usable.sum()) <= BRANCHED:
        exact = cm.deterministic(problem, branch=True, time_limit=SECONDS)
        if "not done" not in exact.branched:
            row["exists"] = exact.feasible
            row["to the best"] = (exact.objective - found.objective) / abs(exact.objective)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    rows: list[dict[str, float | bool | str]] = []
    while len(rows) < arguments.problems:
        row = measured(random_linear_problem(random))
        if row is not None:
            rows.append(row)
            print({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()})
    exact = [row for row in rows if row.get("exists")]
    missed = [row for row in exact if not row["feasible"]]
    near = [float(row["to the best"]) for row in exact if row["feasible"]]
    print(f"\n{len(rows)} problems: feasible in {sum(bool(row['feasible']) for row in rows)}")
    print(f"branch and bound has the best of {len(exact)}; infeasible among them: {len(missed)}")
    print(f"to the best: median {np.median(near):.4f}, largest {max(near):.4f}")
    bounds = [float(row["to the bound"]) for row in rows if row["feasible"]]
    print(f"to the proven bound: median {np.median(bounds):.4f}, largest {max(bounds):.4f}")
    solves = [float(row["solves"]) for row in rows]
    print(f"time in certified solves: median {np.median(solves):.1f}, largest {max(solves):.1f}")


if __name__ == "__main__":
    main()
