"""Minari datasets: loaded ones, and the HDF5 files of their folders, read with h5py alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError, FileFormatError, require
from cvxmdp.base.npz_files import LARGEST, NUMBERS
from cvxmdp.base.storage import require_file

NEEDED = ("observations", "actions", "terminations")
OPTIONAL = ("truncations", "rewards")


@dataclass(frozen=True)
class MinariEpisode:
    """The arrays of one episode as they were recorded: one more observation than actions.

    Attributes:
        place: where it stands, for messages.
        observations, actions, terminations: as recorded.
        truncations, rewards: None where they were not recorded.
    """

    place: str
    observations: Any
    actions: Any
    terminations: Any
    truncations: Any = None
    rewards: Any = None


def is_minari(source: Any) -> bool:
    """Whether this is a Minari dataset, loaded or on disk."""
    if isinstance(source, str | Path):
        path = Path(source)
        return path.is_dir() or path.suffix in (".hdf5", ".h5")
    return hasattr(source, "iterate_episodes")


def minari_episodes(source: Any) -> Iterator[MinariEpisode]:
    """The episodes of a dataset, in their order."""
    if isinstance(source, str | Path):
        yield from _of_folder(Path(source))
        return
    for number, episode in enumerate(source.iterate_episodes()):
        place = f"episode {getattr(episode, 'id', number)}"
        needed = (getattr(episode, name) for name in NEEDED)
        yield MinariEpisode(place, *needed, *(getattr(episode, name, None) for name in OPTIONAL))


def _of_folder(path: Path) -> Iterator[MinariEpisode]:
    """The HDF5 file of a dataset: groups episode_0, episode_1, ... with one array per field."""
    h5py = require("h5py", "gym")
    file = path
    if path.is_dir():
        found = (path / "data" / "main_data.hdf5", path / "main_data.hdf5")
        there = [place for place in found if place.exists()]
        if not there:
            raise ExperienceError(
                f"{path} is not a Minari dataset: there is no data/main_data.hdf5 in it"
            )
        file = there[0]
    try:
        opened = h5py.File(require_file(file), "r")
    except FileNotFoundError:
        raise
    except (OSError, FileFormatError) as error:
        raise ExperienceError(f"{file.name} is not an HDF5 file: {error}") from error
    with opened:
        try:
            groups = [name for name in opened if str(name).startswith("episode_")]
        except (ArithmeticError, OSError, RuntimeError, ValueError) as error:
            raise ExperienceError(f"{file.name} cannot be read: {error}") from error
        if not groups:
            raise ExperienceError(
                f"{file.name} holds no episodes (groups episode_0, episode_1, ...)"
            )
        left = LARGEST
        for name in sorted(groups, key=_episode_number):
            place = f"{file.name}, {name}"
            try:
                parts = _parts(_held(opened, name, place), place)
                # A small file can promise any size: compressed, or never written.
                left -= sum(part.size * part.dtype.itemsize for part in parts.values())
                if left < 0:
                    raise ExperienceError(
                        f"{place}: more than {LARGEST:,} bytes of numbers are not read; split the dataset"
                    )
                arrays = {part: values[()] for part, values in parts.items()}
            except ExperienceError:
                raise
            except (
                ArithmeticError,
                KeyError,
                OSError,
                RuntimeError,
                TypeError,
                ValueError,
            ) as error:
                raise ExperienceError(f"{place} cannot be read: {error}") from error
            yield MinariEpisode(place, **arrays)


def _parts(group: Any, place: str) -> dict[str, Any]:
    """The arrays of an episode, unread."""
    there = set(group)
    for needed in NEEDED:
        if needed not in there:
            raise ExperienceError(f"{place}: there is no {needed!r}")
    parts = {name: _held(group, name, place) for name in (*NEEDED, *OPTIONAL) if name in there}
    for name, part in parts.items():
        if not (hasattr(part, "dtype") and hasattr(part, "external")):  # a group, or a type alone
            raise ExperienceError(
                f"{place}: {name} are a dictionary or tuple; record them flattened"
            )
        if part.external or part.is_virtual:
            raise ExperienceError(f"{place}: {name!r} lies in another file, which is not opened")
        if part.dtype.kind not in NUMBERS:  # texts and lists of any length tell no size
            raise ExperienceError(f"{place}: {name!r} holds {part.dtype}, not numbers")
    return parts


def _held(group: Any, name: str, place: str) -> Any:
    """What the file itself holds under a name: links may lead in circles, or to devices that never end."""
    link = type(group.get(name, getlink=True)).__name__
    if link != "HardLink":
        raise ExperienceError(f"{place}: {name!r} is a link ({link}), which is not followed")
    return group[name]


def _episode_number(name: str) -> int:
    digits = name.removeprefix("episode_")
    return int(digits) if digits.isdigit() else -1


def transition_table(source: Any) -> dict[str, np.ndarray]:
    """A dataset of discrete observations and actions as the columns of a log."""
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("episode", "state", "action", "next_state", "terminated", "truncated")
    }
    rewards: list[np.ndarray] = []
    for number, one in enumerate(minari_episodes(source)):
        seen, acted = _whole(one.observations, one.place), _whole(one.actions, one.place)
        if len(seen) != len(acted) + 1:
            raise ExperienceError(
                f"{one.place}: {len(seen)} observations for {len(acted)} actions; a log needs one more, where "
                "the last action led"
            )
        cut = np.zeros(len(acted), bool) if one.truncations is None else np.asarray(one.truncations)
        columns["episode"].append(np.full(len(acted), number))
        columns["state"].append(seen[:-1])
        columns["action"].append(acted)
        columns["next_state"].append(seen[1:])
        columns["terminated"].append(np.asarray(one.terminations, dtype=bool))
        columns["truncated"].append(cut.astype(bool))
        if one.rewards is not None:
            rewards.append(np.asarray(one.rewards, dtype=np.float64))
    named = columns if len(rewards) < len(columns["state"]) else {**columns, "reward": rewards}
    return {name: np.concatenate(parts) for name, parts in named.items() if parts}


def _whole(given: Any, place: str) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ExperienceError(
            f"{place}: observations and actions of shape {array.shape[1:]} and type {array.dtype} cannot be "
            "counted; a model is estimated from whole numbers"
        )
    return array
