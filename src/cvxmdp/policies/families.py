r"""Families of policies pi_theta: what a policy-gradient method moves in.

The paper's eq. (policy_parameterization): pi_theta(a | s) = softmax over the available actions of
psi(theta; s, a). A family is a small immutable object without parameters; ``bind(space)`` gives what
compiled code uses:

- ``init(key)``: first parameters theta, a pytree; the policy they give is uniform or nearly so;
- ``log_probabilities(params, states)``: log pi(. | s) for a batch of states, shape (n, A), minus
  infinity where an action is not available;
- ``retract(params)``: the nearest admissible parameters (only ``Direct`` has any to exclude);
- ``from_probabilities(matrix)``: parameters of a given policy, where the family has them;
- ``deploy(params)``: the policy that acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.arrays import on_simplex
from cvxmdp.base.compiling import run_once
from cvxmdp.base.errors import PolicyError, SettingsError
from cvxmdp.base.pytrees import Pytree
from cvxmdp.models.space import Space
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.policies.tables import SoftmaxTable, TabularPolicy
from cvxmdp.policies.timed_policy import from_rows

Array = Any
Params = Any  # a pytree of arrays

# A table starts from a policy with zeros by giving every action at least this probability: a softmax
# cannot represent zero, and a gradient could never leave it again.
LEAST_PROBABILITY = 1e-6
# A probability of exp(-36) is below rounding. Logits further apart change nothing but the time it takes
# to come back: with them, multipliers overshoot before the policy answers.
LOGIT_RANGE = 36.0


@runtime_checkable
class PolicyFamily(Protocol):
    """What solvers ask of ``policy=``."""

    def bind(self, space: Space) -> BoundFamily:
        """The family on this model's states and actions."""


def require_family(policy: Any) -> None:
    """An error where ``policy=`` is no family."""
    if isinstance(policy, type) or not isinstance(policy, PolicyFamily):
        hint = f"; write {policy.__name__}()" if isinstance(policy, type) else ""
        raise SettingsError(
            f"policy must be a family such as Table(), MLP(32) or LinearSoftmax(features); got {policy!r}{hint}"
        )


class BoundFamily(Pytree):
    """A family on a model. Subclasses give ``init`` and ``logits``."""

    actions: Array  # boolean (S, A)
    is_table: ClassVar[bool] = False
    continuous: ClassVar[bool] = False  # actions are vectors of numbers

    @property
    def name(self) -> str:
        """What the family is called."""
        return type(self).__name__.removeprefix("Bound")

    def init(self, key: Array) -> Params:
        raise NotImplementedError

    def logits(self, params: Params, states: Array) -> Array:
        """psi(theta; s, .) for a batch of states, shape (n, A)."""
        raise NotImplementedError

    @property
    def observes(self) -> bool:
        """Whether it is given observations instead of states; all actions are available then."""
        return False

    def masked_logits(self, params: Params, states: Array) -> Array:
        """psi, and minus infinity where an action is not available, shape (n, A)."""
        return jnp.where(jnp.asarray(self.actions)[states], self.logits(params, states), -jnp.inf)

    def log_probabilities(self, params: Params, states: Array) -> Array:
        """log pi(. | s) for a batch of states, shape (n, A)."""
        return jax.nn.log_softmax(self.masked_logits(params, states), axis=1)

    def all_logits(self, params: Params) -> Array:
        """psi(theta; s, .) for every state, shape (S, A)."""
        return self.logits(params, jnp.arange(self.actions.shape[0]))

    def log_table(self, params: Params) -> Array:
        """log pi(. | s) for every state, shape (S, A)."""
        masked = jnp.where(self.actions, self.all_logits(params), -jnp.inf)
        return jax.nn.log_softmax(masked, axis=1)

    def retract(self, params: Params) -> Params:
        """The nearest admissible parameters: here, all are."""
        return params

    def away_from_corners(self, params: Params, logit_range: float = LOGIT_RANGE) -> Params:
        """The same policy up to rounding, from where a gradient can still turn back."""
        return self.retract(params)

    def logit_change(self, params: Params, direction: Params) -> Array:
        """The largest change of a logit along a unit step in this direction, to first order."""
        states = jnp.arange(self.actions.shape[0])
        _, change = jax.jvp(lambda theta: self.logits(theta, states), (params,), (direction,))
        return jnp.abs(jnp.where(self.actions, change, 0.0)).max()

    def from_probabilities(self, matrix: np.ndarray) -> Params:
        """Parameters of a policy given by its probabilities."""
        raise PolicyError(
            f"the family {self.name} cannot take over the probabilities of another policy. Start from a "
            "solution or a policy of the same family, or use a table."
        )

    def deploy(self, params: Params) -> Any:
        """The policy of these parameters, in NumPy."""
        states = jnp.arange(self.actions.shape[0])
        matrix = np.asarray(jnp.exp(self.log_probabilities(params, states)), dtype=np.float64)
        return ParametricPolicy(matrix, params, self.name)


