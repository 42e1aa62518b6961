"""Finite horizons: time becomes part of the state."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError


def unrolled(arguments: Mapping[str, Any], horizon: int) -> dict[str, Any]:
    """The first ``horizon`` steps of a model, in which policies may depend on time.

    State (t, s) has index t * S + s and is named "s@t"; a step leads from time t to time t + 1, and the
    step at time horizon - 1 ends the episode. Actions, signals and discount stay as they are, so the
    occupancy at (t, s) is discount^t times the probability of being in s at time t.

    Args:
        arguments: the constructor's, as the model keeps them.
        horizon: number of steps, at least 1.

    Returns:
        The arguments of a model with horizon * S states.
    """
    try:
        steps = index(horizon)
    except TypeError as error:
        raise ModelError(f"horizon must be a whole number of steps; got {horizon!r}") from error
    if steps < 1:
        raise ModelError(f"horizon must be at least 1 step; got {steps}")
    n_states = arguments["initial"].size
    later = sp.eye_array(steps, k=1, format="csr")  # time t leads to t + 1, the last to the end
    initial = np.zeros(steps * n_states)
    initial[:n_states] = arguments["initial"]
    names = arguments["state_names"] or range(n_states)
    return {
        **arguments,
        "transition": sp.csr_array(sp.kron(later, arguments["transition"], format="csr")),
        "initial": initial,
        "signals": {name: np.tile(one, (steps, 1)) for name, one in arguments["signals"].items()},
        "actions": np.tile(arguments["actions"], (steps, 1)),
        "state_names": [f"{name}@{t}" for t in range(steps) for name in names],
        "layout": None,
        "counts": None,  # a row of the log is one of many times here
    }
