"""Garnets: random sparse MDPs (Archibald, McKinnon and Thomas, 1995), the field's test bed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvxmdp.base.errors import ModelError
from cvxmdp.models.horizon import horizon_arguments
from cvxmdp.models.table import TabularMDP


def garnet(
    n_states: int,
    n_actions: int,
    branching: int,
    *,
    seed: int,
    discount: float | None = None,
    signals: Sequence[str] = ("reward", "cost"),
    ending: float = 0.0,
    horizon: int | None = None,
    average: bool = False,
) -> TabularMDP:
    """A random model: each pair has ``branching`` different successors, with random probabilities.

    The probabilities are the gaps between sorted uniform numbers, so uniform on the simplex. Each
    signal is uniform on [0, 1], per state and action. The first state is uniform. The same
    arguments give the same model.

    Args:
        n_states, n_actions, branching: sizes; ``branching`` is at most ``n_states``.
        seed: of NumPy's generator.
        discount: gamma; 0.95 where no other horizon is given.
        signals: names of the random signals.
        ending: probability that any step ends the episode.
        horizon, average: instead of a discount, a number of steps, or True for the long run (``TabularMDP``).
    """
    if not 1 <= branching <= n_states or n_actions < 1:
        raise ModelError(
            f"a Garnet needs at least one action and 1 <= branching <= n_states; got n_states="
            f"{n_states}, n_actions={n_actions}, branching={branching}"
        )
    if isinstance(signals, str):
        raise ModelError(f"signals takes several names, as in signals=({signals!r},)")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ModelError(
            f"seed must be a whole number, so that the model can be made again; got {seed!r}"
        )
    if not 0.0 <= ending <= 1.0:
        raise ModelError(f"ending must be a probability; got {ending}")
    random = np.random.default_rng(seed)
    rows = n_states * n_actions
    indices = _distinct_successors(random, rows, n_states, branching)
    cuts = np.sort(random.random((rows, branching - 1)), axis=1)
    edges = np.concatenate([np.zeros((rows, 1)), cuts, np.ones((rows, 1))], axis=1)
    probabilities = np.diff(edges, axis=1)
    if ending:
        probabilities *= 1.0 - ending
    shape = (n_states, n_actions, branching)
    return TabularMDP(
        (indices.reshape(shape), probabilities.reshape(shape)),
        np.full(n_states, 1.0 / n_states),
        **horizon_arguments(discount, horizon, average, otherwise=0.95),
        signals={name: random.random((n_states, n_actions)) for name in signals},
    )


def _distinct_successors(
    random: np.random.Generator, rows: int, n_states: int, branching: int
) -> np.ndarray:
    """For each row, ``branching`` different states, uniformly."""
    if 2 * branching > n_states:  # redrawing would take long: shuffle all states instead
        every = np.broadcast_to(np.arange(n_states), (rows, n_states))
        return random.permuted(every, axis=1)[:, :branching]
    drawn = random.integers(n_states, size=(rows, branching))
    repeats = np.arange(rows)
    while repeats.size:
        ordered = np.sort(drawn[repeats], axis=1)
        again = np.diff(ordered, axis=1) == 0
        # Only the repeated entries are drawn again: a whole row without any may never come up. No
        # state is treated differently from another, so all sets of successors stay equally likely.
        ordered[:, 1:][again] = random.integers(n_states, size=int(again.sum()))
        drawn[repeats] = ordered
        repeats = repeats[again.any(axis=1)]
    return drawn
