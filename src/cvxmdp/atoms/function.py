r"""Functions of an occupancy: what utilities become once the model is known.

A function is a small immutable record of numbers (a JAX pytree), so that compiled code takes it as
an argument: another budget or target is another number, not another compilation. Every function
gives

- ``value(x)`` and ``gradient(x)`` for an occupancy x of shape (S, A): NumPy in, NumPy float64 out,
  whatever JAX's precision flag; JAX in, JAX out, traceable. Where the function has a kink, the
  gradient is one element of the super- (sub-) differential. Where the gradient is unbounded at the
  border of the domain, the function's own docstring says what is returned.
- ``to_cvxpy(x)``: the same function of a CVXPY variable, where it has such a form;
- ``constants(space)``: what the paper's assumption on utilities asks for, where it is known;
- ``affine_part()``: the reward and the offset when the function is affine, else None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.base.errors import UtilityError
from cvxmdp.base.pytrees import Record

if TYPE_CHECKING:
    from cvxmdp.atoms.cvxpy_form import OccupancyVariable
    from cvxmdp.models.table import TabularMDP

Array = Any  # a NumPy or JAX array


def namespace(x: Array) -> Any:
    """NumPy for NumPy arrays, else jax.numpy: exact evaluation must not depend on JAX's flags."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def detached(x: Array) -> Array:
    """The value without its derivative, under JAX."""
    return x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)


def real_array(given: Any, what: str) -> np.ndarray:
    """A copy as an array of float64, or an error that names what was given."""
    try:
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UtilityError(f"{what} must be made of numbers; got {given!r}") from error


class Affine(NamedTuple):
    """<reward, x> + offset."""

    reward: np.ndarray  # (S, A)
    offset: float


@dataclass(frozen=True)
class Constants:
    """The paper's assumption on utilities, over occupancies of the model; None where not known.

    Attributes:
        lipschitz: M_lambda, a bound on the Euclidean norm of the gradient.
        smoothness: l_lambda, |grad f(x) - grad f(y)|_inf <= l_lambda |x - y|.
        bound: M, a bound on |f|.
        strength: sigma such that f is sigma-strongly concave (convex) in the Euclidean norm; 0 if
            it is not.
    """

    lipschitz: float | None
    smoothness: float | None
    bound: float | None
    strength: float = 0.0


class Space(NamedTuple):
    """What constants depend on besides the function itself."""

    n_states: int
    n_actions: int
    discount: float

    @property
    def max_mass(self) -> float:
        """An occupancy's largest mass, which also bounds its Euclidean norm."""
        return 1.0 / (1.0 - self.discount)

    @classmethod
    def of(cls, mdp: TabularMDP) -> Space:
        """The space of a model's occupancies."""
        return cls(mdp.n_states, mdp.n_actions, mdp.discount)


class OccupancyFunction(Record):
    """A concave or convex function of the occupancy; the module's docstring lists its parts."""

    def value(self, x: Array) -> Any:
        """The function's value at x, shape ()."""
        raise NotImplementedError

    def gradient(self, x: Array) -> Array:
        """A gradient at x, shape (S, A)."""
        raise NotImplementedError

    def to_cvxpy(self, x: OccupancyVariable) -> Any:
        """The function as a CVXPY expression, or None where it has no such form."""
        return None

    def extended(self) -> OccupancyFunction:
        """The same function, extended to points that are no occupancies.

        The recursive estimates of sampling algorithms leave the simplex and have negative entries, where
        entropy, kl and logarithms are not defined. Below a floor those go on along their tangent: concave
        (convex) and continuously differentiable. For sampling only; certificates and exact solvers use
        the function itself.
        """
        return self

    def constants(self, space: Space) -> Constants:
        """The constants of the paper's assumption, where known."""
        return Constants(None, None, None)

    def affine_part(self) -> Affine | None:
        """Reward and offset when the function is affine, else None."""
        return None
