r"""What an actor-critic reads of every step: the few numbers that objective and constraints are made of.

Functions of occupancies look at them through linear maps, u = M x. The rows of all maps together, rewards R of
shape (C, R, A), make one *channel* each: a step yields z_t = R(o_t, a_t), and everything is a function of

    m = E sum_t discount^t z_t = R x.

With R^+ the pseudo-inverse, x = R^+ m is as good an occupancy as the true one to every function, and the
gradients G of the functions there give the *shadow weights* D = G R^+, for which D R = G: what a little more of
each channel is worth. A critic of the channels never grows stale when m or the multipliers move. Where there
are too many channels, m is x itself and each function has a single channel, its own gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse as sp

from cvxmdp.atoms import Shape, walk
from cvxmdp.base.pytrees import Pytree

Array = Any
MOST_CHANNELS = 512
MOST_ENTRIES = 20_000_000  # of the channels' rewards
ROUNDING = 1e-10


class LaneSteps(NamedTuple):
    """T steps of N lanes.

    Attributes:
        inputs: what the networks see: numbers of states (T, N), or observations (T, N, ...).
        after: the same of what followed, before another episode began.
        masks: the available actions, boolean (T, N, A); None where all are, or states tell.
        actions: (T, N), or (T, N, d).
        places: numbers of states or bins, (T, N), or features, (T, N, F); None where no function asks.
        signals: (T, N, K).
        ages: steps of the episode before this one, (T, N).
        counted: 1 where the step is measured, 0 in episodes that were begun out of step, (T, N).
        played: 1 where a step was taken, 0 where a lane only waited for its next episode, (T, N).
        ended, over: whether the episode ended with the step, and whether it ended or was cut, (T, N).
    """

    inputs: Array
    after: Array
    masks: Array
    actions: Array
    places: Array
    signals: Array
    ages: Array
    counted: Array
    played: Array
    ended: Array
    over: Array

    @property
    def columns(self) -> Array:
        """Numbers of the actions, (T, N); vectors of numbers all count as the first."""
        return self.actions if self.actions.ndim == 2 else jnp.zeros(self.ages.shape, jnp.int32)

    def along(self, rewards: Array) -> Array:
        """Rewards (C, R, A) along the steps: (T, N, C)."""
        size = rewards.shape[1] - self.signals.shape[-1]
        # Which action had a signal does not matter: its coefficients are the same for all.
        found = self.signals @ rewards[:, size:, 0].T
        if self.places is None:
            return found
        if self.places.ndim == 3:
            taken = _one_hot(self.columns, rewards.shape[2])
            return found + jnp.einsum("tnf,tna,cfa->tnc", self.places, taken, rewards[:, :size])
        flat = rewards.reshape(rewards.shape[0], -1).T
        return found + flat[self.places * rewards.shape[2] + self.columns]

    def spread(self, weights: Array, shape: tuple[int, int]) -> Array:
        """Weights (T, N) times what was seen, added up on the pairs they belong to: (R, A)."""
        size = shape[0] - self.signals.shape[-1]
        below = jnp.zeros((shape[0] - size, shape[1]))
        below = below.at[:, 0].set(jnp.einsum("tn,tnk->k", weights, self.signals))
        if self.places is None:
            return jnp.concatenate([jnp.zeros((size, shape[1])), below])
        if self.places.ndim == 3:
            taken = _one_hot(self.columns, shape[1])
            return jnp.concatenate(
                [jnp.einsum("tn,tnf,tna->fa", weights, self.places, taken), below]
            )
        pairs = (self.places * shape[1] + self.columns).ravel()
        above = jnp.zeros(size * shape[1]).at[pairs].add(weights.ravel())
        return jnp.concatenate([above.reshape(size, shape[1]), below])


def _one_hot(actions: Array, count: int) -> Array:
    return (actions[..., None] == jnp.arange(count)).astype(jnp.float32)


@dataclass(frozen=True, eq=False)
class Readings(Pytree):
    """Functions of m, and how steps are read.

    Attributes:
        functions: f and g_i, concave, defined everywhere.
        rewards: R, (C, R, A); None where m is x and every function is read by its gradient.
        lift: R^+, (R * A, C), or None.
        shape: (R, A), of x.
        features: whether any function looks at states or features, not at signals alone.
    """

    functions: tuple[Shape, ...]
    rewards: Array
    lift: Array
    shape: tuple[int, int]
    features: bool
    static: ClassVar[tuple[str, ...]] = ("shape", "features")

    @property
    def size(self) -> int:
        """Of m."""
        return self.shape[0] * self.shape[1] if self.rewards is None else int(self.lift.shape[1])

    @property
    def channels(self) -> int:
        """Of the critic."""
        return len(self.functions) if self.rewards is None else self.size

    def values(self, m: Array) -> Array:
        """f and g_i at m, (1 + n,)."""
        x = self.occupancy(m)
        return jnp.stack([jnp.asarray(one.value(x), m.dtype).reshape(()) for one in self.functions])

    def shadow(self, m: Array) -> tuple[Array, Array]:
        """The rewards to read steps by, (C, R, A), and the weights of the channels, D, (1 + n, C)."""
        x = self.occupancy(m)
        slopes = jnp.stack([jnp.broadcast_to(one.gradient(x), x.shape) for one in self.functions])
        if self.rewards is None:
            return slopes, jnp.eye(len(self.functions))
        return self.rewards, slopes.reshape(len(slopes), -1) @ self.lift

    def inside(self, m: Array) -> Array:
        """What stands under logarithms and powers at m, (L,): their domains begin at zero."""
        x = self.occupancy(m)
        found = [
            inside.value(x)
            for function in self.functions
            for step in walk(function)
            for inside in step.node.positive()
        ]
        return jnp.asarray(found, m.dtype).reshape(-1)

    def loosened(self, floors: Array) -> Readings:
        """With logarithms and powers that go on along their tangents below these floors, (L,)."""
        left = iter(floors)
        return replace(self, functions=tuple(_floored(one, left) for one in self.functions))

    def sloped(self, m: Array) -> Array:
        """What the functions' tangents at m say of m without their constants, (1 + n,)."""
        rewards, weights = self.shadow(m)
        if self.rewards is None:
            return rewards.reshape(len(rewards), -1) @ m
        return weights @ m

    def added(self, steps: LaneSteps, weights: Array, z: Array) -> Array:
        """The weighted sum of what was seen, as m counts it."""
        if self.rewards is None:
            return steps.spread(weights, self.shape).ravel()
        return jnp.einsum("tn,tnc->c", weights, z)

    def occupancy(self, m: Array) -> Array:
        """An occupancy that is as good as the true one to every function."""
        return (m if self.rewards is None else self.lift @ m).reshape(self.shape)


