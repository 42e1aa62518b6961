"""Stated errors: certified worst and best cases against an enumeration of corner models."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.errors import ModelError
from cvxmdp.problems.solution import Status

SHARE = 0.2


def small_world(seed: int) -> cm.TabularMDP:
    """Two states, two actions; some rows end."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(3), size=4)
    rows[0] = [0.6, 0.4, 0.0]
    return cm.TabularMDP(
        rows[:, :2].reshape(2, 2, 2),
        [0.7, 0.3],
        0.8,
        signals={"reward": rng.random((2, 2)), "cost": rng.random((2, 2))},
    )


def corners(world: cm.TabularMDP, share: float = SHARE) -> list[cm.TabularMDP]:
    """Every model whose rows are vertices of what is allowed."""
    rows = world.transition.toarray()
    rows = np.column_stack([rows, 1.0 - rows.sum(axis=1)])
    rows[np.abs(rows) < 1e-12] = 0.0
    choices = [_vertices(row, share) for row in rows]
    models = []
    for chosen in itertools.product(*choices):
        matrix = sp.csr_array(np.array(chosen)[:, :-1])
        models.append(world.replace(transition=matrix))
    return models


def _vertices(row: np.ndarray, share: float) -> list[np.ndarray]:
    """All entries but one at an end of its interval."""
    seen, found = np.flatnonzero(row), []
    for free in seen:
        others = [x for x in seen if x != free]
        for signs in itertools.product((-1, 1), repeat=len(others)):
            moved = np.zeros(row.size)
            moved[others] = share * row[others] * np.array(signs)
            moved[free] = -moved.sum()
            if abs(moved[free]) <= share * row[free] + 1e-15:
                found.append(row + moved)
    return found or [row]


@pytest.mark.parametrize("seed", range(4))
def test_linear_worst_and_best_cases_are_those_of_corners(seed: int) -> None:
    world = small_world(seed)
    policy = np.random.default_rng(seed).dirichlet(np.ones(2), size=2)
    problem = cm.Problem(world.uncertain(SHARE), maximize=cm.linear("reward"))
    certificate = cm.certify(problem, policy)
    models = corners(world)
    worst = min(problem.with_model(model).evaluate(policy).objective for model in models)
    best = max(cm.solve(problem.with_model(model)).objective for model in models)
    assert certificate.lower == pytest.approx(worst, rel=1e-9)
    assert certificate.upper == pytest.approx(best, rel=1e-9)
    assert certificate.lower <= worst
    assert certificate.upper >= best - 1e-12
    assert "In every model whose probabilities are within 0.2 of these" in str(certificate)


@pytest.mark.parametrize(
    "utility",
    [
        cm.entropy(),
        cm.log_sum("reward", "cost"),
        cm.minimum(cm.linear("reward"), cm.linear("cost")),
    ],
    ids=repr,
)
def test_concave_cases_enclose_the_corners(utility: Any, tmp_path: Any) -> None:
    world = small_world(5)
    policy = np.array([[0.3, 0.7], [0.6, 0.4]])
    problem = cm.Problem(
        world.uncertain(SHARE), maximize=utility, subject_to={"cost": cm.linear("cost") <= 2.5}
    )
    certificate = cm.certify(problem, policy)
    found = [problem.with_model(model).evaluate(policy) for model in corners(world)]
    worst, span = min(one.objective for one in found), np.ptp([one.objective for one in found])
    assert worst - 1.5 * span - 1e-9 <= certificate.reaches <= worst
    assert certificate.slack["cost"] == pytest.approx(min(one.slack["cost"] for one in found))
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", problem)


def test_a_cautious_plan_keeps_its_budget_in_every_corner() -> None:
    world = small_world(1)
    problem = cm.Problem(
        world.uncertain(0.1),
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= 1.6},
    )
    plan = cm.solve(problem, cautious=0.95)
    assert plan.status is Status.CAUTIOUS
    assert "In every model" in plan.message
    models = corners(world, 0.1)
    slack = [problem.with_model(m).evaluate(plan.policy).slack["cost"] for m in models]
    certificate = cm.certify(problem, plan)
    assert certificate.feasible
    assert min(slack) == pytest.approx(certificate.slack["cost"], abs=1e-9)
    plain = cm.solve(problem)
    assert not cm.certify(problem, plain).feasible


def test_no_error_is_the_model_itself() -> None:
    world = small_world(2)
    problem = cm.Problem(world.uncertain(1e-9), maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    assert certificate.gap < 1e-6
    assert cm.Problem(world.uncertain(0.0), maximize=cm.linear("reward")).mdp.relative_error == 0
    assert cm.certify(cm.Problem(world, maximize=cm.linear("reward")), solution).confidence is None


@pytest.mark.parametrize("norm", ["l1", "l2", "l2-squared"])
def test_distances_of_zero_stay_near_zero(norm: str) -> None:
    world = small_world(3)
    policy = np.array([[0.3, 0.7], [0.6, 0.4]])
    target = world.flow.occupancy(policy)
    problem = cm.Problem(world.uncertain(1e-10), minimize=cm.distance(target, norm=norm))
    assert 0 <= cm.certify(problem, policy).reaches < 1e-6


def test_models_keep_their_error(tmp_path: Any) -> None:
    model = small_world(0).uncertain(0.05)
    model.save(tmp_path / "model")
    assert cm.TabularMDP.load(tmp_path / "model").relative_error == 0.05
    assert "within 0.05" in repr(model)
    for wrong in (-0.1, 1.5, "much"):
        with pytest.raises(ModelError, match="between 0 and 1"):
            model.uncertain(wrong)  # type: ignore[arg-type]


def test_what_if() -> None:
    """The same question over another model."""
    problem = cm.Problem(
        small_world(0), maximize=cm.entropy(), subject_to={"cost": cm.linear("cost") <= 2.0}
    )
    other = problem.with_model(small_world(1))
    assert other.sense == problem.sense
    assert dict(other.budgets) == dict(problem.budgets)
    assert other.mdp is not problem.mdp
    assert problem.with_model(problem.mdp).evaluate([[1, 0], [0, 1]]).objective == pytest.approx(
        problem.evaluate([[1, 0], [0, 1]]).objective
    )
