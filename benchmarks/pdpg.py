"""Time to a certified gap of 1% and of 0.1%: PDPG against ConvexProgram, in the same run.

The seven problems of tests/reference/problems.json (a grid of 64 states), and Garnets with 4
actions, 4 successors and discount 0.95: reward under one budget, and entropy + 0.1 reward under one
budget. The budget is halfway between the least cost and the cost of the best policy without one.

PDPG is natural, with default settings; it checks the certified gap every 50 iterations and stops as
soon as it is small enough, so the time of the certificates is in it. Its first run compiles and is
not counted; what it took longer is reported as compile time. ConvexProgram is timed to its own
tolerance, far below 0.1% (it has no way to stop at a certified gap); its answer is not certified
within the time, and the gap column shows what certify says of it afterwards. Both are the best of
several runs after a first one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cvxmdp as cm
from hardware import hardware, timed

REFERENCE = Path(__file__).parent.parent / "tests" / "reference" / "problems.json"
GAPS = (1e-2, 1e-3)
ROUNDS = 2


def reference_grid() -> cm.TabularMDP:
    """The grid of 64 states with twelve hazards."""
    model = json.loads(REFERENCE.read_text())["model"]
    return cm.gridworld(
        model["size"],
        slip=model["slip"],
        discount=model["discount"],
        start=model["start"],
        hazards=model["hazard_states"],
        rewards={63: 1.0},
    )


def reference_problems() -> Iterator[tuple[str, cm.Problem]]:
    """The seven problems, as their statements in the file have them."""
    grid = reference_grid()
    expert = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (grid.n_states, 1)))
    occupancy = cm.occupancy_of(grid, expert)
    reward, hazard = cm.linear("reward"), cm.linear("hazard", per="step")
    barrier = cm.log_barrier(cm.linear("hazard") <= 1.0)
    around = cm.distance(cm.box(0.8 * occupancy, 1.25 * occupancy), norm="l2")
    near = cm.distance(expert, norm="l2")
    imitate = {
        "l2": -near,
        "l2-squared": -0.5 * cm.distance(expert, norm="l2-squared"),
        "kl": -cm.distance(expert, norm="kl"),
    }
    yield (
        "safe exploration",
        cm.Problem(grid, maximize=cm.entropy(), subject_to={"hazard": hazard <= 0.05}),
    )
    yield "safe learning", cm.Problem(grid, maximize=reward + 0.1 * barrier)
    for name, utility in imitate.items():
        problem = cm.Problem(grid, maximize=utility, subject_to={"hazard": hazard <= 0.08})
        yield f"apprenticeship {name}", problem
    both = {"near": near <= 1.0, "hazard": hazard <= 0.095}
    yield "feasibility, point", cm.Problem(grid, maximize=reward, subject_to=both)
    yield (
        "feasibility, box",
        cm.Problem(grid, maximize=reward, subject_to={"near": around <= 0.5}),
    )


def garnet_problems(states: int) -> Iterator[tuple[str, cm.Problem]]:
    """Reward, and entropy with some reward, under a budget that binds."""
    mdp = cm.garnet(states, 4, 4, seed=0, discount=0.95)
    cost = cm.linear("cost", per="step")
    least = cm.solve(cm.Problem(mdp, minimize=cost)).objective
    objectives = {
        "reward": cm.linear("reward"),
        "entropy + reward": cm.entropy() + 0.1 * cm.linear("reward"),
    }
    for name, objective in objectives.items():
        free = cm.solve(cm.Problem(mdp, maximize=objective)).occupancy
        most = (1.0 - mdp.discount) * float(np.vdot(mdp.signal("cost"), free))
        budget = {"cost": cost <= 0.5 * (least + most)}
        yield (
            f"Garnet {states:,}, {name}",
            cm.Problem(mdp, maximize=objective, subject_to=budget),
        )


@dataclass(frozen=True)
class Reached:
    """One timed run of PDPG."""

    seconds: float
    compile_seconds: float
    iterations: int
    gap: float
    certified: bool

    def __str__(self) -> str:
        mark = " " if self.certified else ">"
        return f"{mark}{self.seconds:8.2f} s {self.iterations:6,}"


def time_to_gap(problem: cm.Problem, gap: float, iterations: int) -> Reached:
    solver = cm.PDPG(iterations, tolerance=gap, check_every=50)
    (first, _), *others = (timed(lambda: cm.solve(problem, solver)) for _ in range(1 + ROUNDS))
    seconds, solution = min(others, key=lambda run: run[0])
    return Reached(
        seconds,
        first - seconds,
        int(solution.stats["iterations"]),
        float(solution.stats["certified_gap"]),
        solution.status is cm.Status.OPTIMAL,
    )


def measure(name: str, problem: cm.Problem, iterations: int) -> str:
    times, solutions = zip(
        *(timed(lambda: cm.solve(problem, cm.ConvexProgram())) for _ in range(1 + ROUNDS)),
        strict=True,
    )
    program = min(times[1:])
    proven = cm.certify(problem, solutions[-1]).relative_gap
    runs = [time_to_gap(problem, gap, iterations) for gap in GAPS]
    ratios = " ".join(
        f"{run.seconds / program:8.2f}" if run.certified else "       -" for run in runs
    )
    compiling = max(0.0, runs[0].compile_seconds)
    return (
        f"{name:30} {program:8.3f} s {proven:8.1e} {runs[0]} {runs[1]} {ratios} {compiling:7.2f} s "
        f"{runs[1].gap:9.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, nargs="*", default=[100, 300, 1_000])
    parser.add_argument("--iterations", type=int, default=2_000)
    options = parser.parse_args()
    print(hardware())
    print(
        f"{'':30} ConvexProgram       PDPG to 1%          PDPG to 0.1%       PDPG / program   "
        f" compile   gap at\n{'problem':30}   seconds      gap    seconds  iter.     seconds  iter."
        "      1%     0.1%       PDPG      end"
    )
    problems = list(reference_problems())
    for states in options.states:
        problems += garnet_problems(states)
    for name, problem in problems:
        print(measure(name, problem, options.iterations), flush=True)
    print(f"> not certified within {options.iterations:,} iterations")


if __name__ == "__main__":
    main()
