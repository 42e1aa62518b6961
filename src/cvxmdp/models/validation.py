"""Reading what a user gives as a model: shapes, probabilities, signals; errors that name the place.

Nothing is renormalised or clipped. Sparse input stays sparse; every check is one vectorised pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import CvxmdpError, ModelError
from cvxmdp.base.masks import refuse_masked
from cvxmdp.models.names import Names, PairNames, name_of

# A row that misses one by less than ROUNDING sums to one; by more than ENDING it ends episodes.
# In between it looks like lost digits, and treating those as endings would be a silent mistake.
ROUNDING = 1e-12
ENDING = 1e-6
INITIAL_ROUNDING = 1e-9

NO_LISTS = np.empty((0, 0, 0))


@dataclass(frozen=True)
class PairLabel:
    """Names a state-action pair, a row of the transition table, in messages."""

    n_actions: int
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None

    def state(self, state: int) -> str:
        name = f" ({self.state_names[state]!r})" if self.state_names else ""
        return f"state {state}{name}"

    def row(self, row: int) -> str:
        """A state-action pair in words, from its row number s * A + a."""
        state, action = divmod(int(row), self.n_actions)
        name = f" ({self.action_names[action]!r})" if self.action_names else ""
        return f"{self.state(state)}, action {action}{name}"

    def names(self, n_states: int, where: str) -> PairNames:
        """States and actions by name; ``where`` they are given, for messages."""
        actions = Names("action", self.n_actions, self.action_names, where=where)
        return PairNames(Names("state", n_states, self.state_names, where=where), actions)


@dataclass(frozen=True)
class TransitionRows:
    """The transition as compressed sparse rows, and the form it was given in (for signals)."""

    matrix: sp.csr_array
    form: str  # "dense", "sparse" or "lists"
    indices: np.ndarray  # (S, A, b) as given where the form is "lists", else empty
    probabilities: np.ndarray


class FixedRows(sp.csr_array):  # type: ignore[misc]
    """Sparse rows whose arrays cannot be exchanged once ``freeze`` has seen them; copies and products can."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("data", "indices", "indptr", "_shape") and "fixed" in self.__dict__:
            raise AttributeError(
                f"the transition of a model cannot be changed (tried to set {name.strip('_')!r}); make "
                "another model with mdp.replace(transition=...)"
            )
        super().__setattr__(name, value)


def freeze(value: Any) -> None:
    """Make an array, or the arrays inside a sparse matrix or a mapping, read-only."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif sp.issparse(value):
        for part in (value.data, value.indices, value.indptr):
            part.flags.writeable = False
        value.fixed = True
    elif hasattr(value, "values"):
        for part in value.values():
            freeze(part)


def numbers(given: Any, what: str, error: type[CvxmdpError] = ModelError) -> np.ndarray:
    """A float64 array that shares no memory with what was given; an error where it is not numeric."""
    try:
        array = np.array(given)
        if np.iscomplexobj(array):
            raise TypeError("these are complex")
        refuse_masked(given)
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as cause:
        raise error(f"{what} must be an array of real numbers: {cause}") from cause


def read_transition(transition: Any) -> TransitionRows:
    """The three accepted forms of P as one: compressed sparse rows (S*A, S)."""
    if sp.issparse(transition):
        return _read_sparse(transition)
    if isinstance(transition, tuple) and len(transition) == 2 and _dimensions(transition[0]) == 3:
        return _read_successor_lists(*transition)
    dense = numbers(transition, "transition")
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
        raise ModelError(
            f"transition has shape {dense.shape}; expected a dense (S, A, S) array, a SciPy sparse "
            "(S*A, S) matrix, or a pair (indices, probabilities) of (S, A, b) arrays"
        )
    n_states, n_actions, _ = dense.shape
    matrix = sp.csr_array(dense.reshape(n_states * n_actions, n_states))
    return TransitionRows(matrix, "dense", NO_LISTS, NO_LISTS)


def _dimensions(given: Any) -> int:
    try:
        return np.ndim(given)
    except ValueError:  # ragged lists
        return -1


def _read_sparse(transition: Any) -> TransitionRows:
    rows, n_states = transition.shape if transition.ndim == 2 else (0, 0)
    if n_states == 0 or rows == 0 or rows % n_states:
        raise ModelError(
            f"a sparse transition has shape {transition.shape}; expected (S*A, S): one row per "
            "state-action pair, row s * A + a for state s and action a"
        )
    if np.iscomplexobj(transition.data):
        raise ModelError(
            f"transition must hold real numbers; its entries are of type {transition.dtype}"
        )
    own = transition.copy()  # SciPy's check prunes what it is given
    _check_sparse_format(own)
    matrix = sp.csr_array(own, dtype=np.float64)
    return TransitionRows(_canonical(matrix), "sparse", NO_LISTS, NO_LISTS)


def _check_sparse_format(matrix: Any) -> None:
    """Before SciPy's compiled code, which trusts indices and pointers, touches the matrix."""
    if not hasattr(matrix, "check_format"):
        return
    try:
        matrix.check_format(full_check=True)
        # With a negative number of entries check_format does not look at the pointers.
        if (np.diff(matrix.indptr) < 0).any():
            raise ValueError("index pointer values must form a non-decreasing sequence")
    except ValueError as error:
        raise ModelError(f"the sparse transition is malformed: {error}") from error


