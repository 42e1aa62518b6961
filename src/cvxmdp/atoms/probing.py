"""Probing a promise: is this function really concave on the occupancies of this model?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.shapes import Shape
from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.occupancies import occupancy_of

TOLERANCE = 1e-9


@dataclass(frozen=True)
class UtilityCheck(InNotebooks):
    """What probing found.

    Attributes:
        ok: no probe contradicted the promise. That is evidence, not a proof.
        probes: number of pairs of occupancies tried.
        problem: in words, what went wrong; empty when nothing did.
        counterexample: two occupancies and a weight t between them, at which the function at the mean
            (1 - t) * first + t * second is on the wrong side of the mean of the function; else None.
    """

    ok: bool
    probes: int
    problem: str = ""
    counterexample: tuple[np.ndarray, np.ndarray, float] | None = None

    def __str__(self) -> str:
        if self.ok:
            return f"no contradiction on {self.probes} random pairs of occupancies"
        return self.problem


def check_utility(
    utility: Utility, mdp: TabularMDP, *, seed: int = 0, probes: int = 200
) -> UtilityCheck:
    """Probe a utility on random occupancies of a model, and print a counterexample if there is one.

    Checked are: a finite value, a finite gradient, and the inequality of concavity (or convexity)
    between pairs of occupancies, near and far, in the interior and near the border.

    Args:
        utility: one of yours (``@concave``, ``@convex``) or any other.
        mdp: the model whose occupancies are used.
        seed: of the random policies.
        probes: number of pairs.
    """
    if not isinstance(utility, Utility):
        raise UtilityError(f"check_utility takes a utility; got {utility!r}")
    if utility.curvature is Curvature.UNKNOWN:
        raise UtilityError(
            f"{utility!r} is {utility.curvature.value}; there is no promise to check"
        )
    result = _probe(utility, mdp, np.random.default_rng(seed), probes)
    if not result.ok:
        print(result)
    return result


def _probe(
    utility: Utility, mdp: TabularMDP, random: np.random.Generator, probes: int
) -> UtilityCheck:
    try:
        function = utility.lower(mdp)
    except UtilityError as error:
        return UtilityCheck(False, 0, str(error))
    for probe in range(probes):
        first, second = (_random_occupancy(mdp, random) for _ in range(2))
        share = 0.5 if probe % 2 else random.random()
        if probe % 4 == 3:  # near pairs see local bumps that far ones average away
            second = 0.95 * first + 0.05 * second
        for point in (first, second, (1 - share) * first + share * second):
            trouble = _not_finite(function, point, repr(utility))
            if trouble:
                return UtilityCheck(False, probe + 1, trouble, None)
        trouble = _wrong_side(function, utility, first, second, share)
        if trouble:
            return UtilityCheck(False, probe + 1, trouble, (first, second, share))
    return UtilityCheck(True, probes)


def _random_occupancy(mdp: TabularMDP, random: np.random.Generator) -> np.ndarray:
    # Dirichlet rows; the smaller the concentration, the nearer to a deterministic policy.
    concentration = 10.0 ** random.uniform(-1.0, 1.0)
    draws = random.gamma(concentration, size=mdp.actions.shape) + 1e-12
    draws = np.where(mdp.actions, draws, 0.0)
    return occupancy_of(mdp, TabularPolicy(draws / draws.sum(axis=1, keepdims=True)))


def _not_finite(function: Shape, x: np.ndarray, name: str) -> str:
    value = function.value(x)
    if not np.isfinite(value):
        return f"{name} is {value} at the occupancy of a random policy; expected a finite number"
    gradient = np.asarray(function.gradient(x))
    if not np.isfinite(gradient).all():
        state, action = np.argwhere(~np.isfinite(gradient))[0]
        return (
            f"the gradient of {name} is {gradient[state, action]} at state {state}, action {action}, "
            f"where the occupancy is {x[state, action]:.3g}. Logs and roots need a floor: "
            "jnp.log(x + 1e-6)."
        )
    return ""


def _wrong_side(
    function: Shape, utility: Utility, x: np.ndarray, y: np.ndarray, share: float
) -> str:
    at_mean = float(function.value((1 - share) * x + share * y))
    mean = (1 - share) * float(function.value(x)) + share * float(function.value(y))
    # Of the terms that the values are sums of, in their own units: they may cancel.
    terms = max(float(np.vdot(np.abs(function.gradient(point)), point)) for point in (x, y))
    rounding = TOLERANCE * max(abs(at_mean), abs(mean), terms)
    if utility.curvature.is_concave and at_mean < mean - rounding:
        side, promise = "below", "concave"
    elif utility.curvature.is_convex and at_mean > mean + rounding:
        side, promise = "above", "convex"
    else:
        return ""
    return (
        f"{utility!r} is not {promise}: between two occupancies x and y, at (1 - t) x + t y with t = "
        f"{share:.4g}, its value {at_mean:.8g} is {side} the mean of its values there, {mean:.8g}. "
        "The result's counterexample holds (x, y, t)."
    )
