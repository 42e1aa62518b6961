"""VR-PDPG with settings from the problem, on barriers, and with natural steps: beside exact answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.paper.tracking import tracking_problem
from pdpg import reference_grid, reference_problems
from pdpg_gaps import further_problems

ITERATIONS = 3_000
NATURAL: dict[str, dict[str, Any]] = {
    "gradient": {},
    "natural": {"direction": "natural"},
    "gradient, momentum 1": {"momentum": 1.0},
    "natural, momentum 1": {"direction": "natural", "momentum": 1.0},
}


@dataclass(frozen=True)
class Ended:
    """How the seeds of one setting ended.

    Attributes:
        gaps: exact, as a share of what the uniform policy is away, or of the optimum where that is infinite.
        slacks: the smallest of a run, as a share of its budget.
        violated: the share of the policies played that violated something.
        last: the last iteration that did; -1 where none did.
        weight: the largest importance weight.
    """

    gaps: np.ndarray
    slacks: np.ndarray
    violated: float
    last: int
    weight: float


def problems() -> dict[str, cm.Problem]:
    """Where constraints bind, the paper's first instance, its first example, and a frozen lake."""
    known = {**dict(reference_problems()), **dict(further_problems())}
    names = ("safe exploration", "apprenticeship kl", "linear, 3 budgets")
    return {
        **{name: known[name] for name in names},
        "tracking, 8x8-traj2": tracking_problem("8x8-traj2"),
        "log barrier": barrier(),
        "frozen lake, falls at most 0.1": lake(),
    }


def barrier(budget: float = 1.0, weight: float = 0.1) -> cm.Problem:
    """The problem of examples/safe_learning.py."""
    safe = cm.log_barrier(cm.linear("hazard") <= budget)
    return cm.Problem(reference_grid(), maximize=cm.linear("reward") + weight * safe)


def lake() -> cm.Problem:
    """The table of examples/frozen_lake.py."""
    fall = {"fall": lambda state, action, after, reward, end: float(end and reward == 0)}
    mdp = cm.from_gymnasium_table("FrozenLake-v1", 0.95, signals=fall, success_rate=0.8)
    limits = {"fall": cm.linear("fall") <= 0.1}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def ended(problem: cm.Problem, seeds: int, start: Any = None, **settings: Any) -> Ended:
    """Learn with these settings, and judge it exactly."""
    best = cm.solve(problem).objective
    uniform = problem.evaluate(cm.uniform_policy(problem.mdp)).objective
    scale = abs(best - uniform) if np.isfinite(uniform) else abs(best)
    solver = cm.VRPDPG(ITERATIONS, evaluate_every=ITERATIONS, **settings)
    sweep = cm.sweep(problem, solver, seeds=range(seeds), progress=False, start=start)
    runs = [run.solution for run in sweep]
    budgets = {name: abs(one.budget) for name, one in problem.constraints.items()}
    played = [run.stats["while_learning"] for run in runs]
    return Ended(
        np.array([problem.sign * (best - run.objective) / scale for run in runs]),
        np.array([min((s / budgets[n] for n, s in run.slack.items()), default=0) for run in runs]),
        float(np.mean([counts["violated"] / counts["played"] for counts in played])),
        int(max(counts["last"] for counts in played)),
        max(run.stats["largest_weight"] for run in runs),
    )


def chosen(seeds: int) -> None:
    """Nothing given but the iterations."""
    print(f"{seeds} seeds, {ITERATIONS:,} iterations of 10 episodes.\n")
    print(
        "| problem | gap, worst seed | smallest slack, worst seed | largest weight | "
        f"policies played that violated |\n|{' --- |' * 5}"
    )
    for name, problem in problems().items():
        found = ended(problem, seeds)
        slack = f"{found.slacks.min():+.1%}" if problem.constraints else "inside"
        print(
            f"| {name} | {np.abs(found.gaps).max():.2%} | {slack} | {found.weight:.3g} | "
            f"{found.violated:.0%} |",
            flush=True,
        )


def barriers(seeds: int) -> None:
    """The paper's first example from three feasible starts, and Algorithm 1 as it is."""
    problem = barrier()
    mdp, cost = problem.mdp, cm.linear("hazard")
    idle = cm.solve(cm.Problem(mdp, minimize=cost)).policy
    limits = {"cost": cost <= 0.95}
    reckless = cm.solve(cm.Problem(mdp, maximize=cost, subject_to=limits)).policy
    paper = {
        "primal_step": 0.3,
        "dual_step": 1.0,
        "momentum": 0.3,
        "horizon": 77,
        "batch_size": 10,
        "baseline": True,
        "primal_decay": 0.25,
        "iterate": "half",
    }
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "none given": (None, {}),
        "the least cost there is": (idle, {}),
        "the most cost below 0.95": (reckless, {}),
        "uniform, without `safe` and `explore`": (None, paper),
        "the least cost there is, without": (idle, paper),
    }
    print(
        "| start | gap, median and worst seed | seeds within 5% | policies played outside | the last at |\n"
        f"|{' --- |' * 5}"
    )
    for name, (start, settings) in cases.items():
        found = ended(problem, seeds, start, **settings)
        last = "never" if found.last < 0 else f"{found.last:,}"
        print(
            f"| {name} | {np.median(found.gaps):.2%}, {found.gaps.max():.2%} | "
            f"{(found.gaps < 0.05).sum()} of {seeds} | {found.violated:.2%} | {last} |",
            flush=True,
        )


def tight_barriers(seeds: int) -> None:
    """A barrier whose slack at the optimum is as small as the noise of a batch."""
    problem = barrier(budget=0.05, weight=0.01)
    print(
        f"| episodes in a batch | gap, median and worst seed | policies played outside |\n|{' --- |' * 3}"
    )
    for batch in (10, 50, 200):
        found = ended(problem, seeds, batch_size=batch)
        print(
            f"| {batch} | {np.median(found.gaps):.1%}, {found.gaps.max():.1%} | {found.violated:.2%} |",
            flush=True,
        )


def natural(seeds: int) -> None:
    """Gradient and natural directions, with and without variance reduction."""
    print(f"| problem | {' | '.join(NATURAL)} |\n|{' --- |' * (1 + len(NATURAL))}")
    for name, problem in problems().items():
        cells = []
        for settings in NATURAL.values():
            found = ended(problem, seeds, **settings)
            worst = found.gaps[np.argmax(np.abs(found.gaps))]
            slack = f", slack {found.slacks.min():+.1%}" if problem.constraints else ""
            cells.append(f"{worst:.2%}{slack}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