def _read_successor_lists(indices: Any, probabilities: Any) -> TransitionRows:
    indices = np.asarray(indices)
    probabilities = numbers(probabilities, "the probabilities of successor lists")
    if indices.shape != probabilities.shape or not np.issubdtype(indices.dtype, np.integer):
        raise ModelError(
            f"successor lists need integer indices and probabilities of one shape (S, A, b); got "
            f"indices {indices.shape} of type {indices.dtype}, probabilities {probabilities.shape}"
        )
    n_states, n_actions, width = indices.shape
    if 0 in indices.shape:
        raise ModelError(f"successor lists of shape {indices.shape} describe no transition")
    outside = (indices < 0) | (indices >= n_states)
    padding = outside & (probabilities == 0)
    if (outside & ~padding).any():
        state, action, entry = np.argwhere(outside & ~padding)[0]
        raise ModelError(
            f"successor {indices[state, action, entry]} of state {state}, action {action} is not a "
            f"state: states are 0 to {n_states - 1} (pad short lists with probability 0)"
        )
    kind = np.int32 if indices.size < np.iinfo(np.int32).max else np.int64
    columns = np.where(padding, 0, indices).astype(kind).ravel()
    pointers = np.arange(0, indices.size + 1, width, dtype=kind)
    shape = (n_states * n_actions, n_states)
    # Another copy of the probabilities: _canonical sums duplicates in place.
    matrix = sp.csr_array((probabilities.ravel().copy(), columns, pointers), shape=shape)
    _check_entries(matrix.data, matrix, PairLabel(n_actions, None, None))
    return TransitionRows(_canonical(matrix), "lists", indices, probabilities)


def _canonical(matrix: sp.csr_array) -> sp.csr_array:
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def drop_masked_rows(matrix: sp.csr_array, mask: np.ndarray) -> sp.csr_array:
    """The rows of actions that are not available hold nothing, whatever was given there."""
    if mask.all():
        return matrix
    lengths = np.diff(matrix.indptr)
    keep = np.repeat(mask.ravel(), lengths)
    pointers = np.concatenate([[0], np.cumsum(np.where(mask.ravel(), lengths, 0))])
    parts = (matrix.data[keep], matrix.indices[keep], pointers.astype(matrix.indptr.dtype))
    return sp.csr_array(parts, shape=matrix.shape)


def _check_entries(data: np.ndarray, matrix: sp.csr_array, label: PairLabel) -> None:
    for wrong, word in ((~np.isfinite(data), "not finite"), (data < 0, "negative")):
        if wrong.any():
            entry = int(np.argmax(wrong))
            row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
            raise ModelError(
                f"the probability of going from {label.row(row)} to state "
                f"{matrix.indices[entry]} is {data[entry]}, which is {word}"
            )


def check_rows(
    matrix: sp.csr_array, mask: np.ndarray, label: PairLabel, least: float = ENDING
) -> np.ndarray:
    """Check that each row is a (sub)distribution; return the probability of ending, (S, A).

    Args:
        matrix, mask, label: the rows, which of them are there, and their names.
        least: a smaller probability of ending is taken for lost digits.
    """
    _check_entries(matrix.data, matrix, label)
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    missing = np.where(mask.ravel(), 1.0 - sums, 0.0)
    if (missing < -ROUNDING).any():
        row = int(np.argmax(missing < -ROUNDING))
        raise ModelError(
            f"the probabilities of {label.row(row)} sum to {sums[row]:.17g}, more than one. "
            "Divide each row by its sum if this is rounding."
        )
    doubtful = (missing > ROUNDING) & (missing < least)
    if doubtful.any():
        row = int(np.argmax(doubtful))
        raise ModelError(
            f"the probabilities of {label.row(row)} sum to {sums[row]:.17g}. A row may sum to less "
            f"than one, and the rest is the probability that the episode ends, but a rest of "
            f"{missing[row]:.1e} looks like rounding. Divide the row by its sum, or, if episodes do "
            f"end here, by a probability of at least {least:g}."
        )
    return np.where(missing > ROUNDING, missing, 0.0).reshape(mask.shape)


