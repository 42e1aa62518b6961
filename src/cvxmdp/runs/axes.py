"""What a sweep varies: settings of the solver and budgets of the problem, each with its values."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from cvxmdp.base.errors import SolverError, did_you_mean
from cvxmdp.base.removed import refuse_removed
from cvxmdp.problems.problem import Problem
from cvxmdp.runs.specification import setting_text

BUDGET = "budget/"


@dataclass(frozen=True)
class Case:
    """One run of a sweep: what makes it different, and what it solves.

    Attributes:
        index: its place in the sweep.
        settings: the values of the axes, by name.
        seed: of its random numbers.
        problem, solver: with these values.
    """

    index: int
    settings: Mapping[str, Any]
    seed: int
    problem: Problem
    solver: Any


def read_cases(
    problem: Problem, solver: Any, over: Mapping[str, Iterable[Any]] | None, seeds: Iterable[int]
) -> list[Case]:
    """Every combination of the values with every seed; seeds vary fastest."""
    if isinstance(solver, type) or not is_dataclass(solver):
        raise SolverError(
            f"a sweep takes a solver such as VRPDPG(...) or PDPG(...); got {solver!r}"
        )
    axes = {name: _values(name, values) for name, values in (over or {}).items()}
    check_axes(problem, solver, axes)
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise SolverError(f"seeds are several whole numbers, seeds=range(16); got {seeds!r}")
    numbers = [_seed(seed) for seed in seeds]
    if not numbers:
        raise SolverError("a sweep needs at least one seed: seeds=range(16)")
    if len(set(numbers)) != len(numbers):
        raise SolverError(f"a seed occurs twice in seeds: {sorted(numbers)}")
    cases: list[Case] = []
    for combination in itertools.product(*axes.values()):
        settings = dict(zip(axes, combination, strict=True))
        one_problem, one_solver = _apply(problem, solver, settings)
        for seed in numbers:
            cases.append(Case(len(cases), settings, seed, one_problem, one_solver))
    return cases


def _values(name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SolverError(f"the axis {name!r} takes a list of values; got {values!r}")
    found = [
        value.item() if hasattr(value, "item") and not value.shape else value for value in values
    ]
    if not found:
        raise SolverError(f"the axis {name!r} has no values")
    if len({setting_text(value) for value in found}) != len(found):
        raise SolverError(f"a value occurs twice in the axis {name!r}: {found}")
    return found


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise SolverError(f"seeds are whole numbers, as in seeds=range(16); got {seed!r}")
    return int(seed)


def check_axes(problem: Problem, solver: Any, axes: Collection[str]) -> None:
    """An error for what is no setting of the solver and no budget."""
    refuse_removed(type(solver).__name__, axes)
    known = [field.name for field in fields(solver)]
    known += [BUDGET + name for name in problem.constraints]
    for name in axes:
        if name not in known:
            raise SolverError(
                f"unknown axis {name!r}: a sweep varies settings of {type(solver).__name__} and budgets. "
                f"{did_you_mean(name, known)}"
            )


def _apply(problem: Problem, solver: Any, settings: Mapping[str, Any]) -> tuple[Problem, Any]:
    mine = {name: value for name, value in settings.items() if not name.startswith(BUDGET)}
    for name, value in settings.items():
        if name.startswith(BUDGET):
            problem = problem.with_budget(name.removeprefix(BUDGET), value)
    return problem, replace(solver, **mine)
