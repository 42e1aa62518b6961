"""The occupancy as a CVXPY variable, over the pairs that some policy can take."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import require


class OccupancyVariable:
    """What ``OccupancyFunction.to_cvxpy`` is written in.

    Pairs that no policy can take are left out: they are zero anyway, and a logarithm of a variable
    that cannot be positive has no interior for an interior-point method to walk in.

    Attributes:
        usable: boolean (S, A), the pairs that are variables.
        pairs: the CVXPY variable, one number per usable pair, in row-major order.
        side_constraints: on further variables that a form needs; part of the program.
    """

    def __init__(self, usable: np.ndarray) -> None:
        cp = require("cvxpy", "convex")
        self.usable = usable
        self.pairs = cp.Variable(int(usable.sum()), nonneg=True)
        self.side_constraints: list[Any] = []

    def inner(self, reward: np.ndarray) -> Any:
        """<reward, x>."""
        return reward[self.usable] @ self.pairs

    def select(self, array: np.ndarray) -> np.ndarray:
        """The entries of an (S, A) array at the usable pairs."""
        return array[self.usable]

    @cached_property
    def state_sums(self) -> Any:
        """sum_a x(s, a) for every state with a usable pair, in order."""
        states = np.nonzero(self.usable)[0]
        _, rows = np.unique(states, return_inverse=True)
        entries = (np.ones(rows.size), (rows, np.arange(rows.size)))
        return sp.csr_array(entries) @ self.pairs

    @cached_property
    def flat(self) -> Any:
        """The whole occupancy, length S*A, zeros included."""
        if self.usable.all():
            return self.pairs
        places = np.flatnonzero(self.usable)
        entries = (np.ones(places.size), (places, np.arange(places.size)))
        return sp.csr_array(entries, shape=(self.usable.size, places.size)) @ self.pairs
