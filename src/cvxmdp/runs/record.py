"""A run as plain data: what a store keeps and a report shows. Made from a solution, read from a folder.

Nothing in a record can compute: texts, numbers and arrays only. So it can be written, read by somebody who
does not trust its author, and drawn, without the problem it came from.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms import walk
from cvxmdp.base.interval import Interval
from cvxmdp.base.jsonable import from_jsonable, to_jsonable
from cvxmdp.base.machine import environment
from cvxmdp.models.layout import GridLayout
from cvxmdp.policies.tables import table_of
from cvxmdp.problems.findings import Finding
from cvxmdp.problems.solution import Status
from cvxmdp.problems.solution_text import constraint_rows, individual_lines

if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate
    from cvxmdp.policies import Policy
    from cvxmdp.problems.problem import Problem
    from cvxmdp.problems.solution import Solution
    from cvxmdp.runs.frontier import Frontier

# Arrays of this name are what a distance is measured to: an expert, for instance.
TARGET = "target/"
# (K,) and (K, S, A), where a history has them.
SNAPSHOTS = ("snapshot_iteration", "snapshot_occupancy")
ENVELOPE_POINTS = 121
PLACES = {
    "iteration": "iteration",
    "objective": "iteration",
    "slack": "iteration",
    "played_objective": "played",
    "played_slack": "played",
}
# The iterations at which everything else was recorded, where a history has them.
OTHERS_AT = "recorded"
ELSEWHERE = ("arrays", "series", "policy", "certificate")  # fields that have files of their own
COUNTED = ("iterations", "samples", "seconds")


@dataclass(frozen=True)
class Series:
    """One curve: ``values`` at ``iterations``, both (n,)."""

    iterations: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class ConstraintFacts:
    """A constraint as text, and how the policy does in it."""

    name: str
    requires: str
    sense: str
    budget: float
    value: float
    slack: float
    multiplier: float
    units: str = ""
    status: str = ""  # "satisfied", "violated" or "open", where there is a policy
    interval: Interval | None = None  # of the slack, where it was measured
    # Lines with the values of what stands inside minima, spreads and the like.
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class FrontierFacts:
    """A budget frontier as numbers.

    Attributes:
        constraint, sense: whose budget, and "<=" or ">=".
        budgets, lower, upper, prices: of the solved budgets; NaN where infeasible. A price is what ``step`` of
            slack is worth at most.
        grid, floor, ceiling: the proven envelopes between them.
        infeasible_until, free_from: proven ends; infinite where not met.
    """

    constraint: str
    sense: str
    budgets: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    prices: tuple[float, ...]
    grid: tuple[float, ...]
    floor: tuple[float, ...]
    ceiling: tuple[float, ...]
    infeasible_until: float
    free_from: float
    step: float = 1.0


@dataclass(frozen=True)
class RunRecord:
    """Everything that is known of a run.

    Attributes:
        title: of the problem.
        label: what tells this run's settings from those of its neighbours; runs with one title and one label
            differ in their seeds only and are averaged in a report.
        seed: of the random numbers, where there were any.
        sense, utility, inside: the objective in words, and lines with the values of what stands inside it.
        constraints: in the problem's order.
        model: in words.
        findings: what a learner's history says of its answer.
        estimated: whether what the policy is worth was measured in episodes of an environment, not computed.
        discount, scale, action_names, layout: for pictures; occupancies times the scale are distributions.
        status, message, objective: how it ended.
        stats: numbers and texts about the run.
        settings: of the solver, as text.
        rerun: how to run it again.
        environment: versions and hardware.
        signals: of a model, the return of each signal under the policy, and its mean per step.
        arrays: ``occupancy``, ``probabilities``, ``target/NAME``, and the snapshots; (S, A) each.
        series: the history, by name; a constraint's under ``slack/NAME``.
        policy: what acts; None when there is none.
        certificate: its JSON text, where there is one.
        frontier: the budget frontier, where there is one.
    """

    title: str
    sense: str
    utility: str
    constraints: tuple[ConstraintFacts, ...]
    model: str
    discount: float
    status: str
    message: str
    objective: float
    label: str = ""
    seed: int | None = None
    action_names: tuple[str, ...] | None = None
    layout: GridLayout | None = None
    scale: float | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    rerun: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    frontier: FrontierFacts | None = None
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    policy: Policy | None = None
    certificate: str | None = None
    estimated: bool = False
    signals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def targets(self) -> dict[str, np.ndarray]:
        """The occupancies that distances are measured to, by the name of the constraint."""
        return {
            name.removeprefix(TARGET): array
            for name, array in self.arrays.items()
            if name.startswith(TARGET)
        }


def record_of(
    solution: Solution,
    *,
    title: str = "",
    label: str = "",
    seed: int | None = None,
    solver: Any = None,
    certificate: Certificate | None = None,
    frontier: Frontier | None = None,
    rerun: str = "",
) -> RunRecord:
    """The record of a solution.

    Args:
        solution: any; its history becomes the curves.
        title, label, seed, rerun: see ``RunRecord``.
        solver: the solver that made it, for its settings.
        certificate, frontier: where there are any.
    """
    problem = solution.problem
    arrays = dict(_targets(problem))
    if solution.has_policy:
        # Of an environment, what is measured of signals stands below the features.
        arrays["occupancy"] = np.asarray(solution.occupancy)[: problem.space.shape[0]]
        table = table_of(solution.policy)
        if table is not None and table.ndim == 2:  # what depends on time has no picture
            arrays["probabilities"] = np.asarray(table)
    if all(name in solution.history for name in SNAPSHOTS):
        at, visits = (np.asarray(solution.history[name]) for name in SNAPSHOTS)
        # To look at, single precision is enough, and half the size.
        arrays |= dict(zip(SNAPSHOTS, (at, visits.astype(np.float32)), strict=True))
    return RunRecord(
        title=title or f"{problem.sense} {problem.utility!r}",
        label=label,
        seed=seed,
        sense=problem.sense,
        utility=repr(problem.utility),
        constraints=_constraints(solution),
        model=repr(problem.source),
        estimated=problem.environment is not None,
        discount=float(problem.space.discount),
        scale=float(problem.space.shown_scale),
        action_names=problem.space.action_names,
        layout=problem.space.layout,
        status=solution.status.name.lower(),
        message=solution.message,
        objective=float(solution.objective),
        stats=_plain_stats(solution.stats),
        settings=settings_of(solver),
        rerun=rerun,
        environment=environment(),
        frontier=None if frontier is None else frontier_facts(frontier),
        arrays=arrays,
        series=dict(_series(solution.history)),
        policy=solution.policy_or_none,
        certificate=None if certificate is None else certificate.to_json(),
        signals=_signals(solution),
        findings=tuple(solution.findings),
        inside=tuple(individual_lines(solution, problem.utility)),
    )


def settings_of(solver: Any) -> dict[str, str]:
    """A solver's name and settings as text; empty without one."""
    if solver is None or not dataclasses.is_dataclass(solver):
        return {}
    found = {"solver": type(solver).__name__}
    for setting in dataclasses.fields(solver):
        if setting.name != "verbose":
            found[setting.name] = str(getattr(solver, setting.name))
    return found


