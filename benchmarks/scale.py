"""Time, memory and certified gap against the model's size, beside the solvers of others (``general_solvers``).

    python benchmarks/scale.py                 the tables of docs/results/large-models.md, about half an hour
    python benchmarks/scale.py linear 1e6      one table; sizes up to the one given
    python benchmarks/scale.py entropy 1e5
    python benchmarks/scale.py grid 300        grids up to 300 x 300
    python benchmarks/scale.py unconstrained 1e5
    python benchmarks/scale.py plot table.txt  docs/figures/scale.png from a table that was printed before

Every measurement runs in a process of its own, so that its peak memory is its own; building the model and
importing are not counted. Linear: Garnets with five actions and five successors, discount 0.95, three budgets,
to a certified relative gap of 1e-6. Entropy plus reward under a budget, on the same Garnets. Grids: slip 0.1,
discount 0.99, start in the middle, every tenth cell a hazard, at most 0.05 of the time on hazards.

Solvers of others are asked for the same tolerance, and a larger model only while they took less than a minute;
"off" is how far their objective is from ours.

Times are processor times of all threads together, which other work on the machine hardly changes; the time of
the clock stands beside them, with the load. The share of a triad is what the sweeps have to read and write at
least, over the processor time, beside what a triad moves in the same process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cvxmdp as cm
from cvxmdp.base.blocks import cores
from cvxmdp.models.systems import LIGHT_BEYOND
from general_solvers import CONCAVE, LINEAR, UNCONSTRAINED, installed
from hardware import hardware, peak

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "scale.png"
LONGEST = 1_200  # seconds for one measurement
TINY = 10  # states, or the side of a grid
PATIENCE = 60  # seconds that a solver of others may take to be asked again of a larger model
OTHERS = {"unconstrained": UNCONSTRAINED, "linear": LINEAR, "entropy": CONCAVE, "grid": CONCAVE}


def unconstrained_problem(n_states: int) -> cm.Problem:
    """A Garnet's reward, and nothing else."""
    mdp = cm.garnet(n_states, 5, 5, seed=1)
    return cm.Problem(mdp, maximize=cm.linear("reward", per="step"))


def linear_problem(n_states: int) -> cm.Problem:
    """Three budgets on a Garnet."""
    names = ("a", "b", "c")
    mdp = cm.garnet(n_states, 5, 5, seed=1, signals=("reward", *names))
    budgets = {name: cm.linear(name, per="step") <= 0.45 for name in names}
    return cm.Problem(mdp, maximize=cm.linear("reward", per="step"), subject_to=budgets)


def entropy_problem(n_states: int) -> cm.Problem:
    """Entropy plus reward under a budget on a Garnet."""
    mdp = cm.garnet(n_states, 5, 5, seed=1)
    objective = cm.entropy() + cm.linear("reward", per="step")
    budget = {"cost": cm.linear("cost", per="step") <= 0.4}
    return cm.Problem(mdp, maximize=objective, subject_to=budget)


def grid_problem(side: int) -> cm.Problem:
    """Safe exploration of a slippery grid."""
    middle = (side // 2) * side + side // 2
    drawn = np.random.default_rng(0).permutation(side * side)[: side * side // 10]
    hazards = [int(state) for state in drawn if state != middle]
    mdp = cm.gridworld(side, slip=0.1, discount=0.99, start=middle, hazards=hazards)
    budget = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to=budget)


def moved(problem: cm.Problem, stats: dict[str, Any]) -> float:
    """Bytes that the sweeps have to move at least: entries, their places, and a number for each state."""
    flow = problem.mdp.flow
    entries, states, actions = flow.transition.nnz, *flow.shape
    backup = 12.0 * entries + 8.0 * states * (actions + 2)
    light = entries / actions > LIGHT_BEYOND  # most of these are in single precision then
    policy = (8.0 if light else 12.0) * entries / actions + 24.0 * states
    return stats["sweeps"] * backup + stats["policy_sweeps"] * policy


def triad(entries: int = 2**24) -> float:
    """Bytes per second of a = b + s c on one core, of processor time: in NumPy that is two passes."""
    a, b, c = np.zeros(entries), np.ones(entries), np.ones(entries)
    times = []
    for _ in range(5):
        started = time.process_time()
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)
        times.append(time.process_time() - started)
    return 40.0 * entries / min(times)


