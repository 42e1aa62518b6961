"""The paper's four examples, each in two instances: what every learner reaches, and what it costs on the way.

    make four-examples                                           # some minutes on two cores
    python benchmarks/four_examples.py --only "safe learning" --seeds 5 --keep out/four_examples.jsonl

The optimum is proven by ConvexProgram. Learned policies are evaluated exactly: gaps are in percent of what the
uniform policy is away from the optimum, violations in the units of the constraint, at the end and over the
policies that were played. Intervals are 95% over seeds (Student's t). A learner is a line in LEARNERS.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.problems.while_learning import WORST, share_violated
from cvxmdp.runs.sweep_results import interval
from hardware import hardware
from kept_measurements import Kept
from pdpg import reference_grid

BATCH = 10  # trajectories per iteration of the recommended settings; the theorem has one


@dataclass(frozen=True)
class Example:
    """One instance of an example.

    Attributes:
        name, instance: what it is.
        problem: to learn.
        start: the policy that every learner starts from; its own where None.
    """

    name: str
    instance: str
    problem: cm.Problem
    start: Any = None


def small_grid() -> cm.TabularMDP:
    return cm.gridworld(5, slip=0.1, discount=0.9, hazards=[6, 7, 12, 18], rewards={24: 1.0})


def examples() -> list[Example]:
    """Examples 1 to 4 of the paper."""
    found = []
    for instance, mdp in (("8x8", reference_grid()), ("5x5", small_grid())):
        least = (1.0 - mdp.discount) ** -1
        shy = cm.linear("hazard") <= 0.05 * least
        barrier = cm.Problem(mdp, maximize=cm.linear("reward") + 0.1 * cm.log_barrier(shy))
        inside = cm.slater(
            cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"hazard": shy})
        )
        found.append(Example("1 safe learning (barrier)", instance, barrier, inside.policy))
    for instance, mdp in (("8x8", reference_grid()), ("5x5", small_grid())):
        rarely = {"hazard": cm.linear("hazard", per="step") <= 0.05}
        explore = cm.Problem(mdp, maximize=cm.entropy(), subject_to=rarely)
        found.append(Example("2 safe exploration (entropy)", instance, explore))
    mdp = reference_grid()
    careless = cm.occupancy_of(mdp, np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))
    rarely = {"hazard": cm.linear("hazard", per="step") <= 0.08}
    for norm in ("kl", "l2"):
        imitate = cm.Problem(mdp, minimize=cm.distance(careless, norm=norm), subject_to=rarely)
        found.append(Example("3 apprenticeship", norm, imitate))
    rewards = cm.returns("reward", "hazard")
    boxed = cm.distance(rewards, cm.box([3.0, 0.0], [5.0, 1.5])) <= 0.3
    near = cm.distance(careless, norm="l2") <= 1.0
    for instance, allowed in (("a box of returns", boxed), ("near occupancies", near)):
        reach = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"inside": allowed})
        found.append(Example("4 feasibility", instance, reach))
    return found


Learner = Callable[[Example, int], Any]  # the example and how many iterations of BATCH trajectories

# A learner is a line; None where it does not take the example.
LEARNERS: dict[str, Learner] = {
    "PDPG, exact gradients": lambda example, n: cm.PDPG(iterations=min(n, 1_000)),
    "VR-PDPG, theorem": lambda example, n: cm.VRPDPG.theory(
        example.problem, BATCH * n, dual_bound=1_000.0
    ),
    "VR-PDPG, recommended": lambda example, n: cm.VRPDPG(iterations=n),
    "VR-PDPG, momentum 1": lambda example, n: cm.VRPDPG(iterations=n, momentum=1.0),
    "VR-PDPG, natural": lambda example, n: cm.VRPDPG(iterations=n, direction="natural"),
    # What counts prove about a barrier without constraints is not there yet.
    "ModelBased": lambda example, n: cm.ModelBased(10 * n) if example.problem.constraints else None,
}


@dataclass(frozen=True)
class Outcome:
    """What one run is worth, by its exact occupancy.

    Attributes:
        objective, violation: of the answer; of several constraints the worst.
        violated, worst: the share of the policies played that violated a constraint, and by how much at worst;
            None where nothing was played.
        samples: steps in the model.
    """

    objective: float
    violation: float
    violated: float | None
    worst: float | None
    samples: float


def outcome(solution: cm.Solution) -> Outcome:
    worst = solution.stats.get(WORST)
    return Outcome(
        solution.objective,
        max(solution.violation.values(), default=0.0),
        share_violated(solution.stats),
        max(worst.values()) if worst else None,
        float(solution.stats.get("samples") or 0.0),
    )


def measured(
    example: Example, learner: str, iterations: int, seeds: int, kept: Kept
) -> list[Outcome]:
    """Of every seed; exact solvers have one answer."""
    solver = LEARNERS[learner](example, iterations)
    count = seeds if solver.needs_seed else 1

    def measure() -> dict[str, Any]:
        if not solver.needs_seed:
            found = [cm.solve(example.problem, solver, start=example.start, progress=False)]
        else:
            settings = {"start": example.start, "rows": 100, "progress": False}
            lanes = seeds if solver.has_lanes else None
            runs = cm.sweep(example.problem, solver, seeds=range(seeds), lanes=lanes, **settings)
            found = [run.solution for run in runs]
        return {"outcomes": [asdict(outcome(solution)) for solution in found]}

    key = (example.name, example.instance, learner, repr(solver), count)
    kept.measure(key, measure)
    return [Outcome(**one) for one in kept.known[key]["outcomes"]]


def row(example: Example, learner: str, found: list[Outcome], optimum: float) -> str:
    """One line of the table."""
    problem = example.problem
    uniform = problem.evaluate(cm.uniform_policy(problem.mdp)).objective
    if not np.isfinite(uniform):  # outside a barrier's domain: from where learning starts
        uniform = problem.evaluate(example.start).objective
    span = abs(optimum - uniform)
    gaps = 100 * np.array([problem.sign * (optimum - one.objective) for one in found]) / span
    violations = np.array([one.violation for one in found])
    shares = np.array([one.violated for one in found if one.violated is not None])
    worst = max((one.worst for one in found if one.worst is not None), default=0.0)
    samples = float(np.mean([one.samples for one in found]))
    cells = [
        example.name,
        example.instance,
        f"{optimum:.4f}",
        learner,
        str(len(found)),
        interval(gaps).words(1),
        f"{gaps.max():.1f}",
        f"{violations.mean():.2g}, worst {violations.max():.2g}",
        f"{interval(100 * shares).words(0)}%, worst {worst:.2g}" if shares.size else "-",
        f"{samples / 1e3:,.0f} k" if samples else "-",
    ]
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| example | instance | optimum | learner | seeds | gap at the end, % of the range | worst | "
    f"violation at the end | policies played that violate | steps |\n|{' --- |' * 10}"
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=2_000)
    parser.add_argument(
        "--only", default="", help="rows whose example, instance and learner have this"
    )
    parser.add_argument("--keep", type=Path, help="a file of outcomes, to go on from")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", cm.CvxmdpWarning)
    print(f"{hardware()}\n\n{HEADER}", flush=True)
    kept = Kept(given.keep)
    for example in examples():
        wanted = [
            learner
            for learner in LEARNERS
            if given.only.lower() in f"{example.name} {example.instance} {learner}".lower()
            and LEARNERS[learner](example, given.iterations) is not None
        ]
        if wanted:
            optimum = cm.solve(example.problem, cm.ConvexProgram()).objective
        for learner in wanted:
            found = measured(example, learner, given.iterations, given.seeds, kept)
            print(row(example, learner, found, optimum), flush=True)


if __name__ == "__main__":
    main()
