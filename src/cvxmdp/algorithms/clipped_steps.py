r"""Several epochs of clipped steps on one batch (proximal policy optimisation, Schulman et al. 2017).

Minibatches in random order maximise the mean of min(r A, clip(r, 1 - c, 1 + c) A) + b H, with r the ratio of
the chances of the action taken, now and when it was played, and H the entropy, while the critic moves towards
its targets, by Adam. Once the KL divergence from the policy that was played exceeds its limit, the policy is
left as it is; the critic goes on, since it has nothing to do with who played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.actor_readings import LaneSteps
from cvxmdp.base.compiling import program
from cvxmdp.base.pytrees import Pytree

Array = Any
DECAY, SQUARE_DECAY, ROUNDING = 0.9, 0.999, 1e-5  # of Adam
MOST_GRADIENT = 0.5  # the norm at which gradients are cut
IMITATING, IMITATIONS = 3e-3, 1_000  # rate and number of the steps towards a given policy
NEVER_TAKEN = -1e9  # stands for the logarithm of zero where gradients pass


class Adam(NamedTuple):
    """First and second moments of gradients, and how often they were updated."""

    mean: Any
    square: Any
    count: Array


class Lesson(NamedTuple):
    """What a batch teaches: its steps, their advantages (T, N) and the critic's targets (T, N, C)."""

    steps: LaneSteps
    advantages: Array
    targets: Array


class Shown(NamedTuple):
    """Of the new policy on the batch: mean entropy, and the divergence from the one that played it."""

    entropy: Array
    kl: Array


@dataclass(frozen=True, eq=False)
class StepSizes(Pytree):
    """Settings of the steps.

    Attributes:
        learning_rate: of Adam at first; it falls linearly to zero.
        clip: c.
        entropy: b at first; it falls linearly to zero.
        kl: the limit; infinite where there is none.
        epochs, minibatches: how often the batch is gone through, in how many parts.
    """

    learning_rate: Array
    clip: Array
    entropy: Array
    kl: Array
    epochs: int
    minibatches: int
    static: ClassVar[tuple[str, ...]] = ("epochs", "minibatches")


class _Flat(NamedTuple):
    """A batch with one axis for lanes and steps."""

    inputs: Array
    masks: Array
    actions: Array
    played: Array
    before: Array  # log chances when it was played
    advantages: Array
    targets: Array


def first_adam(params: Any) -> Adam:
    """Before the first step of one network."""
    nothing = jax.tree.map(jnp.zeros_like, params)
    return Adam(nothing, nothing, jnp.zeros(()))


def log_chances(family: Any, params: Any, inputs: Array, masks: Array) -> Array:
    """log pi(. | o), (n, A), with a large negative number in place of the logarithm of zero."""
    logs = family.log_probabilities(params, inputs)
    if masks is None:
        return jnp.maximum(logs, NEVER_TAKEN)
    return jax.nn.log_softmax(jnp.where(masks, logs, NEVER_TAKEN), axis=1)


def drawn_actions(family: Any, params: Any, inputs: Array, key: Array) -> Array:
    """An action for each input, (n,); of continuous ones the draw, (n, d)."""
    if family.continuous:
        found: Array = family.drawn(params, inputs, key)
        return found
    return jax.random.categorical(key, log_chances(family, params, inputs, None), axis=1)


def _chance_and_entropy(
    family: Any, params: Any, inputs: Array, masks: Array, actions: Array
) -> tuple[Array, Array]:
    """log pi(a | o) and the entropy of pi(. | o), (n,) each."""
    if family.continuous:
        found: tuple[Array, Array] = family.density(params, inputs, actions)
        return found
    logs = log_chances(family, params, inputs, masks)
    entropy = -(jnp.exp(logs) * logs).sum(axis=1)
    return jnp.take_along_axis(logs, actions[:, None], axis=1)[:, 0], entropy


