r"""Good deterministic policies: rounding, the columns of the Lagrangian, and local search.

An optimal policy of a constrained problem randomises, in as many states as budgets bind. Without chance a
problem is hard (a knapsack), so this searches:

- *starts*: what is best for f + w sum_i mu_i g_i, for weights w around one (each is a column of the program,
  with budgets tightened where w > 1), and every way to decide the few states in which the optimum randomises;
- *steps*: other actions in one state or in two. Of affine problems all of them are known exactly
  (``exact_neighbours``); otherwise they are ranked by x(s) (Q(s,a) - V(s)), to first order what the Lagrangian
  gains, for several weights, and the foremost are evaluated. Policies are compared by how much they violate, in
  units of each slack, then by the objective.

For affine problems ``branch_and_bound`` is the whole question as a mixed-integer program: x(s,a) <= M(s) z(s,a)
with binary z, sum_a z(s,a) = 1, and M(s) the most that any policy visits s.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from cvxmdp.algorithms.exact_neighbours import ExactNeighbours
from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.errors import ModelError
from cvxmdp.problems.lowered import Evidence, Lowered

WEIGHTS = (1.0, 0.0, 0.3, 0.7, 1.5, 3.0, 10.0, 100.0)  # of the multipliers
RANDOMISED = 4  # states, all ways to decide which are tried
FOREMOST = 12  # changes that are evaluated for each weight
PAIRED = 10  # changes that are combined with each other
STARTS = 2  # from which local search goes
# States of all policies that local search evaluates where not all neighbours are known.
TRIED = 200_000
LEAST_TRIED = 40  # of them, however large the model
# Where nothing feasible was found: mixtures, kicks, states of a kick.
MIXTURES, KICKS, KICKED = 6, 30, 4
ROUNDED = 1e-11  # of a slack's unit: it counts as met


class Candidate(NamedTuple):
    """A deterministic policy and what it is worth.

    Attributes:
        actions: (S,).
        x: its occupancy, (S, A).
        violation: the sum over constraints, each in its unit; zero where all hold.
        objective: f.
        found_by: in words.
    """

    actions: np.ndarray
    x: np.ndarray
    violation: float
    objective: float
    found_by: str

    @property
    def order(self) -> tuple[float, float]:
        """Smaller is better."""
        return self.violation, -self.objective


class DeterministicSearch:
    """A search for deterministic policies of a problem.

    Args:
        lowered: the problem.
        evidence: of its optimum over all policies: multipliers and tangents.
        x: that optimum, (S, A).
    """

    def __init__(self, lowered: Lowered, evidence: Evidence, x: np.ndarray) -> None:
        self.lowered, self.flow, self.evidence, self.x = lowered, lowered.flow, evidence, x
        self.units = {name: _size(g, x) for name, g in lowered.slacks.items()}
        self.neighbours = self._neighbours() if lowered.affine else None
        self.left = max(LEAST_TRIED, TRIED // self.flow.shape[0])
        self.seen: set[bytes] = set()
        self.best: Candidate | None = None

    def _neighbours(self) -> ExactNeighbours:
        names = list(self.lowered.slacks)
        mus = np.array([self.evidence.multipliers[name] for name in names])
        units = np.array([self.units[name] for name in names])
        return ExactNeighbours(self.lowered, mus, units, ROUNDED)

    def search(self) -> Candidate | None:
        """The best policy that was found; None where none could be evaluated."""
        found = self.evaluate(self._columns(), "a column of the program")
        found += self.evaluate(self._rounded(), "rounding")
        found.sort(key=lambda one: one.order)
        for start in found[:STARTS]:
            self._climb(start)
        if self.best is not None and self.best.violation > 0:
            self._seek_feasible()
        return self.best

    def _seek_feasible(self) -> None:
        """Go on where budgets are tight: from what is best for the slacks, then from kicks of the best."""
        random = np.random.default_rng(0)
        for start in self.evaluate(self._for_slacks(random), "local search"):
            if self.best is not None and self.best.violation > 0:
                self._climb(start)
        for _ in range(KICKS):
            if self.best is None or not self.best.violation > 0 or self.left <= 0:
                return
            actions, visited = self.best.actions.copy(), np.flatnonzero(self.best.x.any(axis=1))
            for state in random.choice(visited, min(KICKED, visited.size), replace=False):
                actions[state] = random.choice(np.flatnonzero(self.flow.actions[state]))
            for start in self.evaluate([actions], "local search"):
                self._climb(start)

    def _for_slacks(self, random: np.random.Generator) -> list[np.ndarray]:
        """Best for mixtures of the slacks, each in its unit."""
        slopes = [g.gradient(self.x) / self.units[name] for name, g in self.lowered.slacks.items()]
        mixtures = [*np.eye(len(slopes)), *random.dirichlet(np.ones(len(slopes)), MIXTURES)]
        found = []
        for mixture in mixtures:
            reward = np.tensordot(mixture, np.nan_to_num(slopes), axes=1)
            try:
                found.append(self.flow.best_values(np.where(self.flow.usable, reward, 0.0))[1])
            except ModelError:
                continue
        return found

    def evaluate(self, policies: Iterable[np.ndarray], found_by: str) -> list[Candidate]:
        """New policies, (S,) each, with what they are worth; those that never end are left out."""
        fresh = []
        for actions in policies:
            key = actions.tobytes()
            if key not in self.seen:
                self.seen.add(key)
                fresh.append(actions)
        candidates = [
            self._measure(a, x, found_by) for a, x in zip(fresh, self._visits(fresh), strict=True)
        ]
        known = [one for one in candidates if not math.isnan(one.violation)]
        for one in known:
            if self.best is None or one.order < self.best.order:
                self.best = one
        return known

    def _visits(self, policies: list[np.ndarray]) -> list[np.ndarray]:
        """Occupancies, NaN where a policy has none."""
        if not policies:
            return []
        tables = np.eye(self.flow.shape[1])[np.array(policies)]
        try:
            return list(self.flow.occupancies(tables))
        except (ModelError, np.linalg.LinAlgError):
            return [self._visits_of(table) for table in tables]

    def _visits_of(self, table: np.ndarray) -> np.ndarray:
        try:
            return self.flow.occupancy(table)
        except (ModelError, np.linalg.LinAlgError):
            return np.full(self.flow.shape, math.nan)

    def _measure(self, actions: np.ndarray, x: np.ndarray, found_by: str) -> Candidate:
        if not np.isfinite(x).all():
            return Candidate(actions, x, math.nan, math.nan, found_by)
        violation = 0.0
        for name, g in self.lowered.slacks.items():
            missed = -float(g.value(x)) / self.units[name]
            violation += missed if missed > ROUNDED else 0.0
        objective = float(self.lowered.objective.value(x))
        return Candidate(actions, x, violation, objective, found_by)

    def _columns(self) -> list[np.ndarray]:
        """Best for the Lagrangian's tangent, with multipliers of several sizes."""
        found = []
        for weight in WEIGHTS:
            scaled = {name: weight * mu for name, mu in self.evidence.multipliers.items()}
            reward, _ = self.lowered.lagrangian_tangent(scaled, self.evidence.tangents)
            try:
                found.append(self.flow.best_values(reward)[1])
            except ModelError:  # staying for ever would be free
                continue
        return found

    def _rounded(self) -> list[np.ndarray]:
        """The optimum's most frequent actions, and other ways to decide where it randomises most."""
        first = self.x.argmax(axis=1)
        first = np.where(self.x.any(axis=1), first, self.flow.deterministic.argmax(axis=1))
        second = np.where(np.eye(self.flow.shape[1], dtype=bool)[first], -1.0, self.x)
        most = second.max(axis=1)
        open_states = np.argsort(-most)[:RANDOMISED]
        open_states = open_states[most[open_states] > 1e-9 * self.x.max()]
        found = []
        for chosen in itertools.product((False, True), repeat=open_states.size):
            actions = first.copy()
            flipped = open_states[np.array(chosen, dtype=bool)]
            actions[flipped] = second.argmax(axis=1)[flipped]
            found.append(actions)
        return found

    def _climb(self, here: Candidate) -> None:
        """Local search from a policy until neither one change nor two make it better."""
        while True:
            step = self._step(here)
            if not step.order < here.order:
                return
            here = step

    def _step(self, here: Candidate) -> Candidate:
        """A better policy nearby, or this one."""
        table = np.eye(self.flow.shape[1])[here.actions]
        matrices = None if self.neighbours is None else self.flow.visits_matrices(table)
        if self.neighbours is not None and matrices is not None:
            change = self.neighbours.best(here.actions, matrices, np.array(WEIGHTS))
            if change is None or not (change.violation, -change.objective) < here.order:
                return here
            found = self.evaluate([_changed(here.actions, *change.places)], "local search")
            return min(found, key=lambda one: one.order, default=here)
        single = [_changed(here.actions, change) for change in self._foremost(here)]
        found = self._tried(single)
        step = min(found, key=lambda one: one.order, default=here)
        return step if step.order < here.order else self._paired(here, found)

    def _paired(self, here: Candidate, singles: list[Candidate]) -> Candidate:
        """Two changes at once: one that gains with one that saves, or any of the least bad."""
        gains = sorted(singles, key=lambda one: -one.objective)[:PAIRED]
        saves = sorted(singles, key=lambda one: one.order)[:PAIRED]
        both = [
            np.where(one.actions != here.actions, one.actions, other.actions)
            for one, other in itertools.product(gains, saves)
        ]
        found = self._tried(both)
        return min(found, key=lambda one: one.order, default=here)

    def _tried(self, policies: list[np.ndarray]) -> list[Candidate]:
        """As many as are left to try."""
        chosen = policies[: max(self.left, 0)]
        self.left -= len(chosen)
        return self.evaluate(chosen, "local search")

    def _foremost(self, here: Candidate) -> list[tuple[int, int]]:
        """Changes (state, action) that gain most to first order, for several weights of the constraints."""
        table = np.eye(self.flow.shape[1])[here.actions]
        gradients = {name: g.gradient(here.x) for name, g in self.lowered.slacks.items()}
        objective = np.nan_to_num(self.lowered.objective.gradient(here.x))
        mus = self.evidence.multipliers
        rewards = [
            objective + sum(weight * mus[name] * slope for name, slope in gradients.items())
            for weight in (WEIGHTS[:1] if not gradients else WEIGHTS)
        ]
        rewards += [slope / self.units[name] for name, slope in gradients.items()]
        found: dict[tuple[int, int], None] = {}
        for reward in rewards:
            inside = np.where(self.flow.usable, reward, 0.0)
            values = self.flow.values(table, inside)
            ahead = inside + self.flow.following(values)
            gain = ahead - np.take_along_axis(ahead, here.actions[:, None], axis=1)
            gain = np.where(
                self.flow.usable & (table == 0), gain * here.x.sum(axis=1, keepdims=True), -np.inf
            )
            for place in np.argsort(-gain, axis=None)[:FOREMOST]:
                state, action = np.unravel_index(place, gain.shape)
                if gain[state, action] > -np.inf and here.x[state].sum() > 0:
                    found[int(state), int(action)] = None
        return list(found)


