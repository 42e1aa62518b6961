"""What a user declares beside a log: available actions, possible successors, known signals, bounds.

Functions are called with states and actions as the log has them, names or numbers; arrays go by their numbers.
Whatever a row contradicts is named by its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.experience.log_rows import LogRows
from cvxmdp.experience.log_table import LogTable
from cvxmdp.models.counts import SignalCounts
from cvxmdp.models.names import Names
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import numbers

SAME = 1e-9  # relative: what a value in a log may differ from the known one by its rounding


def read_available(given: Any, rows: LogRows, data: LogTable) -> np.ndarray:
    """Which actions there are, boolean (S, A); a number that is no state has none.

    Args:
        given: boolean (S, A); a function from a state to its actions; None for all.
        rows, data: the log, which takes no other action.
    """
    shape = (rows.n_states, rows.n_actions)
    available = np.ones(shape, dtype=bool)
    if callable(given):
        numbers = {rows.action_label(action): action for action in range(rows.n_actions)}
        available[:] = False
        for state in np.flatnonzero(rows.listed).tolist():
            found = _called(given, "actions=", rows.state_label(state))
            if isinstance(found, str) or not isinstance(found, Iterable):
                raise ModelError(
                    f"actions= gave {found!r} for {rows.state_label(state)!r}; expected a list of actions"
                )
            for action in found:
                available[state, _number(numbers, action, "actions")] = True
    elif given is not None:
        available = np.asarray(given)
        if available.shape != shape or available.dtype != bool:
            raise ModelError(
                f"actions must be boolean of shape (S, A) = {shape}, a function from a state to its actions, "
                f"or the names of all actions; got shape {available.shape} of type {available.dtype}"
            )
    available = available & rows.listed[:, None]
    data.wrong(
        np.flatnonzero(~available[rows.states, rows.actions]),
        lambda row: (
            f"action {rows.action_label(rows.actions[row])!r} is not available in state "
            f"{rows.state_label(rows.states[row])!r}, as actions= has it"
        ),
    )
    return available


def _called(function: Callable[..., Any], what: str, *labels: Any) -> Any:
    """What a user's function says."""
    try:
        return function(*labels)
    except TypeError as error:
        raise ModelError(
            f"{what} is a function that could not be called with {', '.join(map(repr, labels))}: {error}"
        ) from error


def _number(numbers: Mapping[Any, int], label: Any, what: str) -> int:
    found = numbers.get(label, numbers.get(str(label)))
    if found is None:
        raise ModelError(f"{what}= names {label!r}, which the log does not know")
    return found


def read_supports(
    given: Any, rows: LogRows, available: np.ndarray, outcomes: np.ndarray, data: LogTable
) -> sp.csr_array | None:
    """The possible outcomes, boolean (S*A, S + 1); None where nobody said.

    Args:
        given: a model, whose transitions they are; an array (S, A, S + 1) or (S*A, S + 1), dense or sparse; or
            a function from state and action to the states that may follow, None among them for an end.
        rows, data: the log.
        available: the pairs that are there.
        outcomes: the column of every row, S for an end.
    """
    if given is None:
        return None
    size = (rows.n_states * rows.n_actions, rows.n_states + 1)
    if isinstance(given, TabularMDP) and _named_alike(given, rows):
        given = _successors(given)  # the log numbers what it saw in its own order
    supports = _as_supports(given, rows, available, size)
    _require_states(supports, rows, available)
    outside = np.asarray(supports[rows.pairs, outcomes]).ravel() == 0
    data.wrong(
        np.flatnonzero(outside),
        lambda row: (
            f"state {rows.state_label(rows.states[row])!r}, action {rows.action_label(rows.actions[row])!r} "
            f"{_led(rows, outcomes[row])}, which supports= rules out"
        ),
    )
    return supports


def _led(rows: LogRows, outcome: int) -> str:
    return "ended" if outcome == rows.n_states else f"led to {rows.state_label(outcome)!r}"


def _named_alike(model: TabularMDP, rows: LogRows) -> bool:
    """Whether states or actions have names on both sides."""
    pairs = ((model.state_names, rows.state_names), (model.action_names, rows.action_names))
    return any(mine is not None and theirs is not None for mine, theirs in pairs)


def _successors(model: TabularMDP) -> Callable[[Any, Any], list[Any]]:
    """The states that may follow in a model, by name, None among them for an end."""
    states = Names("state", model.n_states, model.state_names, where="supports=")
    actions = Names("action", model.n_actions, model.action_names, where="supports=")

    def follow(state: Any, action: Any) -> list[Any]:
        row = states.number(state) * model.n_actions + actions.number(action)
        entries = slice(*model.transition.indptr[[row, row + 1]])
        met = model.transition.indices[entries][model.transition.data[entries] > 0]
        labels = met.tolist() if model.state_names is None else map(model.state_label, met)
        return [*labels, *[None] * bool(model.ending.ravel()[row])]

    return follow


def _require_states(supports: sp.csr_array, rows: LogRows, available: np.ndarray) -> None:
    """An error where something may lead to a number that is no state."""
    named = supports[available.ravel()].sum(axis=0)[:-1] > 0
    missing = np.flatnonzero(np.asarray(named).ravel() & ~rows.listed)
    if missing.size:
        raise ModelError(
            f"supports= says that state {missing[0]} may follow, which no row names: give n_states="
            f"{rows.n_states}, which says that every number below it is a state"
        )


