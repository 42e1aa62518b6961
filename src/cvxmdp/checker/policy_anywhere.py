r"""One policy in every model of a set: what it surely reaches.

With T- V(s) = sum_a pi(a|s) (r(s,a) + gamma min_p p.V) and any V,

    <r, y>  >=  min_rho rho.V - max(0, max_s (V - T- V)(s)) / (1 - gamma)      in every model of the set.

A concave function of the occupancy is bounded from below by *chords* (``ClosedForm.chord``): two such
evaluations enclose each feature u_j that it looks at, and an affine function that is below it at both ends
is below it in between; one more evaluation bounds the sum of them all. Where there are too many features,
the distance of y to the estimate's occupancy is all that is used. V comes with the certificate, or is found
while one is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    EPS,
    AffineBound,
    CertificateError,
    NotKnownError,
    Number,
    largest,
)
from cvxmdp.checker.checked_finite_models import CheckedFiniteModels
from cvxmdp.checker.checked_flow import Visited
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.closed_forms import ClosedForm, PerState
from cvxmdp.checker.exact_models import ExactModels
from cvxmdp.checker.scalars import ScalarKind

MOST_FEATURES = 500  # that are enclosed one by one
Values = Callable[[np.ndarray], np.ndarray]  # rewards per visit (J, S) -> V, (J, S): any, good ones


class CheckedRows(Protocol):
    """A set of distributions for every row."""

    def largest(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """No p of a row's set has a larger p.W: (rows, J) for W = values, floats (outcomes, J).

        Args:
            values: W, one column each.
            wanted: boolean (rows,); the bound of other rows is left at the largest W.
        """


class ModelSet(Protocol):
    """What is known of a set of models: ``CheckedModels`` in floats, ``ExactModels`` in balls.

    Attributes:
        shape: (S, A).
        reached, usable: boolean (S,) and (S, A).
    """

    shape: tuple[int, int]
    reached: np.ndarray
    usable: np.ndarray

    @property
    def scalars(self) -> ScalarKind: ...

    @property
    def rows(self) -> CheckedRows: ...

    @property
    def gamma(self) -> Number: ...

    @property
    def longest(self) -> Number:
        """No occupancy of any model has more mass."""

    def chosen(self, policy: Any) -> np.ndarray:
        """A policy's probabilities, (S, A), refused unless they are some."""

    def near(self, policy: Any) -> Visited:
        """Its occupancy in the estimate, and how far those in other models may be from it."""

    def start(self, values: np.ndarray) -> np.ndarray:
        """The largest rho.W of W = values, floats (S + 1, J): (J,)."""


