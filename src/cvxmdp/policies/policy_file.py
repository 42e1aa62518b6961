"""Policies from files: those that ``save`` wrote (``cvxmdp.base.storage`` has the format), and plain tables.

A plain table has the columns ``state``, ``action`` and ``probability``, ``time`` where the policy depends on
it, and whatever else; pairs that are left out have probability zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import FileFormatError, PolicyError, reading
from cvxmdp.base.npz_files import read_npz
from cvxmdp.base.storage import read_arrays, require_file
from cvxmdp.base.table_files import READERS, read_columns
from cvxmdp.policies.gaussian import GaussianPolicy
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.networks import NetworkPolicy
from cvxmdp.policies.observers import ObservedMixture, StatePolicy
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.policies.staying_policy import StayingPolicy
from cvxmdp.policies.tables import SoftmaxTable, TabularPolicy
from cvxmdp.policies.timed_policy import TimedPolicy, table_policy

ON_STATES: tuple[Any, ...] = (
    TabularPolicy,
    TimedPolicy,
    SoftmaxTable,
    MixturePolicy,
    ParametricPolicy,
)
KINDS = {
    one.kind: one for one in (*ON_STATES, StatePolicy, NetworkPolicy, GaussianPolicy, StayingPolicy)
}


def load_policy(path: str | Path) -> Any:
    """Read a policy written by its ``save``, or a plain table of one; checked as if it were new."""
    given = Path(path)
    if given.suffix in READERS:
        return policy_of_columns(read_columns(given), str(path))
    if given.suffix == ".npz" and _is_archive(given):
        return _of_array(read_npz(given), str(path))
    arrays, description = read_arrays(path, "policy")
    with reading(f"{path} does not hold a valid policy"):
        return _read(arrays, description)


def _read(arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Any:
    kind = description.get("kind")
    if kind == ObservedMixture.kind:
        return ObservedMixture(
            [_read(*part) for part in ObservedMixture.parts(arrays, description)]
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise PolicyError(f"unknown kind {kind!r}")
    found = KINDS[kind].read(arrays, description)
    if "fallback" in arrays:
        found = found.marked(arrays["fallback"])
    names = [description.get(name) for name in ("state_names", "action_names")]
    return found if names == [None, None] else found.named(*names)


def _is_archive(path: Path) -> bool:
    with require_file(path).open("rb") as file:
        return file.read(2) == b"PK"


def _of_array(arrays: dict[str, np.ndarray], where: str) -> TabularPolicy:
    if "probabilities" not in arrays:
        raise FileFormatError(f"{where} has no array 'probabilities'; it has {', '.join(arrays)}")
    return table_policy(arrays["probabilities"])


def policy_of_columns(columns: Mapping[str, Sequence[Any]], where: str) -> TabularPolicy:
    """The policy of a table with the columns state, action and probability (and time), with its names."""
    missing = [name for name in ("state", "action", "probability") if name not in columns]
    if missing:
        raise FileFormatError(
            f"{where} has no column {missing[0]!r}; it has {', '.join(columns) or 'none'}"
        )
    states, state_names = _numbered(columns["state"])
    actions, action_names = _numbered(columns["action"])
    try:
        times = np.array([int(time) for time in columns.get("time", [0] * len(states))])
        chances = np.array([float(chance) for chance in columns["probability"]])
        never = np.array([_true(one) for one in columns.get("fallback", [0] * len(states))])
    except (OverflowError, TypeError, ValueError) as error:
        raise FileFormatError(f"{where} is no table of probabilities: {error}") from error
    if not len(states) or times.min() < 0 or times.max() >= len(states):
        raise FileFormatError(f"{where} has no rows, or times below 0, or times without rows")
    shape = (times.max() + 1, states.max() + 1, actions.max() + 1)
    tables, marks = np.zeros(shape), np.zeros(shape[:2], dtype=bool)
    if len({*zip(times, states, actions, strict=True)}) < len(states):
        raise FileFormatError(f"{where} has two rows of one state and action")
    tables[times, states, actions] = chances
    marks[times, states] = never
    try:
        policy = TimedPolicy(tables) if "time" in columns else TabularPolicy(tables[0])
    except PolicyError as error:
        raise FileFormatError(f"{where} holds no policy: {error}") from error
    return policy.marked(marks).named(state_names, action_names)


def _numbered(given: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    """Numbers of states or actions, and their names; "0", "1", ... are in their own order."""
    names = [str(one) for one in given]
    known = list(dict.fromkeys(names))
    counted = [str(number) for number in range(len(known))]
    order = {name: number for number, name in enumerate(known)}
    if set(known) == set(counted):
        order = {name: int(name) for name in known}
    return np.array([order[name] for name in names], dtype=np.int64), sorted(
        order, key=order.__getitem__
    )


def _true(given: Any) -> bool:
    return str(given).lower() in ("true", "1")