def _as_supports(
    given: Any, rows: LogRows, available: np.ndarray, size: tuple[int, int]
) -> sp.csr_array:
    if callable(given):
        numbers = {rows.state_label(state): state for state in range(rows.n_states)}
        entries = []
        for state, action in np.argwhere(available):
            row = int(state) * rows.n_actions + int(action)
            following = _called(
                given, "supports=", rows.state_label(state), rows.action_label(action)
            )
            if isinstance(following, str) or not isinstance(following, Iterable):
                raise ModelError(
                    f"supports= gave {following!r} for {rows.state_label(state)!r}, "
                    f"{rows.action_label(action)!r}; expected a list of states, None among them for an end"
                )
            for label in following:
                end = label is None
                entries.append((row, rows.n_states if end else _number(numbers, label, "supports")))
        places = np.array(entries, dtype=np.int64).reshape(-1, 2).T
        return sp.csr_array((np.ones(len(entries), dtype=bool), tuple(places)), shape=size)
    if isinstance(given, TabularMDP):
        ends = sp.csr_array(given.ending.reshape(-1, 1) > 0)
        given = sp.hstack([given.transition > 0, ends])
    dense = given if sp.issparse(given) else np.asarray(given, dtype=bool)
    if not sp.issparse(dense) and dense.ndim == 3:
        dense = dense.reshape(-1, dense.shape[2])
    if dense.shape != size:
        raise ModelError(
            f"supports has shape {dense.shape}; expected (S*A, S + 1) = {size}, the last column for endings"
        )
    return sp.csr_array(dense, dtype=bool)


def names_in(given: Iterable[str] | None) -> tuple[str, ...]:
    """One name, or several."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def read_known(
    given: Mapping[str, Any] | Iterable[str] | None, rows: LogRows, data: LogTable
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Signals that are known functions, (S, A) by name; and columns that are promised to be functions.

    Args:
        given: arrays (S,) or (S, A), or functions of state and action, by name; or names of columns alone,
            whose value is known where a pair was tried.
        rows, data: the log; where it has such a column, it must agree.
    """
    if given is None or not isinstance(given, Mapping):
        return {}, names_in(given)
    known = {}
    for name, one in given.items():
        values = _per_pair(one, rows, name)
        known[name] = values
        if name in data.arrays:
            seen, told = data.numbers(name), values[rows.states, rows.actions]
            differs = ~np.isclose(seen, told, rtol=SAME, atol=SAME) & np.isfinite(seen)
            _contradictions(data, rows, name, np.flatnonzero(differs), seen, told)
    return known, ()


def _contradictions(
    data: LogTable, rows: LogRows, name: str, which: np.ndarray, seen: Any, told: Any
) -> None:
    data.wrong(
        which,
        lambda row: (
            f"{name} is {seen[row]:g} in state {rows.state_label(rows.states[row])!r}, action "
            f"{rows.action_label(rows.actions[row])!r}, but known= says {told[row]:g}"
        ),
    )


def _per_pair(given: Any, rows: LogRows, name: str) -> np.ndarray:
    shape = (rows.n_states, rows.n_actions)
    if callable(given):
        values = np.zeros(shape)
        for state in np.flatnonzero(rows.listed).tolist():
            for action in range(rows.n_actions):
                labels = rows.state_label(state), rows.action_label(action)
                found = _called(given, f"known[{name!r}]", *labels)
                try:
                    values[state, action] = found
                except (TypeError, ValueError):
                    raise ModelError(
                        f"known[{name!r}] gave {found!r} for {labels}; expected a number"
                    ) from None
    else:
        values = numbers(given, f"known[{name!r}], where it is no function,", ModelError)
        if values.ndim == 1 and len(values) == shape[0]:
            values = np.repeat(values[:, None], shape[1], axis=1)
    if values.shape != shape or not np.isfinite(values).all():
        raise ModelError(
            f"known[{name!r}] must be finite numbers of shape (S,) = {shape[:1]} or (S, A) = {shape}, or a "
            f"function of state and action; got shape {values.shape}"
        )
    return values


def read_bounds(given: Mapping[str, Any] | None) -> dict[str, tuple[float, float]]:
    """The least and the largest value of a signal, by name."""
    if given is None:
        return {}
    bounds = {}
    for name, pair in given.items():
        try:
            low, high = (float(end) for end in pair)
        except (TypeError, ValueError):
            low, high = 0.0, -1.0
        if not (np.isfinite([low, high]).all() and low <= high):
            raise ModelError(f"bounds[{name!r}] must be (least, largest), finite; got {pair!r}")
        bounds[name] = (low, high)
    return bounds


def counted_signal(
    name: str,
    values: np.ndarray,
    bounds: tuple[float, float] | None,
    exact: bool,
    rows: LogRows,
    data: LogTable,
) -> SignalCounts:
    """A column as what it says of every pair; rows that break a promise are noted."""
    size = rows.n_states * rows.n_actions
    pairs = rows.pairs
    if bounds is not None:
        data.wrong(
            np.flatnonzero((values < bounds[0]) | (values > bounds[1])),
            lambda row: f"{name} is {values[row]:g}, outside bounds {bounds[0]:g} to {bounds[1]:g}",
        )
    sums: np.ndarray = np.bincount(pairs, values, size)
    if exact and len(values):
        first = np.zeros(size)
        first[pairs[::-1]] = values[::-1]
        differs = ~np.isclose(values, first[pairs], rtol=SAME, atol=SAME)
        _contradictions(data, rows, name, np.flatnonzero(differs), values, first[pairs])
        sums = first * np.bincount(pairs, minlength=size)
    return SignalCounts(sums.reshape(rows.n_states, rows.n_actions), bounds, exact)
