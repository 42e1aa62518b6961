"""Time, memory and certified gap of column generation against the model's size, beside general solvers.

    python benchmarks/scale.py                 the tables of docs/results/large-models.md, about ten minutes
    python benchmarks/scale.py linear 1e6      one table; sizes up to the one given
    python benchmarks/scale.py entropy 1e5
    python benchmarks/scale.py grid 300        grids up to 300 x 300
    python benchmarks/scale.py plot table.txt  docs/figures/scale.png from a table that was printed before

Every measurement runs in a process of its own, so that its peak memory is its own; building the model and
importing are not counted. Linear: Garnets with five actions and five successors, discount 0.95, three budgets,
to a certified relative gap of 1e-6. Entropy plus reward under a budget, on the same Garnets. Grids: slip 0.1,
discount 0.99, start in the middle, every tenth cell a hazard, at most 0.05 of the time on hazards.

Times are processor times of all threads together, which other work on the machine hardly changes; the time of
the clock stands beside them, with the load. The share of a triad is what the sweeps have to read and write at
least, over the processor time, beside what a triad moves in the same process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.base.blocks import cores
from cvxmdp.models.systems import LIGHT_BEYOND
from hardware import hardware

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "scale.png"
LIMIT = 300  # seconds for one measurement
GENERAL_LIMIT = 10_000  # states up to which general solvers are asked
SIMPLEX_LIMIT = 1_000  # and HiGHS's simplex, which is the slowest of them beyond


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


def general_solver(problem: cm.Problem, name: str) -> float:
    """Seconds of a general solver on the linear program, at a relative gap of 1e-6."""
    from scipy.optimize import linprog

    from cvxmdp.algorithms.conic import flow_equations

    usable = problem.mdp.reachable_pairs
    flow, initial = flow_equations(problem.mdp.flow)
    objective = problem.objective_function.affine()
    slacks = [g.affine() for g in problem.slack_functions.values()]
    rows = np.array([slack.reward[usable] for slack in slacks])
    offsets = np.array([slack.offset for slack in slacks])
    started = time.process_time()
    if name == "Clarabel":
        import cvxpy as cp

        x = cp.Variable(int(usable.sum()), nonneg=True)
        holds = [flow @ x == initial, rows @ x + offsets >= 0]
        program = cp.Problem(cp.Maximize(objective.reward[usable] @ x), holds)
        tolerances = {f"tol_{kind}": 1e-7 for kind in ("gap_abs", "gap_rel", "feas")}
        program.solve(solver=cp.CLARABEL, **tolerances)
        return time.process_time() - started
    options: dict[str, Any] = {"time_limit": float(LIMIT), "presolve": name != "interior point"}
    linprog(
        -objective.reward[usable],
        A_ub=-rows,
        b_ub=offsets,
        A_eq=flow,
        b_eq=initial,
        method="highs-ds" if name == "simplex" else "highs-ipm",
        options=options,
    )
    return time.process_time() - started


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


def measure(kind: str, size: int, name: str, tolerance: float) -> dict[str, Any]:
    """One measurement, in this process."""
    builders = {"linear": linear_problem, "entropy": entropy_problem, "grid": grid_problem}
    problem = builders[kind](size)
    if name in ("simplex", "interior point", "Clarabel"):
        return {"seconds": general_solver(problem, name), "memory": peak()}
    solvers = {
        "ColumnGeneration": lambda: cm.ColumnGeneration(tolerance=tolerance),
        "ConvexProgram": cm.ConvexProgram,
        "PDPG": lambda: cm.PDPG(tolerance=tolerance),
    }
    started, clock = time.process_time(), time.perf_counter()
    solution = cm.solve(problem, solvers[name]())
    seconds, clock = time.process_time() - started, time.perf_counter() - clock
    gap = solution.stats.get("certified_gap")
    steps = solution.stats.get("iterations")
    found = {"seconds": seconds, "memory": peak(), "gap": gap, "steps": steps}
    if name == "ColumnGeneration":
        load = os.getloadavg()[0]
        found["steps"] = (
            f"{steps} steps; {clock:.1f} s of the clock, {cores()} cores, load {load:.1f}"
        )
    if name == "ColumnGeneration" and kind == "linear":
        most = triad()
        share = moved(problem, solution.stats) / seconds / most
        found["steps"] += f"; {share:.0%} of a triad ({most / 1e9:.0f} GB/s)"
    return found


def peak() -> float:
    """Peak memory of this process, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def apart(kind: str, size: int, name: str, tolerance: float) -> dict[str, Any]:
    """One measurement, in a process of its own; an empty record where it took too long."""
    arguments = [sys.executable, __file__, "--measure", kind, str(size), name, str(tolerance)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=4 * LIMIT,
            env=environment,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def show(kind: str, size: int, name: str, found: dict[str, Any], note: str = "") -> None:
    """One row of the table."""
    if not found:
        print(
            f"| {kind} | {size:,} | {name} | more than {4 * LIMIT} s, or failed | | | |", flush=True
        )
        return
    gap = f"{found['gap']:.1e}" if found.get("gap") is not None else ""
    print(
        f"| {kind} | {size:,} | {name} | {found['seconds']:.2f} s | {found['memory']:.2f} GB | {gap} | "
        f"{note or found.get('steps') or ''} |",
        flush=True,
    )


def linear_table(largest: int) -> None:
    """Linear problems: column generation and the best of the general solvers."""
    for size in (1_000, 3_000, 10_000, 100_000, 1_000_000):
        if size > largest:
            break
        own = apart("linear", size, "ColumnGeneration", 1e-6)
        show("linear", size, "ColumnGeneration", own)
        if size > GENERAL_LIMIT:
            continue
        names = ["interior point", "Clarabel"] + (["simplex"] if size <= SIMPLEX_LIMIT else [])
        others = {name: apart("linear", size, name, 1e-6) for name in names}
        for name, found in others.items():
            ratio = found["seconds"] / own["seconds"] if found else float("inf")
            show("linear", size, name, found, f"{ratio:.1f} times column generation")


def entropy_table(largest: int) -> None:
    """Entropy plus reward under a budget."""
    for size, tolerance in ((2_000, 1e-3), (10_000, 1e-3), (100_000, 1e-2), (1_000_000, 1e-2)):
        if size > largest:
            break
        own = apart("entropy", size, "ColumnGeneration", tolerance)
        show("entropy", size, "ColumnGeneration", own)
        if size <= 2_000:
            for name in ("ConvexProgram", "PDPG"):
                other = apart("entropy", size, name, tolerance)
                ratio = other["seconds"] / own["seconds"] if other else float("inf")
                show("entropy", size, name, other, f"{ratio:.1f} times column generation")


def grid_table(largest: int) -> None:
    """Safe exploration of grids."""
    for side in (50, 100, 300, 1_000):
        if side > largest:
            break
        own = apart("grid", side, "ColumnGeneration", 1e-2)
        show("grid", side, "ColumnGeneration", own)
        if side <= 100:
            other = apart("grid", side, "ConvexProgram", 1e-2)
            ratio = other["seconds"] / own["seconds"] if other else float("inf")
            show("grid", side, "ConvexProgram", other, f"{ratio:.1f} times column generation")


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
    tables = {"linear": linear_table, "entropy": entropy_table, "grid": grid_table}
    sizes = {"linear": 100_000, "entropy": 100_000, "grid": 300}
    chosen = sys.argv[1:2] or list(tables)
    for kind in chosen:
        tables[kind](int(float(sys.argv[2])) if len(sys.argv) > 2 else sizes[kind])


if __name__ == "__main__":
    main()
