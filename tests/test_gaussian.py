"""Continuous actions: a Gaussian policy in a box, and what the actor-critic makes of it; masks of lists."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import cvxmdp as cm
from cvxmdp.base.errors import PolicyError, ProblemError, SettingsError
from cvxmdp.policies.gaussian import BoundGaussian


class Aim(gymnasium.Env[np.ndarray, np.ndarray]):
    """The best action is half of what is seen; actions above 3 cost."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32([-5.0]), np.float32([15.0]))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seen = self.np_random.uniform(-10, 10, 1).astype(np.float32)
        return self.seen, {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        reward = -float(((action - 0.5 * self.seen) ** 2).sum()) / 25.0
        self.seen = self.np_random.uniform(-10, 10, 1).astype(np.float32)
        return (
            self.seen,
            reward,
            bool(self.np_random.random() < 0.1),
            False,
            {"cost": float(action[0] > 3)},
        )


def aim() -> cm.Problem:
    env = cm.GymnasiumEnv(lambda: Aim(), discount=0.9, n_envs=4)
    return cm.Problem(
        env, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 0.3}
    )


def test_densities_are_those_of_a_normal_distribution():
    bound = cm.Gaussian(8).bind(aim().space)
    assert isinstance(bound, BoundGaussian)
    params = bound.init(jax.random.key(0))
    seen, draws = jnp.asarray([[1.0], [-2.0]]), jnp.asarray([[0.2], [3.0]])
    logs, entropy = bound.density(params, seen, draws)
    mean = np.asarray(bound.logits(params, seen))
    assert logs == pytest.approx(norm.logpdf(np.asarray(draws) - mean, scale=0.6)[:, 0], rel=1e-5)
    assert entropy == pytest.approx(float(norm(scale=0.6).entropy()), rel=1e-5)
    assert bound.in_box(np.array([[-7.0], [0.0], [1.0]]))[:, 0] == pytest.approx([-5.0, 5.0, 15.0])


def test_continuous_actions_are_learned_inside_their_box(tmp_path):
    problem = aim()
    found = cm.solve(problem, seed=0, steps=30_000)
    assert "minibatch 64" in found.stats["chosen"]
    first = found.history["objective"][0]
    assert found.objective > 0.3 * first, "most of what was missed at first is gained"
    assert found.slack["cost"] > -0.1
    found.policy.save(tmp_path / "policy.safetensors")
    again = cm.load_policy(tmp_path / "policy.safetensors")
    seen = np.array([[-4.0], [9.0]], np.float32)
    for policy in (found.policy, again):
        policy.seed(3)
    actions = found.policy.predict(seen)[0]
    assert actions.shape == (2, 1)
    assert np.array_equal(actions, again.predict(seen)[0])
    # Batches as above: another size would be compiled for.
    more = cm.solve(problem, cm.ActorCritic(4_000, batch=300), seed=1, start=found.policy)
    assert more.stats["start"] == "parameters of the policy"


def test_families_that_do_not_fit_the_actions_are_refused():
    with pytest.raises(PolicyError, match="use MLP"):
        cm.Gaussian(8).bind(cm.gridworld(3, discount=0.9))
    with pytest.raises(SettingsError, match="of another kind"):
        cm.solve(aim(), cm.ActorCritic(1_000, policy=cm.MLP(8)), seed=0)
    with pytest.raises(PolicyError, match="widths"):
        cm.Gaussian()


class Doors(gymnasium.Env[np.ndarray, int]):
    """One of three doors is closed, which ``info`` tells; whoever runs against it is thrown out."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def _told(self) -> Any:
        self.closed = int(self.np_random.integers(3))
        mask = np.arange(3) != self.closed
        return np.ones(1, np.float32), {"action_mask": mask.astype(np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._told()

    def step(self, action: int) -> Any:
        assert action != self.closed
        seen, told = self._told()
        return seen, float(action), bool(self.np_random.random() < 0.2), False, told


def test_masks_in_info_are_kept_while_learning_and_afterwards():
    problem = cm.Problem(
        cm.GymnasiumEnv(lambda: Doors(), discount=0.9, n_envs=4), maximize=cm.linear("reward")
    )
    found = cm.solve(problem, seed=0, steps=10_000)
    # The best open door gives 5/3 on average; a random one 1.
    assert found.objective > 1.4 / (1 - 0.9 * 0.8)
    action, _ = found.policy.predict(np.ones(1, np.float32), action_masks=[True, False, False])
    assert action == 0


def test_masks_are_kept_where_states_are_numbers(tmp_path):
    class Numbered(Doors):
        observation_space = gymnasium.spaces.Discrete(2)

        def _told(self) -> Any:
            return int(self.np_random.integers(2)), super()._told()[1]

    problem = cm.Problem(
        cm.GymnasiumEnv(lambda: Numbered(), discount=0.9, n_envs=4), maximize=cm.linear("reward")
    )
    # A closed door that is taken fails an assertion, when the answer is judged as well.
    found = cm.solve(problem, cm.ActorCritic(2_000), seed=0, progress=False)
    assert found.objective == pytest.approx(found.history["objective"][-1], rel=0.2)
    found.policy.save(tmp_path / "policy")
    kept = cm.load_policy(tmp_path / "policy")
    assert kept.predict(1, action_masks=[False, False, True])[0] == 2


@pytest.fixture(scope="module")
def in_part() -> cm.Solution:
    """Of returns, in a box of which one number is fixed."""

    class Fixed(Aim):
        action_space = gymnasium.spaces.Box(np.float32([-5.0, 1.0]), np.float32([15.0, 1.0]))

    near = cm.distance(cm.returns("reward", "cost"), (-0.2, 1.0))
    problem = cm.Problem(cm.GymnasiumEnv(Fixed(), 0.9), minimize=near)
    return cm.solve(problem, cm.ActorCritic(500), seed=0, progress=False)


def test_a_number_of_the_box_may_be_fixed(in_part) -> None:
    action, _ = in_part.policy.predict(np.zeros(1, np.float32))
    assert action[1] == 1.0


def test_returns_need_no_features(in_part) -> None:
    assert np.isfinite(in_part.objective)
    with pytest.raises(ProblemError, match="reads states or features"):
        cm.Problem(cm.GymnasiumEnv(Aim(), 0.9), maximize=cm.entropy())
