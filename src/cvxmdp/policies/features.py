r"""Features psi of observations: what an occupancy is measured in where states are not a table.

With features psi(o) of size F and A actions, the feature occupancy is

    sum_k discount^k psi(o_k) (x) e_{a_k},   shape (F, A),

so that utilities read it as they read the occupancy of a table: with one-hot features it *is* that
occupancy, with bins the occupancy of the discretised states. Features are called on a batch of
observations, (n, ...), and give (n, F); NumPy in, NumPy out; JAX in, JAX out.

``norms`` are bounds on the l1 and l2 norm of psi(o), which confidence radii are made of, or None where
nobody knows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.errors import ExperienceError, PolicyError
from cvxmdp.base.settings import whole


class Norms(NamedTuple):
    """Bounds on the norms of a feature vector, and whether its entries are never negative."""

    l1: float
    l2: float
    nonnegative: bool


@runtime_checkable
class Features(Protocol):
    """What every kind of features has."""

    @property
    def size(self) -> int:
        """F, the length of a feature vector."""

    @property
    def norms(self) -> Norms | None:
        """Bounds on its norms, where known."""

    def __call__(self, observations: Array) -> Array:
        """Feature vectors (n, F) of a batch of observations (n, ...)."""


def one_hot(index: Array, size: int) -> Array:
    """Rows (n, size) with a one at each index."""
    xp = namespace(index)
    return (index[..., None] == xp.arange(size)).astype(float)


def _flat(observations: Array, size: int, what: str) -> Array:
    flat = observations.reshape(observations.shape[0], -1)
    if flat.shape[1] != size:
        raise ExperienceError(
            f"{what} {size} dimensions were given observations with {flat.shape[1]}"
        )
    return flat


@dataclass(frozen=True)
class OneHot:
    """Discrete observations 0, ..., size - 1 as they are: the feature occupancy is the occupancy."""

    size: int
    norms: ClassVar[Norms] = Norms(1.0, 1.0, True)
    made_of: ClassVar[tuple[str, ...]] = ("size",)  # what files hold

    def __post_init__(self) -> None:
        whole("the size of one-hot features", self.size, error=ExperienceError)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> OneHot:
        return cls(int(arrays["size"]))

    def index(self, observations: Array) -> Array:
        """The observation itself."""
        return observations

    def __call__(self, observations: Array) -> Array:
        """A row with a one for each observation."""
        return one_hot(observations, self.size)


class UniformBins:
    """Boxes cut into equal bins per dimension; what lies outside belongs to the nearest bin.

    Args:
        low, high: the borders of the box, a number per dimension, finite.
        bins: how many per dimension, a number or one per dimension.
    """

    norms = Norms(1.0, 1.0, True)
    made_of = ("low", "high", "bins")

    def __init__(self, low: Any, high: Any, bins: Any) -> None:
        self.low = np.atleast_1d(np.array(low, dtype=np.float64))
        self.high = np.atleast_1d(np.array(high, dtype=np.float64))
        if self.low.ndim != 1 or self.low.shape != self.high.shape:
            raise ExperienceError(
                f"low and high are vectors of one length; got shapes {self.low.shape} and "
                f"{self.high.shape}"
            )
        bad = ~np.isfinite(self.low) | ~np.isfinite(self.high) | ~(self.low < self.high)
        if bad.any():
            place = int(np.argmax(bad))
            raise ExperienceError(
                f"dimension {place} goes from {self.low[place]:g} to {self.high[place]:g}; bins need "
                "finite borders, low < high. Give those between which something happens: what lies "
                "outside belongs to the outermost bins."
            )
        counts = list(bins) if np.ndim(bins) else [bins] * self.low.size
        if len(counts) != self.low.size:
            raise ExperienceError(f"{len(counts)} numbers of bins for {self.low.size} dimensions")
        self.bins = np.array(
            [whole("the number of bins", count, error=ExperienceError) for count in counts]
        )

    @property
    def size(self) -> int:
        """The number of boxes."""
        return math.prod(int(count) for count in self.bins)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> UniformBins:
        return cls(arrays["low"], arrays["high"], [int(count) for count in arrays["bins"]])

    def index(self, observations: Array) -> Array:
        """The number of the box an observation lies in; the last dimension counts fastest."""
        xp = namespace(observations)
        flat = _flat(observations, self.low.size, "bins for")
        share = (flat - self.low) / (self.high - self.low)
        cell = xp.clip(xp.floor(share * self.bins), 0, self.bins - 1).astype(int)
        strides = np.append(np.cumprod(self.bins[:0:-1])[::-1], 1).astype(int)
        return (cell * strides).sum(axis=1)

    def __call__(self, observations: Array) -> Array:
        """A row with a one for each observation."""
        return one_hot(self.index(observations), self.size)

    def __repr__(self) -> str:
        cut = " x ".join(str(count) for count in self.bins)
        return f"UniformBins({cut} bins)"


class RandomFourier:
    """Random Fourier features: sqrt(2/F) cos(w . o / scale + b), w normal, b uniform.

    Their inner products approximate the Gaussian kernel exp(-|o - o'|^2 / (2 scale^2)) (Rahimi and Recht,
    2007).

    Args:
        dimension: of an observation, flattened.
        size: F, how many features.
        scale: the kernel's width, a number or one per dimension.
        seed: of the random directions.
    """

    made_of = ("directions", "phases")

    def __init__(self, dimension: int, size: int, *, seed: int, scale: Any = 1.0) -> None:
        self.size = whole("the number of features", size, error=ExperienceError)
        width = np.broadcast_to(
            np.asarray(scale, dtype=np.float64),
            (whole("dimension", dimension, error=ExperienceError),),
        )
        if not (np.isfinite(width) & (width > 0)).all():
            raise ExperienceError(f"the scale of Fourier features must be positive; got {scale!r}")
        random = np.random.default_rng(seed)
        self.directions = random.standard_normal((dimension, size)) / width[:, None]
        self.phases = random.uniform(0.0, 2.0 * np.pi, size)

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> RandomFourier:
        dimension, size = arrays["directions"].shape
        made = cls(dimension, size, seed=0)
        made.directions, made.phases = arrays["directions"], arrays["phases"].reshape(size)
        return made

    @property
    def norms(self) -> Norms:
        """Each entry is at most sqrt(2/F)."""
        return Norms(math.sqrt(2.0 * self.size), math.sqrt(2.0), False)

    def __call__(self, observations: Array) -> Array:
        """The features of each observation."""
        xp = namespace(observations)
        flat = _flat(observations, self.directions.shape[0], "Fourier features of")
        return math.sqrt(2.0 / self.size) * xp.cos(flat @ self.directions + self.phases)

    def __repr__(self) -> str:
        return f"RandomFourier({self.directions.shape[0]} dimensions; size {self.size})"


@dataclass(frozen=True)
class FeatureFunction:
    """Any JAX function of one observation that gives a vector.

    Args:
        function: observation -> (F,), written with ``jax.numpy``.
        size: F.
        norms: bounds on the l1 and l2 norm of its values and whether they are never negative, if you
            know them; confidence bounds need them, and without them a bootstrap is used.
    """

    function: Callable[[Any], Any]
    size: int
    norms: Norms | None = None

    def __post_init__(self) -> None:
        whole("the size of features", self.size, error=ExperienceError)
        if self.norms is not None:
            object.__setattr__(self, "norms", Norms(*self.norms))

    def __call__(self, observations: Array) -> Array:
        """The function of each observation."""
        values = jax.vmap(self.function)(observations)
        expected = (observations.shape[0], self.size)
        if values.shape != expected:
            raise ExperienceError(
                f"the feature function gives shape {values.shape[1:]}; expected {expected[1:]}"
            )
        return np.asarray(values) if isinstance(observations, np.ndarray) else values


KINDS: dict[str, Any] = {"bins": UniformBins, "fourier": RandomFourier, "one-hot": OneHot}


def describe_features(features: Features | None) -> tuple[str, dict[str, np.ndarray]]:
    """All that a file needs of features: their kind and arrays."""
    for name, kind in KINDS.items():
        if isinstance(features, kind):
            return name, {f"features/{k}": np.asarray(getattr(features, k)) for k in kind.made_of}
    if features is None:
        return "none", {}
    raise PolicyError(
        f"{features!r} are code, which is not written to files: keep the parameters (policy.params) and make "
        "the policy anew"
    )


def read_features(name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The features of a file's contents."""
    mine = {k.removeprefix("features/"): v for k, v in arrays.items() if k.startswith("features/")}
    return None if name == "none" else KINDS[name].of_arrays(mine)
