r"""A finite number of steps as the checker sees it: out(x_0) = rho, out(x_{t+1}) = gamma P'x_t for t < T.

Arrays are by time and state, row t * S + s. **What no return exceeds:** V_t = max_a (r_t + gamma P V_{t+1}),
run here, backwards, each step with the rounding of its sums on top; a proof holds nothing for it. **How far an
occupancy is off:** sweeps forwards add and multiply numbers that are not negative, so each entry is right up to
a relative error that grows by the rounding of one sum per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import EPS, UNDERFLOW, CertificateError, ErrorBound, total
from cvxmdp.checker.checked_flow import CheckedFlow, Proof, Visited

MOST_STEPS = 10**7


class CheckedFinite(CheckedFlow):
    """Finitely many steps. ``actions``, ``usable`` and ``shape`` are of all times: (T*S, A).

    Attributes:
        steps: T.
        discount: gamma, at most one.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        super().__init__(plain)
        self.steps, self.discount = plain["horizon"], float(plain["discount"])
        if not isinstance(self.steps, int) or not 1 <= self.steps <= MOST_STEPS:
            raise CertificateError(f"the problem's number of steps is {self.steps!r}")
        if not 0 <= self.discount <= 1:
            raise CertificateError(f"the problem's discount is {self.discount!r}")
        self.states = self.shape[0]
        self.single = self.actions
        reached = self._carried(np.tile(self.actions, (self.steps, 1, 1)))
        self.shape = (self.steps * self.states, self.shape[1])
        self.actions = np.tile(self.actions, (self.steps, 1))
        self.reached = reached.ravel()
        self.usable = self.reached[:, None] & self.actions

    def _carried(self, taken: np.ndarray) -> np.ndarray:
        """Boolean (T, S): when one can be where, with these pairs, boolean (T, S, A), by the graph alone."""
        found = np.zeros(taken.shape[:2], dtype=bool)
        found[0] = self.initial > 0
        rows = np.repeat(np.arange(self.transition.shape[0]), np.diff(self.transition.indptr))
        positive = self.transition.data > 0
        rows, targets = rows[positive], self.transition.indices[positive]
        for time in range(1, self.steps):
            from_here = (found[time - 1][:, None] & taken[time - 1]).ravel()
            found[time, targets[from_here[rows]]] = True
        return found

    def _by_time(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.reshape(self.steps, self.states, -1)

    def miss(self, x: np.ndarray) -> float:
        layers = self._by_time(x)
        start, missed = self.initial, 0.0
        for layer in layers:
            missed += float(np.abs(layer.sum(axis=1) - start).sum())
            start = self.discount * (self.transition.T @ layer.ravel())
        return missed + float(np.abs(x[~self.usable]).sum())

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        rewards, blurs = self._by_time(reward), self._by_time(blur)
        usable = self._by_time(self.usable)
        values = np.zeros(self.states)
        for time in range(self.steps - 1, -1, -1):
            after = self.discount * (self.transition @ values)
            sizes = (
                self.discount * (self.transition @ np.abs(values)) + np.abs(rewards[time]).ravel()
            )
            reached = rewards[time].ravel() + after + self.rounding * sizes
            above = reached.reshape(self.single.shape) + blurs[time]
            best = np.where(usable[time], above, -np.inf).max(axis=1)
            values = np.where(np.isneginf(best), 0.0, best)  # where nobody is, nothing counts
        if not np.isfinite(values).all():
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        inner, size = total(self.initial * values)
        return inner + 4 * EPS * size

    def as_written(self, policy: Any) -> np.ndarray:
        """One table for all times, (S, A), or one for each, (T, S, A)."""
        given = np.asarray(policy, dtype=np.float64)
        if given.shape == self.single.shape:
            given = np.tile(given, (self.steps, 1))
        if given.ndim == 3 and given.shape == (self.steps, *self.single.shape):
            given = given.reshape(self.shape)
        return given

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        rows = self.read_policy(policy)
        chosen = self._by_time(rows)
        x, visits = np.empty(chosen.shape), self.initial
        for time in range(self.steps):
            x[time] = visits[:, None] * chosen[time]
            visits = self.discount * (self.transition.T @ x[time].ravel())
        where = self._carried(chosen > 0)
        support = (where[:, :, None] & (chosen > 0)).reshape(self.shape)
        # Per step: a row divided, a product, a sum of at most ``arrivals`` numbers, a discount.
        growth = math.expm1(1.1 * self.steps * (self.arrivals + self.shape[1] + 8) * EPS)
        error = growth * float(x.sum()) * (1 + 8 * EPS) + x.size * UNDERFLOW
        x = x.reshape(self.shape)
        return Visited(x, ErrorBound(error, support), error, partial(_least_return, x, growth))

    @property
    def arrivals(self) -> int:
        """Most numbers that are added up in one flow equation, with room for the operations on them."""
        counts = np.bincount(self.transition.indices, minlength=self.states)
        return int(counts.max(initial=0)) + self.shape[1] + 8


def _least_return(x: np.ndarray, growth: float, reward: np.ndarray, blur: np.ndarray) -> float:
    """What a reward surely returns where every entry of x is right up to the relative error ``growth``."""
    inner, size = total(reward * x)
    error = (1.1 * growth + 8 * EPS) * size + 1.1 * total(np.where(x > 0, blur, 0.0) * x)[0]
    return inner - error - float(np.abs(reward).max(initial=0.0)) * x.size * UNDERFLOW