def frontier_facts(frontier: Frontier) -> FrontierFacts:
    """A frontier as numbers, with its envelopes on a grid."""
    points = frontier.points
    budgets = [point.budget for point in points]
    grid = np.union1d(np.linspace(min(budgets), max(budgets), ENVELOPE_POINTS), budgets)
    bounds = [frontier.envelope(float(budget)) for budget in grid]
    certificates = [point.certificate for point in points]
    name = frontier.constraint

    def proven(numbers: list[float]) -> tuple[float, ...]:
        pairs = zip(numbers, certificates, strict=True)
        return tuple(math.nan if c.infeasible else float(number) for number, c in pairs)

    return FrontierFacts(
        name,
        frontier.problem.constraints[name].sense,
        tuple(budgets),
        proven([c.lower for c in certificates]),
        proven([c.upper for c in certificates]),
        proven([frontier.worth(c) for c in certificates]),
        tuple(float(budget) for budget in grid),
        tuple(float(lower) for lower, _ in bounds),
        tuple(float(upper) for _, upper in bounds),
        float(frontier.infeasible_until),
        float(frontier.free_from),
        frontier.step,
    )


def _constraints(solution: Solution) -> tuple[ConstraintFacts, ...]:
    facts = []
    for row, (name, constraint) in zip(
        constraint_rows(solution), solution.problem.constraints.items(), strict=True
    ):
        value = math.nan
        if solution.has_policy:
            value = constraint.utility.measured(solution.problem.bind, solution.measured)
        facts.append(
            ConstraintFacts(
                name,
                repr(constraint),
                constraint.sense,
                float(constraint.budget),
                value,
                float(solution.slack[name]),
                float(solution.multipliers[name]),
                row.units,
                solution.constraint_status.get(name, ""),
                solution.slack_interval.get(name),
                tuple(row.inside),
            )
        )
    return tuple(facts)