class PolicyAnywhere:
    """A policy in every model of a set.

    Args:
        models: the set.
        policy: probabilities (S, A).
        values: gives V for rewards per visit of a state; a certificate's, or found on the way.
    """

    def __init__(self, models: ModelSet, policy: Any, values: Values) -> None:
        self.models, self.values, self.scalars = models, values, models.scalars
        self.policy = models.chosen(policy)
        self.taken = (self.policy > 0) & models.usable
        self.played = np.where(self.taken, self.policy, self.scalars.number(0.0)).ravel()
        self.visited = models.near(policy)

    def at_least(self, form: ClosedForm) -> float:
        """What a concave function surely reaches; minus infinity where that is not known."""
        found = [-math.inf]
        with suppress(NotKnownError):
            found.append(self.affine_at_least(form.chord(self)))
        if form.drifts:
            x, error = self.visited.x, self.visited.error
            value = form.value(x)
            if self.scalars.finite(value):
                found.append(self.scalars.at_least(value - form.drift(x, error)))
        return max(one for one in found if not math.isnan(one))

    def at_most(self, form: ClosedForm) -> float:
        """What an affine function surely does not exceed; infinity for others."""
        parameters = form.flat_parameters
        if parameters is None:
            return math.inf
        above = form.tangent(parameters)
        below = above._replace(reward=-above.reward, constant=-above.constant)
        return -self.affine_at_least(below)

    def affine_at_least(self, bound: AffineBound) -> float:
        """<reward, y> + constant, in every model."""
        of = self.scalars
        shown = np.where(self.taken, bound.reward, of.number(0.0))
        if not of.finite(shown) or not of.finite(bound.constant):
            raise NotKnownError("a signal has no promised bounds where the policy goes")
        gained = (self.policy * shown).sum(axis=1)
        found = self.returns(gained[None, :])[0] + bound.constant
        if not of.exact:
            steep = of.largest(np.where(self.taken, bound.steep, 0.0))
            steep += self.models.shape[1] * of.largest(shown)
            found = found - 16 * of.eps * (bound.size + steep * self.models.longest) - of.tiny
        return of.at_least(found)

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Lower bounds of the returns of rewards per visit, (J, S), (J,)."""
        of, moving = self.scalars, (rewards != 0).any(axis=1)
        found = of.array(np.zeros(len(rewards)))
        if not moving.any():
            return found
        found[moving] = self._at_least(rewards[moving])
        return found

    def _at_least(self, rewards: np.ndarray) -> np.ndarray:
        """The same of rewards of which none is zero everywhere."""
        models, of = self.models, self.scalars
        values = np.asarray(self.values(of.rough(rewards)), dtype=np.float64)
        if values.shape != rewards.shape or not np.isfinite(values).all():
            raise CertificateError("the certificate holds no usable values of its policy")
        last = np.zeros((1, len(rewards)))
        outcomes = np.concatenate([np.where(models.reached, values, 0.0).T, last])
        least = -models.rows.largest(-outcomes, self.taken.ravel())
        after = self.played[:, None] * np.where(self.taken.ravel()[:, None], least, of.number(0.0))
        after = after.reshape(*models.shape, len(rewards)).sum(axis=1)
        left = of.array(outcomes[:-1]) - rewards.T - models.gamma * after
        room = of.nonnegative(of.tops(left[models.reached]))
        start = -models.start(-outcomes)
        if of.exact:
            return np.asarray(start - room * models.longest)
        sizes = np.abs(rewards).max(axis=1) + 2.0 * np.abs(outcomes).max(axis=0)
        room = room + (models.shape[1] + 16) * of.eps * sizes
        return np.asarray(start - room * models.longest * (1 + 8 * of.eps) - 8 * of.eps * sizes)

    @cached_property
    def visits(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the visits of every state, floats (S,) each."""
        of, reached = self.scalars, self.models.reached
        ones = of.array(np.eye(reached.size)[reached])
        low, high = np.zeros(reached.size), np.zeros(reached.size)
        low[reached] = np.maximum(of.rounded_down(self.returns(ones)), 0.0)
        longest = of.at_most(self.models.longest)
        high[reached] = np.minimum(of.rounded_up(-self.returns(-ones)), longest)
        return low, high

    def enclosure(self, inner: AffineMap) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on u = M x + b, (rows,) each, floats as the numbers they are.

        Where every row looks at one state, u is known as well as the visits of that state are: then those are
        enclosed, and else every row by two evaluations of its own.
        """
        of, per_state = self.scalars, self.per_state(inner)
        own = np.diff(per_state.pattern.indptr)
        row, state = np.repeat(np.arange(inner.rows), own), per_state.pattern.indices
        low, high = of.array(np.zeros(inner.rows)), of.array(np.zeros(inner.rows))
        if own.max(initial=0) <= 1:
            _require_few(int(self.models.reached.sum()))
            ends = [per_state.entries * of.array(bound[state]) for bound in self.visits]
            low[row], high[row] = -of.maximum(-ends[0], -ends[1]), of.maximum(*ends)
        else:
            _require_few(int((own > 0).sum()))
            rewards = of.array(np.zeros((inner.rows, self.models.shape[0])))
            rewards[row, state] = per_state.entries
            low, high = self.returns(rewards), -self.returns(-rewards)
            low = np.where((rewards >= 0).all(axis=1), of.nonnegative(low), low)
        off = (inner.terms + 16) * of.eps
        off = off * (np.abs(low) + np.abs(high) + np.abs(inner.offset)) if off else 0.0
        low = of.rounded_down(low + inner.offset - off)
        high = of.rounded_up(high + inner.offset + off)
        low = np.maximum(low, 0.0) if inner.nonnegative else low
        return of.array(low), of.array(np.maximum(high, low))

    def per_state(self, inner: AffineMap) -> PerState:
        """M as a function of the visits of states: x(s,a) = pi(a|s) X(s)."""
        states, actions = self.models.shape
        matrix = inner.matrix
        row = np.repeat(np.arange(inner.rows), np.diff(matrix.indptr))
        used = self.taken.ravel()[matrix.indices]
        row, pair = row[used], matrix.indices[used]
        cells, place = np.unique(row * states + pair // actions, return_inverse=True)
        terms = self.scalars.array(matrix.data[used]) * self.played[pair]
        entries = self.scalars.sums(place, terms, cells.size)
        spots = (np.ones(cells.size), (cells // states, cells % states))
        return PerState(sp.csr_array(spots, shape=(inner.rows, states)), entries)


def _require_few(features: int) -> None:
    if features > MOST_FEATURES:
        raise NotKnownError(f"{features:,} features are too many to be enclosed one by one")


class PolicyOverTime(PolicyAnywhere):
    """The same over a finite number of steps, by a recursion that is run here, backwards, rounding taken off.

    With V_T = 0, V_t(s) = sum_a pi_t(a|s) (r_t(s,a) + gamma min_p p.V_{t+1}) and <r, y> >= min_rho rho.V_0.
    """

    models: CheckedFiniteModels

    def _at_least(self, rewards: np.ndarray) -> np.ndarray:
        models, count = self.models, len(rewards)
        chosen = self.played.reshape(models.steps, models.states, -1)
        gained = rewards.reshape(count, models.steps, models.states)
        values = np.zeros((models.states + 1, count))
        for time in range(models.steps - 1, -1, -1):
            least = -models.rows.largest(-values, (chosen[time] > 0).ravel())
            after = np.einsum("sa,saj->sj", chosen[time], least.reshape(*chosen[time].shape, count))
            sizes = largest(gained[:, time]) + largest(values)
            found = gained[:, time].T + models.discount * after
            values[:-1] = found - (models.shape[1] + 16) * EPS * sizes
        return np.asarray(-models.start(-values))


def policy_in(
    models: CheckedModels | CheckedFiniteModels | ExactModels, policy: Any, values: Values
) -> PolicyAnywhere:
    """A policy in every model of a set, whatever its horizon."""
    kind = PolicyOverTime if isinstance(models, CheckedFiniteModels) else PolicyAnywhere
    return kind(models, policy, values)
