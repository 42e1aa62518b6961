r"""Where a step goes and how long it is, beyond Algorithm 1: departures that are off unless asked for.

- **Baseline.** The running mean of the reward to go is subtracted from it, per step of the horizon; unbiased,
  because it is older than the trajectory.
- **Exploration.** With H the entropy of the state distribution, the step goes along d_L / |d_L| + beta_t d_H
  / |d_H|; beta_t falls linearly to zero over the first half of the iterations. Where rewards are rare, costs
  alone would otherwise drive the policy into a corner before it has seen one.
- **Natural.** The gradient is multiplied by the inverse of the Fisher matrix F of the policy along the
  trajectories, and steps have their length in its norm: theta + eta v / sqrt(<d_L, v>), v = F^{-1} d_L. For a
  table F is diagonal up to shifts of a state's logits, which move no policy: v(s,a) = d_L(s,a) / (lambda_t(s)
  pi(a|s)), the state frequencies lambda_t(s) those of the recursive occupancy, above a floor. For other
  families v solves (F + eps I) v = d_L by conjugate gradients, F that of the batch.
- **Trust.** The logarithm of an episode's importance weight has the mean square eta^2 v'F_H v for a step eta
  v. Its measured size says how long a step may be: eta is at most ``trust / sqrt(v'F_H v)``. Beyond that the
  recursive estimates lie: typical weights are below their mean of 1, rare ones far above, and a recursion
  that subtracts w x and adds x is too large nearly always.
- **Transformed.** The ascent goes through an Optax transformation instead of being normalised.
- **Whole.** Slacks are those of lambda_t / (1 - gamma^H): what was seen before the horizon is taken to go on
  beyond it. The occupancy of H steps alone misses a share gamma^H of every cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.learning_state import LearningState
from cvxmdp.algorithms.primal_dual.iteration import natural_direction
from cvxmdp.algorithms.safe_steps import TINY, border_of, kept_inside, slopes
from cvxmdp.algorithms.views import Steps
from cvxmdp.atoms.shapes import Shape
from cvxmdp.atoms.shapes.increasing import IncreasingShape
from cvxmdp.base.pytrees import Pytree, inner, norm
from cvxmdp.policies.families import BoundFamily

Array = Any
Params = Any
BASELINE_RATE = 0.1  # of the running mean that the baseline is
RATE = 0.1  # of the running mean of v'F_H v
FLOOR = 0.01  # of the mean mass of a state: rarer ones count as this
LEAST = 0.01  # probability of an action, in the Fisher matrix of a table
DAMPING = 0.01  # eps, of the curvature along the gradient
CONJUGATE = 8  # steps of conjugate gradients


@dataclass(frozen=True, eq=False)
class Departures(Pytree):
    """What goes beyond the paper in a step.

    Attributes:
        logs: functions whose arguments are kept inside their domain (``safe_steps``).
        log_weights: w_k, (K,).
        exploration: the entropy, extended; empty without exploration.
        explore: beta_0.
        until: the iteration at which beta_t is zero.
        trust: of the steps' length, or None.
        natural: whether directions are natural.
        whole: by how much an occupancy is larger than what is seen of it before the horizon.
    """

    logs: tuple[IncreasingShape, ...] = ()
    log_weights: Array = ()
    exploration: tuple[Shape, ...] = ()
    explore: Array = 0.0
    until: Array = 1.0
    trust: Array | None = None
    whole: Array = 1.0
    natural: bool = False
    static: ClassVar[tuple[str, ...]] = ("natural",)

    @property
    def change_steps(self) -> bool:
        """Whether a step is another one than the paper's."""
        return bool(self.logs or self.exploration) or self.trust is not None or self.natural


class Step(NamedTuple):
    """theta_{t+1} = theta_t + length * ascent."""

    ascent: Params
    length: Array
    size: Array  # |d_L|
    changes: Array  # what ``safe_steps`` keeps
    fisher: Array  # v'F_H v


class Surroundings(NamedTuple):
    """What departures look at besides state and gradients."""

    trajectories: Steps
    masses: Array
    weights: Array
    occupancy: Array  # lambda_t
    before: Array  # lambda_{t-1}
    alpha: Array
    eta: Array  # eta_theta, decayed


def lagrangian(gradients: Params, weights: Array) -> Params:
    """d_f + sum_i mu_i d_{g_i}, and with more weights more of the functions that have gradients."""

    def combined(leaf: Array) -> Array:
        # Written out, because a product of matrices this small costs more.
        columns = weights.reshape(-1, *[1] * (leaf.ndim - 1))
        return leaf[0] + (columns * leaf[1 : 1 + weights.size]).sum(axis=0)

    return jax.tree.map(combined, gradients)


