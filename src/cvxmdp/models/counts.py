"""What was seen of a model: how often each pair was tried, and what came of it.

A *row* is a pair (s, a), number s * A + a. Its *outcomes* are the states and ``end``: the last column. An
estimate divides counts by visits and forgets how many there were; here they are kept, so that whoever reads
the estimate can say how sure it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.validation import drop_masked_rows, freeze

PARTS = ("data", "indices", "indptr")  # of compressed sparse rows
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class SignalCounts:
    """What rows say of a signal that is estimated.

    Attributes:
        sums: of its values per pair, (S, A).
        bounds: the least and the largest value it can have, as promised; None where nobody promised.
        exact: it is promised to be a function of state and action: known where a pair was tried.
    """

    sums: np.ndarray
    bounds: tuple[float, float] | None = None
    exact: bool = False


@dataclass(frozen=True, eq=False)
class Counts:
    """Visits of every pair and successor, with what was declared.

    A state without available actions is none: nothing leads there. Where a pair is available and was never
    tried, nothing is known of it.

    Attributes:
        outcomes: how often a row led where, (S*A, S + 1) integers in compressed sparse rows; the last column
            counts endings.
        available: which actions there are, tried or not, boolean (S, A).
        initial: how many episodes began in each state, (S,); None where the initial distribution was declared.
        signals: the estimated ones by name.
        known: signals that are known functions of state and action, (S, A), pairs that nobody tried included.
        supports: the outcomes that are possible, boolean like ``outcomes``; None where nobody said.
        treatment: how rows were read, in words.
        promises: what was declared besides, in words.
    """

    outcomes: sp.csr_array
    available: np.ndarray
    initial: np.ndarray | None = None
    signals: Mapping[str, SignalCounts] = field(default_factory=dict)
    supports: sp.csr_array | None = None
    treatment: tuple[str, ...] = ()
    known: Mapping[str, np.ndarray] = field(default_factory=dict)
    promises: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        size, shape = self.available.size, self.available.shape
        if self.outcomes.shape != (size, shape[0] + 1):
            raise ModelError(
                f"counts of shape {self.outcomes.shape} do not fit {shape[0]} states and {shape[1]} actions; "
                f"expected (S*A, S + 1) = {(size, shape[0] + 1)}"
            )
        entries = self.outcomes.data
        if entries.dtype.kind not in "iu" or (entries < 0).any():
            raise ModelError("counts are whole numbers that are not negative")
        refused = (self.visits > 0) & ~self.available
        if refused.any():
            state, action = np.argwhere(refused)[0]
            raise ModelError(
                f"action {action} was counted in state {state}, where it is not available"
            )
        object.__setattr__(self, "signals", MappingProxyType(dict(self.signals)))
        object.__setattr__(self, "treatment", tuple(self.treatment))
        object.__setattr__(self, "promises", tuple(self.promises))
        object.__setattr__(self, "known", MappingProxyType(dict(self.known)))
        arrays = (self.outcomes, self.available, self.initial, self.supports, self._sums())
        for array in (*arrays, dict(self.known)):
            freeze(array)

    def _sums(self) -> dict[str, np.ndarray]:
        return {name: signal.sums for name, signal in self.signals.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.outcomes, self.available, self.initial, dict(self.signals))
        return Counts, (*given, self.supports, self.treatment, dict(self.known), self.promises)

    @cached_property
    def visits(self) -> np.ndarray:
        """How often each pair was tried, integers (S, A)."""
        return np.asarray(self.outcomes.sum(axis=1), dtype=np.int64).reshape(self.available.shape)

    @property
    def tried(self) -> np.ndarray:
        """Pairs of which something is known, boolean (S, A)."""
        return self.visits > 0

    @property
    def listed(self) -> np.ndarray:
        """Boolean (S,): which numbers are states at all."""
        return np.asarray(self.available.any(axis=1))

    @property
    def unknown(self) -> np.ndarray:
        """Boolean (S,): states that nobody left, so that nothing is known of what comes after."""
        return self.listed & ~self.tried.any(axis=1)

    @property
    def total(self) -> int:
        """How many rows were counted."""
        return int(self.outcomes.sum())

    def repeated(self, factors: np.ndarray) -> Counts:
        """As if pairs had been tried so many times as often, (S, A) whole numbers, with the same shares.

        Episodes have begun as many times as often as the pair that was repeated most.
        """
        often = np.repeat(factors.ravel(), np.diff(self.outcomes.indptr))
        parts = (self.outcomes.data * often, self.outcomes.indices, self.outcomes.indptr)
        signals = {n: replace(one, sums=one.sums * factors) for n, one in self.signals.items()}
        begun = None if self.initial is None else self.initial * factors.max()
        outcomes = sp.csr_array(parts, self.outcomes.shape)
        return replace(self, outcomes=outcomes, initial=begun, signals=signals)

    def changed(self, arguments: Mapping[str, Any], changes: Mapping[str, Any]) -> Counts | None:
        """What is left of the counts where other arguments of the model are given; None for other transitions.

        Args:
            arguments: the model's, as they were.
            changes: what is given instead.
        """
        if "transition" in changes:
            return None
        initial, available = self.initial, self.available
        if "initial" in changes:
            initial = None  # declared now
        if changes.get("actions") is not None:
            available = np.array(changes["actions"], dtype=bool)
        old, new = arguments["signals"], changes.get("signals", arguments["signals"])
        same = {name for name in new if name in old and np.array_equal(new[name], old[name])}
        kept = {name: signal for name, signal in self.signals.items() if name in same}
        known = {name: signal for name, signal in self.known.items() if name in same}
        given = {name: new[name] for name in new if name not in same}
        outcomes = self.outcomes
        if available.shape != self.available.shape:
            return None
        if (self.tried & ~available).any():
            outcomes = drop_masked_rows(outcomes, available)
        known |= known_signals(given, available.shape)
        return replace(
            self,
            outcomes=outcomes,
            available=available,
            initial=initial,
            signals=kept,
            known=known,
        )

    def __str__(self) -> str:
        visits = self.visits[self.available]
        if not visits.size:
            return "no pairs"
        least, quarter, median, most_of, most = np.quantile(visits, QUANTILES)
        never = int((visits == 0).sum())
        spread = f"{least:,.0f}, {quarter:,.0f}, {median:,.0f}, {most_of:,.0f}, {most:,.0f}"
        pairs = f"{never:,} of {visits.size:,} pairs never tried"
        text = f"visits per pair {spread} (least, quartiles, most); {pairs}"
        unknown = int(self.unknown.sum())
        return f"{text}; {unknown:,} states nobody left" if unknown else text


def known_signals(given: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Signals that are known functions, (S, A): those given per state or per pair, not per successor."""
    arrays = {name: np.asarray(one) for name, one in given.items() if not sp.issparse(one)}
    per_pair = {
        name: np.repeat(one[:, None], shape[1], axis=1) if one.shape == shape[:1] else one
        for name, one in arrays.items()
    }
    return {
        name: np.array(one, dtype=np.float64)
        for name, one in per_pair.items()
        if one.shape == shape
    }


