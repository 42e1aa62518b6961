r"""Flows of episodes in exact arithmetic: what no return exceeds, and a policy's occupancy to many digits.

The proofs are those of ``checked_episodes``, without their terms for rounding. With the mass m = |rho| / (1 -
gamma), infinite for gamma = 1, for any V and any E >= max(0, r + gamma P V - V) + gamma P E,

    <r, y> <= <rho, V> + min(m max(0, max (r + gamma P V - V)), <rho, E>),

and without the zero where no row ends. The visits v of a policy are solved for in floats and refined: what the
equations miss is computed exactly, and the correction again in floats, each time a dozen digits more. With d
what is missed in the end, |v - v_pi|_1 <= |d|_1 / (1 - gamma), some 1e-40: as good as exact for any function.
For gamma = 1 it is <|d|, w> / (1 - l), where 1 + P_pi w <= w + l and l < 1: the policy's own longest stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_flow import Proof
from cvxmdp.checker.exact_numbers import (
    Ball,
    ExactMatrix,
    add_up,
    at_most,
    ball,
    balls,
    greatest,
    refuse_unless,
)
from cvxmdp.checker.linear_solve import solve_system

ENOUGH = 1e-40  # that the equations may miss
REFINEMENTS = 40


class ExactEpisodes:
    """The exact counterpart of ``CheckedEpisodes``.

    Args:
        flow: the same model in floats: masks, who is reached, which rows end.
        plain: the problem, for its numbers as they were written.
    """

    def __init__(self, flow: CheckedEpisodes, plain: Mapping[str, Any]) -> None:
        self.flow, self.discount = flow, ball(flow.discount)
        self.initial = balls(flow.initial)
        self.owner = np.repeat(np.arange(flow.shape[0]), flow.shape[1])  # the state of each pair
        written = sp.csr_array(plain["transition"])
        self.transition = ExactMatrix(written, self._divided(written))
        self.discounted = flow.discount < 1
        self.mass = add_up(self.initial) / (1 - self.discount) if self.discounted else None

    def _divided(self, written: sp.csr_array) -> np.ndarray:
        """A row that ends no episode means its floats divided by their exact sum."""
        entries, ends = balls(written.data), self.flow.ends.ravel()
        for row in np.flatnonzero(~ends & (np.diff(written.indptr) > 0)):
            piece = slice(written.indptr[row], written.indptr[row + 1])
            whole = add_up(entries[piece])
            surely_one = whole == 1
            if not surely_one:
                entries[piece] = entries[piece] / whole
        return entries

    def _following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, (S * A,)."""
        return np.asarray(self.transition.times(values) * self.discount)

    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        """What no policy's return with this reward (S * A,) exceeds."""
        values = balls(self.flow.per_state(proof, "values"))
        left = (reward + self._following(values) - values[self.owner])[self.flow.usable.ravel()]
        inner, most = add_up(self.initial * values), greatest(left)
        if self.flow.endless:
            return inner + self.mass * most
        bounds = [] if self.mass is None else [self.mass * most.nonnegative_part()]
        bounds += [ball(0.0)] if most <= 0 else []
        covered = self._covered(left, proof)
        bounds += [] if covered is None else [covered]
        refuse_unless(bool(bounds), "the values in the certificate bound no return")
        return inner - greatest(-bound for bound in bounds)

    def _covered(self, left: np.ndarray, proof: Proof) -> Ball | None:
        """<rho, E> for the E of the proof ("remainder"), if it surely is one."""
        if "remainder" not in proof:
            return None
        given = self.flow.per_state(proof, "remainder")
        if not (given >= 0).all():
            return None
        remainder, usable = balls(given), self.flow.usable.ravel()
        excess = np.array([one.nonnegative_part() for one in left], dtype=object)
        needed = excess + self._following(remainder)[usable]
        if not all(
            one <= given for one, given in zip(needed, remainder[self.owner][usable], strict=True)
        ):
            return None
        return add_up(self.initial * remainder)

    def visited(self, policy: Any) -> np.ndarray:
        """The occupancy of a policy, (S * A,): balls that surely hold it."""
        floats = self.flow.read_policy(policy)
        given = np.where(self.flow.actions, np.asarray(policy, dtype=np.float64), 0.0)
        exact = balls(given)
        exact = (exact / np.array([add_up(row) for row in exact], dtype=object)[:, None]).ravel()
        support = self.flow.support(floats)
        exact = np.where(support.ravel(), exact, ball(0.0))
        visited = np.asarray(support.any(axis=1))
        visits = np.where(
            visited, self._refined(exact, self.flow.chain(floats), visited), ball(0.0)
        )
        return np.asarray(visits[self.owner] * exact)

    def _refined(self, policy: np.ndarray, chain: sp.csr_array, visited: np.ndarray) -> np.ndarray:
        """sum_a x(s, a) of a policy, as balls."""
        visits = balls(np.zeros(visited.size))
        missed = self.initial
        best = (np.inf, visits)
        for _ in range(REFINEMENTS):
            near = np.array([float(one.mid()) for one in missed])
            visits = visits + self._corrected(chain, near, visited)
            visits = np.array([one.mid() for one in visits], dtype=object)
            visits = np.where(visited, visits, ball(0.0))
            arriving = self.transition.transposed_times(visits[self.owner] * policy) * self.discount
            missed = self.initial + arriving - visits
            size = at_most(add_up(abs(one) for one in missed))
            if not size < best[0] / 2:  # no digits are gained any more
                break
            best = (size, visits)
            if size <= ENOUGH:
                break
        size, visits = best
        if self.discounted:
            radius = ball(size) / (1 - self.discount)
        else:
            radius = ball(size) * self._longest(policy, chain, visited)
        return np.array([_around(one, radius) for one in visits], dtype=object)

    def _corrected(
        self, chain: sp.csr_array, missed: np.ndarray, visited: np.ndarray
    ) -> np.ndarray:
        """What the visits lack by floats: (I - gamma P_pi')^-1 of what is missed."""
        places, found = np.flatnonzero(visited), np.zeros(visited.size)
        own = sp.csr_array(chain[places][:, places])
        try:
            found[places] = solve_system(own.T, missed[places], self.flow.discount)
        except np.linalg.LinAlgError as error:
            raise CertificateError(f"the policy never ends its episodes: {error}") from error
        return balls(found)

    def _longest(self, policy: np.ndarray, chain: sp.csr_array, visited: np.ndarray) -> Ball:
        """No episode of the policy is longer on average, from wherever it goes."""
        places = np.flatnonzero(visited)
        own = sp.csr_array(chain[places][:, places])
        stay = np.zeros(visited.size)
        stay[places] = np.maximum(solve_system(own, np.ones(places.size), 1.0), 0.0)
        w, pairs = balls(stay), policy.reshape(self.flow.shape)
        after = (self.transition.times(w).reshape(self.flow.shape) * pairs).sum(axis=1) + 1
        left = greatest((after - w)[places]).nonnegative_part()
        refuse_unless(bool(left < 1), "the policy was not shown to end its episodes")
        return greatest(w) / (1 - left)


def _around(centre: Ball, radius: Ball) -> Ball:
    """centre +- radius, without what is below zero."""
    return (centre + ball(0.0, radius)).nonnegative_part()