def less_baseline(
    baseline: Array, fresh: Array, stale: Array, alive: Array, stale_alive: Array
) -> tuple[Array, Array, Array]:
    """The next baseline (m, H), and both rewards to go, (m, B, H), without this one."""
    following = baseline + BASELINE_RATE * (fresh.mean(axis=1) - baseline)
    return following, fresh - alive * baseline[:, None], stale - stale_alive * baseline[:, None]


def departed_step(
    departures: Departures,
    family: BoundFamily,
    state: LearningState,
    gradients: Params,
    around: Surroundings,
) -> Step:
    """The step of lines 6 and 13 with the departures that are asked for."""
    weights, changes, fisher, length = state.multipliers, state.changes, state.fisher, around.eta
    logs, n = departures.logs, state.multipliers.size
    if logs:
        now, before = (departures.whole * x for x in (around.occupancy, around.before))
        border = border_of(logs, now, before, changes, state.step, around.alpha)
        weights = jnp.concatenate([weights, slopes(logs, departures.log_weights, border)])
        changes = border.changes
    ascent = lagrangian(gradients, weights)
    size = steep = norm(ascent)
    if departures.exploration:
        entropy = jax.tree.map(lambda leaf: leaf[-1], gradients)
        ascent = explored(departures, ascent, entropy, state.step)
        steep = norm(ascent)
    if departures.natural:
        direction = natural(family, state.params, ascent, around)
        squared = inner(ascent, direction)
        ascent, steep = direction, jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
    length = length / jnp.where(steep > 0, steep, 1.0)
    if departures.trust is not None:
        distance = norm(jax.tree.map(jnp.subtract, state.params, state.previous))
        fisher = fisher_of(fisher, around.weights, distance, state.step)
        most = departures.trust / jnp.sqrt(jnp.maximum(fisher, TINY))
        steep = norm(ascent)
        length = jnp.minimum(length, most / jnp.where(steep > 0, steep, 1.0))
    if logs:
        own = jax.tree.map(lambda leaf: leaf[1 + n : 1 + n + len(logs)], gradients)
        ascent, length = kept_inside(ascent, own, border, length)
    return Step(ascent, length, size, changes, fisher)


def explored(departures: Departures, ascent: Params, entropy: Params, t: Array) -> Params:
    """d_L / |d_L| + beta_t d_H / |d_H|."""
    beta = departures.explore * jnp.maximum(0.0, 1.0 - t / departures.until)
    size, other = (jnp.maximum(norm(tree), TINY) for tree in (ascent, entropy))
    return jax.tree.map(lambda d, e: d / size + beta * e / other, ascent, entropy)


def natural(family: BoundFamily, params: Params, ascent: Params, around: Surroundings) -> Params:
    """F^{-1} d."""
    if family.is_table:
        return natural_of_table(ascent, family.log_table(params), around.occupancy)
    states = around.trajectories.states
    flat = states.reshape(-1, *states.shape[2:])
    return natural_of_network(family, params, ascent, flat, around.masses.ravel() / states.shape[0])


def natural_of_table(ascent: Array, logs: Array, occupancy: Array) -> Array:
    """d(s,a) / (lambda(s) pi(a|s)), with floors, (S, A)."""
    visits = occupancy[: logs.shape[0]].sum(axis=1, keepdims=True)
    floor = FLOOR * jnp.maximum(visits.mean(), TINY)
    return ascent / (jnp.maximum(visits, floor) * jnp.maximum(jnp.exp(logs), LEAST))


def natural_of_network(
    family: BoundFamily, params: Params, ascent: Params, states: Array, masses: Array
) -> Params:
    """(F + eps I)^{-1} d, F the Fisher matrix of the policy at these states with these weights."""

    def scores(theta: Params) -> Array:
        logs = family.log_probabilities(theta, states)
        return jnp.where(jnp.isfinite(logs), logs, 0.0)

    weights = masses[:, None] * jnp.exp(family.log_probabilities(params, states))
    return natural_direction(scores, params, weights, ascent, DAMPING, CONJUGATE)


def fisher_of(squared: Array, weights: Array, moved: Array, t: Array) -> Array:
    """The running mean of v'F_H v, from the weights of episodes after a step of length ``moved``."""
    seen = (jnp.log(jnp.maximum(weights, TINY)) ** 2).mean() / jnp.maximum(moved**2, TINY)
    rate = jnp.where((t > 0) & (moved > 0), jnp.maximum(RATE, 1.0 / jnp.maximum(t, 1)), 0.0)
    return squared + rate * (seen - squared)
