"""A model as the checker sees it, whatever its horizon: who can be reached, and what a policy is.

Each kind of horizon has a class of its own, which knows two things: what no policy's return exceeds, and how
far a policy's occupancy may be from the computed one. Nothing here is shared with what searches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph

from cvxmdp.checker.arithmetic import EPS, CertificateError, ErrorBound, numbers

Proof = Mapping[str, Any]
WHOLE = 1e-12  # a row that misses one by less ends no episode, and means its numbers divided by their sum


class Visited(NamedTuple):
    """The occupancy of a policy.

    Attributes:
        x: as computed, (S, A).
        error: how far it may be off.
        residual: what the flow equations miss, in the sum of absolute values.
        least_return: what a reward (S, A), each entry known up to another number, surely returns; None where
            that is known from visits alone.
    """

    x: np.ndarray
    error: ErrorBound
    residual: float
    least_return: Callable[[np.ndarray, np.ndarray], float] | None = None


class CheckedFlow(ABC):
    """The numbers of a model, read from plain data and refused where they are no model.

    Attributes:
        actions: boolean (S, A).
        initial: rho, (S,).
        transition: (S * A, S); rows that end no episode sum to one, up to rounding.
        ends: boolean (S, A): rows that end episodes.
        successors: most entries of a row.
        endings: in words, how many rows do, and with which probability; empty where none does.
        reached, usable: boolean (S,) and (S, A): what some policy visits.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.actions = np.asarray(plain["actions"], dtype=bool)
        if self.actions.ndim != 2 or not self.actions.any(axis=1).all():
            raise CertificateError("some state of the problem has no action")
        self.shape = (int(self.actions.shape[0]), int(self.actions.shape[1]))
        self.initial = numbers(dict(plain), "initial", self.shape[:1])
        transition = sp.csr_array(plain["transition"])
        if transition.shape != (self.actions.size, self.shape[0]):
            raise CertificateError(
                "the problem's transition matrix has another shape than its actions"
            )
        data = transition.data
        if not (np.isfinite(data).all() and (data >= 0).all() and (self.initial >= 0).all()):
            raise CertificateError("a probability of the problem is negative or no number")
        if not self.initial.sum() > 0:
            raise CertificateError("the problem starts nowhere")
        self.successors = int(np.diff(transition.indptr).max(initial=0))
        self.transition, self.ends = self._divided(transition)
        self.endings = self._endings()
        ends = self.transition.indptr[:: self.shape[1]]
        self.reached = reachable_states(self.transition.indices, ends, self.initial)
        self.usable = self.reached[:, None] & self.actions

    def _divided(self, transition: sp.csr_array) -> tuple[sp.csr_array, np.ndarray]:
        """The rows that end no episode divided by their sums, and which rows do end."""
        sums = np.asarray(transition.sum(axis=1)).ravel()
        if (sums > 1.0 + WHOLE).any():
            raise CertificateError("the probabilities of some row of the problem exceed one")
        ends = 1.0 - sums > WHOLE
        factors = np.repeat(np.where(ends, 1.0, sums), np.diff(transition.indptr))
        parts = (transition.data / factors, transition.indices, transition.indptr)
        rows = sp.csr_array(parts, shape=transition.shape)
        return rows, np.asarray((ends & self.actions.ravel()).reshape(self.shape))

    def _endings(self) -> str:
        if not self.ends.any():
            return ""
        sums = np.asarray(self.transition.sum(axis=1)).reshape(self.shape)
        ends = 1.0 - sums[self.ends]
        least, most = (f"{chance:.3g}" for chance in (ends.min(), ends.max()))
        chance = least if least == most else f"{least} to {most}"
        rows = f"{ends.size:,} of {int(self.actions.sum()):,} rows"
        return f"{rows} {'ends' if ends.size == 1 else 'end'} episodes ({chance})"

    @property
    def uniform(self) -> np.ndarray:
        """The policy that is uniform over the available actions, (S, A)."""
        return np.asarray(self.actions / self.actions.sum(axis=1, keepdims=True))

    def require(self, charge: np.ndarray) -> None:
        """Refuse problems that this horizon does not bound; ``charge``, (S, A), is what a step costs."""
        return

    @abstractmethod
    def miss(self, x: np.ndarray) -> float:
        """What the flow equations miss at x, in the sum of absolute values."""

    @abstractmethod
    def best_return(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> float:
        """What no policy's return with this reward exceeds, rounding included.

        Args:
            reward: (S, A).
            blur: by how much each entry of it may be off, (S, A).
            proof: what the certificate holds for it: "values" and whatever else the kind knows.
        """

    def excess(self, reward: np.ndarray, blur: np.ndarray, proof: Proof) -> np.ndarray | None:
        """What a "remainder" that would sharpen the bound has to cover, (S, A); None where none would."""
        return None

    @abstractmethod
    def visited(self, policy: Any, guess: np.ndarray | None = None) -> Visited:
        """The occupancy of a policy, with its error; ``guess``, (S,), is how often states may be visited."""

    def per_state(self, proof: Proof, name: str) -> np.ndarray:
        """Numbers of a proof, one per state; zero where no policy goes."""
        try:
            found = np.asarray(proof[name], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"the certificate holds no usable {name!r}: {error}") from error
        if found.shape != self.initial.shape or not np.isfinite(found[self.reached]).all():
            raise CertificateError(
                f"{name!r} in the certificate must be finite numbers of shape {self.initial.shape}"
            )
        return np.where(self.reached, found, 0.0)

    def as_written(self, policy: Any) -> np.ndarray:
        """A policy's numbers as they were given, a row for each row of the flow."""
        return np.asarray(policy, dtype=np.float64)

    def read_policy(self, policy: Any) -> np.ndarray:
        """A policy's probabilities, refused unless they are a policy of this model."""
        matrix = self.as_written(policy)
        if matrix.shape != self.shape or not np.isfinite(matrix).all() or (matrix < 0).any():
            raise CertificateError(f"a policy is a matrix of probabilities of shape {self.shape}")
        if (np.abs(matrix.sum(axis=1) - 1.0) > 1e-9).any():
            raise CertificateError("the rows of a policy must sum to one")
        if (matrix[~self.actions] > 1e-12).any():
            raise CertificateError("the policy takes actions that are not available")
        matrix = np.where(self.actions, matrix, 0.0)
        return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))

    def chain(self, policy: np.ndarray) -> sp.csr_array:
        """The transition matrix of a policy, (S, S); a place may have an entry for each action."""
        taken = policy > 0
        own = self.transition[np.flatnonzero(taken)]
        data = own.data * np.repeat(policy[taken], np.diff(own.indptr))
        ends = own.indptr[np.concatenate([[0], np.cumsum(taken.sum(axis=1))])]
        return sp.csr_array((data, own.indices, ends), shape=(self.shape[0],) * 2)

    def support(self, policy: np.ndarray, chain: sp.csr_array | None = None) -> np.ndarray:
        """Boolean (S, A): pairs the policy takes with positive probability, at some time."""
        # By the places of the chain's entries, not by the products there, which may underflow to zero.
        own = self.chain(policy) if chain is None else chain
        return reachable_states(own.indices, own.indptr, self.initial)[:, None] & (policy > 0)

    @property
    def arrivals(self) -> int:
        """Most numbers that are added up in one flow equation, with room for the operations on them."""
        counts = np.bincount(self.transition.indices, minlength=self.shape[0])
        return int(counts.max(initial=0)) + self.shape[1] + 8

    @property
    def rounding(self) -> float:
        """Relative rounding of a sum over a row: k terms cost at most k units in the last place."""
        return (self.successors + 8) * EPS


