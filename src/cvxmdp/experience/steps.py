r"""Experience: what an environment showed, and what is measured of it.

Beside the tabular ``Trajectory`` this has what only the environment knows: features and signals of every step.
The occupancy is then (F + K, A), features above signals; see ``cvxmdp.models.space``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.base.pytrees import Pytree
from cvxmdp.experience.trajectories import spread

Array = Any


@dataclass(frozen=True, eq=False)
class Played(Pytree):
    """An environment that is played outside of compiled code: all that the recursion needs of it."""

    discount: Array


class Experience(NamedTuple):
    """A batch of episodes of at most H steps.

    Attributes:
        states: what the policy is given: numbers of states (B, H), or observations (B, H, ...).
        actions: (B, H).
        alive: 1 where the step was taken, 0 after the episode ended, (B, H).
        features: numbers of states or bins, (B, H), or feature vectors, (B, H, F).
        signals: (B, H, K).
        cut: 1 where the episode was cut by a limit of time and did not end, (B,).
    """

    states: Array
    actions: Array
    alive: Array
    features: Array
    signals: Array
    cut: Array

    def measure(self, numbers: Array, shape: tuple[int, int]) -> Array:
        """Numbers along the batch, (m, B, H), times what was seen, added up and averaged: (m, F + K, A)."""
        size = shape[0] - self.signals.shape[2]
        share = numbers / self.actions.shape[0]
        taken = jax.nn.one_hot(self.actions, shape[1], dtype=numbers.dtype)
        if self.features.ndim == 3:
            above = jnp.einsum("mbh,bhf,bha->mfa", share, self.features, taken)
        else:
            above = spread(self._replace(states=self.features), numbers, (size, shape[1]))
        below = jnp.einsum("mbh,bhk,bha->mka", share, self.signals, taken)
        return jnp.concatenate([above, below], axis=1)

    def along(self, reward: Array) -> Array:
        """A reward (F + K, A) along the batch: (B, H)."""
        size = reward.shape[0] - self.signals.shape[2]
        of_signals = (self.signals * reward[size:].T[self.actions]).sum(axis=2)
        if self.features.ndim == 3:
            return of_signals + (self.features * reward[:size].T[self.actions]).sum(axis=2)
        return of_signals + reward[self.features, self.actions]
