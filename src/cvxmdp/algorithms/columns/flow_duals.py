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

from cvxmdp.atoms import Shape, walk
from cvxmdp.atoms.shapes import Parameters
from cvxmdp.problems.lowered import Lowered

LARGEST_LOG = 30.0  # of q: beyond, the bound is useless and exp would only overflow later


class Leaf(NamedTuple):
    """An entropy or kl somewhere in the Lagrangian.

    Attributes:
        shape: it.
        factor: what stands before it in its function.
        constraint: the name of the constraint it stands in; None for the objective.
        path: indices of parts that lead to its parameters.
        log_weights: log q is this plus the tangent's parameter, (rows,).
        live: boolean (rows,): rows that some policy can make positive.
    """

    shape: Shape
    factor: float
    constraint: str | None
    path: tuple[int, ...]
    log_weights: np.ndarray
    live: np.ndarray


class Bound(NamedTuple):
    """An upper bound on the Lagrangian, and the tangents and values that prove it."""

    upper: float
    tangents: dict[str, Any]
    values: np.ndarray


def only_leaf(lowered: Lowered) -> Leaf | None:
    """The one entropy or kl among functions that are otherwise affine; None where there is no such thing."""
    found: list[Leaf] = []
    named: list[tuple[str | None, Shape]] = [(None, lowered.objective), *lowered.slacks.items()]
    for name, function in named:
        for path, factor, node in walk(function):
            if node.affine() is not None or node.additive:
                continue
            weights = node.log_weights() if node.log_parameter else None
            flat = np.zeros(lowered.flow.shape)
            if weights is None or node.maps()[0].covering(flat) is None:
                return None
            live = node.maps()[0].live(lowered.flow.usable)
            found.append(Leaf(node, factor, name, path, weights, live))
    return found[0] if len(found) == 1 else None


def absorb(
    lowered: Lowered,
    leaf: Leaf,
    multipliers: Mapping[str, float],
    tangents: Mapping[str, Any],
    values: np.ndarray,
    following: np.ndarray,
) -> Bound | None:
    """The bound of these values with the best tangent of the leaf; None where there is none.

    Args:
        lowered: the problem.
        leaf: its entropy or kl.
        multipliers: by constraint.
        tangents: of all functions; those of the leaf are replaced.
        values: V, (S,).
        following: gamma P V, (S, A).
    """
    factor = leaf.factor * (1.0 if leaf.constraint is None else multipliers[leaf.constraint])
    if factor == 0:
        return None
    model, map, name = lowered.flow, leaf.shape.maps()[0], leaf.shape.log_parameter
    flat, replaced = flat_tangents(lowered, leaf, tangents)
    reward, _ = lowered.lagrangian_tangent(multipliers, replaced)
    choices = np.where(model.actions, reward + following, -np.inf)
    excess = map.covering(choices - values[:, None])
    assert excess is not None
    weights = leaf.log_weights[leaf.live]
    logs = flat[leaf.live] + excess[leaf.live] / abs(factor)
    if model.endless:  # values count up to a constant, which is chosen best where q sums to one
        logs = logs - _log_sum(weights + logs)
    found = leaf.shape.at(np.zeros(model.shape))[name]  # of rows that no policy reaches
    found[leaf.live] = np.minimum(logs, LARGEST_LOG - weights)
    best = _with(tangents, leaf, {name: found})
    reward, constant = lowered.lagrangian_tangent(multipliers, best)
    upper = model.best_return(reward, values, following) + constant
    return Bound(upper, best, values) if math.isfinite(upper) else None


def flat_tangents(
    lowered: Lowered, leaf: Leaf, tangents: Mapping[str, Any]
) -> tuple[np.ndarray, dict[str, Any]]:
    """The parameter of the leaf's tangent of slope zero, (rows,), and the tangents with it."""
    nowhere, rows = leaf.shape.at(np.zeros(lowered.flow.shape)), leaf.shape.maps()[0].rows
    flat = leaf.shape.from_slope(np.zeros(rows), np.arange(rows), nowhere)
    return flat[leaf.shape.log_parameter], _with(tangents, leaf, flat)


def _log_sum(logs: np.ndarray) -> float:
    """Log of the sum of exponentials."""
    highest = float(logs.max())
    return highest + math.log(float(np.exp(logs - highest).sum()))


def _with(tangents: Mapping[str, Any], leaf: Leaf, parameters: Parameters) -> dict[str, Any]:
    """The tangents with other parameters of the leaf."""
    if leaf.constraint is None:
        changed = _replaced(tangents["objective"], leaf.path, parameters)
        return {"objective": changed, "slacks": tangents["slacks"]}
    changed = _replaced(tangents["slacks"][leaf.constraint], leaf.path, parameters)
    slacks = {**tangents["slacks"], leaf.constraint: changed}
    return {"objective": tangents["objective"], "slacks": slacks}


def _replaced(given: Parameters, path: tuple[int, ...], parameters: Parameters) -> Parameters:
    if not path:
        return parameters
    parts = list(given["parts"])
    parts[path[0]] = _replaced(parts[path[0]], path[1:], parameters)
    return {**given, "parts": parts}
