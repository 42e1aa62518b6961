"""What a policy is, and how it acts: actions for states, one or many, in the manner of Stable-Baselines3."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from cvxmdp.base.errors import CvxmdpWarning, PolicyError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.storage import write_arrays

Arrays = dict[str, np.ndarray]
ENDING = ".safetensors"  # of files that keep everything


@runtime_checkable
class Policy(Protocol):
    """A stationary policy pi(a | s) on a finite model."""

    @property
    def n_states(self) -> int:
        """Number of states, S."""

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""

    def probabilities(self, state: Any = None) -> np.ndarray:
        """pi(. | state), shape (A,), of a number or name; without a state the whole matrix, shape (S, A)."""

    def sample(self, state: Any, random: np.random.Generator) -> int:
        """Draw an action for the state."""

    def seed(self, seed: int | np.random.Generator) -> Policy:
        """The source of what ``predict`` draws from now on."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or many, and None: the manner of Stable-Baselines3."""

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""

    def to_onnx(self, path: str | Path) -> None:
        """Write a network on observations as an ONNX file."""


class Acting(InNotebooks):
    """What acts: it draws from random numbers of its own, and is written to one file."""

    _random: np.random.Generator | None = None
    # The next action is the first of an episode, where an environment says so.
    _begins: bool | None = None

    def seed(self, seed: int | np.random.Generator) -> Self:
        """Begin the random numbers of ``predict`` anew; returns the policy itself."""
        object.__setattr__(self, "_random", np.random.default_rng(seed))
        return self

    @property
    def random(self) -> np.random.Generator:
        """What ``predict`` draws from: of the last ``seed``, else of the operating system's entropy."""
        if self._random is None:
            self.seed(np.random.default_rng())
        assert self._random is not None
        return self._random

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one observation or a batch, as Stable-Baselines3 does: (action, None).

        Args:
            observation: a state, by number, name or tuple; or a list or an array of states; for a policy on
                observations, one of them or a batch (one per environment).
            state: not used: what a policy remembers, it remembers itself.
            episode_start: where true, an episode begins, and a mixture draws another policy for it; all other
                policies have no memory.
            deterministic: take the likeliest action instead of drawing one. That is another policy, of
                which the constraints do not speak, and a warning says so.
        """
        if episode_start is None and self._begins is not None:
            episode_start = self._begins
            object.__setattr__(self, "_begins", False)
        return self._actions(observation, episode_start, deterministic), None

    def follow(self, environment: Any) -> Any:
        """An environment whose ``reset`` tells this policy that an episode begins, ``policy.follow(env)``.

        For policies that remember something until an episode ends, mixtures and those that depend on time, in
        a loop over ``env.step``; ``predict`` needs no ``episode_start`` then. The environment itself is given
        back, with a method ``reset`` of its own.
        """
        if not callable(getattr(environment, "reset", None)) or hasattr(environment, "num_envs"):
            raise PolicyError(
                f"{environment!r} is no single environment with reset(). Lanes begin their episodes one by "
                "one; say where: policy.predict(observations, episode_start=begins)"
            )
        plain = environment.reset

        def reset(*given: Any, **options: Any) -> Any:
            object.__setattr__(self, "_begins", True)
            return plain(*given, **options)

        environment.reset = reset
        return environment

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        raise NotImplementedError

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """All that a file needs: arrays and a description; ``read`` makes the policy of them again."""
        raise NotImplementedError

    def to_onnx(self, path: str | Path) -> None:
        """Networks on observations can be written as ONNX files; others say what they are kept in instead."""
        raise PolicyError(
            f"{self!r} is no network on observations. A table is kept with policy.save(), as .csv, .json, "
            f".parquet, .npz or {ENDING}; a mixture as {ENDING}"
        )

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        require_ending(Path(path))
        write_arrays(path, "policy", *self.contents())


def require_ending(path: Path, others: Sequence[str] = ()) -> None:
    """That a file is called what it will be; ``others`` are endings that its policy knows besides."""
    if path.suffix not in ("", ENDING):
        known = ", ".join((ENDING, *others))
        raise PolicyError(
            f"cannot write {path.name!r}: this policy is kept in {known}. Write "
            f"policy.save({str(path.with_suffix(ENDING))!r})"
        )


def draw_actions(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One action per row of probabilities (..., A); one with probability zero is never drawn."""
    cumulative = np.cumsum(rows, axis=-1)
    threshold = random.random(rows.shape[:-1]) * cumulative[..., -1]
    return np.asarray((cumulative <= threshold[..., None]).sum(axis=-1))


def masked(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Chances (n, A) of the available actions alone; all alike where those had none."""
    kept = np.where(masks, rows, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(total > 0, kept, masks))


def likeliest(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The likeliest action of each row, with a warning where that makes another policy."""
    if (matrix.max(axis=1) < 1.0).any():
        warnings.warn(
            "deterministic=True takes the likeliest action of each state. That is another policy: the "
            "objective and the constraints of the solution do not speak of it. Evaluate it on its own, "
            "or leave deterministic=False.",
            CvxmdpWarning,
            stacklevel=4,  # whoever called predict
        )
    return np.asarray(rows.argmax(axis=-1))


def drawn_members(
    acting: np.ndarray | None, begins: Any, count: int, random: np.random.Generator
) -> np.ndarray:
    """Which of ``count`` members of a mixture acts in each lane: another one where an episode begins.

    Where the lanes of those that acted so far are others, every episode begins.
    """
    drawn = random.integers(count, size=np.shape(begins))
    if acting is None or acting.shape != np.shape(begins):
        return np.asarray(drawn)
    return np.where(begins, drawn, acting)
