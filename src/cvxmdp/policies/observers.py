"""Policies that act on the observations of an environment, as they come: ``predict(observation)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from cvxmdp.base.errors import PolicyError
from cvxmdp.base.storage import write_arrays
from cvxmdp.experience.environments.environment import Environment
from cvxmdp.policies.families import BoundFamily, BoundMLP
from cvxmdp.policies.features import OneHot, RandomFourier, UniformBins
from cvxmdp.policies.observed import Observed
from cvxmdp.policies.parametric import describe, rebuild
from cvxmdp.policies.predicting import draw_actions, likeliest
from cvxmdp.policies.spaces import ObservationReader
from cvxmdp.policies.tables import TabularPolicy

Arrays = dict[str, np.ndarray]
FEATURES: dict[str, Any] = {"bins": UniformBins, "fourier": RandomFourier, "one-hot": OneHot}


def on_observations(policy: Any, environment: Environment) -> Any:
    """A policy as it acts in an environment: on its observations, also where they are not states themselves."""
    reader = environment.reader
    if isinstance(policy, NetworkPolicy):
        return NetworkPolicy(policy.bound, policy.params, reader)
    plain = environment.features is None and reader.sizes and not reader.parts and not reader.shape
    if plain and reader.starts == (0,):
        return policy
    return StatePolicy(policy, reader, environment.features)


def mixture_on_observations(policies: Sequence[Any], environment: Environment) -> ObservedMixture:
    """A policy that draws one of these for each episode."""
    members = [on_observations(policy, environment) for policy in policies]
    return ObservedMixture(
        [
            StatePolicy(one, environment.reader, None) if isinstance(one, TabularPolicy) else one
            for one in members
        ]
    )


def network_rows(bound: BoundFamily, params: Any) -> Callable[[np.ndarray], np.ndarray]:
    """pi(. | o) of a network for a batch of observations, (n, A).

    A multilayer perceptron is evaluated in NumPy: for the few observations of a step, calling compiled code
    takes many times as long as the layers do.
    """
    if isinstance(bound, BoundMLP):
        mine, numbers = jax.tree.map(np.asarray, (bound, params))
        return lambda inputs: softmax(np.asarray(mine.logits(numbers, inputs)), axis=1)
    return lambda inputs: np.asarray(_chances(bound, params, inputs.astype(np.float32)))


@jax.jit
def _chances(bound: Any, params: Any, observations: Any) -> Any:
    return jnp.exp(bound.log_probabilities(params, observations))


class ObservedPolicy:
    """What acts on observations; subclasses give ``rows``."""

    reader: ObservationReader
    n_actions: int
    numbered = False
    _random: np.random.Generator | None = None

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        """pi(. | o) for a batch of observations as the reader gives them, (n, A)."""
        raise NotImplementedError

    def probabilities(self, observation: Any) -> np.ndarray:
        """pi(. | observation), (A,); for a batch of observations, (n, A)."""
        inputs, single = self._read(observation)
        rows = self.rows(inputs)
        return rows[0] if single else rows

    def seed(self, seed: int | np.random.Generator) -> ObservedPolicy:
        """Begin the random numbers of ``predict`` anew; returns the policy itself."""
        self._random = np.random.default_rng(seed)
        return self

    set_random_seed = seed

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one observation or a batch, as Stable-Baselines3 does: (action, None).

        Args:
            observation: one observation of the environment, or a batch (one per environment).
            state, episode_start: for policies with a memory; this one has none.
            deterministic: take the likeliest action instead of drawing one. That is another policy, of
                which the constraints do not speak, and a warning says so.
        """
        inputs, single = self._read(observation)
        rows = self.rows(inputs)
        actions = likeliest(rows, rows) if deterministic else draw_actions(rows, self.random)
        return (actions[0] if single else actions), None

    @property
    def random(self) -> np.random.Generator:
        """What ``predict`` draws from: of the last ``seed``, else of the operating system's entropy."""
        if self._random is None:
            self._random = np.random.default_rng()
        return self._random

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """All that a file needs: arrays and a description."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        write_arrays(path, "policy", *self.contents())

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
    """A table on states that an observation is turned into: its number, or that of its bin.

    Args:
        table: the policy on states.
        reader: of the observations.
        features: the bins, or None.
    """

    kind = "table on observations"

    def __init__(self, table: TabularPolicy, reader: ObservationReader, features: Any) -> None:
        self.table, self.reader, self.features = table, reader, features
        self.numbered = features is None or isinstance(features, OneHot)
        self.n_actions = table.n_actions

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        """Look up."""
        states = inputs if self.features is None else np.asarray(self.features.index(inputs))
        return self.table.probabilities()[states]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """Probabilities, bins, and how observations are read."""
        arrays = {"probabilities": self.table.probabilities()}
        features, known = _describe_features(self.features)
        reader = _describe_reader(self.reader, arrays)
        return {**arrays, **known}, {"kind": self.kind, "reader": reader, "features": features}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> StatePolicy:
        """The policy of a file's contents."""
        features = _read_features(description["features"], arrays)
        reader = _read_reader(description["reader"], arrays)
        return cls(TabularPolicy(arrays["probabilities"]), reader, features)

    def __repr__(self) -> str:
        return f"StatePolicy({self.table.n_states:,} states of {self.reader.name}; {self.n_actions} actions)"


