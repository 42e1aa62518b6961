r"""Steps that stay inside the domain of logarithms: a departure from Algorithm 1, off unless asked for.

For f = f_0 + sum_k w_k log phi_k, such as a reward with log barriers, the paper's recursion is that of the
whole f. Its shadow reward w_k grad phi_k / phi_k is taken at the recursive occupancy lambda_t, where phi_k is
noisy and may be negative: near the border one unlucky batch outweighs everything learned so far. Here each
phi_k has a recursive gradient of its own, as a constraint has, and the logarithm acts through its slope
alone:

    d_L = d_{f_0} + sum_i mu_i d_{g_i} + sum_k w_k / max(phi_k(lambda_t), s_k) d_{phi_k}

s_k is the noise of phi_k(lambda_t): the root of the running mean square of its change per iteration, divided by
sqrt(2 alpha). (A recursion that forgets at rate alpha and has innovations of variance q has the variance
q / (alpha (2 - alpha)), and changes by 2 q / (2 - alpha) in the mean square.) Then there are two rules:

- **Outside**, where phi_k(lambda_t) <= 2 s_k for some k: the step ascends d_{phi_k}, of the smallest in units
  of its noise, and nothing else, until the estimate is back inside.
- **Inside**, the step is shortened until no phi_k is predicted to lose more than half of phi_k(lambda_t) - 2
  s_k.

The same holds for other concave and increasing functions, such as powers, with their own slopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.atoms.shapes.increasing import IncreasingShape
from cvxmdp.base.pytrees import norm

Array = Any
Params = Any
SURE = 2.0  # standard deviations of the estimate that are kept away from the border
LOST = 0.5  # of what is left inside, in one step at most
RATE = 0.1  # of the running mean square
TINY = 1e-12


class Border(NamedTuple):
    """How far the recursive occupancy is inside the domain."""

    inside: Array  # phi_k(lambda_t), (K,)
    noise: Array  # s_k, (K,)
    changes: Array  # running mean squares of the change of phi_k, (K,)


def border_of(
    logs: Sequence[IncreasingShape],
    now: Array,
    before: Array,
    changes: Array,
    t: Array,
    alpha: Array,
) -> Border:
    """At lambda_t (``now``), with lambda_{t-1} before it; at t = 0 nothing has changed yet."""
    inside = jnp.stack([log.parts[0].value(now) for log in logs])
    moved = (inside - jnp.stack([log.parts[0].value(before) for log in logs])) ** 2
    rate = jnp.where(t > 0, jnp.maximum(RATE, 1.0 / jnp.maximum(t, 1)), 0.0)
    changes = changes + rate * (moved - changes)
    return Border(inside, noise_of(changes, alpha), changes)


def noise_of(changes: Array, alpha: Array) -> Array:
    """s_k, of the running mean squares, (K,)."""
    return jnp.sqrt(changes / (2.0 * alpha))


def slopes(logs: Sequence[IncreasingShape], weights: Array, border: Border) -> Array:
    """w_k / max(phi_k, s_k), (K,)."""
    at: Any = jnp.maximum(border.inside, jnp.maximum(border.noise, TINY))
    each: list[Any] = [log.slope(at[k]) for k, log in enumerate(logs)]
    return weights * jnp.stack(each)


def kept_inside(
    direction: Params, inner: Params, border: Border, length: Array
) -> tuple[Params, Array]:
    """The direction of the step, and its length.

    Args:
        direction: where the step would go.
        inner: d_{phi_k}, leaves with a leading axis K.
        border: how far inside lambda_t is.
        length: of the step, by which the direction is multiplied.
    """
    margin = border.inside - SURE * border.noise
    outside = margin.min() <= 0
    worst = jnp.argmin(margin / jnp.maximum(border.noise, TINY))
    back = jax.tree.map(lambda own: own[worst], inner)
    scale = norm(direction) / jnp.maximum(norm(back), TINY)
    pairs = zip(jax.tree.leaves(inner), jax.tree.leaves(direction), strict=True)
    gain = sum(jnp.tensordot(own, leaf, axes=leaf.ndim) for own, leaf in pairs)
    share = jnp.minimum(1.0, (LOST * margin / jnp.maximum(-length * gain, TINY)).min())
    turned = jax.tree.map(lambda d, own: jnp.where(outside, scale * own, d), direction, back)
    return turned, length * jnp.where(outside, 1.0, share)