def _size(slack: Shape, x: np.ndarray) -> float:
    """Of the numbers that a slack is made of at an occupancy: what violations are measured by."""
    terms = np.abs(np.nan_to_num(slack.gradient(x))) * x
    return max(abs(float(slack.value(x))), float(terms.sum()), 1e-290)


def _changed(actions: np.ndarray, *changes: tuple[int, int]) -> np.ndarray:
    found = actions.copy()
    for state, action in changes:
        found[state] = action
    return found


class Branched(NamedTuple):
    """What branch and bound said.

    Attributes:
        actions: (S,), or None where it found none in time.
        finished: it is done: ``actions`` are best, or none are feasible.
        bound: what no deterministic policy exceeds, by the solver's word.
    """

    actions: np.ndarray | None
    finished: bool
    bound: float


def branch_and_bound(lowered: Lowered, seconds: float) -> Branched:
    """The best deterministic policy of an affine problem by HiGHS, in at most so many seconds."""
    flow, usable = lowered.flow, lowered.flow.usable
    objective = lowered.objective.affine()
    slacks = [g.affine() for g in lowered.slacks.values()]
    assert objective is not None, "an affine problem"
    states, _ = np.nonzero(usable)
    pairs, rows = states.size, np.flatnonzero(usable.any(axis=1))
    place = np.searchsorted(rows, states)
    most = (
        np.array([_most_visits(lowered, int(state)) for state in rows]) * (1.0 + 1e-9) / flow.mass
    )
    equations, eye = flow.equations(), sp.eye_array(pairs)
    choice = sp.csr_array((np.ones(pairs), (place, np.arange(pairs))), shape=(rows.size, pairs))
    nothing = sp.csr_array((equations.matrix.shape[0], pairs))
    held = [
        LinearConstraint(sp.hstack([equations.matrix, nothing]), equations.right, equations.right),
        LinearConstraint(sp.hstack([eye, sp.diags_array(-most[place])]), -np.inf, 0.0),
        LinearConstraint(sp.hstack([sp.csr_array(choice.shape), choice]), 1.0, 1.0),
    ]
    for slack in slacks:
        assert slack is not None
        row = np.concatenate([slack.reward[usable] * flow.mass, np.zeros(pairs)])
        size = max(float(np.abs(row).max()), 1e-300)
        held.append(LinearConstraint(row / size, -slack.offset / size, np.inf))
    with _muted():
        found = milp(
            np.concatenate([-objective.reward[usable] * flow.mass, np.zeros(pairs)]),
            integrality=np.concatenate([np.zeros(pairs), np.ones(pairs)]),
            bounds=Bounds(0.0, np.concatenate([np.full(pairs, np.inf), np.ones(pairs)])),
            constraints=held,
            options={"time_limit": seconds, "mip_rel_gap": 1e-9},
        )
    finished = found.status in (0, 2)
    known = getattr(found, "mip_dual_bound", None)
    bound = objective.offset - float(known) if known is not None else math.inf
    if found.x is None:
        return Branched(None, finished, -math.inf if found.status == 2 else bound)
    chosen = np.zeros(flow.shape)
    chosen[usable] = found.x[pairs:]
    actions = np.where(chosen.any(axis=1), chosen.argmax(axis=1), flow.deterministic.argmax(axis=1))
    return Branched(actions, finished, bound)


@contextmanager
def _muted() -> Iterator[None]:
    """Without what HiGHS's branch and bound prints from C++ although it is told not to."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _most_visits(lowered: Lowered, state: int) -> float:
    """No policy visits a state more often."""
    reward = np.zeros(lowered.flow.shape)
    reward[state] = 1.0
    values, _ = lowered.flow.best_values(np.where(lowered.flow.usable, reward, 0.0))
    return min(lowered.flow.best_return(reward, values), lowered.flow.mass)
