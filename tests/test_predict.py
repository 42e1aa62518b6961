"""Policies act as users of Stable-Baselines3 expect."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning, PolicyError
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.parametric import ParametricPolicy

TABLE = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [0.6, 0.0, 0.4]])


@pytest.mark.parametrize(
    "policy",
    [
        cm.TabularPolicy(TABLE),
        cm.SoftmaxTable(np.log(np.maximum(TABLE, 1e-9)), TABLE > 0),
        ParametricPolicy(TABLE, [np.zeros(2)], "MLP"),
        MixturePolicy(TABLE, TABLE[None]),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_one_observation_and_many(policy) -> None:
    action, memory = policy.predict(1)
    assert (int(action), memory) == (1, None)
    assert gymnasium.spaces.Discrete(3).contains(action)
    states = np.repeat([0, 2], 20_000)
    actions, _ = policy.seed(0).predict(states)
    assert actions.shape == states.shape
    for state in (0, 2):
        shares = np.bincount(actions[states == state], minlength=3) / 20_000
        # four standard errors of a share of 20,000 draws
        np.testing.assert_allclose(shares, TABLE[state], atol=4 * 0.5 / np.sqrt(20_000))
        assert (shares[TABLE[state] == 0] == 0).all()
    again, _ = policy.seed(0).predict(states)
    np.testing.assert_array_equal(actions, again)
    other, _ = policy.seed(1).predict(states)
    assert (actions != other).any()


def test_deterministic_warns_that_it_is_another_policy() -> None:
    with pytest.warns(CvxmdpWarning, match="the constraints of the solution do not speak of it"):
        actions, _ = cm.TabularPolicy(TABLE).predict(np.arange(3), deterministic=True)
    np.testing.assert_array_equal(actions, [1, 1, 0])
    # nothing changes for a policy that is deterministic: no warning, which would be an error here
    assert cm.TabularPolicy(np.eye(3)).predict(2, deterministic=True)[0] == 2


def test_a_mixture_keeps_its_policy_until_the_episode_ends() -> None:
    left, right = np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))
    policy = MixturePolicy(np.full((2, 2), 0.5), np.stack([left, right])).seed(0)
    lanes = np.zeros(500, dtype=int)
    begins = np.ones(500, dtype=bool)
    first, _ = policy.predict(lanes, episode_start=begins)
    assert 200 < first.sum() < 300
    for _ in range(3):
        np.testing.assert_array_equal(policy.predict(lanes, episode_start=~begins)[0], first)
    begins[:100] = False
    then, _ = policy.predict(lanes, episode_start=begins)
    np.testing.assert_array_equal(then[:100], first[:100])
    assert (then[100:] != first[100:]).any()
    # without episode_start: the single policy of the same occupancy, which draws each time
    assert (policy.predict(lanes)[0] != policy.predict(lanes)[0]).any()


@pytest.mark.parametrize("observation", [3, -1, 0.5, [0.0, 1.0], "here", [], [0, 7]])
def test_what_is_no_state(observation) -> None:
    with pytest.raises(PolicyError, match=r"expected states, whole numbers|there is no state"):
        cm.TabularPolicy(TABLE).predict(observation)


def test_a_solution_acts_and_reaches_what_it_promises() -> None:
    """Played in the real environment: allowed actions only, and the goal as often as the table says."""
    mdp = cm.from_gymnasium_table("FrozenLake-v1", 0.9, is_slippery=False)
    solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    with gymnasium.make("FrozenLake-v1", is_slippery=False) as env:
        observation, _ = env.reset(seed=0)
        solution.policy.seed(0)
        total, steps, over = 0.0, 0, False
        while not over:
            action, nothing = solution.policy.predict(observation)
            assert nothing is None
            assert solution.policy.probabilities(observation)[action] > 0
            observation, reward, terminated, truncated, _ = env.step(action)
            total += 0.9**steps * float(reward)
            steps, over = steps + 1, terminated or truncated
    assert terminated
    assert total == pytest.approx(
        solution.objective, abs=1e-9
    )  # nothing slips: one way, one return
    assert solution.objective == pytest.approx(0.9**5, abs=1e-9)  # six steps, the last is paid
