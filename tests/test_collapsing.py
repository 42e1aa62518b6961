"""Staying for ever for nothing: such parts as one state, and policies taken back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm


def idle_model(seed: int, discount: float = 1.0) -> cm.TabularMDP:
    """Eight states between which one moves for nothing; the last action ends the episode, pays and costs."""
    random = np.random.default_rng(seed)
    transition = np.zeros((8, 3, 8))
    for state in range(8):
        for action in range(2):
            after = random.choice(8, size=int(random.integers(1, 3)), replace=False)
            transition[state, action, after] = random.dirichlet(np.ones(len(after)))
    reward, cost = np.zeros((8, 3)), np.zeros((8, 3))
    reward[:, 2], cost[:, 2] = random.random((2, 8))
    cost[:, 1] = random.random(8) * (random.random(8) < 0.3)  # some moves are not for nothing
    signals = {"reward": reward, "cost": cost}
    return cm.TabularMDP(transition, discount=discount, initial=np.full(8, 1 / 8), signals=signals)


def value(mdp: cm.TabularMDP, policy: np.ndarray, signal: str) -> float:
    return float((cm.occupancy_of(mdp, policy) * mdp.signal(signal)).sum())


@pytest.mark.parametrize("seed", range(6))
def test_returns_are_those_of_the_model_itself(seed: int) -> None:
    mdp, near = idle_model(seed), idle_model(seed, 1 - 1e-7)
    for budget, counting in ((None, ("reward",)), (0.2, ("reward", "cost"))):
        smaller = mdp.collapsed(*counting)
        within = {} if budget is None else {"cost": cm.linear("cost") <= budget}
        problem = cm.Problem(smaller, maximize=cm.linear("reward"), subject_to=within)
        solution = cm.solve(problem)
        assert solution.status is cm.Status.OPTIMAL
        assert cm.certify(problem, solution).relative_gap <= 1e-6
        other = cm.solve(cm.Problem(near, maximize=cm.linear("reward"), subject_to=within))
        assert solution.objective == pytest.approx(other.objective, rel=1e-4)
        if budget is None:  # nobody stays: a table does it
            table = mdp.unfolded(solution.policy, *counting)
            assert value(mdp, table, "reward") == pytest.approx(solution.objective, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_any_policy_that_leaves_keeps_its_returns(seed: int) -> None:
    mdp = idle_model(seed)
    smaller = mdp.collapsed()
    chances = np.random.default_rng(seed).random(smaller.shape) * smaller.actions
    chances[smaller.actions.sum(axis=1) > 1, 3] = 0.0  # nobody stays
    policy = chances / chances.sum(axis=1, keepdims=True)
    table = mdp.unfolded(policy)
    for signal in mdp.signals:
        assert value(mdp, table, signal) == pytest.approx(value(smaller, policy, signal), rel=1e-6)


def test_the_frozen_lake_without_a_discount() -> None:
    pytest.importorskip("gymnasium")
    lake = cm.from_gymnasium_table("FrozenLake-v1", 1.0)
    with pytest.raises(cm.ModelError, match=r"mdp\.collapsed\("):
        cm.Problem(lake, maximize=cm.linear("reward"))
    problem = cm.Problem(lake.collapsed(), maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    assert solution.objective == pytest.approx(14 / 17, abs=1e-9)
    assert cm.certify(problem, solution).relative_gap <= 1e-9
    assert value(lake, lake.unfolded(solution.policy), "reward") == pytest.approx(14 / 17, abs=1e-9)


def test_staying_with_a_probability_is_the_answer_and_no_table(tmp_path: Path) -> None:
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 1] = transition[0, 1, 0] = 1.0  # leave, or wait
    reward = np.array([[1.0, 0.0], [0.0, 0.0]])
    cost = np.array([[1.0, 0.0], [0.0, 0.0]])
    mdp = cm.TabularMDP(
        transition,
        discount=1,
        initial=[1.0, 0.0],
        signals={"reward": reward, "cost": cost},
        state_names=["door", "street"],
    )
    smaller = mdp.collapsed()
    within = {"cost": cm.linear("cost") <= 0.3}
    solution = cm.solve(cm.Problem(smaller, maximize=cm.linear("reward"), subject_to=within))
    assert solution.objective == pytest.approx(0.3)
    with pytest.raises(cm.PolicyError, match=r"stays for ever in door with probability 0\.7"):
        mdp.unfolded(solution.policy)
    staying = cm.StayingPolicy.of(mdp, solution).seed(0)
    staying.save(tmp_path / "policy.safetensors")
    staying = cm.load_policy(tmp_path / "policy.safetensors").seed(0)
    lanes, begins, left = np.zeros(4_000, dtype=int), True, np.zeros(4_000)
    for _ in range(20):  # whoever drew to stay is at the door for ever
        actions, _ = staying.predict(lanes, episode_start=np.full(4_000, begins))
        left += (lanes == 0) & (actions == 0)
        lanes, begins = np.where(actions == 0, 1, lanes), False
    assert left.max() == 1
    assert left.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 4_000))
    with pytest.raises(cm.ModelError, match="of collapsed"):
        mdp.unfolded(np.ones((3, 3)))
    with pytest.raises(cm.ModelError, match="discount=1"):
        mdp.replace(discount=0.9).collapsed()


def test_a_model_without_silence_stays_as_it_is() -> None:
    chain = np.zeros((3, 1, 3))
    chain[0, 0, 1] = chain[1, 0, 2] = 1.0
    mdp = cm.TabularMDP(chain, discount=1, initial=[1, 0, 0], signals={"r": np.ones((3, 1))})
    smaller = mdp.collapsed()
    assert smaller.actions[:, 1:].sum() == 0
    assert value(smaller, cm.uniform_policy(smaller), "r") == pytest.approx(3.0)
    np.testing.assert_array_equal(mdp.unfolded(cm.uniform_policy(smaller)), np.ones((3, 1)))


@pytest.mark.parametrize("seed", [0, 1])
def test_whoever_draws_to_stay_returns_what_the_collapsed_policy_does(seed: int) -> None:
    """Played for 40 steps: entries from everywhere, ways out that lead back, chances of a random policy."""
    mdp = idle_model(seed)
    smaller = mdp.collapsed()
    random = np.random.default_rng(seed)
    chances = random.random(smaller.shape) * smaller.actions
    policy = chances / chances.sum(axis=1, keepdims=True)
    acting = cm.StayingPolicy.of(mdp, policy).seed(seed)
    lanes = 20_000
    states, alive = random.integers(8, size=lanes), np.ones(lanes, dtype=bool)
    totals = {name: np.zeros(lanes) for name in mdp.signals}
    cumulative = mdp.dense_transition().cumsum(axis=2)
    for step in range(40):
        actions, _ = acting.predict(states, episode_start=np.full(lanes, step == 0))
        for name in totals:
            totals[name] += alive * mdp.signal(name)[states, actions]
        alive &= random.random(lanes) < cumulative[states, actions, -1] - 1e-12
        level = random.random(lanes)[:, None] * cumulative[states, actions, -1:]
        states = np.where(alive, (cumulative[states, actions] <= level).sum(axis=1), 0)
    for name, played in totals.items():
        wanted, error = value(smaller, policy, name), played.std() / np.sqrt(lanes)
        assert played.mean() == pytest.approx(wanted, abs=5 * error + 1e-6)
