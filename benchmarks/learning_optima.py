"""VR-PDPG beside exact answers: where the multiplier is not zero, and how the gap falls with T.

Learned policies are evaluated exactly and compared with ConvexProgram; nothing here is an estimate but the
learning itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp import theory
from cvxmdp.occupancy import occupancies_of
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
    shared: dict[str, Any] = {"batch_size": 10, "evaluate_every": 250, "progress": False}
    shared["iterate"] = "average"
    fading: dict[str, Any] = {"primal_decay": 0.5, "dual_decay": 0.5}
    return [
        Learned(
            "safe exploration",
            cm.VRPDPG(5_000, 1.0, 3.0, momentum=0.1, horizon=80, **fading, **shared),
            of_range=False,
            gap=0.05,
            slack=0.002,
        ),
        Learned(
            "apprenticeship kl",
            cm.VRPDPG(5_000, 1.0, 3.0, momentum=0.1, horizon=80, **fading, **shared),
            of_range=True,
            gap=0.10,
            slack=0.002,
        ),
        Learned(
            "linear, 3 budgets",
            cm.VRPDPG(
                5_000,
                1.0,
                3.0,
                momentum=0.3,
                horizon=120,
                baseline=True,
                primal_decay=0.25,
                dual_decay=0.25,
                **shared,
            ),
            of_range=False,
            gap=0.05,
            slack=0.01,
        ),
    ]


def multipliers(seeds: int) -> None:
    """True gaps and slacks of learned policies, where constraints bind."""
    problems = {**dict(reference_problems()), **dict(further_problems())}
    print(
        "| problem | optimum | budget of samples | gap, each seed | worst slack, each seed | multipliers, mean "
        f"over seeds | exact |\n|{' --- |' * 7}"
    )
    for learned in learned_problems():
        problem = problems[learned.name]
        exact = cm.solve(problem, cm.ConvexProgram())
        runs = [
            run.solution
            for run in cm.sweep(problem, learned.solver, seeds=range(seeds), progress=False)
        ]
        gaps = [relative_gap(problem, exact, run.objective, learned.of_range) for run in runs]
        slacks = [min(run.slack.values()) for run in runs]
        found = [np.mean([run.multipliers[name] for run in runs]) for name in problem.constraints]
        steps = np.mean([run.stats["samples"] for run in runs])
        fine = max(gaps) <= learned.gap and min(slacks) >= -learned.slack
        print(
            f"| {learned.name} | {exact.objective:.4f} | {learned.solver.iterations:,} x "
            f"{learned.solver.batch_size} episodes, {steps:.2g} steps | "
            f"{', '.join(f'{100 * gap:.2f}%' for gap in gaps)} | "
            f"{', '.join(f'{slack:+.4f}' for slack in slacks)} | {', '.join(f'{mu:.2f}' for mu in found)} | "
            f"{', '.join(f'{mu:.2f}' for mu in exact.multipliers.values())} |"
            f"{'' if fine else ' (outside the tolerances)'}",
            flush=True,
        )
    print()
    for learned in learned_problems():
        scale = "range" if learned.of_range else "optimum"
        print(
            f"- {learned.name}: tolerance {100 * learned.gap:g}% of the {scale}, slack at least "
            f"{-learned.slack:g}; {learned.solver!r}"
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
        iterations,
        problem.mdp.discount,
        dual_bound=dict(case.constants.dual_bound),
        evaluate_every=iterations,
        record_every=iterations,
        progress=False,
    )
    gaps, slacks = [], []
    for run in cm.sweep(problem, solver, seeds=range(seeds), progress=False):
        visits = occupancies_of(problem.mdp, run.solution.policy.components.astype(float))
        found = [problem.evaluate_occupancy(x) for x in visits]
        gaps.append(np.mean([case.optimum - one.objective for one in found]))
        slacks.append(np.mean([one.slack["cost"] for one in found]))
    return np.array(gaps), np.array(slacks)


def spread(values: np.ndarray) -> str:
    """Mean and half the width of its interval, in the digits of small numbers."""
    from cvxmdp.sweeps.results import interval

    found = interval(values)
    return f"{found.mean:.4f} ± {found.high - found.mean:.4f}"
