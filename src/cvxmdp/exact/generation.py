r"""Column generation on a problem as the checker reads it: the loop between master and oracle.

Columns are occupancies of policies. The *master* finds the best mixture of the columns at hand: its objective
is a lower bound. Its multipliers mu and tangents give a reward R and a constant c with
f(y) + sum mu_i g_i(y) <= <R, y> + c for every occupancy y, and the *oracle* bounds max <R, y> + c: an upper
bound, and a policy whose occupancy is the next column (Dantzig and Wolfe, 1960; von Hohenbalken, 1977). Both
bounds are kept at their best; nothing has to converge for them to be true.

Multipliers of a master with few columns jump. The oracle is asked at a point between them and those of the
best upper bound so far (Wentges, 1997), which on three budgets takes a third fewer calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.certificates.bounds import Claims, chain
from cvxmdp.certificates.search import Proof, finish_with, tangents_at
from cvxmdp.exact.columns import Column, Columns, small_actions
from cvxmdp.exact.master import Mixture, best_mixture, most_room
from cvxmdp.exact.oracle import Best, Oracle

SMOOTHING = 0.4  # share of the best multipliers so far in those the oracle is asked at
ORACLE_SHARE = 0.05  # of the gap, that the oracle may leave open
FIRST_ACCURACY = 1e-3  # of the oracle, relative to the size of the reward, before there is a gap
VISITS_SHARE = 1e-4  # of the tolerance: relative error of the visits of a column
MARGIN_FACTOR = 4.0  # margins of constraints, in errors of the visits


class Price(NamedTuple):
    """<reward, y> + constant, above the Lagrangian for every occupancy y."""

    reward: np.ndarray
    constant: float


class Answer(NamedTuple):
    """What a master finds.

    Attributes:
        weights: of the columns.
        value: objective of the mixture or, while none is feasible, its smallest slack in units.
        multipliers: by constraint; while no mixture is feasible, weights of the slacks in units.
        tangents: parameters of the tangents, as a certificate holds them.
        feasible: whether the mixture satisfies the constraints.
    """

    weights: np.ndarray
    value: float
    multipliers: np.ndarray
    tangents: dict[str, Any]
    feasible: bool


class Master(Protocol):
    """The small problem over mixtures of columns."""

    def add(self, column: Column) -> None:
        """Take one more column into account."""
        ...

    def keep(self, stay: np.ndarray) -> None:
        """Forget all columns but these."""
        ...

    def solve(self) -> Answer:
        """The best mixture."""
        ...

    def price(self, answer: Answer) -> Price:
        """The reward that the oracle is asked about."""
        ...

    def between(self, first: Answer, second: Answer, share: float) -> Answer:
        """Multipliers and tangents with a share of the first one's."""
        ...


class LinearMaster:
    """Affine objective and slacks: numbers per column, and a linear program.

    Args:
        claims: the problem.
        error: of the visits of columns, absolute, which margins allow for.
    """

    def __init__(self, claims: Claims, error: float) -> None:
        zero = np.zeros(claims.shape)
        self.tangents = tangents_at(claims, zero)
        nodes = [claims.objective, *claims.slacks.values()]
        parts = [node.tangent(node.at(zero)) for node in nodes]
        usable = claims.reached[:, None] & claims.actions
        self.rewards = [part.reward for part in parts]
        self.constants = [part.constant for part in parts]
        steepest = [float(np.abs(reward[usable]).max(initial=0.0)) for reward in self.rewards]
        self.margins = MARGIN_FACTOR * error * np.array(steepest[1:])
        sizes = [s * claims.mass + abs(c) for s, c in zip(steepest, self.constants, strict=True)]
        self.units = np.array([size or 1.0 for size in sizes[1:]])
        self.features = np.zeros((len(parts), 0))

    def add(self, column: Column) -> None:
        """One number per function."""
        pairs = zip(self.rewards, self.constants, strict=True)
        seen = [column.inner(reward) + constant for reward, constant in pairs]
        self.features = np.column_stack([self.features, seen])

    def keep(self, stay: np.ndarray) -> None:
        """Forget the others."""
        self.features = self.features[:, stay]

    def solve(self) -> Answer:
        """A linear program."""
        found = best_mixture(self.features[0], self.features[1:], self.margins, self.units)
        return self._answer(found)

    def safest(self) -> Answer:
        """The mixture with the most room in all constraints."""
        return self._answer(most_room(self.features[1:], self.units))

    def _answer(self, found: Mixture) -> Answer:
        return Answer(found.weights, found.value, found.multipliers, self.tangents, found.feasible)

    def price(self, answer: Answer) -> Price:
        """The reward of the Lagrangian or, before a mixture is feasible, of the weighted slacks."""
        if answer.feasible:
            factors = np.append(1.0, answer.multipliers)
        else:
            factors = np.append(0.0, answer.multipliers / self.units)
        reward = factors[0] * self.rewards[0]
        for factor, part in zip(factors[1:], self.rewards[1:], strict=True):
            if factor:
                reward += factor * part
        return Price(reward, math.fsum(factors * self.constants))

    def between(self, first: Answer, second: Answer, share: float) -> Answer:
        """A mean of the multipliers."""
        mean = share * first.multipliers + (1.0 - share) * second.multipliers
        return second._replace(multipliers=mean)


