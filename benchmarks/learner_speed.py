"""Steps a second of CartPole written in JAX, in 2,048 copies and more: played by a network, and learned from.

    python benchmarks/learner_speed.py [COPIES ...]

*Playing* is what an iteration of ``ActorCritic`` plays, ``algorithms.actor_lanes.play``: the draw of a 64-64
network, the physics, endings and beginnings, and all that is recorded of a step. *Learning* is iterations of
``ActorCritic``, the second of two runs, so that nothing is compiled; a batch has 64 steps of every copy.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import cvxmdp as cm
from cvxmdp.algorithms.actor_lanes import play
from cvxmdp.solvers.actor_critic_work import ActorCriticWork
from cvxmdp.solvers.contract import Task
from hardware import hardware

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from cart_pole_jax import CartPole

ON_DEVICE = jax.default_backend() != "cpu"
COPIES = [2_048, 16_384, 131_072, 524_288] if ON_DEVICE else [64, 2_048]
LENGTH = 64  # steps of every copy between two updates
PLAYED = 50 if ON_DEVICE else 5
UPDATES = 50 if ON_DEVICE else 5


def work_of(copies: int) -> ActorCriticWork:
    """The learner with so many copies."""
    env = cm.JaxEnv(CartPole(), discount=0.99, n_envs=copies)
    problem = cm.Problem(env, maximize=cm.linear("reward", per="step"))
    return ActorCriticWork(settings(copies), Task(problem, None, 0))


def settings(copies: int) -> cm.ActorCritic:
    """So many updates of 64 steps of every copy; a batch is still gone through in eight parts."""
    return cm.ActorCritic(UPDATES * LENGTH * copies, batch=LENGTH * copies, check=100)


def playing(work: ActorCriticWork) -> float:
    """Steps a second without learning."""
    state = work.first()
    family = work.setup.acting(state.learner.actor.moments)
    params, limit = state.learner.actor.params, np.int32(work.chosen.limit)

    @jax.jit
    def on(lanes: Any, key: Any) -> tuple[Any, Any]:
        lanes, steps = play(work.source, family, params, lanes, LENGTH, limit, key)
        return lanes, jax.tree.map(lambda part: part.sum(), steps)  # nothing of a step is left out

    lanes, _ = jax.block_until_ready(on(state.lanes, jax.random.key(0)))
    started = time.perf_counter()
    for number in range(PLAYED):
        lanes, sums = on(lanes, jax.random.key(number))
    jax.block_until_ready((lanes, sums))
    return PLAYED * LENGTH * work.chosen.lanes / (time.perf_counter() - started)


def learning(work: ActorCriticWork) -> float:
    """Steps a second, learning included."""
    seconds = 0.0
    for _ in range(2):
        state, started = work.first(), time.perf_counter()
        while int(state.learner.done) < work.chosen.iterations:
            until = min(int(state.learner.done) + work.longest, work.chosen.iterations)
            state, _ = work.advance(state, until)
        seconds = time.perf_counter() - started
    return work.chosen.iterations * work.chosen.batch / seconds


def main() -> None:
    """Print a table."""
    print(hardware(), jax.devices()[0])
    print("| copies | playing, million steps a second | learning, million steps a second |")
    print("|---|---|---|")
    for copies in [int(float(word)) for word in sys.argv[1:]] or COPIES:
        work = work_of(copies)
        print(
            f"| {copies:,} | {playing(work) / 1e6:.2f} | {learning(work) / 1e6:.3f} |", flush=True
        )


if __name__ == "__main__":
    main()
