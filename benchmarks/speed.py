"""How long the solvers take, in a form that a later run is compared with (pytest-benchmark).

    make bench-speed    # measures, keeps the numbers in out/benchmarks, compares with the last run

Each case is warm: what is compiled is compiled before the first round. Numbers of different machines, or of a
machine with other work, say nothing about a change; two runs one after the other do.
"""

from __future__ import annotations

import pytest

import cvxmdp as cm


def budgeted(n_states: int) -> cm.Problem:
    mdp = cm.garnet(n_states, 5, 5, seed=1, discount=0.95, signals=("reward", "fuel", "noise"))
    budgets = {
        name: cm.linear(name, per="step") <= budget
        for name, budget in (("fuel", 0.45), ("noise", 0.45))
    }
    return cm.Problem(mdp, maximize=cm.linear("reward", per="step"), subject_to=budgets)


def exploration(side: int) -> cm.Problem:
    hazards = list(range(3, side * side, 10))
    mdp = cm.gridworld(side, slip=0.1, discount=0.95, hazards=hazards)
    limit = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to=limit)


CASES = {
    "solve, linear, 500 states": (budgeted(500), None),
    "solve, entropy, 20x20": (exploration(20), None),
    "ColumnGeneration, linear, 10,000 states": (budgeted(10_000), cm.ColumnGeneration()),
    "ColumnGeneration, entropy, 50x50": (exploration(50), cm.ColumnGeneration(tolerance=1e-2)),
    "PDPG, 200 iterations, 8x8": (exploration(8), cm.PDPG(iterations=200, tolerance=None)),
    "VRPDPG, 2,000 iterations, 8x8": (exploration(8), cm.VRPDPG(iterations=2_000)),
}


@pytest.mark.parametrize("name", CASES)
def test_solve(name: str, benchmark) -> None:
    problem, solver = CASES[name]
    seed = 0 if solver is not None and solver.needs_seed else None
    benchmark.pedantic(lambda: cm.solve(problem, solver, seed=seed), rounds=3, warmup_rounds=1)


def test_certify(benchmark) -> None:
    problem = exploration(20)
    policy = cm.solve(problem).policy
    benchmark.pedantic(lambda: cm.certify(problem, policy), rounds=3, warmup_rounds=1)