@dataclass
class Trail:
    """Bounds and multipliers after every step."""

    upper: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    multipliers: list[np.ndarray] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)


class Generation:
    """The loop. ``step`` until ``gap`` is small or ``infeasible`` is True.

    Args:
        claims: the problem.
        tolerance: the relative gap that is aimed at: it sets how exact columns and oracle are.
        most_columns: how many columns are kept.
    """

    def __init__(self, claims: Claims, tolerance: float, most_columns: int) -> None:
        self.claims, self.tolerance = claims, tolerance
        self.oracle = Oracle(claims)
        self.error = VISITS_SHARE * tolerance * claims.mass
        self.columns = Columns(claims.shape, most_columns)
        self.master: Any = LinearMaster(claims, self.error)
        self.lower, self.upper = -math.inf, math.inf
        self.room_upper = math.inf  # of the smallest slack in units
        self.current: Answer | None = None  # of the last master
        self.answer: Answer | None = None  # of the best lower bound; weights of columns now kept
        self.proof: tuple[Answer, np.ndarray] | None = None  # of the best upper bound, with its V
        self.room_proof: tuple[Answer, np.ndarray] | None = None
        self.trail = Trail()
        self.scale = 0.0  # |f| of the uniform policy and the like, for relative gaps
        uniform = claims.actions / claims.actions.sum(axis=1, keepdims=True)
        self.uniform = self.add_policy(uniform)

    def add_policy(self, policy: np.ndarray) -> float:
        """Take a policy's occupancy as a column. Returns its objective."""
        matrix = chain(self.claims, policy)
        visits = self.oracle.visits(matrix, self.error)
        self._add(Column(visits, None, policy, self.error))
        return float(self.claims.objective.value(visits[:, None] * policy))

    def _add(self, column: Column) -> None:
        self.columns.add(column)
        self.master.add(column)

    def start_at(self, multipliers: Mapping[str, float]) -> None:
        """Ask the oracle at given multipliers first: those of another solution."""
        known = self.master.solve()
        mu = np.array([float(multipliers[name]) for name in self.claims.slacks])
        # They may be optimal: then the bound should be as tight as was asked.
        sharp = 0.1 * self.tolerance * max(abs(self.uniform), 1e-300)
        self._ask(known._replace(multipliers=mu, feasible=True), sharp)

    @property
    def infeasible(self) -> bool:
        """No policy satisfies all constraints (up to rounding; the certificate computes it anew)."""
        return self.room_upper < 0

    @property
    def gap(self) -> float:
        """The relative gap between the bounds so far, as certificates define it."""
        if not (math.isfinite(self.upper) and math.isfinite(self.lower)):
            return math.inf
        size = max(abs(self.upper), abs(self.lower), abs(self.upper - self.uniform))
        return (self.upper - self.lower) / size if size > 0 else 0.0

    def step(self) -> None:
        """One call of the oracle, and the best mixture with what it found."""
        found = self.current if self.current is not None else self._mix()
        before = self.proof if found.feasible else self.room_proof
        asked = found if before is None else self.master.between(before[0], found, SMOOTHING)
        self._ask(asked)
        self._forget()
        self._record(self._mix())

    def _mix(self) -> Answer:
        """The best mixture of the columns there are."""
        found: Answer = self.master.solve()
        self.columns.used(found.weights)
        if found.feasible and found.value >= self.lower:
            self.lower, self.answer = found.value, found
        self.current = found
        return found

    @property
    def room(self) -> float:
        """The largest smallest slack of a mixture, in units of the constraints."""
        return float(self.master.safest().value)

    @property
    def stuck(self) -> bool:
        """No mixture is feasible, and none with a positive smallest slack is possible beyond rounding."""
        return self.answer is None and self.room_upper - self.room <= self.tolerance * 1e-3

    def safest(self) -> np.ndarray:
        """The mixed occupancy with the most room in all constraints, (S, A)."""
        return self.columns.mix(self.master.safest().weights)

    def _ask(self, asked: Answer, accuracy: float | None = None) -> None:
        price = self.master.price(asked)
        wide = self._accuracy(asked, price) if accuracy is None else accuracy
        best = self.oracle.best(price.reward, wide)
        upper = best.upper + price.constant
        if asked.feasible and upper < self.upper:
            self.upper, self.proof = upper, (asked, best.values)
        if not asked.feasible and upper < self.room_upper:
            self.room_upper, self.room_proof = upper, (asked, best.values)
        self._add(self._column(best))

    def _accuracy(self, asked: Answer, price: Price) -> float:
        """How wide the oracle's interval may stay."""
        size = max(abs(self.upper), abs(self.uniform)) if asked.feasible else 0.0
        floor = 0.1 * self.tolerance * (size if math.isfinite(size) else abs(self.uniform))
        gap = self.upper - self.lower if asked.feasible else self.room_upper - asked.value
        if not math.isfinite(gap):
            # Before there is a gap: relative to what the reward can make of a difference.
            usable = self.claims.reached[:, None] & self.claims.actions
            return FIRST_ACCURACY * float(np.ptp(price.reward[usable])) * self.claims.mass
        return max(ORACLE_SHARE * gap, floor)

    def _column(self, best: Best) -> Column:
        matrix: sp.csr_array = self.oracle.chain(best.actions)
        visits = self.oracle.visits(matrix, self.error)
        return Column(visits, small_actions(best.actions, self.claims.shape[1]), None, self.error)

    def _forget(self) -> None:
        if len(self.columns) <= self.columns.most:
            return
        stay = self.columns.forget()
        self.master.keep(stay)
        if self.answer is not None:  # the newest columns are not in it yet, the used ones all stay
            weights = np.zeros(max(int(stay.max()) + 1, self.answer.weights.size))
            weights[: self.answer.weights.size] = self.answer.weights
            self.answer = self.answer._replace(weights=weights[stay])

    def _record(self, found: Answer) -> None:
        self.trail.upper.append(self.upper)
        self.trail.lower.append(self.lower)
        self.trail.multipliers.append(
            found.multipliers if found.feasible else found.multipliers * 0
        )
        self.trail.columns.append(len(self.columns))

    def occupancy(self) -> np.ndarray | None:
        """The best feasible mixture so far, (S, A)."""
        if self.answer is None:
            return None
        weights = np.zeros(len(self.columns))
        weights[: self.answer.weights.size] = self.answer.weights
        return self.columns.mix(weights)

    def mixture(self) -> list[tuple[float, np.ndarray]]:
        """Weights and policies (S, A) whose occupancies the answer mixes."""
        if self.answer is None:
            return []
        weighed = zip(self.answer.weights, self.columns, strict=False)
        return [(float(weight), self._policy(column)) for weight, column in weighed if weight > 0]

    def _policy(self, column: Column) -> np.ndarray:
        if column.policy is not None:
            return column.policy
        policy = np.zeros(self.claims.shape)
        policy.ravel()[column.places(self.claims.shape[1])] = 1.0
        return policy

    def upper_proof(self) -> Proof | None:
        """The best upper bound, computed by the checker's own code."""
        if self.proof is None:
            return None
        asked, values = self.proof
        named = dict(zip(self.claims.slacks, asked.multipliers.tolist(), strict=True))
        return finish_with(self.claims, named, asked.tangents, values)

    def room_bound(self) -> Proof | None:
        """The proof that no policy has a smallest slack above some number, by the checker's own code."""
        if self.room_proof is None:
            return None
        asked, values = self.room_proof
        weights = asked.multipliers / self.master.units
        room = self.claims.smallest_slack()
        parts = list(asked.tangents["slacks"].values())
        tangents = {"objective": {"weights": weights, "parts": parts}, "slacks": {}}
        return finish_with(room, {}, tangents, values / weights.sum())
