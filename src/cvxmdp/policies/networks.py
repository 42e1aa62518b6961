"""Networks: softmax policies of a state's numbers, or of observations as they come.

They are families like any other (``cvxmdp.policies.families``). On a model they see one-hot states or given
numbers of each state; in an environment whose observations are no states, the observations themselves, scaled,
or features of them, and what is deployed then acts on observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from cvxmdp.base.arrays import Array, namespace
from cvxmdp.base.compiling import program
from cvxmdp.base.errors import PolicyError, require
from cvxmdp.base.precision import host
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.space import Space
from cvxmdp.policies.families import BoundFamily, Params
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.features import describe_features, read_features
from cvxmdp.policies.observers import ObservedPolicy
from cvxmdp.policies.onnx_files import write_perceptron
from cvxmdp.policies.parametric import rebuild, written_params
from cvxmdp.policies.policy import Arrays
from cvxmdp.policies.readers import ObservationReader


@dataclass(frozen=True, eq=False)
class Observed(Pytree):
    """Observations (n, ...) as inputs of a network: shifted and scaled, or features of them.

    NumPy in, NumPy out, where its own arrays are NumPy's: step by step, that is what is fastest.

    Attributes:
        middle, scale: of the observations' box; zeros and ones where it has no bounds.
        features: what the network sees instead of the numbers themselves, or None.
        reach: where shifted and scaled numbers are cut; infinite where they are not.
    """

    middle: Array
    scale: Array
    features: Any
    reach: float = math.inf
    static: ClassVar[tuple[str, ...]] = ("features", "reach")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the network sees."""
        return np.shape(self.middle) if self.features is None else (self.features.size,)

    def __call__(self, observations: Array) -> Array:
        """Inputs (n, ...)."""
        if self.features is not None:
            return self.features(observations)
        scaled = (observations - self.middle) / self.scale
        return scaled if math.isinf(self.reach) else scaled.clip(-self.reach, self.reach)


def observed(space: Space, features: Any) -> Observed | None:
    """How a network sees the observations of a space; None where it sees states by their number.

    Args:
        space: what a family is bound to: a model, or the ``FeatureSpace`` of an environment.
        features: of observations, asked for by the user, or None.
    """
    environment = space.environment if isinstance(space, FeatureSpace) else None
    if environment is None or (environment.numbered and features is None):
        return None
    reader = environment.reader
    middle, scale = reader.box if features is None else (np.zeros(()), np.ones(()))
    return Observed(middle, scale, features)


def _given_inputs(inputs: Any) -> Any:
    """An array of numbers, features of observations, or None."""
    return inputs if inputs is None or callable(inputs) else np.array(inputs, dtype=np.float64)


def _shown(inputs: Any) -> str:
    return repr(inputs) if callable(inputs) else f"<{inputs.shape[1]} numbers per state>"


def _read_inputs(inputs: Any, space: Space) -> Any:
    """Numbers per state (S, d), what is seen of observations, or None: one-hot states."""
    if callable(inputs) and not isinstance(space, FeatureSpace):
        raise PolicyError(
            f"{inputs!r} are features of observations, and the model has states: give an array (S, d)"
        )
    if callable(inputs) or inputs is None:
        return observed(space, inputs)
    inputs = space.in_rows(inputs, 2)
    if inputs.ndim != 2 or inputs.shape[0] != space.shape[0] or not np.isfinite(inputs).all():
        raise PolicyError(
            f"the inputs of a network are finite numbers of shape (S, d) with S = {space.shape[0]}; got "
            f"shape {inputs.shape}"
        )
    return inputs


class BoundNetwork(BoundFamily):
    """A network. Subclasses give ``init``, ``logits`` and ``inputs``, what it sees."""

    inputs: Any  # an array (S, d), how observations are seen, or None: one-hot states

    @property
    def observes(self) -> bool:
        return isinstance(self.inputs, Observed)

    def log_probabilities(self, params: Params, states: Array) -> Array:
        """log pi(. | s) for a batch of states or observations, shape (n, A)."""
        if not self.observes:
            return super().log_probabilities(params, states)
        return jax.nn.log_softmax(self.logits(params, states), axis=1)

    def rows(self, params: Params) -> Callable[[np.ndarray], np.ndarray]:
        """pi(. | o) of a batch of observations, (n, A), outside of compiled code."""
        return lambda inputs: np.asarray(_chances(self, params, inputs.astype(np.float32)))

    def deploy(self, params: Params) -> Any:
        return NetworkPolicy(self, params) if self.observes else super().deploy(params)


@program()
def _chances(bound: Any, params: Any, observations: Any) -> Any:
    return jnp.exp(bound.log_probabilities(params, observations))


