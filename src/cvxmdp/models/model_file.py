"""Models in files (see ``cvxmdp.base.storage`` for the format)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError, ModelError
from cvxmdp.base.storage import read_arrays, write_arrays
from cvxmdp.models.layout import GridLayout

if TYPE_CHECKING:
    from cvxmdp.models.table import TabularMDP

SIGNAL = "signal/"


def save_model(mdp: TabularMDP, path: str | Path) -> None:
    """Write a model; the numbers are kept bit for bit."""
    arrays = {
        "transition/data": mdp.transition.data,
        "transition/indices": mdp.transition.indices,
        "transition/indptr": mdp.transition.indptr,
        "initial": mdp.initial,
        "actions": mdp.actions,
        **{SIGNAL + name: signal for name, signal in mdp.signals.items()},
    }
    description = {
        "discount": mdp.discount,
        "state_names": mdp.state_names,
        "action_names": mdp.action_names,
        "signals": list(mdp.signals),
        "layout": None if mdp.layout is None else asdict(mdp.layout),
        "note": mdp.note,
    }
    write_arrays(path, "model", arrays, description)


def load_model(path: str | Path) -> TabularMDP:
    """Read a model and check it as if it were new."""
    from cvxmdp.models.table import TabularMDP

    arrays, description = read_arrays(path, "model")
    try:
        mask = arrays["actions"]
        n_states, n_actions = mask.shape
        parts = tuple(arrays[f"transition/{part}"] for part in ("data", "indices", "indptr"))
        transition = sp.csr_array(parts, shape=(n_states * n_actions, n_states))
        layout = description["layout"]
        return TabularMDP(
            transition,
            arrays["initial"],
            description["discount"],
            signals={name: arrays[SIGNAL + name] for name in description["signals"]},
            actions=mask,
            state_names=description["state_names"],
            action_names=description["action_names"],
            layout=None if layout is None else _read_layout(layout),
            note=description.get("note", ""),  # files of earlier versions have none
        )
    except (KeyError, TypeError, ValueError, ModelError) as error:
        raise FileFormatError(f"{path} does not hold a valid model: {error}") from error


def _read_layout(layout: Any) -> GridLayout:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in dict(layout).items()
    }
    return GridLayout(**fields)