def counts_parts(counts: Counts) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of counts, and what is said of them besides, for files."""
    arrays = {f"counts/outcomes/{part}": getattr(counts.outcomes, part) for part in PARTS}
    arrays["counts/available"] = counts.available
    if counts.initial is not None:
        arrays["counts/initial"] = counts.initial
    if counts.supports is not None:
        supports = {f"counts/supports/{part}": getattr(counts.supports, part) for part in PARTS}
        arrays.update(supports)
    arrays.update({f"counts/signal/{name}": one.sums for name, one in counts.signals.items()})
    arrays.update({f"counts/known/{name}": one for name, one in counts.known.items()})
    said = {name: {"bounds": s.bounds, "exact": s.exact} for name, s in counts.signals.items()}
    words = {name: list(getattr(counts, name)) for name in ("treatment", "known", "promises")}
    return arrays, {"signals": said, **words}


def counts_from_parts(arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]) -> Counts:
    """The counts of what ``counts_parts`` gave."""
    available = arrays["counts/available"]
    shape = (available.size, available.shape[0] + 1)

    def sparse(name: str) -> sp.csr_array:
        matrix = sp.csr_array(tuple(arrays[f"counts/{name}/{part}"] for part in PARTS), shape=shape)
        matrix.check_format(full_check=True)
        return matrix

    signals = {}
    for name, said in description["signals"].items():
        bounds = said["bounds"]
        pair = None if bounds is None else (float(bounds[0]), float(bounds[1]))
        signals[name] = SignalCounts(arrays[f"counts/signal/{name}"], pair, bool(said["exact"]))
    return Counts(
        sparse("outcomes"),
        available,
        arrays.get("counts/initial"),
        signals,
        sparse("supports") if "counts/supports/data" in arrays else None,
        tuple(description["treatment"]),
        {name: arrays[f"counts/known/{name}"] for name in description.get("known", ())},
        tuple(map(str, description.get("promises", ()))),
    )
