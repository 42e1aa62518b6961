"""The sampler against exact occupancies in standard errors, its edges, and the steps of Algorithm 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import cvxmdp as cm
from cvxmdp.algorithms.recursion import Learning, initial_state, iteration, noted_of, trace_of
from cvxmdp.base.precision import double_precision
from cvxmdp.experience.counted_random import key_words, threefry, uniforms
from cvxmdp.experience.trajectories import (
    Trajectory,
    sample_trajectory,
    sampling_model,
    thresholds,
)
from cvxmdp.solvers.learning import read_learning
from cvxmdp.solvers.vr_pdpg_settings import settings_for
from strategies import generator, quickly, random_model, random_policy

HORIZON = 8
EPISODES = 20_000
BELOW_ONE = np.nextafter(np.float32(1.0), np.float32(0.0))
MODELS = {
    "dense": lambda: random_model(generator(0), n_states=5, endings=False, mask=False),
    "mask and endings": lambda: random_model(
        generator(1), n_states=5, n_actions=3, endings=True, mask=True
    ),
    "sparse garnet that ends": lambda: cm.garnet(30, 3, 4, seed=2, ending=0.1),
    "grid with slip and goal": lambda: cm.gridworld(3, slip=0.2, goal=8, start=[0, 2]),
}


@quickly
def draw(model: Any, table: Any, numbers: Any) -> Any:
    rows = thresholds(table)
    return jax.vmap(lambda row: sample_trajectory(model, lambda s: rows[s], row))(numbers)


def drawn(mdp: cm.TabularMDP, policy: np.ndarray, uniforms: np.ndarray) -> Trajectory:
    """Trajectories in float32, as the solver draws them."""
    table = np.asarray(policy, dtype=np.float32)
    found = draw(sampling_model(mdp), table, np.asarray(uniforms, dtype=np.float32))
    return jax.tree.map(np.asarray, found)


def exact_occupancy(mdp: cm.TabularMDP, policy: np.ndarray) -> np.ndarray:
    arriving, total = mdp.initial, np.zeros(mdp.actions.shape)
    for step in range(HORIZON):
        pairs = arriving[:, None] * policy
        total += mdp.discount**step * pairs
        arriving = pairs.ravel() @ mdp.transition
    return total


@pytest.mark.parametrize("name", MODELS)
def test_sampled_occupancy_is_exact_within_standard_errors(name):
    mdp = MODELS[name]()
    policy = random_policy(mdp, generator(3), concentration=1.0).probabilities()
    found = drawn(mdp, policy, generator(4).random((EPISODES, 1 + 2 * HORIZON), dtype=np.float32))
    every = np.zeros((EPISODES, *mdp.actions.shape))
    place = (np.arange(EPISODES)[:, None], found.states, found.actions)
    np.add.at(every, place, found.alive * mdp.discount ** np.arange(HORIZON))
    exact = exact_occupancy(mdp, policy)
    errors = every.std(axis=0) / np.sqrt(EPISODES)
    seen = exact > 1e-3
    assert seen.sum() > 4
    assert (np.abs(every.mean(axis=0) - exact)[seen] / errors[seen]).max() < 5.0
    assert not every.mean(axis=0)[exact == 0].any()


@pytest.mark.parametrize("name", MODELS)
def test_only_available_actions_are_taken(name):
    mdp = MODELS[name]()
    policy = cm.uniform_policy(mdp).probabilities()
    found = drawn(mdp, policy, generator(5).random((2_000, 1 + 2 * HORIZON), dtype=np.float32))
    assert mdp.actions[found.states, found.actions][found.alive > 0].all()


def one_state(actions: int) -> cm.TabularMDP:
    """One state, which every action leads back to."""
    return cm.TabularMDP(np.ones((1, actions, 1)), 0, 0.9)


@pytest.mark.parametrize("number", [0.0, 0.25, 0.5, 0.75, BELOW_ONE])
def test_actions_without_a_chance_are_never_taken(number):
    chances = np.array([[0.0, 0.25, 0.0, 0.25, 0.0, 0.5, 0.0]])
    found = drawn(one_state(7), chances, np.full((1, 3), number))
    assert chances[0, found.actions[0, 0]] > 0
    expected = 1 if number < 0.25 else 3 if number < 0.5 else 5
    assert found.actions[0, 0] == expected


def test_rounding_of_the_chances_draws_the_last_possible_action():
    chances = np.zeros((1, 12), dtype=np.float32)
    chances[0, :10] = np.float32(0.1) - np.float32(1e-7)
    assert np.asarray(jnp.cumsum(chances[0]))[-1] < BELOW_ONE
    found = drawn(one_state(12), chances, np.full((1, 3), BELOW_ONE))
    assert found.actions[0, 0] == 9


def test_rounding_of_the_model_does_not_end_an_episode():
    mdp = random_model(generator(6), n_states=6, endings=False, mask=False)
    policy = cm.uniform_policy(mdp).probabilities()
    found = drawn(mdp, policy, np.full((1, 1 + 2 * HORIZON), BELOW_ONE))
    assert found.alive.all()
    assert found.states[0, 0] == np.flatnonzero(mdp.initial)[-1]


def test_an_episode_that_surely_ends_has_one_step():
    mdp = cm.TabularMDP(np.zeros((1, 2, 1)), 0, 0.9)
    found = drawn(mdp, np.array([[0.5, 0.5]]), np.zeros((1, 1 + 2 * HORIZON)))
    np.testing.assert_array_equal(found.alive[0], [1.0] + [0.0] * (HORIZON - 1))


def learning_of(problem: cm.Problem, batch_size: int = 1, **numbers: Any) -> Learning:
    """Settings of the recursion, with other numbers where they are given."""
    solver = cm.VRPDPG(1, 0.1, 0.5, 0.2, HORIZON, batch_size=batch_size, dual_bound=2.0)
    learning = read_learning(
        settings_for(solver, problem), problem, np.zeros(len(problem.constraints))
    )
    return replace(learning, **numbers)


@quickly
def following(learning: Learning, state: Any, numbers: Any) -> Any:
    after, evidence = iteration(learning, state, numbers)
    return after, trace_of(learning, noted_of(learning, after, evidence))


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    mdp = random_model(generator(7), n_states=4, n_actions=2, endings=True, mask=False)
    limits = {"cost": cm.linear("cost") <= 0.3, "spread": cm.entropy() >= 0.2}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def run(learning: Learning, iterations: int) -> list[Any]:
    """(state, trace) of every iteration in float64, the first parameters in front."""
    with double_precision():
        shape = (iterations, learning.batch_size, 1 + 2 * learning.horizon)
        uniforms = generator(8).random(shape)
        params = jnp.zeros(learning.family.actions.shape)
        state, steps = initial_state(learning, params, jnp.ones(len(learning.slacks))), []
        for numbers in uniforms:
            steps.append(following(learning, state, numbers))
            state = steps[-1][0]
        return jax.tree.map(np.asarray, steps)


def test_every_step_has_the_length_of_the_primal_step(problem):
    for state, trace in run(learning_of(problem), 20):
        assert trace.gradient_norm > 0
        assert np.linalg.norm(state.params - state.previous) == pytest.approx(0.1, rel=1e-9)


def test_a_zero_gradient_means_no_step():
    mdp = random_model(generator(7), n_states=4, n_actions=2, endings=True, mask=False)
    flat = cm.Problem(mdp, maximize=cm.linear(np.zeros(4)))
    for state, trace in run(learning_of(flat), 3):
        assert trace.gradient_norm == 0
        np.testing.assert_array_equal(state.params, 0.0)


def test_multipliers_follow_the_slack_and_stay_in_the_box(problem):
    steps = run(learning_of(problem), 40)
    for state, trace in steps:
        expected = np.clip(trace.multipliers - 0.5 * trace.recursive_slack, 0.0, 2.0)
        np.testing.assert_allclose(state.multipliers, expected, atol=1e-12)
    every = np.array([state.multipliers for state, _ in steps])
    assert every.max() == 2.0
    assert every.min() == 0.0


def test_pessimism_is_taken_off_the_slack(problem):
    plain, shifted = learning_of(problem), learning_of(problem, pessimism=np.array([0.1, 0.2]))
    (_, without), (_, with_it) = run(plain, 1)[0], run(shifted, 1)[0]
    difference = without.recursive_slack - with_it.recursive_slack
    np.testing.assert_allclose(difference, [0.1, 0.2], atol=1e-12)


def test_a_batch_averages_weight_times_estimate(problem):
    single, batch = learning_of(problem), learning_of(problem, batch_size=3)
    state = run(single, 5)[-1][0]
    uniforms = generator(9).random((3, 1 + 2 * HORIZON))
    with double_precision():
        together, trace = following(batch, state, uniforms)
        alone = [following(single, state, uniforms[k : k + 1]) for k in range(3)]
    for name in ("occupancy", "gradients"):
        mean = np.mean([getattr(found, name) for found, _ in alone], axis=0)
        np.testing.assert_allclose(getattr(together, name), mean, rtol=1e-10, atol=1e-12)
    weights = np.array([float(one.weight_mean) for _, one in alone])
    assert np.ptp(weights) > 1e-3
    assert float(trace.weight_mean) == pytest.approx(weights.mean(), rel=1e-12)
    assert float(trace.weight_max) == pytest.approx(weights.max(), rel=1e-12)
    size = weights.sum() ** 2 / (weights**2).sum()
    assert float(trace.effective_sample_size) == pytest.approx(size, rel=1e-12)


def test_the_momentum_of_the_theorem_decays_with_the_square_root(problem):
    """At iteration t the schedule gives what the constant (t + 1)^(-1/2) would."""
    schedule = learning_of(problem, momentum=1.0, momentum_decay=0.5)
    state = run(schedule, 4)[-1][0]
    constant = learning_of(problem, momentum=float(state.step + 1) ** -0.5)
    uniforms = generator(10).random((1, 1 + 2 * HORIZON))
    with double_precision():
        mine, theirs = following(schedule, state, uniforms), following(constant, state, uniforms)
    assert int(state.step) == 4
    np.testing.assert_allclose(mine[0].occupancy, theirs[0].occupancy, rtol=1e-12, atol=1e-14)


def test_steps_shrink_as_asked(problem):
    shrinking = learning_of(problem, primal_decay=0.5, dual_decay=1.0)
    for t, (state, trace) in enumerate(run(shrinking, 10)):
        moved = np.linalg.norm(state.params - state.previous)
        assert moved == pytest.approx(0.1 / np.sqrt(t + 1), rel=1e-9)
        expected = np.clip(trace.multipliers - 0.5 / (t + 1) * trace.recursive_slack, 0.0, 2.0)
        np.testing.assert_allclose(state.multipliers, expected, atol=1e-12)


def test_an_optax_rule_takes_the_place_of_the_normalised_step(problem):
    optax = pytest.importorskip("optax")
    for state, _ in run(learning_of(problem, transform=optax.sgd(0.01)), 5):
        ascent = np.tensordot([1.0, 0.0, 0.0], state.gradients, axes=1)
        assert np.isfinite(ascent).all()
        moved = state.params - state.previous
        assert np.linalg.norm(moved) > 0
    first, trace = run(learning_of(problem, transform=optax.sgd(0.01)), 1)[0]
    assert np.linalg.norm(first.params) == pytest.approx(0.01 * float(trace.gradient_norm))


def test_uniform_numbers_are_those_of_jax_threefry():
    words = key_words(jax.random.key(5))
    count, t = 6, 17
    first, second = threefry(
        words, jnp.full(count, t, jnp.uint32), jnp.arange(count, dtype=jnp.uint32)
    )
    counters = np.concatenate([np.full(count, t), np.arange(count)]).astype(np.uint32)
    expected = threefry_2x32(words, jnp.asarray(counters))
    np.testing.assert_array_equal(np.concatenate([first, second]), expected)


def test_uniform_numbers_are_uniform_and_depend_on_key_and_iteration():
    words = key_words(jax.random.key(6))
    drawn = np.concatenate([np.asarray(uniforms(words, t, (3, 101))).ravel() for t in range(200)])
    assert 0.0 <= drawn.min() < 1e-3
    assert 1 - 1e-3 < drawn.max() < 1.0
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    expected = drawn.size / 50
    assert (
        (counts - expected) ** 2 / expected
    ).sum() < 100.0  # chi-squared with 49 degrees of freedom
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    again = np.asarray(uniforms(words, 3, (3, 101)))
    np.testing.assert_array_equal(again.ravel(), drawn[3 * 303 : 4 * 303])
    other = np.asarray(uniforms(key_words(jax.random.key(7)), 3, (3, 101)))
    assert np.abs(again - other).max() > 0.1
