r"""One iteration of an actor-critic for concave objectives under concave constraints: a pure function.

Given T x N steps of the current policy, with z_t in R^C what is read of a step (``actor_readings``):

1. *Measure*: m, a running mean of sum_t discount^t z_t over the last few policies (``measured``).
2. *Shadow weights*: D = d(f, g)/dm at m, (1 + n, C).
3. *Advantages*: a critic V(o) in R^C, generalised advantages A of all channels at once, A_j = D_j A.
4. *Multipliers*: ``actor_multipliers``.
5. *Step*: along (A_0 + sum_i mu_i A_i) / sqrt(rms(A_0)^2 + sum_i mu_i^2 rms(A_i)^2), with clipped ratios (PPO,
   Schulman et al. 2017). Not divided by its own rms, which vanishes where the parts balance. As usual with
   PPO, and unlike m, steps late in an episode count as much as early ones: where networks can tell states
   apart, what is best in a state does not depend on how much it counts.

m is a mixture of the measures of the last policies: no importance weights, and inside the domain of entropies
and logarithms but for its border. Its bias is a lag of ``memory`` iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.actor_multipliers import (
    SETTLED,
    Dual,
    DualReport,
    Gains,
    Seen,
    pull,
    updated_dual,
)
from cvxmdp.algorithms.actor_readings import LaneSteps, Readings
from cvxmdp.algorithms.clipped_steps import Adam, Lesson, Shown, StepSizes, improve
from cvxmdp.atoms.shapes.log_shape import FLOOR
from cvxmdp.base.pytrees import Pytree
from cvxmdp.policies.gaussian import BoundGaussian
from cvxmdp.policies.networks import BoundEquinox, BoundMLP, Observed

Array = Any
AVERAGED = 0.02  # rate of the averaged parameters
LEAST_RATE = 0.05  # of the moments of what the critic predicts
LEAST_SPREAD = 1e-8
LEAST_SHARE = 1e-3  # of the mean: values that differ by less are as good as constant
FLAT = 100.0  # times how far outside the first policies are: the floor of logarithms at first
REPAIRING = 0.3  # of the learning rate at first, when a repair begins


class Moments(NamedTuple):
    """Of observations: how many were seen, their mean, and the mean of their squares about it."""

    count: Array
    mean: Array
    square: Array

    def scale(self) -> Array:
        """What they are divided by."""
        return jnp.sqrt(self.square + LEAST_SPREAD)


class Scaled(NamedTuple):
    """Mean and mean square about it, (C,), of what the critic says; its network gives (V - mean) / spread."""

    mean: Array
    square: Array

    @property
    def spread(self) -> Array:
        return jnp.sqrt(self.square) + LEAST_SHARE * jnp.abs(self.mean) + LEAST_SPREAD


class RunningMeasure(NamedTuple):
    """Running sums: of what was read and of its weights; of finished episodes' lengths and number."""

    total: Array
    weight: Array
    lengths: Array
    episodes: Array


class ActorPart(NamedTuple):
    """All that a policy needs: parameters, and the moments its observations are scaled by."""

    params: Any
    moments: Moments


class Critic(NamedTuple):
    """Parameters of the network, and the scale of what it predicts."""

    params: Any
    scaled: Scaled


class KeptPolicy(NamedTuple):
    """The best policy so far that kept all budgets, by what was measured: its objective, and when it played."""

    objective: Array
    done: Array
    actor: ActorPart


class ActorState(NamedTuple):
    """Between two iterations: all that a resume needs but the lanes.

    Attributes:
        done: iterations.
        actor, averaged: the policy, and the running average of its parameters.
        kept, critic: see there.
        adam: moments of the gradients of both.
        measured: see there.
        dual: multipliers and what they are made of.
        outside: how far under the floors of logarithms and powers the first policies were, (L,).
        returns: of the episodes under way, (N, C).
    """

    done: Array
    actor: ActorPart
    averaged: ActorPart
    kept: KeptPolicy
    critic: Critic
    adam: tuple[Adam, Adam]
    measured: RunningMeasure
    dual: Dual
    outside: Array
    returns: Array


class ActorTrace(NamedTuple):
    """What an iteration showed; counts and sums are of the episodes that ended in it."""

    objective: Array
    slack: Array
    sample: Array
    multipliers: Array
    entropy: Array
    kl: Array
    explained: Array
    steps: Array
    episodes: Array
    length: Array
    noise: Array
    unit: Array
    over: Array
    excess: Array
    deepest: Array


