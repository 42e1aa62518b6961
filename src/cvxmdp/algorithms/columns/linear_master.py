r"""The master of column generation for linear problems: a linear program over mixtures of columns.

With f_k and g_ik the objective and slacks of column k,

    maximise sum_k w_k f_k   subject to   sum_k w_k g_ik >= margin_i,   sum_k w_k = 1,   w >= 0.

It has one row per constraint and at most a few hundred columns; HiGHS's simplex solves it in milliseconds.
The duals of its rows are the multipliers. While no mixture satisfies the constraints, the smallest slack in
units of each constraint is maximised instead; its duals are the weights of a proof of infeasibility, should
the oracle find nothing better. The margins are small and keep the mixture's policy surely feasible, whose
occupancy has errors of its own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from cvxmdp.algorithms.columns.column_places import Rewards
from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.base.errors import SolverError
from cvxmdp.problems.lowered import Lowered

MARGIN_FACTOR = 4.0  # margins of constraints, in errors of the visits

FEASIBILITY = 1e-10  # HiGHS takes none below


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


def _simplex(weights: np.ndarray) -> np.ndarray:
    """Without a simplex method's rounding below zero, and with sum one."""
    weights = np.where(weights > 1e-14, weights, 0.0)
    return np.asarray(weights / weights.sum())


class LinearMaster:
    """Affine objective and slacks: numbers per column, and a linear program.

    Args:
        lowered: the problem.
        error: of the visits of columns, absolute, which margins allow for.
        place: where rewards and columns are; on the host when not given.
    """

    unsolved = 0  # a linear program is solved, or raises

    def __init__(self, lowered: Lowered, error: float, place: Rewards | None = None) -> None:
        model = lowered.flow
        self.place = Rewards() if place is None else place
        zero = np.zeros(model.shape)
        self.tangents = lowered.tangents_at(zero)
        parts = [node.tangent(node.at(zero)) for node in lowered.functions]
        rewards = [part.reward for part in parts]
        self.rewards = self.place.keep(rewards)
        self.constants = [part.offset for part in parts]
        steepest = [float(np.abs(reward[model.usable]).max(initial=0.0)) for reward in rewards]
        self.margins = MARGIN_FACTOR * error * np.array(steepest[1:])
        sizes = [s * model.mass + abs(c) for s, c in zip(steepest, self.constants, strict=True)]
        self.largest = sizes[0]  # no policy's objective exceeds it in size
        self.units = np.array([size or 1.0 for size in sizes[1:]])
        self.features = np.zeros((len(parts), 0))
        self.roomy = False  # whether a mixture of these columns is known to satisfy the constraints

    def add(self, column: Column) -> None:
        seen = np.add(self.place.features(column, self.rewards), self.constants)
        self.features = np.column_stack([self.features, seen])

    def keep(self, stay: np.ndarray) -> None:
        self.features = self.features[:, stay]
        self.roomy = False

    def needed(self) -> np.ndarray:
        """No column is needed for its own sake."""
        return np.zeros(self.features.shape[1], dtype=bool)

    def solve(self) -> Answer:
        """The best feasible mixture or, where there is none, the one with the largest smallest slack."""
        objective = self.features[0]
        if not self.units.size:
            weights = np.zeros(objective.size)
            if weights.size:  # else it is before the first column
                weights[objective.argmax()] = 1.0
            value = float(objective.max(initial=-math.inf))
            return Answer(weights, value, np.zeros(0), self.tangents, True)
        scaled = (self.features[1:] - self.margins[:, None]) / self.units[:, None]
        if not self.roomy:
            room = self._most_room(scaled)
            if room.value < 0:
                return room
            self.roomy = True  # and stays so: columns that come take no mixture away
        centre, unit = float(objective.mean()), float(np.ptp(objective)) or 1.0
        found = linprog(
            -(objective - centre) / unit,
            A_ub=-scaled,
            b_ub=np.zeros(len(scaled)),
            A_eq=np.ones((1, objective.size)),
            b_eq=[1.0],
            method="highs-ds",
            options={
                "primal_feasibility_tolerance": FEASIBILITY,
                "dual_feasibility_tolerance": FEASIBILITY,
            },
        )
        if found.x is None:
            room = self._most_room(scaled)
            return room._replace(value=min(room.value, -FEASIBILITY))
        weights = _simplex(found.x)
        multipliers = np.maximum(-found.ineqlin.marginals, 0.0) * unit / self.units
        return Answer(weights, float(objective @ weights), multipliers, self.tangents, True)

    def safest(self) -> Answer:
        """The mixture with the most room in all constraints."""
        return self._most_room(self.features[1:] / self.units[:, None])

    def _most_room(self, scaled: np.ndarray) -> Answer:
        """The mixture with the largest smallest slack in units, (n, K), and the weights that prove it."""
        n, k = scaled.shape
        found = linprog(
            np.append(np.zeros(k), -1.0),
            A_ub=np.column_stack([-scaled, np.ones(n)]),
            b_ub=np.zeros(n),
            A_eq=np.append(np.ones(k), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * k + [(None, None)],
            method="highs-ds",
        )
        if found.x is None:
            raise SolverError(
                f"HiGHS could not solve the master of column generation: {found.message}"
            )
        weights = _simplex(found.x[:-1])
        least = float((scaled @ weights).min())
        duals = _simplex(-found.ineqlin.marginals)
        return Answer(weights, least, duals, self.tangents, least >= 0)

    def price(self, answer: Answer) -> Price:
        """The reward of the Lagrangian or, before a mixture is feasible, of the weighted slacks."""
        if answer.feasible:
            factors = np.append(1.0, answer.multipliers)
        else:
            factors = np.append(0.0, answer.multipliers / self.units)
        reward = self.place.mixed(factors, self.rewards)
        return Price(reward, math.fsum(factors * self.constants))

    def between(self, first: Answer, second: Answer, share: float) -> Answer:
        """A mean of the multipliers."""
        mean = share * first.multipliers + (1.0 - share) * second.multipliers
        return second._replace(multipliers=mean)
