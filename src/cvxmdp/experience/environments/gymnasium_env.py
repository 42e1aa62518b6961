"""Gymnasium environments as a source of episodes: single ones and vectors, checked at every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cvxmdp.base.described import described
from cvxmdp.base.errors import ExperienceError, require
from cvxmdp.base.gymnasium_ids import make_environment, said_as_ours
from cvxmdp.experience.declared import read_bounds
from cvxmdp.experience.environments.environment import Environment, LaneStep
from cvxmdp.experience.environments.processes import InProcesses
from cvxmdp.experience.environments.side_by_side import (
    ImpatientError,
    Outcome,
    Several,
    SideBySide,
    Told,
    kept,
    patience,
)
from cvxmdp.experience.environments.signal_reading import FromInfo, SignalReader
from cvxmdp.models.limited_horizon import episode_horizon
from cvxmdp.models.validation import read_table
from cvxmdp.policies.features import Features
from cvxmdp.policies.readers import ObservationReader, read_actions

LANES = 16  # episodes at a time where nothing else is said


class GymnasiumEnv(Environment):
    """A Gymnasium environment, single or a vector of them.

    Rewards and entries of ``info`` are signals: "reward", and by their key any entry that is a number. Where
    the reward is a vector (MO-Gymnasium), its parts are "reward[0]", "reward[1]", ... The six-tuple of
    Safety-Gymnasium (its third element is the cost) gives the signal "cost".

    Args:
        env: an environment, a vector environment, an id that ``gymnasium.make`` understands, or a function
            that makes an environment (``lambda: MyEnv()``, or the class).
        discount: gamma; 1 adds up whole episodes of at most ``horizon`` steps.
        horizon: how many steps count. Without it all do, which needs a discount below one, or an environment
            that says where it cuts its episodes (``max_episode_steps``).
        features: for atoms other than sums of signals, where observations are not discrete; see
            ``cvxmdp.policies.features``. Discrete observations (also tuples of them and MultiDiscrete) are
            states.
        n_envs: with an id or a function: how many lanes. Where the environment comes with a vectorised form of
            its own, as CartPole does, that is stepped; otherwise as many single ones in turn, or
        workers: in so many processes. What a lane gives does not depend on who steps it.
        signals: further signals, each a function (observation, action, next observation, reward, terminated)
            -> number, as ``from_gymnasium_table`` takes them, or an entry of ``info`` by another name:
            ``signals={"fall": lambda o, a, p, r, end: float(end and r == 0), "fuel": from_info("fuel_used")}``.
        rewards: names for the parts of a reward that is a vector: ``("time", "treasure")``.
        absent: the value of ``info`` entries on steps that do not have them, {"cost": 0.0}; otherwise a
            missing entry is an error.
        bounds: the least and the largest value of signals, {"cost": (0, 1)}: what is proven of counted states
            rests on this promise.
        step_seconds: how long the environment may take for one step or reset; then it is an error, and what was
            learned so far is kept. With ``workers`` a step that never comes back is ended, too.
        **make_arguments: passed on to whatever makes the environment.
    """

    def __init__(
        self,
        env: Any,
        discount: float,
        *,
        horizon: int | None = None,
        features: Features | None = None,
        n_envs: int | None = None,
        workers: int | None = None,
        signals: Mapping[str, Outcome | FromInfo] | None = None,
        rewards: Sequence[str] = (),
        absent: Mapping[str, float] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        step_seconds: float = 600.0,
        **make_arguments: Any,
    ) -> None:
        self.bounds = read_bounds(bounds)
        self.step_seconds = float(step_seconds)
        if not 0 < self.step_seconds < math.inf:
            raise ExperienceError(f"step_seconds must be positive and finite; got {step_seconds}")
        given = dict(read_table(signals, "signals", '{"fall": function}'))
        told = {name: one for name, one in given.items() if not isinstance(one, FromInfo)}
        make = _maker(env, make_arguments)
        self.made_here = make is not None
        self._check_lanes(env, n_envs, workers, make_arguments, told)
        self.env = self._lanes(env, make, told, n_envs, workers, make_arguments)
        try:
            self._read_spaces(features, rewards)
            keys = {name: one.key for name, one in given.items() if isinstance(one, FromInfo)}
            gone = {name: float(value) for name, value in (absent or {}).items()}
            self.declared = (*given, *gone)
            side_by_side = isinstance(self.env, SideBySide)
            self.told = SignalReader(
                self.name, self.n_lanes, not side_by_side, self.reward_names, keys, gone
            )
            limit = getattr(getattr(self.env, "spec", None), "max_episode_steps", None)
            self.horizon = episode_horizon(
                discount, horizon, int(limit) if limit else None, self.name
            )
        except Exception:
            self.close()
            raise
        self.episode_limit = self.horizon.limit or (int(limit) if limit else None)
        self.waiting_show_anything = not side_by_side
        mode = str((getattr(self.env, "metadata", None) or {}).get("autoreset_mode", ""))
        self.shows_last = not any(word in mode.upper() for word in ("SAME", "DISABLED"))
        self.idles = side_by_side
        # Now, before anything is played: what an environment remembers of its episodes is no part of it.
        first = self.env.unwrapped if side_by_side else self.env
        made = [make_arguments, told, keys, self.reward_names, gone]
        self._identity = described([repr(self), *made, first])
        self._strict = callable(getattr(first, "action_masks", None))

    def _check_lanes(
        self, env: Any, n_envs: Any, workers: Any, make_arguments: Any, told: Mapping[str, Any]
    ) -> None:
        for name, count in (("n_envs", n_envs), ("workers", workers)):
            if count is not None and (count < 1 or not self.made_here):
                raise ExperienceError(
                    f"{name}={count!r} goes with an id or a function that makes an environment, and is at "
                    "least 1: GymnasiumEnv(lambda: MyEnv(), ...)"
                )
        if make_arguments and not self.made_here:
            raise ExperienceError(f"{sorted(make_arguments)} only go with an id or a function")
        if told and not self.made_here and hasattr(env, "num_envs"):
            raise ExperienceError(
                "signals= that are functions are of single environments: give an id with n_envs=, a function "
                "that makes one, or one environment"
            )

    def _lanes(
        self,
        env: Any,
        make: Callable[[], Any] | None,
        told: Mapping[str, Outcome],
        n_envs: int | None,
        workers: int | None,
        make_arguments: dict[str, Any],
    ) -> Any:
        """The lanes: a vector environment as it is, or single ones side by side."""
        if make is None:
            if hasattr(env, "num_envs"):
                return env
            if not hasattr(env, "reset") or not hasattr(env, "step"):
                raise ExperienceError(
                    "expected a Gymnasium environment, its id, or a function that makes one; got "
                    f"{type(env).__name__}"
                )
            return Several(lambda: Told(env, told) if told else env, 1)
        lanes = n_envs or LANES
        gymnasium = require("gymnasium", "gym")
        own = isinstance(env, str) and getattr(_spec(env), "vector_entry_point", None)
        if own and not told and workers is None:
            with said_as_ours(env):
                return gymnasium.make_vec(
                    env, lanes, vectorization_mode="vector_entry_point", **make_arguments
                )

        def one() -> Any:
            made = make()
            if not hasattr(made, "reset") or not hasattr(made, "observation_space"):
                raise ExperienceError(
                    f"the function that makes environments made {made!r}; expected a Gymnasium environment"
                )
            return Told(made, told) if told else made

        if workers is not None:
            return InProcesses(one, lanes, workers, self.step_seconds)
        return Several(one, lanes)

    def _read_spaces(self, features: Features | None, rewards: Sequence[str]) -> None:
        env = self.env
        self.n_lanes = int(env.num_envs)
        inner = getattr(env, "unwrapped", env)
        self.name = getattr(getattr(env, "spec", None), "id", None) or type(inner).__name__
        self.n_actions, self.first_action, self.action_box = read_actions(
            env.single_action_space, self.name
        )
        self.reader = ObservationReader.of(env.single_observation_space, self.name)
        self.measure_in(features, env.single_observation_space)
        if isinstance(rewards, str):
            raise ExperienceError(f'rewards= takes names, ("time", "treasure"); got {rewards!r}')
        space = getattr(env if isinstance(env, SideBySide) else inner, "reward_space", None)
        size = int(np.prod(space.shape[-1:])) if space is not None and space.shape else 0
        self.reward_names = tuple(rewards) or tuple(f"reward[{k}]" for k in range(size))
        if size and len(self.reward_names) != size:
            raise ExperienceError(
                f"{self.name} gives rewards of {size} parts; rewards= names {len(self.reward_names)}"
            )

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
        when = "when it was reset"
        try:
            with patience(self.step_seconds):
                answer = self.env.reset(**arguments)
        except Exception as error:
            raise self._failed(error, when) from error
        observations, info = answer if isinstance(answer, tuple) else (answer, {})
        self.masks = self._available(info, when)
        return kept(observations)

    def renewed(self, observations: Any, over: np.ndarray) -> tuple[Any, np.ndarray]:
        nobody = np.zeros(self.n_lanes, dtype=bool)
        if not over.any() or not self.shows_last:  # begun with the step already
            return observations, nobody
        if not self.idles:
            return observations, over
        when = "when a lane was reset"
        try:
            with patience(self.step_seconds):
                found = self.env.begin(over)
        except Exception as error:
            raise self._failed(error, when) from error
        self.masks = self._available(self.env.infos, when)
        return found, nobody

    def step(
        self, actions: np.ndarray, names: Iterable[str], done: np.ndarray, when: str
    ) -> LaneStep:
        given = self._given(actions)
        self._require_allowed(actions, done, when)
        try:
            with patience(self.step_seconds):
                answer = self.env.step(given, done) if self.idles else self.env.step(given)
        except Exception as error:
            raise self._failed(error, when) from error
        if not isinstance(answer, tuple) or len(answer) not in (5, 6):
            raise ExperienceError(
                f"{self.name} gave {len(answer) if isinstance(answer, tuple) else answer!r} values for a "
                "step; expected (observation, reward, terminated, truncated, info), or six with the cost "
                "after the reward. Older Gym environments need a compatibility wrapper."
            )
        observations, reward, *cost, terminated, truncated, info = answer
        ends, cuts = (
            self.told.flags(flags, name, when)
            for flags, name in ((terminated, "terminated"), (truncated, "truncated"))
        )
        found = self.told.given(reward, tuple(cost), done, when)
        over = ends | cuts
        signals = {name: self.told.read(name, found, info, over, done, when) for name in names}
        self.masks = self._available(self.env.infos if self.idles else info, when)
        return LaneStep(kept(self._revived(observations, over)), signals, ends, cuts)

    def _given(self, actions: np.ndarray) -> Any:
        """Actions as the environment takes them; vectors of numbers are cut to their box."""
        if self.action_box is not None:
            low, high = self.action_box
            asked = np.asarray(actions, dtype=np.float64).reshape(self.n_lanes, *low.shape)
            space = self.env.single_action_space
            return np.clip(asked, low, high).astype(space.dtype)
        numbers = np.asarray(actions) + self.first_action
        return numbers.tolist() if self.idles else numbers

    def _available(self, info: Any, when: str) -> np.ndarray | None:
        if self.action_box is not None:
            return None
        return self.told.masks(info, self.n_actions, when)

    def _require_allowed(self, actions: np.ndarray, done: np.ndarray, when: str) -> None:
        """That no action is taken which the environment forbids by ``action_masks()``."""
        if not self._strict or self.masks is None:
            return
        forbidden = ~self.masks[np.arange(self.n_lanes), actions] & ~done
        if forbidden.any():
            lane = int(np.argmax(forbidden))
            raise ExperienceError(
                f"{self.name} forbids action {int(actions[lane])} {when} (its action_masks() are "
                f"{self.masks[lane].astype(int).tolist()}). This policy may draw every action: wrap the "
                "environment so that a forbidden action does something allowed."
            )

    def _failed(self, error: Exception, when: str) -> ExperienceError:
        where = when
        if isinstance(self.env, SideBySide) and self.env.seeds[self.env.lane] is not None:
            where += f" (lane {self.env.lane}, seeded with {self.env.seeds[self.env.lane]})"
        if isinstance(error, ExperienceError):
            return ExperienceError(f"{self.name}: {error}")
        if isinstance(error, ImpatientError):
            return ExperienceError(
                f"{self.name} gave {error} {where}. If it is only slow, allow more: step_seconds=..."
            )
        return ExperienceError(
            f"{self.name} raised {type(error).__name__} {where}: {error}. Nothing of the episode is used."
        )

    def _revived(self, observations: Any, over: np.ndarray) -> Any:
        """A vector environment without autoreset must not be stepped on: its lanes are reset."""
        mode = getattr(self.env, "metadata", None) or {}
        if (
            not self.idles
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
        if self.features is None and not self.numbered:
            what = f"observations of shape {self.reader.shape}"
        lanes = f"; {self.n_lanes} lanes" if self.n_lanes > 1 else ""
        acts = f"{self.n_actions} actions"
        if self.action_box is not None:
            acts = f"actions in a box of shape {self.action_box[0].shape}"
        return f"GymnasiumEnv({self.name}; {what}; {acts}; {_ahead(self)}{lanes})"


def _ahead(env: Environment) -> str:
    return f"discount {env.discount:g}" if env.horizon.limit is None else str(env.horizon)


def _spec(name: str) -> Any:
    """What an id stands for, so that a process can make it that has not registered it; else the id."""
    gymnasium = require("gymnasium", "gym")
    module, _, bare = name.rpartition(":")
    if module:
        require(module, "gym")
    try:
        return gymnasium.spec(bare)
    except gymnasium.error.Error:
        return name


def _maker(env: Any, arguments: dict[str, Any]) -> Callable[[], Any] | None:
    """What makes environments: of an id or a function; None of an environment."""
    if isinstance(env, str):
        spec = _spec(env)
        return lambda: make_environment(spec, **arguments)
    if isinstance(env, type) or (callable(env) and not hasattr(env, "step")):
        return lambda: env(**arguments)
    return None
