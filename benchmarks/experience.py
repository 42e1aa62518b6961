"""Counting and planning, measured: ModelBased beside VR-PDPG and cautious plans, on problems with known optima.

    python benchmarks/experience.py [--seeds 20] [--long-seeds 3] [--only WORDS ...] [--minutes 10]

Distances are to the optimum, as shares of the objective's range (its largest minus its smallest value over
policies); answers are evaluated exactly. *Noise* is what no method can do without, in the same unit: the
optimum's multipliers times the standard errors of the slacks after so many steps; and the standard error of the
optimum's Lagrangian itself, as policies that differ by less cannot be told apart. What was measured is kept in
benchmarks/results/experience.jsonl, a line for each problem, seed and number of steps, so that another run adds
seeds. Prints the tables of docs/results/experience.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.algorithms.optimism import standard_errors
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.counted_plans import bounded_slope, shadow_reward
from cvxmdp.solvers.model_based_work import ModelBasedWork
from experience_problems import ANYWHERE, PROBLEMS, RANDOM, TAXI, objective_range
from hardware import hardware
from kept_measurements import Kept

RESULTS = Path(__file__).parent / "results" / "experience.jsonl"
SHORT, LONG = 100_000, 1_000_000
HORIZON, BATCH = 80, 10
FIRST = list(PROBLEMS)[:8]  # that cautious plans are made for in all seeds; of the others in these
FEW_SEEDS = 3
COMPARED = FIRST[:6]  # that VR-PDPG learns as well


class Known:
    """A problem with its optimum."""

    def __init__(self, name: str) -> None:
        self.name, self.problem = name, {**PROBLEMS, **ANYWHERE, **RANDOM}[name]()
        self.best = cm.solve(self.problem)
        self.range = objective_range(self.problem)

    def distance(self, policy: Any) -> float:
        """To the optimum, in %."""
        found = self.problem.evaluate(policy).objective
        return 100 * self.problem.sign * (self.best.objective - found) / self.range

    def violation(self, policy: Any) -> float:
        """Largest, in % of the budget."""
        missed = self.problem.evaluate(policy).violation
        return 100 * max(missed[name] / abs(b) for name, b in self.problem.budgets.items())

    def judged(self, policy: Any) -> dict[str, float]:
        """Both, for the record."""
        return {
            "distance": round(self.distance(policy), 4),
            "violation": round(self.violation(policy), 4),
        }

    def own_noise(self, model: cm.TabularMDP) -> float:
        """The standard error of the optimum's Lagrangian that counts like these leave, in %."""
        slope = bounded_slope(shadow_reward(self.problem, self.best), self.best.occupancy)
        policy = np.asarray(self.best.policy.probabilities())
        return float(100 * standard_errors(model, policy, slope[None])[0] / self.range)

    def learned(self, steps: int, seed: int) -> dict[str, Any]:
        """ModelBased, and a cautious plan (confidence 0.95) from what it counted."""
        found = cm.solve(self.problem, cm.ModelBased(steps), seed=seed, progress=False)
        errors, prices = found.stats["standard_error"], self.best.multipliers
        noise = 100 * sum(prices[name] * e for name, e in errors.items()) / self.range
        own = round(self.own_noise(found.stats["model"]), 4)
        known = {**self.judged(found.policy), "noise": round(noise, 4), "own_noise": own}
        if self.name not in FIRST and seed >= FEW_SEEDS:
            return known
        plan = cm.solve(self.problem.with_model(found.stats["model"]), cautious=0.95)
        proven = self.judged(plan.policy) if plan.status is cm.Status.CAUTIOUS else None
        return {**known, "cautious": proven}

    def followed(self, steps: int, seed: int) -> dict[str, Any]:
        """VR-PDPG with the settings of docs/vr-pdpg.md where constraints bind."""
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
        return self.judged(cm.solve(self.problem, solver, seed=seed, progress=False).policy)


known = cache(Known)


def measure(kept: Kept, names: list[str], seeds: int, long_seeds: int, comparison: bool) -> None:
    """What is not known yet, seed by seed."""
    for steps, count in ((SHORT, seeds), (LONG, long_seeds)):
        for seed in range(count):
            for name in names:
                key = ("ModelBased", name, steps, seed)
                kept.measure(key, lambda k=key: known(k[1]).learned(k[2], k[3]))
    for name in names if comparison else []:
        if name in COMPARED:
            for steps in (SHORT, LONG):
                key = ("VRPDPG", name, steps, 0)
                kept.measure(key, lambda k=key: known(k[1]).followed(k[2], k[3]))


def row(cells: list[str]) -> None:
    """Of a table in Markdown."""
    print("| " + " | ".join(cells) + " |")


