"""Solutions in folders, beside their problem: ``Solution.save`` and ``load_solution``.

    solution.json           status, message, objective, slack, multipliers and what solvers counted
    solution.safetensors    occupancy, history and evidence
    policy.safetensors      the policy; ``load_policy`` reads it
    nearest.safetensors     where there is none, the policy that violates least
    estimate/               where a model was learned: the problem about it, and what is proven of the true one

What a solver kept besides, and is neither a number, a text nor an array, stays in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, reading
from cvxmdp.base.interval import Interval
from cvxmdp.base.jsonable import from_jsonable, numbers_by_name
from cvxmdp.base.storage import read_arrays, read_document, write_arrays, write_document
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies import load_policy
from cvxmdp.problems.findings import Finding
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem_folder import Arrays, pack, unpack, write_problem

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution

SOLUTION_FORMAT = "cvxmdp solution 2"
DOCUMENT, ARRAYS, POLICY = "solution.json", "solution.safetensors", "policy.safetensors"
NEAREST = "nearest.safetensors"
MODEL, ESTIMATE = "model", "estimate"  # that was learned, in the stats and in a folder


def write_solution(folder: str | Path, solution: Solution) -> None:
    """Write a solution into a folder that is there; its problem is written beside it."""
    place, arrays = Path(folder), Arrays()
    evidence = solution.evidence
    document = {
        "format": SOLUTION_FORMAT,
        "status": solution.status.name,
        "message": solution.message,
        "objective": float(solution.objective),
        "slack": {name: float(slack) for name, slack in solution.slack.items()},
        "multipliers": {name: float(mu) for name, mu in solution.multipliers.items()},
        "occupancy": pack(solution.occupancy_or_none, arrays),
        "history": pack(solution.history, arrays),
        "stats": pack(_kept(solution.stats), arrays),
        "evidence": None if evidence is None else pack(vars(evidence), arrays),
        "has_policy": solution.has_policy,
        "slack_interval": dict(solution.slack_interval),
        "findings": list(solution.findings),
        "nearest": None if solution.nearest is None else dict(solution.nearest.slack),
    }
    write_arrays(place / ARRAYS, "solution", arrays, {})
    if solution.has_policy:
        solution.policy.save(place / POLICY)
    if solution.nearest is not None:
        solution.nearest.policy.save(place / NEAREST)
    if isinstance(model := solution.stats.get(MODEL), TabularMDP):
        write_problem(place / ESTIMATE, solution.problem.with_model(model))
        if (proof := solution.stats.get("certificate")) is not None:
            proof.save(place / ESTIMATE / "certificate.json")
    write_document(place / DOCUMENT, document)


def _kept(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, texts, arrays and tables of numbers."""
    plain = (bool, int, float, str, np.ndarray, np.generic)
    return {
        name: value
        for name, value in stats.items()
        if isinstance(value, plain)
        or (isinstance(value, Mapping) and all(isinstance(one, plain) for one in value.values()))
    }


def read_solution(folder: str | Path) -> dict[str, Any]:
    """The fields of a solution, all but its problem."""
    place = Path(folder)
    document = read_document(place / DOCUMENT, SOLUTION_FORMAT, "Solution.save")
    arrays, _ = read_arrays(place / ARRAYS, "solution")
    with reading(f"{place} does not hold a whole solution"):
        evidence = unpack(document["evidence"], arrays)
        history, stats = (unpack(document[name], arrays) for name in ("history", "stats"))
        if not (isinstance(history, dict) and isinstance(stats, dict)):
            raise TypeError("history and stats are tables")
        for name in ("seconds", "iterations"):
            if not isinstance(stats.get(name), int | float | None):
                raise TypeError(f"{name} are a number")
        return {
            "status": str(document["status"]),
            "objective": float(document["objective"]),
            "slack": numbers_by_name(document["slack"]),
            "multipliers": numbers_by_name(document["multipliers"]),
            "policy_or_none": load_policy(place / POLICY) if document["has_policy"] else None,
            "occupancy_or_none": unpack(document["occupancy"], arrays),
            "history": history,
            "stats": stats,
            "message": str(document["message"]),
            "nearest": _nearest(place, document.get("nearest")),
            "evidence": None if evidence is None else _evidence(evidence),
            "slack_interval": {
                str(name): from_jsonable(Interval, one)
                for name, one in document.get("slack_interval", {}).items()
            },
            "findings": tuple(from_jsonable(Finding, one) for one in document.get("findings", ())),
        }


def _nearest(place: Path, slack: Any) -> tuple[Any, dict[str, float]] | None:
    if slack is None:
        return None
    if not (place / NEAREST).is_file():
        raise FileFormatError(f"{place} does not hold a whole solution: there is no {NEAREST}")
    return load_policy(place / NEAREST), numbers_by_name(slack)


def _evidence(plain: dict[str, Any]) -> Evidence:
    known = {**plain, "multipliers": numbers_by_name(plain["multipliers"])}
    return Evidence(**known)
