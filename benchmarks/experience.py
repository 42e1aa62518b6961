"""Counting and planning, measured: ModelBased beside VR-PDPG and cautious plans, on problems with known optima.

    python benchmarks/experience.py [--seeds 20] [--long-seeds 3] [--only WORDS ...]

Distances are to the optimum, as shares of the objective's range (its largest minus its smallest value over
policies); answers are evaluated exactly. *Noise* is what no method can do without: the optimum's multipliers
times the standard errors of the slacks after so many steps, in the same unit. Prints the tables of
docs/experience.md.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import cvxmdp as cm
from experience_problems import PROBLEMS, objective_range
from hardware import hardware

SHORT, LONG = 100_000, 1_000_000
HORIZON, BATCH = 80, 10
COMPARED = 6  # problems that VR-PDPG learns as well: those of the first kinds


@dataclass(frozen=True)
class Trials:
    """What some seeds gave.

    Attributes:
        distance: to the optimum, in % of the range.
        violation: largest of a constraint, in % of its budget.
        noise: in % of the range.
        seconds: of a run, all in all.
        proven: how many cautious plans were proven, of how many; their distances and violations.
    """

    distance: np.ndarray
    violation: np.ndarray
    noise: float
    seconds: float
    proven: tuple[int, int, float, float] | None = None


class Known:
    """A problem with its optimum."""

    def __init__(self, problem: cm.Problem) -> None:
        self.problem, self.best = problem, cm.solve(problem)
        self.range = objective_range(problem)

    def distance(self, policy: Any) -> float:
        """To the optimum, in %."""
        found = self.problem.evaluate(policy).objective
        return 100 * self.problem.sign * (self.best.objective - found) / self.range

    def violation(self, policy: Any) -> float:
        """Largest, in % of the budget."""
        missed = self.problem.evaluate(policy).violation
        return 100 * max(missed[name] / abs(b) for name, b in self.problem.budgets.items())

    def learned(self, steps: int, seeds: int, cautious: int = 0) -> Trials:
        """ModelBased, and cautious plans from what the first seeds counted."""
        answers, began = [], time.perf_counter()
        for seed in range(seeds):
            answers.append(cm.solve(self.problem, cm.ModelBased(steps), seed=seed, progress=False))
        seconds = (time.perf_counter() - began) / seeds
        prices = self.best.multipliers
        noise = np.mean(
            [sum(prices[n] * e for n, e in one.stats["standard_error"].items()) for one in answers]
        )
        return Trials(
            np.array([self.distance(one.policy) for one in answers]),
            np.array([self.violation(one.policy) for one in answers]),
            100 * float(noise) / self.range,
            seconds,
            self.careful([one.stats["model"] for one in answers[:cautious]]) if cautious else None,
        )

    def careful(self, models: list[cm.TabularMDP]) -> tuple[int, int, float, float]:
        """Cautious plans on estimates: how many are proven, of how many, the worst distance and violation."""
        plans = [cm.solve(self.problem.with_model(one), cautious=0.95) for one in models]
        proven = [one.policy for one in plans if one.status is cm.Status.CAUTIOUS]
        worst = max(map(self.distance, proven), default=np.nan)
        return len(proven), len(plans), worst, max(map(self.violation, proven), default=np.nan)

    def followed(self, steps: int) -> tuple[float, float]:
        """VR-PDPG with the settings of docs/vr-pdpg.md where constraints bind: distance and violation."""
        solver = cm.VRPDPG(
            iterations=steps // (HORIZON * BATCH),
            primal_step=0.3,
            dual_step=3.0,
            momentum=0.3,
            horizon=HORIZON,
            batch_size=BATCH,
            baseline=True,
            primal_decay=0.25,
            dual_decay=0.25,
            dual_bound=20.0,
            iterate="half",
        )
        found = cm.solve(self.problem, solver, seed=0, progress=False)
        return self.distance(found.policy), self.violation(found.policy)


def row(cells: list[str]) -> None:
    """A row of a table in Markdown, as soon as it is known."""
    print("| " + " | ".join(cells) + " |", flush=True)


def spread(trials: Trials) -> str:
    """Median and worst."""
    return f"{np.median(trials.distance):.2f} / {trials.distance.max():.2f}"


def short_runs(names: list[str], seeds: int) -> None:
    """What 1e5 steps give."""
    row(["problem", "states x actions", "median / worst", "violation, mean / worst", "noise", "s"])
    row(["---"] * 6)
    for name in names:
        known = Known(PROBLEMS[name]())
        found, (states, actions) = known.learned(SHORT, seeds), known.problem.shape
        broken = f"{found.violation.mean():.2f} / {found.violation.max():.1f}"
        cells = [name, f"{states} x {actions}", spread(found), broken]
        row([*cells, f"{found.noise:.2f}", f"{found.seconds:.1f}"])


def long_runs(names: list[str], seeds: int) -> None:
    """What 1e6 steps give, and the cautious plans from what was counted."""
    head = ["problem", "median / worst", "violation, worst", "noise", "cautious plans proven"]
    row([*head, "their worst distance, violation", "s"])
    row(["---"] * 7)
    for name in names:
        found = Known(PROBLEMS[name]()).learned(LONG, seeds, cautious=seeds)
        assert found.proven is not None
        held, of, far, broken = found.proven
        cells = [name, spread(found), f"{found.violation.max():.2f}", f"{found.noise:.2f}"]
        row(
            [
                *cells,
                f"{held} of {of}",
                f"{far:.1f}, {broken:.2f}" if held else "-",
                f"{found.seconds:.0f}",
            ]
        )


def compared(names: list[str]) -> None:
    """VR-PDPG on the same problems, one seed."""
    row(["problem", "VR-PDPG, 1e5 steps: distance, violation", "1e6 steps"])
    row(["---"] * 3)
    for name in names:
        known = Known(PROBLEMS[name]())
        told = [f"{d:.1f}, {v:.1f}" for d, v in map(known.followed, (SHORT, LONG))]
        row([name, *told])


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="of runs with 1e5 steps; 0 for none")
    parser.add_argument(
        "--long-seeds", type=int, default=3, help="of runs with 1e6 steps; 0 for none"
    )
    parser.add_argument("--only", nargs="*", default=[], help="problems whose name has such a word")
    parser.add_argument("--no-comparison", action="store_true", help="leave VR-PDPG out")
    asked = parser.parse_args()
    names = [n for n in PROBLEMS if not asked.only or any(word in n for word in asked.only)]
    print(f"{hardware()}. {asked.seeds} seeds of 1e5 steps, {asked.long_seeds} of 1e6. In %.\n")
    if asked.seeds:
        short_runs(names, asked.seeds)
    if asked.long_seeds:
        print()
        long_runs(names, asked.long_seeds)
    if not asked.no_comparison:
        print()
        compared([name for name in list(PROBLEMS)[:COMPARED] if name in names])


if __name__ == "__main__":
    main()
