r"""Multipliers of an actor-critic: a proportional and an integral part, in units of what pulls equally.

    u_i = rms(A_0) / rms(A_i)                                    the multiplier at which both pull equally
    s_i = running rms of (a batch's slack - the running slack)   noise, and the way travelled within the lag
    e_i = clip((g_i - margin_i + allowance_i) / s_i, -10, 10)
    I_i <- clip(I_i - k_I u_i e_i, 0, 100 u_i),   mu_i = clip(I_i - k_P u_i e_i, 0, 100 u_i)

One family: k_P = 0 is the plain dual step, k_P = k_I the optimistic one, k_P >> k_I the augmented Lagrangian (a
PI controller, Stooke et al. 2020). The allowance falls from the first policies' violation to zero over the
first part of the run (``ramp``), so that there is something to keep before it is forbidden; where the violation
is smaller already it soon falls from there, so that what is gained is not given back. The margin is what the
final test of so many episodes can resolve, 2 sd(an episode's g_i) / sqrt(check).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from cvxmdp.base.pytrees import Pytree

Array = Any
MOST_ERROR = 10.0
MOST_UNITS = 100.0  # the end of a multiplier's box
SLOW = 0.1  # rate of the running noise
GAINED = 0.4  # rate at which the allowance falls to what is violated
SETTLED = 4  # iterations, before the first policies' violation is known
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Gains(Pytree):
    """Settings of the multipliers.

    Attributes:
        integral, proportional: k_I and k_P.
        ramp: the share of the run over which the allowance falls to zero.
        check: episodes of the final test.
        memory: of running sizes, in iterations.
    """

    integral: Array
    proportional: Array
    ramp: Array
    check: Array
    memory: Array
    static: ClassVar[tuple[str, ...]] = ()

    def left(self, progress: Array) -> Array:
        """What is left of the allowances after a share of the run."""
        return jnp.maximum(1.0 - progress / jnp.maximum(self.ramp, 1e-6), 0.0)


class Dual(NamedTuple):
    """Multipliers and what they are made of; vectors of n constraints, or of 1 + n functions.

    Attributes:
        updates: how often they were updated.
        integral, multipliers: I and mu, (n,).
        sizes: running mean squares of the advantages, (1 + n,).
        noise: running s_i^2, (n,).
        allowance: what is left of it is allowed, (n,).
        extra: margins on top, after a test has failed, (n,).
        ends: running number of episodes, and of their g_i the mean and mean square, (3, n).
    """

    updates: Array
    integral: Array
    multipliers: Array
    sizes: Array
    noise: Array
    allowance: Array
    extra: Array
    ends: Array


class Seen(NamedTuple):
    """What a batch showed.

    Attributes:
        values: f and g_i at m, (1 + n,).
        sample: g_i of this batch alone, (n,).
        rms: of the advantages of f and g_i, (1 + n,).
        worth: of whole episodes where they are over, D z added up, (T, N, 1 + n).
        offsets: what makes functions of sums, g_i(m) - D_i m, (1 + n,).
        ends: 1 where a counted episode is over, (T, N).
        share: what this batch measured, in units of what a batch measures.
    """

    values: Array
    sample: Array
    rms: Array
    worth: Array
    offsets: Array
    ends: Array
    share: Array


class DualReport(NamedTuple):
    """For the history: s_i, u_i, episodes that broke a budget, and the sum of what they were over it.

    ``deepest``: the smallest g_i of an episode, infinite where none ended.
    ``within``: whether all slacks exceed their margins, with no allowance.
    """

    noise: Array
    unit: Array
    over: Array
    excess: Array
    deepest: Array
    within: Array


def first_dual(constraints: int) -> Dual:
    """Before the first iteration."""
    nothing = jnp.zeros(constraints)
    return Dual(
        jnp.zeros(()),
        nothing,
        nothing,
        jnp.zeros(constraints + 1),
        nothing,
        nothing,
        nothing,
        jnp.zeros((3, constraints)),
    )


def updated_dual(gains: Gains, dual: Dual, progress: Array, seen: Seen) -> tuple[Dual, DualReport]:
    """One step of the multipliers, after a share of the run (``progress``)."""
    slack, share = seen.values[1:], seen.share
    fresh = dual.updates == 0
    rate = jnp.where(fresh, 1.0, 1.0 / gains.memory)
    sizes = dual.sizes + rate * (seen.rms**2 - dual.sizes)
    rate = jnp.maximum(SLOW, 1.0 / (dual.updates + 1.0))
    # Means of fewer steps are noisier by as much: after a reset only a few may count.
    noise = dual.noise + rate * (share * (seen.sample - slack) ** 2 - dual.noise)
    of_ends = (seen.worth + seen.offsets)[..., 1:]
    episodes = _of_episodes(gains, dual.ends, of_ends, seen.ends)
    settling = dual.updates < SETTLED
    left, violation = gains.left(progress), jnp.maximum(-slack, 0.0)
    # A policy that may go back settles where little can be kept. At a rate: of noisy numbers the least is low.
    spare = jnp.maximum(dual.allowance - violation / jnp.maximum(left, LEAST), 0.0)
    allowance = jnp.where(settling, violation, dual.allowance - GAINED * spare)
    room = slack - _margin(gains, episodes) - dual.extra
    error = room + allowance * left
    floor = 1e-6 * (jnp.abs(slack) + jnp.abs(seen.offsets[1:])) + LEAST
    error = jnp.clip(error / jnp.maximum(jnp.sqrt(noise), floor), -MOST_ERROR, MOST_ERROR)
    error = jnp.where(settling, 0.0, error)
    unit = _unit(sizes)
    integral = jnp.clip(dual.integral - gains.integral * unit * error, 0.0, MOST_UNITS * unit)
    multipliers = jnp.clip(integral - gains.proportional * unit * error, 0.0, MOST_UNITS * unit)
    reached = Dual(
        dual.updates + 1.0, integral, multipliers, sizes, noise, allowance, dual.extra, episodes
    )
    reached = Dual(
        *(jnp.where(share > 0, new, old) for new, old in zip(reached, dual, strict=True))
    )
    short = jnp.maximum(-of_ends, 0.0) * seen.ends[..., None]
    within = (room >= 0.0).all() & ~settling & (share > 0)
    over, excess = (short > floor).sum((0, 1)), short.sum((0, 1))
    deepest = jnp.where(seen.ends[..., None] > 0, of_ends, jnp.inf).min((0, 1))
    return reached, DualReport(jnp.sqrt(noise), unit, over, excess, deepest, within)


def _unit(sizes: Array) -> Array:
    """u_i, (n,)."""
    rms = jnp.sqrt(sizes)
    return jnp.maximum(rms[0], LEAST) / jnp.maximum(rms[1:], LEAST * jnp.maximum(rms[0], 1.0))


def pull(dual: Dual, parts: Array) -> Array:
    """The direction of the step, (T, N), of centred advantages of f and g_i, (T, N, 1 + n)."""
    weights = jnp.concatenate([jnp.ones(1), dual.multipliers])
    size = jnp.sqrt((weights**2 * dual.sizes).sum())
    return parts @ (weights / jnp.maximum(size, LEAST * LEAST))


def _of_episodes(gains: Gains, before: Array, of_ends: Array, ends: Array) -> Array:
    """Running number, mean and mean square of whole episodes, (3, n); slower than m, which needs no spread."""
    count = ends.sum()
    sums = jnp.einsum("tn,tni->i", ends, of_ends), jnp.einsum("tn,tni->i", ends, of_ends**2)
    keep = 1.0 - 1.0 / (4.0 * gains.memory)
    batch = jnp.stack([jnp.broadcast_to(count, sums[0].shape), *sums])
    return jnp.where(count > 0, keep * before + batch, before)


def _margin(gains: Gains, seen: Array) -> Array:
    """What a test of ``check`` episodes can resolve, (n,)."""
    count = jnp.maximum(seen[0], 1e-6)
    variance = jnp.maximum(seen[2] / count - (seen[1] / count) ** 2, 0.0)
    return jnp.where(seen[0] > 1, 2.0 * jnp.sqrt(variance / gains.check), 0.0)
