r"""The long run as the checker sees it: out(x) = P'x with <1, x> = 1.

**One part.** Every policy ends up in an end component: states with actions that never leave them and connect
them all. The checker finds the maximal ones among the states that can be reached, by the graph alone, and goes
on where there is exactly one. It has no way out (or it would not be maximal): every occupancy lives there.

**What no return exceeds.** For any h, <r, x> = <r + P h - h, x> <= max over the part's pairs of (r + P h - h),
because x sums to one. The maximum is taken of either sign, rounding included.

**How far an occupancy is off.** A policy's path settles in a closed class of its chain. *Within a class* let z
be a state and t >= 1 + P t_0, t_0 being t with a zero at z, on the class: t bounds the times of return to z. If
e is what d = P'd misses, write the error as the visits before z of e and of what enters z, whose masses cancel:
|d - d_pi|_1 <= 2 <|e|, t>. *Between classes* the visits v of the states before solve v = rho + Q'v; what that
misses, f, changes v by at most <|f|, w> for any w >= 1 + Q w, and the chances of settling by no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound
from cvxmdp.checker.checked_flow import CheckedFlow, Proof, Visited
from cvxmdp.checker.linear_solve import solve_system

OPEN = 0.5  # of a step, that a bound on times may leave open


class CheckedAverage(CheckedFlow):
    """The long run. ``reached`` and ``usable`` are the recurrent part and its pairs."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        super().__init__(plain)
        if plain["average"] is not True or "discount" in plain:
            raise CertificateError("the problem's horizon is not one of those that are known")
        if self.ends[self.usable].any():
            raise CertificateError("a problem about the long run has rows that end episodes")
        parts = self._end_components()
        if len(parts) != 1:
            raise CertificateError(
                f"{len(parts)} parts of the problem can be stayed in for ever; nothing follows for the long run"
            )
        self.reached = np.zeros(self.shape[0], dtype=bool)
        self.reached[parts[0]] = True
        self.usable = self.reached[:, None] & self.actions

    def _end_components(self) -> list[np.ndarray]:
        """The maximal end components among the reached states, as indices of states."""
        rows = np.repeat(np.arange(self.actions.size), np.diff(self.transition.indptr))
        origins, targets = rows // self.shape[1], self.transition.indices
        positive = self.transition.data > 0
        staying = self.usable.ravel().copy()
        while True:
            edges = positive & staying[rows]
            labels = _strong(origins[edges], targets[edges], self.shape[0])
            out = rows[edges & (labels[origins] != labels[targets])]
            if out.size == 0:
                break
            staying[out] = False
        states = np.flatnonzero(staying.reshape(self.shape).any(axis=1))
        return [states[labels[states] == label] for label in np.unique(labels[states])]

    def miss(self, x: np.ndarray) -> float:
        missed = x.sum(axis=1) - self.transition.T @ x.ravel()
        inside = float(np.abs(missed).sum()) + abs(float(x.sum()) - 1.0)
        return inside + float(np.abs(x[~self.usable]).sum())

    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        h = self.per_state(proof, "values")
        after = (self.transition @ h).reshape(self.shape)
        left = reward + after - h[:, None]
        sizes = np.abs(reward) + (self.transition @ np.abs(h)).reshape(self.shape)
        error = self.rounding * (sizes + np.abs(h)[:, None]) + blur
        most = float((left + error)[self.usable].max())
        if not math.isfinite(most):
            raise CertificateError("the numbers of the certificate are too large: no bound follows")
        return most + 4 * EPS * abs(most)

    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        policy = self.read_policy(policy)
        chain = self.chain(policy)
        classes, before = self.classes(policy)
        chances, error = self._settling(chain, classes, before)
        x, missed = np.zeros(self.shape), 0.0
        support = np.zeros(self.shape, dtype=bool)
        for places, chance in zip(classes, chances, strict=True):
            own = sp.csr_array(chain[places][:, places])
            shares, off, residual = self._shares(own)
            x[places] = chance * shares[:, None] * policy[places]
            support[places] = policy[places] > 0
            error += chance * off
            missed += chance * residual
        error = (error + 16 * (self.shape[1] + len(classes)) * EPS) * (1 + 8 * EPS)
        return Visited(x, ErrorBound(error, support), missed)

    def classes(self, policy: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """The policy's closed classes among the states it reaches, and its other states."""
        found = np.flatnonzero(self.support(policy).any(axis=1))
        rows = np.repeat(np.arange(self.actions.size), np.diff(self.transition.indptr))
        inside = np.zeros(self.shape[0], dtype=bool)
        inside[found] = True
        taken = (self.transition.data > 0) & (policy.ravel() > 0)[rows]
        taken &= inside[rows // self.shape[1]]
        origins, targets = rows[taken] // self.shape[1], self.transition.indices[taken]
        labels = _strong(origins, targets, self.shape[0])
        open_ones = np.unique(labels[origins[labels[origins] != labels[targets]]])
        closed = np.setdiff1d(np.unique(labels[found]), open_ones)
        classes = [found[labels[found] == label] for label in closed]
        return classes, found[np.isin(labels[found], open_ones)]

    def _settling(
        self, chain: sp.csr_array, classes: list[np.ndarray], before: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """The chance of each class, and how far they may be off in the sum of absolute values."""
        if len(classes) == 1:
            return np.ones(1), 0.0
        chances = np.array([math.fsum(self.initial[places]) for places in classes])
        start, error = self.initial[before], 0.0
        if start.any():
            own = sp.csr_array(chain[before][:, before])
            visits = np.maximum(solve_system(sp.csr_array(own.T), start, 1.0), 0.0)
            inflow = own.T @ visits
            missed = np.abs(visits - start - inflow)
            missed += self.arrivals * EPS * (visits + start + inflow)
            times = self._times(own)
            error = math.inf if times is None else float(missed @ times)
            arriving = chain[before].T @ visits
            chances += [math.fsum(arriving[places]) for places in classes]
            error += self.arrivals * EPS * float(visits.sum())
        # They sum to one; what dividing by the sum changes is no more than what they miss.
        return chances / chances.sum(), error + abs(1.0 - float(chances.sum())) + 8 * EPS

    def _shares(self, own: sp.csr_array) -> tuple[np.ndarray, float, float]:
        """The stationary distribution of a closed class, how far it may be off, and what d = P'd misses."""
        shares = stationary(own)
        inflow = own.T @ shares
        missed = np.abs(shares - inflow)
        residual = float(missed.sum())
        missed += self.arrivals * EPS * (shares + inflow)
        most = int(shares.argmax())
        kept = np.ones(shares.size)
        kept[most] = 0.0
        times = self._times(sp.csr_array(own @ sp.diags_array(kept)))
        if times is None:
            return shares, math.inf, residual
        mass = abs(1.0 - math.fsum(shares)) + 2 * EPS
        return shares, 2.0 * float(missed @ times) + 2.0 * mass, residual

    def _times(self, own: sp.csr_array) -> np.ndarray | None:
        """A t >= 1 + own t near the smallest; None where none was found."""
        try:
            times = np.maximum(solve_system(own, np.ones(own.shape[0]), 1.0), 0.0)
        except np.linalg.LinAlgError:
            return None
        rounding = (int(np.diff(own.indptr).max(initial=0)) + self.shape[1] + 8) * EPS
        left = float(((1.0 + own @ times) * (1 + rounding) - times).max())
        if not left < OPEN:
            return None
        return np.asarray(times / (1.0 - max(0.0, left)) * (1 + 4 * EPS))


def stationary(own: sp.csr_array) -> np.ndarray:
    """d of a closed class: the visits between two of its first state, by one solve. Nobody trusts it."""
    size = own.shape[0]
    if size == 1:
        return np.ones(1)
    kept = np.ones(size)
    kept[0] = 0.0
    start = np.zeros(size)
    start[0] = 1.0
    # Visits from one stay in the first state to the next: v = e_0 + (own without the way back)' v.
    cut = sp.csr_array(sp.diags_array(kept) @ own.T)
    visits = np.maximum(solve_system(cut, start, 1.0), 0.0)
    return np.asarray(visits / visits.sum())


def _strong(origins: np.ndarray, targets: np.ndarray, size: int) -> np.ndarray:
    """The label of each state's strongly connected component."""
    ones = np.ones(origins.size)
    graph = sp.csr_array((ones, (origins, targets)), shape=(size, size))
    return np.asarray(csgraph.connected_components(graph, connection="strong")[1])
