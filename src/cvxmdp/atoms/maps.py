"""Linear maps of the occupancy: what a shape looks at, u = M x.

``apply`` and ``pull_back`` (the transpose) are structured, for loops: NumPy in, NumPy out; JAX in, traceable.
``to_sparse`` is the same map as one matrix over x flattened row by row, for files and conic programs. The image
u is flat, (rows,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.systems import row_maxima


class Map(Pytree):
    """A linear map of (S, A) arrays to vectors."""

    shape: tuple[int, int]  # of x
    static: ClassVar[tuple[str, ...]] = ("shape",)

    @property
    def rows(self) -> int:
        return math.prod(self.shape)

    def apply(self, x: Array) -> Array:
        """U = M x."""
        raise NotImplementedError

    def pull_back(self, u: Array) -> Array:
        """M'u, shape (S, A)."""
        raise NotImplementedError

    def to_sparse(self) -> sp.csr_array:
        """The matrix, (rows, S * A)."""
        raise NotImplementedError

    def singular(self) -> tuple[float, float]:
        """The largest singular value, and the least: zero where a direction of x is lost."""
        raise NotImplementedError

    def column_norms(self) -> tuple[float, float]:
        """How far a unit step in one entry of x moves u at most: |.|_1 and |.|_2."""
        matrix = abs(self.to_sparse())
        longest = float(matrix.power(2).sum(axis=0).max(initial=0.0))
        return float(matrix.sum(axis=0).max(initial=0.0)), math.sqrt(longest)

    def live(self, pairs: np.ndarray) -> np.ndarray:
        """Boolean (rows,): rows that look at one of these pairs, boolean (S, A)."""
        return np.asarray(abs(self.to_sparse()) @ pairs.ravel().astype(np.float64) > 0)

    def covering(self, reward: np.ndarray) -> np.ndarray | None:
        """The least u with M'u >= reward, (S, A), where that is the same in every entry; else None."""
        return None

    def softly(
        self, reward: np.ndarray, logs: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """A smooth ``covering``, and how pairs share in its rows, (S, A); None where there is none.

        Args:
            reward: (S, A); minus infinity for pairs that take no part.
            logs: of shares that pairs have at reward zero, (S, A).
            temperature: in units of u: the smaller, the closer.
        """
        return None

    def among(self, u: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """The x with the image u in which pairs have these shares of their rows, where ``softly`` is known."""
        raise NotImplementedError

    def of_groups(self, count: int) -> Map:
        """The same of so many groups of states, where ``softly`` is known."""
        raise NotImplementedError

    def towards(self, u: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """An array like x with the image u, (S, A); None where there is no closed form of it."""
        return None

    @property
    def needs_pairs(self) -> bool:
        """False where sums over actions are enough: then ``apply`` takes visits, (S, 1), as well."""
        return True

    def seen(self, x: Array) -> Array:
        """The part of x that the map looks at."""
        return x

    @property
    def is_identity(self) -> bool:
        """True where u is (a part of) x itself."""
        return False


@dataclass(frozen=True, eq=False)
class Entries(Map):
    """u(s,a) = scale * x(s,a); the scale is a number, one per entry (S, A), or None for one."""

    scale: Array
    shape: tuple[int, int]

    @property
    def _scale(self) -> Array:
        return 1.0 if self.scale is None else self.scale

    def apply(self, x: Array) -> Array:
        return (x if self.scale is None else self.scale * x).reshape(-1)

    def pull_back(self, u: Array) -> Array:
        back = u.reshape(self.shape)
        return back if self.scale is None else self.scale * back

    def to_sparse(self) -> sp.csr_array:
        return sp.csr_array(sp.diags_array(np.broadcast_to(self._scale, self.shape).ravel()))

    def singular(self) -> tuple[float, float]:
        sizes = np.abs(self._scale)
        return float(np.max(sizes)), float(np.min(sizes))

    def towards(self, u: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """Entry by entry; those that the map does not see stay."""
        scale = np.broadcast_to(self._scale, self.shape)
        return np.where(scale == 0, x, u.reshape(self.shape) / np.where(scale == 0, 1.0, scale))

    def covering(self, reward: np.ndarray) -> np.ndarray | None:
        known = np.ndim(self._scale) == 0 and self._scale > 0
        return reward.ravel() / self._scale if known else None

    def softly(
        self, reward: np.ndarray, logs: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Every pair has its own row: there is nothing to smooth."""
        if np.ndim(self._scale):
            return None
        return reward.reshape(-1) / self._scale, namespace(reward).ones(reward.shape)

    def among(self, u: np.ndarray, shares: np.ndarray) -> np.ndarray:
        return u.reshape(self.shape) / self._scale

    def of_groups(self, count: int) -> Entries:
        return replace(self, shape=(count, self.shape[1]))

    @property
    def is_identity(self) -> bool:
        return self.scale is None


@dataclass(frozen=True, eq=False)
class StateSums(Map):
    """u(s) = scale * sum_a x(s,a)."""

    scale: Array
    shape: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.shape[0]

    def apply(self, x: Array) -> Array:
        return self.scale * x.sum(axis=1)

    def pull_back(self, u: Array) -> Array:
        return namespace(u).broadcast_to((self.scale * u)[:, None], self.shape)

    def to_sparse(self) -> sp.csr_array:
        states, actions = self.shape
        ones = np.full(states * actions, float(self.scale))
        pointers = np.arange(0, states * actions + 1, actions)
        return sp.csr_array((ones, np.arange(ones.size), pointers), shape=(states, ones.size))

    def covering(self, reward: np.ndarray) -> np.ndarray | None:
        return np.asarray(row_maxima(reward) / self.scale)

    def softly(
        self, reward: np.ndarray, logs: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The logarithm of a sum of exponentials."""
        xp = namespace(reward)
        # An action at a time: sums over a few neighbours are ten times slower than sums of long rows.
        shares = reward.T / (self.scale * temperature)
        shares = np.ascontiguousarray(shares) if xp is np else shares
        shares += logs.T
        highest = shares.max(axis=0)
        shares -= highest
        shares = np.exp(shares, out=shares) if xp is np else xp.exp(shares)
        sums = shares.sum(axis=0)
        shares /= sums
        return temperature * (highest + xp.log(sums)), shares.T

    def among(self, u: np.ndarray, shares: np.ndarray) -> np.ndarray:
        return shares * (u / self.scale)[:, None]

    def of_groups(self, count: int) -> StateSums:
        return replace(self, shape=(count, self.shape[1]))

    @property
    def needs_pairs(self) -> bool:
        return False

    def singular(self) -> tuple[float, float]:
        """The length of a row of ones; differences between actions are lost."""
        least = abs(float(self.scale)) if self.shape[1] == 1 else 0.0
        return abs(float(self.scale)) * math.sqrt(self.shape[1]), least


@dataclass(frozen=True, eq=False)
class DenseMap(Map):
    """u = matrix @ x, with a dense matrix (k, S * A)."""

    matrix: Array
    shape: tuple[int, int]

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    def apply(self, x: Array) -> Array:
        return self.matrix @ x.reshape(-1)

    def pull_back(self, u: Array) -> Array:
        return (self.matrix.T @ u).reshape(self.shape)

    def to_sparse(self) -> sp.csr_array:
        return sp.csr_array(np.asarray(self.matrix, dtype=np.float64))

    def singular(self) -> tuple[float, float]:
        values = np.linalg.svd(self.matrix, compute_uv=False)
        full = self.matrix.shape[0] >= self.matrix.shape[1]
        return float(values.max(initial=0.0)), float(values.min()) if full else 0.0


@dataclass(frozen=True, eq=False)
class ExpectedActions(Map):
    """u(s,a) = scale * policy(a|s) * sum_b x(s,b): what the policy would do where x goes."""

    policy: Array  # (S, A)
    scale: Array
    shape: tuple[int, int]

    def apply(self, x: Array) -> Array:
        return (self.scale * self.policy * x.sum(axis=1, keepdims=True)).reshape(-1)

    def pull_back(self, u: Array) -> Array:
        """The policy's mean, the same number for every action."""
        mean = (self.policy * u.reshape(self.shape)).sum(axis=1, keepdims=True)
        return namespace(u).broadcast_to(self.scale * mean, self.shape)

    def to_sparse(self) -> sp.csr_array:
        """A block of equal columns per state."""
        blocks = np.repeat(np.asarray(self.policy)[:, :, None], self.shape[1], axis=2)
        return _of_blocks(float(self.scale) * blocks)

    def singular(self) -> tuple[float, float]:
        """Of every block: rank one."""
        lengths = np.linalg.norm(self.policy, axis=1) * math.sqrt(self.shape[1])
        least = abs(float(self.scale)) * float(lengths.min()) if self.shape[1] == 1 else 0.0
        return abs(float(self.scale)) * float(lengths.max()), least

    @property
    def needs_pairs(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class ActionChange(Map):
    """u(s,a) = scale * (x(s,a) - policy(a|s) * sum_b x(s,b)): how far decisions differ from the policy's."""

    policy: Array  # (S, A)
    scale: Array
    shape: tuple[int, int]

    def apply(self, x: Array) -> Array:
        return (self.scale * (x - self.policy * x.sum(axis=1, keepdims=True))).reshape(-1)

    def pull_back(self, u: Array) -> Array:
        back = u.reshape(self.shape)
        return self.scale * (back - (self.policy * back).sum(axis=1, keepdims=True))

    def towards(self, u: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """The policy's own decisions where x goes, and the change, which sums to zero in every state."""
        if np.abs(u.reshape(self.shape).sum(axis=1)).max() > 1e-12:
            return None
        return self.policy * x.sum(axis=1, keepdims=True) + u.reshape(self.shape) / self.scale

    def _blocks(self) -> np.ndarray:
        """I - policy(.|s) 1' for every state, (S, A, A)."""
        blocks = -np.repeat(np.asarray(self.policy)[:, :, None], self.shape[1], axis=2)
        return float(self.scale) * (blocks + np.eye(self.shape[1]))

    def to_sparse(self) -> sp.csr_array:
        return _of_blocks(self._blocks())

    def singular(self) -> tuple[float, float]:
        """Of the blocks; visits are lost."""
        return float(np.linalg.norm(self._blocks(), ord=2, axis=(1, 2)).max()), 0.0


def _of_blocks(blocks: np.ndarray) -> sp.csr_array:
    """A block-diagonal matrix of blocks (S, A, A)."""
    states, actions, _ = blocks.shape
    first = actions * np.repeat(np.arange(states), actions)
    columns = (first[:, None] + np.arange(actions)).ravel()
    size = states * actions
    pointers = np.arange(0, size * actions + 1, actions)
    matrix = sp.csr_array((blocks.ravel(), columns, pointers), shape=(size, size))
    matrix.eliminate_zeros()
    return matrix


@dataclass(frozen=True, eq=False)
class OfTaller(Map):
    """A map of a part of a taller x, or of what its parts add up to: what ``seen`` gives.

    Attributes:
        inner: the map of that.
        shape: of the whole x.
    """

    inner: Map
    shape: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.inner.rows

    def apply(self, x: Array) -> Array:
        return self.inner.apply(self.seen(x))


@dataclass(frozen=True, eq=False)
class FirstRows(OfTaller):
    """A map of the first rows of x: of features, where rows of signals lie below them."""

    def pull_back(self, u: Array) -> Array:
        below = ((0, self.shape[0] - self.inner.shape[0]), (0, 0))
        return namespace(u).pad(self.inner.pull_back(u), below)

    def to_sparse(self) -> sp.csr_array:
        inner = self.inner.to_sparse()
        missing = math.prod(self.shape) - inner.shape[1]
        return sp.csr_array(sp.hstack([inner, sp.csr_array((inner.shape[0], missing))]))

    def singular(self) -> tuple[float, float]:
        """As the inner map; rows below are lost."""
        return self.inner.singular()[0], 0.0

    def seen(self, x: Array) -> Array:
        return x[: self.inner.shape[0]]

    @property
    def is_identity(self) -> bool:
        return self.inner.is_identity

    @staticmethod
    def spread(reward: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """A reward of the first rows as one of all: zero below."""
        return np.pad(reward, ((0, shape[0] - reward.shape[0]), (0, 0)))


@dataclass(frozen=True, eq=False)
class OverTime(OfTaller):
    """A map of sum_t x_t, for x of all steps above each other, (T*S, A)."""

    @property
    def _steps(self) -> int:
        return self.shape[0] // self.inner.shape[0]

    def seen(self, x: Array) -> Array:
        """The sum; x may be visits, (T*S, 1), where those are enough."""
        return x.reshape(self._steps, self.inner.shape[0], x.shape[1]).sum(axis=0)

    def pull_back(self, u: Array) -> Array:
        return namespace(u).tile(self.inner.pull_back(u), (self._steps, 1))

    def to_sparse(self) -> sp.csr_array:
        return sp.csr_array(sp.hstack([self.inner.to_sparse()] * self._steps))

    def singular(self) -> tuple[float, float]:
        """Differences between times are lost."""
        largest, least = self.inner.singular()
        return largest * math.sqrt(self._steps), least if self._steps == 1 else 0.0

    def column_norms(self) -> tuple[float, float]:
        return self.inner.column_norms()

    def live(self, pairs: np.ndarray) -> np.ndarray:
        return self.inner.live(
            np.asarray(pairs.reshape(self._steps, *self.inner.shape).any(axis=0))
        )

    def covering(self, reward: np.ndarray) -> np.ndarray | None:
        return self.inner.covering(reward.reshape(self._steps, *self.inner.shape).max(axis=0))

    @property
    def needs_pairs(self) -> bool:
        return self.inner.needs_pairs

    @staticmethod
    def spread(reward: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """A reward of one step as one of every step; one by time has them already."""
        return np.tile(reward, (shape[0] // reward.shape[0], 1))


Taller = type[FirstRows] | type[OverTime]
