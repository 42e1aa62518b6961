r"""One iteration of VR-PDPG, Algorithm 1 of the paper, as a pure function.

With diamond standing for the objective f and each constraint g_i (axis m = 1 + n below), iteration t draws
tau_t under theta_t and computes (lines 9 to 14)

    lambda_t = occupancy_hat(tau_t) + (1 - alpha_t) [lambda_{t-1} - w_t occupancy_hat(tau_t)]
    r_{diamond,t} = grad diamond(lambda_t)
    d_{diamond,t} = gradient_hat(tau_t, theta_t, r_{diamond,t-1})
                    + (1 - alpha_t) [d_{diamond,t-1} - w_t gradient_hat(tau_t, theta_{t-1}, r_{diamond,t-2})]
    theta_{t+1} = theta_t + eta_theta d_{L,t} / |d_{L,t}|,   d_{L,t} = d_{f,t} + sum_i mu_{i,t} d_{g_i,t}
    mu_{t+1}    = Proj_U( mu_t - eta_mu g(lambda_t) )

with w_t = w(tau_t | theta_{t-1}, theta_t), the weight of the *previous* policy. With a batch, "weight times
estimate" is averaged over its trajectories. A zero gradient means no step. Lines 2 to 7 are the same with
alpha_0 = 1 and r_{-1} = r_0. The recursive occupancy lambda_t is not an occupancy; functions are used in their
extended form there.

The departures from the paper are off unless asked for; each is marked where it acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.directions import (
    Departures,
    explored,
    fisher_of,
    inner,
    natural_of_network,
    natural_of_table,
)
from cvxmdp.algorithms.estimators import (
    View,
    discounts,
    importance_weights,
    occupancy_estimate,
    to_go,
)
from cvxmdp.algorithms.safe_steps import (
    border_of,
    kept_inside,
    norm_of,
    slopes,
)
from cvxmdp.algorithms.views import Steps, view
from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.pytrees import Pytree
from cvxmdp.policies.families import BoundFamily

Array = Any
Params = Any
TINY = 1e-30  # decaying estimates become denormal numbers, which slow a CPU down several times
BASELINE_RATE = 0.1  # of the running mean that the baseline is


@dataclass(frozen=True, eq=False)
class Learning(Pytree):
    """What an iteration needs besides its state; every entry that is not static is numbers."""

    model: Any  # where trajectories come from: ``SamplingModel``, or the source of an environment
    objective: Shape  # extended
    slacks: tuple[Shape, ...]  # extended
    family: BoundFamily
    watched: Watched
    primal_step: Array
    primal_decay: Array  # eta_t = eta (t+1)^(-decay); zero in the paper
    dual_step: Array  # (n,)
    dual_decay: Array
    dual_bound: Array  # (n,)
    pessimism: Array  # (n,)
    momentum: Array  # alpha
    momentum_decay: Array  # alpha_t = alpha (t+1)^(-decay)
    shape: tuple[int, int]  # of an occupancy: (S, A), or what is measured of an environment
    horizon: int
    batch_size: int
    baseline: bool  # False in the paper
    transform: Any  # an Optax transformation in place of the normalised step, or None
    departures: Departures = field(default_factory=Departures)  # none in the paper
    static: ClassVar[tuple[str, ...]] = (
        "shape",
        "horizon",
        "batch_size",
        "baseline",
        "transform",
    )

    @property
    def functions(self) -> tuple[Shape, ...]:
        """Everything that has a recursive gradient: f, g_i, and what departures add."""
        added = (log.parts[0] for log in self.departures.logs)
        return (self.objective, *self.slacks, *added, *self.departures.exploration)


@dataclass(frozen=True, eq=False)
class Watched(Pytree):
    """What is recorded of single episodes and plays no part in learning.

    Attributes:
        reward: (S, A), added up undiscounted as the episode's return; None where the model has none.
        targets: occupancies (S, A) that a distance of the problem is taken to.
        mean: whether the mean occupancy of all episodes is kept; where no model says what it is.
    """

    reward: Array | None
    targets: tuple[Array, ...]
    mean: bool = False
    static: ClassVar[tuple[str, ...]] = ("mean",)


class LearningState(NamedTuple):
    """Between iterations t-1 and t."""

    params: Params  # theta_t
    previous: Params  # theta_{t-1}
    previous_logs: Array  # log pi_{theta_{t-1}}, (S, A); None where it is only looked at on the way
    occupancy: Array  # lambda_{t-1}, (S, A)
    older_occupancy: Array  # lambda_{t-2}
    gradients: Params  # d_{., t-1}, leaves with a leading axis m
    multipliers: Array  # mu_t, (n,)
    baseline: Array  # mean reward to go, (m, H); empty without a baseline
    optimiser: Any  # of the Optax transformation
    changes: Array  # of the arguments of logarithms, mean squares, (K,); see ``safe_steps``
    fisher: Array  # v'F_H v, see ``directions``
    step: Array  # t


class Witnessed(NamedTuple):
    """What an iteration saw: all that its trace is computed from, if it is recorded."""

    trajectories: Steps
    seen: Array  # the mean of the episodes' occupancies, (S, A); None unless it is watched
    weights: Array  # of the episodes, (B,)
    slack: Array  # g(lambda_t), (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array


class LearningTrace(NamedTuple):
    """What an iteration leaves in the history; means over the batch."""

    episode_objective: Array  # f of the episodes' occupancies
    episode_slack: Array  # g of them, (n,)
    episode_return: Array  # undiscounted, (0,) or (1,)
    tracking_error: Array  # half the squared distance of the episodes' occupancies to each target
    recursive_slack: Array  # g(lambda_t), what the dual step sees, (n,)
    multipliers: Array  # mu_t, (n,)
    gradient_norm: Array
    policy_entropy: Array  # per step of the episodes
    weight_mean: Array
    weight_max: Array
    effective_sample_size: Array
    episode_length: Array


def initial_state(learning: Learning, params: Params, multipliers: Array) -> LearningState:
    """Line 1, before the first trajectory."""
    dtype, functions = multipliers.dtype, len(learning.functions)
    nothing = jnp.zeros(learning.shape, dtype)
    return LearningState(
        params,
        params,
        view(learning.family, params, learning.horizon).logs,
        nothing,
        nothing,
        jax.tree.map(lambda leaf: jnp.zeros((functions, *leaf.shape), leaf.dtype), params),
        multipliers,
        jnp.zeros((functions, learning.horizon) if learning.baseline else (0,), dtype),
        None if learning.transform is None else learning.transform.init(params),
        jnp.zeros(len(learning.departures.logs), dtype),
        jnp.full((), learning.horizon, dtype),
        jnp.zeros((), jnp.int32),
    )


def iteration(
    learning: Learning, state: LearningState, numbers: Array
) -> tuple[LearningState, Witnessed]:
    """Lines 2 to 7 for t = 0, lines 9 to 14 afterwards, with the random numbers of iteration t."""
    policy = view(learning.family, state.params, learning.horizon)
    trajectories = learning.model.trajectories(policy, numbers, learning.horizon)
    return update(learning, state, trajectories, policy)


def update(
    learning: Learning, state: LearningState, trajectories: Steps, policy: View
) -> tuple[LearningState, Witnessed]:
    """What an iteration does with the trajectories it has drawn under pi_{theta_t}."""
    previous = view(learning.family, state.previous, learning.horizon, state.previous_logs)
    masses = discounts(trajectories, learning.model.discount)

    first = state.step == 0
    alpha = learning.momentum * (state.step + 1.0) ** (-learning.momentum_decay)
    rest = jnp.where(first, 0.0, 1.0 - alpha)
    weights = importance_weights(previous, policy, trajectories)
    stale_weights = rest * weights[:, None]
    stale_masses = stale_weights * masses

    visits = occupancy_estimate(trajectories, masses - stale_masses, learning.shape)
    occupancy = _flush(visits + rest * state.occupancy)  # line 10; line 3 for t = 0
    newer = jnp.where(first, occupancy, state.occupancy)  # r_{-1} = r_0
    older = jnp.where(first, occupancy, state.older_occupancy)

    gained = masses * shadow_rewards(learning, newer, trajectories)
    regained = stale_masses * shadow_rewards(learning, older, trajectories)
    fresh, stale = to_go(jnp.stack([gained, regained]))
    baseline = state.baseline
    if learning.baseline:  # departure: unbiased, because it is older than the trajectory
        running = BASELINE_RATE * (fresh.mean(axis=1) - baseline)
        fresh = fresh - trajectories.alive * baseline[:, None]
        stale = stale - stale_weights * trajectories.alive * baseline[:, None]
        baseline = baseline + running
    corrected = policy.score_difference(previous, trajectories, fresh, stale)
    gradients = jax.tree.map(  # line 12; line 5 for t = 0
        lambda new, old: _flush(new + rest * old), corrected, state.gradients
    )

    seen_by = Surroundings(policy, trajectories, masses, weights, occupancy, newer, alpha)
    params, optimiser, size, changes, fisher = _primal_step(  # lines 6 and 13
        learning, state, gradients, seen_by
    )
    slack = _slack(learning, learning.departures.whole * occupancy)
    dual_step = learning.dual_step * (state.step + 1.0) ** (-learning.dual_decay)
    multipliers = jnp.clip(  # lines 7 and 14
        state.multipliers - dual_step * slack, 0.0, learning.dual_bound
    )
    following = LearningState(
        params,
        state.params,
        policy.logs,
        occupancy,
        newer,
        gradients,
        multipliers,
        baseline,
        optimiser,
        changes,
        fisher,
        state.step + 1,
    )
    watch = learning.watched.mean
    seen = occupancy_estimate(trajectories, masses, learning.shape) if watch else None
    witnessed = Witnessed(trajectories, seen, weights, slack, state.multipliers, size)
    return following, witnessed


def trace_of(learning: Learning, after: LearningState, witnessed: Witnessed) -> LearningTrace:
    """What goes into the history of the iteration that left this state."""
    policy = view(  # pi_{theta_t}
        learning.family, after.previous, learning.horizon, after.previous_logs
    )
    return LearningTrace(
        **_episodes(learning, policy, witnessed),
        **_weights(witnessed.weights),
        recursive_slack=witnessed.slack,
        multipliers=witnessed.multipliers,
        gradient_norm=witnessed.gradient_norm,
    )


def _lagrangian(leaf: Array, multipliers: Array) -> Array:
    """d_f + sum_i mu_i d_{g_i}; written out, because a product of matrices this small costs more."""
    weights = multipliers.reshape(-1, *[1] * (leaf.ndim - 1))
    return leaf[0] + (weights * leaf[1:]).sum(axis=0)


def shadow_rewards(learning: Learning, occupancy: Array, trajectories: Steps) -> Array:
    """grad f and grad g_i at lambda along the trajectories, (m, B, H)."""
    functions = learning.functions
    # One by one: a compiler then computes a gradient only where the trajectories went.
    return jnp.stack([trajectories.along(function.gradient(occupancy)) for function in functions])


class Surroundings(NamedTuple):
    """What departures look at besides the gradients."""

    policy: View
    trajectories: Steps
    masses: Array
    weights: Array
    occupancy: Array  # lambda_t
    before: Array  # lambda_{t-1}
    alpha: Array


def _primal_step(
    learning: Learning, state: LearningState, gradients: Params, around: Surroundings
) -> tuple[Params, Any, Array, Array, Array]:
    """theta_{t+1}, the optimiser's state, |d_L|, and what ``safe_steps`` and ``directions`` keep."""
    departures, n = learning.departures, len(learning.slacks)
    logs, inside = departures.logs, slice(1 + n, 1 + n + len(departures.logs))
    weights, changes, fisher = state.multipliers, state.changes, state.fisher
    if logs:  # departure
        now, before = (departures.whole * x for x in (around.occupancy, around.before))
        border = border_of(logs, now, before, changes, state.step, around.alpha)
        weights = jnp.concatenate([weights, slopes(logs, departures.log_weights, border)])
        changes = border.changes
    ascent = jax.tree.map(lambda leaf: _lagrangian(leaf[: inside.stop], weights), gradients)
    size = norm_of(ascent)
    if learning.transform is not None:  # departure
        downwards = jax.tree.map(jnp.negative, ascent)  # Optax minimises
        updates, optimiser = learning.transform.update(downwards, state.optimiser, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        return params, optimiser, size, changes, fisher
    if departures.exploration:  # departure
        entropy = jax.tree.map(lambda leaf: leaf[-1], gradients)
        ascent = explored(departures, ascent, entropy, state.step)
    length = learning.primal_step * (state.step + 1.0) ** (-learning.primal_decay)
    if departures.natural:  # departure
        ascent, length = _natural(learning, state, ascent, around, length)
    else:
        steep = norm_of(ascent) if departures.exploration else size
        length = length / jnp.where(steep > 0, steep, 1.0)
    if departures.trusting:  # departure
        moved = norm_of(jax.tree.map(jnp.subtract, state.params, state.previous))
        fisher = fisher_of(fisher, around.weights, moved, state.step)
        most = departures.trust / jnp.sqrt(jnp.maximum(fisher, TINY))
        steep = norm_of(ascent)
        length = jnp.minimum(length, most / jnp.where(steep > 0, steep, 1.0))
    if logs:  # departure
        own = jax.tree.map(lambda leaf: leaf[inside], gradients)
        ascent, length = kept_inside(ascent, own, border, length)
    params = jax.tree.map(lambda leaf, d: leaf + length * d, state.params, ascent)
    return params, None, size, changes, fisher


def _natural(
    learning: Learning, state: LearningState, ascent: Params, around: Surroundings, step: Array
) -> tuple[Params, Array]:
    """F^{-1} d and the step's length over sqrt(<d, F^{-1} d>)."""
    if learning.family.is_table:
        logs = learning.family.log_table(state.params)
        direction = natural_of_table(ascent, logs, around.occupancy)
    else:
        states = around.trajectories.states
        flat = states.reshape(-1, *states.shape[2:])
        masses = around.masses.ravel() / states.shape[0]
        direction = natural_of_network(learning.family, state.params, ascent, flat, masses)
    squared = inner(ascent, direction)
    return direction, step / jnp.sqrt(jnp.where(squared > 0, squared, 1.0))


def _slack(learning: Learning, occupancy: Array) -> Array:
    values = [slack.value(occupancy) for slack in learning.slacks]
    return jnp.stack(values) - learning.pessimism if values else jnp.zeros(0, occupancy.dtype)


def _flush(leaf: Array) -> Array:
    return jnp.where(jnp.abs(leaf) < TINY, 0.0, leaf)


def _episodes(learning: Learning, policy: View, witnessed: Witnessed) -> dict[str, Array]:
    """What the episodes showed."""
    trajectories, watched = witnessed.trajectories, learning.watched
    alive = trajectories.alive

    def of_one(x: Array) -> Any:
        distances = [0.5 * ((x[: len(y)] - y) ** 2).sum() for y in watched.targets]
        return learning.objective.value(x), _slack(learning, x), jnp.array(distances, x.dtype)

    each: Any = jax.vmap(of_one)
    objective, slack, distances = each(_occupancies(learning, trajectories))
    total = jnp.zeros((0, alive.shape[0]), alive.dtype)
    if watched.reward is not None:
        total = (alive * trajectories.along(jnp.asarray(watched.reward))).sum(axis=1)[None]
    return {
        "episode_objective": objective.mean(),
        "episode_slack": slack.mean(axis=0),
        "episode_return": total.mean(axis=1),
        "tracking_error": distances.mean(axis=0),
        "episode_length": alive.sum(axis=1).mean(),
        "policy_entropy": (alive * policy.entropy(trajectories)).sum() / alive.sum(),
    }


def _occupancies(learning: Learning, trajectories: Steps) -> Array:
    """The occupancy of each episode, (B, S, A)."""
    alone: Any = jax.vmap(
        lambda tau: occupancy_estimate(tau, discounts(tau, learning.model.discount), learning.shape)
    )
    return alone(jax.tree.map(lambda leaf: leaf[:, None], trajectories))


def _weights(weights: Array) -> dict[str, Array]:
    """What became of the importance weights."""
    return {
        "weight_mean": weights.mean(),
        "weight_max": weights.max(),
        "effective_sample_size": weights.sum() ** 2 / jnp.maximum((weights**2).sum(), TINY),
    }
