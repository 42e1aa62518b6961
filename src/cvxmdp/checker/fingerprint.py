"""A fingerprint of a problem: equal for equal numbers, different for any other problem."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

MODEL = ("discount", "sense", "note", "initial", "actions", "transition", "objective")

HORIZON = ("average", "horizon")  # beside a discount


def fingerprint(plain: Mapping[str, Any]) -> str:
    """SHA-256 of the model, the objective and the constraints (in their order) with their budgets."""
    slacks = [[name, tree] for name, tree in plain["slacks"].items()]
    parts = [*(plain.get(name, "") for name in MODEL), slacks]
    if "uncertainty" in plain:
        parts.append(plain["uncertainty"])
    parts += [[name, plain[name]] for name in HORIZON if name in plain]
    return digest_of("cvxmdp problem 2", parts)


def digest_of(what: str, value: Any) -> str:
    """SHA-256 of plain data; ``what`` keeps different things apart."""
    digest = hashlib.sha256(what.encode())
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    """Feed a value with its type, so that different things never look alike."""
    if sp.issparse(value):
        matrix = sp.csr_array(value)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        digest.update(f"sparse{matrix.shape}".encode())
        for part in (matrix.data, matrix.indices, matrix.indptr):
            _update(digest, part)
    elif isinstance(value, np.ndarray) and value.ndim:
        kind = {"i": "<i8", "u": "<i8", "b": "|b1"}.get(value.dtype.kind, "<f8")
        array = np.ascontiguousarray(value, dtype=kind)
        digest.update(f"array{array.shape}{kind}".encode())
        digest.update(array.data)
    elif isinstance(value, np.generic | np.ndarray):
        _update(digest, value.item())
    elif isinstance(value, bool | str) or value is None:
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, int | float):
        digest.update(f"float:{float(value).hex()};".encode())
    elif isinstance(value, list | tuple):
        digest.update(f"sequence{len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif isinstance(value, Mapping):
        # A user's function is known by its name, its text and what was declared of it.
        own = value.get("kind") == "custom"
        names = sorted(name for name in value if not (own and name == "function"))
        digest.update(f"table{len(names)}".encode())
        for name in names:
            _update(digest, str(name))
            _update(digest, value[name])
    else:
        raise TypeError(f"cannot fingerprint a {type(value).__name__}")
