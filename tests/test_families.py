"""Families of policies: one contract that every family keeps, and what is particular to each."""

from __future__ import annotations

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError, PolicyError
from cvxmdp.base.precision import double_precision
from cvxmdp.base.storage import read_arrays, write_arrays
from cvxmdp.policies.families import LOGIT_RANGE, PolicyFamily
from strategies import generator, quickly, random_model, random_policy

STATES, ACTIONS = 5, 3


@pytest.fixture(scope="module")
def masked() -> cm.TabularMDP:
    model = random_model(generator(2), n_states=STATES, n_actions=ACTIONS, mask=True, endings=True)
    assert not model.actions.all()
    return model


def families() -> dict[str, PolicyFamily]:
    random = generator(0)
    inputs = random.normal(size=(STATES, 2))
    module = equinox.nn.MLP(2, ACTIONS, 4, 1, key=jax.random.key(0))
    return {
        "table": cm.Table(),
        "linear": cm.LinearSoftmax(random.normal(size=(STATES, ACTIONS, 4))),
        "mlp": cm.MLP(4),
        "mlp with inputs": cm.MLP(4, 3, inputs=inputs),
        "direct": cm.Direct(),
        "equinox": cm.EquinoxModule(module, inputs=inputs),
    }


@quickly
def first(bound, seed: int):
    return bound.init(jax.random.key(seed))


def away_from_start(bound, seed: int = 3):
    """Parameters in general position, still admissible."""
    leaves, form = jax.tree.flatten(first(bound, seed))
    random = generator(seed)
    moved = [leaf + 0.3 * random.normal(size=leaf.shape) for leaf in leaves]
    return bound.retract(jax.tree.unflatten(form, moved))


@pytest.mark.parametrize("name", families())
def test_contract_of_a_family(name: str, masked: cm.TabularMDP) -> None:
    with double_precision():
        bound = families()[name].bind(masked)
        params = away_from_start(bound)
        logs = np.asarray(bound.log_probabilities(params, jnp.arange(STATES)))
        some = np.asarray(bound.log_probabilities(params, jnp.array([4, 1])))
        deployed = bound.deploy(params)
    assert np.exp(logs).sum(axis=1) == pytest.approx(np.ones(STATES), abs=1e-12)
    assert (np.exp(logs)[~masked.actions] == 0).all()
    np.testing.assert_allclose(
        some, logs[[4, 1]], rtol=1e-14
    )  # a batch of states is just a selection
    assert isinstance(deployed, cm.Policy)
    np.testing.assert_allclose(deployed.probabilities(), np.exp(logs), atol=1e-14)


@pytest.mark.parametrize("name", ["table", "linear", "mlp", "direct"])
def test_first_policy_is_nearly_uniform(name: str, masked: cm.TabularMDP) -> None:
    with double_precision():
        bound = families()[name].bind(masked)
        first = bound.deploy(bound.init(jax.random.key(0))).probabilities()
    np.testing.assert_allclose(first, cm.uniform_policy(masked).probabilities(), atol=0.05)


@pytest.mark.parametrize("name", ["table", "direct"])
def test_probabilities_are_taken_over(name: str, masked: cm.TabularMDP) -> None:
    policy = random_policy(masked, generator(5), concentration=1.0)
    with double_precision():
        bound = families()[name].bind(masked)
        again = bound.deploy(bound.from_probabilities(policy.probabilities()))
    np.testing.assert_allclose(again.probabilities(), policy.probabilities(), atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "mlp", "equinox"])
def test_others_say_that_they_cannot(name: str, masked: cm.TabularMDP) -> None:
    with pytest.raises(PolicyError, match="cannot take over"):
        families()[name].bind(masked).from_probabilities(cm.uniform_policy(masked).probabilities())


