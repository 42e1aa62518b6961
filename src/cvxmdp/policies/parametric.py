"""Policies with parameters other than a table: the probabilities they give, and the parameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.base.precision import host
from cvxmdp.policies.policy import Arrays
from cvxmdp.policies.tables import TabularPolicy


class ParametricPolicy(TabularPolicy):
    """A policy of a family such as ``MLP``: its probabilities on the model's states, and its parameters.

    Args:
        probabilities: pi(a | s) on the states of the model, (S, A).
        params: the parameters theta, a pytree of arrays.
        family: the family's name.
    """

    kind = "parametric"

    def __init__(self, probabilities: Any, params: Any, family: str) -> None:
        matrix = np.asarray(probabilities, dtype=np.float64)
        object.__setattr__(self, "params", host(params))
        object.__setattr__(self, "family", family)
        super().__init__(matrix / matrix.sum(axis=1, keepdims=True))

    params: Any
    family: str

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, structure = written_params(self.params)
        arrays["probabilities"] = self.probabilities()
        return arrays, {"kind": self.kind, "family": self.family, "structure": structure}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> ParametricPolicy:
        params = rebuild(description["structure"], arrays)
        return cls(TabularPolicy(arrays["probabilities"])._matrix, params, description["family"])

    def __repr__(self) -> str:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return f"ParametricPolicy({self.family}; {size:,} parameters; {self.n_states:,} states)"


def written_params(params: Any) -> tuple[Arrays, Any]:
    """Parameters for a file: arrays by number, as in ``jax.tree.leaves``, and their structure as JSON."""
    leaves = jax.tree.leaves(params)
    arrays = {f"params{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    return arrays, _describe(params, iter(range(len(leaves))))


def _describe(tree: Any, numbers: Any) -> Any:
    """The part of it that belongs to a subtree, whose arrays have the next numbers.

    Lists, tuples and dictionaries keep their form; other containers, such as an Equinox module, become the
    list of their arrays, which a solver can start from.
    """
    if isinstance(tree, np.ndarray):
        return next(numbers)
    if isinstance(tree, list | tuple) and type(tree) in (list, tuple):
        return {type(tree).__name__: [_describe(part, numbers) for part in tree]}
    if type(tree) is dict and all(isinstance(name, str) for name in tree):
        return {"dict": {name: _describe(tree[name], numbers) for name in sorted(tree)}}
    return {"list": [next(numbers) for _ in jax.tree.leaves(tree)]}


def rebuild(structure: Any, arrays: Arrays) -> Any:
    """The parameters that ``written_params`` was given."""
    if isinstance(structure, int):
        found = arrays[f"params{structure}"]
        if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
            raise PolicyError(f"parameter {structure} is not made of finite numbers")
        return found
    ((form, parts),) = structure.items()
    if form == "dict":
        return {name: rebuild(part, arrays) for name, part in parts.items()}
    return {"list": list, "tuple": tuple}[form](rebuild(part, arrays) for part in parts)