class NetworkPolicy(ObservedPolicy):
    """A network on observations.

    Args:
        bound: its family, bound to the environment.
        params: its parameters.
        reader: of the observations.
    """

    kind = "network on observations"

    def __init__(
        self, bound: BoundFamily, params: Any, reader: ObservationReader | None = None
    ) -> None:
        self.bound, self.params = bound, jax.tree.map(np.asarray, params)
        self.n_actions = int(bound.actions.shape[1])
        self.family = bound.name
        if reader is not None:
            self.reader = reader
        self._rows = network_rows(bound, self.params)

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        """The network."""
        rows = self._rows(inputs).astype(np.float64)
        return rows / rows.sum(axis=1, keepdims=True)

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """Parameters, what the network sees, and how observations are read."""
        bound = self.bound
        if not isinstance(bound, BoundMLP) or not isinstance(bound.inputs, Observed):
            raise PolicyError(
                f"a {self.family} is code, which is not written to files. Its parameters are in policy.params: "
                "save those, and make the module and the policy anew."
            )
        leaves = jax.tree.leaves(self.params)
        arrays = {f"params{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
        structure = describe(self.params)
        features, known = _describe_features(bound.inputs.features)
        arrays |= known
        arrays["middle"], arrays["scale"] = map(
            np.asarray, (bound.inputs.middle, bound.inputs.scale)
        )
        description = {
            "kind": self.kind,
            "widths": list(bound.widths),
            "actions": self.n_actions,
            "structure": structure,
            "features": features,
            "reader": _describe_reader(self.reader, arrays),
        }
        return arrays, description

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> NetworkPolicy:
        """The policy of a file's contents."""
        features = _read_features(description["features"], arrays)
        seen = Observed(arrays["middle"], arrays["scale"], features)
        actions = np.ones((1, int(description["actions"])), dtype=bool)
        bound = BoundMLP(actions, seen, tuple(int(width) for width in description["widths"]))
        params = rebuild(description["structure"], arrays)
        wanted = jax.eval_shape(bound.init, jax.random.key(0))
        shapes = [leaf.shape for leaf in jax.tree.leaves(wanted)]
        if [leaf.shape for leaf in jax.tree.leaves(params)] != shapes:
            raise PolicyError(f"the parameters do not have the shapes {shapes} of the network")
        return cls(bound, params, _read_reader(description["reader"], arrays))

    def __repr__(self) -> str:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        where = self.reader.name if hasattr(self, "reader") else "observations"
        return f"NetworkPolicy({self.family} on {where}; {size:,} parameters; {self.n_actions} actions)"


class ObservedMixture(ObservedPolicy):
    """One of several policies, drawn afresh for each episode and kept until it ends.

    Its occupancy is the mean of theirs: what the theorems on sampling speak of.

    Args:
        members: the policies that are drawn from.
    """

    kind = "mixture on observations"

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = list(members)
        self.reader, self.numbered = self.members[0].reader, self.members[0].numbered
        self.n_actions = self.members[0].n_actions
        self._acting = np.zeros(0, dtype=np.int64)

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

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions, where another policy is drawn in lanes that begin an episode.

        Args:
            observation: one, or a batch (one per environment).
            state: not used; which policy acts where is remembered here.
            episode_start: where true, an episode begins. Without it, the policy drawn first goes on.
            deterministic: take the likeliest action, with a warning.
        """
        inputs, _ = self._read(observation)
        begins = np.zeros(len(inputs), dtype=bool)
        if episode_start is not None:
            begins = np.broadcast_to(np.asarray(episode_start, dtype=bool), begins.shape)
        if len(self._acting) != len(inputs):
            self._acting, begins = np.zeros(len(inputs), dtype=np.int64), ~np.zeros_like(begins)
        drawn = self.random.integers(len(self.members), size=len(inputs))
        self._acting = np.where(begins, drawn, self._acting)
        return super().predict(observation, deterministic=deterministic)

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """Those of its members."""
        parts = [member.contents() for member in self.members]
        arrays = {f"{k}/{name}": a for k, (part, _) in enumerate(parts) for name, a in part.items()}
        return arrays, {"kind": self.kind, "members": [description for _, description in parts]}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> ObservedMixture:
        """The policy of a file's contents."""
        members = []
        for k, described in enumerate(description["members"]):
            mine = {
                name.removeprefix(f"{k}/"): array
                for name, array in arrays.items()
                if name.startswith(f"{k}/")
            }
            kind = NetworkPolicy if described["kind"] == NetworkPolicy.kind else StatePolicy
            members.append(kind.read(mine, described))
        if not members:
            raise PolicyError("a mixture of no policies")
        return cls(members)

    def __repr__(self) -> str:
        return f"ObservedMixture({len(self.members):,} policies; {self.n_actions} actions)"


def _describe_reader(reader: ObservationReader, arrays: Arrays) -> dict[str, Any]:
    arrays["low"] = np.broadcast_to(np.asarray(reader.low, dtype=np.float64), reader.shape)
    arrays["high"] = np.broadcast_to(np.asarray(reader.high, dtype=np.float64), reader.shape)
    return {
        "sizes": list(reader.sizes),
        "starts": list(reader.starts),
        "shape": list(reader.shape),
        "parts": reader.parts,
        "name": reader.name,
    }


def _read_reader(described: dict[str, Any], arrays: Arrays) -> ObservationReader:
    sizes, starts, shape = (
        tuple(int(number) for number in described[name]) for name in ("sizes", "starts", "shape")
    )
    name, parts = str(described["name"]), bool(described["parts"])
    return ObservationReader(sizes, starts, shape, parts, name, arrays["low"], arrays["high"])


def _describe_features(features: Any) -> tuple[str, Arrays]:
    for name, kind in FEATURES.items():
        if isinstance(features, kind):
            return name, {f"features/{k}": array for k, array in features.arrays().items()}
    if features is None:
        return "none", {}
    raise PolicyError(
        f"{features!r} are code, which is not written to files: keep the parameters (policy.params) and make "
        "the policy anew"
    )


def _read_features(name: str, arrays: Arrays) -> Any:
    mine = {k.removeprefix("features/"): v for k, v in arrays.items() if k.startswith("features/")}
    return None if name == "none" else FEATURES[name].of_arrays(mine)
