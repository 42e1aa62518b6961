"""Models in files (see ``cvxmdp.base.storage`` for the format)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.storage import read_arrays, write_arrays
from cvxmdp.models.layout import GridLayout

Model = TypeVar("Model")
PARTS = ("data", "indices", "indptr")  # of compressed sparse rows
SIGNAL = "signal/"
DESCRIBED = ("discount", "state_names", "action_names", "note")


def write_model(path: str | Path, arguments: Mapping[str, Any]) -> None:
    """Write a model, given by its constructor's arguments; the numbers are kept bit for bit."""
    signals, layout = arguments["signals"], arguments["layout"]
    arrays = {
        **{f"transition/{part}": getattr(arguments["transition"], part) for part in PARTS},
        "initial": arguments["initial"],
        "actions": arguments["actions"],
        **{SIGNAL + name: signal for name, signal in signals.items()},
    }
    description = {
        **{name: arguments[name] for name in DESCRIBED},
        "signals": list(signals),
        "layout": None if layout is None else asdict(layout),
    }
    write_arrays(path, "model", arrays, description)


def read_model(path: str | Path, make: Callable[..., Model]) -> Model:
    """Read a model and check it as if it were new.

    Args:
        path: the file.
        make: the constructor that the file's arguments are given to.
    """
    arrays, description = read_arrays(path, "model")
    try:
        mask, layout = arrays["actions"], description["layout"]
        n_states, n_actions = mask.shape
        parts = tuple(arrays[f"transition/{part}"] for part in PARTS)
        description.setdefault("note", "")  # files of earlier versions have none
        return make(
            sp.csr_array(parts, shape=(n_states * n_actions, n_states)),
            arrays["initial"],
            signals={name: arrays[SIGNAL + name] for name in description["signals"]},
            actions=mask,
            layout=None if layout is None else _read_layout(layout),
            **{name: description[name] for name in DESCRIBED},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} does not hold a valid model: {error}") from error


def _read_layout(layout: Any) -> GridLayout:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in dict(layout).items()
    }
    return GridLayout(**fields)
