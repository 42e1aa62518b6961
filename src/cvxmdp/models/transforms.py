"""Finite horizons: time becomes part of the state."""

from __future__ import annotations

from operator import index

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.table import TabularMDP


def unroll(mdp: TabularMDP, horizon: int) -> TabularMDP:
    """A model of the first ``horizon`` steps of another one, in which policies may depend on time.

    State (t, s) has index t * S + s and is named "s@t"; a step leads from time t to time t + 1, and the
    step at time horizon - 1 ends the episode. Actions, signals and discount stay as they are, so the
    occupancy at (t, s) is discount^t times the probability of being in s at time t.

    Args:
        mdp: the model.
        horizon: number of steps, at least 1. The result has horizon * S states.
    """
    try:
        steps = index(horizon)
    except TypeError as error:
        raise ModelError(f"horizon must be a whole number of steps; got {horizon!r}") from error
    if steps < 1:
        raise ModelError(f"horizon must be at least 1 step; got {steps}")
    n_states = mdp.n_states
    later = sp.eye_array(
        steps, k=1, format="csr"
    )  # time t leads to time t + 1, the last to the end
    initial = np.zeros(steps * n_states)
    initial[:n_states] = mdp.initial
    names = [f"{mdp.state_label(s)}@{t}" for t in range(steps) for s in range(n_states)]
    return TabularMDP(
        sp.csr_array(sp.kron(later, mdp.transition, format="csr")),
        initial,
        mdp.discount,
        signals={name: np.tile(signal, (steps, 1)) for name, signal in mdp.signals.items()},
        actions=np.tile(mdp.actions, (steps, 1)),
        state_names=names,
        action_names=mdp.action_names,
        note=mdp.note,
    )
