"""What is run to reproduce the paper's experiment: its grids, its baselines, and the settings we recommend.

The grids are those of the paper's appendix on experiments, to the letter. What it does not print was chosen and
is said here: the policy is the network of the authors' code (one hidden layer of 32); every run has a seed
of its own, so that a band over the runs is one over settings and chance together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.paper.tracking import tracking_problem
from cvxmdp.policies.families import Table
from cvxmdp.policies.networks import MLP
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.vr_pdpg import VRPDPG

GRIDS = ("8x8", "20x20")
NORMS = ("half-squared", "l2")
BUDGET = "budget/near the expert"
HORIZON = {"8x8": 14, "20x20": 38}
AVERAGED = 100  # trajectories of the baseline "Avg"
SEEDS = 12  # of the settings we recommend: as many runs as the paper averages over
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)  # at which momenta are compared
STEP_SEEDS = 8
MEMORY, WITHOUT, AVERAGE = "VR-PDPG", "momentum 1", "Avg"
PAPER, OURS, COMPARED = "the paper's grid", "recommended", "steps compared"


@dataclass(frozen=True, eq=False)
class Study:
    """Runs that are averaged into one curve.

    Attributes:
        instance, norm: of the problem; see ``tracking_problem``.
        part: PAPER, OURS or COMPARED.
        method: VR-PDPG or a baseline, with what else tells it apart.
        solver: what the runs have in common.
        settings: what each run has of its own; with names that ``cvxmdp.sweep`` knows.
        kept: of how many the paper kept the best; all of them when 0.
    """

    instance: str
    norm: str
    part: str
    method: str
    solver: VRPDPG
    settings: tuple[Mapping[str, Any], ...]
    kept: int = 0

    @property
    def name(self) -> str:
        words = f"{self.instance} {self.norm} {self.method}"
        return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in words)

    @property
    def size(self) -> str:
        """8x8 or 20x20."""
        return size_of(self.instance)

    @property
    def program(self) -> tuple[Any, ...]:
        """Equal for runs that share a compiled program."""
        solver = self.solver
        return self.size, self.norm, repr(solver.policy), solver.batch_size, solver.iterations

    @property
    def problem(self) -> Problem:
        """What all runs solve, up to the budget."""
        return _problem(self.instance, self.norm)


def size_of(instance: str) -> str:
    """The grid of an instance: 8x8 or 20x20."""
    return instance.split("-")[0]


@lru_cache(maxsize=8)
def _problem(instance: str, norm: str) -> Problem:
    """One object per problem, so that its compiled programs are found again."""
    return tracking_problem(instance, norm=norm)


def studies_of(size: str, *, quick: bool = False) -> list[Study]:
    """All studies of a grid size; ``quick`` is a short form to look at, with fewer runs of fewer iterations."""
    if size not in GRIDS:
        raise ProblemError(f"unknown grid {size!r}. {did_you_mean(size, GRIDS)}")
    found = []
    for trajectory in ("traj1", "traj2"):
        instance = f"{size}-{trajectory}"
        for norm in NORMS[:1] if quick else NORMS:
            found += paper_grid(instance, norm)
            found += recommended(instance, norm)
        if not quick:
            found += compared_steps(instance)
    return [_shortened(study) for study in found if _is_short(study)] if quick else found


QUICK_ITERATIONS, QUICK_RUNS, QUICK_BATCHES = 2_000, 3, 1_000


def _is_short(study: Study) -> bool:
    return study.part == PAPER or study.method.startswith(f"{MEMORY}, table")


def _shortened(study: Study) -> Study:
    iterations = QUICK_BATCHES if (study.solver.batch_size or 1) > 1 else QUICK_ITERATIONS
    step = max(1, len(study.settings) // QUICK_RUNS)
    chosen = study.settings[::step][:QUICK_RUNS]
    return replace(
        study, solver=replace(study.solver, iterations=iterations), settings=chosen, kept=0
    )


def paper_grid(instance: str, norm: str) -> list[Study]:
    """The grid of the paper's appendix and the two baselines of its section on experiments.

    For momentum 1 the momenta of the 20x20 grid are one and the same setting, which leaves 15 of the 60.
    """
    size = size_of(instance)
    small = size == "8x8"
    ours = _ours(size, 0.24 if small else 0.22, 0.1, "MLP(32)")
    solver = replace(ours, dual_step=0.1, dual_bound=10.0)
    budgets = (0.001, 0.005, 0.01, 0.05) if small else (0.001, 0.005, 0.01)
    axes: dict[str, Sequence[Any]] = {"primal_step": (0.23, 0.24, 0.25), BUDGET: budgets}
    momenta: dict[str, Sequence[Any]] = {}
    if not small:
        axes = {"dual_step": (0.01, 0.02, 0.03, 0.04, 0.05), BUDGET: budgets}
        momenta = {"momentum": (0.03, 0.05, 0.07, 0.09)}
    plain, every = _combinations(axes), _combinations({**axes, **momenta})
    forgetting = replace(solver, momentum=1.0)
    averaging = replace(forgetting, batch_size=AVERAGED)
    kept = 0 if small else len(plain) // 5  # of the baselines: the same share
    average = f"{AVERAGE} ({AVERAGED} trajectories)"
    return [
        Study(instance, norm, PAPER, MEMORY, solver, every, 0 if small else 12),
        Study(instance, norm, PAPER, WITHOUT, forgetting, plain, kept),
        Study(instance, norm, PAPER, average, averaging, plain, kept),
    ]


# Primal steps of the settings we recommend (docs/results/learning.md), and those at which momentum 1 does best.
RECOMMENDED = {
    ("8x8", "table"): (0.05, 1.0),
    ("8x8", "MLP(32)"): (0.05, 0.3),
    ("20x20", "table"): (0.3, 1.0),
}
DUAL_STEP = {"8x8": 3.0, "20x20": 10.0}
DUAL_BOUND = {"8x8": 1000.0, "20x20": 100.0}


def recommended(instance: str, norm: str) -> list[Study]:
    """The settings we recommend; beside the published constraint also momentum 1, at two steps."""
    size, found = size_of(instance), []
    for (grid, policy), (step, its_own) in RECOMMENDED.items():
        if grid != size:
            continue
        solver = _ours(size, step, 0.3, policy)
        forgetting = replace(solver, momentum=1.0)
        best = replace(forgetting, primal_step=its_own)
        methods = {
            f"{MEMORY}, {policy}, step {step:g}": solver,
            f"{WITHOUT}, {policy}, step {step:g}": forgetting,
            f"{WITHOUT}, {policy}, step {its_own:g}": best,
        }
        for method, one in list(methods.items())[: 3 if norm == NORMS[0] else 1]:
            found.append(Study(instance, norm, OURS, method, one, _seeds_alone(SEEDS)))
    return found


def compared_steps(instance: str) -> list[Study]:
    """Momenta at the same steps, with a table of logits and everything else as we recommend it."""
    size, found = size_of(instance), []
    for step, momentum in itertools.product(STEPS, (0.1, 0.3, 1.0)):
        solver = _ours(size, step, momentum, "table")
        method = f"table, momentum {momentum:g}, step {step:g}"
        found.append(Study(instance, NORMS[0], COMPARED, method, solver, _seeds_alone(STEP_SEEDS)))
    return found


def _ours(size: str, step: float, momentum: float, policy: str) -> VRPDPG:
    return VRPDPG(
        iterations=10_000,
        primal_step=step,
        dual_step=DUAL_STEP[size],
        momentum=momentum,
        batch_size=1,
        horizon=HORIZON[size],
        dual_bound=DUAL_BOUND[size],
        initial_multiplier=1.0,
        policy=Table() if policy == "table" else MLP(32),
    )


def _combinations(axes: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    )


def _seeds_alone(count: int) -> tuple[Mapping[str, Any], ...]:
    """Runs that differ in their seeds only; d_0 is the 0.01 of the problem."""
    return ({},) * count