class MLP:
    """A softmax of a multilayer perceptron with tanh units.

    Args:
        *widths: of the hidden layers.
        inputs: what the network sees of a state, shape (S, d); one-hot states when not given. In an
            environment: features of the observations; observations that are no states are otherwise seen as
            they are, scaled to the box they lie in where it has borders.
    """

    def __init__(self, *widths: int, inputs: Any = None) -> None:
        if not widths or any(not isinstance(width, int) or width < 1 for width in widths):
            raise PolicyError(
                f"MLP takes the widths of its hidden layers, as in MLP(32); got {widths}"
            )
        self.widths = tuple(widths)
        self.inputs = _given_inputs(inputs)

    def bind(self, space: Space) -> BoundFamily:
        """Check the inputs."""
        return BoundMLP(space.actions, _read_inputs(self.inputs, space), self.widths)

    def __repr__(self) -> str:
        seen = "" if self.inputs is None else f", inputs={_shown(self.inputs)}"
        return f"MLP({', '.join(str(width) for width in self.widths)}{seen})"


@dataclass(frozen=True, eq=False)
class BoundMLP(BoundNetwork):
    """A list of (weights, biases), the last layer small, so that the first policy is near uniform."""

    actions: Array
    inputs: Array | Observed | None
    widths: tuple[int, ...]
    static: ClassVar[tuple[str, ...]] = ("widths",)

    def init(self, key: Array) -> Params:
        """Scaled normal weights (LeCun), zero biases."""
        if isinstance(self.inputs, Observed):
            first = math.prod(self.inputs.shape)
        else:
            first = self.actions.shape[0] if self.inputs is None else self.inputs.shape[1]
        # A one-hot input has a single active entry: its fan-in is one.
        fan_in = [1 if self.inputs is None else first, *self.widths]
        sizes = [first, *self.widths, self.actions.shape[1]]
        params = []
        for layer, part in enumerate(jax.random.split(key, len(sizes) - 1)):
            scale = 1.0 / np.sqrt(fan_in[layer]) * (0.01 if layer == len(sizes) - 2 else 1.0)
            weights = scale * jax.random.normal(part, (sizes[layer], sizes[layer + 1]))
            params.append((weights, jnp.zeros(sizes[layer + 1])))
        return params

    def logits(self, params: Params, states: Array) -> Array:
        """The network; with one-hot inputs the first layer is a look-up."""
        weights = params[0][0]
        if self.inputs is None:
            return self._layers(params, weights[states])
        if isinstance(self.inputs, Observed):
            seen = self.inputs(states).astype(weights.dtype)
            return self._layers(params, seen.reshape(seen.shape[0], -1) @ weights)
        return self._layers(params, jnp.asarray(self.inputs, weights.dtype)[states] @ weights)

    def all_logits(self, params: Params) -> Array:
        return self.logits(params, slice(None))  # without a look-up

    def _layers(self, params: Params, first: Array) -> Array:
        (_, biases), *rest = params
        hidden, xp = first + biases, namespace(first)
        for weights, biases in rest:
            hidden = xp.tanh(hidden) @ weights + biases
        return hidden

    def rows(self, params: Params) -> Callable[[np.ndarray], np.ndarray]:
        """In NumPy: for the few observations of a step, calling compiled code takes many times as long."""
        mine, numbers = host((self, params))
        return lambda inputs: softmax(np.asarray(mine.logits(numbers, inputs)), axis=1)


class EquinoxModule:
    """Any Equinox module (or other callable pytree) that maps a state's input to logits.

    Args:
        module: called with one input vector, returns A logits.
        inputs: as for ``MLP``.
    """

    def __init__(self, module: Callable[[Any], Any], inputs: Any = None) -> None:
        equinox = require("equinox", "nn")
        params, rest = equinox.partition(module, equinox.is_inexact_array)
        # Made once: compiled code recognises them by identity.
        self.params, self.rest = _Fixed(params), _Fixed(rest)
        self.inputs = _given_inputs(inputs)

    def bind(self, space: Space) -> BoundFamily:
        """Check that it gives one logit per action."""
        equinox = require("equinox", "nn")
        inputs = _read_inputs(self.inputs, space)
        inputs = np.eye(space.shape[0]) if inputs is None else inputs
        one = jnp.zeros(inputs.shape) if isinstance(inputs, Observed) else jnp.asarray(inputs[0])
        try:
            shape = jax.eval_shape(equinox.combine(self.params.value, self.rest.value), one).shape
        except Exception as error:
            raise PolicyError(
                f"the module cannot be called with an input of shape {one.shape}: {error}"
            ) from error
        if shape != (space.shape[1],):
            raise PolicyError(
                f"the module returns shape {shape}; the model has {space.shape[1]} actions"
            )
        return BoundEquinox(space.actions, inputs, self.params, self.rest)


