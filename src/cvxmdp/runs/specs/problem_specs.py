"""Problem and sweep files: TOML, checked by Pydantic, turned into the objects of the library.

    maximize = "entropy()"

    [subject_to]
    hazard = 'linear("hazard", per="step") <= 0.02'

    [model]
    kind = "gridworld"
    size = 8
    slip = 0.1
    hazards = [10, 11, [2, 2]]

    [solver]
    name = "ConvexProgram"

A wrong key is an error that says which, in which line, and what was probably meant. Reading a file runs nothing
from it: utilities are parsed (``expressions``), arrays are data (``array_specs``).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cvxmdp.atoms.utility import signal_names
from cvxmdp.base.errors import did_you_mean
from cvxmdp.base.removed import refuse_removed
from cvxmdp.experience.environments.gymnasium_env import GymnasiumEnv
from cvxmdp.models import TabularMDP
from cvxmdp.problems.problem import Problem
from cvxmdp.runs.axes import BUDGET, check_axes
from cvxmdp.runs.specs.array_specs import ArrayFolder
from cvxmdp.runs.specs.expressions import Reader
from cvxmdp.runs.specs.model_specs import Strict, build_model
from cvxmdp.runs.specs.places import SpecError, at, errors_in, read_toml, validated
from cvxmdp.solvers.cautious import Cautious
from cvxmdp.solvers.exact_choice import choose_exact
from cvxmdp.solvers.registry import SOLVERS

MOST_RUNS = 1_000_000  # of a sweep in a file


class ProblemFile(Strict):
    """The top level of a problem file."""

    model: dict[str, Any]
    maximize: str | None = None
    minimize: str | None = None
    subject_to: dict[str, str] = Field(default_factory=dict)
    solver: dict[str, Any] = Field(default_factory=dict)
    title: str | None = None


class SweepFile(Strict):
    """The top level of a sweep file: a problem, a solver, what to vary, and the seeds."""

    problem: str
    over: dict[str, list[Any]] = Field(default_factory=dict)
    seeds: Annotated[int, Field(ge=1)] | Annotated[list[int], Field(min_length=1)] = 1
    solver: dict[str, Any] = Field(default_factory=dict)
    title: str | None = None


@dataclass(frozen=True)
class ProblemSpec:
    """A problem file, read and checked.

    Attributes:
        path: the file.
        text: its text, as it was read.
        title: what the file calls itself, or its name.
        problem: the problem.
        solver: the solver it names, or None for the library's choice.
        seed: of the random numbers, where the file gives one.
        steps: of an environment, where the file gives them and no solver.
        solver_table: the solver's settings as written.
        files: the files it refers to, by the name they are referred to.
    """

    path: Path
    text: str
    title: str
    problem: Problem
    solver: Any
    seed: int | None
    steps: int | None
    solver_table: Mapping[str, Any]
    files: Mapping[str, Path]


@dataclass(frozen=True)
class SweepSpec:
    """A sweep file, read and checked.

    Attributes:
        base: the problem, with the sweep's solver.
        over: what is varied: settings of the solver, or ``budget/NAME`` of a constraint.
        seeds: the seeds.
        path, text, title: of the sweep file.
    """

    base: ProblemSpec
    over: Mapping[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    path: Path
    text: str
    title: str


def read_problem(
    path: str | Path, solver: str | None = None, settings: Mapping[str, Any] | None = None
) -> ProblemSpec:
    """Read a problem file.

    Args:
        path: the TOML file.
        solver: the name of a solver to use instead of the file's.
        settings: settings of the solver that replace or add to those of the file.
    """
    path = Path(path)
    text, document = read_toml(path)
    with errors_in(path, text):
        file = validated(ProblemFile, document, ())
        folder = ArrayFolder(path.parent)
        mdp = at(("model",), build_model, file.model, folder)
        reader = Reader(folder, mdp)
        problem = _problem(file, mdp, reader)
        table = file.solver
        if solver is not None and solver != table.get("name"):
            table = {"name": solver, **({"seed": table["seed"]} if "seed" in table else {})}
        table = {**table, **(settings or {})}
        asked = dict(table)
        cautious = asked.pop("cautious", None)
        steps = asked.pop("steps", None) if "name" not in asked else None
        made, seed = at(("solver",), build_solver, asked, reader)
        if cautious is not None:
            made = at(("solver", "cautious"), _cautious, made, problem, cautious)
    about = (path, text, file.title or path.stem, problem)
    return ProblemSpec(*about, made, seed, steps, table, dict(folder.used))


def _cautious(solver: Any, problem: Problem, confidence: Any) -> Cautious:
    """The solver with its confidence; an exact one is chosen where none is named."""
    return Cautious(choose_exact(problem)[0] if solver is None else solver, confidence)


def read_sweep(path: str | Path) -> SweepSpec:
    """Read a sweep file and the problem it names."""
    path = Path(path)
    text, document = read_toml(path)
    with errors_in(path, text):
        file = validated(SweepFile, document, ())
        inner = at(("problem",), ArrayFolder(path.parent).path, file.problem)
    name = file.solver.get("name")
    base = read_problem(inner, name if isinstance(name, str) else None, file.solver)
    with errors_in(path, text):
        if base.solver is None:
            names = ", ".join(SOLVERS)
            raise SpecError(
                f'a sweep needs a solver: add [solver] with a name = "...", one of {names}'
            )
        over = {
            setting: at(("over", setting), _varied, base, setting, values)
            for setting, values in file.over.items()
        }
        runs = math.prod((_count(file.seeds), *(len(values) for values in over.values())))
        at(("seeds",), _check_count, runs)
    seeds = range(file.seeds) if isinstance(file.seeds, int) else file.seeds
    return SweepSpec(base, over, tuple(seeds), path, text, file.title or path.stem)


def _check_count(runs: int) -> None:
    if runs > MOST_RUNS:
        raise SpecError(f"these are {runs:,} runs; a sweep has at most {MOST_RUNS:,}: make several")


def _count(seeds: int | list[int]) -> int:
    return seeds if isinstance(seeds, int) else len(seeds)


def _varied(base: ProblemSpec, setting: str, values: list[Any]) -> tuple[Any, ...]:
    """The values of a sweep as the solver takes them: words such as "MLP(32)" become what they say."""
    if not values:
        raise SpecError("give at least one value")
    if setting.startswith(BUDGET):
        for value in values:
            base.problem.with_budget(setting.removeprefix(BUDGET), value)
        return tuple(values)
    if isinstance(base.solver, Cautious):
        raise SpecError("where [solver] says cautious, a sweep varies budgets alone")
    check_axes(base.problem, base.solver, [setting])
    reader = Reader(ArrayFolder(base.path.parent))
    solvers = (build_solver({**base.solver_table, setting: one}, reader)[0] for one in values)
    return tuple(getattr(solver, setting) for solver in solvers)


def build_solver(table: Mapping[str, Any], reader: Reader) -> tuple[Any, int | None]:
    """The solver that a ``[solver]`` table describes, and its seed."""
    settings = dict(table)
    seed = settings.pop("seed", None)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise SpecError(f"seed must be a whole number; got {seed!r}")
    name = settings.pop("name", None)
    if name is None:
        if settings:
            raise SpecError(
                f"{next(iter(settings))!r} is a setting of a solver, but none is named: add name = "
                f'"..." with one of {", ".join(SOLVERS)}'
            )
        return None, seed
    if not isinstance(name, str) or name not in SOLVERS:
        raise SpecError(f"unknown solver {name!r}. {did_you_mean(str(name), SOLVERS)}")
    solver_class = SOLVERS[name]
    fields = {field.name: str(field.type) for field in dataclasses.fields(solver_class)}
    refuse_removed(name, settings)
    for key, value in settings.items():
        if key not in fields:
            raise SpecError(
                f"{name} has no setting {key!r}. {did_you_mean(key, [*fields, 'seed'])}"
            )
        words = key == "policy" or re.search(r"\b(str|Any)\b", fields[key])
        if isinstance(value, str) and not words:
            raise SpecError(f"the setting {key!r} takes {fields[key]}; got the word {value!r}")
    if isinstance(settings.get("policy"), str):
        settings["policy"] = reader.family(settings["policy"])
    if isinstance(settings.get("primal_step"), str):
        settings["primal_step"] = reader.step(settings["primal_step"])
    try:
        return solver_class(**settings), seed
    except TypeError as error:  # a setting without a default, or a comparison of words with numbers
        message = re.sub(r"^\w+\.__init__\(\) ", f"{name} ", str(error))
        raise SpecError(message.replace("positional argument", "setting")) from error


def _problem(file: ProblemFile, mdp: TabularMDP | GymnasiumEnv, reader: Reader) -> Problem:
    utilities = {
        sense: at((sense,), reader.utility, text)
        for sense in ("maximize", "minimize")
        if (text := getattr(file, sense)) is not None
    }
    constraints = {
        name: at(("subject_to", name), reader.constraint, text)
        for name, text in file.subject_to.items()
    }
    read = [*utilities.values(), *(constraint.slack for constraint in constraints.values())]
    names = dict.fromkeys(name for utility in read for name in signal_names(utility))
    space: Any = mdp if isinstance(mdp, TabularMDP) else mdp.space(names)
    # One by one, so that an error knows its key.
    for name, constraint in constraints.items():
        at(("subject_to", name), constraint.slack.lower, space)
    for sense, utility in utilities.items():
        at((sense,), partial(Problem, mdp, **{sense: utility}, subject_to=constraints))
    return Problem(mdp, **utilities, subject_to=constraints)
