"""Measured rates of PDPG beside those of theorem exact, over T = 10^2 ... 10^5.

Three states in a ring, two actions. Moving on earns reward and costs; half of what the best policy
without a budget spends is allowed. Two problems: the reward (concave, not strongly: T^-1/3), and
half the squared distance to the occupancy of that policy (strongly concave: T^-1/2). Each is solved
with the direct parameterisation under exactly the theorem's schedule, where every constant is
known; and with the softmax table under the theorem's dual step, where no primal step is known: it
is tuned once, at T = 10^3, and the grid is printed.

Measured are averages over the iterations, as the theorem has them:

    gap        (1/T) sum_t [f* - f(lambda_t)]            signed
    violation  (1/T) [sum_t -g(lambda_t)]_+
    shortfall  f* - (1/T) sum_t L(lambda_t, mu*) >= 0    gap + mu* (1/T) sum_t -g(lambda_t)

The shortfall is the gap with the value of the violation taken off; unlike the gap it cannot be
negative. f* and mu* are those of ConvexProgram.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp import theory
from cvxmdp.paper.theorem_claims import ring_problems
from hardware import hardware

SHARE = 0.5
ITERATIONS = [round(10 ** (k / 2)) for k in range(4, 11)]
TUNING_ITERATIONS = 1_000
TUNING_STEPS = [round(10.0 ** (k / 2), 3) for k in range(-3, 5)]
QUANTITIES = ("gap", "violation", "shortfall")
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "rates.png"


@dataclass(frozen=True)
class Case:
    """A problem, its optimum, and which part of the theorem it falls under."""

    name: str
    problem: cm.Problem
    strongly_concave: bool
    optimum: float
    multiplier: float
    constants: theory.ProblemConstants

    @property
    def rate(self) -> float:
        """The theorem's."""
        return -1 / 2 if self.strongly_concave else -1 / 3


def cases(share: float) -> list[Case]:
    """Both problems, with this share of the cost of the best policy without a budget."""
    found = []
    for strong, problem in ring_problems(share).items():
        exact = cm.solve(problem, cm.ConvexProgram())
        constants = theory.problem_constants(problem, theory.direct_constants(problem.mdp))
        name = "strongly concave" if strong else "concave"
        found.append(
            Case(name, problem, strong, exact.objective, exact.multipliers["cost"], constants)
        )
    return found


def direct(case: Case, iterations: int) -> cm.PDPG:
    """The theorem's run."""
    return cm.PDPG.theory(
        case.problem,
        iterations,
        strongly_concave=case.strongly_concave,
        check_every=iterations,
    )


def softmax(case: Case, iterations: int, primal_step: float) -> cm.PDPG:
    """The theorem's dual step and box, and a primal step of our own."""
    schedule = theory.exact_schedule(case.constants, iterations, case.strongly_concave)
    return cm.PDPG(
        iterations,
        primal_step=primal_step,
        dual_step=schedule.dual_step,
        dual_bound=schedule.dual_bound,
        direction="vanilla",
        policy=cm.Table(),
        iterate="average",
        tolerance=None,
        check_every=iterations,
    )


def measure(case: Case, solver: cm.PDPG) -> dict[str, float]:
    """The averages of one run, from the solver's own history."""
    solution = cm.solve(case.problem, solver)
    found = theory.compare(
        case.problem, solution, case.constants, case.strongly_concave, optimum=case.optimum
    )
    by_theory = isinstance(solver.policy, cm.Direct)
    assert not (by_theory and found.departures), found.departures
    return {
        "iterations": found.iterations,
        "gap": found.gap,
        "violation": found.violation,
        "shortfall": found.gap - case.multiplier * found.slack["cost"],
        "last multiplier": float(solution.history["multipliers"]["cost"][-1]),
        "gap bound": found.bound.gap if by_theory else np.nan,
        "violation bound": found.bound.violation if by_theory else np.nan,
    }


def tuned(case: Case) -> float:
    """The primal step of the softmax table with the best run at T = 10^3, of a grid.

    Best by what the theorem bounds, the larger of |gap| and violation. The shortfall alone would
    not do: every mixture of the policies that are best for mu* has none, however infeasible.
    """
    runs = {}
    for step in TUNING_STEPS:
        found = measure(case, softmax(case, TUNING_ITERATIONS, step))
        runs[step] = max(abs(found["gap"]), found["violation"])
    best = min(runs, key=runs.__getitem__)
    grid = ", ".join(f"{step:g}: {value:.4f}" for step, value in runs.items())
    print(f"\nSoftmax table, {case.name}: primal step tuned once at T = {TUNING_ITERATIONS:,}")
    print(f"  max(|gap|, violation) by step: {grid}; taken: {best:g}")
    return best


def rates(rows: list[dict[str, float]]) -> dict[str, theory.Rate | None]:
    """A slope of each quantity's size; None where one of them is zero."""
    times = [int(row["iterations"]) for row in rows]
    sizes = {name: [abs(row[name]) for row in rows] for name in QUANTITIES}
    return {
        name: theory.fit_rate(times, values) if min(values) > 0 else None
        for name, values in sizes.items()
    }