def readings_of(functions: Sequence[Shape], shape: tuple[int, int], signals: int) -> Readings:
    """How these functions of occupancies (R, A) are read, of which the last rows belong to signals."""
    matrix = _looked_at(functions, shape)
    above = (shape[0] - signals) * shape[1]
    features = bool(abs(matrix[:, :above]).sum() > 0)
    known = tuple(function.extended() for function in functions)
    rows, width = matrix.shape
    if rows > MOST_CHANNELS or rows * width > MOST_ENTRIES:
        return Readings(known, None, None, shape, features)
    dense = matrix.toarray()
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    unit = dense / lengths
    lift = (unit.T @ scipy.linalg.pinvh(unit @ unit.T, rtol=ROUNDING)) / lengths.T
    return Readings(known, dense.reshape(-1, *shape), lift, shape, features)


def _floored(function: Shape, floors: Iterator[Array]) -> Shape:
    """The function with the next floors, one for each that has something that must be positive."""
    if function.positive():
        function = function.floored(next(floors))
    return function.with_children([_floored(part, floors) for part in function.children()])


def _looked_at(functions: Sequence[Shape], shape: tuple[int, int]) -> sp.csr_array:
    """All that the functions look at, one row each, (C, R * A); at least one row, none of zeros, none twice."""
    rows: list[Any] = [sp.csr_array((0, shape[0] * shape[1]))]
    for function in functions:
        for step in walk(function):
            affine = step.node.affine()
            if affine is not None and not step.node.children():
                rows.append(sp.csr_array(np.asarray(affine.reward).reshape(1, -1)))
            rows += [sp.csr_array(map.to_sparse()) for map in step.node.maps()]
    stacked = sp.csr_array(sp.vstack(rows))
    stacked = stacked[np.flatnonzero(abs(stacked).sum(axis=1) > 0)]
    if stacked.shape[0] > MOST_CHANNELS or not stacked.shape[0]:
        return stacked if stacked.shape[0] else sp.csr_array(np.eye(1, shape[0] * shape[1]))
    pieces = [slice(*ends) for ends in zip(stacked.indptr, stacked.indptr[1:], strict=False)]
    seen = {
        (stacked.indices[piece].tobytes(), stacked.data[piece].tobytes()): row
        for row, piece in enumerate(pieces)
    }
    return stacked[sorted(seen.values())]
