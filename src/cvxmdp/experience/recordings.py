"""Recorded episodes from memory, tables, NPZ files and Minari datasets, one form for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError, FileFormatError
from cvxmdp.base.npz_files import read_npz
from cvxmdp.base.storage import require_file
from cvxmdp.experience.log_table import LONGEST_HEADER, LogTable, delimiter_of, read_log_table
from cvxmdp.experience.minari_datasets import is_minari, minari_episodes

OTHER_NAMES = {
    "state": ("states", "observations", "observation"),
    "action": ("actions",),
    "terminated": ("terminations", "terminals", "terminal", "done"),
    "truncated": ("truncations", "timeouts"),
    "episode": ("episodes", "episode_id"),
}


ENDS = ("terminated", "terminations", "truncations")
KNOWN = ("observations", "states", "actions", *ENDS, "rewards")  # of an episode in memory


@dataclass(frozen=True)
class Recording:
    """One episode.

    Attributes:
        inputs: states (T,), or observations (T, ...).
        actions: (T,).
        terminated: whether the last step ended it; where not, it was cut.
        place: where it stands, for messages.
        rows: where its steps stand, for messages; empty for data in memory.
    """

    inputs: np.ndarray
    actions: np.ndarray
    terminated: bool
    place: str
    rows: tuple[str, ...] = ()

    def at(self, step: int) -> str:
        return self.rows[step] if self.rows else f"{self.place}, step {step}"


Names = tuple[tuple[str, ...] | None, tuple[str, ...] | None]  # of states and of actions


def read_recordings(
    source: Any, columns: Mapping[str, str] | None = None, names: Names = (None, None)
) -> Iterator[Recording]:
    """Episodes of whatever was given; see ``demonstrations``.

    Args:
        source, columns: as there.
        names: of states and actions, where tables may have them instead of numbers.
    """
    if is_minari(source):
        return _minari(source)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix == ".npz":
            return _npz(path, columns)
        return _table(read_log_table(path, _names(path, columns), ExperienceError), names)
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        return _table(read_log_table(source, _names(source, columns), ExperienceError), names)
    return _memory(source)


def _names(source: Any, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Columns under their other usual names, where ours are not there."""
    renamed = dict(columns or {})
    there: Iterable[Any]
    if isinstance(source, Path) and source.suffix == ".parquet":
        there = list(read_log_table(source, None, ExperienceError).arrays)
    elif isinstance(source, Path):
        # Names that are no text are found by who reads the whole file.
        with require_file(source).open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline(LONGEST_HEADER)
            there = [name.strip() for name in header.split(delimiter_of(header))]
    else:
        there = list(getattr(source, "columns", source))
    for ours, others in OTHER_NAMES.items():
        if ours not in renamed and ours not in there:
            known = [other for other in others if other in there]
            if known:
                renamed[ours] = known[0]
    return renamed


def _table(data: LogTable, names: Names = (None, None)) -> Iterator[Recording]:
    """Rows of (episode, state, action, terminated), in the order of the steps."""
    states, actions = (
        _numbered(data, *one) for one in zip(("state", "action"), names, strict=True)
    )
    terminated = data.flags("terminated")
    data.require_clean()
    over = terminated | (data.flags("truncated") if "truncated" in data.arrays else False)
    starts = data.episode_starts(over)
    for number, (first, behind) in enumerate(zip(starts, [*starts[1:], data.n_rows], strict=True)):
        yield Recording(
            states[first:behind],
            actions[first:behind],
            bool(terminated[behind - 1]),
            f"episode {number}",
            tuple(data.row(row) for row in range(first, behind)),
        )


def _numbered(data: LogTable, column: str, names: tuple[str, ...] | None) -> np.ndarray:
    """A column of states or actions: numbers counted from 0, or names that a model has."""
    codes = data.codes(column)
    if codes is not None:
        return codes
    if names is None:
        raise ExperienceError(
            f"the column {column!r} of demonstrations holds names; numbers are counted from 0, and names "
            "need a model that has them"
        )
    labels, numbers = data.labels(column), {name: number for number, name in enumerate(names)}
    strange = [row for row, label in enumerate(labels) if label not in numbers]
    data.wrong(strange, lambda row: f"the model has no {column} {labels[row]!r}")
    data.require_clean()
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def _minari(source: Any) -> Iterator[Recording]:
    for one in minari_episodes(source):
        yield checked(one.observations, one.actions, one.terminations, one.place)


