"""Moduli of continuity of the atoms: by how much a value changes when the occupancy moves.

Unlike a certificate's ``drift`` these hold everywhere at once, which bounded differences need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.nodes import entropy_drift
from cvxmdp.atoms.shapes import CustomShape, EntropyShape, NormShape, RelativeEntropyShape, SumShape
from cvxmdp.experience.concentration import Radius


class Modulus(NamedTuple):
    """phi = outer(inner), inner with the modulus ``omega``.

    Attributes:
        omega: |inner(x) - inner(y)| <= omega(|x - y|).
        squared: the outer function is the square of an inner one that is never negative.
        sign: and its sign.
        floor, ceiling: no occupancy has a smaller or larger value.
    """

    omega: Callable[[Radius], float]
    squared: bool = False
    sign: float = 1.0
    floor: float = 0.0
    ceiling: float = math.inf


def modulus_of(function: Any, *, one_hot: bool, pairs: np.ndarray) -> Modulus | None:
    """The modulus of a bound atom, None where none is known.

    Args:
        function: the atom as a function of occupancies.
        one_hot: whether occupancies are those of a table (or of bins); entropy and kl need that.
        pairs: boolean (F, A), the entries that can differ from zero.
    """
    if isinstance(function, SumShape):  # a concave quadratic
        inner = modulus_of(function.parts[0], one_hot=one_hot, pairs=pairs)
        return None if inner is None else inner._replace(sign=float(function.weights[0]))
    if isinstance(function, NormShape):
        matrix = abs(function.map.to_sparse())
        column = float(matrix.sum(axis=0).max(initial=0.0))
        if function.norm == "l1":
            return Modulus(lambda step: column * step.l1)
        spectral = function.map.singular()[0]
        longest = math.sqrt(float(matrix.power(2).sum(axis=0).max(initial=0.0)))
        return Modulus(
            lambda step: min(spectral * step.l2, longest * step.l1), function.norm == "l2-squared"
        )
    if isinstance(function, EntropyShape) and one_hot:
        matrix = function.map.to_sparse()
        cells = int((abs(matrix) @ pairs.ravel() > 0).sum())
        scale = float(abs(matrix).sum(axis=0).max())
        # of n numbers that sum to at most one: log n for n >= 3, less than log 3 for fewer
        most = math.log(max(cells, 3))
        return Modulus(lambda step: _entropy(cells, scale * step.l1), ceiling=most)
    if isinstance(function, RelativeEntropyShape) and one_hot and function.base_map is None:
        inside = np.asarray(function.base_offset) > 0
        steepest = float(np.abs(np.log(function.base_offset[inside])).max()) + 1.0
        count = int(inside.sum())
        scale = float(abs(function.map.to_sparse()).sum(axis=0).max())
        return Modulus(lambda step: _entropy(count, scale * step.l1) + steepest * scale * step.l1)
    if isinstance(function, CustomShape) and function.declared.lipschitz is not None:
        slope = float(function.declared.lipschitz)
        return Modulus(lambda step: slope * step.l2, floor=-math.inf)
    return None


def _entropy(cells: int, step: float) -> float:
    """As ``entropy_drift``; further away than it reaches, no more than the entropy can be at all."""
    bound = entropy_drift(cells, step)
    return min(bound, math.log(cells) + 1.0) if cells else 0.0
