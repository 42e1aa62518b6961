"""Estimators are unbiased: their expectation over every trajectory of a tiny model is exact.

Nothing is sampled. ``every_trajectory`` lists all trajectories of at most ``HORIZON`` steps with their
probabilities and with uniform numbers that make the sampler draw them, so sampler, occupancy, gradient and
weight are checked to rounding, with endings and with a masked action.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.estimators import (
    discounts,
    importance_weights,
    occupancy_estimate,
    to_go,
)
from cvxmdp.algorithms.views import AllStates, VisitedStates
from cvxmdp.base.precision import double_precision
from cvxmdp.experience.trajectories import Trajectory, sample_trajectory, sampling_model
from strategies import generator, quickly

HORIZON = 3
DISCOUNT = 0.8
FAMILIES = ("table", "linear", "mlp")


@lru_cache(maxsize=1)
def tiny_model() -> cm.TabularMDP:
    """Rows that never, sometimes and always end the episode; one masked action."""
    transition = np.array(
        [
            [[0.2, 0.5, 0.3], [0.0, 0.4, 0.1]],
            [[0.6, 0.0, 0.4], [0.0, 0.0, 0.0]],
            [[0.3, 0.3, 0.0], [0.0, 0.0, 0.0]],
        ]
    )
    available = np.array([[True, True], [True, True], [True, False]])
    signals = {"reward": generator(0).normal(size=(3, 2))}
    return cm.TabularMDP(transition, [0.6, 0.0, 0.4], DISCOUNT, signals, actions=available)


class Enumerated(NamedTuple):
    trajectories: Trajectory  # leaves (N, H)
    uniforms: np.ndarray  # (N, 1 + 2 H), each inside the cell of its trajectory
    probability: np.ndarray  # (N,)


def cells(chances: np.ndarray) -> list[tuple[int, float, float]]:
    """(index, probability, middle of its cell) where the probability is positive; the rest ends."""
    edges = np.concatenate([[0.0], np.cumsum(chances), [1.0]])
    return [
        (k, edges[k + 1] - edges[k], (edges[k] + edges[k + 1]) / 2)
        for k in range(len(edges) - 1)
        if edges[k + 1] - edges[k] > 1e-12
    ]


def every_trajectory(mdp: cm.TabularMDP, policy: np.ndarray) -> Enumerated:
    """All trajectories under a policy; after the end stand a state and an action that must not count."""
    table, found = mdp.dense_transition(), []

    def grow(state, taken, numbers, chance):
        if state == mdp.n_states or len(taken) == HORIZON:
            missing = HORIZON - len(taken)
            pairs = taken + [(1, 0)] * missing
            alive = [1.0] * len(taken) + [0.0] * missing
            found.append((pairs, alive, numbers + [0.5] * 2 * missing, chance))
            return
        for action, likely, number in cells(policy[state]):
            for successor, share, following in cells(table[state, action]):
                grow(
                    successor,
                    [*taken, (state, action)],
                    [*numbers, number, following],
                    chance * likely * share,
                )

    for state, chance, number in cells(mdp.initial):
        grow(state, [], [number], chance)
    pairs, alive, numbers, chances = (np.array(part) for part in zip(*found, strict=True))
    return Enumerated(Trajectory(pairs[..., 0], pairs[..., 1], alive), numbers, chances)


def exact_occupancy(policy: Any) -> Any:
    """The H-step occupancy by the forward recursion, (S, A); traceable."""
    mdp = tiny_model()
    table, arriving, total = jnp.asarray(mdp.dense_transition()), jnp.asarray(mdp.initial), 0.0
    for step in range(HORIZON):
        pairs = arriving[:, None] * policy
        total = total + DISCOUNT**step * pairs
        arriving = jnp.einsum("sa,sat->t", pairs, table)
    return total


def bound_family(name: str) -> Any:
    features = generator(1).normal(size=(3, 2, 4))
    families = {"table": cm.Table(), "linear": cm.LinearSoftmax(features), "mlp": cm.MLP(5)}
    return families[name].bind(tiny_model())


def random_params(family: Any, seed: int) -> Any:
    random = generator(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), family.init(jax.random.key(0))
    )


def probabilities(family: Any, params: Any) -> Any:
    return jnp.exp(family.log_probabilities(params, jnp.arange(3)))


def expectation(chances: np.ndarray, values: Any) -> Any:
    return jax.tree.map(lambda leaf: np.tensordot(chances, np.asarray(leaf), axes=1), values)


def exact_gradients(family: Any, params: Any, rewards: np.ndarray) -> Any:
    """The derivative of <r, H-step occupancy> for each reward, by automatic differentiation."""

    def values(theta: Any) -> Any:
        return jnp.einsum("msa,sa->m", rewards, exact_occupancy(probabilities(family, theta)))

    return quickly(jax.jacobian(values))(params)


def assert_trees_close(first: Any, second: Any) -> None:
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for mine, theirs in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


class Setting(NamedTuple):
    family: Any
    params: Any  # the policy that samples
    other: Any  # another one
    every: Enumerated
    rewards: np.ndarray  # (2, S, A)
    look: Any  # AllStates or VisitedStates


def all_states(family: Any, params: Any) -> AllStates:
    return AllStates(family, params, family.log_table(params))


LOOKS = {"all states": all_states, "visited states": VisitedStates}


@pytest.fixture(
    scope="module",
    params=[(family, look) for family in FAMILIES for look in LOOKS],
    ids=lambda pair: ", ".join(pair),
)
def setting(request):
    with double_precision():
        name, look = request.param
        given = bound_family(name)
        family = jax.tree.map(jnp.asarray, given)
        params, other = random_params(family, 2), random_params(family, 3)
        every = every_trajectory(tiny_model(), np.asarray(probabilities(family, params)))
        rewards = generator(4).normal(size=(2, 3, 2))
        yield Setting(family, params, other, every, rewards, LOOKS[look])


def test_the_list_of_trajectories_is_complete(setting):
    lengths = setting.every.trajectories.alive.sum(axis=1)
    assert setting.every.probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert set(lengths) == {1.0, 2.0, 3.0}


def test_the_sampler_draws_every_trajectory_from_its_cell(setting):
    model = jax.tree.map(jnp.asarray, sampling_model(tiny_model()))
    rows = setting.look(setting.family, setting.params).rows()
    draw = jax.vmap(lambda numbers: sample_trajectory(model, rows, numbers))
    drawn = quickly(draw)(setting.every.uniforms)
    expected = setting.every.trajectories
    np.testing.assert_array_equal(drawn.alive, expected.alive)
    taken = expected.alive > 0
    np.testing.assert_array_equal(np.asarray(drawn.states)[taken], expected.states[taken])
    np.testing.assert_array_equal(np.asarray(drawn.actions)[taken], expected.actions[taken])


def one_by_one(function: Any) -> Any:
    """Estimates of every trajectory, each as a batch of one."""
    return quickly(
        jax.vmap(lambda tau, *rest: function(jax.tree.map(lambda leaf: leaf[None], tau), *rest))
    )


def step_masses(setting: Setting, target: Any = None) -> Any:
    """gamma^k, times the weight of the trajectory where there is another policy: (N, H)."""
    masses = discounts(setting.every.trajectories, DISCOUNT)
    return masses if target is None else masses * weights(setting, target)[:, None]


def weights(setting: Setting, target: Any) -> Any:
    look, family = setting.look, setting.family
    return importance_weights(
        look(family, target), look(family, setting.params), setting.every.trajectories
    )


def scores(policy: Any, trajectories: Any, numbers: Any) -> Any:
    """sum_h c_h grad log pi(a_h | s_h), averaged over the batch, for ``numbers`` c of shape (m, B, H).

    The difference that the recursion takes, with a second policy whose part is nothing.
    """
    return policy.score_difference(policy, trajectories, numbers, jnp.zeros_like(numbers))


def occupancies(setting: Setting, masses: Any) -> Any:
    estimate = one_by_one(lambda tau, mass: occupancy_estimate(tau, mass[None], (3, 2)))
    return estimate(setting.every.trajectories, masses)


def along_each(trajectories: Any, rewards: np.ndarray) -> Any:
    return jnp.stack([trajectories.along(jnp.asarray(reward)) for reward in rewards])


def gradients(setting: Setting, params: Any, masses: Any) -> Any:
    def estimate(tau: Any, mass: Any) -> Any:
        gained = mass[None, None] * along_each(tau, setting.rewards)
        return scores(setting.look(setting.family, params), tau, to_go(gained))

    return one_by_one(estimate)(setting.every.trajectories, masses)


def test_occupancy_estimate_is_unbiased(setting):
    mean = expectation(setting.every.probability, occupancies(setting, step_masses(setting)))
    exact = exact_occupancy(probabilities(setting.family, setting.params))
    np.testing.assert_allclose(mean, exact, rtol=1e-12, atol=1e-14)


def test_gradient_estimate_is_unbiased(setting):
    mean = expectation(
        setting.every.probability, gradients(setting, setting.params, step_masses(setting))
    )
    exact = exact_gradients(setting.family, setting.params, setting.rewards)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(exact)) > 0.01
    assert_trees_close(mean, exact)


def test_weight_has_mean_one_and_is_one_for_the_same_policy(setting):
    ratio = weights(setting, setting.other)
    assert np.ptp(ratio) > 0.1
    assert setting.every.probability @ ratio == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(weights(setting, setting.params), 1.0)


def test_weight_is_the_ratio_of_the_probabilities_of_the_trajectory(setting):
    mine = np.asarray(probabilities(setting.family, setting.params))
    theirs = np.asarray(probabilities(setting.family, setting.other))
    states, actions, alive = setting.every.trajectories
    ratios = np.where(alive > 0, theirs[states, actions] / mine[states, actions], 1.0)
    np.testing.assert_allclose(weights(setting, setting.other), ratios.prod(axis=1), rtol=1e-12)


def test_weighted_occupancy_estimate_is_unbiased_for_the_other_policy(setting):
    masses = step_masses(setting, setting.other)
    mean = expectation(setting.every.probability, occupancies(setting, masses))
    exact = exact_occupancy(probabilities(setting.family, setting.other))
    np.testing.assert_allclose(mean, exact, rtol=1e-12, atol=1e-14)


def test_weighted_gradient_estimate_is_unbiased_for_the_other_policy(setting):
    masses = step_masses(setting, setting.other)
    mean = expectation(setting.every.probability, gradients(setting, setting.other, masses))
    assert_trees_close(mean, exact_gradients(setting.family, setting.other, setting.rewards))


def test_a_baseline_has_no_expectation(setting):
    """What the recursion subtracts for a baseline, with and without the weight of another policy."""
    alive, level = setting.every.trajectories.alive, generator(5).normal(size=HORIZON)
    look, family = setting.look, setting.family

    def subtracted(params: Any, factors: Any) -> Any:
        numbers = factors[:, None] * alive * level
        every = one_by_one(lambda tau, row: scores(look(family, params), tau, row[None, None]))
        return every(setting.every.trajectories, numbers)

    ratio = weights(setting, setting.other)
    for params, factors in [(setting.params, jnp.ones(len(alive))), (setting.other, ratio)]:
        mean = expectation(setting.every.probability, subtracted(params, factors))
        for leaf in jax.tree.leaves(mean):
            np.testing.assert_allclose(leaf, 0.0, atol=1e-12)


def test_a_batch_is_the_mean_of_its_trajectories(setting):
    masses = step_masses(setting)
    gained = masses[None] * along_each(setting.every.trajectories, setting.rewards)
    policy = setting.look(setting.family, setting.params)
    together = scores(policy, setting.every.trajectories, to_go(gained))
    alone = gradients(setting, setting.params, masses)
    assert_trees_close(together, jax.tree.map(lambda leaf: leaf.mean(axis=0), alone))
