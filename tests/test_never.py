"""Budgets of zero: what they forbid, and that every exact solver keeps them to the letter."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.solvers.never import Never


def problem(seed: int, objective: cm.Utility) -> cm.Problem:
    random = np.random.default_rng(seed)
    cost = (random.random((8, 3)) < 0.4).astype(float)
    cost[:, 0] = 0.0
    mdp = cm.garnet(8, 3, 3, discount=0.95, seed=seed).with_signals(cost=cost)
    return cm.Problem(mdp, maximize=objective, subject_to={"never": cm.linear("cost") <= 0})


SOLVERS = [cm.ConvexProgram(), cm.ColumnGeneration(tolerance=1e-5), cm.PDPG()]


@pytest.mark.parametrize("objective", [cm.linear("reward"), cm.entropy()], ids=repr)
def test_every_exact_solver_keeps_it(objective: cm.Utility) -> None:
    written = problem(0, objective)
    # By hand: the same model without the pairs that cost (no state is left without a pair).
    allowed = written.mdp.actions & (written.mdp.signal("cost") == 0)
    known = cm.solve(cm.Problem(written.mdp.replace(actions=allowed), maximize=objective))
    for solver in SOLVERS:
        solution = cm.solve(written, solver)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.problem is written
        assert solution.violation == {"never": 0.0}
        assert (solution.policy.probabilities()[~allowed] == 0).all()
        assert solution.objective == pytest.approx(known.objective, rel=1e-5)
        certificate = cm.certify(written, solution)
        assert certificate.relative_gap < 2e-5
        assert not certificate.repaired
        assert "Kept without exception: 'never'" in solution.message


def test_a_policy_with_traces_of_the_forbidden_is_certified_without_them() -> None:
    written = problem(1, cm.linear("reward"))
    best = cm.solve(written).policy.probabilities()
    certificate = cm.certify(written, 0.999999999 * best + 1e-9 / 3)
    assert certificate.repaired
    assert certificate.relative_gap < 1e-6


def test_what_leads_to_the_forbidden_is_forbidden() -> None:
    # 0 -> 1 or 2; 1 costs whatever it does; 2 may go to 1 or stay.
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = 1.0
    transition[1, :, 1] = 1.0
    transition[2, 0, 1] = transition[2, 1, 2] = 1.0
    cost, reward = np.array([0.0, 1.0, 0.0]), np.array([0.0, 5.0, 1.0])
    mdp = cm.TabularMDP(transition, 0, 0.5, signals={"cost": cost, "reward": reward})
    written = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"never": cm.linear("cost") <= 0}
    )
    never = Never.of(written)
    assert never is not None
    assert never.restricted.mdp.reachable_pairs.sum() == 2
    assert cm.solve(written).objective == pytest.approx(1.0)
    stuck = cm.Problem(
        mdp.replace(initial=1), maximize=cm.linear("reward"), subject_to=written.constraints
    )
    assert Never.of(stuck) is None
    assert cm.solve(stuck).status is cm.Status.INFEASIBLE


@pytest.mark.parametrize("above", [0.0, 1e-9])
def test_budgets_at_the_least_cost(above: float) -> None:
    mdp = cm.garnet(8, 3, 3, discount=0.95, seed=2)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    budget = {"cost": cm.linear("cost") <= least + above}
    written = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget)
    first, second = cm.solve(written), cm.solve(written, cm.ColumnGeneration())
    assert first.status is second.status is cm.Status.OPTIMAL
    assert first.objective == pytest.approx(second.objective, rel=1e-6)
    if above:
        assert first.violation == second.violation == {"cost": 0.0}
