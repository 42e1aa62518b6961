r"""What a model, its start and its horizon say of occupancies: the base of all flows.

The *flow* of a model, ``mdp.flow``, is where occupancies, values and reachable states are computed. What does
not depend on the horizon is here: the graph, a policy's own matrix, the way from an occupancy to its policy,
pi(a|s) = x(s,a) / sum_a x(s,a). Each kind of horizon has a flow of its own, which owns the rest; solvers and
certificates use the methods below and ask for nothing else.

Policies as objects, with their checks, are in ``cvxmdp.policies.occupancies``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.systems import DENSE_LIMIT

if TYPE_CHECKING:
    from cvxmdp.models.planning import Device, Oracle

Label = Callable[[int], str]  # a state's name
ENDED_ROUNDING = 1e-6  # relative error of undiscounted visits beyond which none are reported


class Equations(NamedTuple):
    """matrix @ y = right, y = x / mass over the usable pairs: what a program over occupancies has to satisfy.

    Attributes:
        matrix: one row per reached state.
        right: the right-hand side.
        balance: the row in whose place stands the sum of all of them; None where none does.
        shift: what the dual of that row adds to all values.
    """

    matrix: sp.csr_array
    right: np.ndarray
    balance: int | None = None
    shift: float = 0.0

    def values(self, duals: np.ndarray) -> np.ndarray:
        """V of the reached states from the equations' duals."""
        if self.balance is None:
            return duals
        found = duals.copy()
        found[self.balance] = 0.0
        return found + self.shift * duals[self.balance]


