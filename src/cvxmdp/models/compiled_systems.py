r"""The model as compiled code uses it: visits of a policy, and values of a reward.

Both are linear systems with I - gamma P_pi, transposed for the visits. Small models are dense and
factorised once per policy; larger ones stay sparse and are solved by BiCGSTAB without forming P_pi, with
plain sweeps at the end, which shrink whatever is left, also where BiCGSTAB broke down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import lu_factor, lu_solve
from jax.scipy.sparse.linalg import bicgstab

from cvxmdp.base.pytrees import Record
from cvxmdp.models.systems import DENSE_LIMIT
from cvxmdp.models.table import TabularMDP

Array = Any
ROUNDING = (
    1e-13  # change of a plain sweep, relative to the largest number, at which it is the answer
)
MOST_SWEEPS = 20_000  # for BiCGSTAB that broke down; usually a few are enough


# States up to which a factorisation is faster, measured; up to ``fixed_point.DENSE_LIMIT`` of them it also is
# where more than this share of the table is filled.
FEW_STATES, FILLED = 500, 0.05


def dynamics(mdp: TabularMDP) -> DenseDynamics | SparseDynamics:
    """The model for compiled code."""
    if better_factorised(mdp):
        return DenseDynamics(mdp.dense_transition(), mdp.initial, mdp.discount, mdp.actions)
    rows = np.repeat(np.arange(mdp.transition.shape[0]), np.diff(mdp.transition.indptr))
    parts = (mdp.transition.data, rows, mdp.transition.indices)
    return SparseDynamics(*parts, mdp.initial, mdp.discount, mdp.actions)


def better_factorised(mdp: TabularMDP) -> bool:
    """Whether dense algebra is faster than iterating on the sparse table."""
    if mdp.n_states <= FEW_STATES:
        return True
    filled = mdp.transition.nnz / (mdp.transition.shape[0] * mdp.n_states)
    return bool(mdp.n_states <= DENSE_LIMIT and filled > FILLED)


@dataclass(frozen=True, eq=False)
class DenseDynamics(Record):
    """P as an (S, A, S) array."""

    transition: Array
    initial: Array
    discount: Array
    actions: Array
    static: ClassVar[tuple[str, ...]] = ()

    def prepare(self, policy: Array) -> Any:
        """Factorise I - gamma P_pi."""
        chain = jnp.einsum("sa,sat->st", policy, self.transition)
        return lu_factor(jnp.eye(chain.shape[0]) - self.discount * chain)

    def visits(self, policy: Array, prepared: Any) -> Array:
        """sum_a x(s, a), shape (S,)."""
        return lu_solve(prepared, jnp.asarray(self.initial), trans=1)

    def values(self, policy: Array, prepared: Any, reward: Array) -> Array:
        """V of the policy with this reward, shape (S,)."""
        return lu_solve(prepared, (policy * reward).sum(axis=1))

    def following(self, values: Array) -> Array:
        """gamma * P V, shape (S, A)."""
        return self.discount * (self.transition @ values)


@dataclass(frozen=True, eq=False)
class SparseDynamics(Record):
    """P as entries (pair, successor, probability), pairs s * A + a in ascending order."""

    probabilities: Array
    pairs: Array
    successors: Array
    initial: Array
    discount: Array
    actions: Array
    static: ClassVar[tuple[str, ...]] = ()

    def prepare(self, policy: Array) -> Any:
        """Nothing: the systems are solved without forming P_pi."""
        return ()

    def _arriving(self, policy: Array, visits: Array) -> Array:
        flow = (visits[:, None] * policy).ravel()[self.pairs] * self.probabilities
        return self.discount * jax.ops.segment_sum(flow, self.successors, self.initial.shape[0])

    def visits(self, policy: Array, prepared: Any) -> Array:
        """sum_a x(s, a), shape (S,)."""
        return _solve(lambda v: self._arriving(policy, v), jnp.asarray(self.initial))

    def values(self, policy: Array, prepared: Any, reward: Array) -> Array:
        """V of the policy with this reward, shape (S,)."""
        gained = (policy * reward).sum(axis=1)
        return _solve(lambda v: (policy * self.following(v)).sum(axis=1), gained)

    def following(self, values: Array) -> Array:
        """gamma * P V, shape (S, A)."""
        terms = self.probabilities * values[self.successors]
        sums = jax.ops.segment_sum(terms, self.pairs, self.actions.size, indices_are_sorted=True)
        return self.discount * sums.reshape(self.actions.shape)


def _solve(step: Any, right: Array) -> Array:
    """v = right + step(v) for a contraction ``step``."""
    found, _ = bicgstab(  # type: ignore[no-untyped-call]
        lambda v: v - step(v), right, x0=right, tol=1e-12, maxiter=400
    )
    found = jnp.where(jnp.isfinite(found).all(), found, right)

    def unsettled(carry: Any) -> Array:
        count, values, change = carry
        return (change > ROUNDING * jnp.abs(values).max()) & (count < MOST_SWEEPS)

    def sweep(carry: Any) -> Any:
        count, values, _ = carry
        following = right + step(values)
        return count + 1, following, jnp.abs(following - values).max()

    return jax.lax.while_loop(unsettled, sweep, (0, found, jnp.asarray(jnp.inf)))[1]
