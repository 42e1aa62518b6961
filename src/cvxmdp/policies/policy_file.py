"""Policies from files (see ``cvxmdp.base.storage`` for the format)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, PolicyError
from cvxmdp.base.storage import read_arrays
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.networks import NetworkPolicy
from cvxmdp.policies.observers import ObservedMixture, StatePolicy
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.policies.tables import SoftmaxTable, TabularPolicy
from cvxmdp.policies.timed_policy import TimedPolicy

ON_STATES: tuple[Any, ...] = (
    TabularPolicy,
    TimedPolicy,
    SoftmaxTable,
    MixturePolicy,
    ParametricPolicy,
)
KINDS = {one.kind: one for one in (*ON_STATES, StatePolicy, NetworkPolicy)}


def load_policy(path: str | Path) -> Any:
    """Read a policy written by its ``save``; checked as if it were new."""
    arrays, description = read_arrays(path, "policy")
    try:
        return _read(arrays, description)
    except (KeyError, PolicyError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} does not hold a valid policy: {error}") from error


def _read(arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Any:
    kind = description.get("kind")
    if kind == ObservedMixture.kind:
        return ObservedMixture(
            [_read(*part) for part in ObservedMixture.parts(arrays, description)]
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise PolicyError(f"unknown kind {kind!r}")
    found = KINDS[kind].read(arrays, description)
    names = [description.get(name) for name in ("state_names", "action_names")]
    return found if names == [None, None] else found.named(*names)
