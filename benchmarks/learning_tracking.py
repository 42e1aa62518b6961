"""VR-PDPG on the paper's four instances: what it reaches, what momentum does, and what corners are.

Half the squared distance to the expert, at most d_0, as in the published runs. All numbers are means over
windows of 250 episodes, as the published figures have them, with 95% intervals over seeds (Student's t).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.paper.learning_curves import Curves, curves_of
from cvxmdp.paper.published import VARIANCE_REDUCED, WITHOUT_MEMORY, published_curves
from cvxmdp.paper.studies import BUDGET, NORMS, recommended, size_of
from cvxmdp.paper.tracking import INSTANCES, tracking_problem
from cvxmdp.runs.record import RunRecord
from cvxmdp.runs.sweep_records import sweep_records
from cvxmdp.runs.sweep_results import interval

BUDGETS = (0.001, 0.005, 0.01, 0.05)
MOMENTA = (0.03, 0.1, 0.3, 1.0)
STEPS = {"8x8": (0.01, 0.03, 0.1, 0.3, 1.0), "20x20": (0.03, 0.1, 0.3, 1.0, 3.0)}  # compared
COMMON = {"8x8": 0.03, "20x20": 0.1}  # the one that all momenta are compared at
COMPARED = {"8x8": 2_000, "20x20": 5_000}  # iterations
AS_GOOD = 0.5  # returns that differ by less are the same; the faster one is then better
CORNERED = 0.01  # a tracking error that says: deterministic, and off the expert's way
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "learning.png"


def setting(instance: str, iterations: int, **changes: Any) -> cm.VRPDPG:
    """The documented setting of a grid size."""
    given = {"iterations": iterations, "evaluate_every": iterations, **changes}
    return replace(recommended(instance, NORMS[0])[0].solver, **given)


def published(instance: str, algorithm: str = VARIANCE_REDUCED) -> tuple[float, float] | None:
    """Return and tracking error of the last published window; None where nothing was published."""
    curve = published_curves(instance).get(algorithm)
    return None if curve is None else curve.at(int(curve.episode[-1]))


def learn(
    instance: str, solver: cm.VRPDPG, over: Mapping[str, Sequence[Any]], seeds: int
) -> dict[tuple[Any, ...], Curves]:
    """The curves of every combination of values, by these values."""
    sweep = cm.sweep(
        tracking_problem(instance),
        solver,
        over=over,
        seeds=range(seeds),
        rows=solver.iterations,
        progress=False,
    )
    members: dict[tuple[Any, ...], list[RunRecord]] = {}
    for run, record in zip(sweep, sweep_records(sweep), strict=True):
        members.setdefault(tuple(run.settings.values()), []).append(record)
    return {values: curves_of(instance, records) for values, records in members.items()}


def plus_minus(values: np.ndarray, digits: int = 1) -> str:
    """Mean and half the width of its interval."""
    return interval(values).words(digits)


def reached(seeds: int, iterations: int = 10_000, figure: Path | None = None) -> None:
    """The four instances for four budgets, beside the published table; and momentum 1."""
    checkpoints = [at for at in (1_000, 2_000, 5_000, 10_000) if at <= iterations]
    head = " | ".join(f"return after {at:,}" for at in checkpoints)
    print(
        f"| instance | policy | d_0 | {head} | worst seed | tracking error | published return, error |\n"
        f"|{' --- |' * (6 + len(checkpoints))}"
    )
    drawn: dict[str, dict[str, Curves]] = {}
    for instance, name, policy in studied():
        solver = setting(instance, iterations, policy=policy)
        found = learn(instance, solver, {BUDGET: BUDGETS}, seeds)
        for (budget,), curves in found.items():
            print(_row(instance, name, f"{budget:g}", curves, checkpoints), flush=True)
        drawn.setdefault(instance, {})[f"{name}, momentum {solver.momentum:g}"] = found[(0.01,)]
    print(
        f"\nmomentum=1 at its own best step, d_0 = 0.01:\n\n| instance | policy | step | {head} | worst ",
        end="",
    )
    print(
        f"seed | tracking error | published return, error |\n|{' --- |' * (6 + len(checkpoints))}"
    )
    for instance, name, policy in studied():
        step = best_without_memory(instance, policy, seeds)
        solver = setting(instance, iterations, policy=policy, momentum=1.0, primal_step=step)
        ((_, curves),) = learn(instance, solver, {}, seeds).items()
        print(_row(instance, name, f"{step:g}", curves, checkpoints, memory=False), flush=True)
        drawn[instance][f"{name}, momentum 1, step {step:g}"] = curves
    if figure is not None:
        draw(drawn, figure)


def studied() -> list[tuple[str, str, Any]]:
    """Instances with the policies they are learned with."""
    small = [("table", cm.Table()), ("MLP(32)", cm.MLP(32))]
    return [
        (instance, name, policy)
        for instance in INSTANCES
        for name, policy in (small if instance.startswith("8x8") else small[:1])
    ]


def best_without_memory(instance: str, policy: Any, seeds: int) -> float:
    """The best step of momentum 1 on the grid that ``momenta`` compares."""
    size = size_of(instance)
    solver = setting(instance, COMPARED[size], policy=policy, momentum=1.0)
    found = learn(instance, solver, {"primal_step": STEPS[size]}, seeds)
    return best_step({step: found[(step,)] for step in STEPS[size]})


def _row(
    instance: str,
    name: str,
    what: str,
    curves: Curves,
    checkpoints: Sequence[int],
    memory: bool = True,
) -> str:
    theirs = published(instance, VARIANCE_REDUCED if memory else WITHOUT_MEMORY)
    beside = "not published" if theirs is None else f"{theirs[0]:.1f}, {theirs[1]:.3f}"
    returns, errors = curves.after(checkpoints[-1])
    cells = " | ".join(plus_minus(curves.after(at)[0]) for at in checkpoints)
    return (
        f"| {instance} | {name} | {what} | {cells} | {returns.min():.1f} | "
        f"{plus_minus(errors, 3)} | {beside} |"
    )


def momenta(seeds: int, instances: Sequence[str] = INSTANCES) -> None:
    """Each momentum at its own best step, and all at a common one, with the same number of episodes."""
    print(
        "| instance | policy | momentum | best step | return, all episodes | return, last | tracking error, "
        "last | common step | return, all episodes | return, last | tracking error, last |\n"
        f"|{' --- |' * 11}"
    )
    for instance, name, policy in studied():
        if instance not in instances:
            continue
        size = size_of(instance)
        solver = setting(instance, COMPARED[size], policy=policy)
        found = learn(instance, solver, {"momentum": MOMENTA, "primal_step": STEPS[size]}, seeds)
        for momentum in MOMENTA:
            best = best_step({step: found[momentum, step] for step in STEPS[size]})
            cells = " | ".join(
                f"{step:g} | {_summary(found[momentum, step])}" for step in (best, COMMON[size])
            )
            print(f"| {instance} | {name} | {momentum:g} | {cells} |", flush=True)


def best_step(by_step: Mapping[float, Curves]) -> float:
    """The best return over the last window; of those about as good, the best over all episodes."""
    last = {step: curves.after(curves.end)[0].mean() for step, curves in by_step.items()}
    good = [step for step in by_step if last[step] > max(last.values()) - AS_GOOD]
    return max(good, key=lambda step: float(by_step[step].returns.mean()))


def _summary(curves: Curves) -> str:
    returns, errors = curves.after(curves.end)
    everything = plus_minus(curves.returns.mean(axis=1))
    return f"{everything} | {plus_minus(returns)} | {plus_minus(errors, 3)}"


def corners(seeds: int, iterations: int = 5_000) -> None:
    """What each departure from the paper does to a setting that ends in corners."""
    import optax

    instance = "8x8-traj2"
    variants: list[tuple[str, dict[str, Any]]] = [
        ("the setting as it is", {}),
        ("dual_step=10", {"dual_step": 10.0}),
        ("dual_bound=1000", {"dual_bound": 1_000.0}),
        ("dual_step=1, dual_bound=100", {"dual_step": 1.0, "dual_bound": 100.0}),
        ("dual_step=10, dual_bound=1000", {"dual_step": 10.0, "dual_bound": 1_000.0}),
        ("initial_multiplier=10", {"initial_multiplier": 10.0}),
        ("baseline", {"baseline": True}),
        ("primal_decay=0.25, five times the step", {"primal_decay": 0.25, "times": 5.0}),
        ("dual_decay=0.25", {"dual_decay": 0.25}),
        ("Adam (Optax) at 0.01", {"primal_step": optax.adam(0.01)}),
        ("a third of the step", {"times": 1 / 3}),
        ("momentum=1", {"momentum": 1.0}),
        ("momentum=1, three times the step", {"momentum": 1.0, "times": 3.0}),
        ("Avg (momentum=1, batch_size=100)", {"momentum": 1.0, "batch_size": 100}),
    ]
    print(
        "| change | "
        + " | ".join(
            f"{name}: return after 1,000 | return | tracking error | seeds in a corner"
            for name in ("table", "MLP(32)")
        )
        + f" |\n|{' --- |' * 9}"
    )
    for name, changes in variants:
        cells = []
        for policy, step in ((cm.Table(), 0.1), (cm.MLP(32), 0.03)):
            changed = dict(changes)
            times = changed.pop("times", 1.0)
            given = {"momentum": 0.3, "dual_step": 0.1, "dual_bound": 10.0}
            given |= {"primal_step": times * step, **changed}
            solver = setting(instance, iterations, policy=policy, **given)
            ((_, curves),) = learn(instance, solver, {}, seeds).items()
            returns, errors = curves.after(iterations)
            cells.append(
                f"{plus_minus(curves.after(1_000)[0])} | {plus_minus(returns)} | {plus_minus(errors, 3)} | "
                f"{int((errors > CORNERED).sum())} of {seeds}"
            )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def draw(drawn: Mapping[str, Mapping[str, Curves]], path: Path) -> None:
    """Returns and tracking errors of the four instances, means with intervals over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 6.4), layout="constrained")
    axes = figure.subplots(2, len(drawn), squeeze=False)
    for column, (instance, curves) in enumerate(drawn.items()):
        for name, one in curves.items():
            for axis, values in zip(axes[:, column], (one.returns, one.errors), strict=True):
                at, mean, half = one.band(values)
                (line,) = axis.plot(at, mean, label=name)
                axis.fill_between(at, mean - half, mean + half, alpha=0.2, color=line.get_color())
        theirs = published(instance)
        assert theirs is not None  # of VR-PDPG there is always one
        for axis, value in zip(axes[:, column], theirs, strict=True):
            axis.axhline(value, color="grey", linestyle=":", label="published, at its end")
            axis.grid(alpha=0.3)
        axes[0, column].set(title=instance, ylabel="return, mean over 250 episodes")
        axes[1, column].set(
            xlabel="iterations (episodes)", ylabel="tracking error", yscale="log", ylim=(1e-4, 20)
        )
        axes[0, column].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
