r"""Models estimated from logged transitions.

The estimate is the plain one: P(s' | s, a) is the share of the rows (s, a) that went on to s', the probability
of ending the share that were ``terminated``, a signal the mean over those rows. It carries its counts, so that
what holds in reality can be said, and not of the estimate alone. Nothing is deleted: a row that leads to a
state nobody left keeps its probability.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import CvxmdpWarning, ModelError, did_you_mean
from cvxmdp.base.text_tables import several
from cvxmdp.experience.declared import (
    counted_signal,
    names_in,
    read_available,
    read_bounds,
    read_known,
    read_supports,
)
from cvxmdp.experience.log_rows import LogRows, episode_starts, read_rows
from cvxmdp.experience.log_table import LogTable, is_numeric, read_log_table, shown
from cvxmdp.experience.minari_datasets import is_minari, transition_table
from cvxmdp.models.counts import Counts
from cvxmdp.models.estimate import estimated_model
from cvxmdp.models.table import TabularMDP

ROLES = ("state", "action", "next_state", "terminated", "truncated", "episode")
NO_SIGNALS = ("step", "time", "t")  # columns that may number the rows of an episode
MANY = 0.25  # of the rows: distinct values that make a measurement, and copies that nobody measures
LEAST_COPIED = 20  # rows below which copies may be chance
COMMA = re.compile(r"[-+]?\d+,\d+")  # a number as some countries write it
UNKNOWN = {
    "worst": "taken for ever at the worst coefficient of each utility",
    "end": "taken as endings, as you said",
}


def from_transitions(
    table: Any,
    discount: float,
    *,
    horizon: int | None = None,
    signals: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    initial: Any = None,
    known: Mapping[str, Any] | Iterable[str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    supports: Any = None,
    actions: Any = None,
    unknown: str = "worst",
    n_states: int | None = None,
    n_actions: int | None = None,
    max_pairs: int = 50_000_000,
) -> TabularMDP:
    """Estimate a model from logged transitions, one per row; it carries its counts (``mdp.counts``).

    Columns ``state``, ``action``, ``next_state`` and ``terminated`` are needed. ``truncated`` and
    ``episode`` are used where they are there; every other column that holds numbers is a signal, unless it is
    called ``step``, ``time`` or ``t`` and numbers the rows of an episode, or has no name.

    - An episode goes on from row to row. It is over after a terminated or truncated row, where
      ``episode`` changes, and, without that column, where a row does not begin in the state the row
      before led to. One that is over without ``terminated`` was truncated: it says nothing about
      endings, and the note counts it.
    - The initial distribution is that of the episodes' first states, unless ``initial`` is given.
    - Pairs that no row has are masked: plans do not use them. A state that some row leads to but no row leaves
      keeps its probability; ``unknown`` says what to think of it.
    - A terminated row is an end, whatever its ``next_state``; the same pair may end in one row and go on in
      another, which are two outcomes.

    What is declared makes statements about the true model sharper, and rows that contradict it are refused.
    Functions are called with states and actions as the log has them.

    Args:
        table: a pandas data frame, a mapping of names to arrays, the path of a CSV or Parquet file, or a Minari
            dataset (its folder, or loaded).
        discount: gamma; 1 for sums without a discount, where episodes surely end, or with a horizon.
        horizon: T, for the first T steps of an episode alone.
        signals: which columns are signals; every other column of numbers when not given.
        columns: other names for the columns, as {"next_state": "s2"}.
        initial: the initial distribution or state, for rows that are not whole episodes, or where it is known.
        known: signals that are known functions of state and action: arrays (S,) or (S, A), or functions, by
            name; or names of columns, whose value is then known where a pair was tried.
        bounds: least and largest value of estimated signals, {"cost": (0, 1)}.
        supports: which outcomes are possible: a model; a boolean array (S, A, S + 1), its last column for
            endings; or a function of state and action that gives the states that may follow, None for an end.
        actions: which actions there are: boolean (S, A), a function from a state to its actions, or the names
            of all actions; all in all states when not given.
        unknown: what a state is that nobody left: "worst", where one stays for ever at each utility's worst
            coefficient, or "end".
        n_states, n_actions: at least so many, for states and actions that are numbers.
        max_pairs: stop with an error beyond so many states times actions.

    Returns:
        A model with a note; states and actions that are numbers keep them, others are numbered in the
        order they appear and keep their names.
    """
    if unknown not in UNKNOWN:
        raise ModelError(f'unknown must be "worst" or "end"; got {unknown!r}')
    empty = n_states is not None and n_actions is not None and initial is not None
    log = transition_table(table) if is_minari(table) else table
    data = read_log_table(log, columns, empty=empty)
    _require_log(data, signals)
    named = actions if _is_names(actions) else None
    promised = read_bounds(bounds)
    values = {name: data.numbers(name) for name in _signal_names(data, signals, known, promised)}
    may_count = set() if signals is not None else {*NO_SIGNALS} - {*promised, *names_in(known)}
    rows = read_rows(data, n_states, n_actions, named)
    _require_room(rows, max_pairs)
    functions, exact = read_known(known, rows, data)
    starts, truncated = episode_starts(data, rows, ordered=initial is None)
    data.require_clean()
    for name in may_count & {*values}:
        if _rises(values[name], starts):
            del values[name]
    available = read_available(None if named is not None else actions, rows, data)
    outcomes, unleft = _outcomes(rows, unknown)
    if unknown == "end":
        available[unleft] = False
    elif (idle := np.flatnonzero(unleft & ~available.any(axis=1))).size:
        raise ModelError(
            f"actions= gives no action for state {rows.state_label(idle[0])!r}, which nobody left: "
            'unknown="end" makes such states ends'
        )
    _require_first(initial, rows)
    restricted = read_supports(supports, rows, available, outcomes, data)
    counted = {
        name: counted_signal(name, value, promised.get(name), name in exact, rows, data)
        for name, value in values.items()
    }
    data.require_clean()
    _ask_about_copies(rows, values)
    size = (rows.n_states * rows.n_actions, rows.n_states + 1)
    ones = np.ones(len(outcomes), dtype=np.int64)
    matrix = sp.csr_array((ones, (rows.pairs, outcomes)), shape=size)
    matrix.sum_duplicates()
    begun = np.bincount(rows.states[starts], minlength=rows.n_states)
    treatment = _treatment(rows, len(starts), truncated, unleft, unknown)
    counts = Counts(
        matrix,
        available,
        begun if initial is None else None,
        counted,
        restricted,
        treatment,
        promises=_ends_declared(rows, unleft) if unknown == "end" else (),
    )
    return estimated_model(
        counts,
        discount,
        horizon=horizon,
        initial=initial,
        known=functions,
        state_names=rows.state_names,
        action_names=rows.action_names,
        note=f"estimated model ({'; '.join(treatment)})",
    )


def _is_names(actions: Any) -> bool:
    """Whether ``actions=`` lists names, and is no mask."""
    several = isinstance(actions, Sequence) and not isinstance(actions, str)
    return several and len(actions) > 0 and all(isinstance(one, str) for one in actions)


def _require_log(data: LogTable, signals: Iterable[str] | None) -> None:
    """A table of probabilities is a model, and no log."""
    if "probability" not in data.arrays or signals is not None:
        return
    raise ModelError(
        f"{data.source or 'the table'} has a column 'probability': this is the table of a known model, not a "
        'log of what happened. Read it as one: in a problem file with [model] kind = "probabilities" and path '
        '= "the file.csv"; in Python as from_table("the file.csv", discount). If the column is a signal of a '
        "log, name the signals: signals=[...]."
    )


def _require_first(initial: Any, rows: LogRows) -> None:
    """Episodes begin in states: a log that counts from one has no state zero."""
    if isinstance(initial, str) or rows.state_names is not None or initial is None:
        return
    given = np.asarray(initial)
    if given.ndim == 0 and given.dtype.kind in "iu":
        first = given.reshape(1)
    else:
        first = np.flatnonzero(given) if given.shape == rows.listed.shape else np.zeros(0, int)
    strange = [int(one) for one in first if 0 <= one < rows.n_states and not rows.listed[one]]
    if strange:
        known = np.flatnonzero(rows.listed)
        raise ModelError(
            f"initial= begins in state {strange[0]}, which no row names: the log's states are {known[0]} to "
            f"{known[-1]}. If it is one, give n_states={rows.n_states}, which says that every number below "
            "it is a state"
        )


def _rises(values: np.ndarray, starts: np.ndarray) -> bool:
    """Whether a column numbers the rows of every episode."""
    within = np.ones(max(len(values) - 1, 0), dtype=bool)
    within[starts[1:] - 1] = False
    return bool((np.diff(values)[within] > 0).all())


def _require_room(rows: LogRows, max_pairs: int) -> None:
    if rows.n_states * rows.n_actions > max_pairs:
        raise ModelError(
            f"the log names {rows.n_states:,} states and {rows.n_actions:,} actions, more than max_pairs="
            f"{max_pairs:,} together; give a larger max_pairs= if there is memory for it, or use names "
            "(text) instead of numbers"
        )


def _signal_names(
    data: LogTable,
    asked: Iterable[str] | None,
    known: Mapping[str, Any] | Iterable[str] | None,
    promised: Iterable[str],
) -> list[str]:
    """The columns that are estimated: as asked, else those of numbers; what is promised is one of them."""
    functions = tuple(known) if isinstance(known, Mapping) else ()
    promised = [*promised, *(() if functions else names_in(known))]
    if asked is None:
        # A column without a name numbers the rows: pandas writes one.
        others = [name for name in data.arrays if name and name not in ROLES]
        names = [name for name in others if is_numeric(data.arrays[name])]
        for name in set(others) - set(names):
            _require_points(name, data.arrays[name], data)
    else:
        names = list(names_in(asked))
    for name in (*names, *promised):
        if name not in data.arrays and name not in functions:
            raise ModelError(f"there is no column {name!r}. {did_you_mean(name, data.arrays)}")
    more = [name for name in promised if name not in names]
    return [name for name in dict.fromkeys([*names, *more]) if name not in functions]


def _require_points(name: str, column: np.ndarray, data: LogTable) -> None:
    """Numbers with a decimal comma would pass for texts, and be no signal without a word."""
    commas = [row for row, cell in enumerate(column.tolist()) if COMMA.fullmatch(str(cell).strip())]
    data.wrong(
        commas,
        lambda row: f"{name} is {shown(column[row])}; write numbers with a decimal point",
    )


def _ask_about_copies(rows: LogRows, values: Mapping[str, np.ndarray]) -> None:
    """A log that was appended to itself counts everything twice, and nothing that it proves is so."""
    count = len(rows.states)
    measured = [name for name, one in values.items() if np.unique(one).size >= MANY * count]
    if count < LEAST_COPIED or not measured:
        return  # rows that only name things repeat themselves
    moves = _numbered(rows.pairs, rows.following, rows.terminated)
    whole = _numbered(moves, *(values[name] for name in measured))
    named, distinct = int(moves.max()) + 1, int(whole.max()) + 1
    if distinct > (1 + MANY) * named and count - distinct >= MANY * count:
        warnings.warn(
            f"{count - distinct:,} of {count:,} rows repeat another one to the last digit of "
            f"{', '.join(measured)}: was something recorded twice? Every row is counted, and what is said of "
            "the true model rests on each having been recorded once.",
            CvxmdpWarning,
            stacklevel=3,
        )


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """Rows of columns as numbers from zero on; those that are the same have one."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        own = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (int(own.max()) + 1) + own, return_inverse=True)[1]
    return number


