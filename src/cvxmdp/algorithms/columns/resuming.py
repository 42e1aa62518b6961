"""What a resume needs of column generation, as plain data with arrays, and back.

Arrays are handed over, not copied: nothing in ``generation`` changes one in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.algorithms.columns.generation import CREEPING_STEPS, Generation
from cvxmdp.algorithms.columns.linear_master import Answer
from cvxmdp.algorithms.columns.pool import Column

COUNTS = ("calls", "sweeps", "policy_sweeps")  # of the oracle
NUMBERS = (  # of the generation
    "lower",
    "upper",
    "room_upper",
    "steady",
    "mean_values",
    "mean_multipliers",
    "steps",
    "stalled",
    "explicit",
)
DUAL = ("values", "multipliers", "steps", "changes")  # of the smoothed dual
# Of a master for concave problems; one for linear problems is made of its columns alone.
MASTERED = ("units", "margins", "weights", "safe", "room", "gap", "size", "unsolved")


def saved(generation: Generation) -> dict[str, Any]:
    """Everything that the next step depends on."""
    columns, oracle, natural = generation.columns, generation.oracle, generation.natural
    dual = generation.dual
    master, trails = generation.master, (generation.trail.upper, generation.trail.lower)
    return {
        **{name: getattr(generation, name) for name in NUMBERS},
        "trail": np.array([trail[-CREEPING_STEPS - 1 :] for trail in trails]),
        "columns": [dict(vars(column)) for column in columns],
        "idle": list(columns.idle),
        "last": columns.last,
        "master": {name: getattr(master, name) for name in MASTERED if natural is not None},
        "current": _answer(generation.current),
        "answer": _answer(generation.answer),
        "proof": _proof(generation.proof),
        "room_proof": _proof(generation.room_proof),
        "oracle": {name: getattr(oracle.work, name) for name in COUNTS},
        "values": oracle.values,
        "visits": oracle.visits_before,
        "dual": None if dual is None else {name: getattr(dual, name) for name in DUAL},
        "natural": None if natural is None else [natural.values, natural.step, natural.policy],
    }


def resume(fresh: Generation, plain: dict[str, Any]) -> Generation:
    """Put a generation that has just been made where ``saved`` was."""
    for name in NUMBERS:
        setattr(fresh, name, plain[name])
    fresh.trail.upper, fresh.trail.lower = (list(bounds) for bounds in plain["trail"].tolist())
    fresh.clear()
    for one in plain["columns"]:
        fresh.add(Column(**one))
    fresh.columns.idle, fresh.columns.last = list(plain["idle"]), plain["last"]
    for name, value in plain["master"].items():
        setattr(fresh.master, name, value)
    fresh.current, fresh.answer = _read_answer(plain["current"]), _read_answer(plain["answer"])
    fresh.proof, fresh.room_proof = _read_proof(plain["proof"]), _read_proof(plain["room_proof"])
    for name, count in plain["oracle"].items():
        setattr(fresh.oracle.work, name, count)
    fresh.oracle.values, fresh.oracle.visits_before = plain["values"], plain["visits"]
    for name, value in (plain["dual"] or {}).items():
        setattr(fresh.dual, name, list(value) if isinstance(value, list) else value)
    if fresh.natural is not None:
        fresh.natural.values, fresh.natural.step, fresh.natural.policy = plain["natural"]
    return fresh


def _answer(answer: Answer | None) -> list[Any] | None:
    if answer is None:
        return None
    return [*answer._replace(value=float(answer.value), feasible=bool(answer.feasible))]


def _read_answer(plain: list[Any] | None) -> Answer | None:
    return None if plain is None else Answer(*plain)


def _proof(proof: tuple[Answer, np.ndarray] | None) -> list[Any] | None:
    return None if proof is None else [_answer(proof[0]), proof[1]]


def _read_proof(plain: list[Any] | None) -> tuple[Answer, np.ndarray] | None:
    return None if plain is None else (Answer(*plain[0]), plain[1])
