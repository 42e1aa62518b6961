"""CartPole written in JAX, with gymnax's protocol: the physics of Gymnasium's CartPole-v1, step by step.

``cm.JaxEnv(CartPole(), ...)`` plays it inside compiled code, policy and learning included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL = CART + POLE
LARGEST_PLACE, LARGEST_ANGLE = 2.4, 12 * 2 * np.pi / 360


class State(NamedTuple):
    """Where the cart and the pole are, and how many steps were taken."""

    numbers: Array  # place, velocity, angle, angular velocity
    time: Array


class Box(NamedTuple):
    """Where observations lie; networks see them scaled to it, where it has borders."""

    low: Array
    high: Array


class CartPole:
    """Push a cart to the left (0) or to the right (1); the episode ends when the pole or the cart goes too far.

    Args:
        time_limit: where episodes are cut.
    """

    num_actions = 2
    name = "CartPole in JAX"

    def __init__(self, time_limit: int = 500) -> None:
        self.time_limit = time_limit

    def observation_space(self, params: Any = None) -> Box:
        """As Gymnasium's: twice as far as an episode can go, velocities without borders."""
        high = np.array([2 * LARGEST_PLACE, np.inf, 2 * LARGEST_ANGLE, np.inf])
        return Box(-high, high)

    def reset(self, key: Array) -> tuple[Array, State]:
        """Nearly upright, nearly at rest."""
        numbers = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return numbers, State(numbers, jnp.int32(0))

    def step(
        self, key: Array, state: State, action: Array
    ) -> tuple[Array, State, Array, Array, dict[str, Array]]:
        """A fiftieth of a second, Euler's method as in Gymnasium."""
        _, velocity, angle, turning = state.numbers
        force = jnp.where(action == 1, FORCE, -FORCE)
        push = (force + POLE * HALF_LENGTH * turning**2 * jnp.sin(angle)) / TOTAL
        leverage = HALF_LENGTH * (4 / 3 - POLE * jnp.cos(angle) ** 2 / TOTAL)
        tilting = (GRAVITY * jnp.sin(angle) - jnp.cos(angle) * push) / leverage
        pushed = push - POLE * HALF_LENGTH * tilting * jnp.cos(angle) / TOTAL
        numbers = state.numbers + SECONDS * jnp.stack([velocity, pushed, turning, tilting])
        ended = (jnp.abs(numbers[0]) > LARGEST_PLACE) | (jnp.abs(numbers[2]) > LARGEST_ANGLE)
        after = State(numbers, state.time + 1)
        cut = (after.time >= self.time_limit) & ~ended
        return numbers, after, jnp.float32(1.0), ended | cut, {"truncated": cut}