def alone(problem: cm.Problem) -> float:
    """Bytes per second of nothing but products with the matrix of one policy, as sweeps do them."""
    transition, (states, actions) = problem.mdp.flow.transition, problem.mdp.flow.shape
    light = transition.nnz / actions > LIGHT_BEYOND
    matrix = transition[np.arange(states) * actions].astype(np.float32 if light else np.float64)
    values, times = np.ones(states, matrix.dtype), []
    for _ in range(10):
        started = time.process_time()
        matrix @ values
        times.append(time.process_time() - started)
    return ((8.0 if light else 12.0) * matrix.nnz + 24.0 * states) / min(times)


def measure(kind: str, size: int, name: str, tolerance: float) -> dict[str, Any]:
    """One measurement, in this process; a tiny model first, for what is imported when first used."""
    problem, tiny = (TABLES[kind].problem(each) for each in (size, TINY))
    if name in OTHERS[kind]:
        ask = installed(OTHERS[kind])[name]
        ask(tiny, tolerance)
        seconds, objective = ask(problem, tolerance)
        return {"seconds": seconds, "memory": peak(), "objective": objective}
    solvers = {
        "ColumnGeneration": lambda: cm.ColumnGeneration(tolerance=tolerance),
        "ConvexProgram": cm.ConvexProgram,
        "PDPG": lambda: cm.PDPG(tolerance=tolerance),
    }
    cm.solve(tiny, solvers[name]())
    started, clock = time.process_time(), time.perf_counter()
    solution = cm.solve(problem, solvers[name]())
    seconds, clock = time.process_time() - started, time.perf_counter() - clock
    found = {"seconds": seconds, "memory": peak(), "objective": solution.objective}
    found["gap"] = solution.stats.get("certified_gap")
    steps = solution.stats.get("iterations")
    if name == "ColumnGeneration":
        load = os.getloadavg()[0]
        found["steps"] = (
            f"{steps} steps; {clock:.1f} s of the clock, {cores()} cores, load {load:.1f}"
        )
    if name == "ColumnGeneration" and kind == "linear":
        most = triad()
        share = moved(problem, solution.stats) / seconds / most
        found["steps"] += f"; {share:.0%} of a triad ({most / 1e9:.0f} GB/s)"
        found["steps"] += f", of which a bare product reaches {alone(problem) / most:.0%}"
    return found


