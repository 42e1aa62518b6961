"""What Ray costs and gains: a sweep by 1, 2 and 4 workers on the cores there are.

    python benchmarks/ray_workers.py           the table of docs/clusters.md, some minutes

Runs are VR-PDPG on the 8x8 tracking problem, one lane each, in pieces of 5 s (``checkpoint_seconds``). The
overhead of a task is the share of a worker's time, from its first piece to its last, that did not go into
iterations: preparing a run, handing over its state, waiting for the next piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import ray

import cvxmdp as cm
from cvxmdp.paper.tracking import tracking_problem
from cvxmdp.runs.backends import ray_workers
from cvxmdp.runs.backends.ray_workers import Job, Workers
from hardware import hardware

SOLVER = cm.VRPDPG(
    500_000,
    primal_step=0.1,
    dual_step=1.0,
    momentum=0.3,
    horizon=14,
    initial_multiplier=1.0,
    dual_bound=100.0,
)
RUNS = 4


class Watched(Workers):
    """Workers, and when they did what."""

    begun: ClassVar[dict[Any, float]] = {}  # by actor
    ended: ClassVar[dict[Any, float]] = {}
    worked: ClassVar[dict[Any, float]] = {}  # seconds, by set

    def submit(self, job: Job, actor: Any = None) -> None:
        chosen = self.idle[-1] if actor is None else actor
        self.begun.setdefault(chosen, time.perf_counter())
        super().submit(job, actor)

    def collect(self, seconds: float) -> Iterator[tuple[Job, Any, Any, Any]]:
        for job, actor, piece, arrays in super().collect(seconds):
            self.ended[actor] = time.perf_counter()
            self.worked[job.key] = piece.seconds
            yield job, actor, piece, arrays


def measured(problem: cm.Problem, count: int) -> tuple[float, float]:
    """Seconds from the first piece to the last, and the share of the workers' time that was no work."""
    for kept in (Watched.begun, Watched.ended, Watched.worked):
        kept.clear()
    ray.init("local", num_cpus=count, include_dashboard=False, log_to_driver=False)
    cm.sweep(problem, SOLVER, seeds=range(RUNS), lanes=1, backend=cm.Ray(workers=count))
    ray.shutdown()
    there = sum(Watched.ended[actor] - Watched.begun[actor] for actor in Watched.begun)
    seconds = max(Watched.ended.values()) - min(Watched.begun.values())
    return seconds, 1.0 - sum(Watched.worked.values()) / there


def main() -> None:
    print(f"{hardware()}, JAX {jax.__version__}, Ray {ray.__version__}")
    print(f"{RUNS} runs of {SOLVER.iterations:,} iterations, one lane each\n")
    ray_workers.Workers = Watched  # type: ignore[misc]
    print("| workers | seconds | speed | overhead of a task |\n|---|---|---|---|")
    alone = None
    for count in (1, 2, 4):
        seconds, overhead = measured(tracking_problem("8x8-traj2"), count)
        alone = alone or seconds
        print(f"| {count} | {seconds:.1f} | {alone / seconds:.2f} | {overhead:.1%} |", flush=True)


if __name__ == "__main__":
    main()
