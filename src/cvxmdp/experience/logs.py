r"""Models estimated from logged transitions.

The estimate is the plain one: P(s' | s, a) is the share of the rows (s, a) that went on to s', the
probability of ending the share that were ``terminated``, a signal the mean over those rows. What
nobody tried is not invented: pairs without rows are masked. All that is computed from such a model is
true *of the estimated model*, which its note says wherever results are printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError, did_you_mean
from cvxmdp.experience.log_table import LogTable, as_numbers, read_log_table
from cvxmdp.models.table import TabularMDP

ROLES = ("state", "action", "next_state", "terminated", "truncated", "episode")


def from_transitions(
    table: Any,
    discount: float,
    *,
    signals: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    initial: Any = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    max_pairs: int = 50_000_000,
) -> TabularMDP:
    """Estimate a model from logged transitions, one per row.

    Columns ``state``, ``action``, ``next_state`` and ``terminated`` are needed. ``truncated`` and
    ``episode`` are used where they are there; every other column that holds numbers is a signal.

    - An episode goes on from row to row. It is over after a terminated or truncated row, where
      ``episode`` changes, and, without that column, where a row does not begin in the state the row
      before led to. One that is over without ``terminated`` was truncated: it says nothing about
      endings, and the note counts it.
    - The initial distribution is that of the episodes' first states, unless ``initial`` is given.
    - Pairs that no row has are masked. A state that some row leads to but no row leaves has no known
      action at all: rows that lead there are left out, again and again until none do, and counted.

    Args:
        table: a pandas data frame, a mapping of names to arrays, or the path of a CSV file.
        discount: gamma.
        signals: which columns are signals; every other column of numbers when not given.
        columns: other names for the columns, as {"next_state": "s2"}.
        initial: the initial distribution or state, for rows that are not whole episodes.
        n_states, n_actions: at least so many, for states and actions that are numbers.
        max_pairs: stop with an error beyond so many states times actions.

    Returns:
        A model with a note; states and actions that are numbers keep them, others are numbered in the
        order they appear and keep their names.
    """
    data = read_log_table(table, columns)
    rows = _read_rows(data, n_states, n_actions)
    if rows.n_states * rows.n_actions > max_pairs:
        raise ModelError(
            f"the log names {rows.n_states:,} states and {rows.n_actions:,} actions, more than max_pairs="
            f"{max_pairs:,} together; give a larger max_pairs= if there is memory for it, or use names "
            "(text) instead of numbers"
        )
    names = _signal_names(data, signals)
    values = {name: data.numbers(name) for name in names}
    starts, truncated = _episodes(data, rows)
    used = _leads_somewhere(rows)
    if not used.any():
        raise ModelError(
            "no row leads to a state that some row leaves, and none is terminated: nothing can be "
            "estimated. Is the log in order, and is every step a row?"
        )
    pairs = rows.states[used] * rows.n_actions + rows.actions[used]
    size = rows.n_states * rows.n_actions
    visits = np.bincount(pairs, minlength=size).astype(np.float64)
    goes_on = used & ~rows.terminated
    going = rows.states[goes_on] * rows.n_actions + rows.actions[goes_on]
    entries = (np.ones(going.size), (going, rows.following[goes_on]))
    counts = sp.csr_array(entries, shape=(size, rows.n_states))
    counts.sum_duplicates()
    counts.data /= np.repeat(np.maximum(visits, 1.0), np.diff(counts.indptr))
    mask = (visits > 0).reshape(rows.n_states, rows.n_actions)
    left: np.ndarray = np.asarray(mask.any(axis=1))
    means = {
        name: (np.bincount(pairs, value[used], size) / np.maximum(visits, 1.0)).reshape(mask.shape)
        for name, value in values.items()
    }
    available = mask.copy()
    available[~left, 0] = True  # never visited; a state needs an action, and this one ends at once
    return TabularMDP(
        counts,
        _initial(rows, starts, left, data) if initial is None else initial,
        discount,
        signals=means,
        actions=available,
        state_names=rows.state_names,
        action_names=rows.action_names,
        note=_note(len(starts), truncated, used, mask, left),
    )


@dataclass(frozen=True)
class _Rows:
    states: np.ndarray
    actions: np.ndarray
    following: np.ndarray  # -1 where a terminated row names no next state
    terminated: np.ndarray
    n_states: int
    n_actions: int
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None


def _read_rows(data: LogTable, n_states: int | None, n_actions: int | None) -> _Rows:
    terminated = data.flags("terminated")
    states, following = data.codes("state"), data.codes("next_state", missing=terminated)
    state_names = None
    if states is None or following is None:
        states, following, state_names = _named_states(data, terminated)
    actions, action_names = data.codes("action"), None
    if actions is None:
        labels = data.labels("action")
        action_names = tuple(dict.fromkeys(labels))
        numbers = {label: code for code, label in enumerate(action_names)}
        actions = np.array([numbers[label] for label in labels])
    highest = int(max(states.max(), following.max()))
    n_states = _size(n_states, highest, "n_states", states, following, data)
    n_actions = _size(n_actions, int(actions.max()), "n_actions", actions, actions, data)
    sizes, names = (n_states, n_actions), (state_names, action_names)
    return _Rows(states, actions, following, terminated, *sizes, *names)


def _named_states(
    data: LogTable, terminated: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    here, there = data.labels("state"), data.labels("next_state", missing=terminated)
    numbers: dict[str, int] = {}
    for label, after, end in zip(here, there, terminated, strict=True):
        numbers.setdefault(label, len(numbers))
        if not end:
            numbers.setdefault(after, len(numbers))
    # A name that only terminated rows lead to is no state: episodes are over before it is visited.
    return (
        np.array([numbers[label] for label in here]),
        np.array([numbers.get(label, -1) for label in there]),
        tuple(numbers),
    )


def _size(
    asked: int | None,
    highest: int,
    name: str,
    codes: np.ndarray,
    others: np.ndarray,
    data: LogTable,
) -> int:
    if asked is not None and highest >= asked:
        place = int(np.argmax((codes >= asked) | (others >= asked)))
        raise data.fail(place, f"number {highest} does not fit {name}={asked}")
    largest = 1_000 + 100 * len(codes)
    if asked is None and highest >= largest:
        place = int(np.argmax((codes == highest) | (others == highest)))
        raise data.fail(
            place,
            f"number {highest} in a log of {len(codes):,} rows would make a model of mostly empty "
            f"states; if it is meant, give {name}=, else use names (text) instead of numbers",
        )
    return highest + 1 if asked is None else int(asked)


def _signal_names(data: LogTable, asked: Iterable[str] | None) -> list[str]:
    if asked is None:
        return [
            name
            for name, column in data.arrays.items()
            if name not in ROLES and name != "step" and as_numbers(column) is not None
        ]
    names = [asked] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in data.arrays:
            raise ModelError(f"there is no column {name!r}. {did_you_mean(name, data.arrays)}")
    return names


def _episodes(data: LogTable, rows: _Rows) -> tuple[np.ndarray, int]:
    """The rows episodes begin with, and how many of the episodes were truncated."""
    over = rows.terminated.copy()
    if "truncated" in data.arrays:
        over |= data.flags("truncated")
    starts = data.episode_starts(over, connected=rows.states[1:] == rows.following[:-1])
    ends = np.concatenate([starts[1:] - 1, [len(over) - 1]])
    return starts, int((~rows.terminated[ends]).sum())


def _leads_somewhere(rows: _Rows) -> np.ndarray:
    """Rows that end, or lead to a state from which something is known; the rest is left out."""
    used = np.ones(len(rows.states), dtype=bool)
    while True:
        known = np.zeros(rows.n_states, dtype=bool)
        known[rows.states[used]] = True
        kept = used & (rows.terminated | known[rows.following])
        if (kept == used).all():
            return used
        used = kept


def _initial(rows: _Rows, starts: np.ndarray, left: np.ndarray, data: LogTable) -> np.ndarray:
    first = rows.states[starts]
    lost = ~left[first]
    if lost.any():
        place = starts[int(np.argmax(lost))]
        raise data.fail(
            place,
            "an episode begins in a state from which the log knows no way that goes on or ends; leave "
            "the episode out, or give initial=",
        )
    return np.bincount(first, minlength=rows.n_states) / len(first)


def _note(
    episodes: int, truncated: int, used: np.ndarray, mask: np.ndarray, left: np.ndarray
) -> str:
    parts = [f"{used.size:,} transitions of {episodes:,} episodes"]
    if truncated:
        parts.append(f"{truncated:,} of them truncated, which is not counted as an end")
    if not used.all():
        parts.append(f"{int((~used).sum()):,} rows left out that lead where no row goes on")
    unseen = int((~mask[left]).sum())
    if unseen:
        parts.append(f"{unseen:,} of {mask[left].size:,} pairs never seen and masked")
    return f"estimated model ({'; '.join(parts)})"