@dataclass(frozen=True, eq=False)
class ActorCriticSetup(Pytree):
    """What does not change while learning.

    Attributes:
        readings: of steps.
        family: of the policy, bound.
        critic: the network of the values.
        discount: of the problem.
        longest: the mass of an episode that does not end.
        tail: 1 where what follows a cut counts, 0 where it does not.
        critic_discount, gae: of generalised advantages.
        memory: iterations that m remembers.
        iterations: in all, but for repairs.
        repair: iterations of a repair.
        gains: of the multipliers.
        sizes: of the steps.
    """

    readings: Readings
    family: Any
    critic: BoundMLP
    discount: Array
    longest: Array
    tail: Array
    critic_discount: Array
    gae: Array
    memory: Array
    iterations: Array
    repair: Array
    gains: Gains
    sizes: StepSizes
    static: ClassVar[tuple[str, ...]] = ()

    def acting(self, moments: Moments) -> Any:
        """The family as it sees observations scaled by these moments."""
        return scaled_by(self.family, moments)

    def left(self, done: Array) -> Array:
        """What is left of the learning rate: it falls to zero over the run, and over each repair after it."""
        repaired = (done - self.iterations) % self.repair / self.repair
        whole = 1.0 - done / self.iterations
        return jnp.where(done < self.iterations, whole, REPAIRING * (1.0 - repaired))

    def loosened(self, outside: Array, done: Array) -> Readings:
        """Slopes of logarithms and powers that the first policies are outside of: nearly flat at first.

        An allowance, like that of budgets: of a barrier that is steep from the first step on, nothing else is
        learned than to stay away. Slopes grow by the same factor in every iteration.
        """
        widest = jnp.where(outside > FLOOR, FLAT * outside, FLOOR)
        left = self.gains.left(done / self.iterations)
        return self.readings.loosened(FLOOR * (widest / FLOOR) ** left)

    def values(self, critic: Critic, moments: Moments, inputs: Array) -> Array:
        """V, (T, N, C)."""
        flat = inputs.reshape(-1, *inputs.shape[2:])
        found = scaled_by(self.critic, moments).logits(critic.params, flat)
        found = critic.scaled.mean + critic.scaled.spread * found
        return found.reshape(*inputs.shape[:2], -1)


def scaled_by(family: Any, moments: Moments) -> Any:
    """A network that sees observations with these moments; any other family as it is."""
    if not moments.mean.size:
        return family
    return seeing(family, lambda seen: replace(seen, middle=moments.mean, scale=moments.scale()))


def seeing(family: Any, how: Callable[[Observed], Observed]) -> Any:
    """A network that sees observations in another way; any other family as it is."""
    known = isinstance(family, BoundMLP | BoundEquinox | BoundGaussian)
    if not known or not isinstance(family.inputs, Observed):
        return family
    return replace(family, inputs=how(family.inputs))


def learn(
    setup: ActorCriticSetup, state: ActorState, steps: LaneSteps, key: Array
) -> tuple[ActorState, ActorTrace]:
    """One iteration with what was played."""
    # The first policy is nearly uniform however it sees: its own data may scale what the first lesson sees.
    moments_after = with_moments(state.actor.moments, steps)
    first = state.done == 0
    moments = jax.tree.map(
        lambda new, old: jnp.where(first, new, old), moments_after, state.actor.moments
    )
    lately, loosened = state.measured, setup.loosened(state.outside, state.done)
    rewards, _ = loosened.shadow(mean_of(lately, setup.longest))
    z = steps.along(rewards) * steps.played[..., None]
    now = setup.values(state.critic, moments, steps.inputs)
    then = setup.values(state.critic, moments, steps.after)
    tails = possible(setup, z, then)
    measured, batch = measure(setup, lately, steps, z, tails)
    m = mean_of(measured, setup.longest)
    values, (_, weights) = setup.readings.values(m), loosened.shadow(m)
    advantages = generalised(setup, steps, z, now, then)
    parts = (advantages @ weights.T) * steps.played[..., None]
    parts -= _mean(parts, steps.played) * steps.played[..., None]
    worth, returns = finished(setup, state.returns, steps, z, tails)
    alone = batch._replace(lengths=measured.lengths, episodes=measured.episodes)
    seen = Seen(
        values=values,
        sample=setup.readings.values(mean_of(alone, setup.longest))[1:],
        rms=_rms(parts, steps.played),
        worth=worth @ weights.T,
        offsets=values - loosened.sloped(m),
        ends=steps.counted * steps.played * steps.over,
        share=jnp.minimum(1.0, setup.memory * batch.weight / jnp.maximum(measured.weight, 1e-30)),
    )
    dual, told = updated_dual(setup.gains, state.dual, state.done / setup.iterations, seen)
    pulled = pull(dual, parts) * (measured.weight > 0)
    targets = now + advantages
    critic = rescaled(state.critic, targets, steps.played, state.done)
    lesson = Lesson(steps, pulled, (targets - critic.scaled.mean) / critic.scaled.spread)
    networks = (setup.acting(moments), scaled_by(setup.critic, moments))
    (params, values_params), adam, shown = improve(
        setup.sizes,
        networks,
        (state.actor.params, critic.params),
        state.adam,
        lesson,
        setup.left(state.done),
        key,
    )
    actor = ActorPart(params, moments_after)
    reached = ActorState(
        state.done + 1,
        actor,
        averaged(state.averaged, actor, state.done),
        kept(state, values[0], told.within),
        critic._replace(params=values_params),
        adam,
        measured,
        dual,
        jnp.where(state.dual.updates < SETTLED, FLOOR - setup.readings.inside(m), state.outside),
        returns,
    )
    return reached, _trace(seen, dual, told, shown, steps, targets, now)


