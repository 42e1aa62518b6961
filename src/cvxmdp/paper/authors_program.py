r"""The program behind the published curves, as its authors published it: not Algorithm 1. Not a solver.

It is here to show where the published curves come from. Where Algorithm 1 has the left side, it has the right:

    normalised ascent                 Adam at the learning rate eta / |d_L|
    w(tau | theta_{t-1}, theta_t)     1: the "previous" policy is copied after the step, so that a policy is
                                      compared with itself, and lambda_t is a moving average of episodes
    r_{t-1}(s, a)                     r_{t-1}(h), the numbers along the *previous* episode by time step
    d_g at tau_t                      its fresh part at tau_{t-1}, with the current policy
    sum_h q_h grad log pi(a_h|s_h)    (sum_h q_h) (sum_h grad log pi(a_h|s_h)): a column times a row, summed up;
                                      q_h is the reward to go, so every score is paid with all of them
    steps really taken                all H: after the end of an episode, state 0 and action 0

All of this was read off the program; the fifth is easily overlooked. Networks have one hidden layer of 32
rectified units and orthogonal weights, small in the last layer. Every run of the authors has the seed 0: the
runs that are averaged in a published curve differ in their settings and share their luck.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.paper.tracking import expert_occupancy, tracking_model

Array = Any
HIDDEN = 32
FIRST_MULTIPLIER, DUAL_BOUND = 1.0, 10.0
DECAY, SQUARE_DECAY, ROUNDING = 0.9, 0.999, 1e-8  # of Adam


class AuthorsSettings(NamedTuple):
    """Of one run, or of several, (runs,) each."""

    primal_step: Array  # eta_theta
    dual_step: Array  # eta_mu
    momentum: Array  # alpha
    budget: Array  # d_0


class Grid(NamedTuple):
    """The instance as arrays."""

    following: Array  # (S, A), the next state
    ends: Array  # (S, A), whether the step enters the goal
    expert: Array  # (S, A), the occupancy to track
    weights: Array  # (H,), discount^h


class Episode(NamedTuple):
    """What was played, (H,) each; zeros after the end."""

    states: Array
    actions: Array
    rewards: Array
    alive: Array


class Network(NamedTuple):
    """The policy: logits of a rectified hidden layer of one-hot states."""

    first: Array  # (S, 32)
    first_bias: Array
    last: Array  # (32, A)
    last_bias: Array

    def logs(self, states: Array) -> Array:
        """log pi(. | s), (..., A)."""
        hidden = jax.nn.relu(self.first[states] + self.first_bias)
        return jax.nn.log_softmax(hidden @ self.last + self.last_bias)


class Memory(NamedTuple):
    """What the program keeps between two episodes."""

    policy: Network
    mean: Network  # of Adam
    square: Network
    occupancy: Array  # lambda_{t-1}
    rewards: Array  # (2, H): r_f of the last episode and of the one before, by time step
    slopes: Array  # (2, H): r_g, the same
    last: Episode
    objective: Network  # d_f
    constraint: Network  # d_g
    multiplier: Array


def play_authors_program(
    instance: str, settings: AuthorsSettings, seeds: np.ndarray, iterations: int, horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    """Undiscounted returns and tracking errors of every episode of several runs, (runs, iterations) each.

    Args:
        instance: one of ``tracking.INSTANCES``.
        settings: entries (runs,).
        seeds: (runs,); equal ones start from one network and share their random numbers.
        iterations, horizon: episodes, and steps of an episode.
    """
    model = tracking_model(instance)
    table = model.dense_transition()
    grid = Grid(
        jnp.asarray(table.argmax(axis=2)),
        jnp.asarray(table.sum(axis=2) < 0.5),
        jnp.asarray(expert_occupancy(instance), jnp.float32),
        jnp.asarray(model.discount ** np.arange(horizon), jnp.float32),
    )
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    single = AuthorsSettings(*(jnp.asarray(one, jnp.float32) for one in settings))
    found = _runs(grid, single, keys, iterations)
    return np.asarray(found[0]), np.asarray(found[1])


def _runs(grid: Grid, settings: AuthorsSettings, keys: Array, iterations: int) -> Any:
    def one(setting: AuthorsSettings, key: Array) -> Any:
        weights, draws = jax.random.split(key)
        memory = _first(grid, weights)

        def episode(memory: Memory, t: Array) -> tuple[Memory, Any]:
            return _iteration(grid, setting, memory, t, jax.random.fold_in(draws, t))

        return jax.lax.scan(episode, memory, jnp.arange(iterations))[1]

    return jax.jit(jax.vmap(one))(settings, keys)


def _first(grid: Grid, key: Array) -> Memory:
    states, actions = grid.following.shape
    keys, steps = jax.random.split(key), len(grid.weights)
    policy = Network(
        jax.nn.initializers.orthogonal(np.sqrt(2.0))(keys[0], (states, HIDDEN)),
        jnp.zeros(HIDDEN),
        jax.nn.initializers.orthogonal(0.01)(keys[1], (HIDDEN, actions)),
        jnp.zeros(actions),
    )
    nothing, none = jax.tree.map(jnp.zeros_like, policy), jnp.zeros((2, steps))
    unplayed = Episode(jnp.zeros(steps, int), jnp.zeros(steps, int), none[0], none[0])
    occupancy, multiplier = jnp.zeros((states, actions)), jnp.asarray(FIRST_MULTIPLIER)
    return Memory(
        policy, nothing, nothing, occupancy, none, none, unplayed, nothing, nothing, multiplier
    )


def _iteration(
    grid: Grid, setting: AuthorsSettings, memory: Memory, t: Array, key: Array
) -> tuple[Memory, tuple[Array, Array]]:
    """One episode and one step; in the first one everything "previous" is the episode itself."""
    now = _play(grid, memory.policy, key)
    visits = jnp.zeros_like(grid.expert).at[now.states, now.actions].add(now.alive * grid.weights)
    rest = jnp.where(t == 0, 0.0, 1.0 - setting.momentum)
    occupancy = (1.0 - rest) * visits + rest * memory.occupancy
    gap = occupancy - grid.expert
    slope = -gap[now.states, now.actions]

    def before(kept: Any, first: Any) -> Any:
        return jax.tree.map(lambda old, new: jnp.where(t == 0, new, old), kept, first)

    rewards = before(memory.rewards, jnp.stack([now.rewards] * 2))
    slopes = before(memory.slopes, jnp.stack([slope] * 2))
    last = before(memory.last, now)

    here, there = _scores(memory.policy, now), _scores(memory.policy, last)
    paid = [_paid(grid, one) for one in (*rewards, *slopes)]
    objective = jax.tree.map(
        lambda s, d: (paid[0] - rest * paid[1]) * s + rest * d, here, memory.objective
    )
    constraint = jax.tree.map(
        lambda s, old, d: paid[2] * old - rest * paid[3] * s + rest * d,
        here,
        there,
        memory.constraint,
    )
    ascent = jax.tree.map(lambda f, g: f + memory.multiplier * g, objective, constraint)
    policy, mean, square = _adam(memory, ascent, setting.primal_step, t + 1.0)
    missed = 0.5 * (gap**2).sum() - setting.budget
    multiplier = jnp.clip(memory.multiplier + setting.dual_step * missed, 0.0, DUAL_BOUND)
    following = Memory(
        policy,
        mean,
        square,
        occupancy,
        jnp.stack([now.rewards, rewards[0]]),
        jnp.stack([slope, slopes[0]]),
        now,
        objective,
        constraint,
        multiplier,
    )
    return following, (now.rewards.sum(), 0.5 * ((visits - grid.expert) ** 2).sum())


def _play(grid: Grid, policy: Network, key: Array) -> Episode:
    def step(carry: tuple[Array, Array], key: Array) -> Any:
        state, alive = carry
        action = jnp.where(alive, jax.random.categorical(key, policy.logs(state)), 0)
        ends = grid.ends[state, action]
        reward = jnp.where(alive, jnp.where(ends, 100.0, -0.2), 0.0)
        played = Episode(jnp.where(alive, state, 0), action, reward, alive.astype(jnp.float32))
        return (grid.following[state, action], alive & ~ends), played

    start = (jnp.zeros((), grid.following.dtype), jnp.asarray(True))
    return jax.lax.scan(step, start, jax.random.split(key, len(grid.weights)))[1]


def _scores(policy: Network, episode: Episode) -> Network:
    """sum_h grad log pi(a_h | s_h), steps after the end included."""

    def total(policy: Network) -> Array:
        return jnp.take_along_axis(policy.logs(episode.states), episode.actions[:, None], 1).sum()

    return jax.grad(total)(policy)


def _paid(grid: Grid, rewards: Array) -> Array:
    """sum_h q_h with q_h = sum_{k >= h} discount^k r_k: the k-th reward is counted k + 1 times."""
    return ((1.0 + jnp.arange(len(rewards))) * grid.weights * rewards).sum()


def _adam(
    memory: Memory, ascent: Network, step: Array, count: Array
) -> tuple[Network, Network, Network]:
    """Adam with its usual constants; its moments are those of gradients, its rate eta / |d_L|."""
    rate = step / jnp.sqrt(sum((leaf**2).sum() for leaf in ascent))
    mean = jax.tree.map(lambda m, g: DECAY * m + (1.0 - DECAY) * g, memory.mean, ascent)
    square = jax.tree.map(
        lambda v, g: SQUARE_DECAY * v + (1.0 - SQUARE_DECAY) * g**2, memory.square, ascent
    )

    def moved(leaf: Array, m: Array, v: Array) -> Array:
        unbiased = m / (1.0 - DECAY**count)
        return leaf + rate * unbiased / (jnp.sqrt(v / (1.0 - SQUARE_DECAY**count)) + ROUNDING)

    return jax.tree.map(moved, memory.policy, mean, square), mean, square