def with_sums_of_one(matrix: sp.csr_array, whole: np.ndarray) -> sp.csr_array:
    """The matrix with the rows that end no episode, ``whole`` (S, A), divided by their sums.

    A sum off by 1e-16 would limit what can be proven to 1e-16 / (1 - discount).
    """
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    factors = np.where(whole.ravel(), sums, 1.0)
    if (factors == 1.0).all():
        return matrix
    data = matrix.data / np.repeat(factors, np.diff(matrix.indptr))
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def read_actions(given: Any, n_states: int, n_actions: int, label: PairLabel) -> np.ndarray:
    """The mask of available actions, (S, A); every state keeps at least one."""
    if given is None:
        return np.ones((n_states, n_actions), dtype=bool)
    mask = np.array(given)
    if mask.shape != (n_states, n_actions) or mask.dtype != bool:
        raise ModelError(
            f"actions must be a boolean array of shape {(n_states, n_actions)}, true where the "
            f"action is available; got shape {mask.shape} of type {mask.dtype}"
        )
    without = ~mask.any(axis=1)
    if without.any():
        raise ModelError(
            f"{label.state(int(np.argmax(without)))} has no available action. A state where "
            "episodes end needs an action whose row sums to less than one (a row of zeros ends "
            "the episode surely)."
        )
    return mask


def read_initial(given: Any, n_states: int, label: PairLabel) -> np.ndarray:
    """The initial distribution (S,), from a distribution, by name too, or one state: its number or name."""
    states = label.names(n_states, "initial").states
    if isinstance(given, Mapping):
        given = states.column(given)
    elif isinstance(given, int | np.integer | str) or (
        isinstance(given, tuple) and (given in states or any(isinstance(one, str) for one in given))
    ):
        given = np.eye(1, n_states, states.number(given))[0]
    initial = numbers(given, "initial")
    if initial.shape != (n_states,):
        raise ModelError(
            f"initial has shape {initial.shape}; expected a distribution of shape {(n_states,)} or "
            "the number or name of the first state"
        )
    wrong = ~np.isfinite(initial) | (initial < 0)
    if wrong.any():
        state = int(np.argmax(wrong))
        raise ModelError(f"the initial probability of {label.state(state)} is {initial[state]}")
    if abs(initial.sum() - 1.0) > INITIAL_ROUNDING:
        raise ModelError(
            f"the initial distribution sums to {initial.sum():.12g}, not to one. "
            "Divide it by its sum."
        )
    return initial


def read_discount(given: Any) -> float:
    """A discount factor in [0, 1)."""
    discount = read_factor(given)
    if discount == 1.0:
        raise ModelError(
            "discount must be less than 1 here; got 1.0. Undiscounted sums are for models, "
            "TabularMDP(..., discount=1); a discount near one (0.99, 0.999) approximates them."
        )
    return discount


def read_factor(given: Any) -> float:
    """A discount factor in [0, 1]."""
    try:
        discount = float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"discount must be a number in [0, 1]; got {given!r}") from error
    if not 0.0 <= discount <= 1.0:
        raise ModelError(f"discount must be at least 0 and at most 1; got {discount}")
    return discount


def read_steps(given: Any) -> int:
    """A number of steps, at least 1."""
    try:
        steps = index(given)
    except TypeError as error:
        raise ModelError(f"horizon must be a whole number of steps; got {given!r}") from error
    if steps < 1:
        raise ModelError(f"horizon must be at least 1 step; got {steps}")
    return steps


def read_names(given: Sequence[str] | None, count: int, what: str) -> tuple[str, ...] | None:
    """Names of states or actions: as many as there are, all different."""
    if given is None:
        return None
    names = tuple(name_of(name) for name in given)
    if len(names) != count:
        raise ModelError(f"{what} has {len(names)} names for {count} of them")
    if len(set(names)) != count:
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise ModelError(f"{what} must be different from each other; {twice!r} occurs twice")
    return names