def test_retraction_is_the_nearest_policy(masked: cm.TabularMDP) -> None:
    given = generator(1).normal(size=masked.actions.shape)
    with double_precision():
        nearest = np.asarray(cm.Direct().bind(masked).retract(jnp.asarray(given)))
    for state, row in enumerate(given):
        free = np.flatnonzero(masked.actions[state])
        found = minimize(
            lambda p, target: ((p - target) ** 2).sum(),
            np.full(free.size, 1.0 / free.size),
            args=(row[free],),
            bounds=[(0, 1)] * free.size,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(nearest[state, free], found.x, atol=1e-6)


def test_far_logits_come_back_without_changing_the_policy(masked: cm.TabularMDP) -> None:
    far = 100.0 * generator(1).normal(size=masked.actions.shape)
    with double_precision():
        bound = cm.Table().bind(masked)
        near = bound.away_from_corners(jnp.asarray(far))
        before, after = bound.deploy(far), bound.deploy(near)
        near = np.asarray(near)
    np.testing.assert_allclose(before.probabilities(), after.probabilities(), atol=1e-15)
    best = np.where(masked.actions, near, -np.inf).max(axis=1, keepdims=True)
    assert (np.where(masked.actions, best - near, 0.0) <= LOGIT_RANGE).all()


def test_logit_change_is_the_derivative(masked: cm.TabularMDP) -> None:
    with double_precision():
        bound = cm.MLP(4).bind(masked)
        params, direction = away_from_start(bound), away_from_start(bound, seed=8)
        states, step = jnp.arange(STATES), 1e-6
        there = jax.tree.map(lambda p, d: p + step * d, params, direction)
        change = (bound.logits(there, states) - bound.logits(params, states)) / step
        measured = np.abs(np.where(masked.actions, change, 0.0)).max()
        assert float(bound.logit_change(params, direction)) == pytest.approx(measured, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cm.LinearSoftmax(np.zeros((2, 2, 1))), "shape"),
        (lambda: cm.LinearSoftmax(np.full((STATES, ACTIONS, 1), np.nan)), "finite"),
        (lambda: cm.MLP(4, inputs=np.zeros((2, 2))), "shape"),
        (lambda: cm.MLP(4, inputs=np.full((STATES, 2), np.inf)), "finite"),
        (lambda: cm.EquinoxModule(lambda x: x[:2]), "3 actions"),
        (lambda: cm.EquinoxModule(lambda x: x[:3], inputs=np.zeros((1, 2))), "shape"),
    ],
    ids=["shape", "nan", "inputs", "infinite inputs", "logits", "module inputs"],
)
def test_wrong_shapes_are_refused_when_bound(make, message: str, masked: cm.TabularMDP) -> None:
    with pytest.raises(PolicyError, match=message):
        make().bind(masked)


@pytest.mark.parametrize("widths", [(), (0,), (2.5,)], ids=str)
def test_mlp_without_widths(widths: tuple) -> None:
    with pytest.raises(PolicyError, match="widths"):
        cm.MLP(*widths)


# Files


@pytest.mark.parametrize("name", ["linear", "mlp", "mlp with inputs"])
def test_saved_policies_keep_probabilities_and_parameters(
    name: str, masked: cm.TabularMDP, tmp_path
) -> None:
    with double_precision():
        bound = families()[name].bind(masked)
        policy = bound.deploy(away_from_start(bound))
    policy.save(tmp_path / "policy.safetensors")
    again = cm.load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(again.probabilities(), policy.probabilities())
    assert jax.tree.structure(again.params) == jax.tree.structure(policy.params)
    jax.tree.map(np.testing.assert_array_equal, again.params, policy.params)
    assert repr(again) == repr(policy)


def test_a_loaded_equinox_policy_can_be_continued(masked: cm.TabularMDP, tmp_path) -> None:
    # A module's own class cannot be read without running its code: its arrays come back as a list.
    family = families()["equinox"]
    with double_precision():
        bound = family.bind(masked)
        params = away_from_start(bound)
        policy = bound.deploy(params)
    policy.save(tmp_path / "policy.safetensors")
    again = cm.load_policy(tmp_path / "policy.safetensors")
    kept = jax.tree.leaves(params)
    assert [leaf.shape for leaf in again.params] == [leaf.shape for leaf in kept]
    problem = cm.Problem(masked, maximize=cm.linear("reward"))
    solver = cm.PDPG(iterations=1, policy=family, iterate="last", tolerance=None)
    first = cm.solve(problem, solver, start=again).history["objective"][0]
    assert first == pytest.approx(problem.evaluate(policy).objective, rel=1e-12)


def test_a_damaged_file_is_refused(masked: cm.TabularMDP, tmp_path) -> None:
    path = tmp_path / "policy.safetensors"
    with double_precision():
        bound = cm.MLP(4).bind(masked)
        bound.deploy(bound.init(jax.random.key(0))).save(path)
    arrays, description = read_arrays(path, "policy")
    for structure in (None, 99, {"set": [0]}, {"list": 3}, {}, "params0"):
        write_arrays(path, "policy", arrays, {**description, "structure": structure})
        with pytest.raises(FileFormatError):
            cm.load_policy(path)