def _trace(
    seen: Seen,
    dual: Dual,
    told: DualReport,
    shown: Shown,
    steps: LaneSteps,
    targets: Array,
    now: Array,
) -> ActorTrace:
    """For the history."""
    missed = _mean((targets - now) ** 2, steps.played)
    spread = _mean((targets - _mean(targets, steps.played)) ** 2, steps.played)
    over = (steps.over * steps.played).sum()
    lengths = ((steps.ages + 1) * steps.over * steps.played).sum()
    return ActorTrace(
        objective=seen.values[0],
        slack=seen.values[1:],
        sample=jnp.where(seen.share > 0, seen.sample, jnp.inf),
        multipliers=dual.multipliers,
        entropy=shown.entropy,
        kl=shown.kl,
        explained=jnp.clip(1.0 - missed / jnp.maximum(spread, 1e-30), -1.0, 1.0).mean(),
        steps=steps.played.sum(),
        episodes=over,
        length=jnp.where(over > 0, lengths / over, jnp.nan),
        noise=told.noise,
        unit=told.unit,
        over=told.over,
        excess=told.excess,
        deepest=told.deepest,
    )


def possible(setup: ActorCriticSetup, z: Array, values: Array) -> Array:
    """Values, (T, N, C), no less and no more than what these steps gave would be for ever.

    A critic may say of a cost that is never negative that it will be; a budget would be kept by its word.
    """
    least, most = z.min((0, 1)) * setup.longest, z.max((0, 1)) * setup.longest
    found: Array = jnp.clip(values, least, most)
    return found


def measure(
    setup: ActorCriticSetup, lately: RunningMeasure, steps: LaneSteps, z: Array, then: Array
) -> tuple[RunningMeasure, RunningMeasure]:
    r"""The running sums with a batch, and the batch's own.

    S <- (1 - 1/tau) S + sum discount^k z,   W <- (1 - 1/tau) W + sum discount^k,

    and where a discounted episode is cut after L steps, discount^L V(o_L) and discount^L / (1 - discount) on
    top. m = l S / W with the mean discounted length l of finished episodes: dividing by their number instead
    has several times the variance.
    """
    counted = steps.counted * steps.played
    weights = counted * setup.discount**steps.ages
    ends = counted * steps.over
    powers = setup.discount ** (steps.ages + 1)
    after = setup.tail * ends * (1.0 - steps.ended) * powers
    mass = after * setup.longest
    total, weight = setup.readings.added(steps, weights, z), weights.sum()
    if setup.readings.rewards is not None:
        total, weight = total + jnp.einsum("tn,tnc->c", after, then), weight + mass.sum()
    ahead = jnp.maximum(1.0 - setup.discount, 1e-9)
    length = jnp.where(setup.discount < 1.0, (1.0 - powers) / ahead, steps.ages + 1.0)
    batch = RunningMeasure(total, weight, (ends * length + mass).sum(), ends.sum())
    keep = 1.0 - 1.0 / setup.memory
    return jax.tree.map(lambda old, new: keep * old + new, lately, batch), batch


def mean_of(measured: RunningMeasure, longest: Array) -> Array:
    """m; zeros where nothing was counted yet."""
    length = jnp.where(
        measured.episodes > 0, measured.lengths / jnp.maximum(measured.episodes, 1e-6), longest
    )
    return jnp.where(
        measured.weight > 0, length * measured.total / jnp.maximum(measured.weight, 1e-30), 0.0
    )


