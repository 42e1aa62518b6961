"""The rows of a log as numbers: which state, which action, where it led; and where episodes begin."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvxmdp.base.errors import ModelError
from cvxmdp.experience.log_table import LogTable

ALIKE = 0.8  # of difflib's ratio, from which an action that appears once passes for a misspelling
JUMPS = 0.5  # of the rows that would follow no other by chance, from which a log is in no order
LOOSE_ENDS = 5  # breaks that nobody marked: where logs were put together
FEW = 50  # rows, below which chance explains anything
SHORTEST = 4  # letters of names that are compared letter by letter


@dataclass(frozen=True)
class LogRows:
    """One entry per row of the log.

    Attributes:
        states, actions: their numbers.
        following: where the row led; -1 where it ended the episode and names no state.
        terminated: whether it ended the episode.
        n_states, n_actions: how many there are.
        state_names, action_names: where the log has names instead of numbers.
        listed: boolean (S,), the numbers that are states: named by some row, or promised by ``n_states``.
    """

    states: np.ndarray
    actions: np.ndarray
    following: np.ndarray
    terminated: np.ndarray
    n_states: int
    n_actions: int
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    listed: np.ndarray

    def state_label(self, state: int) -> str | int:
        """The name as the log has it, or the number."""
        return int(state) if self.state_names is None else self.state_names[state]

    def action_label(self, action: int) -> str | int:
        """The name as the log has it, or the number."""
        return int(action) if self.action_names is None else self.action_names[action]

    @property
    def pairs(self) -> np.ndarray:
        """The number s * A + a of every row's pair."""
        return self.states * self.n_actions + self.actions


def read_rows(
    data: LogTable, n_states: int | None, n_actions: int | None, named: Sequence[str] | None
) -> LogRows:
    """States and actions of every row; what is wrong with any is raised together.

    Args:
        data: the columns.
        n_states, n_actions: at least so many, where they are numbers.
        named: all actions by name, where the user listed them.
    """
    terminated = data.flags("terminated")
    states, following = data.codes("state"), data.codes("next_state", missing=terminated)
    state_names = None
    if states is None or following is None:
        states, following, state_names = _named_states(data, terminated)
    actions, action_names = data.codes("action"), None
    if actions is None or named is not None:
        actions, action_names = _named_actions(data, named)
    data.require_clean()
    highest = int(max(states.max(initial=-1), following.max(initial=-1)))
    asked = n_states if state_names is None else None
    count = _size(asked, highest, "n_states", states, following, data)
    if action_names is None:
        largest = int(actions.max(initial=-1))
        n_actions = _size(n_actions, largest, "n_actions", actions, actions, data)
    else:
        n_actions = len(action_names)
    listed = np.full(count, asked is not None)
    listed[states] = True
    listed[following[~terminated]] = True
    sizes, names = (count, n_actions), (state_names, action_names)
    return LogRows(states, actions, following, terminated, *sizes, *names, listed)


