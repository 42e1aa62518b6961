"""Gymnasium environments as a source of episodes: single ones and vectors, checked at every step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cvxmdp.base.described import described
from cvxmdp.base.errors import ExperienceError, did_you_mean, require
from cvxmdp.experience.declared import read_bounds
from cvxmdp.experience.environments.environment import Environment, LaneStep
from cvxmdp.experience.environments.patience import ImpatientError, patience
from cvxmdp.experience.environments.side_by_side import Outcome, Several, Told
from cvxmdp.models.validation import read_discount, read_table
from cvxmdp.policies.features import Features
from cvxmdp.policies.readers import ObservationReader, counted_actions

LANES = 16  # episodes at a time where nothing else is said


class GymnasiumEnv(Environment):
    """A Gymnasium environment with discrete actions, single or a vector of them.

    Rewards and entries of ``info`` are signals: "reward", and by their key any entry that is a number.
    The six-tuple of Safety-Gymnasium (its third element is the cost) gives the signal "cost".

    Args:
        env_or_id: an environment, a vector environment, or an id that ``gymnasium.make`` understands.
        discount: gamma.
        features: for observations that are not discrete; see ``cvxmdp.policies.features``. Discrete
            observations (also tuples of them and MultiDiscrete) are states.
        n_envs: with an id: how many lanes. Where the environment comes with a vectorised form of its own, as
            CartPole does, that is stepped; otherwise as many single ones in turn.
        signals: further signals, each a function (observation, action, next observation, reward, terminated)
            -> number, as ``from_gymnasium_table`` takes them:
            ``signals={"fall": lambda o, a, p, r, end: float(end and r == 0)}``.
        absent: the value of ``info`` entries on steps that do not have them, {"cost": 0.0}; otherwise a
            missing entry is an error.
        bounds: the least and the largest value of signals, {"cost": (0, 1)}: what is proven of counted states
            rests on this promise.
        step_seconds: how long the environment may take for one step or reset; then it is an error, and what was
            learned so far is kept.
        **make_arguments: passed to ``gymnasium.make`` with an id.
    """

    def __init__(
        self,
        env_or_id: Any,
        discount: float,
        *,
        features: Features | None = None,
        n_envs: int | None = None,
        signals: Mapping[str, Outcome] | None = None,
        absent: Mapping[str, float] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        step_seconds: float = 600.0,
        **make_arguments: Any,
    ) -> None:
        gymnasium = require("gymnasium", "gym")
        self.discount = read_discount(discount)
        self.absent = {name: float(value) for name, value in (absent or {}).items()}
        self.bounds = read_bounds(bounds)
        self.step_seconds = float(step_seconds)
        if not 0 < self.step_seconds < math.inf:
            raise ExperienceError(f"step_seconds must be positive and finite; got {step_seconds}")
        self.made_here = isinstance(env_or_id, str)
        if n_envs is not None and (n_envs < 1 or not self.made_here):
            raise ExperienceError(
                f"n_envs={n_envs!r} goes with an id and is at least 1; of an environment of your own make "
                "a vector: gymnasium.vector.SyncVectorEnv([make] * n)"
            )
        if make_arguments and not self.made_here:
            raise ExperienceError(f"{sorted(make_arguments)} only go with an id")
        told = dict(read_table(signals, "signals", '{"fall": function}'))
        if not self.made_here:
            if told and hasattr(env_or_id, "num_envs"):
                raise ExperienceError(
                    "signals= are of single environments: give an id with n_envs=, or one environment"
                )
            self.env = Told(env_or_id, told) if told else env_or_id
        elif told:
            self.env = Several(
                lambda: Told(gymnasium.make(env_or_id, **make_arguments), told), n_envs or LANES
            )
        elif getattr(gymnasium.spec(env_or_id), "vector_entry_point", None):
            self.env = gymnasium.make_vec(
                env_or_id,
                n_envs or LANES,
                vectorization_mode="vector_entry_point",
                **make_arguments,
            )
        else:
            self.env = Several(lambda: gymnasium.make(env_or_id, **make_arguments), n_envs or LANES)
        try:
            self._read_spaces(features)
        except Exception:
            self.close()
            raise
        self.waiting_show_anything = not isinstance(self.env, Several)
        mode = str((getattr(self.env, "metadata", None) or {}).get("autoreset_mode", ""))
        self.shows_last = not any(word in mode.upper() for word in ("SAME", "DISABLED"))
        envs = self.env.envs if isinstance(self.env, Several) else [] if self.vector else [self.env]
        self.idles = isinstance(self.env, Several) or not self.vector
        limit = getattr(getattr(self.env, "spec", None), "max_episode_steps", None)
        self.episode_limit = int(limit) if limit else None
        # Now, before anything is played: what an environment remembers of its episodes is no part of it.
        first = envs[0] if envs else self.env
        self._identity = described([repr(self), make_arguments, told, self.absent, first])
        inner = [getattr(env, "unwrapped", env) for env in envs]
        self._masks = [
            env.action_masks for env in inner if callable(getattr(env, "action_masks", None))
        ]

    def _read_spaces(self, features: Features | None) -> None:
        env = self.env
        if not hasattr(env, "reset") or not hasattr(env, "step"):
            raise ExperienceError(
                f"expected a Gymnasium environment or its id; got {type(env).__name__}"
            )
        self.vector = hasattr(env, "num_envs")
        self.n_lanes = int(env.num_envs) if self.vector else 1
        spec = getattr(env, "spec", None)
        self.name = getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__
        observed = env.single_observation_space if self.vector else env.observation_space
        acted = env.single_action_space if self.vector else env.action_space
        self.n_actions, self.first_action = counted_actions(acted, self.name)
        self.reader = ObservationReader.of(observed, self.name)
        self.measure_in(features, observed)

    @property
    def identity(self) -> str:
        """With the arguments, signals and attributes it was made with."""
        return self._identity

    def close(self) -> None:
        """Close the environment if it was made here; one that was given stays its owner's."""
        if self.made_here:
            self.env.close()

    def reset(self, seed: int | None = None) -> Any:
        arguments = {} if seed is None else {"seed": int(seed)}
        try:
            with patience(self.step_seconds):
                answer = self.env.reset(**arguments)
        except Exception as error:
            raise self._failed(error, "when it was reset") from error
        observations = answer[0] if isinstance(answer, tuple) else answer
        return self._batch(observations)

    def renewed(self, observations: Any, over: np.ndarray) -> tuple[Any, np.ndarray]:
        nobody = np.zeros(self.n_lanes, dtype=bool)
        if not over.any() or not self.shows_last:  # begun with the step already
            return observations, nobody
        if not self.idles:
            return observations, over
        if not self.vector:
            return self.reset(), nobody
        try:
            with patience(self.step_seconds):
                return self.env.begin(over), nobody
        except Exception as error:
            raise self._failed(error, "when a lane was reset") from error

    def step(
        self, actions: np.ndarray, names: Iterable[str], done: np.ndarray, when: str
    ) -> LaneStep:
        given = np.asarray(actions) + self.first_action
        self._require_allowed(actions, done, when)
        try:
            with patience(self.step_seconds):
                if isinstance(self.env, Several):
                    answer = self.env.step(given, done)
                else:
                    answer = self.env.step(given if self.vector else int(given[0]))
        except Exception as error:
            raise self._failed(error, when) from error
        if not isinstance(answer, tuple) or len(answer) not in (5, 6):
            raise ExperienceError(
                f"{self.name} gave {len(answer) if isinstance(answer, tuple) else answer!r} values for a "
                "step; expected (observation, reward, terminated, truncated, info), or six with the cost "
                "after the reward. Older Gym environments need a compatibility wrapper."
            )
        observations, reward, *cost, terminated, truncated, info = answer
        ends = self._flags(terminated, "terminated", when)
        cuts = self._flags(truncated, "truncated", when)
        found = dict(zip(("reward", "cost"), (reward, *cost), strict=False))
        signals = {name: self._signal(name, found, info, ends | cuts, done, when) for name in names}
        return LaneStep(self._revived(self._batch(observations), ends | cuts), signals, ends, cuts)

    def _batch(self, observations: Any) -> Any:
        """Observations with the lanes as their first axis, for a single environment as well."""
        if self.vector:
            return observations
        if self.reader.parts:
            return tuple(np.asarray(part)[None] for part in observations)
        return np.asarray(observations)[None]

    def _signal(
        self,
        name: str,
        found: Mapping[str, Any],
        info: Any,
        over: np.ndarray,
        done: np.ndarray,
        when: str,
    ) -> np.ndarray:
        if name in found:
            return self._numbers(found[name], name, when)
        values, missing = self._from_info(name, info, over, when)
        if name in self.absent:
            values = np.where(missing, self.absent[name], values)
        elif (missing & ~done).any():
            infos = [info] if isinstance(info, Mapping) else info
            known = {"reward", *found, *(str(key) for one in infos for key in one)}
            known = {key for key in known if not key.startswith("_")}
            raise ExperienceError(
                f"{self.name} gave no info[{name!r}] {when}. {did_you_mean(name, sorted(known))} If it is only "
                f"there on some steps, say what it is on the others: absent={{{name!r}: 0.0}}."
            )
        return values

    def _numbers(self, given: Any, name: str, when: str) -> np.ndarray:
        try:
            return np.array(given, dtype=np.float64).reshape(self.n_lanes)
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"{self.name} gave the signal {name!r} as {given!r} {when}; expected a number in each lane"
            ) from error

    def _flags(self, given: Any, name: str, when: str) -> np.ndarray:
        """Whether episodes are over, per lane; words such as "False" are no flags."""
        flags = np.asarray(given)
        known = flags.dtype == bool or (
            flags.dtype.kind in "iuf" and bool(((flags == 0) | (flags == 1)).all())
        )
        if flags.size != self.n_lanes or not known:
            raise ExperienceError(
                f"{self.name} gave {name} as {given!r} {when}; expected true or false in each lane"
            )
        return flags.astype(bool).reshape(self.n_lanes)

    def _require_allowed(self, actions: np.ndarray, done: np.ndarray, when: str) -> None:
        """That no action is taken which the environment forbids by ``action_masks()``."""
        for lane, masks in enumerate(self._masks):
            if done[lane]:
                continue
            allowed = np.asarray(masks(), dtype=bool).ravel()
            if allowed.size != self.n_actions or not allowed[actions[lane]]:
                raise ExperienceError(
                    f"{self.name} forbids action {int(actions[lane])} {when} (its action_masks() are "
                    f"{allowed.astype(int).tolist()}). In an environment every action may be drawn: wrap it so "
                    "that a forbidden action does something allowed."
                )

    def _from_info(
        self, name: str, info: Any, over: np.ndarray, when: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """An entry of info per lane, and where it is missing."""
        try:
            if not self.vector:
                held = name in info
                return np.array([float(info[name]) if held else 0.0]), np.array([not held])
            values, there = self._entry(name, info)
            if "final_info" in info:  # autoreset in the same step: the last step's entries are here
                last, known = self._entry(name, info["final_info"])
                values, there = np.where(over, last, values), np.where(over, known, there)
            return values, ~there
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"{self.name} gave info[{name!r}] {when}, which is not a number: {error}"
            ) from error

    def _entry(self, name: str, info: Any) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.zeros(self.n_lanes, dtype=bool)
        if isinstance(info, Mapping):
            if name not in info:
                return np.zeros(self.n_lanes), nothing
            mask = np.asarray(info.get(f"_{name}", ~nothing), dtype=bool)
            raw = np.where(mask, np.asarray(info[name], dtype=object), 0.0)
            return raw.astype(np.float64).reshape(self.n_lanes), mask
        lanes = [lane if isinstance(lane, Mapping) else {} for lane in info]  # a list of infos
        there = np.array([name in lane for lane in lanes])
        return np.array([float(lane.get(name, 0.0)) for lane in lanes]), there

    def _failed(self, error: Exception, when: str) -> ExperienceError:
        if isinstance(error, ImpatientError):
            return ExperienceError(
                f"{self.name} gave {error} {when}. If it is only slow, allow more: step_seconds=..."
            )
        return ExperienceError(
            f"{self.name} raised {type(error).__name__} {when}: {error}. Nothing of the episode is used."
        )

    def _revived(self, observations: Any, over: np.ndarray) -> Any:
        """A vector environment without autoreset must not be stepped on: its lanes are reset."""
        mode = getattr(self.env, "metadata", None) or {}
        if (
            self.vector
            and over.any()
            and "Disabled" in str(getattr(mode.get("autoreset_mode"), "value", ""))
        ):
            try:
                return self.env.reset(options={"reset_mask": over})[0]
            except Exception as error:
                raise self._failed(error, "when a lane was reset") from error
        return observations

    def __repr__(self) -> str:
        what = f"{self.n_states:,} " + ("states" if self.features is None else "features")
        lanes = f"; {self.n_lanes} lanes" if self.n_lanes > 1 else ""
        return f"GymnasiumEnv({self.name}; {what}; {self.n_actions} actions; discount {self.discount:g}{lanes})"