def describe(case: Case) -> None:
    constants, given = case.constants, case.constants.parameterisation
    objective, budget = case.problem.utility, case.problem.constraints["cost"]
    print(f"\n{case.name}: maximise {objective!r} subject to {budget!r}")
    print(f"  f* = {case.optimum:.6f}, mu* = {case.multiplier:.4f}")
    print(
        f"  M = {constants.bound:.4g} (f {constants.objective_magnitude:.4g}, g "
        f"{constants.slack_magnitude:.4g}), M_lambda = {constants.lipschitz:.4g}, l_lambda = "
        f"{constants.smoothness:.4g}, sigma = {constants.strength:.4g}"
    )
    print(
        f"  l_theta = {constants.parameter_smoothness:.4g}, xi = {constants.margin:.4g}, C_0 = "
        f"{constants.total_dual_bound:.4g}, L_lambda = {given.inverse_lipschitz:.4g}, eps_bar = "
        f"{given.inverse_radius:g}"
    )
    power, mixing = "-2/3", ""
    if case.strongly_concave:
        power, mixing = "-1/2", f", tilde epsilon {theory.strong_mixing(constants):.3g}"
    print(f"  primal step {constants.primal_step:.4g}, dual step T^({power}){mixing}")


def show(case: Case, family: str, rows: list[dict[str, float]]) -> dict[str, Any]:
    print(f"\n{case.name}, {family}")
    print(
        "       T         gap       bound   violation       bound   shortfall  mu_{T-1}/(T eta_mu)"
    )
    for row in rows:
        count = int(row["iterations"])
        dual_step = count ** (-0.5 if case.strongly_concave else -2 / 3)
        print(
            f"{count:>8,} {row['gap']:11.5f} {row['gap bound']:11.4g} {row['violation']:11.5f} "
            f"{row['violation bound']:11.4g} {row['shortfall']:11.5f} "
            f"{row['last multiplier'] / (count * dual_step):18.5f}"
        )
    found = rates(rows)
    print(f"  slopes over {len(rows)} points, 95% intervals; the theorem's rate {case.rate:.3f}")
    for name, rate in found.items():
        print(f"    {'|gap|' if name == 'gap' else name:10} {rate or 'no slope: a zero'}")
    return {name: asdict(rate) if rate else None for name, rate in found.items()}


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Measurement and bound over T, one panel per problem."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result["case"] for result in results))
    figure = Figure(figsize=(5.6 * len(names), 4.8), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    colours = {"gap": "tab:blue", "violation": "tab:red"}
    for axis, name in zip(axes, names, strict=True):
        for result in (result for result in results if result["case"] == name):
            times = [row["iterations"] for row in result["rows"]]
            is_direct = result["family"] == "direct"
            for quantity, colour in colours.items():
                label = "|gap|" if quantity == "gap" else quantity
                values = [abs(row[quantity]) for row in result["rows"]]
                style = {"marker": "o" if is_direct else "x", "color": colour}
                style["linestyle"] = "-" if is_direct else "--"
                axis.loglog(times, values, label=f"{label}, {result['family']}", **style)
            if is_direct:
                bounds = [row["violation bound"] for row in result["rows"]]
                axis.loglog(times, bounds, color="black", label="theorem's bounds (both)")
                start = 1.6 * result["rows"][0]["violation"]
                guide = [start * (count / times[0]) ** result["rate"] for count in times]
                order = "-1/2" if result["rate"] == -0.5 else "-1/3"
                axis.loglog(times, guide, ":", color="grey", label=f"slope {order}")
        axis.set(title=name, xlabel="iterations T", ylabel="average over the iterations")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of rates.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--share", type=float, default=SHARE, help="of the unconstrained cost")
    options = parser.parse_args()
    started = time.perf_counter()
    print(hardware())
    studied = cases(options.share)
    print(f"{studied[0].problem.mdp}; initial distribution uniform")
    for case in studied:
        describe(case)
    results = []
    for case in studied:
        rows = [measure(case, direct(case, count)) for count in ITERATIONS]
        step = tuned(case)
        table = [measure(case, softmax(case, count, step)) for count in ITERATIONS]
        for family, measured, primal in (
            ("direct", rows, case.constants.primal_step),
            ("softmax table", table, step),
        ):
            slopes = show(case, family, measured)
            results.append(
                {
                    "case": case.name,
                    "family": family,
                    "primal step": primal,
                    "rate": case.rate,
                    "slopes": slopes,
                    "rows": measured,
                }
            )
    options.out.mkdir(parents=True, exist_ok=True)
    record = {"hardware": hardware(), "results": results}
    (options.out / "rates.json").write_text(json.dumps(record, indent=1))
    draw(results, options.figure)
    print(
        f"\n{time.perf_counter() - started:.0f} s; {options.out / 'rates.json'}, {options.figure}"
    )


if __name__ == "__main__":
    main()
