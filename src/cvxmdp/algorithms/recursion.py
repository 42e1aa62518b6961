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

The departures from the paper are off unless asked for; each is marked where it acts, and is at home in
``directions`` and ``safe_steps``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cvxmdp.algorithms.directions import (
    Departures,
    Step,
    Surroundings,
    departed_step,
    lagrangian,
    less_baseline,
)
from cvxmdp.algorithms.estimators import (
    View,
    discounts,
    importance_weights,
    occupancy_estimate,
    to_go,
)
from cvxmdp.algorithms.learning_state import LearningState, LearningTrace, Noted, Witnessed
from cvxmdp.algorithms.views import Steps, view
from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.pytrees import Pytree, moved, norm, transformed
from cvxmdp.policies.families import BoundFamily

Array = Any
Params = Any
TINY = 1e-30  # decaying estimates become denormal numbers, which slow a CPU down several times


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
    if learning.baseline:  # departure
        alive = trajectories.alive
        baseline, fresh, stale = less_baseline(baseline, fresh, stale, alive, stale_weights * alive)
    corrected = policy.score_difference(previous, trajectories, fresh, stale)
    gradients = jax.tree.map(  # line 12; line 5 for t = 0
        lambda new, old: _flush(new + rest * old), corrected, state.gradients
    )

    eta = learning.primal_step * (state.step + 1.0) ** (-learning.primal_decay)
    step = _normalised(gradients, state, eta)
    if learning.departures.change_steps:  # departure
        around = Surroundings(trajectories, masses, weights, occupancy, newer, alpha, eta)
        step = departed_step(learning.departures, learning.family, state, gradients, around)
    params, optimiser = moved(state.params, step.length, step.ascent), None  # lines 6 and 13
    if learning.transform is not None:  # departure
        params, optimiser = transformed(learning.transform, state, step.ascent)
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
        step.changes,
        step.fisher,
        state.step + 1,
    )
    watch = learning.watched.mean
    seen = occupancy_estimate(trajectories, masses, learning.shape) if watch else None
    witnessed = Witnessed(trajectories, seen, weights, slack, state.multipliers, step.size)
    return following, witnessed


def noted_of(learning: Learning, after: LearningState, witnessed: Witnessed) -> Noted:
    """What is noted of the iteration that left this state."""
    policy = view(  # pi_{theta_t}
        learning.family, after.previous, learning.horizon, after.previous_logs
    )
    trajectories = witnessed.trajectories
    return Noted(
        trajectories.episodes(),
        witnessed.weights,
        witnessed.slack,
        witnessed.multipliers,
        witnessed.gradient_norm,
        (trajectories.alive * policy.entropy(trajectories)).sum(),
    )


def trace_of(learning: Learning, noted: Noted) -> LearningTrace:
    """What goes into the history of an iteration."""
    return LearningTrace(
        **_episodes(learning, noted.episodes),
        **_weights(noted.weights),
        recursive_slack=noted.slack,
        multipliers=noted.multipliers,
        gradient_norm=noted.gradient_norm,
        policy_entropy=noted.entropy / noted.episodes.alive.sum(),
    )


def _normalised(gradients: Params, state: LearningState, eta: Array) -> Step:
    """d_{L,t} and eta / |d_{L,t}|; a zero gradient means no step."""
    ascent = lagrangian(gradients, state.multipliers)
    size = norm(ascent)
    return Step(ascent, eta / jnp.where(size > 0, size, 1.0), size, state.changes, state.fisher)


def shadow_rewards(learning: Learning, occupancy: Array, trajectories: Steps) -> Array:
    """grad f and grad g_i at lambda along the trajectories, (m, B, H)."""
    functions = learning.functions
    # One by one: a compiler then computes a gradient only where the trajectories went.
    return jnp.stack([trajectories.along(function.gradient(occupancy)) for function in functions])


def _slack(learning: Learning, occupancy: Array) -> Array:
    values = [slack.value(occupancy) for slack in learning.slacks]
    return jnp.stack(values) - learning.pessimism if values else jnp.zeros(0, occupancy.dtype)


def _flush(leaf: Array) -> Array:
    return jnp.where(jnp.abs(leaf) < TINY, 0.0, leaf)


def _episodes(learning: Learning, trajectories: Steps) -> dict[str, Array]:
    """What the episodes showed."""
    watched, alive = learning.watched, trajectories.alive

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
