"""What is read of an environment: states from discrete observations, arrays from boxes, and clear refusals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from cvxmdp.base.errors import ExperienceError, require
from cvxmdp.policies.features import Features

FAR = 1e6
ROUNDED = 1e-5  # of a border: what float32 may make of numbers at it


Box = tuple[np.ndarray, np.ndarray]  # the least and the largest values


def read_actions(space: Any, name: str) -> tuple[int, int, Box | None]:
    """How many actions a discrete space has, and the first as the environment counts them; or a box of them."""
    spaces = require("gymnasium", "gym").spaces
    if isinstance(space, spaces.Discrete):
        return int(space.n), int(space.start), None
    floats = isinstance(space, spaces.Box) and space.dtype.kind == "f"
    if floats and np.isfinite([space.low, space.high]).all():
        return 1, 0, (np.asarray(space.low, float), np.asarray(space.high, float))
    raise ExperienceError(
        f"{name} has actions {space}; expected a Discrete space, or a Box of real numbers with finite borders. "
        f"Wrap it: gymnasium.wrappers.TransformAction(env, {_wrapping(space, spaces)})."
    )


def _wrapping(space: Any, spaces: Any) -> str:
    """The arguments after the environment, that make such actions a list or give them borders."""
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes = getattr(space, "nvec", np.full(space.shape, 2))
        listed = f"gymnasium.spaces.Discrete({np.prod(sizes)})"
        return f"lambda k: np.array(np.unravel_index(k, {tuple(sizes.ravel().tolist())})), {listed}"
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return f"lambda a: a, gymnasium.spaces.Box(-1.0, 1.0, {space.shape})"
    return "lambda k: your_list[k], gymnasium.spaces.Discrete(len(your_list))"


@dataclass(frozen=True, eq=False)
class ObservationReader:
    """Batches of observations as states, where they are discrete, or as arrays of numbers.

    Attributes:
        sizes: numbers of values per discrete part; empty for boxes.
        starts: the smallest value of each part.
        shape: of an observation that is not a single number.
        parts: whether an observation is a tuple.
        name: of the environment, for messages.
        low, high: the borders of a box.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...]
    parts: bool
    name: str
    low: Any = -np.inf
    high: Any = np.inf

    def require_inside(self, found: np.ndarray, when: str) -> None:
        """That arrays lie in the box which the environment promised; discrete parts were looked at already."""
        if self.sizes:
            return
        low, high = self._reach
        wrong = ((found < low) | (found > high)).reshape(len(found), -1).any(axis=1)
        if wrong.any():
            raise ExperienceError(
                f"{self.name} gave the observation {found[int(np.argmax(wrong))]} {when}, outside its own box. "
                "Correct its observation_space, or clip what it gives "
                "(gymnasium.wrappers.TransformObservation)."
            )

    @cached_property
    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        """The borders, and as far beyond them as rounding in float32 may lead."""
        low, high = self._borders
        return low - ROUNDED * np.maximum(np.abs(low), 1.0), high + ROUNDED * np.maximum(
            np.abs(high), 1.0
        )

    @property
    def _borders(self) -> list[np.ndarray]:
        ends = (np.asarray(end, dtype=np.float64) for end in (self.low, self.high))
        return [np.broadcast_to(end, self.shape) for end in ends]

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """The middle and half the width of observations, per number; 0 and 1 where a border is missing.

        Borders so far away that nothing is near them (CartPole's velocities end at 3e38) are none.
        """
        low, high = self._borders
        if self.sizes:
            low, high = np.zeros(self.shape), np.array(self.sizes).reshape(self.shape) - 1.0
        bounded = (np.abs(low) < FAR) & (np.abs(high) < FAR) & (low < high)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        return (low + high) / 2.0, (high - low) / 2.0

    @property
    def n_states(self) -> int | None:
        """How many states; None where observations are not discrete."""
        return math.prod(self.sizes) if self.sizes else None

    @property
    def state_names(self) -> tuple[str, ...] | None:
        """Observations as names of the states they are; None where states are their own numbers, or none."""
        if not self.sizes or (not self.shape and self.starts == (0,)):
            return None
        if not self.shape:
            return tuple(str(self.starts[0] + number) for number in range(self.sizes[0]))
        every = np.indices(self.sizes).reshape(len(self.sizes), -1).T + np.array(self.starts)
        return tuple(str(tuple(one)) for one in every.tolist())

    @classmethod
    def of(cls, space: Any, name: str) -> ObservationReader:
        """For discrete spaces, tuples of them, MultiDiscrete and boxes; others are refused."""
        spaces = require("gymnasium", "gym").spaces
        if isinstance(space, spaces.Discrete):
            return cls((int(space.n),), (int(space.start),), (), False, name)
        if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
            flat = np.atleast_1d(getattr(space, "nvec", np.full(space.shape, 2)))
            starts = np.broadcast_to(getattr(space, "start", 0), flat.shape)
            sizes = tuple(int(size) for size in flat.ravel())
            first = tuple(int(start) for start in starts.ravel())
            return cls(sizes, first, flat.shape, False, name)
        if isinstance(space, spaces.Tuple) and all(
            isinstance(part, spaces.Discrete) for part in space.spaces
        ):
            sizes = tuple(int(part.n) for part in space.spaces)
            first = tuple(int(part.start) for part in space.spaces)
            return cls(sizes, first, (len(sizes),), True, name)
        if isinstance(space, spaces.Box):
            return cls((), (), tuple(space.shape), False, name, space.low, space.high)
        if isinstance(space, spaces.Dict):
            raise ExperienceError(
                f"{name} has observations with the entries {', '.join(map(repr, space.spaces))}; expected one "
                "array. Take them together, gymnasium.wrappers.FlattenObservation(env), or choose one, "
                "gymnasium.wrappers.TransformObservation(env, lambda o: o[...], space)."
            )
        raise ExperienceError(
            f"{name} has observations {space}; expected Discrete, MultiDiscrete, a Tuple of Discrete, or "
            "Box. gymnasium.wrappers.FlattenObservation makes a Box of nested spaces."
        )

    def examples(self, *, numbered: bool) -> np.ndarray:
        """Two observations as ``read`` gives them: the first and the last, or the middle of a box twice."""
        if not self.sizes:
            return np.stack([self.box[0]] * 2)
        last = np.array(self.sizes) - 1
        if numbered:
            return np.array([0, math.prod(self.sizes) - 1])
        return np.stack([np.zeros_like(last), last]).reshape(2, *self.shape)

    def contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All that a file needs: a description and arrays."""
        sizes = {name: list(getattr(self, name)) for name in ("sizes", "starts", "shape")}
        described = {**sizes, "parts": self.parts, "name": self.name}
        return described, dict(zip(("low", "high"), self._borders, strict=True))

    @classmethod
    def read_contents(
        cls, described: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> ObservationReader:
        """The reader of a file's contents."""
        sizes, starts, shape = (
            tuple(int(number) for number in described[name])
            for name in ("sizes", "starts", "shape")
        )
        name, parts = str(described["name"]), bool(described["parts"])
        return cls(sizes, starts, shape, parts, name, arrays["low"], arrays["high"])

    def read(self, observations: Any, lanes: int, when: str, *, numbered: bool) -> np.ndarray:
        """Observations, (lanes, ...), with finite numbers in them.

        Args:
            observations: a batch, as the environment gave it.
            lanes: of how many.
            when: the step in words, for messages.
            numbered: give states (lanes,) instead, one number for all parts of a discrete observation.
        """
        try:
            return self._read(observations, lanes, when, numbered)
        except (ArithmeticError, IndexError, TypeError, ValueError) as error:
            raise ExperienceError(
                f"{self.name} gave an observation {when} that is not what its space says: {error}"
            ) from error

    def _require_shape(self, observations: Any, when: str) -> None:
        """That every observation has the shape of the space, but for lengths of one."""
        whole = getattr(observations, "ndim", 0)
        shapes = [observations.shape[1:]] if whole else [np.shape(one) for one in observations]
        for shape in shapes:
            if [n for n in shape if n != 1] != [n for n in self.shape if n != 1]:
                raise ExperienceError(
                    f"{self.name} gave an observation of shape {shape} {when}; its observation_space says "
                    f"{self.shape}"
                )

    def _read(self, observations: Any, lanes: int, when: str, numbered: bool) -> np.ndarray:
        if not self.parts:
            self._require_shape(observations, when)
            if isinstance(observations, list):
                observations = [np.reshape(one, self.shape) for one in observations]
        if not self.sizes:
            values = np.asarray(observations, dtype=np.float64).reshape(lanes, *self.shape)
            wrong = ~np.isfinite(values.reshape(lanes, -1)).all(axis=1)
            if wrong.any():
                lane = int(np.argmax(wrong))
                raise ExperienceError(
                    f"{self.name} gave the observation {values[lane]} {when}; NaN and infinity cannot "
                    "be learned from. Look at the environment, or at actions that drive it there."
                )
            return values
        if len(self.sizes) == 1 and not self.shape:
            states = np.asarray(observations)
            if states.dtype.kind in "iu":  # nearly always: one pass and no copies
                states = states.reshape(lanes) - self.starts[0]
                if states.min() >= 0 and states.max() < self.sizes[0]:
                    return states
        if self.parts:
            table = np.stack([np.asarray(part).reshape(lanes) for part in observations], axis=1)
        else:
            table = np.asarray(observations).reshape(lanes, -1)
        numbers = table.astype(np.float64)
        codes = np.where(np.isfinite(numbers), numbers, -1).astype(np.int64) - np.array(self.starts)
        wrong = (codes < 0) | (codes >= np.array(self.sizes)) | (codes + self.starts != numbers)
        if wrong.any():
            lane = int(np.argmax(wrong.any(axis=1)))
            raise ExperienceError(
                f"{self.name} gave the observation {table[lane]} {when}, outside its own space"
            )
        if numbered:
            return np.ravel_multi_index(tuple(codes.T), self.sizes)
        return codes.reshape(lanes, *self.shape)


class Observable(Protocol):
    """What policies ask of an environment.

    Attributes:
        reader: of its observations.
        features: of observations that are no states, or None.
        numbered: whether observations are read as states, one number for all parts of them.
    """

    reader: ObservationReader
    features: Features | None
    numbered: bool

    @property
    def has_states(self) -> bool:
        """Whether what is measured are states or bins, of which an observation is exactly one."""

    @property
    def identity(self) -> str:
        """What tells it from other environments, in every process."""
