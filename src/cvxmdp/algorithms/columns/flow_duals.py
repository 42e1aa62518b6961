r"""Tangents of entropy and kl from values: a bound that weighs every state by how often it is visited.

For the Lagrangian  <r, x> + c H(x)  and any V, let e(s) = max_a [r + gamma P V](s,a) - V(s). The tangent
-p log p <= -p log q - p + q with  log q = e / (c scale) - 1  adds -e to the reward, so V solves the Bellman
equation of the tangent's reward exactly and

    f* <= <rho, V> + c sum_s q(s).

With V the values of a policy pi whose state distribution is d, linearised at d itself, this is
f(pi) + sum_s d(s) (exp(A*(s) / (c scale)) - 1), A* the largest advantage: states that are hardly visited hardly
count. The bound of the frozen reward weighs A* with the visits of the *best* policy instead, which seeks out
just those states; on grids it is ten times looser. The same holds for pairs, and for kl.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.nodes import (
    EntropyNode,
    KLNode,
    LinearNode,
    Node,
    SumNode,
    TangentError,
)
from cvxmdp.problems.lowered import Lowered

LARGEST_LOG = 30.0  # of q: beyond, the bound is useless and exp would only overflow later


class Leaf(NamedTuple):
    """An entropy or kl somewhere in the Lagrangian.

    Attributes:
        node: it.
        factor: what stands before it in its function.
        constraint: the name of the constraint it stands in; None for the objective.
        path: indices of parts that lead to its parameters.
    """

    node: EntropyNode | KLNode
    factor: float
    constraint: str | None
    path: tuple[int, ...]


class Bound(NamedTuple):
    """An upper bound on the Lagrangian, and the tangents and values that prove it."""

    upper: float
    tangents: dict[str, Any]
    values: np.ndarray


def only_leaf(lowered: Lowered) -> Leaf | None:
    """The one entropy or kl among functions that are otherwise affine; None where there is no such thing."""
    found: list[Leaf] = []
    named: list[tuple[str | None, Node]] = [(None, lowered.objective), *lowered.slacks.items()]
    for name, node in named:
        if not _collect(node, 1.0, name, (), found):
            return None
    return found[0] if len(found) == 1 else None


def _collect(
    node: Node, factor: float, name: str | None, path: tuple[int, ...], found: list[Leaf]
) -> bool:
    """Gather the leaves; False where there is another function that bends."""
    if isinstance(node, EntropyNode | KLNode):
        found.append(Leaf(node, factor, name, path))
        return True
    if isinstance(node, SumNode):
        parts = zip(node.weights, node.nodes, strict=True)
        return all(
            _collect(part, factor * weight, name, (*path, k), found)
            for k, (weight, part) in enumerate(parts)
        )
    return isinstance(node, LinearNode)


def absorb(
    lowered: Lowered,
    leaf: Leaf,
    multipliers: Mapping[str, float],
    tangents: Mapping[str, Any],
    values: np.ndarray,
    following: np.ndarray,
    endless: bool,
) -> Bound | None:
    """The bound of these values with the best tangent of the leaf; None where there is none.

    Args:
        lowered: the problem.
        leaf: its entropy or kl.
        multipliers: by constraint.
        tangents: of all functions; those of the leaf are replaced.
        values: V, (S,).
        following: gamma P V, (S, A).
        endless: no episode ends: V may be shifted by a constant.
    """
    factor = abs(leaf.factor)
    if leaf.constraint is not None:
        factor *= multipliers[leaf.constraint]
    if not factor > 0:
        return None
    node, first, model = leaf.node, values[0], lowered.flow
    neutral = node.log_t if isinstance(node, KLNode) else np.full(node.cells.shape, -1.0)
    rest = _with(tangents, leaf, neutral)
    try:
        reward, _ = lowered.lagrangian_tangent(multipliers, rest)
        choices = np.where(model.actions, reward + following, -np.inf)
        by_state = isinstance(node, EntropyNode) and node.of == "state"
        excess = (choices.max(axis=1) if by_state else choices) - (
            values if by_state else values[:, None]
        )
        log_q = neutral + excess / (factor * node.scale)
        if endless:
            values, log_q = _shifted(values, log_q, np.asarray(node.cells), factor)
            following = following + model.discount * (values[0] - first)
        log_q = np.where(node.cells, np.minimum(log_q, LARGEST_LOG), neutral)
        best = _with(tangents, leaf, log_q)
        reward, constant = lowered.lagrangian_tangent(multipliers, best)
    except TangentError:
        return None
    choices = np.where(model.actions, reward + following, -np.inf)
    left = float((choices.max(axis=1) - values)[model.reached].max())
    upper = float(model.initial @ values) + max(0.0, left) * model.mass + constant
    return Bound(upper, best, values) if math.isfinite(upper) else None


def _shifted(
    values: np.ndarray, log_q: np.ndarray, cells: np.ndarray, factor: float
) -> tuple[np.ndarray, np.ndarray]:
    """V plus the constant that is best: c + factor sum q exp(-c / factor) is least where q sums to one."""
    inside = log_q[cells]
    highest = float(inside.max())
    total = highest + math.log(float(np.exp(inside - highest).sum()))
    return values + factor * total, np.where(cells, log_q - total, log_q)


def _with(tangents: Mapping[str, Any], leaf: Leaf, log_q: np.ndarray) -> dict[str, Any]:
    """The tangents with other parameters of the leaf."""
    if leaf.constraint is None:
        changed = _replaced(tangents["objective"], leaf.path, log_q)
        return {"objective": changed, "slacks": tangents["slacks"]}
    changed = _replaced(tangents["slacks"][leaf.constraint], leaf.path, log_q)
    slacks = {**tangents["slacks"], leaf.constraint: changed}
    return {"objective": tangents["objective"], "slacks": slacks}


def _replaced(
    parameters: dict[str, Any], path: tuple[int, ...], log_q: np.ndarray
) -> dict[str, Any]:
    if not path:
        return {"log_q": log_q}
    parts = list(parameters["parts"])
    parts[path[0]] = _replaced(parts[path[0]], path[1:], log_q)
    return {**parameters, "parts": parts}
