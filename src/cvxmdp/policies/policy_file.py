"""Policies from files (see ``cvxmdp.base.storage`` for the format)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cvxmdp.base.errors import FileFormatError, PolicyError
from cvxmdp.base.storage import read_arrays
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.policies.softmax import SoftmaxTable
from cvxmdp.policies.tables import TabularPolicy


def load_policy(path: str | Path) -> Any:
    """Read a policy written by its ``save``; checked as if it were new."""
    arrays, description = read_arrays(path, "policy")
    kind = description.get("kind")
    try:
        if kind == TabularPolicy.kind:
            return TabularPolicy(arrays["probabilities"])
        if kind == SoftmaxTable.kind:
            return SoftmaxTable(arrays["params"], arrays["actions"])
        if kind == MixturePolicy.kind:
            return MixturePolicy(arrays["probabilities"], arrays["components"])
        if kind == ParametricPolicy.kind:
            return ParametricPolicy.read(arrays, description)
        if str(kind).endswith("on observations"):
            return _observed(str(kind)).read(arrays, description)
    except (KeyError, PolicyError, AttributeError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} does not hold a valid policy: {error}") from error
    raise FileFormatError(f"{path} holds a policy of unknown kind {kind!r}")


def _observed(kind: str) -> Any:
    from cvxmdp.policies.observers import NetworkPolicy, ObservedMixture, StatePolicy

    return {known.kind: known for known in (NetworkPolicy, ObservedMixture, StatePolicy)}[kind]
