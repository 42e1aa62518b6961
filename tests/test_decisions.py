"""A change of decisions and powers of returns: two atoms that every solver and certificate takes."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm


def small() -> cm.TabularMDP:
    table, random = cm.garnet(8, 3, 3, discount=0.9, seed=1), np.random.default_rng(0)
    signals = {name: random.random((8, 3)) for name in ("reward", "other")}
    return cm.TabularMDP(table.transition, table.initial, 0.9, signals=signals)


def changed(norm: str, budget: float) -> cm.Problem:
    """Today's policy is uniform, where every solver starts: all terms of the distance are at their kink."""
    mdp = small()
    change = cm.distance(cm.uniform_policy(mdp), norm=norm, of="actions")
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"change": change <= budget})


def fair() -> cm.Problem:
    return cm.Problem(small(), maximize=cm.power("reward", 0.3) + cm.power("other", 0.3))


PROBLEMS = {
    "l1": lambda: changed("l1", 0.4),
    "kl": lambda: changed("kl", 0.1),
    "alpha-fairness": fair,
}
LEARNER = cm.VRPDPG(
    iterations=400,
    primal_step=0.2,
    dual_step=1.0,
    momentum=0.3,
    horizon=40,
    batch_size=10,
    baseline=True,
    primal_decay=0.25,
    dual_decay=0.25,
)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(
    ("solver", "gap"),
    [
        (cm.ConvexProgram(), 1e-7),
        # Kinks bend no master: with l1 column generation creeps, and is stopped where it is near enough.
        (cm.ColumnGeneration(tolerance=5e-3), 5e-3),
        (cm.PDPG(iterations=1_000, tolerance=1e-5), 1e-4),
        (LEARNER, 0.1),
    ],
    ids=["ConvexProgram", "ColumnGeneration", "PDPG", "VRPDPG"],
)
def test_every_solver_comes_to_a_certified_answer(kind, solver, gap) -> None:
    problem = PROBLEMS[kind]()
    found = cm.solve(problem, solver, seed=0)
    certificate = cm.certify(problem, found)
    assert certificate.relative_gap <= gap
    assert all(violation <= 10 * gap for violation in found.violation.values())


@pytest.mark.parametrize("norm", ["l1", "kl"])
def test_a_change_of_decisions_weighs_states_by_how_often_they_are_visited(norm) -> None:
    mdp, random = small(), np.random.default_rng(2)
    today, policy = (cm.TabularPolicy(random.dirichlet(np.ones(3), 8)) for _ in range(2))
    x = cm.occupancy_of(mdp, policy)
    p, q = policy.probabilities(), today.probabilities()
    by_state = np.abs(p - q).sum(axis=1) if norm == "l1" else (p * np.log(p / q)).sum(axis=1)
    expected = float(cm.state_distribution(mdp, x) @ by_state)
    change = cm.distance(today, norm=norm, of="actions")
    assert cm.Problem(mdp, minimize=change).evaluate(policy).objective == pytest.approx(expected)
