r"""The cost so far as part of the state, so that the distribution of an episode's cost can be spoken of.

State (s, k) means: the episode is in s, and has cost at most l_k so far, l_0 < ... < l_{L-1} the levels; (s, L)
that it has cost more than the last one, for good. A step of cost c leads from l_k to the smallest level that is
at least l_k + c. Where all costs and sums are levels that is exact. Elsewhere costs are rounded up, so that the
cost of an episode is never understated: what is proven of its tail holds of the true cost, too.

Two signals are added, from which utilities of the tail are made: NAME + " so far", the level after the step,
and NAME + " over", whether it is beyond the last level then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError

SO_FAR, OVER = " so far", " over"
SAME = 1e-9  # of the largest level: sums that miss a level by this much are on it
MOST = 2_000_000  # augmented states


def read_levels(given: Any) -> np.ndarray:
    """Levels, (L,), increasing; a whole number n stands for 0, 1, ..., n."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = range(given + 1)
    try:
        levels = np.array(list(given), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"levels are increasing numbers, or one whole number; got {given!r}"
        ) from error
    listed = levels.ndim == 1 and levels.size > 0 and bool(np.isfinite(levels).all())
    if not listed or (np.diff(levels) <= 0).any():
        raise ModelError(f"levels are increasing, finite numbers; got {given!r}")
    if levels[-1] < 0:
        raise ModelError(f"an episode begins with a cost of 0, above the last level {levels[-1]:g}")
    return levels


def with_budget_state(
    arguments: Mapping[str, Any], name: str, costs: np.ndarray, levels: np.ndarray
) -> dict[str, Any]:
    """The arguments of a model with S * (L + 1) states; state (s, k) has the index s * (L + 1) + k.

    Args:
        arguments: the constructor's, as the model keeps them.
        name: of the cost.
        costs: of a step, (S, A).
        levels: l, (L,).
    """
    n_states, n_actions = arguments["actions"].shape
    if n_states * (levels.size + 1) > MOST:
        raise ModelError(
            f"{n_states:,} states with {levels.size:,} levels would be more than {MOST:,}; take fewer levels, "
            "which rounds costs up"
        )
    after = _after(costs, levels)  # (S, A, L + 1)
    size = levels.size + 1
    rows = sp.csr_array(arguments["transition"])
    # Row (s, k, a) has the successors of (s, a), each at the level that k and the cost lead to.
    pairs = np.arange(n_states * n_actions).reshape(n_states, 1, n_actions)
    order = np.broadcast_to(pairs, (n_states, size, n_actions)).ravel()
    lengths = np.diff(rows.indptr)[order]
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(pointers[-1]) - np.repeat(pointers[:-1], lengths)
    source = np.repeat(rows.indptr[:-1][order], lengths) + within
    level = np.repeat(after.transpose(0, 2, 1).ravel(), lengths)
    entries = (rows.data[source], rows.indices[source] * size + level, pointers)
    states = n_states * size
    initial = np.zeros((n_states, size))
    initial[:, int(np.searchsorted(levels, 0.0))] = arguments["initial"]
    known = after.transpose(0, 2, 1).reshape(states, n_actions)
    spread = {key: np.repeat(one, size, axis=0) for key, one in arguments["signals"].items()}
    names = arguments["state_names"] or range(n_states)
    labels = [*(f"{level:g}" for level in levels), f">{levels[-1]:g}"]
    return {
        **arguments,
        "transition": sp.csr_array(entries, shape=(states * n_actions, states)),
        "initial": initial.ravel(),
        "signals": {
            **spread,
            name + SO_FAR: levels[np.minimum(known, levels.size - 1)],
            name + OVER: (known == levels.size).astype(np.float64),
        },
        "actions": np.repeat(arguments["actions"], size, axis=0),
        "state_names": [f"{state}, {name} {label}" for state in names for label in labels],
        "layout": None,
        "counts": None,  # a row of the log belongs to many levels
    }


def _after(costs: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The level that follows, (S, A, L + 1); L for more than the last, which stays."""
    room = SAME * max(1.0, float(np.abs(levels).max()))
    found = np.searchsorted(levels, levels + costs[:, :, None] - room)
    over = np.full((*costs.shape, 1), levels.size)
    return np.concatenate([found, over], axis=2)
