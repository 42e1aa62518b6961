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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cvxmdp.algorithms.columns.aggregates import Aggregates
from cvxmdp.algorithms.columns.column_places import HostPlace
from cvxmdp.algorithms.columns.flow_duals import Leaf, flat_tangents
from cvxmdp.atoms.maps import Map
from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.blocks import in_blocks
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.systems import largest
from cvxmdp.problems.lowered import Lowered

MEMORY = 10  # pairs of steps and changes of the gradient
MOST_HALVINGS = 20
ENOUGH = 1e-4  # of what the slope promises, that a step has to gain
# Steps in a row, and what they gain of the gap, after which there is little left.
IDLE, HARDLY = 3, 1e-5
# Temperatures: in units of the leaf, of the gap, and of the leaf.
COLDEST, WARMTH, WARMEST = 0.02, 0.5, 0.25
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

    @property
    def free(self) -> Array:
        """The slope, without multipliers of zero that it would make negative."""
        states, xp = self.values.size, namespace(self.slope)
        tail = self.slope[states:]
        kept = xp.where((self.multipliers <= 0) & (tail > 0), 0.0, tail)
        return xp.append(self.slope[:states], kept)


@dataclass(frozen=True, eq=False)
class DualTerms(Pytree):
    """What the dual is made of, as numbers: c H + <r, x> under sum mu_i g_i, up to constants.

    Attributes:
        map: of the entropy or kl.
        reward: r, (S, A); minus infinity for pairs that cannot be taken.
        slacks, offsets: of the constraints, (S, A) each and (n,).
        logs: log weights of the leaf's rows, (rows,).
        anchor: rho, (S,).
        constant: of all functions.
        factor: c.
        endless: no episode ends.
    """

    map: Map
    reward: Array
    slacks: list[Array]
    offsets: Array
    logs: Array
    anchor: Array
    constant: Array
    factor: Array
    endless: bool
    static: ClassVar[tuple[str, ...]] = ("endless",)

    def at(
        self,
        smoothing: tuple[Array, Array],
        values: Array,
        multipliers: Array,
        following: Array,
        residual: Callable[[Array], Array],
    ) -> DualPoint:
        """The dual somewhere.

        Args:
            smoothing: logarithms of the policy that is smoothed around, (S, A), and the temperature.
            values, multipliers: where, (S,) and (n,).
            following: gamma P V, (S, A).
            residual: gives what the flow equations miss at some x.
        """
        xp, prior = namespace(values), smoothing[0]
        given = smoothing, values, multipliers, following
        cover, policy = self._in_blocks(*given) if xp is np else self._covered(*given)
        logs = self.logs + cover / self.factor
        highest = logs.max()
        shares = xp.exp(logs - highest)
        if self.endless:  # the best constant in V makes the shares sum to one
            mass = shares.sum()
            shares /= mass
            gained = self.factor * (1.0 + highest + xp.log(mass))
        else:
            shares *= xp.exp(xp.minimum(highest, HIGHEST))
            gained = self.factor * shares.sum()
        x = self.map.among(shares, policy)
        # Pairs have rows of their own, and shares of one in them: x says what is taken.
        if self.map.needs_pairs:
            visits = x.sum(axis=1, keepdims=True)
            policy = xp.where(visits > 0, x / xp.where(visits > 0, visits, 1.0), xp.exp(prior))
        linear = dot(self.anchor, values) + (multipliers * self.offsets).sum()
        prices = [xp.einsum("sa,sa->", reward, x) for reward in self.slacks]
        slope = xp.append(-residual(x), xp.asarray(prices) + self.offsets)
        value = self.constant + gained + linear
        return DualPoint(values, multipliers, value, slope, following, policy)

    def _covered(
        self,
        smoothing: tuple[Array, Array],
        values: Array,
        multipliers: Array,
        following: Array,
        rows: slice = slice(None),
    ) -> tuple[Array, Array]:
        """The smoothed largest excess of some states, and the policy that has it."""
        excess = self.reward[rows] + following[rows]
        for mu, reward in zip(multipliers, self.slacks, strict=True):
            excess += mu * reward[rows]
        excess -= values[rows, None]
        covered = self.map.softly(excess, smoothing[0][rows], self.factor * smoothing[1])
        assert covered is not None
        return covered

    def _in_blocks(
        self,
        smoothing: tuple[Array, Array],
        values: Array,
        multipliers: Array,
        following: Array,
    ) -> tuple[Array, Array]:
        """The same of all states."""
        states = len(following)
        each = self.map.rows // states  # of the leaf's rows, for a state
        cover, policy = np.empty(self.map.rows), np.empty(following.shape)

        def block(begin: int, end: int) -> None:
            found = self._covered(smoothing, values, multipliers, following, slice(begin, end))
            cover[begin * each : end * each], policy[begin:end] = found

        in_blocks(block, states)
        return cover, policy


