"""PPO-Lagrangian, made of Stable-Baselines3's PPO (``pip install stable-baselines3``, with PyTorch).

PPO learns from (reward - mu * cost) / (1 + mu). After every rollout,

    mu <- max(0, mu + step (C - budget) / budget)

with the mean cost C of the episodes that ended in it. PPO has the settings it comes with, eight environments,
and observations scaled by their running moments, as ours are.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np

from learner_tasks import LANES, SafeTask

ROLLOUT = 2048
RECENT = 20  # episodes whose mean cost moves the multiplier, at most


class _Price:
    """The multiplier, and what moves it."""

    def __init__(self, budget: float, step: float) -> None:
        self.budget, self.step, self.multiplier = budget, step, 0.0
        self.costs: deque[float] = deque(maxlen=RECENT)

    def move(self) -> None:
        """After a rollout."""
        if self.costs:
            over = (float(np.mean(self.costs)) - self.budget) / self.budget
            self.multiplier = max(0.0, self.multiplier + self.step * over)
            self.costs.clear()


class _Priced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Rewards less what costs are worth."""

    def __init__(self, env: Any, price: _Price) -> None:
        super().__init__(env)
        self.price, self.total = price, 0.0

    def step(self, action: Any) -> Any:
        """Take a step and price it."""
        after, reward, ended, cut, info = self.env.step(action)
        self.total += info["cost"]
        if ended or cut:
            self.price.costs.append(self.total)
            self.total = 0.0
        mu = self.price.multiplier
        return after, (float(reward) - mu * info["cost"]) / (1.0 + mu), ended, cut, {}


def ppo_lagrangian(task: SafeTask, step: float, steps: int, seed: int) -> Any:
    """A policy that acts: observation -> action."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    price = _Price(task.budget, step)

    class Move(BaseCallback):  # type: ignore[misc, unused-ignore]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            price.move()

    def one() -> Any:
        made = task.make()
        limited = made if made.spec and made.spec.max_episode_steps == task.limit else None
        return _Priced(limited or gymnasium.wrappers.TimeLimit(made, task.limit), price)

    lanes = VecNormalize(DummyVecEnv([one] * LANES), norm_obs=_has_numbers(task), norm_reward=False)
    learner = PPO("MlpPolicy", lanes, n_steps=ROLLOUT // LANES, seed=seed, device="cpu")
    learner.learn(steps, callback=Move())

    def act(observation: Any) -> Any:
        seen = lanes.normalize_obs(observation) if _has_numbers(task) else observation
        action = learner.predict(seen, deterministic=False)[0]
        return action if task.continuous else int(action)

    return act


def _has_numbers(task: SafeTask) -> bool:
    return isinstance(task.make().observation_space, gymnasium.spaces.Box)
