"""Models in files (see ``cvxmdp.base.storage`` for the format)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import reading
from cvxmdp.base.storage import read_arrays, write_arrays
from cvxmdp.models.counts import PARTS, counts_from_parts, counts_parts
from cvxmdp.models.horizon import HORIZON_ARGUMENTS
from cvxmdp.models.layout import GridLayout

Model = TypeVar("Model")
SIGNAL = "signal/"
DESCRIBED = ("state_names", "action_names", "note", "relative_error")


def write_model(path: str | Path, arguments: Mapping[str, Any]) -> None:
    """Write a model, given by its constructor's arguments; the numbers are kept bit for bit."""
    write_arrays(path, "model", *model_parts(arguments))


def model_parts(arguments: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a model, and what is said of it besides."""
    signals, layout = arguments["signals"], arguments["layout"]
    arrays = {
        **{f"transition/{part}": getattr(arguments["transition"], part) for part in PARTS},
        "initial": arguments["initial"],
        "actions": arguments["actions"],
        **{SIGNAL + name: signal for name, signal in signals.items()},
    }
    description = {
        **{name: arguments[name] for name in HORIZON_ARGUMENTS if name in arguments},
        **{name: arguments[name] for name in DESCRIBED},
        "signals": list(signals),
        "layout": None if layout is None else asdict(layout),
    }
    if arguments["counts"] is not None:
        counted, description["counts"] = counts_parts(arguments["counts"])
        arrays.update(counted)
    return arrays, description


def read_model(path: str | Path, make: Callable[..., Model]) -> Model:
    """Read a model and check it as if it were new: ``make`` is the constructor."""
    arrays, description = read_arrays(path, "model")
    with reading(f"{path} does not hold a valid model"):
        return model_from_parts(arrays, description, make)


def model_from_parts(
    arrays: Mapping[str, np.ndarray], description: Mapping[str, Any], make: Callable[..., Model]
) -> Model:
    """The model of what ``model_parts`` gave."""
    mask, layout = arrays["actions"], description["layout"]
    n_states, n_actions = mask.shape
    parts = tuple(arrays[f"transition/{part}"] for part in PARTS)
    # Files of earlier versions have none.
    known = {"note": "", "relative_error": 0.0, **description}
    return make(
        sp.csr_array(parts, shape=(n_states * n_actions, n_states)),
        arrays["initial"],
        signals={name: arrays[SIGNAL + name] for name in known["signals"]},
        actions=mask,
        layout=None if layout is None else _read_layout(layout),
        counts=counts_from_parts(arrays, known["counts"]) if "counts" in known else None,
        **{name: known[name] for name in HORIZON_ARGUMENTS if name in known},
        **{name: known[name] for name in DESCRIBED},
    )


def _read_layout(layout: Any) -> GridLayout:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in dict(layout).items()
    }
    return GridLayout(**fields)