def terms_of(lowered: Lowered, leaf: Leaf) -> tuple[DualTerms, np.ndarray]:
    """The dual of a problem whose only curved part is an entropy or kl in the objective, and its units.

    Multipliers are counted in units, (n,), in which they are as steep as the leaf.
    """
    model, map, factor = lowered.flow, leaf.shape.maps()[0], abs(leaf.factor)
    somewhere = lowered.tangents_at(np.zeros(model.shape))  # the others are affine
    flat, replaced = flat_tangents(lowered, leaf, somewhere)
    none = dict.fromkeys(lowered.slacks, 0.0)
    reward, constant = lowered.lagrangian_tangent(none, replaced)
    affine = [slack.affine() for slack in lowered.slacks.values()]
    slacks = [part for part in affine if part is not None]
    steep = factor * largest(map.pull_back(np.ones(map.rows)))
    steepest = [largest(part.reward[model.usable]) for part in slacks]
    units = np.array([steep / size if size > 0 else 1.0 for size in steepest])
    logs = np.where(leaf.live, leaf.log_weights + flat, -np.inf)
    terms = DualTerms(
        map,
        # Pairs that cannot be taken have no part in the largest.
        np.where(model.actions, reward, -np.inf),
        [unit * part.reward for unit, part in zip(units, slacks, strict=True)],
        units * np.array([part.offset for part in slacks]),
        logs,
        -model.residual(np.zeros(model.shape)),
        constant - factor * float(np.exp(logs).sum()),
        factor,
        model.endless,
    )
    return terms, units


class SmoothedDual:
    """The smoothed dual, and where its descents are.

    Args:
        terms: what it is made of.
        units: of multipliers, (n,).
        place: where backups are computed, and so where everything of the size of the model is.
        aggregates: of the model's states.
    """

    def __init__(
        self, terms: DualTerms, units: np.ndarray, place: HostPlace, aggregates: Aggregates
    ) -> None:
        self.model, self.place = place.oracle.model, place
        self.units, self.factor, put = units, terms.factor, place.put
        large = {"reward": put(terms.reward), "slacks": [*map(put, terms.slacks)]}
        self.terms = replace(terms, **large, logs=put(terms.logs), anchor=put(terms.anchor))
        self.values, self.multipliers = np.zeros(self.model.shape[0]), np.zeros(units.size)
        self.steps: Any = []
        self.changes: Any = []
        self.evaluations, self.temperature = 0, WARMEST
        self.prior = np.zeros(self.model.shape)
        self.aggregates = aggregates

    def at(self, values: np.ndarray, multipliers: np.ndarray) -> DualPoint:
        """Value and slope: one backup, and one of what it says of visits."""
        self.evaluations += 1
        following, residual = self.place.following(values), self.place.residual
        smoothing = self.prior, self.temperature
        return self.terms.at(smoothing, values, multipliers, following, residual)

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
            self.prior = prior
            found = self._descended(prior, gap, evaluations)
            return found._replace(
                values=np.asarray(found.values),
                multipliers=self.units * found.multipliers,
                following=np.asarray(found.following),
                policy=np.asarray(found.policy),
            )

    def _descended(self, prior: np.ndarray, gap: float, evaluations: int) -> DualPoint:
        put = self.place.put
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
        slope = here.free
        direction = two_loops(self.steps, self.changes, slope, self.aggregates)
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


def two_loops(
    steps: list[np.ndarray], changes: list[np.ndarray], slope: np.ndarray, aggregates: Aggregates
) -> np.ndarray:
    """The inverse Hessian that the last pairs suggest, times the slope (Nocedal, 1980)."""
    direction, weights = slope.copy(), []
    for step, change in zip(reversed(steps), reversed(changes), strict=True):
        weight = dot(step, direction) / dot(step, change)
        direction -= weight * change
        weights.append(weight)
    direction = aggregates.applied(direction)
    if steps:
        last = changes[-1]
        direction *= dot(steps[-1], last) / dot(last, aggregates.applied(last))
    for step, change in zip(steps, changes, strict=True):
        weight = weights.pop()
        direction += (weight - dot(change, direction) / dot(step, change)) * step
    return direction


def can_be_smoothed(lowered: Lowered, leaf: Leaf) -> bool:
    """Whether there is one: not for an entropy in a constraint, nor for one over time."""
    zero = np.zeros(lowered.flow.shape)
    return leaf.constraint is None and leaf.shape.maps()[0].softly(zero, zero, 1.0) is not None
