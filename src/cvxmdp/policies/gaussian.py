r"""Policies for continuous actions: a Gaussian around what a network gives.

Actions are vectors in a box, which an affine map takes to [-1, 1]^d. There a draw is mean(o) + std * noise,
with one standard deviation per dimension, whatever the observation. It is clipped to the box outside of the
policy: its density is that of the draw before, which is exact, because clipping belongs to the environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.arrays import Array
from cvxmdp.base.errors import PolicyError
from cvxmdp.base.precision import host
from cvxmdp.models.space import Space
from cvxmdp.policies.families import BoundFamily, Params
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.networks import (
    BoundMLP,
    BoundNetwork,
    FittedPolicy,
    Observed,
    observed,
    read_network,
)
from cvxmdp.policies.policy import Arrays

STD = 0.6
LEAST_LOG, MOST_LOG = math.log(0.01), math.log(2.0)  # of standard deviations


class Gaussian:
    """Gaussian policies for continuous actions, their mean a perceptron with tanh units.

    Args:
        *widths: of the hidden layers.
        std: the standard deviation at first, in half widths of the box of actions.
    """

    def __init__(self, *widths: int, std: float = STD) -> None:
        if not widths or any(not isinstance(width, int) or width < 1 for width in widths):
            raise PolicyError(
                f"Gaussian takes the widths of its hidden layers, as in Gaussian(64, 64); got {widths}"
            )
        if not 0.01 <= std <= 2.0:
            raise PolicyError(f"std is between 0.01 and 2 half widths of the box; got {std!r}")
        self.widths, self.std = tuple(widths), float(std)

    def bind(self, space: Space) -> BoundFamily:
        """Read the box of actions."""
        environment = space.environment if isinstance(space, FeatureSpace) else None
        box = getattr(environment, "action_box", None)
        if box is None:
            raise PolicyError(
                "Gaussian is for actions that are vectors in a box, and here they are a list: use MLP(64, 64)"
            )
        low, high = (np.asarray(end, np.float32).ravel() for end in box)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise PolicyError(
                f"the box of actions has the borders {low} and {high}; expected finite ones, in order "
                "(gymnasium.wrappers.TransformAction gives others)"
            )
        seen = observed(space, None)
        if seen is None:
            raise PolicyError(
                "Gaussian sees observations that are arrays; here they are states by number"
            )
        return BoundGaussian(space.actions, seen, low, high, np.float32(self.std), self.widths)

    def __repr__(self) -> str:
        widths = ", ".join(str(width) for width in self.widths)
        return f"Gaussian({widths})" if self.std == STD else f"Gaussian({widths}, std={self.std:g})"


@dataclass(frozen=True, eq=False)
class BoundGaussian(BoundNetwork):
    """Parameters: the layers of the mean, and the logarithms of the standard deviations, (d,).

    Attributes:
        actions: of the space, which has one.
        inputs: how observations are seen.
        low, high: the box, (d,).
        std: at first.
        widths: of the hidden layers.
    """

    actions: Array
    inputs: Any
    low: Array
    high: Array
    std: Array
    widths: tuple[int, ...]
    static: ClassVar[tuple[str, ...]] = ("widths",)
    continuous: ClassVar[bool] = True

    @property
    def network(self) -> BoundMLP:
        """Of the mean."""
        return BoundMLP(np.ones((1, np.size(self.low)), dtype=bool), self.inputs, self.widths)

    def init(self, key: Array) -> Params:
        spread = jnp.full(np.shape(self.low), jnp.log(self.std), jnp.float32)
        return (self.network.init(key), spread)

    def logits(self, params: Params, states: Array) -> Array:
        """The means, (n, d), in units of the box."""
        return self.network.logits(params[0], states)

    def density(self, params: Params, inputs: Array, actions: Array) -> tuple[Array, Array]:
        """The logarithm of the density of draws (n, d), and the entropy, (n,) each."""
        logs = jnp.clip(params[1], LEAST_LOG, MOST_LOG)
        apart = (actions - self.logits(params, inputs)) * jnp.exp(-logs)
        whole = logs.sum() + 0.5 * logs.size * math.log(2.0 * math.pi)
        entropy = whole + 0.5 * logs.size
        return -0.5 * (apart**2).sum(axis=1) - whole, jnp.broadcast_to(entropy, apart.shape[:1])

    def drawn(self, params: Params, inputs: Array, key: Array) -> Array:
        """Draws for inputs (n, ...), (n, d), inside of compiled code."""
        mean, std = self.logits(params, inputs), jnp.exp(jnp.clip(params[1], LEAST_LOG, MOST_LOG))
        return mean + std * jax.random.normal(key, mean.shape, mean.dtype)

    def drawing(self, params: Params) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
        """Draws for inputs (n, ...), (n, d), outside of compiled code."""
        mine, numbers = host((self, params))
        std = np.exp(np.clip(numbers[1], LEAST_LOG, MOST_LOG))

        def draw(inputs: np.ndarray, random: np.random.Generator) -> np.ndarray:
            mean = np.asarray(mine.logits(numbers, inputs))
            return mean + std * random.standard_normal(mean.shape, dtype=np.float32)

        return draw

    def in_box(self, draws: Any) -> Any:
        """Draws as actions of the environment."""
        return self.low + (draws.clip(-1.0, 1.0) + 1.0) * (0.5 * (self.high - self.low))

    def deploy(self, params: Params) -> Any:
        return GaussianPolicy(self, params)


class GaussianPolicy(FittedPolicy):
    """A Gaussian policy on observations: ``predict`` gives actions inside the box."""

    kind = "gaussian on observations"

    @cached_property
    def draw(self) -> Any:
        """Draws for inputs (n, ...), (n, d)."""
        return self.bound.drawing(self.params)

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of each dimension, in half widths of the box."""
        return np.asarray(np.exp(np.clip(self.params[1], LEAST_LOG, MOST_LOG)))

    def probabilities(self, observation: Any) -> np.ndarray:
        """Not of continuous actions."""
        raise PolicyError(
            "continuous actions have densities, no probabilities: see policy.std and predict"
        )

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        inputs, single = self._read(observation)
        inputs = inputs.astype(np.float32)
        if deterministic:
            mine, numbers = host((self.bound, self.params))
            draws = np.asarray(mine.logits(numbers, inputs))
        else:
            draws = self.draw(inputs, self.random)
        actions = self.bound.in_box(draws)
        return actions[0] if single else actions

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, description = super().contents()
        box = {f"action_{name}": np.asarray(getattr(self.bound, name)) for name in ("low", "high")}
        reach = float(min(self.bound.inputs.reach, 1e30))
        return {**arrays, **box}, {**description, "reach": reach}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> GaussianPolicy:
        seen = Observed(arrays["middle"], arrays["scale"], None, float(description["reach"]))
        widths = tuple(int(width) for width in description["widths"])
        box = arrays["action_low"], arrays["action_high"]
        actions = np.ones((1, 1), dtype=bool)
        bound = BoundGaussian(actions, seen, *box, np.float32(STD), widths)
        return cls(bound, *read_network(bound, seen, arrays, description))

    def __repr__(self) -> str:
        return f"GaussianPolicy({self._shown}; {np.size(self.bound.low)} dimensions)"
