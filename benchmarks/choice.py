"""What ``solve`` chooses, beside what it did not choose: processor time of both, in one run.

    python benchmarks/choice.py            the table of docs/results/large-models.md, about four minutes
    python benchmarks/choice.py grid       one kind of problem

Linear problems to a certified 1e-6, concave ones to what is chosen for them (1e-4 up to 20,000 pairs, 1e-3
beyond). A convex program always gives all its digits. Where QuantEcon is installed (it is not required),
its modified policy iteration is measured on the unconstrained problems; it gives neither occupancies nor a
certificate. Building models is not counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cvxmdp as cm
from general_solvers import UNCONSTRAINED, installed
from hardware import hardware
from scale import entropy_problem, grid_problem, linear_problem, unconstrained_problem

REPEATS = 3


def distance_problem(n_states: int) -> cm.Problem:
    """A kinked objective: the distance to a policy under a budget."""
    mdp = cm.garnet(n_states, 5, 5, seed=1)
    target = cm.TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(5), n_states))
    budget = {"cost": cm.linear("cost", per="step") <= 0.4}
    return cm.Problem(mdp, minimize=cm.distance(target, norm="l1"), subject_to=budget)


def returns_problem(n_states: int) -> cm.Problem:
    """A curved function of few numbers: the smallest of three returns."""
    names = ("a", "b", "c")
    mdp = cm.garnet(n_states, 5, 5, seed=1, signals=names)
    return cm.Problem(mdp, maximize=cm.minimum(*(cm.linear(name, per="step") for name in names)))


def bounded_problem(n_states: int) -> cm.Problem:
    """An entropy in a constraint."""
    enough = {"spread": cm.entropy() >= 0.9 * float(np.log(n_states))}
    mdp = cm.garnet(n_states, 5, 5, seed=1)
    return cm.Problem(mdp, maximize=cm.linear("reward", per="step"), subject_to=enough)


def timed_problem(n_states: int) -> cm.Problem:
    """The entropy of ten steps, whose pairs are counted once for each of them."""
    return cm.Problem(cm.garnet(n_states, 5, 5, seed=1, horizon=10), maximize=cm.entropy())


def corners_problem(side: int) -> cm.Problem:
    """The least time in three corners of a deterministic grid."""
    n_states = side * side
    mdp = cm.gridworld(side, discount=0.99, start=n_states // 2 + side // 2)
    signals = np.zeros((3, n_states, mdp.n_actions))
    signals[range(3), [0, side - 1, n_states - 1]] = 1.0
    return cm.Problem(mdp, maximize=cm.minimum(*(cm.linear(one, per="step") for one in signals)))


KINDS: dict[str, tuple[Callable[[int], cm.Problem], tuple[int, ...]]] = {
    "unconstrained": (unconstrained_problem, (50, 400, 10_000, 100_000)),
    "linear": (linear_problem, (50, 400, 1_000, 10_000)),
    "entropy": (entropy_problem, (50, 400, 1_000, 2_000)),
    "grid": (grid_problem, (14, 30, 50, 100)),
    "distance": (distance_problem, (50, 400, 1_000)),
    "returns": (returns_problem, (50, 400, 1_000, 2_000)),
    "bounded": (bounded_problem, (50, 400, 4_000)),
    "timed": (timed_problem, (20, 50, 400)),
    "corners": (corners_problem, (30, 60)),
}
PROGRAM_LIMIT = 25_000  # pairs up to which one convex program is waited for


def spent(
    work: Callable[[Any], Any], repeats: int, given: Callable[[], Any] = lambda: None
) -> tuple[float, Any]:
    """The least processor time of some repetitions on what is ``given`` anew, and what the last one gave."""
    times = []
    for _ in range(repeats):
        fresh = given()
        started = time.process_time()
        found = work(fresh)
        times.append(time.process_time() - started)
    return min(times), found


def measure(kind: str, size: int) -> None:
    """One row."""
    build, _ = KINDS[kind]
    repeats = REPEATS if size <= 1_000 else 1
    problem = build(size)
    pairs = int(problem.mdp.flow.usable.sum())
    chosen, solution = spent(cm.solve, repeats, lambda: build(size))
    by = solution.stats["solver"].split(" ")[0].rstrip(",")
    gap = solution.stats["certified_gap"]
    others: dict[str, float] = {}
    if by == "ColumnGeneration" and pairs <= PROGRAM_LIMIT:
        others["ConvexProgram"] = spent(
            lambda fresh: cm.solve(fresh, cm.ConvexProgram()), 1, lambda: build(size)
        )[0]
    elif by != "ColumnGeneration":
        tolerance = 1e-6 if kind in ("unconstrained", "linear") else 1e-4
        solver = cm.ColumnGeneration(tolerance=tolerance)
        others["ColumnGeneration"] = spent(
            lambda fresh: cm.solve(fresh, solver), 1, lambda: build(size)
        )[0]
    if kind == "unconstrained":
        for name, ask in installed({"QuantEcon": UNCONSTRAINED["QuantEcon"]}).items():
            others[name] = ask(problem, 1e-6)[0]
    beside = ", ".join(f"`{name}` {took / chosen:.2g} times" for name, took in others.items())
    print(f"| {kind} | {pairs:,} | `{by}` | {chosen:.3f} s | {gap:.0e} | {beside} |", flush=True)


def main() -> None:
    """All rows, or those of one kind."""
    print(f"{hardware()}; processor time, one run")
    print("| problem | pairs | chosen | processor time | certified gap | beside it |")
    print("|---|---|---|---|---|---|")
    for kind in sys.argv[1:] or KINDS:
        for size in KINDS[kind][1]:
            measure(kind, size)


if __name__ == "__main__":
    main()
