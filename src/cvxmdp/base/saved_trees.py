"""Trees of arrays as named arrays, and back: what a checkpoint holds of a state.

A state is a pytree of arrays of a fixed form, which a fresh run of the same settings has as well. Two kinds of
nodes may change while it runs: ``Growing``, a list of alike trees, stacked when they are written; and
``Plain``, plain data of any form (dictionaries with text keys, lists, texts, numbers, None) with arrays in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from cvxmdp.base.errors import reading

Arrays = dict[str, np.ndarray]
FORM = "form"  # of a table: its skeleton as JSON
ARRAY = "array "  # begins the texts of a skeleton that stand for an array


class Growing(list[Any]):
    """Alike trees, of which there are more and more. JAX sees a leaf."""


class Plain(dict[str, Any]):
    """Plain data with arrays in it, of a form that changes. JAX sees a leaf."""


def to_arrays(tree: Any) -> Arrays:
    """Every array of a tree under the name of its place."""
    found: Arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path)
        if isinstance(leaf, Growing):
            found[f"{name}#"] = np.array(len(leaf))
            stacked = jax.tree.map(lambda *entries: np.stack(entries), *leaf) if leaf else ()
            found |= {f"{name}*{inner}": array for inner, array in to_arrays(stacked).items()}
        elif isinstance(leaf, Plain):
            arrays: Arrays = {}
            arrays[FORM] = letters(json.dumps(_skeleton(leaf, arrays)))
            found |= {f"{name}/{inner}": array for inner, array in arrays.items()}
        else:
            found[name] = np.asarray(leaf)
    return found


def from_arrays(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The tree that ``to_arrays`` was given; an error where it does not have the form of ``like``."""
    places, form = jax.tree_util.tree_flatten_with_path(like)
    with reading("a saved state of another form"):
        leaves = [_leaf(arrays, jax.tree_util.keystr(path), leaf) for path, leaf in places]
    return jax.tree.unflatten(form, leaves)


def _leaf(arrays: Mapping[str, np.ndarray], name: str, like: Any) -> Any:
    if isinstance(like, Growing):
        columns, count = _inside(arrays, f"{name}*"), int(arrays[f"{name}#"])
        return Growing(
            from_arrays({inner: column[row] for inner, column in columns.items()}, like[0])
            for row in range(count)
        )
    if isinstance(like, Plain):
        mine = _inside(arrays, f"{name}/")
        return Plain(_filled(json.loads(text_of(mine[FORM])), mine))
    theirs, own = arrays[name], np.asarray(like)
    # What grows, grows along its first axis.
    if (own.dtype, own.ndim, own.shape[1:]) != (theirs.dtype, theirs.ndim, theirs.shape[1:]):
        raise ValueError(
            f"an array of {theirs.dtype}{theirs.shape} where this run has {own.dtype}{own.shape}"
        )
    return theirs


def _inside(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}


def _skeleton(value: Any, arrays: Arrays) -> Any:
    """Plain data with a text in place of every array, which goes to ``arrays``; texts are marked as such."""
    if isinstance(value, Mapping):
        return {str(key): _skeleton(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_skeleton(item, arrays) for item in value]
    if isinstance(value, str):
        return f"'{value}"
    if value is None or isinstance(value, bool | int | float):
        return value
    arrays[str(len(arrays))] = np.asarray(value)
    return f"{ARRAY}{len(arrays) - 1}"


def _filled(skeleton: Any, arrays: Arrays) -> Any:
    if isinstance(skeleton, dict):
        return {key: _filled(item, arrays) for key, item in skeleton.items()}
    if isinstance(skeleton, list):
        return [_filled(item, arrays) for item in skeleton]
    if isinstance(skeleton, str):
        return skeleton[1:] if skeleton[:1] == "'" else arrays[skeleton.removeprefix(ARRAY)]
    return skeleton


def letters(text: str) -> np.ndarray:
    """A text as numbers, for a file of arrays."""
    return np.frombuffer(text.encode("utf-8"), np.uint8)


def text_of(numbers: np.ndarray) -> str:
    """The text that ``letters`` was given."""
    return bytes(np.asarray(numbers, np.uint8)).decode("utf-8", "replace")
