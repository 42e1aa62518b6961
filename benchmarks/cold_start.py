"""The first answer of a fresh process, on the tutorial's problem, with each solver.

Each row starts Python anew, imports cvxmdp, builds the problem and solves it: without compiled programs on
disk, and with those that an earlier process left there (``cm.compilation_cache``). Beside them the second call
in the same process, and how many programs were compiled. The best of several rounds is reported, in seconds of
the clock and of the processor: on a busy machine only the latter mean much, and they count both cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

import cvxmdp as cm
from hardware import hardware

SOLVERS = {
    "ConvexProgram": cm.ConvexProgram(),
    "ColumnGeneration": cm.ColumnGeneration(),
    "PDPG": cm.PDPG(),
    "VRPDPG": cm.VRPDPG(
        iterations=2_000, primal_step=0.03, dual_step=0.1, momentum=0.1, horizon=40
    ),
}
LIMITS = {"without": 6.0, "with": 2.0}  # seconds, on an idle machine


def tutorial() -> cm.Problem:
    """The machine of docs/tutorial.md: income, and a budget for the time that it is broken."""
    run = [[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]]
    service = [[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.5, 0.0, 0.5]]
    mdp = cm.TabularMDP(
        np.stack([run, service], axis=1),
        initial=0,
        discount=0.95,
        signals={"income": [[10.0, 0.0], [6.0, 0.0], [0.0, -5.0]], "broken": [0.0, 0.0, 1.0]},
    )
    limit = {"broken": cm.linear("broken", per="step") <= 0.05}
    return cm.Problem(mdp, maximize=cm.linear("income"), subject_to=limit)


def first_answer(name: str, folder: str) -> None:
    """What a fresh process does; prints what is only known inside of it."""
    compiled: list[str] = []

    def listen(event: str, _: float, **details: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(details["fun_name"]))

    jax.monitoring.register_event_duration_secs_listener(listen)
    if folder:
        cm.compilation_cache(folder)
    problem = tutorial()
    cm.solve(problem, SOLVERS[name], seed=0)
    programs, started = len(compiled), time.perf_counter()
    cm.solve(problem, SOLVERS[name], seed=0)
    print(json.dumps({"programs": programs, "second": time.perf_counter() - started}))


def measured(name: str, folder: str = "") -> dict[str, float]:
    """Seconds of a fresh process, by the clock and of the processor, the second call not among them."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, "--one", name, "--folder", folder]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(done.stdout)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall - found["second"], "used": used, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=SOLVERS, help="of a process that is measured")
    parser.add_argument("--folder", default="", help="of its compiled programs")
    options = parser.parse_args()
    if options.one:
        first_answer(options.one, options.folder)
        return
    print(f"{hardware()}, load {os.getloadavg()[0]:.1f}")
    print(f"{'':18}{'no programs on disk':>22}{'programs on disk':>22}{'second':>10}")
    print(
        f"{'solver':18}{'clock':>11}{'processor':>11}{'clock':>11}{'processor':>11}{'call':>10}  programs"
    )
    for name in SOLVERS:
        with tempfile.TemporaryDirectory() as folder:
            measured(name, folder)  # fills it
            rounds = [(measured(name), measured(name, folder)) for _ in range(options.rounds)]
        without, kept = (
            min(side, key=lambda one: one["wall"]) for side in zip(*rounds, strict=True)
        )
        seconds = [without["wall"], without["used"], kept["wall"], kept["used"]]
        columns = "".join(f"{value:9.2f} s" for value in seconds)
        print(f"{name:18}{columns}{kept['second']:8.3f} s{without['programs']:10.0f}", flush=True)
    print(
        f"asked for, on an idle machine: {LIMITS['without']:g} s and {LIMITS['with']:g} s by the clock"
    )


if __name__ == "__main__":
    main()
