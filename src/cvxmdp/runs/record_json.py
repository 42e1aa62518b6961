"""Records of runs as JSON, and back: every field of the type it should have, or an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cvxmdp.base.jsonable import from_jsonable, to_jsonable
from cvxmdp.problems.solution import Status
from cvxmdp.runs.record import RunRecord

ELSEWHERE = ("arrays", "series", "policy", "certificate")  # fields that have files of their own
COUNTED = ("iterations", "samples", "seconds")


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