def read_table(given: Any, what: str, example: str) -> Mapping[Any, Any]:
    """Something given by name or by cell: a dictionary. A list would not say what is what."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        shown = f"a {type(given).__name__}"
        if isinstance(given, np.ndarray):
            shown = f"an array of shape {given.shape}"
        elif isinstance(given, Sized):
            shown += f" of length {len(given)}"
        raise ModelError(f"{what} must be a dictionary, such as {what}={example}; got {shown}")
    return given


def read_signal(
    name: str,
    given: Any,
    rows: TransitionRows,
    ending: np.ndarray,
    mask: np.ndarray,
    label: PairLabel,
) -> np.ndarray:
    """A signal as its expected value per pair, (S, A); zero where the action is not available."""
    if not isinstance(name, str) or not name:
        raise ModelError(f"signals have names; got {name!r}")
    n_states, n_actions = mask.shape
    if isinstance(given, Mapping):
        given = label.names(n_states, f"signal {name!r}").table(given)
    signal = given if sp.issparse(given) else numbers(given, f"signal {name!r}")
    if not sp.issparse(signal) and signal.shape == (n_states,):
        expected = np.repeat(signal[:, None], n_actions, axis=1)
    elif not sp.issparse(signal) and signal.shape == (n_states, n_actions):
        expected = signal
    else:
        expected = _expected_signal(name, signal, rows, ending)
    wrong = mask & ~np.isfinite(expected)
    if wrong.any():
        row = int(np.argmax(wrong.ravel()))
        raise ModelError(f"signal {name!r} is {expected.ravel()[row]} at {label.row(row)}")
    return np.where(mask, expected, 0.0)


def _expected_signal(
    name: str, signal: Any, rows: TransitionRows, ending: np.ndarray
) -> np.ndarray:
    """Mean over successors of a signal given per successor, the ending step included."""
    columns = _check_successor_shape(name, signal, rows, ending)
    if sp.issparse(signal):
        signal = signal.tocsr()
        last = signal[:, [-1]].toarray()
    else:
        last = signal[..., -1]
    if rows.form == "lists":
        used = np.where(rows.probabilities > 0, signal[..., :columns], 0.0)
        expected = (rows.probabilities * used).sum(axis=2)
    else:
        per_row = signal[..., :columns].reshape(rows.matrix.shape)
        expected = _mean_over_entries(rows.matrix, per_row)
    # A value for the ending step counts only where episodes do end.
    last = np.where(ending > 0, last.reshape(ending.shape), 0.0)
    return expected.reshape(ending.shape) + ending * last


def _mean_over_entries(matrix: sp.csr_array, values: Any) -> np.ndarray:
    """Row sums of matrix * values; what ``values`` holds outside the matrix's entries is not read."""
    if not matrix.nnz:
        return np.zeros(matrix.shape[0])
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    received = np.asarray(values[rows, matrix.indices]).ravel()
    return np.bincount(rows, weights=matrix.data * received, minlength=matrix.shape[0])


def _check_successor_shape(name: str, signal: Any, rows: TransitionRows, ending: np.ndarray) -> int:
    """The number of successor columns, without the one for the ending step."""
    n_states, n_actions = ending.shape
    table: tuple[int, ...] = (n_states, n_actions)
    columns, form = n_states, "(S, A, S{})"
    if rows.form == "lists":
        columns, form = rows.indices.shape[2], "(S, A, b{})"
    elif sp.issparse(signal):
        table, form = (n_states * n_actions,), "(S*A, S{})"
    ends = bool((ending > 0).any())
    allowed = [(*table, columns + 1)] + ([] if ends else [(*table, columns)])
    if signal.shape not in allowed:
        hint = (
            " Some rows end episodes, so the last column is the value received with the ending step."
            if ends
            else ""
        )
        raise ModelError(
            f"signal {name!r} has shape {signal.shape}; expected (S,) = {(n_states,)}, (S, A) = "
            f"{(n_states, n_actions)}, or per successor {form.format(' + 1' if ends else '')} = "
            f"{(*table, columns + int(ends))}.{hint}"
        )
    return columns


def read_relative_error(given: Any, counts: object) -> float:
    """By which share of itself a probability may be wrong, between 0 and 1."""
    plain = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not plain or not 0 <= float(given) <= 1:
        raise ModelError(
            f"a relative error is a number between 0 and 1, such as 0.05; got {given!r}"
        )
    if given and counts is not None:
        raise ModelError(
            "a model with counts says itself how wrong it may be; mdp.replace(counts=None) takes it as known"
        )
    return float(given)
