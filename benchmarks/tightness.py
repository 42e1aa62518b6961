"""How much is proven of the true model from how much data, and what proving costs.

    python benchmarks/tightness.py            # tables of bounds, cautious plans and the cost of 1e6 transitions
    python benchmarks/tightness.py --seeds 20 --plans 20 --rows 1000000 --minutes 10

Data are plain counts of simulated play; supports are unknown, signals known, the first state known.
*Bounds*: the optimum with a tenth of its actions random; (upper - lower) in percent of the objective's
range, of the cautious plan. *Cautious*: uniformly random play; in how many seeds a plan was proven, its
distance to the true optimum, and the largest violation there, in percent of the budget. What was measured is
kept in benchmarks/results/tightness.jsonl, so that another run adds seeds.
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
from experience import FIRST, RESULTS, known
from experience_problems import ANYWHERE, RANDOM
from hardware import hardware
from kept_measurements import Kept

LANES = 1_000
STUDIED = [*FIRST, *ANYWHERE, *RANDOM]


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


def bound(name: str, rows: int, seed: int) -> dict[str, float | None]:
    """The gap of a cautious plan after near-optimal play."""
    true = known(name)
    policy = (
        0.9 * np.asarray(true.best.policy.probabilities()) + 0.1 * true.problem.mdp.flow.uniform
    )
    asked = counted(true.problem, policy, rows, np.random.default_rng(seed))
    gap = 100 * cm.certify(asked, cm.solve(asked, cautious=0.95)).gap / true.range
    return {"gap": round(gap, 3) if math.isfinite(gap) else None}


def cautious(name: str, rows: int, seed: int) -> dict[str, float | None]:
    """A plan from uniformly random play, held against the truth; None where nothing is proven."""
    true = known(name)
    uniform, rng = true.problem.mdp.flow.uniform, np.random.default_rng(seed)
    plan = cm.solve(counted(true.problem, uniform, rows, rng), cautious=0.95)
    if plan.status is not cm.Status.CAUTIOUS:
        return {"distance": None, "violation": None}
    return dict(true.judged(plan.policy))


def tables(kept: Kept, rows: int) -> None:
    """Of everything that was measured with so many rows."""
    table = []
    for name in STUDIED:
        gaps = [one["gap"] for one in kept.of("bounds", name, rows)]
        plans = kept.of("cautious", name, rows)
        proven = [one for one in plans if one["distance"] is not None]
        shown = [gap if gap is not None else math.inf for gap in gaps]
        away = [one["distance"] for one in proven]
        table.append(
            (
                name,
                f"{np.median(shown):.1f} / {max(shown):.1f} ({len(shown)})" if shown else "-",
                f"{len(proven)} of {len(plans)}",
                f"{np.median(away):.1f} / {max(away):.1f}" if away else "-",
                f"{max(one['violation'] for one in proven):.2g}" if proven else "-",
            )
        )
    header = (
        "problem",
        "(upper - lower) / range, %: median / worst (seeds)",
        "proven",
        "plan from the optimum, %: median / worst",
        "violation",
    )
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
    """Measure what is missing, print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=5, help="of the bounds")
    parser.add_argument("--plans", type=int, default=20, help="seeds of the cautious plans")
    parser.add_argument("--minutes", type=float, default=np.inf, help="of processor time")
    parser.add_argument("--no-cost", action="store_true", help="leave the large counts out")
    given = parser.parse_args()
    kept = Kept(RESULTS.with_name("tightness.jsonl"), given.minutes)
    for study, call, seeds in (("cautious", cautious, given.plans), ("bounds", bound, given.seeds)):
        for seed in range(seeds):
            for name in STUDIED:
                key = (study, name, given.rows, seed)
                kept.measure(key, lambda k=key, call=call: call(k[1], k[2], k[3]))
    print(hardware())
    print(
        f"\nBounds after {given.rows:,} steps of the optimum, a tenth of the actions random; cautious plans "
        f"from {given.rows:,} uniformly random steps\n"
    )
    tables(kept, given.rows)
    if not given.no_cost:
        print()
        cost()


if __name__ == "__main__":
    main()
