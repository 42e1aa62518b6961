"""How much is proven of the true model from how much data, and what proving costs.

    python benchmarks/tightness.py            # tables of bounds, cautious plans and the cost of 1e6 transitions
    python benchmarks/tightness.py --seeds 20 --rows 1000000

Data are plain counts of simulated play; supports are unknown, signals known, the first state known.
*Bounds*: the optimum with a tenth of its actions random; (upper - lower) in percent of the objective's
range, of the cautious plan. *Cautious*: uniformly random play; in how many seeds a plan was proven, its
distance to the true optimum, and the largest violation there.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.text_tables import text_table
from cvxmdp.models.counts import Counts
from cvxmdp.models.estimate import estimated_model
from cvxmdp.problems.solution import Status
from experience_problems import PROBLEMS, objective_range
from hardware import hardware

NAMES = list(PROBLEMS)[:6]
LANES = 1_000


def counted(
    problem: cm.Problem, policy: np.ndarray, rows: int, rng: np.random.Generator
) -> cm.Problem:
    """The problem on the estimate from so many steps of a policy, in episodes of at most 3 / (1 - discount)."""
    mdp = problem.mdp
    chances = mdp.transition.toarray()
    chances = np.column_stack([chances, np.maximum(1.0 - chances.sum(axis=1), 0.0)])
    ends, chosen = chances.cumsum(axis=1), policy.cumsum(axis=1)
    starts, longest = mdp.initial.cumsum(), round(3 / (1 - mdp.discount))
    outcomes = np.zeros(chances.shape, dtype=np.int64)
    state, age = np.full(LANES, mdp.n_states), np.zeros(LANES, dtype=np.int64)
    for _ in range(max(1, rows // LANES)):
        draws = rng.random((3, LANES))
        over = (state == mdp.n_states) | (age == longest)
        state = np.where(over, np.searchsorted(starts[:-1], draws[0]), state)
        action = (draws[1][:, None] > chosen[state][:, :-1]).sum(axis=1)
        row = state * mdp.n_actions + action
        state = (draws[2][:, None] > ends[row][:, :-1]).sum(axis=1)
        np.add.at(outcomes, (row, state), 1)
        age = np.where(over, 1, age + 1)
    counts = Counts(sp.csr_array(outcomes), mdp.actions.copy())
    model = estimated_model(counts, mdp.discount, initial=mdp.initial, known=dict(mdp.signals))
    return problem.with_model(model)


def bounds(rows: int, seeds: int) -> None:
    """The gap of cautious plans after near-optimal play."""
    table = []
    for name in NAMES:
        problem = PROBLEMS[name]()
        spread = objective_range(problem)
        best = np.asarray(cm.solve(problem).policy.probabilities())
        policy = 0.9 * best + 0.1 * problem.mdp.flow.uniform
        gaps = []
        for seed in range(seeds):
            asked = counted(problem, policy, rows, np.random.default_rng(seed))
            plan = cm.solve(asked, cautious=0.95)
            gaps.append(100 * cm.certify(asked, plan).gap / spread)
        finite = [gap for gap in gaps if math.isfinite(gap)]
        middle = f"{np.median(gaps):.1f}" if finite else "none"
        table.append((name, middle, f"{max(gaps):.1f}", f"{len(finite)} of {seeds}"))
    header = ("problem", "(upper - lower) / range, %: median", "worst", "proven")
    print("\n".join(text_table(header, table)), flush=True)


def cautious(rows: int, seeds: int) -> None:
    """Plans from uniformly random play, held against the truth."""
    table = []
    for name in NAMES:
        problem = PROBLEMS[name]()
        spread, best = objective_range(problem), cm.solve(problem).objective
        proven, away, missed, seconds = 0, [], 0.0, []
        for seed in range(seeds):
            asked = counted(problem, problem.mdp.flow.uniform, rows, np.random.default_rng(seed))
            started = time.perf_counter()
            plan = cm.solve(asked, cautious=0.95)
            seconds.append(time.perf_counter() - started)
            if plan.status is not Status.CAUTIOUS:
                continue
            proven += 1
            there = problem.evaluate(plan.policy)
            away.append(100 * problem.sign * (best - there.objective) / spread)
            missed = max(missed, *there.violation.values())
        distance = f"{np.median(away):.1f} / {max(away):.1f}" if away else "-"
        row = (name, f"{proven} of {seeds}", distance, f"{missed:.2g}", f"{np.median(seconds):.1f}")
        table.append(row)
    header = ("problem", "proven", "from the optimum, %: median / worst", "violation", "seconds")
    print("\n".join(text_table(header, table)), flush=True)


def cost(states: int = 10_000, entries: int = 1_000_000) -> None:
    """One linear problem whose counts have so many entries."""
    rng = np.random.default_rng(0)
    actions, per_row = 2, entries // (2 * states)
    columns = rng.integers(0, states, (actions * states, per_row)).ravel()
    data = rng.integers(1, 200, columns.size)
    pointers = np.arange(0, columns.size + 1, per_row)
    outcomes = sp.csr_array((data, columns, pointers), shape=(actions * states, states + 1))
    outcomes.sum_duplicates()
    counts = Counts(outcomes, np.ones((states, actions), dtype=bool))
    known = {"reward": rng.random((states, actions)), "cost": rng.random((states, actions))}
    model = estimated_model(counts, 0.9, initial=0, known=known)
    problem = cm.Problem(
        model, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 5.5}
    )
    started = time.perf_counter()
    certificate = cm.certify(problem, model.flow.uniform)
    seconds = time.perf_counter() - started
    print(
        f"{states:,} states, {outcomes.nnz:,} entries: certificate in {seconds:.0f} s, upper "
        f"{certificate.upper:.4f}, the uniform policy reaches {certificate.reaches:.4f}",
        flush=True,
    )


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print(hardware())
    print(f"\nBounds after {given.rows:,} steps of the optimum, a tenth of the actions random\n")
    bounds(given.rows, given.seeds)
    print(f"\nCautious plans from {given.rows:,} uniformly random steps\n")
    cautious(given.rows, given.seeds)
    print()
    cost()


if __name__ == "__main__":
    main()
