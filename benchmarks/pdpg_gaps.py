"""What PDPG reaches with default settings: certified gaps and multipliers, natural and vanilla.

The seven problems of tests/reference/problems.json, the distance to a ball, a linear CMDP with 3 budgets
(Garnet, 200 states) and one with 10 (Garnet, 100 states), 2,000 iterations each, no early stopping. The gap is
the relative gap of ``certify(problem, solution)``, the lower bound being that of the repaired policy; the error
of the multipliers is relative to the largest one of ConvexProgram. Then the same problems with
pessimism="auto".

With --curves instead: the same two numbers of the vanilla gradient against the number of iterations, on the
problems that resist it, as a table and as docs/figures/pdpg_vanilla.png (ten minutes).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import cvxmdp as cm
from hardware import hardware
from pdpg import reference_problems

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "pdpg_vanilla.png"
RESISTING = (
    "apprenticeship l2-squared",
    "feasibility, point",
    "feasibility, box",
    "linear, 3 budgets",
    "linear, 10 budgets",
)
ITERATIONS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000)


def further_problems() -> Iterator[tuple[str, cm.Problem]]:
    """A ball, three budgets, ten budgets."""
    grid = cm.gridworld(8, slip=0.1, discount=0.95, rewards={63: 1.0})
    expert = cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))
    near = {"near": cm.distance(cm.ball(expert, 1.0), norm="l2") <= 0.5}
    yield "distance to a ball", cm.Problem(grid, maximize=cm.linear("reward"), subject_to=near)
    for count, states, shape, budget in ((3, 200, (5, 5), 0.42), (10, 100, (4, 4), 0.46)):
        costs = [f"cost {index}" for index in range(count)]
        mdp = cm.garnet(states, *shape, seed=3, discount=0.95, signals=("reward", *costs))
        budgets = {name: cm.linear(name, per="step") <= budget for name in costs}
        problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets)
        yield f"linear, {count} budgets", problem


def multiplier_error(solution: cm.Solution, exact: cm.Solution) -> float:
    """The largest error, relative to the largest exact multiplier."""
    names = list(exact.multipliers)
    if not names:
        return 0.0
    mine, theirs = (np.array([s.multipliers[name] for name in names]) for s in (solution, exact))
    return float(np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-12))


def measure(problem: cm.Problem, exact: cm.Solution, solver: cm.PDPG) -> tuple[float, float]:
    """The certified relative gap, and the error of the multipliers."""
    solution = cm.solve(problem, solver)
    return cm.certify(problem, solution).relative_gap, multiplier_error(solution, exact)


def table(problems: dict[str, cm.Problem], iterations: int) -> None:
    """What is reached, natural and vanilla."""
    print(f"{iterations:,} iterations, default settings\n")
    print("| problem | natural: gap | multipliers off by | vanilla: gap | multipliers off by |")
    print("| --- | --- | --- | --- | --- |")
    for name, problem in problems.items():
        exact = cm.solve(problem, cm.ConvexProgram())
        cells = []
        for direction in ("natural", "vanilla"):
            solver = cm.PDPG(iterations, direction=direction, tolerance=None)
            gap, error = measure(problem, exact, solver)
            cells.append(f"{gap:.1e} | {error:.1e}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def zero_violation(problems: dict[str, cm.Problem], iterations: int) -> None:
    """What pessimism="auto" asks for, and its price: the certified gap of a policy that violates nothing."""
    print(f'\n{iterations:,} iterations, pessimism="auto"\n')
    print("| problem | violation without | largest pessimism | proven | price | relative |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, problem in problems.items():
        plain = cm.solve(problem, cm.PDPG(iterations))
        safe = cm.solve(problem, cm.PDPG(iterations, pessimism="auto"))
        violation = max(plain.violation.values(), default=0.0)
        pessimism = max(safe.stats["pessimism"].values(), default=0.0)
        proven = "yes" if safe.stats["violation_proven_zero"] else "no"
        gap = cm.certify(problem, safe).relative_gap
        cells = (
            f"{violation:.1e} | {pessimism:.1e} | {proven} | {safe.stats['price']:.1e} | {gap:.1e}"
        )
        print(f"| {name} | {cells} |", flush=True)


def curves(problems: dict[str, cm.Problem], path: Path) -> None:
    """What the vanilla gradient reaches in more and more iterations, where it resists."""
    print("vanilla, default settings; gap and error of the multipliers\n")
    print(f"| problem | {' | '.join(f'{count:,}' for count in ITERATIONS)} |")
    print(f"| --- |{' --- |' * len(ITERATIONS)}")
    measured = {}
    for name in RESISTING:
        problem = problems[name]
        exact = cm.solve(problem, cm.ConvexProgram())
        measured[name] = [
            measure(problem, exact, cm.PDPG(count, direction="vanilla", tolerance=None))
            for count in ITERATIONS
        ]
        cells = (f"{gap:.1e}, {error:.1e}" for gap, error in measured[name])
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    draw(measured, path)


def draw(measured: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Both numbers against the iterations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    titles = ("certified relative gap", "error of the multipliers, relative to the largest")
    for place, (axes, title) in enumerate(zip(figure.subplots(1, 2), titles, strict=True)):
        for name, numbers in measured.items():
            axes.loglog(ITERATIONS, [pair[place] for pair in numbers], marker="o", label=name)
        axes.set(title=title, xlabel="iterations")
        axes.grid(which="both", alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=2_000)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    print(hardware())
    problems = dict([*reference_problems(), *further_problems()])
    if options.curves:
        curves(problems, options.figure)
    else:
        table(problems, options.iterations)
        zero_violation(problems, options.iterations)


if __name__ == "__main__":
    main()
