r"""Column generation on a lowered problem: the loop between master and oracle.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp.algorithms.columns import group_start
from cvxmdp.algorithms.columns.column_places import place_for
from cvxmdp.algorithms.columns.compiled_dual import dual_of
from cvxmdp.algorithms.columns.concave_master import ConcaveMaster
from cvxmdp.algorithms.columns.flow_duals import absorb, only_leaf
from cvxmdp.algorithms.columns.linear_master import Answer, LinearMaster, Price
from cvxmdp.algorithms.columns.natural import NaturalSteps
from cvxmdp.algorithms.columns.pool import NEGLIGIBLE, Column, Columns
from cvxmdp.algorithms.conic import least_size
from cvxmdp.atoms import Shape
from cvxmdp.atoms.walks import positive_in
from cvxmdp.base.relative_size import size_of
from cvxmdp.models.flow import Flow
from cvxmdp.models.systems import EPS
from cvxmdp.problems.lowered import Evidence, Lowered

ROUNDING_FACTOR = 64.0  # between the rounding of a bound and the tolerance that is sure to be met
USELESS = 1e-2  # relative gap beyond which rounding makes a certificate useless
# Of the search for a policy inside a domain; room that is enough, of the most.
INSIDE_STEPS, INSIDE = 100, 0.3
SMOOTHING = 0.4  # share of the best multipliers so far in those the oracle is asked at
STEADY = 0.5  # least share of what was before in the moving means of natural steps
MEMORY = 4.0  # the larger, the shorter these means
STALLED = 5  # natural steps in a row without progress after which the oracle is asked, too
CREEPING_STEPS = 50  # after which the bounds should have come closer
PROGRESS = 1e-3  # of the gap: what a bound has to move by to count as progress
# Gap at which columns of the smoothed dual are taken; steps between others.
NEAR, EXPLICIT_EVERY = 0.6, 4
FAR_EVALUATIONS, NEAR_EVALUATIONS = 40, 60  # of the smoothed dual in a step
# States beyond which it is so many times as many, where models spread slowly.
SPREAD, LONGER = 20_000, 3
STEP_SHARE = 0.1  # of the gap: accuracy of the values of a natural step that give no bound
VALUES_SHARE = 0.02  # of the gap: accuracy of the values of a natural step
ORACLE_SHARE = 0.05  # of the gap, that the oracle may leave open
FIRST_ACCURACY = 1e-3  # of the oracle, relative to the size of the reward, before there is a gap
RARE = 0.05  # of the most a policy could gain in every step: an optimum beyond is nowhere near zero
VISITS_SHARE = 1e-4  # of the tolerance: relative error of the visits of a column
CURVED_VISITS_SHARE = 1e-2  # the same for concave problems, whose optima are flat
OCCUPANCY_ERROR = 1e-9  # relative error with which a mixture passes for an occupancy


def smallest_tolerance(model: Flow) -> float:
    """The relative gap that float64 can surely certify: rounding grows with the stay."""
    successors = int(np.diff(model.transition.indptr).max(initial=0))
    return ROUNDING_FACTOR * (successors + 8) * EPS * model.magnified


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
        lowered: the problem.
        tolerance: the relative gap that is aimed at: it sets how exact columns and oracle are.
        most_columns: how many columns are kept.
    """

    def __init__(self, lowered: Lowered, tolerance: float, most_columns: int) -> None:
        self.lowered, self.tolerance = lowered, tolerance
        self.model = lowered.flow
        self.place = place_for(self.model, lowered.affine)
        self.oracle = self.place.oracle
        # Without constraints one column is the answer: no mixture will change the question.
        self.alone = lowered.affine and not lowered.slacks
        share = VISITS_SHARE if lowered.affine and lowered.slacks else CURVED_VISITS_SHARE
        self.error = share * tolerance * self.model.mass
        if lowered.trusts:  # a function of the user's own is linearised at occupancies only
            self.error = min(self.error, OCCUPANCY_ERROR * self.model.mass)
        self.most_columns = most_columns
        self.clear()
        self.lower, self.upper = -math.inf, math.inf
        self.room_upper = math.inf  # of the smallest slack in units
        self.current: Answer | None = None  # of the last master
        self.answer: Answer | None = None  # of the best lower bound; weights of columns now kept
        self.proof: tuple[Answer, np.ndarray] | None = None  # of the best upper bound, with its V
        self.room_proof: tuple[Answer, np.ndarray] | None = None
        self.trail = Trail()
        self.natural = None if lowered.affine else NaturalSteps(self.place, self.model.actions)
        self.leaf = None if lowered.affine else only_leaf(lowered)
        self.dual = None if self.leaf is None else dual_of(lowered, self.leaf, self.place)
        self.explicit, self.latest = True, (True, False)
        self.steady: np.ndarray | None = None
        self.mean_values: np.ndarray | None = None
        self.mean_multipliers: np.ndarray | None = None
        self.steps = self.stalled = 0
        self.outside = not self.alone and math.isinf(self._add_first())  # of f's domain

    @cached_property
    def scale(self) -> float:
        """Of an optimum near zero."""
        return least_size(self.lowered)

    @cached_property
    def uniform(self) -> float:
        """The uniform policy's objective."""
        return float(self.lowered.objective.value(self.model.uniform_occupancy))

    def _add_first(self) -> float:
        """A column of the uniform policy or, where a logarithm is infinite there, of one inside its domain."""
        x, wanted = self.model.uniform_occupancy, self.lowered.arguments
        if wanted and not all(math.isfinite(f.value(x)) for f in self.lowered.functions):
            return self.add_policy(self._policy_inside(wanted))
        self.oracle.visits_before = x.sum(axis=1)
        self.add(Column(self.oracle.visits_before, None, self.model.uniform, self.error))
        return self.uniform

    def _policy_inside(self, wanted: Sequence[Shape]) -> np.ndarray:
        # What a logarithm stands in is left out: its arguments are looked at themselves.
        slacks = [g for g in (*self.lowered.slacks.values(), *wanted) if not positive_in([g])]
        named = {str(place): slack for place, slack in enumerate(slacks)}
        search = Generation(
            self.lowered.with_objective(slacks[0], named), self.tolerance, self.most_columns
        )
        for _ in range(INSIDE_STEPS):
            search.room_step()
            if search.room > INSIDE * search.room_upper or search.room_upper < 0:
                break
        return self.model.policy(search.safest())

    def add_policy(self, policy: np.ndarray) -> float:
        """Take a policy's occupancy as a column. Returns its objective."""
        visits = self.place.visits(policy, self.error)
        self.add(Column(visits, None, policy, self.error))
        return float(self.lowered.objective.value(visits[:, None] * policy))

    def clear(self) -> None:
        self.columns = Columns(self.model.shape, self.most_columns)
        if self.lowered.affine:
            self.master: Any = LinearMaster(self.lowered, self.error, self.place)
        else:
            self.master = ConcaveMaster(self.lowered, self.error)

    def add(self, column: Column) -> None:
        self.columns.add(column)
        self.master.add(column)

    def start_at(self, multipliers: Mapping[str, float]) -> None:
        """Ask the oracle at given multipliers first: those of another solution."""
        known = self.master.solve()
        mu = np.array([float(multipliers[name]) for name in self.lowered.slacks])
        # They may be optimal: then the bound should be as tight as was asked.
        known_size = abs(self.uniform) if math.isfinite(self.uniform) else 0.0
        sharp = 0.1 * self.tolerance * max(known_size, self.scale)
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
        size = max(self._size, abs(self.lower))
        return (self.upper - self.lower) / size if size > 0 else 0.0

    @property
    def _size(self) -> float:
        """What gaps are relative to: rare events have small returns, and only an optimum near zero has none."""
        if self.alone and abs(self.upper) > RARE * self.master.largest:
            return abs(self.upper)  # nowhere near zero, whatever the uniform policy has
        span = abs(self.upper - self.uniform)
        found = [size_of(self.upper, self.lower, span if math.isfinite(span) else 0.0)]
        near_zero = not self.lower > 0 and not self.upper < 0
        if near_zero or not math.isfinite(self.upper):
            found += [self.scale, abs(self.uniform)]
        return max(size for size in found if math.isfinite(size))

    def creeps(self, share: float) -> bool:
        """Whether more than this share of the distance between the bounds is left after some more steps."""
        upper, lower = self.trail.upper, self.trail.lower
        if len(upper) <= CREEPING_STEPS:
            return False
        before = upper[-CREEPING_STEPS] - lower[-CREEPING_STEPS]
        return not upper[-1] - lower[-1] <= share * before

    def begin(self) -> Answer:
        """The best mixture of the columns there are, before the first step."""
        return self.current if self.current is not None else self._mix()

    def step(self) -> None:
        """One call of the oracle, and the best mixture with what it found."""
        found = self.begin()
        upper, lower = self.upper, self.lower
        before = self.proof if found.feasible else self.room_proof
        asked = found if before is None else self.master.between(before[0], found, SMOOTHING)
        if self.natural is not None:
            self._natural_step(self._steadied(found) if found.feasible else asked)
        else:
            self._ask(asked)
        self._forget()
        mixed = self._mix()
        if self.natural is not None:
            self._learn(mixed.weights)
            worth = PROGRESS * min(upper - lower, 0.1 * abs(lower))
            moved = upper - self.upper >= worth or self.lower - lower >= worth
            self.stalled = 0 if moved else self.stalled + 1
        self._record(mixed)

    def room_step(self) -> None:
        """One call of the oracle towards the largest smallest slack, whether or not it is positive."""
        found = self.master.safest()._replace(feasible=False)
        before = self.room_proof
        asked = found if before is None else self.master.between(before[0], found, SMOOTHING)
        if self.natural is not None:
            self._natural_step(asked)
        else:
            self._ask(asked)
        self._forget()

    def _steadied(self, found: Answer) -> Answer:
        """Multipliers of a mixture of few, similar columns are noisy: the mean with those before."""
        self.steps += 1
        self.steady = self._mean(self.steady, found.multipliers)
        return found._replace(multipliers=self.steady)

    def _mean(self, before: np.ndarray | None, now: np.ndarray) -> np.ndarray:
        """A moving mean, over about half of the steps so far."""
        if before is None:
            return now
        share = max(STEADY, 1.0 - MEMORY / self.steps)
        return share * before + (1.0 - share) * now

    def _natural_step(self, asked: Answer) -> None:
        """A bound and a column from the values of the mixture's own policy; now and then, the oracle's."""
        assert self.natural is not None
        policy = self.natural.base(self.columns.mix(self._padded(asked.weights)))
        self._condense()
        leaf = self.leaf if asked.feasible else None
        self.latest = (True, False)
        if leaf is None or self.stalled >= STALLED:
            self.stalled = 0
            self._ask(asked)
        if leaf is not None and self.dual is not None:
            self._dual_step(asked, policy)
            return
        price = self.master.price(asked)
        gap = min(self.upper - self.lower, 0.1 * abs(self.lower))
        if not asked.feasible:
            gap = min(self.room_upper - asked.value, 1.0)
        accuracy = VALUES_SHARE * gap / self.model.mass
        values, following = self.natural.evaluate(policy, price.reward, accuracy)
        if leaf is not None:
            self._bound(asked, values, following)
        self.add(self.natural.column(policy, self.error))

    def _dual_step(self, asked: Answer, policy: np.ndarray) -> None:
        """A bound from the smoothed dual around the mixture's own policy; near the optimum, also a column.

        Far from it columns are those of natural steps, which respect the constraints sooner; near it those of
        the dual, which sees all actions at once, usually get the weight, and natural steps are tried rarely.
        """
        assert self.dual is not None
        assert self.natural is not None
        gap = min(self.upper - self.lower, 0.1 * abs(self.lower))
        explicit = self.explicit or not self.gap <= NEAR or self.steps % EXPLICIT_EVERY == 0
        if not self.dual.values.any():
            group_start.begin(self.dual)
        evaluations = FAR_EVALUATIONS if explicit else NEAR_EVALUATIONS
        if self.dual.aggregates.parents and self.model.shape[0] > SPREAD:
            evaluations *= LONGER
        point = self.dual.descend(policy, gap, evaluations)
        self._offer(asked, point.multipliers, point.values, point.following)
        near = self.gap <= NEAR
        if explicit:
            accuracy = STEP_SHARE * gap / self.model.mass
            self.natural.evaluate(policy, self.master.price(asked).reward, accuracy)
            self.add(self.natural.column(policy, self.error))
        if near:
            self.natural.policy = point.policy
            visits = self.place.visits(point.policy, self.error)
            self.add(Column(visits, None, point.policy, self.error))
        self.latest = (explicit, near)

    def _learn(self, weights: np.ndarray) -> None:
        """Adapt to the weights that the last columns got."""
        assert self.natural is not None
        explicit, near = self.latest
        step = float(weights[-2 if near else -1]) if explicit else 0.0
        if explicit:
            self.natural.learn(step)
        self.explicit = not near or step >= float(weights[-1])

    def _bound(self, asked: Answer, values: np.ndarray, following: np.ndarray) -> None:
        """Upper bounds from values: these, and the mean of the last ones.

        The bound is jointly convex in values and multipliers, and grows exponentially with their noise: that
        of the mean is far below the mean of the bounds.
        """
        self.mean_values = self._mean(self.mean_values, values)
        self.mean_multipliers = self._mean(self.mean_multipliers, asked.multipliers)
        mean = self.mean_values
        for mu, v, after in (
            (asked.multipliers, values, following),
            (self.mean_multipliers, mean, self.oracle.following(mean)),
        ):
            self._offer(asked, mu, v, after)

    def _offer(
        self, asked: Answer, mu: np.ndarray, values: np.ndarray, following: np.ndarray
    ) -> None:
        """Take the bound of values and multipliers, with the leaf's best tangents, if it is the best so far."""
        assert self.leaf is not None
        named = self.lowered.named(mu)
        bound = absorb(self.lowered, self.leaf, named, asked.tangents, values, following)
        if bound is not None and bound.upper < self.upper:
            self.upper = bound.upper
            proven = asked._replace(multipliers=mu, tangents=bound.tangents)
            self.proof = (proven, bound.values)

    def _padded(self, weights: np.ndarray) -> np.ndarray:
        """Zeros for the columns that came since."""
        return np.append(weights, np.zeros(max(len(self.columns) - weights.size, 0)))

    def _mix(self) -> Answer:
        """The best mixture of the columns there are."""
        self.master.gap = self.upper - self.lower
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
        best, column = self.place.best(price.reward, wide, self.error)
        upper = best.upper + price.constant
        if asked.feasible and upper < self.upper:
            self.upper, self.proof = upper, (asked, best.values)
        if not asked.feasible and upper < self.room_upper:
            self.room_upper, self.room_proof = upper, (asked, best.values)
        self.add(column)

    def _accuracy(self, asked: Answer, price: Price) -> float:
        """How wide the oracle's interval may stay."""
        gap = self.upper - self.lower if asked.feasible else self.room_upper - asked.value
        if not math.isfinite(gap):
            # Before there is a gap: relative to what the reward can make of a difference.
            share = 0.1 * self.tolerance if self.alone else FIRST_ACCURACY
            return share * self.place.spread(price.reward) * self.model.mass
        floor = 0.1 * self.tolerance * (self._size if asked.feasible else 0.0)
        return floor if self.alone else max(ORACLE_SHARE * gap, floor)

    def _forget(self) -> None:
        """Drop idle columns; those of the best mixture stay."""
        if len(self.columns) <= self.columns.most or self.natural is not None:
            return
        needed, answer = self.master.needed(), self.answer
        if answer is not None:
            answer = answer._replace(weights=self._padded(answer.weights))
            needed |= answer.weights > NEGLIGIBLE
        stay = self.columns.forget(needed, self.columns.most)
        self.master.keep(stay)
        if answer is not None:
            kept = answer.weights[stay]
            self.answer = answer._replace(weights=kept / kept.sum())

    def _condense(self) -> None:
        """Before a natural step: where room is short, the best mixture becomes a column of its own."""
        if self.answer is None or len(self.columns) + 3 <= self.columns.most:
            return
        x = self.columns.mix(self._padded(self.answer.weights))
        stay = self.columns.forget(self.master.needed(), self.columns.most - 3)
        self.master.keep(stay)
        self.add(Column(x.sum(axis=1), None, self.model.policy(x), self.error))
        alone = np.zeros(len(self.columns))
        alone[-1] = 1.0
        self.answer = self.answer._replace(weights=alone)
        self.master.weights = alone.copy()

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
        return self.columns.mix(self._padded(self.answer.weights))

    def mixture(self) -> list[tuple[float, np.ndarray]]:
        """Weights and policies (S, A) whose occupancies the answer mixes."""
        if self.answer is None:
            return []
        weighed = zip(self.answer.weights, self.columns, strict=False)
        return [(float(weight), self._policy(column)) for weight, column in weighed if weight > 0]

    def _policy(self, column: Column) -> np.ndarray:
        if column.policy is not None:
            return column.policy
        policy = np.zeros(self.model.shape)
        policy.ravel()[column.places(self.model.shape[1])] = 1.0
        return policy

    def evidence(self) -> Evidence | None:
        """Of the best upper bound."""
        if self.proof is None:
            return None
        asked, values = self.proof
        named = self.lowered.named(asked.multipliers)
        return Evidence(named, dict(asked.tangents), np.asarray(values))

    def room_evidence(self) -> Evidence | None:
        """That no policy has a smallest slack above some number: of ``Lowered.smallest_slack``."""
        if self.room_proof is None:
            return None
        asked, values = self.room_proof
        weights = asked.multipliers / self.master.units
        parts = list(asked.tangents["slacks"].values())
        tangents = {"objective": {"weights": weights, "parts": parts}, "slacks": {}}
        return Evidence({}, tangents, np.asarray(values) / weights.sum())
