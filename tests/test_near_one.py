"""Discounts near one: answers and proofs against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

import cvxmdp as cm

NINES = range(1, 11)


def recurrent(discount: float) -> cm.TabularMDP:
    random = np.random.default_rng(1)
    rows = random.dirichlet(np.ones(4), size=(4, 2))
    signals = {"reward": random.normal(size=(4, 2)), "cost": random.random((4, 2))}
    return cm.TabularMDP(rows, random.dirichlet(np.ones(4)), discount, signals=signals)


def ending(discount: float) -> cm.TabularMDP:
    """Twelve steps, then the end."""
    return recurrent(0.5).unroll(12).replace(discount=discount)


def exact_rows(mdp: cm.TabularMDP) -> list[list[list[Fraction]]]:
    """P in rational numbers; a row that ends no episode means its numbers divided by their sum."""
    rows = []
    for table, ends in zip(mdp.dense_transition(), mdp.ending, strict=True):
        exact = [[Fraction(p) for p in row] for row in table]
        rows.append(
            [
                row if end > 0 else [p / sum(row) for p in row]
                for row, end in zip(exact, ends, strict=True)
            ]
        )
    return rows


def solved(system: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """By Gauss and Jordan."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(system, right, strict=True)]
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(size):
            if i != k and rows[i][k]:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def exact_best_within(mdp: cm.TabularMDP, budget: Fraction) -> Fraction:
    """The best return with at most that cost: the best mixture of two deterministic policies."""
    rows, gamma = exact_rows(mdp), Fraction(mdp.discount)
    states = range(mdp.n_states)
    rho = [Fraction(p) for p in mdp.initial]
    points = []
    for actions in product(range(2), repeat=mdp.n_states):
        system = [
            [Fraction(int(s == t)) - gamma * rows[s][actions[s]][t] for s in states] for t in states
        ]
        visits = solved(system, rho)
        points.append(
            [
                sum(v * Fraction(mdp.signal(name)[s, actions[s]]) for s, v in enumerate(visits))
                for name in ("cost", "reward")
            ]
        )
    best = max(reward for cost, reward in points if cost <= budget)
    for (low, first), (high, second) in combinations(sorted(points), 2):
        if low <= budget < high:
            best = max(best, first + (budget - low) / (high - low) * (second - first))
    return best


def exact_best(mdp: cm.TabularMDP) -> Fraction:
    """The best return of a model whose steps lead to later states only."""
    rows, gamma = exact_rows(mdp), Fraction(mdp.discount)
    values = [Fraction(0)] * mdp.n_states
    for state in reversed(range(mdp.n_states)):
        values[state] = max(
            Fraction(mdp.signal("reward")[state, action])
            + gamma * sum(p * v for p, v in zip(rows[state][action], values, strict=True) if p)
            for action in range(mdp.n_actions)
        )
    return sum((Fraction(p) * v for p, v in zip(mdp.initial, values, strict=True)), Fraction(0))


def close(problem: cm.Problem) -> cm.Certificate:
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.status is cm.Status.OPTIMAL
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= 1e-9
    return certificate


@pytest.mark.parametrize("nines", NINES)
def test_a_recurrent_model_is_right_at_every_discount(nines: int) -> None:
    mdp = recurrent(1.0 - 10.0**-nines)
    budget = 0.45 * mdp.max_mass
    within = {"cost": cm.linear("cost") <= budget}
    certificate = close(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=within))
    truth = exact_best_within(mdp, Fraction(budget))
    assert certificate.lower <= truth <= certificate.upper
    close(cm.Problem(mdp, maximize=cm.entropy(), subject_to=within))


@pytest.mark.parametrize("nines", NINES)
def test_a_model_that_ends_is_right_at_every_discount(nines: int) -> None:
    mdp = ending(1.0 - 10.0**-nines)
    certificate = close(cm.Problem(mdp, maximize=cm.linear("reward")))
    assert certificate.lower <= exact_best(mdp) <= certificate.upper
    within = {"cost": cm.linear("cost") <= 5.0}
    close(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=within))
    close(cm.Problem(mdp, maximize=cm.entropy(), subject_to=within))


@pytest.mark.parametrize("model", [recurrent, ending])
@pytest.mark.parametrize("nines", [3, 6, 10])
def test_infeasible_near_one_is_proven(model, nines: int) -> None:
    mdp = model(1.0 - 10.0**-nines)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost")), cm.ConvexProgram()).objective
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 0.9 * least}
    )
    for solver in (cm.ConvexProgram(), cm.ColumnGeneration()):
        solution = cm.solve(problem, solver)
        assert solution.status is cm.Status.INFEASIBLE
        assert cm.certify(problem, solution).infeasible


def test_certificates_near_one_are_checked(tmp_path) -> None:
    for model in (recurrent, ending):
        problem = cm.Problem(model(1.0 - 1e-9), maximize=cm.entropy())
        certificate = cm.certify(problem, cm.solve(problem, cm.ConvexProgram()))
        certificate.save(tmp_path / "proof.json")
        assert cm.check(tmp_path / "proof.json", problem)


def test_quadratics_near_one() -> None:
    mdp = recurrent(0.9999)
    near = cm.distance(cm.uniform_policy(mdp), norm="l2-squared")
    within = {"cost": cm.linear("cost", per="step") <= 0.45}
    close(cm.Problem(mdp, minimize=near, subject_to=within))


def test_the_longest_stay_is_that_of_the_episodes_not_of_the_discount() -> None:
    assert ending(1.0 - 1e-10).flow.mass == pytest.approx(12.0, rel=1e-8)
    assert recurrent(1.0 - 1e-10).flow.mass == pytest.approx(1e10, rel=1e-6)
