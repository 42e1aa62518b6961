"""A model from a table of known probabilities: a row per state, action and successor, names as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.experience.declared import names_in
from cvxmdp.experience.log_rows import LogRows, read_rows
from cvxmdp.experience.log_table import LogTable, is_numeric, read_log_table
from cvxmdp.models.names import name_of
from cvxmdp.models.table import TabularMDP

ROLES = ("state", "action", "next_state", "probability", "terminated")
ROUNDED = 1e-9  # what the probabilities of a pair may miss one by
SHOWN = 3  # pairs that a message lists


def from_table(
    table: Any,
    discount: float | None = None,
    *,
    initial: Any,
    ends: Iterable[Any] = (),
    missing: str = "error",
    signals: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    **horizon: Any,
) -> TabularMDP:
    """A model from a table of known probabilities, with columns state, action, next_state and probability.

    Every other column of numbers is a signal, received with that step; pairs without rows are not available.
    Rows of one state, action and successor add up. Endings are declared, by ``ends``, by a column
    ``terminated``, or by ``missing="ends"``: a row that was lost does not become one.

    Args:
        table: a data frame, a mapping of names to arrays, or the path of a CSV or Parquet file.
        discount: gamma; or give ``average=True`` or ``horizon=T``, as to ``TabularMDP``.
        initial: the first state: its name or number, ``{name: probability}``, or (S,).
        ends: states at which episodes are over as soon as they are reached.
        missing: what it means where the probabilities of a pair sum to less than one: "error", or "ends" where
            the rest is the probability that the episode ends, a step that pays nothing.
        signals: which columns are signals; every other column of numbers when not given.
        columns: other names for the columns, as {"next_state": "to", "probability": "p"}.
        horizon: ``average`` or ``horizon``.
    """
    if missing not in ("error", "ends"):
        raise ModelError(f'missing is "error" or "ends"; got {missing!r}')
    data = _with_ends(read_log_table(_flat(table), columns), ends)
    rows = _without_gaps(read_rows(data, None, None, None))
    if rows.state_names is not None:
        initial = _named(initial)
    chances = data.numbers("probability")
    outside = np.flatnonzero(~((chances >= 0) & (chances <= 1)))
    data.wrong(
        outside, lambda row: f"probability is {chances[row]:g}; expected a number from 0 to 1"
    )
    named = _signals(data, signals)
    values = {name: data.numbers(name) for name in named}
    data.require_clean()
    size = rows.n_states * rows.n_actions
    totals = np.bincount(rows.pairs, chances, minlength=size)
    available = np.bincount(rows.pairs, minlength=size) > 0
    _check_sums(totals, available, rows, missing)
    _check_left(available.reshape(-1, rows.n_actions), rows)
    # Sums that miss one by rounding are brought to one; larger ones were refused, or end episodes.
    whole = np.abs(totals - 1.0) <= ROUNDED
    chances = chances / np.where(whole, totals, 1.0)[rows.pairs]
    goes_on = ~rows.terminated
    places = (rows.pairs[goes_on], rows.following[goes_on])
    received = {
        name: np.bincount(rows.pairs, chances * one, minlength=size).reshape(-1, rows.n_actions)
        for name, one in values.items()
    }
    return TabularMDP(
        sp.csr_array((chances[goes_on], places), shape=(size, rows.n_states)),
        initial,
        discount,
        signals=received,
        actions=available.reshape(-1, rows.n_actions),
        state_names=rows.state_names,
        action_names=rows.action_names,
        **horizon,
    )


def _without_gaps(rows: LogRows) -> LogRows:
    """Numbers that are not 0, 1, ... are names; states that episodes only end at are none."""
    if rows.state_names is not None or rows.listed.all():
        return rows
    kept = np.flatnonzero(rows.listed)
    counted = kept.size == kept[-1] + 1
    place = np.cumsum(rows.listed) - 1
    return replace(
        rows,
        states=place[rows.states],
        following=np.where(rows.terminated, -1, place[rows.following]),
        n_states=kept.size,
        state_names=None if counted else tuple(map(str, kept.tolist())),
        listed=np.ones(kept.size, dtype=bool),
    )


def _named(initial: Any) -> Any:
    """First states of a model with names: a whole number is one of them."""
    if isinstance(initial, Mapping):
        return {name_of(state): chance for state, chance in initial.items()}
    return name_of(initial) if isinstance(initial, int | np.integer) else initial


def _flat(table: Any) -> Any:
    """Columns of tuples in memory as columns of their names: an array would give them a second axis."""
    if not isinstance(table, Mapping):
        return table
    return {
        name: [name_of(one) for one in column]
        if any(isinstance(one, tuple) for one in column)
        else column
        for name, column in table.items()
    }


def _with_ends(data: LogTable, ends: Iterable[Any]) -> LogTable:
    """The table with a column ``terminated``: as it is there, or where the successor is an end."""
    declared = {name_of(one) for one in ([ends] if isinstance(ends, str) else ends)}
    after = [_label(cell) for cell in data.column("next_state").tolist()]
    known = set(after)
    for name in sorted(declared - known):
        raise ModelError(f"ends: no row leads to {name!r}")
    over = np.array([label in declared for label in after], dtype=bool)
    if "terminated" in data.arrays:
        over = over | data.flags("terminated")
    return replace(data, arrays={**data.arrays, "terminated": over})


def _label(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def _signals(data: LogTable, asked: Iterable[str] | None) -> tuple[str, ...]:
    if asked is not None:
        return names_in(asked)
    others = [name for name in data.arrays if name not in ROLES]
    return tuple(name for name in others if is_numeric(data.arrays[name]))


def _check_sums(totals: np.ndarray, available: np.ndarray, rows: LogRows, missing: str) -> None:
    wrong = available & (totals > 1.0 + ROUNDED)
    if missing == "error":
        wrong |= available & (totals < 1.0 - ROUNDED)
    if not wrong.any():
        return
    listed = ", ".join(
        f"{totals[k]:.6g} in state {rows.state_label(k // rows.n_actions)!r}, action "
        f"{rows.action_label(k % rows.n_actions)!r}"
        for k in np.flatnonzero(wrong)[:SHOWN]
    )
    more = f", and {int(wrong.sum()) - SHOWN:,} more" if wrong.sum() > SHOWN else ""
    raise ModelError(
        f"the probabilities of a pair sum to one; they sum to {listed}{more}. Where episodes end, declare "
        'it: ends=[...] with the states they end at, a column "terminated", or missing="ends"; where digits '
        "were cut off, give more of them; else rows are missing."
    )


def _check_left(available: np.ndarray, rows: LogRows) -> None:
    """Every state that is led to has rows of its own."""
    stuck = np.flatnonzero(rows.listed & ~available.any(axis=1))
    if stuck.size:
        names = [rows.state_label(state) for state in stuck[:SHOWN]]
        listed = ", ".join(repr(name) for name in names)
        more = f" and {stuck.size - SHOWN:,} more" if stuck.size > SHOWN else ""
        raise ModelError(
            f"rows lead to {listed}{more}, and none leaves. Where episodes end there, give ends={names}; else "
            "rows are missing."
        )
