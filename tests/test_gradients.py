"""The policy gradient against automatic differentiation through the solve, and finite differences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.base.precision import double_precision
from cvxmdp.models import compiled_systems as dynamics_module
from cvxmdp.policies.families import BoundDirect
from strategies import generator, interior_point, quickly, random_model, random_policy, under_jit
from test_families import ACTIONS, STATES, away_from_start, families

UTILITIES = {
    "linear": lambda mdp: cm.linear("reward"),
    "entropy": lambda mdp: cm.entropy(),
    "entropy of pairs": lambda mdp: cm.entropy(of="state-action"),
    "l2-squared": lambda mdp: -cm.distance(random_policy(mdp, generator(3)), norm="l2-squared"),
    "l2": lambda mdp: -cm.distance(random_policy(mdp, generator(3)), norm="l2"),
    "kl": lambda mdp: -cm.distance(random_policy(mdp, generator(4), concentration=3.0), norm="kl"),
    "log barrier": lambda mdp: cm.log_barrier(cm.linear("cost") <= 2.0 * mdp.max_mass),
    "sum": lambda mdp: (
        cm.linear("reward") + 0.5 * cm.entropy() - 2 * cm.quadratic(weights=np.ones(STATES))
    ),
}
MODELS = {
    "plain": {"mask": False, "endings": False},
    "masked and ending": {"mask": True, "endings": True},
}


def model(kind: str, discount: float = 0.9) -> cm.TabularMDP:
    return random_model(
        generator(2), n_states=STATES, n_actions=ACTIONS, discount=discount, **MODELS[kind]
    )


def compiled(mdp: cm.TabularMDP, utility: cm.Utility, family) -> core.Compiled:
    """The utility under one budget and one distance, whose multipliers are not zero."""
    problem = cm.Problem(
        mdp,
        maximize=utility,
        subject_to={
            "cost": cm.linear("cost") <= 1.0,
            "near": cm.distance(cm.uniform_policy(mdp), norm="l2-squared") <= 0.1,
        },
    )
    functions = tuple(problem.slack_functions.values())
    return core.Compiled(
        dynamics_module.dynamics(mdp),
        problem.objective_function,
        functions,
        family.bind(mdp),
        np.full(2, 10.0),
        np.zeros(2),
    )


MULTIPLIERS = np.array([0.7, 1.3])


class Tables(NamedTuple):
    """A model as arrays: compiled code is that of a family and a utility, for every model."""

    following: np.ndarray  # discount times chances, (S, A, S)
    initial: np.ndarray
    actions: np.ndarray


def tables(mdp: cm.TabularMDP) -> Tables:
    return Tables(mdp.discount * mdp.dense_transition(), mdp.initial, mdp.actions)


def lagrangian(mdp: Tables, problem: core.Compiled, policy) -> jax.Array:
    """f + sum mu g as a function of the policy alone, by a plain differentiable solve."""
    chain = jnp.einsum("sa,sat->st", policy, mdp.following)
    visits = jnp.linalg.solve(jnp.eye(STATES) - chain.T, jnp.asarray(mdp.initial))
    x = visits[:, None] * policy
    slacks = jnp.stack([g.value(x) for g in problem.slacks])
    return problem.objective.value(x) + MULTIPLIERS @ slacks


def of_params(mdp: Tables, problem: core.Compiled, params) -> jax.Array:
    if isinstance(problem.family, BoundDirect):
        return lagrangian(mdp, problem, jnp.where(mdp.actions, params, 0.0))
    logs = problem.family.log_probabilities(params, jnp.arange(STATES))
    return lagrangian(mdp, problem, jnp.where(mdp.actions, jnp.exp(logs), 0.0))


def flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@partial(quickly, static_argnames="direction")
def gradient_at(problem: core.Compiled, params, direction: str = "vanilla"):
    point, chain = core.evaluate(problem, params)
    return core.gradient_and_direction(problem, params, point, chain, MULTIPLIERS, direction)


@quickly
def occupancy_at(problem: core.Compiled, params):
    return core.evaluate(problem, params)[0].occupancy


@quickly
def value_and_derivative(mdp: Tables, problem: core.Compiled, params):
    return jax.value_and_grad(lambda theta: of_params(mdp, problem, theta))(params)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", families())
def test_gradient_for_every_family(
    name: str, kind: str, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse:
        monkeypatch.setattr(dynamics_module, "better_factorised", lambda mdp: False)
    check_gradient(model(kind), UTILITIES["sum"], families()[name])


@pytest.mark.parametrize("family", ["table", "mlp"])
@pytest.mark.parametrize("utility", UTILITIES)
def test_gradient_for_every_utility(utility: str, family: str) -> None:
    check_gradient(model("masked and ending"), UTILITIES[utility], families()[family])


def check_gradient(mdp: cm.TabularMDP, utility, family) -> None:
    with double_precision():
        problem = compiled(mdp, utility(mdp), family)
        params = away_from_start(problem.family)
        gradient = flat(gradient_at(problem, params)[0])
        bare = replace(problem, dynamics=())
        automatic = flat(value_and_derivative(tables(mdp), bare, params)[1])
        assert relative(gradient, automatic) < 1e-9
        along = jax.tree.map(lambda leaf: generator(7).normal(size=leaf.shape), params)

        def value(step: float) -> float:
            moved = jax.tree.map(lambda leaf, d: np.asarray(leaf) + step * d, params, along)
            return float(value_and_derivative(tables(mdp), bare, moved)[0])

        step = 1e-3  # fourth order: truncation and rounding are both far below 1e-6
        difference = (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (
            12 * step
        )
    slope = float(gradient @ flat(along))
    scale = np.linalg.norm(gradient) * np.linalg.norm(flat(along))
    assert abs(slope - difference) < 1e-6 * scale


def test_a_rare_action_has_an_exact_gradient_too() -> None:
    # Logits 30 apart: differences of probabilities near one must not cancel.
    mdp = model("plain")
    with double_precision():
        problem = compiled(mdp, cm.linear("reward"), cm.Table())
        params = jnp.asarray(30.0 * generator(1).normal(size=mdp.actions.shape))
        gradient = flat(gradient_at(problem, params)[0])
        bare = replace(problem, dynamics=())
        automatic = flat(value_and_derivative(tables(mdp), bare, params)[1])
    assert relative(gradient, automatic) < 1e-6


# The natural direction


@pytest.mark.parametrize("kind", MODELS)
def test_natural_direction_of_a_table_is_the_advantage(kind: str) -> None:
    mdp = model(kind)
    with double_precision():
        problem = compiled(mdp, cm.linear("reward"), cm.Table())
        params = away_from_start(problem.family)
        point, chain = core.evaluate(problem, params)
        reward = core.shadow_reward(problem, point.occupancy, MULTIPLIERS)
        towards = np.asarray(gradient_at(problem, params, "natural")[1])
        policy, reward = np.asarray(chain.policy), np.asarray(reward)
        state = core.PaperState(params, jnp.asarray(MULTIPLIERS), ())
        steps = (0.25, jnp.zeros(2))
        moved = core.paper_step(problem, state, steps, "constant", None, "natural")[0].params
        change = np.asarray(moved - params)
    transition = mdp.dense_transition()
    chain = np.einsum("sa,sat->st", policy, transition)
    values = np.linalg.solve(np.eye(STATES) - mdp.discount * chain, (policy * reward).sum(axis=1))
    advantage = reward + mdp.discount * transition @ values - values[:, None]
    expected = np.where(mdp.actions, advantage, 0.0)
    np.testing.assert_allclose(towards, expected, atol=1e-12)
    np.testing.assert_allclose(change, 0.25 * expected, atol=1e-12)


@pytest.mark.parametrize("name", ["linear", "mlp", "equinox"])
@pytest.mark.parametrize("kind", MODELS)
def test_natural_direction_solves_with_the_fisher_matrix(name: str, kind: str) -> None:
    mdp = model(kind)
    with double_precision():
        problem = compiled(mdp, cm.linear("reward"), families()[name])
        params = away_from_start(problem.family)
        gradient, towards = map(flat, gradient_at(problem, params, "natural"))

        def scores(theta):
            logs = problem.family.log_probabilities(theta, jnp.arange(STATES))
            return jnp.where(mdp.actions, logs, 0.0)

        slopes = jax.tree.leaves(quickly(jax.jacobian(scores))(params))
        jacobian = np.concatenate([np.reshape(one, (mdp.actions.size, -1)) for one in slopes], 1)
        weights = np.asarray(occupancy_at(problem, params)).ravel()
    fisher = jacobian.T @ (weights[:, None] * jacobian)  # the unnormalised occupancy weighs it
    assert weights.sum() > 1.5
    assert relative(fisher @ towards, gradient) < 1e-4


def test_natural_direction_is_refused_for_the_direct_parameterisation() -> None:
    problem = cm.Problem(model("plain"), maximize=cm.linear("reward"))
    with pytest.raises(cm.SolverError, match="vanilla"):
        cm.solve(problem, cm.PDPG(policy=cm.Direct()))


# Kinks made round

KINKED = {
    "minimum": lambda mdp, random: cm.minimum(
        cm.linear(random.normal(size=mdp.actions.shape)), cm.entropy(), cm.linear("reward") - 3.0
    ),
    "l1": lambda mdp, random: -cm.distance(random_policy(mdp, random), norm="l1"),
    "l2": lambda mdp, random: -cm.distance(random_policy(mdp, random), norm="l2"),
    "l2 to a ball": lambda mdp, random: (
        -cm.distance(cm.ball(random_policy(mdp, random), 0.2), norm="l2")
    ),
    "l1 to a box": lambda mdp, random: (
        -cm.distance(cm.box(0.1 + np.zeros(mdp.actions.shape), 0.4), norm="l1")
    ),
    "nested": lambda mdp, random: (
        cm.linear("reward")
        - 0.5 * cm.distance(random_policy(mdp, random), norm="l1")
        + cm.log_barrier(cm.distance(random_policy(mdp, random), norm="l2") <= 50.0)
    ),
}


@quickly
def followed(function, x, times):
    arrays = jax.tree.map(jnp.asarray, function)
    return jax.lax.fori_loop(0, times, lambda _, now: now.followed(x), arrays)


@pytest.mark.parametrize("name", KINKED)
@pytest.mark.parametrize("seed", range(3))
def test_a_rounded_function_is_smooth_above_and_follows(name: str, seed: int) -> None:
    random, mdp = generator(seed), model("plain")
    exact = KINKED[name](mdp, random).lower(mdp)
    x = interior_point(mdp, random)
    with double_precision():
        smooth = exact.softened(x)
        for _ in range(3):  # also with centres that have moved
            value, slope, automatic = under_jit(smooth, x)
            np.testing.assert_allclose(slope, automatic, atol=1e-9)
            assert float(value) >= float(exact.value(x)) - 1e-12
            smooth = followed(smooth, x, 1)
        # at rest the centre is a supergradient, and the value the true one
        rest = followed(smooth, x, 20_000)
        assert float(under_jit(rest, x)[0]) == pytest.approx(float(exact.value(x)), abs=1e-6)


@pytest.mark.parametrize("utility", ["linear", "entropy", "l2-squared", "kl", "log barrier"])
def test_functions_without_kinks_stay_themselves(utility: str) -> None:
    mdp = model("plain")
    bound = UTILITIES[utility](mdp).lower(mdp)
    assert bound.softened(interior_point(mdp, generator(0))) is bound
