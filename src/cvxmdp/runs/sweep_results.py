"""The result of a sweep: every run with its settings, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp.base.errors import SolverError, did_you_mean, require
from cvxmdp.base.interval import Interval, half_width
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number, several, text_table
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status, violation_of
from cvxmdp.problems.while_learning import SUM, WORST, share_violated
from cvxmdp.runs.lanes import Member
from cvxmdp.runs.record import places_of

LATEST = 250  # episodes over which samples are averaged, as in the published figures
SHOWN = (
    "objective",
    "slack/",
    "multiplier/",
    "learning_violated",
    "episode_return",
    "tracking_error/",
)
MOST_ROWS = 40


class SweepRun:
    """One run: what was different, and its solution, which is computed when first asked for."""

    def __init__(self, member: Member, place: int) -> None:
        case = member.cases[place]
        self.settings, self.seed, self.index = case.settings, case.seed, case.index
        self._member, self._place = member, place

    @cached_property
    def solution(self) -> Solution:
        """The solution of this run."""
        return self._member.solution(self._place)

    @property
    def machines(self) -> set[str]:
        """The kinds of machine that had a part in it."""
        return self._member.machines

    def __repr__(self) -> str:
        return f"SweepRun({dict(self.settings)}, seed {self.seed})"


def interval(values: np.ndarray) -> Interval:
    """The mean of independent numbers with its 95% interval (Student's t); unknown for a single one."""
    numbers = np.asarray(values, dtype=float)
    mean = float(numbers.mean()) if numbers.size else math.nan
    half = float(half_width(numbers))
    method = f"Student's t over {several(numbers.size, 'seed')}"
    return Interval(mean, mean - half, mean + half, method, proven=False)


class Sweep(InNotebooks):
    """All runs of a sweep.

    ``for run in sweep`` gives ``run.settings``, ``run.seed`` and ``run.solution``. ``summary()`` averages over
    seeds, ``best()`` names the best settings, ``select(...)`` keeps some, ``curve(...)`` averages histories and
    ``to_pandas()`` gives one table.
    """

    def __init__(
        self,
        problem: Problem,
        solver: Any,
        runs: Iterable[SweepRun],
        programs: int,
        interrupted: bool,
    ) -> None:
        self.problem, self.solver = problem, solver
        self.programs, self.interrupted = programs, interrupted
        self.runs = sorted(runs, key=lambda run: run.index)

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[SweepRun]:
        return iter(self.runs)

    def __getitem__(self, place: int) -> SweepRun:
        return self.runs[place]

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each axis, in the order given."""
        names = list(self.runs[0].settings) if self.runs else []
        return {name: _distinct([run.settings[name] for run in self.runs]) for name in names}

    def select(self, **settings: Any) -> Sweep:
        """The runs with these values; axes with a slash in their name go in as ``**{"budget/x": 0.1}``."""
        for name, value in settings.items():
            if name not in self.axes:
                raise SolverError(f"no axis {name!r}. {did_you_mean(name, list(self.axes))}")
            if value not in self.axes[name]:
                raise SolverError(f"no run has {name} = {value!r}; there are {self.axes[name]}")
        kept = [r for r in self.runs if all(r.settings[n] == v for n, v in settings.items())]
        return Sweep(self.problem, self.solver, kept, self.programs, self.interrupted)

    @property
    def machines(self) -> list[str]:
        """The kinds of machine that computed this. With more than one, bits are not those of any of them."""
        return sorted(set().union(*(run.machines for run in self.runs)))

    def rows(self) -> list[dict[str, Any]]:
        """One row per run: settings, seed, and the numbers of its solution."""
        return [_row(run) for run in self.runs]

    def summary(self) -> list[dict[str, Any]]:
        """One row per combination of settings: means over seeds with intervals, NaN where one failed."""
        groups: dict[str, list[dict[str, Any]]] = {}
        columns: dict[str, None] = {}  # in their order; runs that failed have few
        axes = list(self.axes)
        for row, run in zip(self.rows(), self.runs, strict=True):
            groups.setdefault(repr(dict(run.settings)), []).append(row)
            numbers = (name for name, value in row.items() if isinstance(value, float))
            columns |= dict.fromkeys(name for name in numbers if name not in axes)
        found = []
        for members in groups.values():
            summary: dict[str, Any] = {name: members[0][name] for name in axes}
            summary["runs"] = len(members)
            summary["failed"] = sum(row["status"] == "failed" for row in members)
            for name in columns:
                summary[name] = interval(np.array([row.get(name, math.nan) for row in members]))
            found.append(summary)
        return found

    def best(self, by: str = "objective", tolerance: float = 0.0) -> dict[str, Any]:
        """The settings with the best mean over seeds, among those whose mean violation is within tolerance.

        Args:
            by: a column of ``summary()``. Objectives and returns are better when larger (smaller for a
                problem that minimises), violations, errors and times when smaller.
            tolerance: of the mean violation of every constraint.

        Returns:
            The row of ``summary()``.
        """
        self._require_runs()
        summary = self.summary()
        columns = [name for name, value in summary[0].items() if isinstance(value, Interval)]
        if by not in columns:
            raise SolverError(f"no column {by!r}. {did_you_mean(by, columns)}")
        known = [row for row in summary if math.isfinite(row[by].value + _worst(row))]
        if not known:
            raise SolverError(
                f"no settings have a mean of {by!r}: with each of them a run failed or is infeasible"
            )
        feasible = [row for row in known if _worst(row) <= tolerance]
        if not feasible:
            raise SolverError(
                f"no settings have a mean violation within tolerance={tolerance:g}; the smallest is "
                f"{min(map(_worst, known)):.3g}. Give a larger tolerance."
            )
        smaller = by.startswith(("violation/", "learning_", "tracking_error/", "seconds"))
        if by in ("objective", "episode_objective"):
            smaller = self.problem.sign < 0
        return min(feasible, key=lambda row: row[by].value if smaller else -row[by].value)

    def curve(self, name: str, smooth: int = 1) -> dict[str, np.ndarray]:
        """A history averaged over the runs: ``at``, ``mean`` and the 95% interval ``low``, ``high``.

        Args:
            name: of the history; parts of a table of histories as ``"slack/NAME"``.
            smooth: records that a moving average runs over first.
        """
        self._require_runs()
        columns = [_column(run, name) for run in self.runs]
        for run, (_, column) in zip(self.runs, columns, strict=True):
            if len(column) != len(columns[0][1]):
                raise SolverError(
                    f"only histories of one length are averaged: of {name!r} {self.runs[0]!r} has "
                    f"{len(columns[0][1])} records, {run!r} has {len(column)}. Keep like ones with select(...)."
                )
        values = np.stack([column for _, column in columns])
        if smooth > 1:
            window = np.ones(min(smooth, values.shape[1])) / min(smooth, values.shape[1])
            values = np.stack([np.convolve(row, window, mode="valid") for row in values])
        at = columns[0][0][-values.shape[1] :]
        mean, half = values.mean(axis=0), half_width(values)
        return {"at": at, "mean": mean, "low": mean - half, "high": mean + half}

    def _require_runs(self) -> None:
        if not self.runs:
            raise SolverError("there are no runs: the sweep has fewer sets of runs than parts")

    def to_pandas(self) -> Any:
        """``rows()`` as a DataFrame."""
        return require("pandas", "report").DataFrame(self.rows())

    def __repr__(self) -> str:
        state = ", interrupted" if self.interrupted else ""
        return f"Sweep({len(self):,} runs over {', '.join(self.axes) or 'seeds'}{state})"

    def __str__(self) -> str:
        return sweep_text(self)


def _row(run: SweepRun) -> dict[str, Any]:
    solution = run.solution
    row: dict[str, Any] = {**run.settings, "seed": run.seed, "status": solution.status.name.lower()}
    row["objective"] = float(solution.objective)
    for name, violation in violation_of(solution.slack).items():
        row[f"slack/{name}"] = float(solution.slack[name])
        row[f"violation/{name}"] = float(violation)
        row[f"multiplier/{name}"] = float(solution.multipliers[name])
    for name in ("episode_return", "episode_objective"):
        if name in solution.history:
            row[name] = _latest(solution.history, solution.history[name])
    targets: Any = solution.history.get("tracking_error", {})
    for name, errors in targets.items():
        row[f"tracking_error/{name}"] = _latest(solution.history, errors)
    row |= _while_learning(solution)
    for name in ("samples", "seconds"):
        if name in solution.stats:
            row[name] = float(solution.stats[name])
    return row


def _while_learning(solution: Solution) -> dict[str, float]:
    """The share of the policies played that violated a constraint, and how far the worst did."""
    share = share_violated(solution.stats)
    if share is None:
        return {}
    found = {"learning_violated": share}
    for name, worst in solution.stats[WORST].items():
        found[f"learning_worst/{name}"] = worst
        found[f"learning_sum/{name}"] = solution.stats[SUM][name]
    return found


def _latest(history: Mapping[str, Any], column: np.ndarray) -> float:
    """The mean of what was recorded of the last episodes."""
    at = history["recorded"]
    recent = column[at > at[-1] - LATEST] if at.size else column
    return float(recent.mean()) if recent.size else math.nan


def _column(run: SweepRun, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Where something was recorded of a run, and what."""
    history = run.solution.history
    outer, _, inner = name.partition("/")
    known = [
        f"{key}/{part}" if isinstance(value, Mapping) else key
        for key, value in history.items()
        for part in (value if isinstance(value, Mapping) else ("",))
    ]
    if run.solution.status is Status.FAILED and name not in known:
        raise SolverError(f"{run!r} failed and has no history {name!r}: {run.solution.message}")
    if name not in known:
        raise SolverError(f"no history {name!r}. {did_you_mean(name, known)}")
    column = history[outer][inner] if inner else history[outer]
    return places_of(history, outer, len(column)), column


def _worst(row: Mapping[str, Any]) -> float:
    """The largest mean violation in a row of a summary."""
    found = (value.value for name, value in row.items() if name.startswith("violation/"))
    return max(found, default=0.0)


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def sweep_text(sweep: Sweep) -> str:
    """One line per combination of settings: means over seeds with 95% intervals."""
    if not sweep.runs:
        return "0 runs: there are fewer sets of runs than parts of the sweep"
    summary, axes = sweep.summary(), list(sweep.axes)
    columns = [name for name in summary[0] if name.startswith(SHOWN)]
    rows = [
        [
            *(
                number(row[name]) if isinstance(row[name], float) else str(row[name])
                for name in axes
            ),
            str(row["runs"]),
            *("-" if math.isnan(row[name].value) else str(row[name]) for name in columns),
        ]
        for row in summary[:MOST_ROWS]
    ]
    lines = text_table([*axes, "runs", *columns], rows)
    if len(summary) > MOST_ROWS:
        lines.append(f"... and {len(summary) - MOST_ROWS} more: summary() has them all")
    head = f"{len(sweep):,} runs"
    if sweep.programs:
        head += f", {sweep.programs} compiled program{'s' if sweep.programs != 1 else ''}"
    if any(row["runs"] > 1 for row in summary):
        head += "; mean over seeds ± half of the 95% interval"
    failed = sum(row["failed"] for row in summary)
    if failed:
        head += f"; {several(failed, 'run')} failed"
    if sweep.interrupted:
        head += "; interrupted: repeat the call to go on"
    machines = sweep.machines
    if len(machines) > 1:
        head += f"; on machines of {len(machines)} kinds, between which bits differ: {'; '.join(machines)}"
    return "\n".join([head, "", *lines])
