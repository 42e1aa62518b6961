"""A fingerprint of a problem: equal for equal numbers, different for any other problem."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def fingerprint(problem: Any) -> str:
    """SHA-256 of the model, the objective and the constraints with their budgets."""
    digest = hashlib.sha256(b"cvxmdp problem 1")
    mdp = problem.mdp
    for part in _model(problem):
        _update(digest, part)
    _update(digest, float(mdp.discount))
    _update(digest, problem.sense)
    _update(digest, problem.objective_function)
    for name, function in problem.slack_functions.items():
        _update(digest, name)
        _update(digest, function)
    return digest.hexdigest()


def _model(problem: Any) -> list[Any]:
    """The numbers of the model; of an environment, all that it says of itself."""
    mdp, environment = problem.mdp, problem.environment
    if environment is not None:
        features = environment.features
        known = [] if features is None or not hasattr(features, "arrays") else features.arrays()
        return [
            repr(environment),
            repr(features).partition(" at 0x")[0],
            list(mdp.signal_names),
            [] if not known else [np.asarray(known[name]) for name in sorted(known)],
        ]
    transition = mdp.transition
    parts = (transition.data, transition.indices, transition.indptr, mdp.initial, mdp.actions)
    return [np.asarray(part) for part in parts]


def _update(digest: Any, value: Any) -> None:
    """Feed a value with its type, so that different things never look alike."""
    if isinstance(value, np.ndarray):
        kind = "<i8" if value.dtype.kind == "i" else "|b1" if value.dtype.kind == "b" else "<f8"
        array = np.ascontiguousarray(value, dtype=kind)
        digest.update(f"array{array.shape}{kind}".encode())
        digest.update(array.tobytes())
    elif isinstance(value, bool | int | float | str) or value is None:
        if isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        text = value.hex() if isinstance(value, float) else repr(value)
        digest.update(f"{type(value).__name__}:{text};".encode())
    elif isinstance(value, np.generic):
        _update(digest, value.item())
    elif isinstance(value, tuple | list):
        digest.update(f"sequence{len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif is_dataclass(value):
        digest.update(type(value).__name__.encode())
        for field in fields(value):
            _update(digest, getattr(value, field.name))
    elif callable(value):
        digest.update(_source(value).encode())
    else:
        raise TypeError(f"cannot fingerprint a {type(value).__name__}")


def _source(function: Any) -> str:
    """A user's function by its text, or by its name where the text is not to be had."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{getattr(function, '__qualname__', type(function).__name__)}"
