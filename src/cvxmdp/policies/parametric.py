"""Policies with parameters other than a table: the probabilities they give, and the parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from cvxmdp.files import write_arrays
from cvxmdp.policies.tabular import TabularPolicy


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
        object.__setattr__(self, "params", jax.tree.map(np.asarray, params))
        object.__setattr__(self, "family", family)
        super().__init__(matrix / matrix.sum(axis=1, keepdims=True))

    params: Any
    family: str

    def save(self, path: str | Path) -> None:
        """Write probabilities and parameters to one file; ``load_policy`` reads it again."""
        leaves = jax.tree_util.tree_flatten_with_path(self.params)[0]
        arrays = {
            f"params{jax.tree_util.keystr(place)}": np.asarray(leaf) for place, leaf in leaves
        }
        arrays["probabilities"] = self.probabilities()
        write_arrays(path, "policy", arrays, {"kind": self.kind, "family": self.family})

    def __repr__(self) -> str:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return f"ParametricPolicy({self.family}; {size:,} parameters; {self.n_states:,} states)"
