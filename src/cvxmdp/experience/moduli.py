"""Moduli of continuity of the atoms: by how much a value changes when the occupancy moves.

Unlike a certificate's ``drift`` these hold everywhere at once, which bounded differences need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms.custom import CustomFunction
from cvxmdp.atoms.distance import DistanceFunction, KLFunction
from cvxmdp.atoms.entropy import EntropyFunction
from cvxmdp.atoms.nodes import entropy_drift
from cvxmdp.atoms.quadratic import DiagonalFunction, FactorFunction
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
    if isinstance(function, DistanceFunction):
        if function.norm == "l1":
            return Modulus(lambda step: step.l1)
        return Modulus(lambda step: step.l2, squared=function.norm == "l2-squared")
    if isinstance(function, DiagonalFunction):
        largest = float(np.abs(function.root).max(initial=0.0))
        return Modulus(lambda step: largest * step.l2, True, function.sign)
    if isinstance(function, FactorFunction):
        spectral = float(np.linalg.norm(function.factor, ord=2))
        column = float(np.linalg.norm(function.factor, axis=0).max(initial=0.0))
        return Modulus(lambda step: min(spectral * step.l2, column * step.l1), True, function.sign)
    if isinstance(function, EntropyFunction) and one_hot:
        cells = int(pairs.any(axis=1).sum()) if function.of == "state" else int(pairs.sum())
        # of n numbers that sum to at most one: log n for n >= 3, less than log 3 for fewer
        most = math.log(max(cells, 3))
        return Modulus(lambda step: _entropy(cells, function.scale * step.l1), ceiling=most)
    if isinstance(function, KLFunction) and one_hot:
        inside = np.asarray(function.target) > 0
        steepest = float(np.abs(np.log(function.scale * function.target[inside])).max()) + 1.0
        count = int(inside.sum())
        return Modulus(
            lambda step: (
                _entropy(count, function.scale * step.l1) + steepest * function.scale * step.l1
            )
        )
    if isinstance(function, CustomFunction) and function.declared.lipschitz is not None:
        slope = float(function.declared.lipschitz)
        return Modulus(lambda step: slope * step.l2, floor=-math.inf)
    return None


def _entropy(cells: int, step: float) -> float:
    """As ``entropy_drift``; further away than it reaches, no more than the entropy can be at all."""
    bound = entropy_drift(cells, step)
    return min(bound, math.log(cells) + 1.0) if cells else 0.0
