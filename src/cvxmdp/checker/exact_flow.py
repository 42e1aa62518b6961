r"""Flows in exact arithmetic: what they have in common, and those of episodes.

The proofs are those of ``checked_episodes``, without their terms for rounding. With the mass m = |rho| / (1 -
gamma), infinite for gamma = 1, for any V and any E >= max(0, r + gamma P V - V) + gamma P E,

    <r, y> <= <rho, V> + min(m max(0, max (r + gamma P V - V)), <rho, E>),

and without the zero where no row ends. The occupancy of a policy is known to many digits (``exact_chain``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_flow import CheckedFlow, Proof
from cvxmdp.checker.exact_chain import ExactChain
from cvxmdp.checker.exact_numbers import (
    Ball,
    ExactMatrix,
    add_up,
    ball,
    balls,
    greatest,
    refuse_unless,
)


class ExactFlow(ABC):
    """The exact counterpart of a ``CheckedFlow``.

    Args:
        flow: the same model in floats: masks, who is reached, which rows end.
        plain: the problem, for its numbers as they were written.

    Attributes:
        transition: (S * A, S), without a step in time.
        owner: the state of each pair, (S * A,).
    """

    def __init__(self, flow: CheckedFlow, plain: Mapping[str, Any]) -> None:
        self.initial = balls(flow.initial)
        written = sp.csr_array(plain["transition"])
        pairs, states = written.shape
        self.owner = np.repeat(np.arange(states), pairs // states)
        self.transition = ExactMatrix(written, _divided(written, flow.ends.ravel()))

    @abstractmethod
    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        """What no policy's return with this reward, one for each pair of the flow, exceeds."""

    @abstractmethod
    def visited(self, policy: Any) -> np.ndarray:
        """The occupancy of a policy, one for each pair of the flow: balls that surely hold it."""


def _divided(written: sp.csr_array, ends: np.ndarray) -> np.ndarray:
    """A row that ends no episode means its floats divided by their exact sum."""
    entries = balls(written.data)
    for row in np.flatnonzero(~ends & (np.diff(written.indptr) > 0)):
        piece = slice(written.indptr[row], written.indptr[row + 1])
        whole = add_up(entries[piece])
        surely_one = whole == 1
        if not surely_one:
            entries[piece] = entries[piece] / whole
    return entries


def exact_policy(flow: CheckedFlow, policy: Any) -> tuple[np.ndarray, np.ndarray]:
    """A policy in floats, (rows, A), and exactly, (rows * A,): as written, over the exact sums of its rows."""
    floats = flow.read_policy(policy)
    given = balls(np.where(flow.actions, flow.as_written(policy), 0.0))
    sums = np.array([add_up(row) for row in given], dtype=object)
    return floats, (given / sums[:, None]).ravel()


class ExactEpisodes(ExactFlow):
    """The exact counterpart of ``CheckedEpisodes``."""

    def __init__(self, flow: CheckedEpisodes, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.flow, self.discount = flow, ball(flow.discount)
        self.mass = add_up(self.initial) / (1 - self.discount) if flow.discount < 1 else None

    def _following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V, (S * A,)."""
        return np.asarray(self.transition.times(values) * self.discount)

    def _gained(self, values: np.ndarray) -> np.ndarray:
        """gamma P V - V, (S * A,); without a discount as differences, where nothing ends."""
        plainly = self._following(values) - values[self.owner]
        if self.flow.discount < 1:
            return np.asarray(plainly)
        changes = self.transition.changes(values, self.owner)
        return np.where(self.flow.ends.ravel(), plainly, changes)

    def best_return(self, reward: np.ndarray, proof: Proof) -> Ball:
        values = balls(self.flow.per_state(proof, "values"))
        left = (reward + self._gained(values))[self.flow.usable.ravel()]
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
        floats, exact = exact_policy(self.flow, policy)
        support = self.flow.support(floats)
        exact = np.where(support.ravel(), exact, ball(0.0))
        inside = np.asarray(support.any(axis=1))
        chain = ExactChain(self.transition, exact, self.flow.chain(floats), inside)
        return np.asarray(chain.visits(self.initial, self.flow.discount)[self.owner] * exact)
