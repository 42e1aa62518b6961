"""Policies that act on the observations of an environment, as they come: ``predict(observation)``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from cvxmdp.base.errors import CvxmdpWarning, ExperienceError, PolicyError
from cvxmdp.policies.features import OneHot, describe_features, read_features
from cvxmdp.policies.policy import Acting, Arrays, draw_actions, drawn_members, likeliest, masked
from cvxmdp.policies.readers import Observable, ObservationReader
from cvxmdp.policies.tables import TabularPolicy


def on_observations(policy: Any, environment: Observable) -> Any:
    """A policy as it acts in an environment: on its observations, also where they are not states themselves."""
    reader = environment.reader
    if isinstance(policy, ObservedPolicy):
        return policy.reading(reader)
    plain = environment.features is None and reader.sizes and not reader.parts and not reader.shape
    if plain and reader.starts == (0,):
        return policy
    return StatePolicy(policy, reader, environment.features)


def mixture_on_observations(policies: Sequence[Any], environment: Observable) -> ObservedMixture:
    """A policy that draws one of these for each episode."""
    members = [on_observations(policy, environment) for policy in policies]
    return ObservedMixture(
        [
            StatePolicy(one, environment.reader, None) if isinstance(one, TabularPolicy) else one
            for one in members
        ]
    )


class ObservedPolicy(Acting):
    """What acts on observations; subclasses give ``rows``."""

    reader: ObservationReader
    n_actions: int
    numbered = False
    _masks: np.ndarray | None = None

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        """pi(. | o) for a batch of observations as the reader gives them, (n, A)."""
        raise NotImplementedError

    def reading(self, reader: ObservationReader) -> Self:
        """The same with observations read like this."""
        other = copy(self)
        other.reader = reader
        return other

    def probabilities(self, observation: Any) -> np.ndarray:
        """pi(. | observation), (A,); for a batch of observations, (n, A)."""
        inputs, single = self._read(observation)
        rows = self.rows(inputs)
        return rows[0] if single else rows

    set_random_seed = Acting.seed

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, None]:
        """See ``Acting.predict``; ``action_masks``, (A,) or (n, A), are the actions that are available now."""
        self._masks = None if action_masks is None else np.asarray(action_masks, dtype=bool)
        return super().predict(observation, state, episode_start, deterministic)

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        inputs, single = self._read(observation)
        rows = self.rows(inputs)
        if self._masks is not None:
            rows = masked(rows, self._masks.reshape(-1, self.n_actions))
        actions = likeliest(rows, rows) if deterministic else draw_actions(rows, self.random)
        return actions[0] if single else actions

    def checked(self) -> Self:
        """Itself, once it is seen to act on what its reader reads: files may hold arrays that do not fit."""
        try:
            rows = self.rows(self.reader.examples(numbered=self.numbered))
        except (ExperienceError, IndexError, TypeError, ValueError) as error:
            raise PolicyError(f"its arrays do not fit its observations: {error}") from error
        if rows.shape != (2, self.n_actions) or not np.isfinite(rows).all():
            raise PolicyError(
                f"it gives {rows.shape[-1]} chances for {self.n_actions} actions, or none that are numbers"
            )
        return self

    def _read(self, observation: Any) -> tuple[np.ndarray, bool]:
        """A batch of inputs, and whether a single observation was given."""
        reader = self.reader
        if reader.parts:
            single = np.ndim(observation[0]) == 0
            batch: Any = tuple(np.atleast_1d(part) for part in observation)
            count = len(batch[0])
        else:
            values = np.asarray(observation)
            single = values.ndim == len(reader.shape)
            if not single and values.ndim != len(reader.shape) + 1:
                raise PolicyError(
                    f"an observation of {reader.name} has shape {reader.shape}, a batch one more axis; got "
                    f"shape {values.shape}"
                )
            batch = values[None] if single else values
            count = len(batch)
        return reader.read(batch, count, "to the policy", numbered=self.numbered), single


class StatePolicy(ObservedPolicy):
    """A table on states that an observation is turned into: its number, or that of its bin (``features``)."""

    kind = "table on observations"

    def __init__(self, table: TabularPolicy, reader: ObservationReader, features: Any) -> None:
        states = reader.n_states if features is None else features.size
        if states != table.n_states:
            raise PolicyError(
                f"a table of {table.n_states:,} states for {states or 0:,} observed ones"
            )
        names = reader.state_names if features is None else None
        self.table = table if table.state_names else table.named(names, table.action_names)
        self.reader, self.features = reader, features
        self.numbered = features is None or isinstance(features, OneHot)
        self.n_actions = table.n_actions

    @property
    def n_states(self) -> int:
        """Number of states, or of bins."""
        return self.table.n_states

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        states = inputs if self.features is None else np.asarray(self.features.index(inputs))
        return self.table.probabilities()[states]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        features, of_features = describe_features(self.features)
        reader, of_reader = self.reader.contents()
        arrays = {"probabilities": self.table.probabilities(), **of_features, **of_reader}
        return arrays, {"kind": self.kind, "reader": reader, "features": features}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> StatePolicy:
        features = read_features(description["features"], arrays)
        reader = ObservationReader.read_contents(description["reader"], arrays)
        return cls(TabularPolicy(arrays["probabilities"]), reader, features).checked()

    def __repr__(self) -> str:
        return f"StatePolicy({self.table.n_states:,} states of {self.reader.name}; {self.n_actions} actions)"


class ObservedMixture(ObservedPolicy):
    """One of several policies, drawn afresh for each episode and kept until it ends.

    Its occupancy is the mean of theirs: what the theorems on sampling speak of.
    """

    kind = "mixture on observations"

    def __init__(self, members: Sequence[Any]) -> None:
        if not members:
            raise PolicyError("a mixture of no policies")
        self.members = list(members)
        self.reader, self.numbered = self.members[0].reader, self.members[0].numbered
        self.n_actions = self.members[0].n_actions
        self._acting = np.zeros(0, dtype=np.int64)
        self._warned = False

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        """Of the members that act in the lanes at present."""
        rows = np.zeros((len(inputs), self.n_actions))
        for number in np.unique(self._acting):
            mine = self._acting == number
            rows[mine] = self.members[number].rows(inputs[mine])
        return rows

    def probabilities(self, observation: Any) -> np.ndarray:
        """Not those of a mixture: they depend on which policy was drawn for the episode."""
        raise PolicyError(
            "a mixture over episodes has no probabilities of its own: each of policy.members has"
        )

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        """Another policy is drawn in lanes that begin an episode; without a start the last goes on."""
        inputs, _ = self._read(observation)
        begins = np.zeros(len(inputs), dtype=bool)
        if episode_start is None and not self._warned and len(self.members) > 1:
            self._warned = True
            warnings.warn(
                f"this is a mixture: one of {len(self.members)} policies acts for a whole episode, and nothing "
                "in an observation says that one begins. Let the environment say so, env = policy.follow(env) "
                "before the loop, or policy.predict(observation, episode_start=True) at the first step; "
                "otherwise one of them acts for ever",
                CvxmdpWarning,
                stacklevel=3,
            )
        if episode_start is not None:
            begins = np.broadcast_to(np.asarray(episode_start, dtype=bool), begins.shape)
        self._acting = drawn_members(self._acting, begins, len(self.members), self.random)
        return super()._actions(observation, None, deterministic)

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        parts = [member.contents() for member in self.members]
        arrays = {f"{k}/{name}": a for k, (part, _) in enumerate(parts) for name, a in part.items()}
        return arrays, {"kind": self.kind, "members": [description for _, description in parts]}

    @staticmethod
    def parts(arrays: Arrays, description: dict[str, Any]) -> list[tuple[Arrays, dict[str, Any]]]:
        """The contents of each member's own file, of those of the mixture's."""
        mine: list[Arrays] = [{} for _ in description["members"]]
        for name, array in arrays.items():
            number, _, own = name.partition("/")
            mine[int(number)][own] = array
        return list(zip(mine, description["members"], strict=True))

    def __repr__(self) -> str:
        return f"ObservedMixture({len(self.members):,} policies; {self.n_actions} actions)"
