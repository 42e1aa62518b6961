"""How fast episodes are played: ours against a plain loop over the same environment with the same policy.

The plain loop is what one writes at first: one environment, ``policy.predict`` for every observation, ``reset``
when an episode is over. Steps are those really taken. All are timed in turns, best of several, so that the
ratios survive a busy machine.

    python benchmarks/environments.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

import cvxmdp as cm
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.environment_work import play
from hardware import hardware

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from cart_pole_jax import CartPole

LANES, TURNS, SECONDS = 64, 5, 0.5
CART = cm.UniformBins([-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0], [6, 1, 6, 1])
CAR = cm.UniformBins([-1.2, -0.07], [0.6, 0.07], 8)


def run_in(environment: Any, policy: Any, horizon: int, episodes: int) -> Any:
    """VR-PDPG that has not begun: its policy is nearly uniform."""
    problem = cm.Problem(environment, maximize=cm.linear("reward"))
    solver = cm.VRPDPG(10, 0.03, 1.0, 0.3, horizon, batch_size=episodes, policy=policy)
    return solver.prepare(Task(problem, seed=0))


def plain(name: str, policy: Any, horizon: int) -> Callable[[], int]:
    """A loop over one environment; plays some steps and says how many."""
    env = gymnasium.make(name)
    policy.seed(0)

    def play(steps: int = 2_000) -> int:
        observation, _ = env.reset(seed=0)
        age = 0
        for _ in range(steps):
            action, _ = policy.predict(observation)
            observation, _, terminated, truncated, _ = env.step(int(action))
            age += 1
            if terminated or truncated or age >= horizon:
                observation, _ = env.reset()
                age = 0
        return steps

    return play


def ours(run: Any) -> Callable[[], int]:
    """A batch of episodes as a run plays it."""
    environment, batch, state = run.problem.environment, run.settings.batch_size, run.first()

    def played() -> int:
        before = environment.steps
        run.play(state, 0, batch)
        return int(environment.steps - before)

    return played


def compiled(run: Any) -> Callable[[], int]:
    """The same in compiled code."""
    params, batch = run.first().carry.state.params, run.settings.batch_size

    def played() -> int:
        drawn = play(run.learning, params, run.begun[0], 0, batch)
        return int(np.asarray(jax.block_until_ready(drawn).alive).sum())

    return played


def speeds(works: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Steps per second of each, best of several turns."""
    best = dict.fromkeys(works, 0.0)
    for work in works.values():
        work()  # compiles
    for _ in range(TURNS):
        for name, work in works.items():
            started, steps = time.perf_counter(), 0
            while (spent := time.perf_counter() - started) < SECONDS:
                steps += work()
            best[name] = max(best[name], steps / spent)
    return best


def main() -> None:
    """Print a table."""
    print(f"{hardware()}\n")
    print("Steps a second (the ratio to the plain loop).\n")
    print(f"| environment | policy | plain loop | {LANES} lanes | compiled (JAX) |")
    print("| --- | --- | --- | --- | --- |")
    for name, policy, horizon, features in (
        ("FrozenLake-v1", cm.Table(), 100, None),
        ("Taxi-v4", cm.Table(), 200, None),
        ("CartPole-v1", cm.MLP(32), 200, CART),
        ("MountainCar-v0", cm.MLP(32), 200, CAR),
    ):
        with cm.GymnasiumEnv(name, 0.99, features=features, n_envs=LANES) as environment:
            run = run_in(environment, policy, horizon, LANES)
            works = {"plain": plain(name, run.policy(run.first()), horizon), "lanes": ours(run)}
            if name == "CartPole-v1":
                twin = cm.JaxEnv(CartPole(), 0.99, features=features)
                works["compiled"] = compiled(run_in(twin, policy, horizon, 1_024))
            found = speeds(works)
        cells = [f"{found['plain']:,.0f}"]
        for column in ("lanes", "compiled"):
            speed = found.get(column)
            cells.append(f"{speed:,.0f} ({speed / found['plain']:.1f}x)" if speed else "")
        print(f"| {name} | {policy!r} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
