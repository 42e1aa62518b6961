"""Runs as named arrays: what a checkpoint holds of one run, or of several as lanes of one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.recursion import LearningTrace
from cvxmdp.base.errors import FileFormatError

Arrays = dict[str, np.ndarray]
Snapshots = list[tuple[int, Any]]  # parameters by iteration


def pack(carry: Any, trace: LearningTrace | None, snapshots: Snapshots) -> Arrays:
    """The state, the history and the snapshots under names."""
    arrays = {f"carry/{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(carry))}
    if trace is not None:
        arrays |= {f"trace/{name}": part for name, part in trace._asdict().items()}
    arrays["snapshots/at"] = np.array([at for at, _ in snapshots])
    columns = zip(*(jax.tree.leaves(params) for _, params in snapshots), strict=True)
    return arrays | {f"snapshots/{k}": np.stack(column) for k, column in enumerate(columns)}


def unpack(
    arrays: Mapping[str, np.ndarray], carry: Any, snapshots: Snapshots
) -> tuple[Any, list[LearningTrace], Snapshots]:
    """What ``pack`` was given; an error where it does not fit the carry and snapshots of a fresh run."""
    leaves, form = jax.tree.flatten(carry)
    saved = [arrays[f"carry/{k}"] for k in range(len(leaves))]
    for mine, theirs in zip(leaves, saved, strict=True):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            raise FileFormatError(
                f"a saved run has an array of {theirs.dtype}{theirs.shape} where this one has "
                f"{mine.dtype}{mine.shape}"
            )
    names = LearningTrace._fields
    traces = []
    if f"trace/{names[0]}" in arrays:
        traces = [LearningTrace(**{name: arrays[f"trace/{name}"] for name in names})]
    params, shape = jax.tree.flatten(snapshots[0][1])
    columns = [arrays[f"snapshots/{k}"] for k in range(len(params))]
    found = [
        (int(at), jax.tree.unflatten(shape, [column[row] for column in columns]))
        for row, at in enumerate(arrays["snapshots/at"])
    ]
    return jax.tree.unflatten(form, [jnp.asarray(leaf) for leaf in saved]), traces, found
