"""Column generation on an accelerator, run on the processor: the same steps, the same bounds as on the host."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.columns import column_places
from cvxmdp.experience import trajectories
from cvxmdp.models.compiled_planning import compiled_model
from strategies import on_two_devices


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(column_places, "accelerator", lambda n_states: True)


def problem_on(mdp: cm.TabularMDP) -> cm.Problem:
    limit = {"cost": cm.linear("cost", per="step") <= 0.4}
    return cm.Problem(mdp, maximize=cm.linear("reward", per="step"), subject_to=limit)


def ragged() -> cm.TabularMDP:
    """Rows of one to three successors, a missing action, states that nobody reaches, episodes that end."""
    rng = np.random.default_rng(3)
    table = np.zeros((40, 3, 40))
    for state in range(30):
        for action in range(3):
            count = 1 + (state + action) % 3
            towards = rng.choice(30, count, replace=False)
            table[state, action, towards] = rng.dirichlet(np.ones(count)) * (1.0 - 0.05 * action)
    table[30:, :, 30] = 1.0
    available = np.ones((40, 3), dtype=bool)
    available[7, 1] = False
    table[7, 1] = 0.0
    signals = {"reward": rng.random((40, 3)), "cost": rng.random((40, 3))}
    initial = np.zeros(40)
    initial[:5] = 0.2
    return cm.TabularMDP(table, initial=initial, discount=0.9, actions=available, signals=signals)


@pytest.mark.parametrize("model", ["garnet", "ragged"])
def test_the_same_steps_as_on_the_host(model, monkeypatch):
    problem = problem_on(cm.garnet(60, 4, 3, seed=2) if model == "garnet" else ragged())
    solver = cm.ColumnGeneration(tolerance=1e-7)
    host = cm.solve(problem, solver)
    monkeypatch.setattr(column_places, "accelerator", lambda n_states: True)
    found = cm.solve(problem, solver)
    assert found.status is host.status is cm.Status.OPTIMAL
    assert found.stats["iterations"] == host.stats["iterations"]
    assert found.objective == pytest.approx(host.objective, rel=1e-9)
    assert found.multipliers["cost"] == pytest.approx(host.multipliers["cost"], rel=1e-6)
    assert cm.check(cm.certify(problem, found), problem)


@pytest.mark.parametrize("of", ["state", "state-action"])
def test_entropies_too(of, monkeypatch):
    mdp = cm.garnet(80, 3, 3, seed=5)
    objective = cm.entropy(of=of) + cm.linear("reward", per="step")
    limit = {"cost": cm.linear("cost", per="step") <= 0.4}
    problem = cm.Problem(mdp, maximize=objective, subject_to=limit)
    solver = cm.ColumnGeneration(tolerance=1e-2)
    host = cm.solve(problem, solver)
    monkeypatch.setattr(column_places, "accelerator", lambda n_states: True)
    found = cm.solve(problem, solver)
    assert found.status is host.status is cm.Status.OPTIMAL
    assert found.objective == pytest.approx(host.objective, rel=2e-2)
    assert cm.check(cm.certify(problem, found), problem)


def test_infeasible_problems_are_proven(device):
    base = problem_on(cm.garnet(60, 4, 3, seed=2))
    found = cm.solve(base.with_budget("cost", -1.0), cm.ColumnGeneration())
    assert found.status is cm.Status.INFEASIBLE


def test_rows_that_differ_too_much_stay_on_the_host():
    table = np.zeros((50, 2, 50))
    table[:, :, 0] = 1.0
    table[0, 0] = 1 / 50
    mdp = cm.TabularMDP(table, initial=np.eye(50)[0], discount=0.9)
    assert compiled_model(mdp.flow) is None


def test_trajectories_are_the_same_numbers(monkeypatch):
    """What is written differently for an accelerator draws the same steps."""
    problem = problem_on(cm.garnet(20, 3, 3, seed=1))
    solver = cm.VRPDPG(30, 0.1, 0.3, 0.3, 6, dual_bound=2.0)
    here = cm.solve(problem, solver, seed=0)
    monkeypatch.setattr(trajectories, "has_accelerator", lambda: True)
    jax.clear_caches()
    there = cm.solve(problem, solver, seed=0)
    jax.clear_caches()
    np.testing.assert_allclose(
        there.history["episode_return"], here.history["episode_return"], rtol=1e-5
    )
    np.testing.assert_allclose(there.stats["params"], here.stats["params"], atol=1e-5)


def found_on_devices() -> list[object]:
    """Over how many devices the states are split and the start is, how it ended, and the objective."""
    kept, make = [], column_places.compiled_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            column_places, "compiled_model", lambda flow: kept.append(make(flow)) or kept[-1]
        )
        patch.setattr(column_places, "accelerator", lambda n_states: True)
        found = cm.solve(
            problem_on(cm.garnet(60, 4, 3, seed=2)), cm.ColumnGeneration(tolerance=1e-7)
        )
    leaves = kept[0].successors, kept[0].initial
    places = [len(leaf.sharding.device_set) for leaf in leaves]
    return [*places, found.status.name, repr(found.objective)]


def test_states_are_split_over_devices():
    split, whole = on_two_devices("test_accelerator.found_on_devices"), found_on_devices()
    assert split[:3] == ["2", "2", "OPTIMAL"]
    assert whole[:3] == [1, 1, "OPTIMAL"]
    assert float(split[3]) == pytest.approx(float(whole[3]), rel=1e-9)