def reachable_states(successors: np.ndarray, ends: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """Boolean (S,): states that can be reached at all, by a search from one extra source state.

    Args:
        successors: of all states, one after another.
        ends: where those of each state begin and end, (S + 1,).
        initial: rho, (S,).
    """
    n_states = initial.size
    starts = np.flatnonzero(initial > 0)
    pointers = np.append(ends, ends[-1] + starts.size)
    columns = np.concatenate([successors, starts.astype(successors.dtype)])
    graph = sp.csr_array((np.ones(columns.size), columns, pointers), shape=(n_states + 1,) * 2)
    found = csgraph.breadth_first_order(graph, n_states, return_predecessors=False)
    reached = np.zeros(n_states + 1, dtype=bool)
    reached[found] = True
    return reached[:-1]


def can_stay(transition: sp.csr_array, free: np.ndarray) -> bool:
    """Whether some policy can stay among the free pairs, boolean (S, A), for ever.

    A pair with a successor that cannot stay is of no use, nor is a state without pairs; what is left can.
    """
    pairs = free.ravel().copy()
    left = pairs.reshape(free.shape).sum(axis=1)
    arriving = sp.csc_array(transition)
    gone = np.flatnonzero(left == 0)
    lost = left == 0
    while gone.size:
        into = [arriving.indices[arriving.indptr[s] : arriving.indptr[s + 1]] for s in gone]
        dropped = np.unique(np.concatenate(into))
        dropped = dropped[pairs[dropped]]
        pairs[dropped] = False
        np.subtract.at(left, dropped // free.shape[1], 1)
        states = np.unique(dropped // free.shape[1])
        gone = states[(left[states] == 0) & ~lost[states]]
        lost[gone] = True
    return not bool(lost.all())