def improve(
    sizes: StepSizes,
    networks: tuple[Any, Any],
    params: tuple[Any, Any],
    adam: tuple[Adam, Adam],
    lesson: Lesson,
    left: Array,
    key: Array,
) -> tuple[tuple[Any, Any], tuple[Adam, Adam], Shown]:
    """Parameters of policy and critic after all epochs.

    Args:
        sizes: settings.
        networks: the family and the critic, as they see observations.
        params: of both.
        adam: of both.
        lesson: the batch.
        left: the share of the run that is left; the rate falls with it.
        key: of the order of the minibatches.
    """
    batch = _flat(networks[0], params[0], lesson)
    count = batch.played.shape[0]

    def minibatch(loop: Any, chosen: Array) -> Any:
        policy, critic, stopped = loop
        part = jax.tree.map(lambda rows: rows[chosen], batch)
        params, rate = (policy[0], critic[0]), sizes.learning_rate * left
        slopes, kl = jax.grad(_loss, has_aux=True)(params, networks, part, sizes, left)
        stopped = stopped | (kl > sizes.kl)
        moved = _adam(policy, slopes[0], rate)
        policy = jax.tree.map(lambda new, old: jnp.where(stopped, old, new), moved, policy)
        return (policy, _adam(critic, slopes[1], rate), stopped), None

    def epoch(loop: Any, key: Array) -> Any:
        order = jax.random.permutation(key, count)
        size = count // sizes.minibatches
        parts = order[: size * sizes.minibatches].reshape(sizes.minibatches, size)
        return jax.lax.scan(minibatch, loop, parts)

    loop = (*zip(params, adam, strict=True), jnp.zeros((), bool))
    (*reached, _), _ = jax.lax.scan(epoch, loop, jax.random.split(key, sizes.epochs))
    params, adam = zip(*reached, strict=True)
    now, entropy = _chance_and_entropy(
        networks[0], params[0], batch.inputs, batch.masks, batch.actions
    )
    whole = jnp.maximum(batch.played.sum(), 1.0)
    kl = (_divergence(now - batch.before) * batch.played).sum() / whole
    return params, adam, Shown((entropy * batch.played).sum() / whole, kl)


def _flat(family: Any, params: Any, lesson: Lesson) -> _Flat:
    steps = lesson.steps
    inputs, masks, actions, played = (
        None if part is None else part.reshape(-1, *part.shape[2:])
        for part in (steps.inputs, steps.masks, steps.actions, steps.played)
    )
    before, _ = _chance_and_entropy(family, params, inputs, masks, actions)
    targets = lesson.targets.reshape(-1, lesson.targets.shape[-1])
    return _Flat(inputs, masks, actions, played, before, lesson.advantages.ravel(), targets)


def _loss(
    params: tuple[Any, Any], networks: tuple[Any, Any], part: _Flat, sizes: StepSizes, left: Array
) -> tuple[Array, Array]:
    """What is minimised on a minibatch, and the divergence there."""
    now, entropy = _chance_and_entropy(
        networks[0], params[0], part.inputs, part.masks, part.actions
    )
    share = part.played / jnp.maximum(part.played.sum(), 1.0)
    ratio = jnp.exp(jnp.clip(now - part.before, -20.0, 20.0))
    inside = jnp.clip(ratio, 1.0 - sizes.clip, 1.0 + sizes.clip)
    gain = jnp.minimum(ratio * part.advantages, inside * part.advantages)
    missed = ((networks[1].logits(params[1], part.inputs) - part.targets) ** 2).mean(axis=1)
    total = share @ (0.5 * missed - gain - sizes.entropy * left * entropy)
    return total, share @ _divergence(jax.lax.stop_gradient(now - part.before))


def _divergence(logs: Array) -> Array:
    """An estimate of the KL divergence that is never negative, from log ratios."""
    logs = jnp.clip(logs, -20.0, 20.0)
    return jnp.exp(logs) - 1.0 - logs


def _adam(network: tuple[Any, Adam], slopes: Any, rate: Array) -> tuple[Any, Adam]:
    """A step down of one network's parameters, its gradient cut at a norm."""
    (params, adam), slopes = network, _cut(slopes)
    count = adam.count + 1.0
    mean = jax.tree.map(lambda m, g: DECAY * m + (1.0 - DECAY) * g, adam.mean, slopes)
    square = jax.tree.map(
        lambda v, g: SQUARE_DECAY * v + (1.0 - SQUARE_DECAY) * g**2, adam.square, slopes
    )
    firsts, seconds = 1.0 - DECAY**count, 1.0 - SQUARE_DECAY**count
    moved = jax.tree.map(
        lambda p, m, v: p - rate * (m / firsts) / (jnp.sqrt(v / seconds) + ROUNDING),
        params,
        mean,
        square,
    )
    return moved, Adam(mean, square, count)


def _cut(slopes: Any) -> Any:
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(slopes)))
    factor = jnp.minimum(1.0, MOST_GRADIENT / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda leaf: leaf * factor, slopes)


@program()
def imitated(family: Any, params: Any, chances: Array) -> Any:
    """Parameters of a family on states that give about these probabilities, (S, A): the least cross entropy."""
    states = jnp.arange(chances.shape[0])

    def missed(params: Any) -> Array:
        return -(chances * log_chances(family, params, states, None)).sum(axis=1).mean()

    def step(_: Array, loop: Any) -> Any:
        return _adam(loop, jax.grad(missed)(loop[0]), jnp.asarray(IMITATING))

    found, _ = jax.lax.fori_loop(0, IMITATIONS, step, (params, first_adam(params)))
    return found
