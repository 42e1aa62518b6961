"""Records of runs as JSON, and back: every field of the type it should have, or an error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.models.layout import GridLayout
from cvxmdp.problems.solution import Status
from cvxmdp.runs.record import ConstraintFacts, FrontierFacts, RunRecord

ELSEWHERE = ("arrays", "series", "policy", "certificate")  # fields that have files of their own

COUNTED = ("iterations", "samples", "seconds")


def record_facts(record: RunRecord) -> dict[str, Any]:
    """What a record says in words and numbers, for JSON."""
    names = [field.name for field in dataclasses.fields(record) if field.name not in ELSEWHERE]
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    """As JSON: dataclasses become tables, infinities and NaN texts that float() reads again."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def record_from(facts: dict[str, Any]) -> RunRecord:
    """A record from JSON: every field of the type it should have, or an error."""
    layout, frontier = facts["layout"], facts["frontier"]
    seed = facts["seed"]
    return RunRecord(
        title=str(facts["title"]),
        label=str(facts["label"]),
        seed=None if seed is None else int(seed),
        sense=str(facts["sense"]),
        utility=str(facts["utility"]),
        constraints=tuple(_constraint(entry) for entry in facts["constraints"]),
        model=str(facts["model"]),
        discount=_discount(float(facts["discount"])),
        action_names=_words(facts["action_names"]),
        layout=None if layout is None else _layout(layout),
        status=_status(str(facts["status"])),
        message=str(facts["message"]),
        objective=float(facts["objective"]),
        stats=_stats(facts["stats"]),
        settings={str(key): str(value) for key, value in facts["settings"].items()},
        rerun=str(facts["rerun"]),
        environment={str(key): str(value) for key, value in facts["environment"].items()},
        frontier=None if frontier is None else _frontier(frontier),
    )


def _discount(given: float) -> float:
    if not 0.0 <= given < 1.0:
        raise ValueError(f"a discount of {given}")
    return given


def _status(given: str) -> str:
    if given.upper() not in Status.__members__:
        raise ValueError(f"unknown status {given!r}")
    return given


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


def _words(given: Any) -> tuple[str, ...] | None:
    return None if given is None else tuple(str(word) for word in given)


def _layout(entry: dict[str, Any]) -> GridLayout:
    states = {
        name: tuple(int(state) for state in entry[name])
        for name in ("walls", "hazards", "starts", "goals")
    }
    return GridLayout(int(entry["rows"]), int(entry["columns"]), **states)


def _constraint(entry: dict[str, Any]) -> ConstraintFacts:
    return ConstraintFacts(
        name=str(entry["name"]),
        requires=str(entry["requires"]),
        sense=str(entry["sense"]),
        budget=float(entry["budget"]),
        value=float(entry["value"]),
        slack=float(entry["slack"]),
        multiplier=float(entry["multiplier"]),
        units=str(entry["units"]),
    )


def _frontier(entry: dict[str, Any]) -> FrontierFacts:
    lists = ("budgets", "lower", "upper", "prices", "grid", "floor", "ceiling")
    return FrontierFacts(
        constraint=str(entry["constraint"]),
        sense=str(entry["sense"]),
        infeasible_until=float(entry["infeasible_until"]),
        free_from=float(entry["free_from"]),
        **{name: tuple(float(number) for number in entry[name]) for name in lists},
    )
