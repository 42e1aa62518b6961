"""Reading what a user gives to an iterative solver: numbers per constraint, and where to start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.atoms import Shape, walk
from cvxmdp.atoms.shapes import MinimumShape
from cvxmdp.base.errors import ProblemError, SolverError, did_you_mean
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.slater import prove
from cvxmdp.policies.families import BoundFamily, first_params
from cvxmdp.policies.networks import BoundMLP, BoundNetwork
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution


@dataclass(frozen=True)
class Normalised:
    """A primal step of this length in the direction of the gradient: step / |gradient|."""

    step: float


def per_constraint(given: Any, problem: Problem, what: str) -> np.ndarray:
    """A number for every constraint, from one number or from numbers by name; not negative."""
    names = list(problem.constraints)
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in problem.constraints]
        if unknown:
            raise SolverError(
                f"{what} is given for {unknown[0]!r}, which is no constraint. "
                f"{did_you_mean(unknown[0], names)}"
            )
        missing = [name for name in names if name not in given]
        if missing:
            raise SolverError(f"{what} is not given for the constraint {missing[0]!r}")
        numbers = [given[name] for name in names]
    else:
        numbers = [given] * len(names)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise SolverError(f"{what} must be a number, or numbers by constraint; got {number!r}")
        if not (math.isfinite(number) and number >= 0):
            raise SolverError(f"{what} must be finite and not negative; got {number}")
    return np.array(numbers, dtype=np.float64)


def read_start(
    problem: Problem,
    family: BoundFamily,
    claims: Claims,
    start: Any,
    seed: int | None,
    initial_multiplier: Any,
) -> tuple[Any, np.ndarray]:
    """First parameters and multipliers.

    From a solution of the same family, its parameters; from another solution or a policy, its
    probabilities where the family can take them over; from nothing, the family's own start, or a point
    inside the domain where logarithms or barriers are infinite there.
    """
    multipliers = per_constraint(initial_multiplier, problem, "initial_multiplier")
    if isinstance(start, Solution):
        if set(start.multipliers) == set(problem.constraints):
            known = np.array([start.multipliers[name] for name in problem.constraints])
            multipliers = known if np.isfinite(known).all() else multipliers
        if start.stats.get("family") == family.name:
            taken = _take_over(start.stats.get("params"), family)
            if taken is not None:
                return taken, multipliers
    policy = getattr(start, "policy", start)
    if isinstance(policy, ParametricPolicy) and policy.family == family.name:
        taken = _take_over(policy.params, family)
        if taken is not None:
            return taken, multipliers
    if start is not None:
        policy = as_policy(problem.mdp, start)
        return family.from_probabilities(policy.probabilities()), multipliers
    if isinstance(family, BoundMLP) and seed is None:
        raise SolverError("an MLP starts from random weights: give solve(..., seed=...)")
    params = first_params(family, 0 if seed is None else seed)
    inside = _arguments(problem)
    if inside and not isinstance(family, BoundNetwork):
        logs = family.log_probabilities(params, jnp.arange(family.actions.shape[0]))
        found = problem.evaluate(np.exp(np.asarray(logs)))
        if not np.isfinite([found.objective, *found.slack.values()]).all():
            return _inside_domain(family, claims, inside), multipliers
    return params, multipliers


def _take_over(params: Any, family: BoundFamily) -> Any:
    """Parameters in the form that the family wants, or None where they do not fit."""
    wanted = jax.eval_shape(family.init, jax.random.key(0))
    leaves, form = jax.tree.flatten(wanted)
    given = jax.tree.leaves(params)
    if [np.shape(leaf) for leaf in given] != [leaf.shape for leaf in leaves]:
        return None
    return jax.tree.unflatten(form, [jnp.asarray(leaf, jnp.result_type(float)) for leaf in given])


def _arguments(problem: Problem) -> list[Shape]:
    """What must be positive where objective and slacks are to be finite: arguments of logarithms."""
    functions = (problem.objective_function, *problem.slack_functions.values())
    return [inner for f in functions for step in walk(f) for inner in step.node.positive()]


def _inside_domain(family: BoundFamily, claims: Claims, inside: list[Shape]) -> Any:
    """The policy that makes the least of the logarithms' arguments largest."""
    found = prove(claims.with_objective(MinimumShape(tuple(inside))))
    if found.upper <= 0 or found.evidence.policy is None:
        raise ProblemError(
            "objective or slack is minus infinity for every policy: no policy makes the argument of every "
            f"logarithm positive (the least of them is at most {found.upper:.3g}, proven)"
        )
    return family.from_probabilities(found.evidence.policy)