class _Fixed:
    """A part of a module that is structure to JAX: compared by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True, eq=False)
class BoundEquinox(BoundNetwork):
    """The module's arrays are the parameters."""

    actions: Array
    inputs: Array | Observed
    first: _Fixed
    rest: _Fixed
    static: ClassVar[tuple[str, ...]] = ("first", "rest")

    def init(self, key: Array) -> Params:
        """The module as it was given, in the precision of the run."""
        dtype = jnp.result_type(float)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.first.value)

    def logits(self, params: Params, states: Array) -> Array:
        equinox = require("equinox", "nn")
        given = self.inputs
        seen = given(states) if isinstance(given, Observed) else jnp.asarray(given)[states]
        return jax.vmap(equinox.combine(params, self.rest.value))(seen)


class FittedPolicy(ObservedPolicy):
    """A family of networks, bound to an environment, with parameters."""

    kind: str
    bound: Any

    def __init__(
        self, bound: BoundNetwork, params: Any, reader: ObservationReader | None = None
    ) -> None:
        self.bound, self.params, self.family = bound, host(params), bound.name
        self.n_actions = int(bound.actions.shape[1])
        if reader is not None:
            self.reader = reader

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """What files of all of them hold."""
        arrays, structure = written_params(self.params)
        reader, of_reader = self.reader.contents()
        seen = self.bound.inputs
        arrays |= {name: np.asarray(getattr(seen, name)) for name in ("middle", "scale")}
        description = {"kind": self.kind, "widths": list(self.bound.widths), "reader": reader}
        return {**arrays, **of_reader}, {**description, "structure": structure}

    @property
    def _shown(self) -> str:
        """Where it acts, and how large it is."""
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        where = self.reader.name if hasattr(self, "reader") else "observations"
        return f"{where}; {size:,} parameters"


class NetworkPolicy(FittedPolicy):
    """A network on observations."""

    kind = "network on observations"

    @cached_property
    def _rows(self) -> Any:
        return self.bound.rows(self.params)

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        rows = self._rows(inputs).astype(np.float64)
        return rows / rows.sum(axis=1, keepdims=True)

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        bound = self.bound
        if not isinstance(bound, BoundMLP) or not isinstance(bound.inputs, Observed):
            raise PolicyError(
                f"a {self.family} is code, which is not written to files. Its parameters are in policy.params: "
                "save those, and make the module and the policy anew."
            )
        arrays, description = super().contents()
        features, of_features = describe_features(bound.inputs.features)
        description |= {"actions": self.n_actions, "features": features}
        if not math.isinf(bound.inputs.reach):
            description["reach"] = bound.inputs.reach
        return {**arrays, **of_features}, description

    def to_onnx(self, path: str | Path) -> None:
        """Write the network as an ONNX file: ``observation`` (n, ...) in, ``probabilities`` (n, A) out.

        Whoever plays it draws an action from these; the likeliest one would be another policy.
        """
        bound = self.bound
        if not isinstance(bound, BoundMLP) or not isinstance(bound.inputs, Observed):
            raise PolicyError(f"a {self.family} is code; only an MLP is written as ONNX")
        if bound.inputs.features is not None:
            raise PolicyError(
                f"the network sees {bound.inputs.features!r} of observations, which are no part of it: keep it "
                "with policy.save, or learn with an MLP on the observations themselves"
            )
        middle = np.broadcast_to(bound.inputs.middle, self.reader.shape)
        scale = np.broadcast_to(bound.inputs.scale, self.reader.shape)
        write_perceptron(path, middle, scale, self.params, repr(self))

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> NetworkPolicy:
        features = read_features(description["features"], arrays)
        reach = float(description.get("reach", math.inf))
        seen = Observed(arrays["middle"], arrays["scale"], features, reach)
        actions = np.ones((1, int(description["actions"])), dtype=bool)
        bound = BoundMLP(actions, seen, tuple(int(width) for width in description["widths"]))
        return cls(bound, *read_network(bound, seen, arrays, description)).checked()

    def __repr__(self) -> str:
        return f"NetworkPolicy({self.family} on {self._shown}; {self.n_actions} actions)"


def read_network(
    bound: BoundNetwork, seen: Observed, arrays: Arrays, description: dict[str, Any]
) -> tuple[Params, ObservationReader]:
    """The parameters of a network in a file, refused where they do not fit, and who reads its observations."""
    params = rebuild(description["structure"], arrays)
    wanted = jax.eval_shape(bound.init, jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(wanted)]
    if [leaf.shape for leaf in jax.tree.leaves(params)] != shapes:
        raise PolicyError(f"the parameters do not have the shapes {shapes} of the network")
    if not np.isfinite(seen.middle).all() or not (np.abs(seen.scale) > 0).all():
        raise PolicyError("the middle and scale of its observations are not numbers to scale with")
    return params, ObservationReader.read_contents(description["reader"], arrays)
