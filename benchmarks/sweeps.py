"""What a sweep costs: one run and many, against the plain NumPy one-file version, in one process.

The instance is the paper's 8x8 tracking problem, and like is compared with like: a table with a table, a
network with a network. Times are the best of several short repetitions, taken in
turns, so that the ratios survive a busy machine. With an accelerator, lanes of one batched program are timed
instead, with the share of the memory bandwidth that the states alone would need.

    python benchmarks/sweeps.py [--lanes 16384] [--instance 8x8-traj2]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import cvxmdp as cm
from cvxmdp.algorithms.recursion import iteration
from cvxmdp.algorithms.views import view
from cvxmdp.paper.studies import HORIZON, size_of
from cvxmdp.paper.tracking import expert_occupancy, tracking_model, tracking_problem
from cvxmdp.solvers.contract import Task
from hardware import hardware

CHUNK = 1_000  # of a run of 20,000 iterations
BANDWIDTH = {"H200": 4.8e12}  # bytes per second, by the maker's data sheet


def solver_for(instance: str, policy: Any = None, **settings: Any) -> cm.VRPDPG:
    """Settings of a run that learns."""
    return cm.VRPDPG(
        10**9,
        0.1,
        1.0,
        0.3,
        HORIZON[size_of(instance)],
        dual_bound=100.0,
        initial_multiplier=1.0,
        policy=policy or cm.Table(),
        evaluate_every=CHUNK,
        **{"record_every": 1, **settings},
    )


def onefile(instance: str, iterations: int, units: int = 0) -> Callable[[], None]:
    """The one-file version on the same instance, with a table or with a network of so many units."""
    path = Path(__file__).parent.parent / "examples" / "vr_pdpg_onefile.py"
    spec = importlib.util.spec_from_file_location("vr_pdpg_onefile", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vr_pdpg_onefile"] = module
    spec.loader.exec_module(module)
    mdp = tracking_model(instance)
    model = module.tables(mdp.dense_transition(), mdp.initial, mdp.discount)
    near = module.near(expert_occupancy(instance), budget=0.01)
    settings: dict[str, Any] = {
        "primal_step": 0.1,
        "dual_step": 1.0,
        "momentum": 0.3,
        "dual_bound": 100.0,
    }
    if units:
        start = module.first_network(mdp.n_states, mdp.n_actions, units, np.random.default_rng(1))
        settings |= {"family": module.mlp, "start": start}

    def work() -> None:
        steps = module.vr_pdpg(
            model,
            module.linear(mdp.signal("reward")),
            [near],
            np.random.default_rng(0),
            iterations=iterations,
            horizon=HORIZON[size_of(instance)],
            initial_multiplier=1.0,
            **settings,
        )
        for _ in steps:
            pass

    return work


class Chunks:
    """Work of one lane or several, a chunk at a time."""

    def __init__(self, instance: str, solver: cm.VRPDPG, lanes: int = 1) -> None:
        problem = tracking_problem(instance)
        one: Any = solver.prepare(Task(problem, seed=0))
        others = [one.reseeded(Task(problem, seed=seed)) for seed in range(1, lanes)]
        self.first = one
        self.work: Any = one.batch(others) if others else one
        self.state = self.work.first()

    def advance(self) -> None:
        """The next chunk."""
        self.state, _ = self.work.advance(self.state, self.work.mark(self.state))


def best_of(works: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Seconds of each work, the best of its turns."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(repetitions):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            found[name] = min(found[name], time.perf_counter() - started)
    return found


def compile_seconds(instance: str, solver: cm.VRPDPG) -> float:
    """Time to the end of the first chunk less that of the second."""
    run = Chunks(instance, solver)
    started = time.perf_counter()
    run.advance()
    first = time.perf_counter() - started
    started = time.perf_counter()
    run.advance()
    return first - (time.perf_counter() - started)


def cpu(instance: str) -> None:
    """One run and a sweep of 64, table and MLP(32), as ratios to the one-file version with the same policy."""
    count = 200
    print(
        f"\n| {instance} | one-file | one run | ratio | sweep of 64, per run | ratio | compilation |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, policy, units in (("table", cm.Table(), 0), ("MLP(32)", cm.MLP(32), 32)):
        seconds = compile_seconds(instance, solver_for(instance, policy))
        run = Chunks(instance, solver_for(instance, policy, record_every=10))
        problem = tracking_problem(instance)
        many = replace(solver_for(instance, policy), iterations=5 * CHUNK)
        works = {
            "onefile": onefile(instance, count, units),
            "run": run.advance,
            "sweep": lambda p=problem, s=many: cm.sweep(p, s, seeds=range(64), progress=False),
        }
        works["run"]()
        works["sweep"]()
        found = best_of({k: works[k] for k in ("onefile", "run")}, 60)
        found |= best_of({"onefile again": works["onefile"], "sweep": works["sweep"]}, 5)
        base = min(found["onefile"], found["onefile again"]) / count
        one = found["run"] / CHUNK
        each = found["sweep"] / (64 * many.iterations)
        print(
            f"| {name} | {1e6 * base:.0f} us | {1e6 * one:.1f} us | {base / one:.0f}x | "
            f"{1e6 * each:.2f} us | {base / each:.0f}x | {seconds:.1f} s |",
            flush=True,
        )
    print()
    logging(instance)
    batching(instance)
    parts(instance)


def logging(instance: str) -> None:
    """What records cost: all, every tenth, none."""
    runs = {
        every: Chunks(instance, solver_for(instance, record_every=every))
        for every in (1, 10, CHUNK)
    }
    for run in runs.values():
        run.advance()
    found = best_of({str(every): run.advance for every, run in runs.items()}, 60)
    none = found[str(CHUNK)]
    for every in (1, 10):
        extra = 100 * (found[str(every)] / none - 1)
        print(f"Recording every {every}. iteration costs {extra:.0f}% of the time.")


def batching(instance: str) -> None:
    """Lanes of one batched program on this processor, beside one run at a time on one core."""
    solver = solver_for(instance, record_every=CHUNK)
    works: dict[str, Callable[[], Any]] = {"1": Chunks(instance, solver).advance}
    for lanes in (2, 4, 6, 8, 16, 32, 64):
        works[str(lanes)] = Chunks(instance, solver, lanes).advance
    for work in works.values():
        work()
    found = best_of(works, 4)
    each = {lanes: 1e6 * seconds / (CHUNK * int(lanes)) for lanes, seconds in found.items()}
    print("\nMicroseconds an iteration and run, by lanes of one batched program on this processor:")
    print(", ".join(f"{lanes} lanes {value:.1f}" for lanes, value in each.items()))


def parts(instance: str) -> None:
    """Where the time of an iteration goes: loops that do more and more of it."""
    run = Chunks(instance, solver_for(instance))
    learning, state = run.first.learning, run.state.carry.state

    def numbers(now: Any) -> Any:
        return learning.model.numbers(
            run.first.begun[0], now.step, learning.batch_size, learning.horizon
        )

    def looked_at(now: Any) -> Any:
        return view(learning.family, now.params, learning.horizon)

    def draw(now: Any) -> Any:
        return learning.model.trajectories(looked_at(now), numbers(now), learning.horizon)

    def moved(now: Any, by: Any) -> Any:
        return now._replace(params=now.params + 1e-9 * by, step=now.step + 1)

    steps: dict[str, Callable[[Any], Any]] = {
        "an empty loop": lambda now: now._replace(step=now.step + 1),
        "random numbers": lambda now: moved(now, numbers(now).sum()),
        "the policy on all states": lambda now: moved(
            now, numbers(now).sum() + looked_at(now).logs
        ),
        "a trajectory": lambda now: moved(now, draw(now).states.sum()),
        "estimates, gradients and both steps": lambda now: iteration(learning, now, numbers(now))[
            0
        ],
    }
    works = {}
    for name, step in steps.items():
        loop = jax.jit(lambda now, f=step: jax.lax.fori_loop(0, CHUNK, lambda _, x: f(x), now))
        compiled = loop.lower(state).compile()
        works[name] = lambda c=compiled: jax.block_until_ready(c(state))
    found = best_of(works, 100)
    print(
        "\nWhere the time of an iteration goes (table policy, one core, microseconds, adding up):"
    )
    for name, seconds in found.items():
        print(f"  {1e6 * seconds / CHUNK:5.2f}  with {name}")


def accelerator(instance: str, lanes: int) -> None:
    """Lanes of one batched program."""
    group = Chunks(instance, solver_for(instance, record_every=CHUNK), lanes)
    started = time.perf_counter()
    group.advance()
    first = time.perf_counter() - started
    times = []
    for _ in range(5):
        started = time.perf_counter()
        group.advance()
        times.append(time.perf_counter() - started)
    each = min(times) / (CHUNK * lanes)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(group.state.learned.carry.state))
    ideal = 2 * state / lanes  # every state is read and written once
    device = jax.devices()[0].device_kind
    known = next((rate for name, rate in BANDWIDTH.items() if name in device), None)
    print(f"{lanes:,} lanes of {instance} on {device}: {1e9 * each:.2f} ns an iteration and run")
    print(
        f"compilation and first chunk {first:.1f} s; {state / lanes / 1024:.1f} KiB of state a run"
    )
    if known is not None:
        print(f"{100 * ideal / known / each:.0f}% of the bandwidth of {known / 1e12:.1f} TB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", default="8x8-traj2")
    parser.add_argument("--lanes", type=int, default=16_384)
    arguments = parser.parse_args()
    print(hardware())
    if jax.default_backend() == "cpu":
        cpu(arguments.instance)
    else:
        accelerator(arguments.instance, arguments.lanes)


if __name__ == "__main__":
    main()