def _npz(path: Path, columns: Mapping[str, str] | None) -> Iterator[Recording]:
    """One row per step; observations may have any shape behind the first axis."""
    try:
        arrays = read_npz(path)
    except FileFormatError as error:
        raise ExperienceError(f"{path.name} cannot be read as plain arrays: {error}") from error
    named = {}
    for ours, others in OTHER_NAMES.items():
        for name in ((columns or {}).get(ours, ours), *others):
            if name in arrays:
                named[ours] = arrays[name]
                break
    for needed in ("state", "action", "terminated"):
        if needed not in named:
            raise ExperienceError(
                f"{path.name} has no array {needed!r} (nor {', '.join(OTHER_NAMES[needed])}); it has "
                f"{', '.join(arrays) or 'none'}"
            )
    lengths = {name: len(np.atleast_1d(array)) for name, array in named.items()}
    if len(set(lengths.values())) > 1:
        raise ExperienceError(
            f"the arrays of {path.name} have one row per step; these have {lengths}"
        )
    inputs = named.pop("state")
    steps = dict(named)
    steps["state"] = np.arange(len(inputs))  # rows, so that observations of any shape can be cut up
    for recording in _table(read_log_table(steps, None, ExperienceError)):
        rows = recording.inputs
        yield Recording(
            _plain(inputs[rows]), recording.actions, recording.terminated, recording.place
        )


def _plain(inputs: Any) -> np.ndarray:
    """Whole numbers stay states; a last axis of length one is dropped."""
    array = np.asarray(inputs)
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu":
        array = array[:, 0]
    return array


def _memory(source: Any) -> Iterator[Recording]:
    try:
        episodes = list(source)
    except TypeError:
        raise ExperienceError(
            "demonstrations are a list of episodes, a table, the path of a CSV or NPZ file, a Minari "
            f"dataset, or a policy; got {type(source).__name__}"
        ) from None
    for number, episode in enumerate(episodes):
        yield _one(episode, f"episode {number}")


def _one(episode: Any, place: str) -> Recording:
    if not isinstance(episode, Mapping):
        if isinstance(episode, Recording):
            return episode
        try:
            pairs = np.array([(int(state), int(action)) for state, action in episode])
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"{place} is not a list of (state, action): {error}. With observations that are no "
                'numbers give {"observations": ..., "actions": ...}.'
            ) from error
        if not len(pairs):
            raise ExperienceError(f"{place} has no steps")
        return Recording(pairs[:, 0], pairs[:, 1], False, place)
    for name in episode:
        if name not in KNOWN:
            raise ExperienceError(f"{place} has {name!r}; known are {', '.join(KNOWN)}")
    inputs = episode.get("observations", episode.get("states"))
    if inputs is None or "actions" not in episode:
        raise ExperienceError(f'{place} needs "observations" (or "states") and "actions"')
    ended = episode.get("terminated", episode.get("terminations", False))
    return checked(inputs, episode["actions"], ended, place)


def checked(inputs: Any, actions: Any, terminated: Any, place: str) -> Recording:
    """A recording whose parts fit: one action per observation, or one observation more, the last."""
    try:
        seen, acted = _plain(inputs), _plain(actions)
    except ValueError as error:
        raise ExperienceError(f"{place}: {error}") from error
    if acted.ndim != 1 or acted.dtype.kind not in "iu" or not acted.size:
        raise ExperienceError(
            f"{place}: actions are whole numbers, one per step; got shape {acted.shape} of type "
            f"{acted.dtype}"
        )
    if seen.ndim < 1 or len(seen) - len(acted) not in (0, 1):
        raise ExperienceError(
            f"{place}: {len(seen) if seen.ndim else 'no'} observations for {len(acted)} actions; expected "
            "as many, or one more (where the last action led)"
        )
    seen = seen[: len(acted)]
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        step = int(np.argmax(~np.isfinite(seen.reshape(len(seen), -1)).all(axis=1)))
        raise ExperienceError(f"{place}, step {step}: the observation is {seen[step]}")
    flags = np.atleast_1d(np.asarray(terminated, dtype=bool))
    if flags[:-1].any():
        raise ExperienceError(f"{place} goes on after step {int(np.argmax(flags))}, which ended it")
    return Recording(seen, acted, bool(flags[-1]), place)
