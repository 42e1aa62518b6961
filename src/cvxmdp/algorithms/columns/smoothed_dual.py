r"""Values and multipliers whose bound is best: the dual of entropies and kl, smoothed, by quasi-Newton steps.

``flow_duals`` has the bound that any V and mu give: with e(s) = max_a [r_mu + gamma P V](s,a) - V(s) it is, up
to constants, <rho, V> + c sum_s exp(e(s) / (c scale) - 1), jointly convex. Nothing needs a linear system to be
solved: a step costs one backup and one transposed one, where the values of a policy cost hundreds on slowly
mixing models. The largest over actions is smoothed, around a policy pi (a proximal point: pi is the one of the
best mixture so far),

    max_a c(a)   ->   t log sum_a pi(a) exp(c(a) / t),

so that the gradient exists: what the flow equations miss at x(s,a) = q(s) pi'(a|s), pi' ~ pi exp(c / t). L-BFGS
(Nocedal, 1980) follows it. Where it vanishes x is an occupancy, and pi' the best policy of the smoothed
problem: that is the next column. The bound of the certificate is computed with the largest itself.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.algorithms.columns.column_places import HostPlace
from cvxmdp.algorithms.columns.flow_duals import Leaf, flat_tangents
from cvxmdp.atoms.shapes import Affine
from cvxmdp.base.arrays import namespace
from cvxmdp.models.systems import largest
from cvxmdp.problems.lowered import Lowered

MEMORY = 10  # pairs of steps and changes of the gradient
MOST_HALVINGS = 20
ENOUGH = 1e-4  # of what the slope promises, that a step has to gain
IDLE, HARDLY = (
    3,
    1e-5,
)  # steps in a row, and what they gain of the gap, after which there is little left
COLDEST, WARMTH, WARMEST = (
    0.02,
    0.5,
    0.25,
)  # temperatures: in units of the leaf, of the gap, and of the leaf
FIRST_MOVE = 0.1  # largest change of an entry, in units of the temperature, by the first step
CURVED = 1e-10  # relative curvature that a pair has to show
HIGHEST = 600.0  # of an exponent
LEAST_SHARE = 1e-30  # of an action in the policy that is smoothed around


class DualPoint(NamedTuple):
    """The smoothed dual somewhere.

    Attributes:
        values: V, (S,).
        multipliers: (n,), in units of the dual; those that ``descend`` returns are the problem's.
        value: of the smoothed dual.
        slope: its gradient in V and the multipliers, (S + n,).
        following: gamma P V, (S, A).
        policy: the smoothed best actions, (S, A).
    """

    values: np.ndarray
    multipliers: np.ndarray
    value: float
    slope: np.ndarray
    following: np.ndarray
    policy: np.ndarray


class SmoothedDual:
    """The dual of a problem whose only curved part is an entropy or kl in the objective.

    Args:
        lowered: the problem.
        leaf: its entropy or kl.
        place: where backups are computed, and so where everything of the size of the model is.
    """

    def __init__(self, lowered: Lowered, leaf: Leaf, place: HostPlace) -> None:
        self.model, self.place, self.map = lowered.flow, place, leaf.shape.maps()[0]
        self.factor = abs(leaf.factor)
        somewhere = lowered.tangents_at(np.zeros(self.model.shape))  # the others are affine
        flat, replaced = flat_tangents(lowered, leaf, somewhere)
        none = dict.fromkeys(lowered.slacks, 0.0)
        reward, constant = lowered.lagrangian_tangent(none, replaced)
        # Pairs that cannot be taken have no part in the largest.
        self.reward = place.put(np.where(self.model.actions, reward, -np.inf))
        affine = [slack.affine() for slack in lowered.slacks.values()]
        slacks = [part for part in affine if part is not None]
        # Multipliers are counted in units in which they are as steep as the leaf.
        steep = self.factor * largest(self.map.pull_back(np.ones(self.map.rows)))
        steepest = [largest(part.reward[self.model.usable]) for part in slacks]
        self.units = np.array([steep / size if size > 0 else 1.0 for size in steepest])
        self.slacks = [
            Affine(place.put(unit * part.reward), unit * part.offset)
            for unit, part in zip(self.units, slacks, strict=True)
        ]
        logs = np.where(leaf.live, leaf.log_weights + flat, -np.inf)
        self.constant = constant - self.factor * float(np.exp(logs).sum())
        self.logs = place.put(logs)
        self.anchor = place.put(-self.model.residual(np.zeros(self.model.shape)))
        self.values, self.multipliers = np.zeros(self.model.shape[0]), np.zeros(len(slacks))
        self.steps: list[np.ndarray] = []
        self.changes: list[np.ndarray] = []
        self.evaluations, self.temperature = 0, WARMEST
        self.prior = np.zeros(self.model.shape)

    def at(self, values: np.ndarray, multipliers: np.ndarray) -> DualPoint:
        """Value and slope: one backup, and one of what it says of visits."""
        self.evaluations += 1
        xp = namespace(values)
        following = self.place.following(values)
        excess = self.reward + following
        for mu, part in zip(multipliers, self.slacks, strict=True):
            if mu > 0:
                excess += mu * part.reward
        excess -= values[:, None]
        covered = self.map.softly(excess, self.prior, self.factor * self.temperature)
        assert covered is not None
        cover, policy = covered
        logs = self.logs + cover / self.factor
        highest = float(logs.max())
        shares = xp.exp(logs - highest)
        if self.model.endless:  # the best constant in V makes the shares sum to one
            mass = float(shares.sum())
            shares /= mass
            gained = self.factor * (1.0 + highest + math.log(mass))
        else:
            shares *= math.exp(min(highest, HIGHEST))
            gained = self.factor * float(shares.sum())
        x = self.map.among(shares, policy)
        offsets = [part.offset for part in self.slacks]
        linear = float(dot(self.anchor, values)) + float(multipliers @ offsets)
        value = self.constant + gained + linear
        prices = [float(xp.einsum("sa,sa->", part.reward, x)) + part.offset for part in self.slacks]
        slope = xp.append(-self.place.residual(x), xp.asarray(prices))
        return DualPoint(values, multipliers, value, slope, following, policy)

    def descend(self, policy: np.ndarray, gap: float, evaluations: int) -> DualPoint:
        """L-BFGS from where it was, smoothed around a policy.

        Args:
            policy: (S, A).
            gap: between the bounds so far: sets the temperature, and what steps have to gain.
            evaluations: of the dual, about.
        """
        self.temperature = min(max(WARMTH * gap / self.factor, COLDEST), WARMEST)
        with self.place.precision():
            prior = self.place.put(np.log(np.maximum(policy, LEAST_SHARE)))
            found = self._descended(prior, gap, evaluations)
            return found._replace(
                values=np.asarray(found.values),
                multipliers=self.units * found.multipliers,
                following=np.asarray(found.following),
                policy=np.asarray(found.policy),
            )

    def _descended(self, prior: np.ndarray, gap: float, evaluations: int) -> DualPoint:
        self.prior, put = prior, self.place.put
        self.steps, self.changes = [*map(put, self.steps)], [*map(put, self.changes)]
        most, idle = self.evaluations + evaluations, 0
        here = self.at(put(self.values), self.multipliers)
        while self.evaluations < most and idle < IDLE:
            found = self._stepped(here)
            if found is None:
                if not self.steps:
                    break
                self.steps, self.changes = [], []  # another temperature may have made them useless
                continue
            idle = 0 if here.value - found.value > HARDLY * gap else idle + 1
            self._remember(here, found)
            here = found
        self.values, self.multipliers = here.values, here.multipliers
        return here

    def _stepped(self, here: DualPoint) -> DualPoint | None:
        """A step that gains what its slope promises; None where none does."""
        slope = self._free(here.slope, here.multipliers)
        direction = self.place.directed(two_loops, self.steps, self.changes, slope)
        promised = float(dot(direction, slope))
        if not promised > 0:
            return None
        length, states = 1.0, here.values.size
        if not self.steps:
            size = float(abs(direction).max())
            length = FIRST_MOVE * self.factor * self.temperature / size if size > 0 else 1.0
        for _ in range(MOST_HALVINGS):
            moved = np.maximum(here.multipliers - length * np.asarray(direction[states:]), 0.0)
            there = self.at(here.values - length * direction[:states], moved)
            if there.value <= here.value - ENOUGH * length * promised:
                return there
            length *= 0.5
        return None

    @staticmethod
    def _free(slope: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """The slope, without multipliers of zero that it would make negative."""
        states, xp = slope.size - multipliers.size, namespace(slope)
        tail = np.asarray(slope[states:])
        kept = np.where((multipliers <= 0) & (tail > 0), 0.0, tail)
        free: np.ndarray = xp.append(slope[:states], kept)
        return free

    def _remember(self, here: DualPoint, there: DualPoint) -> None:
        moved = there.multipliers - here.multipliers
        step = namespace(here.values).append(there.values - here.values, moved)
        change = there.slope - here.slope
        if dot(step, change) <= CURVED * math.sqrt(dot(step, step) * dot(change, change)):
            return
        self.steps = [*self.steps[1 - MEMORY :], step]
        self.changes = [*self.changes[1 - MEMORY :], change]


def dot(a: np.ndarray, b: np.ndarray) -> Any:
    """The inner product, wherever the arrays are."""
    return namespace(a).einsum("i,i->", a, b)


def two_loops(steps: list[np.ndarray], changes: list[np.ndarray], slope: np.ndarray) -> np.ndarray:
    """The inverse Hessian that the last pairs suggest, times the slope (Nocedal, 1980)."""
    direction, weights = slope.copy(), []
    for step, change in zip(reversed(steps), reversed(changes), strict=True):
        weight = dot(step, direction) / dot(step, change)
        direction -= weight * change
        weights.append(weight)
    if steps:
        last = changes[-1]
        direction *= dot(steps[-1], last) / dot(last, last)
    for step, change in zip(steps, changes, strict=True):
        weight = weights.pop()
        direction += (weight - dot(change, direction) / dot(step, change)) * step
    return direction


def smoothed_dual(lowered: Lowered, leaf: Leaf, place: HostPlace) -> SmoothedDual | None:
    """The smoothed dual of a problem; None where it has none."""
    return SmoothedDual(lowered, leaf, place) if can_be_smoothed(lowered, leaf) else None


def can_be_smoothed(lowered: Lowered, leaf: Leaf) -> bool:
    """Whether there is one: not for an entropy in a constraint, nor for one over time."""
    zero = np.zeros(lowered.flow.shape)
    return leaf.constraint is None and leaf.shape.maps()[0].softly(zero, zero, 1.0) is not None