@dataclass(frozen=True, eq=False)
class Flow(ABC):
    """The flow equations of a model with some horizon.

    Attributes:
        transition: P(s' | s, a), (S*A, S), compressed sparse rows; row s * A + a belongs to the pair. Rows that
            end no episode sum to one.
        initial: rho, (S,).
        actions: boolean (S, A), which actions are available.
    """

    transition: sp.csr_array
    initial: np.ndarray
    actions: np.ndarray

    @property
    @abstractmethod
    def scale(self) -> float:
        """Occupancies times this, one over their unit, are distributions, of a mass of at most one."""

    @property
    @abstractmethod
    def endless(self) -> bool:
        """No episode ends, all occupancies have one mass: values may be shifted by a constant without loss."""

    @property
    @abstractmethod
    def mass(self) -> float:
        """No occupancy has more mass: the longest expected stay from the start."""

    @property
    def magnified(self) -> float:
        """By how much the rounding of one step grows in a bound, relative to it."""
        return self.longest

    @property
    @abstractmethod
    def longest(self) -> float:
        """The longest expected stay from any state: how much an error in the flow equations can grow."""

    @abstractmethod
    def following(self, values: np.ndarray) -> np.ndarray:
        """What a pair is worth after its own reward, (S, A): gamma P V."""

    @abstractmethod
    def values(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        """V of a policy with this reward, (S,); up to a constant where that makes no difference."""

    @abstractmethod
    def best_return(
        self, reward: np.ndarray, values: np.ndarray, following: np.ndarray | None = None
    ) -> float:
        """What no policy's return exceeds, from any V, up to rounding (certificates compute it anew)."""

    @abstractmethod
    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Nearly optimal values (S,) for a reward (S, A) of available pairs, and the greedy actions (S,)."""

    def response(
        self, reward: np.ndarray, visited: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Sensible actions, (S,), for states outside ``visited``, boolean (S,): best for the reward (S, A).

        Where there are ``values`` of nearly that reward, large models are not solved once more: what is best
        with these ahead is good enough.
        """
        if values is None or values.shape != self.initial.shape or self.shape[0] <= DENSE_LIMIT:
            return self.best_values(reward)[1]
        choices = np.where(self.actions, reward + self.following(values), -np.inf)
        return np.asarray(choices.argmax(axis=1))

    @property
    def invented(self) -> np.ndarray:
        """Boolean (S,): states out of reach whose steps are not the model's; their values mean nothing."""
        return np.zeros(self.shape[0], dtype=bool)

    @property
    def strict(self) -> bool:
        """Policies can stay for ever: values must leave nothing open, and what searches must not stay."""
        return False

    def covering(self, excess: np.ndarray, size: float) -> np.ndarray | None:
        """E >= e + gamma P E for what values leave open, e (S, A); None where a bound needs none.

        ``size`` is that of the bound: what is far below it costs no digits, and is not worth much work.
        """
        return None

    @abstractmethod
    def oracle(self, device: Device | None = None) -> Oracle:
        """What finds best policies and their visits again and again, with rewards that change little."""

    @abstractmethod
    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """The occupancy of a policy, (S, A): expected visits of each pair, as the horizon weighs them."""

    def occupancies(self, policies: np.ndarray) -> np.ndarray:
        """The occupancies of several policies, (K, S, A)."""
        return np.stack([self.occupancy(policy) for policy in policies])

    def visits_matrices(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """M = (I - gamma P_pi)^{-1}, (S, S), visits of each state from each, and gamma P M, (S, A, S).

        None where there is no such matrix, or it would be large.
        """
        return None

    @abstractmethod
    def residual(self, x: np.ndarray) -> np.ndarray:
        """What the flow equations miss at x, (S,): zero for an occupancy."""

    @abstractmethod
    def equations(self) -> Equations:
        """The flow equations for solvers, over the usable pairs, in shares of the mass."""

    def require(self, charge: Callable[[], np.ndarray], signals: Iterable[str] = ()) -> None:
        """Refuse problems of these signals that have no answer; ``charge``, (S, A), is what staying costs."""
        return

    def balance(self, discount: float) -> sp.csr_array:
        """What leaves each reached state less ``discount`` times what arrives, by the usable pairs."""
        places = np.flatnonzero(self.usable)
        entries = (np.ones(places.size), (places // self.shape[1], np.arange(places.size)))
        leaving = sp.csr_array(entries, shape=(self.shape[0], places.size))
        arriving = discount * sp.csr_array(self.transition[places].T)
        return sp.csr_array((leaving - arriving)[self.reached])

    @property
    def effective_discount(self) -> float:
        """The gamma of theorems about discounted sums: 1 - 1 / w for the longest stay w.

        x(s,a) w(s) / <rho, w> is an occupancy of P(s'|s,a) w(s') / w(s) with that discount.
        """
        return 1.0 - 1.0 / self.longest

    @property
    def shown_scale(self) -> float:
        """The scale of pictures, where distributions need no unit that can be compared."""
        return self.scale

    def after(self, steps: np.ndarray) -> np.ndarray:
        """No more mass than this follows in the mean for episodes that were cut after so many steps."""
        return np.full(np.shape(steps), self.longest)

    def tail(self, steps: int) -> float:
        """No more mass than this follows after so many steps, in the mean over all episodes.

        Half of the episodes at most are longer than twice the longest expected stay, from wherever they are.
        """
        return self.longest * 0.5 ** math.floor(steps / (2.0 * self.longest))

    def steps_until(self, share: float) -> int:
        """The number of steps after which less than this share of the mass is left."""
        return math.ceil(2.0 * self.longest * math.ceil(math.log2(1.0 / share)))

    def remark(self, x: np.ndarray, label: Label) -> str:
        """What whoever reads an answer with the occupancy x should know; empty where it is nothing."""
        return ""

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return int(self.actions.shape[0]), int(self.actions.shape[1])

    @cached_property
    def reached(self) -> np.ndarray:
        """Boolean (S,): states that some policy visits. No policy ever visits the others."""
        found = visited_by_some(self.transition, self.initial)
        found.flags.writeable = False
        return found

    @cached_property
    def usable(self) -> np.ndarray:
        """Boolean (S, A): pairs that some policy can take."""
        return self.reached[:, None] & self.actions

    @property
    def least_visits(self) -> np.ndarray:
        """What every policy visits each row at least, (S,), as far as is plain to see."""
        return self.initial

    @property
    def uniform(self) -> np.ndarray:
        """The policy that is uniform over the available actions, (S, A)."""
        return self.actions / self.actions.sum(axis=1, keepdims=True)

    @cached_property
    def uniform_occupancy(self) -> np.ndarray:
        """Its occupancy, (S, A): what sizes are measured at, and relative gaps refer to."""
        return self.sketched(self.uniform)

    @cached_property
    def typical(self) -> tuple[np.ndarray, np.ndarray]:
        """Two occupancies that tell sizes: of uniform actions, and of one action in every state."""
        return self.uniform_occupancy, self.sketched(self.deterministic)

    def know_typical(self, uniform: np.ndarray, deterministic: np.ndarray) -> None:
        """Take visits of these two policies, (S,), that were computed elsewhere."""
        first = self.of_visits(uniform, self.uniform)
        other = self.of_visits(deterministic, self.deterministic)
        self.__dict__.update(uniform_occupancy=first, typical=(first, other))

    def of_visits(self, visits: np.ndarray, policy: np.ndarray) -> np.ndarray:
        """The occupancy with these visits of states, (S, A)."""
        return np.where(self.actions, visits[:, None] * policy, 0.0)

    def sketched(self, policy: np.ndarray) -> np.ndarray:
        """The occupancy of a policy, (S, A), as exactly as sizes have to be known."""
        return self.occupancy(policy)

    @property
    def deterministic(self) -> np.ndarray:
        """Some deterministic policy, (S, A)."""
        return np.asarray(np.eye(self.shape[1])[self.actions.argmax(axis=1)])

    def chain(self, policy: np.ndarray) -> sp.csr_array:
        """P_pi, (S, S): where one step of the policy leads.

        Actions may share successors: such a place has several entries, which products do not mind.
        """
        states, actions = self.shape
        chances = np.repeat(policy.ravel(), np.diff(self.transition.indptr))
        entries = (self.transition.data * chances, self.transition.indices)
        return sp.csr_array((*entries, self.transition.indptr[::actions]), shape=(states, states))

    def policy(self, x: np.ndarray) -> np.ndarray:
        """The policy of an occupancy, (S, A): x(s,a) / sum_a x(s,a), uniform where nothing is visited."""
        inside = np.where(self.actions, np.maximum(x, 0.0), 0.0)
        visits = inside.sum(axis=1, keepdims=True)
        visited = visits > 0
        return np.where(visited, inside / np.where(visited, visits, 1.0), self.uniform)

    def miss(self, x: np.ndarray) -> float:
        """The residual in the sum of absolute values, pairs that no policy can take included."""
        return float(np.abs(self.residual(x)).sum() + np.abs(x[~self.usable]).sum())

    def episode_visits(self, policy: np.ndarray, ending: np.ndarray) -> np.ndarray | None:
        """Undiscounted expected visits per episode, (S, A).

        None where episodes may last forever, or so long that rounding hides their end, and for models
        beyond ``DENSE_LIMIT`` states.

        Args:
            policy: (S, A).
            ending: the probability that the episode ends with this step, (S, A).
        """
        chain = self.chain(policy).copy()  # it shares the model's own indices
        chain.eliminate_zeros()
        visited = reached_from(self.initial > 0, chain.indptr, chain.indices)
        backward = sp.csr_array(chain.T)
        ends_here = (policy * ending).sum(axis=1) > 0
        can_end = reached_from(ends_here, backward.indptr, backward.indices)
        if len(visited) > DENSE_LIMIT or not can_end[visited].all():
            return None
        matrix = np.eye(len(visited)) - backward.toarray()
        # States the policy does not visit may never end; they are not part of its episodes.
        matrix[~visited] = 0.0
        matrix[~visited, ~visited] = 1.0
        try:
            visits = np.maximum(np.linalg.solve(matrix, self.initial), 0.0)
        except np.linalg.LinAlgError:
            return None
        occupancy = visits[:, None] * policy
        # One episode ends once. Where the policy ends it so rarely that this is lost in rounding, the
        # visits are, too.
        ended = float((occupancy * ending).sum())
        return occupancy if abs(ended - 1.0) <= ENDED_ROUNDING else None


def naming(states: np.ndarray, label: Label) -> str:
    """Some states in words: the first two, and how many there are."""
    first = ", ".join(repr(label(int(state))) for state in states[:2])
    return f"{{{first}{f', ... {states.size:,} states' if states.size > 2 else ''}}}"


def state_pointers(transition: sp.csr_array) -> np.ndarray:
    """Of the state graph: rows of one state are contiguous, so every A-th row pointer."""
    rows, states = transition.shape
    return np.asarray(transition.indptr[:: rows // states])


def visited_by_some(transition: sp.csr_array, initial: np.ndarray) -> np.ndarray:
    """Boolean (S,): states that some policy visits."""
    return reached_from(initial > 0, state_pointers(transition), transition.indices)


def successors_of_states(transition: sp.csr_array) -> sp.csr_array:
    """Where each state may lead, (S, S), over all its actions."""
    states = transition.shape[1]
    ones = np.ones(transition.nnz, dtype=np.int8)
    entries = (ones, transition.indices, state_pointers(transition))
    merged = sp.csr_array(entries, shape=(states, states)).copy()
    merged.sum_duplicates()
    return merged


def reached_from(start: np.ndarray, pointers: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """Boolean (S,): places that can be reached from ``start``, boolean (S,), in a graph of compressed rows."""
    reached = start.copy()
    frontier = np.flatnonzero(reached)
    missing = reached.size - frontier.size
    while frontier.size and missing:
        lengths = pointers[frontier + 1] - pointers[frontier]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        candidates = successors[np.repeat(pointers[frontier], lengths) + within]
        frontier = np.unique(candidates[~reached[candidates]])
        reached[frontier] = True
        missing -= frontier.size
    return reached
