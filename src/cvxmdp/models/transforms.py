"""Models of models: time in the state, episodes that begin again, states that end them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.validation import read_steps


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
    steps = read_steps(horizon)
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


def restarting(arguments: Mapping[str, Any], ending: np.ndarray) -> dict[str, Any]:
    """The model in which the next episode begins at once where one ends.

    No row ends any more: what was missing leads to the initial distribution. The signal ``ending`` counts the
    episodes, so that a budget b for c per episode is ``linear(c) - b * linear("ending") <= 0``.

    Args:
        arguments: the constructor's, as the model keeps them.
        ending: the probability that the episode ends with this step, (S, A).
    """
    if "ending" in arguments["signals"]:
        raise ModelError(
            "a restarting model counts episodes by the signal 'ending', and this one has such a signal already"
        )
    again = sp.csr_array(ending.reshape(-1, 1)) @ sp.csr_array(arguments["initial"][None, :])
    return {
        **arguments,
        "transition": sp.csr_array(arguments["transition"] + again),
        "signals": {**arguments["signals"], "ending": ending},
        "counts": None,  # a row of the log that ended says nothing about where the next one begins
    }


def ending_at(arguments: Mapping[str, Any], states: np.ndarray) -> dict[str, Any]:
    """The model in which the step taken in one of these states is the last: absorbing states become ends.

    Args:
        arguments: the constructor's, as the model keeps them.
        states: boolean (S,).
    """
    goes_on = np.repeat(~states, arguments["actions"].shape[1]).astype(np.float64)
    rows = sp.csr_array(sp.diags_array(goes_on) @ arguments["transition"])
    rows.eliminate_zeros()
    return {**arguments, "transition": rows, "counts": None}
