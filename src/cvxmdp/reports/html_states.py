"""States for the report: where the policy is, what it does there, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cvxmdp.policies.tables import RANDOM, TabularPolicy
from cvxmdp.policies.timed_policy import TimedPolicy
from cvxmdp.runs.record import RunRecord

MOST_STATES = 3_000  # rows of the table, the most visited first
LIKELY = 0.005  # probability of an action that is worth a word


def listed_states(record: RunRecord, share: np.ndarray) -> dict[str, Any]:
    """Every state with its share of time, its action, whether it randomises and whether it is ever visited.

    Args:
        record: a run whose policy has a table.
        share: of time, (S,).
    """
    table = getattr(record.policy, "table", record.policy)
    names = table.state_names if isinstance(table, TabularPolicy) else None
    order = np.argsort(-share, kind="stable")[:MOST_STATES]
    actions = _actions(record, len(share))
    rows = [
        {
            "state": names[state] if names else f"state {state}",
            "share": float(f"{share[state]:.4g}"),
            **actions[state],
        }
        for state in order.tolist()
    ]
    return {"states": rows, "count": int(share.size)}


def _actions(record: RunRecord, count: int) -> list[dict[str, Any]]:
    """What the policy does in each state, in words; nothing where it has no table."""
    rows = record.arrays.get("probabilities")
    table = getattr(record.policy, "table", record.policy)
    if isinstance(table, TimedPolicy):
        return list(_over_time(record))
    if rows is None:
        return [{"action": "", "randomises": False, "never": False}] * count
    names = _names(record)
    never = getattr(table, "fallback", None)
    marked = np.zeros(count, dtype=bool) if never is None else never
    random = np.sort(rows, axis=1)[:, -2] > RANDOM if rows.shape[1] > 1 else np.zeros(count, bool)
    return [
        {
            "action": ", ".join(_likely(row, names)),
            "randomises": bool(random[state]),
            "never": bool(marked[state]),
        }
        for state, row in enumerate(rows)
    ]


def _over_time(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Of a policy that depends on time the shares of actions over all its visits."""
    names = _names(record)
    for visits in record.arrays["occupancy"]:
        total = visits.sum()
        taken = ", ".join(_likely(visits / total, names)) if total > 0 else ""
        words = f"{taken} of the visits" if "," in taken else taken
        yield {"action": words, "randomises": False, "never": not total > 0}


def _names(record: RunRecord) -> tuple[str, ...]:
    count = record.arrays["occupancy"].shape[1]
    return record.action_names or tuple(f"action {a}" for a in range(count))


def _likely(row: np.ndarray, names: tuple[str, ...]) -> Iterator[str]:
    for action in np.argsort(-row, kind="stable").tolist():
        if row[action] >= 1.0 - LIKELY:
            yield names[action]
        elif row[action] >= LIKELY:
            yield f"{names[action]} {row[action]:.0%}"