def deployed(family: BoundFamily, params: Params, space: Space) -> Any:
    """The policy of these parameters, by the step where the horizon counts steps."""
    policy = family.deploy(params)
    return policy if space.horizon.steps is None else from_rows(policy.probabilities(), space)


@run_once()
def first_params(family: BoundFamily, seed: Array) -> Params:
    """What a family draws with a seed."""
    return family.init(jax.random.key(seed))


@dataclass(frozen=True)
class Table:
    """A softmax with one logit per state and action: the paper's eq. (soft_max_policy)."""

    def bind(self, space: Space) -> BoundFamily:
        """On this model."""
        environment = space.environment if isinstance(space, FeatureSpace) else None
        if environment is not None and not environment.has_states:
            raise PolicyError(
                f"a table needs states, and {environment!r} has observations which are no states. Give "
                "features= that are bins, or use a network on the observations, such as MLP(32)."
            )
        return BoundTable(space.actions)


@dataclass(frozen=True, eq=False)
class BoundTable(BoundFamily):
    """Logits of shape (S, A)."""

    actions: Array
    is_table: ClassVar[bool] = True

    def init(self, key: Array) -> Params:
        """Zeros: uniform over the available actions."""
        return jnp.zeros(self.actions.shape)

    def logits(self, params: Params, states: Array) -> Array:
        return params[states]

    def all_logits(self, params: Params) -> Array:
        return params

    def away_from_corners(self, params: Params, logit_range: float = LOGIT_RANGE) -> Params:
        """No logit further than ``logit_range`` below the best one of its state."""
        masked = jnp.where(self.actions, params, -jnp.inf)
        return jnp.maximum(params - masked.max(axis=1, keepdims=True), -logit_range)

    def from_probabilities(self, matrix: np.ndarray) -> Params:
        """Logarithms; zeros are lifted, because a softmax cannot represent them."""
        floor = LEAST_PROBABILITY * np.where(self.actions, 1.0, 0.0)
        lifted = np.maximum(np.where(self.actions, matrix, 0.0), floor)
        lifted = lifted / lifted.sum(axis=1, keepdims=True)
        return jnp.asarray(np.log(np.where(self.actions, lifted, 1.0)))

    def deploy(self, params: Params) -> Any:
        return SoftmaxTable(np.asarray(params, dtype=np.float64), self.actions)


@dataclass(frozen=True, eq=False)
class LinearSoftmax:
    """A softmax of linear features, psi(theta; s, a) = <theta, phi(s, a)>.

    Attributes:
        features: phi, shape (S, A, k); (T, S, A, k) where they depend on the step of a horizon.
    """

    features: Any

    def bind(self, space: Space) -> BoundFamily:
        """Check the shape."""
        phi = space.in_rows(np.asarray(self.features, dtype=np.float64), 3)
        if phi.ndim != 3 or phi.shape[:2] != space.actions.shape or not np.isfinite(phi).all():
            raise PolicyError(
                f"the features of LinearSoftmax are finite numbers of shape (S, A, k) with (S, A) = "
                f"{space.actions.shape}; got shape {phi.shape}"
            )
        return BoundLinear(space.actions, phi)


@dataclass(frozen=True, eq=False)
class BoundLinear(BoundFamily):
    """Weights of shape (k,)."""

    actions: Array
    features: Array

    def init(self, key: Array) -> Params:
        return jnp.zeros(self.features.shape[2])

    def logits(self, params: Params, states: Array) -> Array:
        return jnp.asarray(self.features)[states] @ params


@dataclass(frozen=True)
class Direct:
    """The direct parameterisation: theta is the policy itself, kept on the simplex by projection.

    The one case in which the paper's assumption on parameterisations holds with known constants (its
    lemma on the inverse map). It has no score function, so only ``direction="vanilla"`` goes with it.
    """

    def bind(self, space: Space) -> BoundFamily:
        """On this model."""
        return BoundDirect(space.actions)


@dataclass(frozen=True, eq=False)
class BoundDirect(BoundFamily):
    """Probabilities of shape (S, A)."""

    actions: Array

    def logits(self, params: Params, states: Array) -> Array:
        """Look up: probabilities stand in for logits where only their change matters."""
        return params[states]

    def init(self, key: Array) -> Params:
        mask = jnp.asarray(self.actions, jnp.result_type(float))
        return mask / mask.sum(axis=1, keepdims=True)

    def log_probabilities(self, params: Params, states: Array) -> Array:
        return self.log_table(params)[states]

    def log_table(self, params: Params) -> Array:
        return jnp.log(jnp.where(self.actions, params, 0.0))

    def retract(self, params: Params) -> Params:
        """Euclidean projection of each row on the simplex of available actions."""
        return on_simplex(params, self.actions)

    def from_probabilities(self, matrix: np.ndarray) -> Params:
        return jnp.asarray(np.where(self.actions, matrix, 0.0))

    def deploy(self, params: Params) -> Any:
        matrix = np.asarray(params, dtype=np.float64)
        return TabularPolicy(matrix / matrix.sum(axis=1, keepdims=True))