def _signals(solution: Solution) -> dict[str, tuple[float, float]]:
    """Sums of signals under the policy as the horizon weighs them, and per step."""
    problem = solution.problem
    if problem.environment is not None or not solution.has_policy:
        return {}
    x, steps = solution.occupancy, float(solution.occupancy.sum())
    sums = {
        name: float(np.vdot(signal, x))
        for name, signal in problem.mdp.signals.items()
        if signal.shape == x.shape
    }
    return {name: (total, total / steps) for name, total in sums.items()}


def places_of(history: Mapping[str, Any], name: str, count: int) -> np.ndarray:
    """The iterations that so many records under a name are of.

    Exact evaluations are at ``iteration``, policies that were played at ``played``, samples at ``recorded``
    where a history has them; where it has none, at 1, 2, 3, ...
    """
    place = PLACES.get(name, OTHERS_AT if OTHERS_AT in history else "iteration")
    at = np.asarray(history.get(place, ()), dtype=np.int64)
    return at if at.size == count else np.arange(1, count + 1)


def _series(history: Mapping[str, Any]) -> Iterator[tuple[str, Series]]:
    """The curves of a history."""
    for name, values in history.items():
        if name in (*PLACES.values(), OTHERS_AT, *SNAPSHOTS):
            continue
        parts = values.items() if isinstance(values, Mapping) else [(None, values)]
        for part, column in parts:
            array = np.asarray(column, dtype=np.float64)
            if array.ndim != 1 or not array.size:
                continue
            at = places_of(history, name, array.size)
            yield (name if part is None else f"{name}/{part}"), Series(at, array)


def _targets(problem: Problem) -> Iterator[tuple[str, np.ndarray]]:
    """Every occupancy that a distance in the problem is measured to."""
    written = {"objective": problem.utility}
    written |= {name: constraint.utility for name, constraint in problem.constraints.items()}
    for name, utility in written.items():
        targets = (step.node.target_occupancy(problem.space) for step in walk(utility))
        first = next((target for target in targets if target is not None), None)
        if first is not None:
            yield TARGET + name, first


def _plain_stats(stats: Mapping[str, Any]) -> dict[str, Any]:
    """What is a number, a text, or a table of such; parameters belong to the policy."""
    plain: dict[str, Any] = {}
    for name, value in stats.items():
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | str):
            plain[name] = value
        elif isinstance(value, Mapping) and all(isinstance(v, int | float) for v in value.values()):
            plain[name] = {str(key): float(number) for key, number in value.items()}
    return plain


def record_facts(record: RunRecord) -> dict[str, Any]:
    """What a record says in words and numbers, for JSON."""
    names = [field.name for field in dataclasses.fields(record) if field.name not in ELSEWHERE]
    return {name: to_jsonable(getattr(record, name)) for name in names}


def record_from(facts: dict[str, Any]) -> RunRecord:
    """A record from JSON: every field of the type it should have, or an error."""
    known = {name: value for name, value in facts.items() if name not in ELSEWHERE}
    record = from_jsonable(RunRecord, {**known, "stats": _stats(facts["stats"])})
    if not 0.0 <= record.discount <= 1.0:
        raise ValueError(f"a discount of {record.discount}")
    if record.status.upper() not in Status.__members__:
        raise ValueError(f"unknown status {record.status!r}")
    return record


def _stats(entries: Any) -> dict[str, Any]:
    """Numbers, texts and tables of numbers; counts and times are numbers, since they are added up."""
    found: dict[str, Any] = {}
    for name, value in entries.items():
        if name in COUNTED and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} is {value!r}, not a number")
        if isinstance(value, Mapping):
            value = {str(key): float(number) for key, number in value.items()}
        elif not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} is neither a number nor a text")
        found[str(name)] = value
    return found