def _outcomes(rows: LogRows, unknown: str) -> tuple[np.ndarray, np.ndarray]:
    """The column of every row, S for an end; and the states that nobody left."""
    left = np.zeros(rows.n_states, dtype=bool)
    left[rows.states] = True
    unleft = rows.listed & ~left
    ended = rows.terminated | ((unknown == "end") & unleft[rows.following])
    return np.where(ended, rows.n_states, rows.following), unleft


def _ends_declared(rows: LogRows, unleft: np.ndarray) -> tuple[str, ...]:
    """That states nobody left are ends, where there are any."""
    met = [rows.state_label(state) for state in np.flatnonzero(unleft).tolist()]
    several = f"{met[0]!r}{f' and {len(met) - 1:,} more' if len(met) > 1 else ''}" if met else ""
    return (
        (f"states that nobody left ({several}) are ends, at which nothing is paid",) if met else ()
    )


def _treatment(
    rows: LogRows, episodes: int, truncated: int, unleft: np.ndarray, unknown: str
) -> tuple[str, ...]:
    parts = [f"{several(len(rows.states), 'transition')} of {several(episodes, 'episode')}"]
    if truncated:
        parts.append(f"{truncated:,} of them truncated, which is not counted as an end")
    met = np.unique(rows.following[~rows.terminated])
    lost = int(unleft[met].sum())
    if lost:
        parts.append(f"{lost:,} states that nobody left, {UNKNOWN[unknown]}")
    return tuple(parts)
