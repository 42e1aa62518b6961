"""What steps of Gymnasium environments tell besides observations: rewards, costs, ``info``, flags, masks.

A reward may be a vector (MO-Gymnasium): its parts are the signals "reward[0]", "reward[1]", ..., or have names.
Entries of ``info`` are signals by their key, or by another name with ``from_info``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError, did_you_mean
from cvxmdp.experience.environments.side_by_side import MASK


@dataclass(frozen=True)
class FromInfo:
    """An entry of ``info`` as a signal."""

    key: str


def from_info(key: str) -> FromInfo:
    """An entry of ``info``, for ``signals=``: ``signals={"fuel": from_info("fuel_used")}``.

    An entry whose key is a good name needs nothing: ``linear("cost")`` reads ``info["cost"]``.
    """
    if not isinstance(key, str) or not key:
        raise ExperienceError(f"from_info takes the key of an entry of info, a text; got {key!r}")
    return FromInfo(key)


@dataclass(frozen=True)
class SignalReader:
    """Of one environment with ``lanes`` lanes.

    Attributes:
        name: of the environment, for messages.
        lanes: how many.
        vector: whether it answers with arrays, and not with one entry for each lane.
        rewards: names of the parts of a reward that is a vector; empty where it is a number.
        keys: entries of info by the name that a signal was given.
        absent: the value of entries on steps that do not have them.
    """

    name: str
    lanes: int
    vector: bool
    rewards: tuple[str, ...]
    keys: Mapping[str, str]
    absent: Mapping[str, float]

    def given(
        self, reward: Any, cost: tuple[Any, ...], done: np.ndarray, when: str
    ) -> dict[str, Any]:
        """What a step gives outside of info: the reward or its parts and, from a six-tuple, the cost."""
        found = dict(zip(("cost",), cost, strict=False))
        if not self.rewards:
            return {"reward": reward, **found}
        size = len(self.rewards)
        try:
            rows = [
                np.zeros(size) if waits else part for part, waits in zip(reward, done, strict=True)
            ]
            table = np.array(rows, dtype=np.float64).reshape(self.lanes, size)
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"{self.name} gave the reward {reward!r} {when}; expected {size} numbers in each lane: "
                f"{', '.join(self.rewards)}. A wrapper that makes a number of them says reward_space = None."
            ) from error
        for k, name in enumerate(self.rewards):
            found[name] = found[f"reward[{k}]"] = table[:, k]
        return found

    def read(
        self,
        name: str,
        given: Mapping[str, Any],
        info: Any,
        over: np.ndarray,
        done: np.ndarray,
        when: str,
    ) -> np.ndarray:
        """A signal in every lane."""
        if name in given:
            return self._numbers(given[name], name, when)
        values, missing = self._from_info(self.keys.get(name, name), info, over, when)
        if name in self.absent:
            return np.where(missing, self.absent[name], values)
        if (missing & ~done).any():
            key = self.keys.get(name, name)
            infos = [info] if isinstance(info, Mapping) else info
            known = {*given, *(str(one_key) for one in infos for one_key in one or ())}
            known = {one_key for one_key in known if not one_key.startswith("_")}
            raise ExperienceError(
                f"{self.name} gave no info[{key!r}] {when}. {did_you_mean(key, sorted(known))} If it is only "
                f"there on some steps, say what it is on the others: absent={{{name!r}: 0.0}}."
            )
        return values

    def _numbers(self, given: Any, name: str, when: str) -> np.ndarray:
        try:
            return _numeric(given).reshape(self.lanes)
        except (TypeError, ValueError) as error:
            parts = given if isinstance(given, list | tuple | np.ndarray) else ()
            if name == "reward" and any(np.ndim(part) for part in parts):
                raise ExperienceError(
                    f"{self.name} gave the reward {given!r} {when}, a vector. Name its parts, which are then "
                    'signals: rewards=("time", "treasure"); linear("treasure").'
                ) from error
            raise ExperienceError(
                f"{self.name} gave the signal {name!r} as {given!r} {when}; expected a number in each lane"
            ) from error

    def flags(self, given: Any, name: str, when: str) -> np.ndarray:
        """Whether episodes are over, per lane; words such as "False" are no flags."""
        flags = np.asarray(given)
        known = flags.dtype == bool or (
            flags.dtype.kind in "iuf" and bool(((flags == 0) | (flags == 1)).all())
        )
        if flags.size != self.lanes or not known:
            raise ExperienceError(
                f"{self.name} gave {name} as {given!r} {when}; expected true or false in each lane"
            )
        return flags.astype(bool).reshape(self.lanes)

    def masks(self, info: Any, actions: int, when: str) -> np.ndarray | None:
        """The actions that are available in each lane, (lanes, A), where info says so."""
        if isinstance(info, Mapping):
            if MASK not in info:
                return None
            there = np.broadcast_to(np.asarray(info.get(f"_{MASK}", True), dtype=bool), self.lanes)
            rows = [row if known else None for row, known in zip(info[MASK], there, strict=True)]
        else:
            rows = [lane.get(MASK) if isinstance(lane, Mapping) else None for lane in info]
        if all(row is None for row in rows):
            return None
        try:
            every = [np.ones(actions, bool) if row is None else np.asarray(row) for row in rows]
            found = np.stack([row.astype(bool).reshape(actions) for row in every])
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"{self.name} gave info[{MASK!r}] {when} that does not say of each of {actions} actions "
                f"whether it is available: {rows!r:.200}"
            ) from error
        if not found.any(axis=1).all():
            raise ExperienceError(f"{self.name} gave an info[{MASK!r}] {when} without any action")
        return found

    def _from_info(
        self, key: str, info: Any, over: np.ndarray, when: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """An entry of info per lane, and where it is missing."""
        try:
            values, there = self._entry(key, info)
            if (
                self.vector and "final_info" in info
            ):  # reset in the same step: the last entries are here
                last, known = self._entry(key, info["final_info"])
                values, there = np.where(over, last, values), np.where(over, known, there)
            return values, ~there
        except (TypeError, ValueError) as error:
            infos = [info] if isinstance(info, Mapping) else info
            inner = next(
                (one[key] for one in infos if isinstance(one, Mapping) and key in one), None
            )
            said = f": {error}"
            if isinstance(inner, Mapping):
                entries = ", ".join(map(repr, inner))
                said = f", but has the entries {entries}: a wrapper may put them into info itself"
            raise ExperienceError(
                f"{self.name} gave info[{key!r}] {when}, which is not a number{said}"
            ) from error

    def _entry(self, key: str, info: Any) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.zeros(self.lanes, dtype=bool)
        if isinstance(info, Mapping):
            if key not in info:
                return np.zeros(self.lanes), nothing
            mask = np.asarray(info.get(f"_{key}", ~nothing), dtype=bool)
            raw = np.where(mask, np.asarray(info[key], dtype=object), 0.0)
            return _numeric(raw.tolist()).reshape(self.lanes), mask
        lanes = [lane if isinstance(lane, Mapping) else {} for lane in info]  # a list of infos
        there = np.array([key in lane for lane in lanes])
        return _numeric([lane.get(key, 0.0) for lane in lanes]).reshape(self.lanes), there


def _numeric(given: Any) -> np.ndarray:
    """Numbers, and no text that looks like some: NumPy would read "1" as 1."""
    numbers = np.array(given)
    if numbers.dtype.kind in "US":
        raise ValueError(f"text, {given!r}")
    return numbers.astype(np.float64)
