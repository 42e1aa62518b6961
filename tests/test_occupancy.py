"""Occupancies: the flow equations, the way to policies and back, and undiscounted visits."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import cvxmdp as cm
from cvxmdp.base.errors import PolicyError
from cvxmdp.models import systems
from cvxmdp.policies.occupancies import as_policy, episode_visits


def random_mask(random: np.random.Generator, n_states: int, n_actions: int) -> np.ndarray:
    mask = random.random((n_states, n_actions)) < 0.6
    mask[np.arange(n_states), random.integers(n_actions, size=n_states)] = True
    return mask


@st.composite
def models(draw: st.DrawFn) -> cm.TabularMDP:
    """Small Garnets: with and without endings and masks, from one state or from all of them."""
    n_states = draw(st.integers(1, 12))
    n_actions = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 10_000))
    mdp = cm.garnet(
        n_states,
        n_actions,
        draw(st.integers(1, n_states)),
        seed=seed,
        discount=draw(st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999])),
        ending=draw(st.sampled_from([0.0, 0.01, 0.3, 1.0])),
    )
    if draw(st.booleans()):
        mdp = mdp.replace(actions=random_mask(np.random.default_rng(seed), n_states, n_actions))
    if draw(st.booleans()):
        mdp = mdp.replace(initial=draw(st.integers(0, n_states - 1)))
    return mdp


def random_policy(mdp: cm.TabularMDP, seed: int, zeros: float = 0.3) -> cm.TabularPolicy:
    """Random rows over the available actions, some of them without some actions."""
    random = np.random.default_rng(seed)
    weights = np.where(mdp.actions, random.random(mdp.actions.shape) + 0.01, 0.0)
    kept = np.where(random.random(weights.shape) < zeros, 0.0, weights)
    weights = np.where(kept.sum(axis=1, keepdims=True) > 0, kept, weights)
    return cm.TabularPolicy(weights / weights.sum(axis=1, keepdims=True))


# Properties over random models


@given(mdp=models(), seed=st.integers(0, 10_000))
def test_an_occupancy_fulfils_the_flow_equations(mdp: cm.TabularMDP, seed: int) -> None:
    x = cm.occupancy_of(mdp, random_policy(mdp, seed))
    assert (x >= 0).all()
    assert (x[~mdp.actions] == 0).all()
    assert (x[~mdp.reachable] == 0).all()
    assert np.abs(mdp.flow.residual(x)).sum() <= 1e-13 * mdp.max_mass
    # What starts either goes on, discounted, or ends: one equation for the whole mass.
    lost = (1 - mdp.discount) * x.sum() + mdp.discount * (x * mdp.ending).sum()
    assert lost == pytest.approx(1.0, rel=1e-10)


@given(mdp=models(), seed=st.integers(0, 10_000))
def test_policy_to_occupancy_to_policy_returns(mdp: cm.TabularMDP, seed: int) -> None:
    policy = random_policy(mdp, seed)
    x = cm.occupancy_of(mdp, policy)
    visited = x.sum(axis=1) > 0
    returned = cm.policy_of(mdp, x).probabilities()
    np.testing.assert_allclose(returned[visited], policy.probabilities()[visited], atol=1e-12)
    uniform = cm.uniform_policy(mdp).probabilities()
    np.testing.assert_array_equal(returned[~visited], uniform[~visited])


@given(
    mdp=models(), seeds=st.tuples(st.integers(0, 999), st.integers(0, 999)), share=st.floats(0, 1)
)
def test_mixtures_of_occupancies_are_occupancies(mdp, seeds, share: float) -> None:
    first, second = (cm.occupancy_of(mdp, random_policy(mdp, seed)) for seed in seeds)
    x = share * first + (1 - share) * second
    returned = cm.occupancy_of(mdp, cm.policy_of(mdp, x))
    np.testing.assert_allclose(returned, x, atol=1e-11 * mdp.max_mass)


@given(mdp=models(), seed=st.integers(0, 10_000))
def test_the_solve_equals_the_sum_of_powers(mdp: cm.TabularMDP, seed: int) -> None:
    policy = random_policy(mdp, seed).probabilities()
    horizon = 200
    here, total = mdp.initial, np.zeros(mdp.actions.shape)
    for step in range(horizon):
        pairs = here[:, None] * policy
        total += mdp.discount**step * pairs
        here = mdp.transition.T @ pairs.ravel()
    difference = np.abs(cm.occupancy_of(mdp, policy) - total).sum()
    assert difference <= mdp.discount**horizon * mdp.max_mass + 1e-12 * mdp.max_mass


@given(mdp=models(), seed=st.integers(0, 10_000))
def test_the_large_path_equals_the_small_one(mdp: cm.TabularMDP, seed: int) -> None:
    policy = random_policy(mdp, seed)
    small = cm.occupancy_of(mdp, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(systems, "DENSE_LIMIT", 0)
        large = cm.occupancy_of(mdp, policy)
    assert np.abs(large - small).sum() <= 1e-13 * mdp.max_mass**2
    np.testing.assert_array_equal(large == 0, small == 0)


# Closed forms


def test_two_states_in_closed_form() -> None:
    # 0 stays with probability 1/2, else goes to 1, which is absorbing: x0 = 1 / (1 - gamma / 2).
    mdp = cm.TabularMDP(np.array([[[0.5, 0.5]], [[0.0, 1.0]]]), 0, 0.9)
    x = cm.occupancy_of(mdp, [[1.0], [1.0]])
    np.testing.assert_allclose(x[:, 0], [1 / 0.55, 10 - 1 / 0.55], rtol=1e-14)
    np.testing.assert_allclose(cm.state_distribution(mdp, x).sum(), 1.0, rtol=1e-14)


def test_endings_take_mass_away() -> None:
    mdp = cm.TabularMDP(np.array([[[0.5]]]), 0, 0.9)
    x = cm.occupancy_of(mdp, [[1.0]])
    assert x[0, 0] == pytest.approx(1 / (1 - 0.45), rel=1e-14)
    assert cm.state_distribution(mdp, x.tolist())[0] == pytest.approx(0.1 / 0.55, rel=1e-14)


def test_discount_zero_counts_the_first_step_only() -> None:
    mdp = cm.garnet(5, 2, 3, seed=0, discount=0.0)
    np.testing.assert_allclose(cm.occupancy_of(mdp, cm.uniform_policy(mdp)), 0.1, rtol=1e-15)


def test_a_large_grid_has_the_flow_of_an_occupancy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_) -> None:
        raise AssertionError("factorised")

    monkeypatch.setattr(np.linalg, "solve", refuse)
    mdp = cm.gridworld(50, slip=0.1, discount=0.99)
    for policy in (cm.uniform_policy(mdp), random_policy(mdp, 0)):
        x = cm.occupancy_of(mdp, policy)
        assert np.abs(mdp.flow.residual(x)).sum() <= 2e-14 * mdp.max_mass
        assert x.sum() == pytest.approx(mdp.max_mass, rel=1e-11)


def test_a_model_of_200_000_states() -> None:
    mdp = cm.garnet(200_000, 2, 2, seed=0, discount=0.9)
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    assert np.abs(mdp.flow.residual(x)).sum() <= 2e-14 * mdp.max_mass


def test_occupancy_agrees_with_simulation() -> None:
    mdp = cm.garnet(4, 2, 2, seed=3, discount=0.8, ending=0.2)
    policy, random = random_policy(mdp, 1), np.random.default_rng(0)
    episodes = np.array([simulate(mdp, policy, random, 0.8) for _ in range(2_000)])
    assert_within_errors(episodes, cm.occupancy_of(mdp, policy))


def simulate(mdp, policy, random: np.random.Generator, discount: float) -> np.ndarray:
    """The occupancy of one episode."""
    visits, weight = np.zeros(mdp.actions.shape), 1.0
    state = int(random.choice(mdp.n_states, p=mdp.initial))
    table = mdp.dense_transition()
    while weight > 1e-6:
        action = policy.sample(state, random)
        visits[state, action] += weight
        weight *= discount
        chances = np.append(table[state, action], mdp.ending[state, action])
        state = int(random.choice(chances.size, p=chances / chances.sum()))
        if state == mdp.n_states:
            break
    return visits


def assert_within_errors(samples: np.ndarray, expected: np.ndarray) -> None:
    errors = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()


# States that are never visited


def test_a_state_never_reached_has_a_defined_answer() -> None:
    mdp = cm.gridworld(3, walls=[4], goal=8)
    policy = cm.policy_of(mdp, cm.occupancy_of(mdp, cm.uniform_policy(mdp)))
    np.testing.assert_array_equal(policy.probabilities(4), 0.25)
    np.testing.assert_array_equal(policy.probabilities(8), 0.25)
    assert cm.occupancy_of(mdp, policy)[[4, 8]].sum() == 0.0


def test_unvisited_states_get_the_uniform_row_over_available_actions() -> None:
    mask = [[True, True, True], [True, False, True]]
    mdp = cm.TabularMDP(np.full((2, 3, 2), 0.5), 0, 0.9, actions=mask)
    policy = cm.policy_of(mdp, [[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(policy.probabilities(), [[0.25, 0.75, 0.0], [0.5, 0.0, 0.5]])


def test_the_smallest_numbers_still_are_visits() -> None:
    mdp = cm.TabularMDP(np.full((1, 2, 1), 1.0), 0, 0.9)
    policy = cm.policy_of(mdp, [[3 * 5e-324, 5e-324]])
    np.testing.assert_array_equal(policy.probabilities(), [[0.75, 0.25]])


# Undiscounted visits


def test_visits_of_a_walk_that_ends_in_closed_form() -> None:
    # 0 <-> 1, and 1 ends with probability 1/4: four visits of 1, and as many of 0.
    mdp = cm.TabularMDP(np.array([[[0.0, 1.0]], [[0.75, 0.0]]]), 0, 0.5)
    np.testing.assert_allclose(episode_visits(mdp, [[1.0], [1.0]]), [[4.0], [4.0]], rtol=1e-14)


@given(mdp=models(), seed=st.integers(0, 10_000))
def test_visits_of_garnets_sum_to_the_mean_length(mdp: cm.TabularMDP, seed: int) -> None:
    visits = episode_visits(mdp, random_policy(mdp, seed))
    if not (mdp.ending > 0).any():
        assert visits is None
        return
    # A Garnet ends with the same probability everywhere, as if that were its discount.
    ending = mdp.ending[mdp.actions].max()
    assert visits is not None
    assert visits.sum() == pytest.approx(1.0 / ending, rel=1e-9)


def test_visits_agree_with_simulation() -> None:
    mdp = cm.garnet(4, 2, 2, seed=5, discount=0.5, ending=0.25)
    policy, random = random_policy(mdp, 2), np.random.default_rng(1)
    episodes = np.array([simulate(mdp, policy, random, 1.0) for _ in range(2_000)])
    assert_within_errors(episodes, episode_visits(mdp, policy))


def test_only_the_visited_states_must_end() -> None:
    # 0 ends by action 0 and goes to 1 by action 1; 1 is absorbing.
    mdp = cm.TabularMDP(np.array([[[0.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]), 0, 0.9)
    np.testing.assert_array_equal(
        episode_visits(mdp, [[1.0, 0.0], [0.5, 0.5]]), [[1.0, 0.0], [0.0, 0.0]]
    )
    assert episode_visits(mdp, [[0.9, 0.1], [0.5, 0.5]]) is None


@pytest.mark.parametrize("chance", [1e-15, 1e-17, 1e-300])
def test_endings_lost_in_rounding_give_no_number(chance: float) -> None:
    # A softmax never stops trying: its chance to end may be positive and yet below rounding.
    mdp = cm.TabularMDP(np.array([[[0.3, 0.7], [0, 0]], [[0.6, 0.4], [0, 0]]]), 0, 0.9)
    assert episode_visits(mdp, [[1.0 - chance, chance], [1.0, 0.0]]) is None


def test_rare_endings_still_give_a_number() -> None:
    mdp = cm.TabularMDP(np.array([[[1.0], [0.0]]]), 0, 0.9)
    visits = episode_visits(mdp, [[1 - 1e-6, 1e-6]])
    np.testing.assert_allclose(visits, [[1e6 - 1, 1.0]], rtol=1e-9)


# Bad input


@pytest.fixture
def masked() -> cm.TabularMDP:
    mask = [[True, False], [True, True]]
    return cm.TabularMDP(
        np.full((2, 2, 2), 0.5),
        0,
        0.9,
        actions=mask,
        state_names=["start", "end"],
        action_names=["stay", "go"],
    )


def test_a_policy_must_not_take_masked_actions(masked: cm.TabularMDP) -> None:
    message = "takes action go in state start with probability 0.5, where it is not available"
    for take in (cm.occupancy_of, episode_visits, as_policy):
        with pytest.raises(PolicyError, match=message):
            take(masked, [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(PolicyError, match="not available"):
        cm.occupancy_of(masked, cm.SoftmaxTable(np.zeros((2, 2))))


def test_an_occupancy_must_not_take_masked_actions(masked: cm.TabularMDP) -> None:
    with pytest.raises(PolicyError, match=r"is 3 at state start, action go.*not available"):
        cm.policy_of(masked, [[1.0, 3.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.full((3, 2), 0.5), "for 3 states and 2 actions, the model has 2 and 2"),
        (np.full((2, 3), 1 / 3), "for 2 states and 3 actions"),
        ([[1.0, 0.0], [0.5, 0.4]], "sum to 0.9"),
        ([[1.0, 0.0], [np.nan, 1.0]], "is nan"),
        ("policy", "got a path: load_policy"),
        ([["often", "never"], [1.0, 0.0]], "real numbers"),
        (None, r"got shape \(\)"),
    ],
)
def test_bad_policies(masked: cm.TabularMDP, policy, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        cm.occupancy_of(masked, policy)


@pytest.mark.parametrize(
    ("occupancy", "message"),
    [
        ([[1.0, 0.0], [-1e-9, 0.0]], "got -1e-09 at state end, action stay"),
        ([[np.nan, 0.0], [0.0, 0.0]], "got nan at state start, action stay"),
        ([[np.inf, 0.0], [0.0, 0.0]], "got inf"),
        ([1.0, 2.0], r"shape \(2, 2\); got shape \(2,\)"),
        (np.ones((2, 3)), r"got shape \(2, 3\)"),
        ("occupancy", "real numbers"),
        ([[1.0], [1.0, 2.0]], "real numbers"),
    ],
)
def test_bad_occupancies(masked: cm.TabularMDP, occupancy, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        cm.policy_of(masked, occupancy)


def test_state_distribution_of_the_wrong_shape(masked: cm.TabularMDP) -> None:
    with pytest.raises(PolicyError, match=r"got shape \(2,\)"):
        cm.state_distribution(masked, np.ones(2))


def test_a_solution_stands_for_its_policy() -> None:
    class Solved:
        policy = cm.TabularPolicy([[1.0]])

    mdp = cm.TabularMDP(np.ones((1, 1, 1)), 0, 0.9)
    assert as_policy(mdp, Solved()) is Solved.policy
    assert cm.occupancy_of(mdp, Solved())[0, 0] == pytest.approx(10.0, rel=1e-14)
