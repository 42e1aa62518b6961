r"""Where a step goes and how long it is, beyond Algorithm 1: departures that are off unless asked for.

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
- **Whole.** Slacks are those of lambda_t / (1 - gamma^H): what was seen before the horizon is taken to go on
  beyond it. The occupancy of H steps alone misses a share gamma^H of every cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.safe_steps import TINY, norm_of
from cvxmdp.atoms.shapes import Shape
from cvxmdp.atoms.shapes.increasing import IncreasingShape
from cvxmdp.base.pytrees import Pytree
from cvxmdp.policies.families import BoundFamily

Array = Any
Params = Any
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
        trust: of the steps' length; infinite without.
        natural: whether directions are natural.
        whole: by how much an occupancy is larger than what is seen of it before the horizon.
    """

    logs: tuple[IncreasingShape, ...] = ()
    log_weights: Array = ()
    exploration: tuple[Shape, ...] = ()
    explore: Array = 0.0
    until: Array = 1.0
    trust: Array = jnp.inf
    whole: Array = 1.0
    trusting: bool = False
    natural: bool = False
    static: ClassVar[tuple[str, ...]] = ("trusting", "natural")


def explored(departures: Departures, ascent: Params, entropy: Params, t: Array) -> Params:
    """d_L / |d_L| + beta_t d_H / |d_H|."""
    beta = departures.explore * jnp.maximum(0.0, 1.0 - t / departures.until)
    size, other = (jnp.maximum(norm_of(tree), TINY) for tree in (ascent, entropy))
    return jax.tree.map(lambda d, e: d / size + beta * e / other, ascent, entropy)


def natural_of_table(ascent: Array, logs: Array, occupancy: Array) -> Array:
    """d(s,a) / (lambda(s) pi(a|s)), with floors, (S, A)."""
    visits = occupancy[: logs.shape[0]].sum(axis=1, keepdims=True)
    floor = FLOOR * jnp.maximum(visits.mean(), TINY)
    return ascent / (jnp.maximum(visits, floor) * jnp.maximum(jnp.exp(logs), LEAST))


def natural_of_network(
    family: BoundFamily, params: Params, ascent: Params, states: Array, masses: Array
) -> Params:
    """(F + eps I)^{-1} d, F the Fisher matrix of the policy at these states with these weights."""

    def logits(theta: Params) -> Array:
        return family.logits(theta, states)

    chances = jax.nn.softmax(jnp.where(jnp.isfinite(logits(params)), logits(params), -jnp.inf))
    _, back = jax.vjp(logits, params)

    def fisher(v: Params) -> Params:
        _, along = jax.jvp(logits, (params,), (v,))
        centred = along - (chances * along).sum(axis=-1, keepdims=True)
        return back(masses[:, None] * chances * centred)[0]

    size = jnp.maximum(norm_of(ascent), TINY)
    unit = jax.tree.map(lambda leaf: leaf / size, ascent)
    eps = DAMPING * jnp.maximum(inner(unit, fisher(unit)), TINY)

    def damped(v: Params) -> Params:
        return jax.tree.map(lambda a, b: a + eps * b, fisher(v), v)

    solve: Any = jax.scipy.sparse.linalg.cg
    found, _ = solve(damped, unit, maxiter=CONJUGATE)
    return jax.tree.map(lambda leaf: size * leaf, found)


def fisher_of(squared: Array, weights: Array, moved: Array, t: Array) -> Array:
    """The running mean of v'F_H v, from the weights of episodes after a step of length ``moved``."""
    seen = (jnp.log(jnp.maximum(weights, TINY)) ** 2).mean() / jnp.maximum(moved**2, TINY)
    rate = jnp.where((t > 0) & (moved > 0), jnp.maximum(RATE, 1.0 / jnp.maximum(t, 1)), 0.0)
    return squared + rate * (seen - squared)


def inner(one: Params, other: Params) -> Array:
    """<one, other> over all leaves."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return sum((a * b).sum() for a, b in pairs)