def learned_table(kept: Kept, names: list[str], steps: int) -> None:
    """What so many steps give, and the cautious plans from what was counted."""
    head = ["problem", "seeds", "median / worst", "violation, mean / worst", "noise: slacks, own"]
    row([*head, "cautious plans proven", "their worst distance, violation", "s"])
    row(["---"] * 8)
    for name in names:
        found = kept.of("ModelBased", name, steps)
        if not found:
            continue
        away = [one["distance"] for one in found]
        broken = [one["violation"] for one in found]
        plans = [one["cautious"] for one in found if "cautious" in one]
        proven = [one for one in plans if one]
        spread = [one["own_noise"] for one in found if "own_noise" in one]
        own = f"{np.mean(spread):.2f}" if spread else "-"
        worst = [
            f"{max(one[what] for one in proven):.2f}"
            for what in ("distance", "violation")
            if proven
        ]
        row(
            [
                name,
                str(len(found)),
                f"{np.median(away):.2f} / {max(away):.2f}",
                f"{np.mean(broken):.2f} / {max(broken):.1f}",
                f"{np.mean([one['noise'] for one in found]):.2f}, {own}",
                f"{len(proven)} of {len(plans)}" if plans else "-",
                ", ".join(worst) or "-",
                f"{np.median([one['seconds'] for one in found]):.0f}",
            ]
        )


def compared_table(kept: Kept, names: list[str]) -> None:
    """VR-PDPG on the same problems, one seed."""
    row(["problem", "VR-PDPG, 1e5 steps: distance, violation", "1e6 steps"])
    row(["---"] * 3)
    for name in names:
        found = [kept.known.get(("VRPDPG", name, steps, 0)) for steps in (SHORT, LONG)]
        if all(found):
            row([name, *(f"{one['distance']:.1f}, {one['violation']:.1f}" for one in found if one)])


def shares(steps: int = SHORT) -> None:
    """What playing and planning take of the processor, through Gymnasium; planning without the last proof."""
    for name, map_name in (("FrozenLake-v1", "4x4"), ("FrozenLake-v1", "8x8"), (TAXI, None)):
        lake = map_name is not None
        played = cm.GymnasiumEnv(
            name,
            discount=0.95,
            signals={"cost": lambda o, a, p, reward, ended: float(ended and reward <= 0)},
            bounds={"reward": (0, 1) if lake else (-10, 20), "cost": (0, 1)},
            **({"map_name": map_name} if lake else {}),
        )
        budget = {"cost": cm.linear("cost") <= 0.3}
        problem = cm.Problem(played, maximize=cm.linear("reward"), subject_to=budget)
        work = ModelBasedWork(cm.ModelBased(steps), Task(problem, seed=0))
        spent = dict.fromkeys(("round", "planned", "curious", "answer"), 0.0)
        for call in spent:
            setattr(work, call, timed(getattr(work, call), spent, call))
        state = work.first()
        while work.where(state)[0] < steps:
            state, _ = work.advance(state, steps)
        work.answer(problem.with_model(work.estimate(state.tally.merged())))
        planning = sum(spent.values()) - spent["round"]
        row([f"{name} {map_name or ''}", f"{spent['round']:.1f}", f"{planning:.1f}"])


def timed(call: Callable[..., Any], spent: dict[str, float], name: str) -> Callable[..., Any]:
    """The same, with its seconds of the processor added up."""

    def wrapped(*given: Any) -> Any:
        began = time.process_time()
        found = call(*given)
        spent[name] += time.process_time() - began
        return found

    return wrapped


def main() -> None:
    """Measure what is missing, print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="of runs with 1e5 steps")
    parser.add_argument("--long-seeds", type=int, default=3, help="of runs with 1e6 steps")
    parser.add_argument("--only", nargs="*", default=[], help="problems whose name has such a word")
    parser.add_argument("--no-comparison", action="store_true", help="leave VR-PDPG out")
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="of processor time, for what is not known yet"
    )
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    parser.add_argument("--cost", action="store_true", help="what playing and planning take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of measurements")
    asked = parser.parse_args()
    if asked.cost:
        print(f"{hardware()}. Environment, seconds of playing {SHORT:,} steps, of planning")
        shares()
        return
    kept = Kept(asked.results, asked.minutes, asked.again)
    names = [n for n in PROBLEMS if not asked.only or any(word in n for word in asked.only)]
    measure(kept, names, asked.seeds, asked.long_seeds, not asked.no_comparison)
    print(f"{hardware()}. In %; seconds of the processor.")
    for steps in (SHORT, LONG):
        print(f"\n{steps:,} steps\n")
        learned_table(kept, names, steps)
    print()
    compared_table(kept, names)


if __name__ == "__main__":
    main()
