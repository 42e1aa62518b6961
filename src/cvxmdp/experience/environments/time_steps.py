"""Environments written in JAX that go from time step to time step, as NAVIX's do.

    reset(key) -> step,   step(step, action) -> step

with ``observation``, ``reward``, ``info``, ``is_termination()`` and ``is_truncation()`` of a step. They are
played by the protocol of ``jax_env``, the time step being the state; its random numbers are the state's own.
"""

from __future__ import annotations

from typing import Any

import jax

Array = Any


class TimeSteps:
    """Such an environment with the protocol that ``JaxEnv`` plays."""

    default_params = None

    def __init__(self, env: Any) -> None:
        self.env, self.name = env, type(env).__name__
        self.num_actions = getattr(env.action_space, "n", None)
        self.action_space, self.observation_space = env.action_space, env.observation_space
        self.max_steps_in_episode = getattr(env, "max_steps", None)

    def reset(self, key: Array) -> tuple[Array, Any]:
        """The first observation, and the first time step."""
        first = self.env.reset(key)
        return first.observation, first

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, ...]:
        """Six values: whether the episode ended and whether it was cut are told apart."""
        after = self.env.step(state, action)
        ended, cut = after.is_termination(), after.is_truncation()
        return after.observation, after, after.reward, ended, cut, dict(after.info)


def with_protocol(env: Any) -> Any:
    """The environment, or what makes one of it that ``JaxEnv`` plays."""
    try:
        first = jax.eval_shape(env.reset, jax.random.key(0))
    except Exception:  # it needs parameters, or does not work: what is used is looked at later
        return env
    return TimeSteps(env) if hasattr(first, "is_truncation") else env
