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
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    EPS,
    UNDERFLOW,
    AffineBound,
    CertificateError,
    NotKnownError,
    largest,
)
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.closed_forms import ClosedForm

MOST_FEATURES = 500  # that are enclosed one by one
Values = Callable[[np.ndarray], np.ndarray]  # rewards per visit (J, S) -> V, (J, S): any, good ones


class PolicyAnywhere:
    """A policy in every model of a set.

    Args:
        models: the set.
        policy: probabilities (S, A).
        values: gives V for rewards per visit of a state; a certificate's, or found on the way.
    """

    def __init__(self, models: CheckedModels, policy: Any, values: Values) -> None:
        self.models, self.values = models, values
        self.policy = models.read_policy(policy)
        self.taken = (self.policy > 0) & models.usable
        self.visited = models.visited(self.policy)

    def at_least(self, form: ClosedForm) -> float:
        """What a concave function surely reaches; minus infinity where that is not known."""
        found = [-math.inf]
        with suppress(NotKnownError):
            found.append(self.affine_at_least(form.chord(self)))
        if form.drifts:
            x, error, _ = self.visited
            value = form.value(x)
            if math.isfinite(value):
                found.append(value - form.drift(x, error))
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
        shown = np.where(self.taken, bound.reward, 0.0)
        if not np.isfinite(shown).all() or not math.isfinite(bound.constant):
            raise NotKnownError("a signal has no promised bounds where the policy goes")
        gained = (self.policy * shown).sum(axis=1)
        steep = largest(np.where(self.taken, bound.steep, 0.0))
        steep += self.models.shape[1] * largest(shown)
        lost = 16 * EPS * (bound.size + steep * self.models.longest) + UNDERFLOW
        return float(self.returns(gained[None, :])[0]) + bound.constant - lost

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Lower bounds of the returns of rewards per visit, (J, S), (J,)."""
        models, moving = self.models, np.flatnonzero(rewards.any(axis=1))
        found = np.zeros(len(rewards))
        if not moving.size:
            return found
        rewards = rewards[moving]
        values = np.asarray(self.values(rewards), dtype=np.float64)
        if values.shape != rewards.shape or not np.isfinite(values).all():
            raise CertificateError("the certificate holds no usable values of its policy")
        last = np.zeros((1, moving.size))
        outcomes = np.concatenate([np.where(models.reached, values, 0.0).T, last])
        least = -models.rows.largest(-outcomes, self.taken.ravel())
        played = np.where(self.taken, self.policy, 0.0)
        after = np.einsum("sa,saj->sj", played, least.reshape(*models.shape, moving.size))
        left = (outcomes[:-1] - rewards.T - models.discount * after)[models.reached].max(axis=0)
        sizes = np.abs(rewards).max(axis=1) + 2.0 * np.abs(outcomes).max(axis=0)
        room = np.maximum(left, 0.0) + (models.shape[1] + 16) * EPS * sizes
        start = -models.start(-outcomes)
        found[moving] = start - room * models.longest * (1 + 8 * EPS) - 8 * EPS * sizes
        return found

    @cached_property
    def visits(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the visits of every state, (S,) each."""
        states, reached = self.models.shape[0], self.models.reached
        ones = np.eye(states)[reached]
        low, high = np.zeros(states), np.zeros(states)
        low[reached] = np.maximum(self.returns(ones), 0.0)
        high[reached] = np.minimum(-self.returns(-ones), self.models.longest)
        return low, high

    def enclosure(self, inner: AffineMap) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on u = M x + b, (rows,) each.

        Where every row looks at one state, u is known as well as the visits of that state are: then those are
        enclosed, and else every row by two evaluations of its own.
        """
        per_state = self.per_state(inner)
        own = np.diff(per_state.indptr)
        if own.max(initial=0) <= 1:
            _require_few(int(self.models.reached.sum()))
            ends = [np.asarray(per_state @ bound) for bound in self.visits]
            low, high = np.minimum(*ends), np.maximum(*ends)
        else:
            _require_few(int((own > 0).sum()))
            rewards = per_state.toarray()
            low, high = self.returns(rewards), -self.returns(-rewards)
            low = np.where((rewards >= 0).all(axis=1), np.maximum(low, 0.0), low)
        off = (inner.terms + 16) * EPS * (np.abs(low) + np.abs(high) + np.abs(inner.offset))
        low, high = low + inner.offset - off, high + inner.offset + off
        return (np.maximum(low, 0.0) if inner.nonnegative else low), np.maximum(high, low)

    def per_state(self, inner: AffineMap) -> sp.csr_array:
        """M as a function of the visits of states, (rows, S): x(s,a) = pi(a|s) X(s)."""
        states, actions = self.models.shape
        pairs = np.arange(states * actions)
        played = np.where(self.taken, self.policy, 0.0).ravel()
        spread = sp.csr_array((played, (pairs, pairs // actions)), shape=(pairs.size, states))
        found = sp.csr_array(inner.matrix @ spread)
        found.eliminate_zeros()
        return found


def _require_few(features: int) -> None:
    if features > MOST_FEATURES:
        raise NotKnownError(f"{features:,} features are too many to be enclosed one by one")