def _named_states(
    data: LogTable, terminated: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    here, there = data.labels("state"), data.labels("next_state", missing=terminated)
    _ask_about_states(data, here, there, terminated)
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


def _ask_about_states(
    data: LogTable, here: np.ndarray, there: np.ndarray, terminated: np.ndarray
) -> None:
    """A state that one row alone names, and that differs from another by capitals or spaces only."""
    met = np.where(terminated, here, there)
    times = Counter(here) + Counter(there[~terminated])
    spelled: dict[str, list[str]] = {}
    for name in times:
        spelled.setdefault(_plain(name), []).append(name)
    alike = {
        name: max(names, key=times.__getitem__) for names in spelled.values() for name in names
    }
    asked = {name for name, other in alike.items() if times[name] == 1 < times[other]}
    if not asked:
        return
    rows = [row for row, pair in enumerate(zip(here, met, strict=True)) if asked & {*pair}]

    def message(row: int) -> str:
        name = here[row] if here[row] in asked else met[row]
        other = alike[name]
        return (
            f"state {name!r} appears only here and looks like {other!r} ({times[other]:,} times). Correct it; "
            "or, if both are meant, give one of them another name"
        )

    data.wrong(rows, message)


def _plain(text: str) -> str:
    """Without capitals, spaces and marks."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _named_actions(
    data: LogTable, named: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    labels = data.labels("action")
    times = Counter(labels)
    if named is None:
        names = tuple(times)
        asked = {name: _model_of(name, times) for name in names if times[name] == 1}
        doubtful = [row for row, label in enumerate(labels) if asked.get(label)]
        data.wrong(
            doubtful,
            lambda row: (
                f"action {labels[row]!r} appears only here and looks like {asked[labels[row]]!r} "
                f"({times[asked[labels[row]]]:,} rows). Correct it; or, if both are meant, list all actions: "
                f"actions={sorted(times)}"
            ),
        )
    else:
        names = tuple(str(name) for name in named)
        strange = [row for row, label in enumerate(labels) if label not in names]
        data.wrong(
            strange, lambda row: f"action {labels[row]!r} is not one of actions={list(names)}"
        )
    numbers = {name: code for code, name in enumerate(names)}
    return np.array([numbers.get(label, 0) for label in labels], dtype=np.int64), names


def _model_of(name: str, times: Counter[str]) -> str:
    """A more frequent action that the name may be a misspelling of; empty where there is none."""
    for other, _ in times.most_common():
        if times[other] <= times[name]:
            break
        if _plain(other) == _plain(name):
            return other
        letters = name.isalpha() and other.isalpha() and min(len(name), len(other)) >= SHORTEST
        swapped = sorted(name) == sorted(other)  # stya for stay
        if letters and (swapped or difflib.SequenceMatcher(None, name, other).ratio() >= ALIKE):
            return other
    return ""


def _size(
    asked: int | None,
    highest: int,
    name: str,
    codes: np.ndarray,
    others: np.ndarray,
    data: LogTable,
) -> int:
    """How many states or actions: as asked, and every one in the log fits; else as many as it has."""
    if asked is not None:
        outside = np.flatnonzero((codes >= asked) | (others >= asked))
        data.wrong(
            outside,
            lambda row: f"number {max(codes[row], others[row])} does not fit {name}={asked}",
        )
        data.require_clean()
        return int(asked)
    if highest < 0:
        raise ModelError(f"a log without rows says nothing of how many there are; give {name}=")
    largest = 1_000 + 100 * len(codes)
    if highest >= largest:
        outside = np.flatnonzero((codes >= largest) | (others >= largest))
        data.wrong(
            outside,
            lambda row: (
                f"number {max(codes[row], others[row])} in a log of {len(codes):,} rows would make a model "
                f"of mostly empty states; if it is meant, give {name}=, else use names (text) instead"
            ),
        )
        data.require_clean()
    return highest + 1


def _by_chance(rows: LogRows) -> float:
    """How many rows would begin elsewhere than where the row before led, if they were shuffled."""
    count = len(rows.states)
    if count < FEW:
        return float(count)
    going = rows.following[~rows.terminated]
    begun = np.bincount(rows.states, minlength=rows.n_states) / count
    met = np.bincount(going, minlength=rows.n_states) / max(len(going), 1)
    return len(going) * (1.0 - float(begun @ met))


def episode_starts(data: LogTable, rows: LogRows, *, ordered: bool) -> tuple[np.ndarray, int]:
    """The rows episodes begin with, and how many of the episodes were truncated.

    Args:
        data: the columns.
        rows: what they say.
        ordered: whether the first states matter, so that rows in no order are refused.
    """
    over = rows.terminated.copy()
    if "truncated" in data.arrays:
        over |= data.flags("truncated")
        data.require_clean()
    connected = rows.states[1:] == rows.following[:-1]
    broken = int((~over[:-1] & ~connected).sum())
    said = max(int(over.sum()), LOOSE_ENDS) if "truncated" in data.arrays else len(over)
    if ordered and "episode" not in data.arrays and broken > min(JUMPS * _by_chance(rows), said):
        raise ModelError(
            f"{broken:,} of {len(over):,} rows do not begin where the row before led, and nothing says that an "
            "episode was over: the rows seem to be in no order, and which states are first is not known. Sort "
            "them, add a column 'episode' or 'truncated', or give initial=, where episodes begin."
        )
    starts = data.episode_starts(over, connected=connected)
    if not len(starts):
        return starts, 0
    ends = np.concatenate([starts[1:] - 1, [len(over) - 1]])
    return starts, int((~rows.terminated[ends]).sum())