def generalised(
    setup: ActorCriticSetup, steps: LaneSteps, z: Array, now: Array, then: Array
) -> Array:
    """Generalised advantages of every channel, (T, N, C) (Schulman et al. 2016).

    What follows an end is worth nothing; what follows a cut is worth what the critic says.
    """
    goes_on = (1.0 - steps.ended)[..., None]
    errors = z + setup.critic_discount * goes_on * then - now
    follows = setup.critic_discount * setup.gae * (1.0 - steps.over)[..., None]

    def back(later: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        error, share = pair
        here = error + share * later
        return here, here

    _, found = jax.lax.scan(back, jnp.zeros_like(now[0]), (errors, follows), reverse=True)
    return found


def finished(
    setup: ActorCriticSetup, returns: Array, steps: LaneSteps, z: Array, then: Array
) -> tuple[Array, Array]:
    """What whole episodes were worth where they are over, (T, N, C), and of those under way, (N, C)."""
    cut = (steps.over * (1.0 - steps.ended))[..., None]
    weight = (setup.discount**steps.ages)[..., None]
    tail = setup.tail * cut * weight * setup.discount * then

    def add(running: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        gained, last, over = row
        running = running + gained
        return running * (1.0 - over[:, None]), running + last

    returns, found = jax.lax.scan(add, returns, (weight * z, tail, steps.over))
    return found, returns


def with_moments(moments: Moments, steps: LaneSteps) -> Moments:
    """With the observations of a batch."""
    if moments.mean.size == 0:
        return moments
    axes, weight = (0, 1), steps.played.reshape(*steps.played.shape, *[1] * moments.mean.ndim)
    count = steps.played.sum()
    inputs = steps.inputs.astype(jnp.float32)
    mean = (inputs * weight).sum(axes) / count
    square = ((inputs - mean) ** 2 * weight).sum(axes) / count
    share = count / (moments.count + count)
    return Moments(moments.count + count, *_mixed(moments, mean, square, share))


def _mixed(old: Moments | Scaled, mean: Array, square: Array, share: Array) -> tuple[Array, Array]:
    """Mean, and mean square about it, of old data and a share of new data."""
    apart = mean - old.mean
    about = (1.0 - share) * old.square + share * square + share * (1.0 - share) * apart**2
    return old.mean + share * apart, about


def rescaled(critic: Critic, targets: Array, played: Array, done: Array) -> Critic:
    """The scale moved towards that of the targets, and the last layer so that no prediction changes."""
    rate = jnp.maximum(LEAST_RATE, 1.0 / (done + 1.0))
    old, mean = critic.scaled, _mean(targets, played)
    new = Scaled(*_mixed(old, mean, _mean((targets - mean) ** 2, played), rate))
    *rest, (weights, biases) = critic.params
    ratio = old.spread / new.spread
    last = (weights * ratio, biases * ratio + (old.mean - new.mean) / new.spread)
    # Before the first batch there is no scale to keep predictions in.
    begun = done > 0
    kept = tuple(
        jnp.where(begun, moved, left) for moved, left in zip(last, (weights, biases), strict=True)
    )
    return Critic([*rest, kept], new)


def averaged(before: ActorPart, actor: ActorPart, done: Array) -> ActorPart:
    """The running average, moved towards what there is now."""
    rate = jnp.maximum(AVERAGED, 2.0 / (done + 2.0))
    return jax.tree.map(lambda old, new: old + rate * (new - old), before, actor)


def kept(state: ActorState, objective: Array, within: Array) -> KeptPolicy:
    """The policy that played last, where it is the best that kept all budgets; a long run may lose it again."""
    better = within & (objective > state.kept.objective)
    new = KeptPolicy(objective, state.done, state.actor)
    return jax.tree.map(lambda mine, old: jnp.where(better, mine, old), new, state.kept)


def _mean(numbers: Array, played: Array) -> Array:
    """Over the steps that were taken, (C,)."""
    return (numbers * played[..., None]).sum((0, 1)) / jnp.maximum(played.sum(), 1.0)


def _rms(numbers: Array, played: Array) -> Array:
    """Root mean squares, (C,), of numbers of any size."""
    largest = jnp.maximum(jnp.abs(numbers).max((0, 1)), 1e-30)
    return largest * jnp.sqrt(_mean((numbers / largest) ** 2, played))
