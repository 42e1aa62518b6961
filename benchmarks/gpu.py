"""Column generation and the sampler on an accelerator; without one, the same programs at small sizes.

    python benchmarks/gpu.py                 everything, at sizes that suit the device
    python benchmarks/gpu.py linear 1e6      one table, up to this many states
    python benchmarks/gpu.py entropy 1e6
    python benchmarks/gpu.py grid 1000       up to this many cells a side
    python benchmarks/gpu.py sampler 16384   so many runs of 8x8, horizon 14

The problems are those of ``scale.py``. Building the model is timed apart, and every problem is solved twice:
the first time compiles, the second one is timed. Of its seconds those of the steps (``Generation.step``: the
host sees a few numbers of each) are told from the rest: the model's way to the device, the checker's
certificate on the host. The share of the bandwidth is what the sweeps have to read and write at least, over the
seconds of the steps, of what a triad reaches on the same device in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cvxmdp as cm
from cvxmdp.algorithms.columns import column_places
from cvxmdp.algorithms.columns.generation import Generation
from hardware import hardware
from scale import entropy_problem, grid_problem, linear_problem, moved
from sweeps import accelerator as sampler

ON_DEVICE = jax.default_backend() != "cpu"
SIZES: dict[str, list[float]] = {
    "linear": [1e5, 1e6, 1e7] if ON_DEVICE else [2e3],
    "entropy": [1e5, 1e6] if ON_DEVICE else [2e3],
    "grid": [300, 1000] if ON_DEVICE else [40],
    "sampler": [4_096, 16_384] if ON_DEVICE else [64],
}


def bandwidth(entries: int) -> float:
    """Bytes per second of a = b + s c in float64."""
    with jax.enable_x64(True):
        b, c = jnp.ones(entries), jnp.ones(entries)
        triad: Callable[..., Any] = jax.jit(lambda b, c: b + 3.0 * c)
        triad(b, c).block_until_ready()
        times = []
        for _ in range(10):
            started = time.perf_counter()
            triad(b, c).block_until_ready()
            times.append(time.perf_counter() - started)
    return 24.0 * entries / min(times)


class Watched:
    """The seconds that go into steps."""

    def __init__(self) -> None:
        self.seconds, plain = 0.0, Generation.step

        def step(generation: Generation) -> None:
            started = time.perf_counter()
            plain(generation)
            self.seconds += time.perf_counter() - started

        Generation.step = step  # type: ignore[method-assign]


def measure(kind: str, size: int, rate: float) -> None:
    makers = {"linear": linear_problem, "entropy": entropy_problem, "grid": grid_problem}
    tolerance = {"linear": 1e-6, "entropy": 1e-2, "grid": 1e-2}[kind]
    started = time.perf_counter()
    problem = makers[kind](size)
    built = time.perf_counter() - started
    watched, seconds = Watched(), []
    for _ in range(2):
        watched.seconds, started = 0.0, time.perf_counter()
        found = cm.solve(problem, cm.ColumnGeneration(tolerance=tolerance), progress=False)
        seconds.append(time.perf_counter() - started)
    share = moved(problem, found.stats) / watched.seconds / rate
    print(
        f"| {kind} | {problem.mdp.n_states:,} | {built:.1f} | {seconds[0]:.1f} | {seconds[1]:.2f} | "
        f"{watched.seconds:.2f} | {found.stats['iterations']} | {found.stats['sweeps']} + "
        f"{found.stats['policy_sweeps']} | {share:.0%} | {found.stats['certified_gap']:.1e} | "
        f"{found.status.name.lower()} |",
        flush=True,
    )


def main() -> None:
    wanted = sys.argv[1:2] or list(SIZES)
    most = float(sys.argv[2]) if len(sys.argv) > 2 else np.inf
    print(f"{hardware()}, JAX {jax.__version__}, {jax.devices()[0].device_kind}")
    if not ON_DEVICE:  # the same programs, on the processor
        column_places.accelerator = lambda n_states: True
    rate = bandwidth(2**27 if ON_DEVICE else 2**22)
    print(f"a triad moves {rate / 1e9:,.0f} GB/s\n")
    if wanted != ["sampler"]:
        print(
            "| problem | states | built, s | first, s | second, s | of it steps, s | steps | sweeps over all "
            "pairs + over a policy's | of the triad | certified gap | status |\n"
            + "|---" * 11
            + "|"
        )
    for kind in wanted:
        for size in SIZES[kind]:
            if size <= most and kind == "sampler":
                sampler("8x8-traj2", int(size))
            elif size <= most:
                measure(kind, int(size), rate)


if __name__ == "__main__":
    main()
