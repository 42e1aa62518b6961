"""The model that counts suggest: shares of visits, and nothing invented beyond them.

P(s' | s, a) is the share of the visits of (s, a) that went on to s', the probability of ending the share that
ended. Pairs that nobody tried are masked: plans do not use them. A state that nobody left keeps the probability
with which it is met. What comes after it is unknown: the model stays there for ever, and problems give such a
state the worst coefficient that any pair has (``Shape.worst_at``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.counts import Counts, known_signals
from cvxmdp.models.table import TabularMDP


def estimated_model(
    counts: Counts,
    discount: float,
    *,
    horizon: int | None = None,
    initial: Any = None,
    known: Mapping[str, Any] | None = None,
    state_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    note: str = "estimated model",
) -> TabularMDP:
    """The plain estimate, which carries its counts.

    Args:
        counts: what was seen.
        discount: gamma.
        horizon: T, for the first T steps alone.
        initial: the initial distribution where it is declared; else the share of episodes that began there.
        known: signals that are known functions, arrays by name; the estimated ones are in ``counts``.
        state_names, action_names, note: of the model.
    """
    visits, mask = counts.visits, counts.tried.copy()
    unknown, unlisted = np.flatnonzero(counts.unknown), ~counts.listed
    mask[unknown] = counts.available[unknown]
    # A number that is no state: a model needs an action, and this one ends at once.
    mask[unlisted, 0] = True
    going = counts.outcomes[:, :-1].astype(np.float64)
    going.data /= np.repeat(np.maximum(visits.ravel(), 1), np.diff(going.indptr))
    staying = np.zeros(visits.shape)
    staying[unknown] = counts.available[unknown]
    state = np.repeat(np.arange(visits.shape[0]), visits.shape[1])
    rows = np.flatnonzero(staying.ravel())
    stay = sp.csr_array((np.ones(rows.size), (rows, state[rows])), shape=going.shape)
    means = {name: signal.sums / np.maximum(visits, 1) for name, signal in counts.signals.items()}
    return TabularMDP(
        going + stay,
        _shares(counts.initial) if initial is None else initial,
        discount,
        horizon=horizon,
        signals={**means, **(known or {})},
        actions=mask,
        state_names=state_names,
        action_names=action_names,
        note=note,
        counts=replace(counts, known=known_signals(known or {}, visits.shape)),
    )


def _shares(begun: np.ndarray | None) -> np.ndarray:
    if begun is None or not begun.sum():
        raise ModelError(
            "no episode began anywhere, so the initial distribution is not known; give initial="
        )
    shares = begun / begun.sum()
    return np.asarray(shares / shares.sum())
