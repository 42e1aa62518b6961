"""The gradient by shadow reward equals autodiff through the solve and finite differences."""

from __future__ import annotations

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.exact import dynamics as dynamics_module
from cvxmdp.exact import primal_dual as core
from cvxmdp.exact.dynamics import dynamics
from cvxmdp.precision import double_precision
from strategies import generator, random_model, random_policy

MODEL = random_model(
    generator(5), n_states=5, n_actions=3, discount=0.8, endings=True, mask=True, unreachable=True
)
TARGET = random_policy(MODEL, generator(6))
FEATURES = generator(7).normal(size=(5, 3, 4))

FAMILIES = {
    "table": cm.Table(),
    "linear": cm.LinearSoftmax(FEATURES),
    "network": cm.MLP(4),
    "network with inputs": cm.MLP(4, inputs=generator(8).normal(size=(5, 2))),
}
UTILITIES = {
    "linear": cm.linear("reward"),
    "entropy": cm.entropy(),
    "squared distance": -cm.distance(TARGET, norm="l2-squared"),
    "kl": -cm.distance(TARGET, norm="kl"),
    "barrier": cm.log_barrier(cm.linear("cost") <= 50.0),
    "sum": cm.linear("reward") + 0.3 * cm.entropy(of="state-action"),
}


def compile_problem(utility: cm.Utility, family: Any, mdp: cm.TabularMDP = MODEL) -> core.Compiled:
    problem = cm.Problem(
        mdp,
        maximize=utility,
        subject_to={
            "cost": cm.linear("cost") <= 2.0,
            "near": cm.distance(TARGET, norm="l2-squared") <= 1.0,
        },
    )
    slacks = tuple(problem.slack_functions.values())
    parts = (dynamics(mdp), problem.objective_function, slacks, family.bind(mdp))
    return core.Compiled(*parts, np.full(2, 10.0), np.zeros(2))


def lagrangian(compiled: core.Compiled, params: Any, multipliers: jnp.ndarray) -> jnp.ndarray:
    point = core.evaluate(compiled, params)
    return point.objective + multipliers @ point.slack


def start(compiled: core.Compiled, seed: int = 0) -> Any:
    """Parameters away from the symmetric first ones."""
    key = jax.random.key(seed)
    params = compiled.family.init(key)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    moved = [
        leaf + 0.3 * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def largest(tree: Any) -> float:
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("utility", UTILITIES)
def test_gradient_equals_autodiff_and_finite_differences(utility: str, family: str) -> None:
    with double_precision():
        compiled = compile_problem(UTILITIES[utility], FAMILIES[family])
        params, multipliers = start(compiled), jnp.array([0.7, 1.9])
        point = core.evaluate(compiled, params)
        ours, _ = core.gradient_and_direction(compiled, params, point, multipliers, "vanilla")
        theirs = jax.grad(lambda theta: lagrangian(compiled, theta, multipliers))(params)
        size = largest(theirs)
        assert largest(jax.tree.map(jnp.subtract, ours, theirs)) <= 1e-9 * size
        direction = start(compiled, seed=1)
        slope = float(core.inner(ours, direction))
        ahead, behind = (
            lagrangian(compiled, core.combine(params, step, direction), multipliers)
            for step in (1e-5, -1e-5)
        )
        assert slope == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6, abs=1e-8 * size)


def test_direct_gradient_is_visits_times_action_values() -> None:
    with double_precision():
        compiled = compile_problem(UTILITIES["entropy"], cm.Direct())
        params = jnp.asarray(random_policy(MODEL, generator(1)).probabilities())
        multipliers = jnp.array([0.4, 0.2])
        point = core.evaluate(compiled, params)
        ours, _ = core.gradient_and_direction(compiled, params, point, multipliers, "vanilla")
        # Only differences within a row matter: along directions that stay on the simplex.
        other = jnp.asarray(random_policy(MODEL, generator(2)).probabilities())
        slope = float(core.inner(ours, other - params))
        ahead, behind = (
            lagrangian(compiled, params + step * (other - params), multipliers)
            for step in (1e-6, -1e-6)
        )
        assert slope == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-6)


def test_natural_direction_of_a_table_is_the_advantage() -> None:
    with double_precision():
        compiled = compile_problem(UTILITIES["sum"], cm.Table())
        params, multipliers = start(compiled), jnp.array([0.7, 1.9])
        point = core.evaluate(compiled, params)
        _, natural = core.gradient_and_direction(compiled, params, point, multipliers, "natural")
        q, values = core.action_values(compiled, point, multipliers)
        advantage = np.where(MODEL.actions, q - values[:, None], 0.0)
        np.testing.assert_allclose(np.asarray(natural), advantage, atol=1e-12)


@pytest.mark.parametrize("family", ["linear", "network"])
def test_natural_direction_solves_the_fisher_equation(family: str) -> None:
    with double_precision():
        compiled = compile_problem(UTILITIES["sum"], FAMILIES[family])
        params, multipliers = start(compiled), jnp.array([0.7, 1.9])
        point = core.evaluate(compiled, params)
        vanilla, natural = core.gradient_and_direction(
            compiled, params, point, multipliers, "natural"
        )
        flat, restore = jax.flatten_util.ravel_pytree(params)

        def scores(theta: jnp.ndarray) -> jnp.ndarray:
            logs = compiled.family.log_probabilities(restore(theta), jnp.arange(5))
            return jnp.where(MODEL.actions, logs, 0.0).ravel()

        jacobian = jax.jacobian(scores)(flat)
        fisher = jacobian.T @ (point.occupancy.ravel()[:, None] * jacobian)
        found = jax.flatten_util.ravel_pytree(natural)[0]
        wanted = jax.flatten_util.ravel_pytree(vanilla)[0]
        # up to the damping of 1e-6 that keeps a singular Fisher matrix solvable
        np.testing.assert_allclose(
            fisher @ found + 1e-6 * found, wanted, atol=1e-7 * float(jnp.abs(wanted).max())
        )


def test_sparse_dynamics_agree_with_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    with double_precision():
        dense = compile_problem(UTILITIES["entropy"], cm.Table())
        monkeypatch.setattr(dynamics_module, "DENSE_LIMIT", 0)
        sparse = compile_problem(UTILITIES["entropy"], cm.Table())
        assert type(sparse.dynamics) is not type(dense.dynamics)
        params, multipliers = start(dense), jnp.array([0.7, 1.9])
        gradients = [
            core.gradient_and_direction(c, params, core.evaluate(c, params), multipliers, "vanilla")
            for c in (dense, sparse)
        ]
        np.testing.assert_allclose(gradients[0][0], gradients[1][0], rtol=1e-9, atol=1e-12)