def apart(kind: str, size: int, name: str, tolerance: float) -> dict[str, Any]:
    """One measurement, in a process of its own; an empty record where it took too long."""
    arguments = [sys.executable, __file__, "--measure", kind, str(size), name, str(tolerance)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=LONGEST, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode:
        raise RuntimeError(f"{name} on {kind} {size:,}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(kind: str, size: int, name: str, found: dict[str, Any], own: dict[str, Any]) -> None:
    """One row of a table."""
    start = f"| {kind} | {size:,} | {name} "
    if not found:
        print(f"{start}| more than {LONGEST:,} s | | | |", flush=True)
        return
    gap = f"{found['gap']:.1e}" if found.get("gap") is not None else ""
    note = str(found.get("steps") or "")
    if found is not own:
        off = abs(found["objective"] - own["objective"]) / abs(own["objective"])
        note = f"{found['seconds'] / own['seconds']:.2g} times; off by {off:.0e}"
    cells = [f"{found['seconds']:.3g} s", f"{found['memory']:.2f} GB", gap, note]
    print(f"{start}| {' | '.join(cells)} |", flush=True)


class Table(NamedTuple):
    """Problems of one kind, sizes with tolerances, and up to which size which solvers of ours are asked."""

    problem: Callable[[int], cm.Problem]
    sizes: tuple[tuple[int, float], ...]
    ours: dict[str, int]
    usual: int


def sizes(*given: int, tolerance: float) -> tuple[tuple[int, float], ...]:
    """All with one tolerance."""
    return tuple((size, tolerance) for size in given)


TABLES = {
    "unconstrained": Table(
        unconstrained_problem, sizes(1_000, 10_000, 100_000, tolerance=1e-6), {}, 100_000
    ),
    "linear": Table(
        linear_problem, sizes(1_000, 3_000, 10_000, 100_000, 10**6, tolerance=1e-6), {}, 100_000
    ),
    "entropy": Table(
        entropy_problem,
        ((2_000, 1e-3), (10_000, 1e-3), (100_000, 1e-2), (1_000_000, 1e-2)),
        {"ConvexProgram": 2_000, "PDPG": 2_000},
        100_000,
    ),
    "grid": Table(
        grid_problem, sizes(50, 100, 300, 1_000, tolerance=1e-2), {"ConvexProgram": 100}, 300
    ),
}


def print_table(kind: str, largest: int) -> None:
    """Rows of one kind of problem."""
    table = TABLES[kind]
    asked = {**table.ours, **dict.fromkeys(installed(OTHERS[kind]), largest)}
    for size, tolerance in table.sizes:
        if size > largest:
            break
        own = apart(kind, size, "ColumnGeneration", tolerance)
        show(kind, size, "ColumnGeneration", own, own)
        for name in [name for name, most in asked.items() if size <= most]:
            found = apart(kind, size, name, tolerance)
            show(kind, size, name, found, own)
            if not found or found["seconds"] > PATIENCE:
                asked[name] = 0


def plot(table: Path) -> None:
    """Time and memory against states, from the rows of a printed table."""
    import matplotlib.pyplot as plt

    cells = [line.strip("| \n").split(" | ") for line in table.read_text().splitlines()]
    rows = [row for row in cells if len(row) >= 5 and row[3].endswith(" s")]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    lines = dict.fromkeys((row[0], row[2]) for row in rows)
    for kind, name in lines:
        points = []
        for row in rows:
            if (row[0], row[2]) == (kind, name):
                size = int(row[1].replace(",", ""))
                states = size * size if kind == "grid" else size
                points.append((states, float(row[3].split()[0]), float(row[4].split()[0])))
        states, seconds, memory = zip(*points, strict=True)
        own = name == "ColumnGeneration"
        style = {"marker": "o", "linewidth": 2.0 if own else 1.0, "linestyle": "-" if own else "--"}
        axes[0].loglog(states, seconds, label=f"{kind}: {name}", **style)
        axes[1].loglog(states, memory, label=f"{kind}: {name}", **style)
    axes[0].set(xlabel="states", ylabel="seconds")
    axes[1].set(xlabel="states", ylabel="peak memory, GB")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
    figure.savefig(FIGURE, dpi=130)
    print(f"wrote {FIGURE}")


def main() -> None:
    """Tables, or one measurement."""
    if sys.argv[1:2] == ["plot"]:
        plot(Path(sys.argv[2]))
        return
    if sys.argv[1:2] == ["--measure"]:
        kind, size, name, tolerance = sys.argv[2:]
        print(json.dumps(measure(kind, int(size), name, float(tolerance))))
        return
    load = os.getloadavg()[0]
    print(f"{hardware()}; load {load:.1f}")
    print("| problem | size | solver | time | peak memory | certified gap | steps, or ratio |")
    print("|---|---|---|---|---|---|---|")
    for kind in sys.argv[1:2] or TABLES:
        print_table(kind, int(float(sys.argv[2])) if len(sys.argv) > 2 else TABLES[kind].usual)


if __name__ == "__main__":
    main()
