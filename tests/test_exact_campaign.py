"""Random problems of small models, discounted, next to one and total: proofs against exact rational optima."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

import cvxmdp as cm
from test_near_one import solved

KINDS = ("recurrent", "ending", "mixed", "layered")


def random_rows(kind: str, states: int, actions: int, random: np.random.Generator) -> np.ndarray:
    """Rows that end never, always, sometimes, or lead to later states only."""
    rows = random.dirichlet(np.full(states + 1, random.choice([0.2, 1.0])), size=(states, actions))
    going, left = rows[:, :, :states], rows[:, :, states:]
    back = going + left * np.eye(states)[random.integers(states, size=(states, actions))]
    if kind == "layered":
        going = np.triu(going.transpose(1, 0, 2), 1).transpose(1, 0, 2)
    ends = {
        "recurrent": np.zeros((states, actions), dtype=bool),
        "mixed": random.random((states, actions)) < 0.5,
    }.get(kind, np.ones((states, actions), dtype=bool))
    rows = np.where(ends[:, :, None], 0.98 * going, back)
    rows[rows < 1e-6] = 0.0
    sums = rows.sum(axis=2, keepdims=True)
    return np.where(ends[:, :, None], rows, rows / np.where(sums > 0, sums, 1.0))


def random_problem(seed: int) -> tuple[cm.Problem, float | None]:
    """The problem, and the budget it has."""
    random = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    states, actions = int(random.integers(1, 5)), int(random.integers(1, 3))
    discounts = [0.0, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9]
    if kind in ("ending", "layered"):
        discounts += [1.0, 1.0, 1.0]
    mask = random.random((states, actions)) < 0.8
    mask[np.arange(states), random.integers(actions, size=states)] = True
    initial = random.dirichlet(np.full(states, 0.5))
    signals = {
        "reward": random.normal(size=(states, actions)) * 10.0 ** random.integers(-6, 7),
        "cost": random.random((states, actions)),
    }
    rows, discount = random_rows(kind, states, actions, random), float(random.choice(discounts))
    mdp = cm.TabularMDP(rows, initial / initial.sum(), discount, signals=signals, actions=mask)
    used = float((cm.occupancy_of(mdp, cm.uniform_policy(mdp)) * mdp.signal("cost")).sum())
    budget = used * float(random.choice([0.5, 0.97, 1.05])) if random.random() < 0.7 else None
    within = {} if budget is None else {"cost": cm.linear("cost") <= budget}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=within), budget


def exact_optimum(mdp: cm.TabularMDP, budget: float | None) -> Fraction | None:
    """The best mixture of two deterministic policies within the budget; None where there is none."""
    gamma, places = Fraction(mdp.discount), np.flatnonzero(mdp.reachable).tolist()
    table = mdp.dense_transition()
    points = []
    for actions in product(*(np.flatnonzero(mdp.actions[s]) for s in places)):
        rows = []
        for s, a in zip(places, actions, strict=True):
            row = [Fraction(table[s, a, t]) for t in places]
            whole = Fraction(1) if mdp.ending[s, a] > 0 else sum(row, Fraction(0))
            rows.append([p / whole for p in row])
        size = range(len(places))
        system = [[Fraction(int(s == t)) - gamma * rows[s][t] for s in size] for t in size]
        visits = solved(system, [Fraction(mdp.initial[s]) for s in places])
        visited = list(zip(visits, places, actions, strict=True))
        cost, reward = (
            sum((v * Fraction(mdp.signal(name)[s, a]) for v, s, a in visited), Fraction(0))
            for name in ("cost", "reward")
        )
        points.append((cost, reward))
    if budget is None:
        return max(reward for _, reward in points)
    limit = Fraction(budget)
    known = [reward for cost, reward in points if cost <= limit]
    for (low, first), (high, second) in combinations(sorted(points), 2):
        if low <= limit < high:
            known.append(first + (limit - low) / (high - low) * (second - first))
    return max(known, default=None)


def check_one(seed: int) -> None:
    problem, budget = random_problem(seed)
    solver = cm.ConvexProgram() if seed % 3 else None
    certificate = cm.certify(problem, cm.solve(problem, solver))
    truth = exact_optimum(problem.mdp, budget)
    if certificate.infeasible:
        assert truth is None
    elif truth is not None:
        assert certificate.lower <= truth <= certificate.upper
        # Where some policies never end and others do, float64 knows less as the discount nears one.
        if seed % len(KINDS) != KINDS.index("mixed") or problem.mdp.discount <= 1 - 1e-6:
            assert certificate.relative_gap <= 1e-5


@pytest.mark.parametrize("seed", range(24))
def test_certificates_hold_the_exact_optimum(seed: int) -> None:
    check_one(seed)


@pytest.mark.long
def test_a_campaign_of_certificates_holds_the_exact_optima() -> None:
    for seed in range(24, 600):
        check_one(seed)
