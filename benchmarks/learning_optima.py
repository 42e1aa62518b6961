"""VR-PDPG beside exact answers: where the multiplier is not zero, and how the gap falls with T.

Learned policies are evaluated exactly and compared with ConvexProgram; nothing here is an estimate but the
learning itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp import theory
from cvxmdp.runs.sweep_results import interval
from pdpg import reference_problems
from pdpg_gaps import further_problems
from rates import Case, cases

ITERATIONS = [round(10 ** (k / 2)) for k in range(4, 11)]


@dataclass(frozen=True)
class Learned:
    """A problem, how it is learned, and what counts as close.

    Attributes:
        name: of the problem.
        solver: with all its settings.
        of_range: gaps are relative to |f(uniform) - f*|, where the optimum is near zero; else to |f*|.
        gap, slack: tolerances; the slack's is for -slack.
    """

    name: str
    solver: cm.VRPDPG
    of_range: bool
    gap: float
    slack: float


def learned_problems() -> list[Learned]:
    """Three problems whose multipliers are not zero."""
    shared: dict[str, Any] = {
        "iterations": 5_000,
        "momentum": 0.3,
        "batch_size": 10,
        "baseline": True,
        "primal_decay": 0.25,
        "dual_decay": 0.25,
        "dual_bound": 20.0,
        "iterate": "half",
        "evaluate_every": 250,
    }
    grid = cm.VRPDPG(primal_step=0.3, dual_step=3.0, horizon=80, **shared)
    garnet = cm.VRPDPG(primal_step=1.0, dual_step=10.0, horizon=120, **shared)
    return [
        Learned("safe exploration", grid, of_range=False, gap=0.05, slack=0.005),
        Learned("apprenticeship kl", grid, of_range=True, gap=0.10, slack=0.005),
        Learned("linear, 3 budgets", garnet, of_range=False, gap=0.05, slack=0.005),
    ]


VARIANTS: dict[str, dict[str, Any]] = {
    "as documented": {},
    "last iterate": {"iterate": "last"},
    "no baseline": {"baseline": False},
    "constant steps, a tenth as long": {"primal_decay": 0.0, "dual_decay": 0.0, "times": 0.1},
    "no baseline, constant steps, a tenth as long": {
        "baseline": False,
        "primal_decay": 0.0,
        "dual_decay": 0.0,
        "times": 0.1,
    },
    "momentum=1": {"momentum": 1.0},
}


def multipliers(seeds: int) -> None:
    """True gaps and slacks of learned policies, where constraints bind, and what each departure does."""
    problems = {**dict(reference_problems()), **dict(further_problems())}
    print(
        "| problem | setting | gap, each seed | smallest slack, each seed | multipliers, mean over seeds "
        f"(exact) | steps in the model |\n|{' --- |' * 6}"
    )
    for learned in learned_problems():
        problem = problems[learned.name]
        exact = cm.solve(problem, cm.ConvexProgram())
        for name, changes in VARIANTS.items():
            print(_row(learned, problem, exact, name, changes, seeds), flush=True)
    print()
    for learned in learned_problems():
        scale = "range" if learned.of_range else "optimum"
        solver = learned.solver
        print(
            f"- {learned.name}: tolerance {100 * learned.gap:g}% of the {scale}, slack at least "
            f"{-learned.slack:g}; primal_step={solver.primal_step:g}, dual_step={solver.dual_step:g}, "
            f"momentum={solver.momentum:g}, horizon={solver.horizon}, batch_size={solver.batch_size}, "
            f"iterations={solver.iterations:,}, baseline, decays {solver.primal_decay:g}"
        )


def _row(
    learned: Learned,
    problem: cm.Problem,
    exact: cm.Solution,
    name: str,
    changes: dict[str, Any],
    seeds: int,
) -> str:
    changed = dict(changes)
    times = changed.pop("times", 1.0)
    solver = replace(
        learned.solver,
        primal_step=times * learned.solver.primal_step,
        dual_step=times * learned.solver.dual_step,
        **changed,
    )
    sweep = cm.sweep(problem, solver, seeds=range(seeds), progress=False)
    runs = [run.solution for run in sweep]
    gaps = [relative_gap(problem, exact, run.objective, learned.of_range) for run in runs]
    slacks = [min(run.slack.values()) for run in runs]
    pairs = [
        f"{np.mean([run.multipliers[one] for run in runs]):.2f} ({exact.multipliers[one]:.2f})"
        for one in problem.constraints
    ]
    fine = max(map(abs, gaps)) <= learned.gap and min(slacks) >= -learned.slack
    return (
        f"| {learned.name} | {name}{'' if fine else ' (outside the tolerances)'} | "
        f"{', '.join(f'{100 * gap:.2f}%' for gap in gaps)} | "
        f"{', '.join(f'{slack:+.4f}' for slack in slacks)} | {', '.join(pairs)} | "
        f"{np.mean([run.stats['samples'] for run in runs]):.2g} |"
    )


def relative_gap(
    problem: cm.Problem, exact: cm.Solution, objective: float, of_range: bool
) -> float:
    """How much worse than the optimum; negative where a violated constraint buys more than f*."""
    uniform = problem.evaluate(cm.uniform_policy(problem.mdp)).objective
    scale = abs(uniform - exact.objective) if of_range else abs(exact.objective)
    return problem.sign * (exact.objective - objective) / scale


def rate(seeds: int, longest: int = 100_000) -> None:
    """The decay of gap and violation with T under the theorem's schedule, beside T^(-1/4).

    The ring of three states of ``benchmarks/rates.py``. Averages over the iterations, as the theorem has
    them, are estimated from the iterates that ``iterate="uniform"`` keeps (256, drawn uniformly), each
    evaluated exactly.
    """
    times = [count for count in ITERATIONS if count <= longest]
    for case in cases(0.5):
        print(f"\n{case.name}: f* = {case.optimum:.6f}, mu* = {case.multiplier:.4f}\n")
        print(f"| T | gap | violation | shortfall |\n|{' --- |' * 4}")
        sizes: dict[str, list[float]] = {"|gap|": [], "violation": [], "shortfall": []}
        for count in times:
            gap, slack = averages(case, count, seeds)
            shortfall = gap - case.multiplier * slack
            print(
                f"| {count:,} | {spread(gap)} | {spread(-slack)} | {spread(shortfall)} |",
                flush=True,
            )
            sizes["|gap|"].append(abs(gap.mean()))
            sizes["violation"].append(max(0.0, -slack.mean()))
            sizes["shortfall"].append(shortfall.mean())
        print()
        for name, values in sizes.items():
            slope = theory.fit_rate(times, values) if min(values) > 0 else "no slope: a zero"
            print(f"- slope of {name}: {slope} (theorem: at most -0.25)")


def averages(case: Case, iterations: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """(1/T) sum_t [f* - f(lambda(theta_t))] and (1/T) sum_t g(lambda(theta_t)), one per seed."""
    problem = case.problem
    solver = cm.VRPDPG.theory(
        problem,
        iterations,
        dual_bound=dict(case.constants.dual_bound),
        evaluate_every=iterations,
        record_every=iterations,
    )
    gaps, slacks = [], []
    for run in cm.sweep(problem, solver, seeds=range(seeds), progress=False):
        visits = problem.mdp.flow.occupancies(run.solution.policy.components.astype(float))
        found = [problem.evaluate_occupancy(x) for x in visits]
        gaps.append(np.mean([case.optimum - one.objective for one in found]))
        slacks.append(np.mean([one.slack["cost"] for one in found]))
    return np.array(gaps), np.array(slacks)


def spread(values: np.ndarray) -> str:
    """Mean and half the width of its interval, in the digits of small numbers."""
    return interval(values).words(4)
