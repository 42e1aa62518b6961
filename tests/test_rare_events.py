"""Chances far below rounding: an answer is right to its own digits, or is not called optimal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import cvxmdp as cm

DIGITS = 1e-6  # what OPTIMAL means, relative to the optimum itself


def unlikely(seed: int, rungs: int = 9, actions: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A ladder whose rungs are climbed with chances of 1e-1 to 1e-4; every other step slips or ends.

    Beside it is a state where everything is likely, so that numbers of size one are among the others.
    """
    random = np.random.default_rng(seed)
    transition, top = np.zeros((rungs + 1, actions, rungs + 1)), np.zeros((rungs + 1, actions))
    for rung in range(rungs):
        for action in range(actions):
            chance = float(10.0 ** -random.uniform(1, 4))
            if rung + 1 < rungs:
                transition[rung, action, rung + 1] = chance
            else:
                top[rung, action] = chance
            transition[rung, action, random.integers(0, rung + 1)] += 0.4
            if random.random() < 0.3:
                transition[rung, action, rungs] += 1e-9 * chance**rungs
    transition[rungs, :, 0], top[rungs] = 0.1, random.uniform(0.5, 1.0, actions)
    return transition, top


def best_exactly(
    transition: np.ndarray, reward: np.ndarray, sense: str, discount: float
) -> Fraction:
    """The best return from state 0: policy iteration in fractions."""
    n_states, n_actions = reward.shape
    exact = [
        [[Fraction(discount) * Fraction(p) for p in row] for row in rows]
        for rows in transition.tolist()
    ]
    gains = [[Fraction(r) for r in row] for row in reward.tolist()]
    choose = max if sense == "maximize" else min
    policy = [0] * n_states
    while True:
        values = _solved([exact[s][policy[s]] for s in range(n_states)], gains, policy)
        after = [
            [
                gains[s][a] + sum(p * v for p, v in zip(exact[s][a], values, strict=True) if p)
                for a in range(n_actions)
            ]
            for s in range(n_states)
        ]
        better = [
            policy[s] if choose(row) == row[policy[s]] else row.index(choose(row))
            for s, row in enumerate(after)
        ]
        if better == policy:
            return values[0]
        policy = better


def _solved(
    rows: list[list[Fraction]], gains: list[list[Fraction]], policy: list[int]
) -> list[Fraction]:
    size = len(rows)
    system = [
        [Fraction(int(i == j)) - rows[i][j] for j in range(size)] + [gains[i][policy[i]]]
        for i in range(size)
    ]
    for k in range(size):
        pivot = system[k][k]
        system[k] = [x / pivot for x in system[k]]
        for i in range(size):
            factor = system[i][k]
            if i != k and factor:
                system[i] = [x - factor * y for x, y in zip(system[i], system[k], strict=True)]
    return [row[-1] for row in system]


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
@pytest.mark.parametrize("discount", [1.0, 0.97])
@pytest.mark.parametrize("seed", range(4))
def test_rare_returns_are_right_to_their_own_digits(seed: int, discount: float, sense: str) -> None:
    transition, top = unlikely(seed)
    best = best_exactly(transition, top, sense, discount)
    assert 0 < best < 1e-9
    mdp = cm.TabularMDP(transition, 0, discount=discount, signals={"top": top})
    problem = cm.Problem(mdp, **{sense: cm.linear("top")})
    for solver in (None, cm.ColumnGeneration()):
        solution = cm.solve(problem, solver, progress=False)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.objective == pytest.approx(float(best), rel=1e-12)
        certificate = cm.certify(problem, solution)
        assert Fraction(certificate.lower) <= best <= Fraction(certificate.upper)
        assert certificate.relative_gap <= 1e-9
        assert cm.check(certificate, problem).accepted


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_rare_returns_of_so_many_steps(sense: str) -> None:
    transition, top = unlikely(7)
    mdp = cm.TabularMDP(transition, 0, horizon=15, signals={"top": top})
    values = [Fraction(0)] * len(top)
    choose = max if sense == "maximize" else min
    for _ in range(15):
        values = [
            choose(
                Fraction(top[s, a])
                + sum(Fraction(p) * v for p, v in zip(transition[s, a], values, strict=True) if p)
                for a in range(top.shape[1])
            )
            for s in range(len(top))
        ]
    problem = cm.Problem(mdp, **{sense: cm.linear("top")})
    solution = cm.solve(problem, progress=False)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.objective == pytest.approx(float(values[0]), rel=1e-12)


@pytest.mark.parametrize("budget", [1.0, 1.2, 1.6])
@pytest.mark.parametrize("seed", range(2))
def test_a_rare_return_under_a_budget_is_right_or_not_called_optimal(
    seed: int, budget: float
) -> None:
    transition, top = unlikely(seed)
    steps = np.ones_like(top)
    steps[:, 0] = 1.5
    mdp = cm.TabularMDP(transition, 0, discount=1, signals={"top": top, "steps": steps})
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("steps"))).objective
    problem = cm.Problem(
        mdp, minimize=cm.linear("top"), subject_to={"steps": cm.linear("steps") <= budget * least}
    )
    solution = cm.solve(problem, progress=False)
    certificate = cm.certify(problem, solution)
    # No policy does better than the best without the budget, and the certificate knows its own digits.
    free = float(best_exactly(transition, top, "minimize", 1.0))
    assert certificate.upper >= free * (1 - 1e-12)
    assert certificate.one_sign
    if solution.status is cm.Status.OPTIMAL:
        assert certificate.gap <= DIGITS * abs(certificate.upper)


def test_what_is_rare_or_nothing_is_zero_exactly() -> None:
    """A policy that never pays is optimal, and nothing is between zero and zero."""
    transition, top = unlikely(3)
    top[:, 0] = 0.0
    transition[:, 0, -1] = 0.0
    mdp = cm.TabularMDP(transition, 0, discount=1, signals={"top": top})
    problem = cm.Problem(mdp, minimize=cm.linear("top"))
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.objective == 0.0
    assert cm.certify(problem, solution).upper == pytest.approx(0.0, abs=1e-280)
