"""Reading what a user gives to an iterative solver: numbers per constraint, and where to start.

This is the one place that reads ``start=``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.atoms import Shape
from cvxmdp.atoms.shapes import MinimumShape
from cvxmdp.base.errors import ProblemError, SettingsError, did_you_mean
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.slater import prove
from cvxmdp.policies.families import BoundFamily, first_params
from cvxmdp.policies.networks import BoundMLP, BoundNetwork, NetworkPolicy, Observed
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.policies.policy_file import load_policy
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.problems.solution_folder import DOCUMENT, POLICY, read_solution
from cvxmdp.problems.while_learning import domain_of
from cvxmdp.solvers.contract import Task

AT_THE_END = 0.999  # of its box: means of multipliers that were held there are a little below it
MOST_HALVINGS = 30  # of the uniform policy's share in a start that explores


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
            raise SettingsError(
                f"{what} is given for {unknown[0]!r}, which is no constraint. "
                f"{did_you_mean(unknown[0], names)}"
            )
        missing = [name for name in names if name not in given]
        if missing:
            raise SettingsError(f"{what} is not given for the constraint {missing[0]!r}")
        numbers = [given[name] for name in names]
    else:
        numbers = [given] * len(names)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise SettingsError(
                f"{what} must be a number, or numbers by constraint; got {number!r}"
            )
        if not (math.isfinite(number) and number >= 0):
            raise SettingsError(f"{what} must be finite and not negative; got {number}")
    return np.array(numbers, dtype=np.float64)


def box_note(names: Iterable[str], multipliers: np.ndarray, bound: np.ndarray) -> str:
    """What to say of multipliers that end where their box does; empty where none does."""
    held = [
        f"{name!r} ({limit:.3g})"
        for name, mu, limit in zip(names, multipliers, bound, strict=True)
        if limit > 0 and mu >= AT_THE_END * limit
    ]
    if not held:
        return ""
    return (
        f" At the end of its box is the multiplier of {', '.join(held)}: the constraint may need a larger one, "
        "or cannot be met. Give a larger dual_bound=; cm.slater(problem) says whether there is room."
    )


@dataclass(frozen=True)
class Start:
    """Where an iterative solver begins.

    Attributes:
        params: first parameters; None where the family's own are to be drawn.
        multipliers: mu_0, (n,).
        taken: in words, what was taken over from ``start=``; empty without one.
    """

    params: Any
    multipliers: np.ndarray
    taken: str = ""


def given_start(problem: Problem, start: Any) -> Any:
    """What ``start=`` stands for: itself, or what is kept at a path: a saved policy, a run's folder."""
    if not isinstance(start, str | Path):
        return start
    path = Path(start)
    if not path.is_dir():
        return load_policy(path)
    if not (path / DOCUMENT).is_file():
        return load_policy(path / POLICY)
    found = read_solution(path)
    return Solution(problem, Status[found.pop("status")], **found)


def take_start(task: Task, family: BoundFamily, initial_multiplier: Any) -> Start:
    """What there is to take over from ``start=``, and mu_0.

    From a solution or policy of the same family, its parameters; from any other, its probabilities where the
    family can take them over. Multipliers are those of the solution, unless others were asked for.
    """
    problem, start = task.problem, given_start(task.problem, task.start)
    explicit = initial_multiplier is not None
    multipliers = per_constraint(initial_multiplier or 0.0, problem, "initial_multiplier")
    if start is None:
        return Start(None, multipliers)
    taken: list[str] = []
    if not explicit and problem.constraints:
        known = known_multipliers(problem, start)
        multipliers, taken = (multipliers, []) if known is None else (known, ["multipliers"])
    params = parameters_of(start, family)
    taken.insert(0, "probabilities" if params is None else "parameters")
    if params is None:
        params = family.from_probabilities(rows_of(problem.mdp, start))
    whose = "the solution" if isinstance(start, Solution) else "the policy"
    return Start(params, multipliers, f"{' and '.join(taken)} of {whose}")


def known_multipliers(problem: Problem, start: Any) -> np.ndarray | None:
    """Those of a solution for the same constraints, (n,); None where there are none."""
    known = getattr(start, "multipliers", None) or {}
    if set(known) != set(problem.constraints):
        return None
    found = np.array([float(known[name]) for name in problem.constraints])
    return found if np.isfinite(found).all() and (found >= 0).all() else None


def parameters_of(start: Any, family: BoundFamily) -> Any:
    """Parameters of the family that a solution or a policy has, or None."""
    network = start.policy_or_none if isinstance(start, Solution) else start
    if isinstance(network, NetworkPolicy):
        return _seen_alike(network, family)
    if isinstance(start, Solution) and start.stats.get("family") == family.name:
        taken = fitting(start.stats.get("params"), family)
        if taken is not None:
            return taken
    policy = getattr(start, "policy", start)
    if isinstance(policy, ParametricPolicy) and policy.family == family.name:
        return fitting(policy.params, family)
    return None


def _same(one: Observed, other: Observed) -> bool:
    return np.array_equal(one.middle, other.middle) and np.array_equal(one.scale, other.scale)


def _seen_alike(policy: NetworkPolicy, family: BoundFamily) -> Any:
    """The network's parameters for the family's own view of observations, or None: the policy as it was.

    An actor-critic scales observations by what it saw: the first layer takes up how far that is from here.
    """
    params = fitting(policy.params, family) if policy.family == family.name else None
    if params is None or not isinstance(family, BoundNetwork) or not family.observes:
        return None
    seen, own = policy.bound.inputs, family.inputs
    if seen.features is not None or _same(seen, own):
        return params
    if not isinstance(family, BoundMLP) or own.features is not None:
        return None
    (weights, biases), *rest = params
    shift = np.ravel((own.middle - seen.middle) / seen.scale)
    stretch = np.ravel(np.broadcast_to(own.scale / seen.scale, own.shape))
    return [(weights * stretch[:, None], biases + shift @ weights), *rest]


def read_start(task: Task, family: BoundFamily, claims: Claims, initial_multiplier: Any) -> Start:
    """The same with parameters in any case.

    From nothing, the family's own start, or a point inside the domain where logarithms or barriers are infinite
    there.
    """
    found = take_start(task, family, initial_multiplier)
    if found.params is not None:
        return found
    return replace(found, params=_own_start(task, family, claims))


def _own_start(task: Task, family: BoundFamily, claims: Claims) -> Any:
    if isinstance(family, BoundMLP) and task.seed is None:
        raise SettingsError("an MLP starts from random weights: give solve(..., seed=...)")
    params = first_params(family, 0 if task.seed is None else task.seed)
    inside = domain_of(task.problem)
    if inside and not isinstance(family, BoundNetwork):
        logs = family.log_probabilities(params, jnp.arange(family.actions.shape[0]))
        found = task.problem.evaluate_occupancy(claims.flow.occupancy(np.exp(np.asarray(logs))))
        if not np.isfinite([found.objective, *found.slack.values()]).all():
            trying = _trying(claims, inside)
            return family.from_probabilities(claims.flow.policy(trying))
    return params


def fitting(params: Any, family: BoundFamily) -> Any:
    """Parameters in the form that the family wants, or None where they do not fit."""
    wanted = jax.eval_shape(family.init, jax.random.key(0))
    leaves, form = jax.tree.flatten(wanted)
    given = jax.tree.leaves(params)
    if [np.shape(leaf) for leaf in given] != [leaf.shape for leaf in leaves]:
        return None
    return jax.tree.unflatten(form, [jnp.asarray(leaf, jnp.result_type(float)) for leaf in given])


def exploring_start(task: Task, family: BoundFamily, params: Any) -> Any:
    """Where safe learning begins: inside the domain of logarithms, with a chance to try what is not known.

    A given start inside the domain is averaged with ``_trying``, occupancy with occupancy, which is inside
    because the arguments are concave. Without a given start, the family's own if it is inside.
    """
    flow, inside = task.problem.mdp.flow, domain_of(task.problem)
    if params is None and _least(inside, flow.uniform_occupancy) > 0:
        return None
    trying = _trying(Claims.of(task.problem), inside)
    if params is not None:
        own = flow.occupancy(family.deploy(params).probabilities())
        trying = 0.5 * (own + trying) if _least(inside, own) > 0 else trying
    return family.from_probabilities(flow.policy(trying))


def _trying(claims: Claims, inside: list[Shape]) -> np.ndarray:
    """An occupancy inside the domain of logarithms that does everything now and then.

    Nobody learns from samples what a policy never does, and no gradient moves what is next to never done; but
    policies that are surely inside often do nothing. So the interior point, whose least argument of a logarithm
    is largest, is mixed with the uniform policy as far as half of that argument stays.
    """
    flow, interior = claims.flow, _most_inside(claims, inside)
    room = _least(inside, flow.occupancy(interior))
    shares = 0.5 ** np.arange(1, MOST_HALVINGS)[:, None, None]
    mixed = flow.occupancies((1.0 - shares) * interior + shares * flow.uniform)
    return next((x for x in mixed if _least(inside, x) >= 0.5 * room), mixed[-1])


def _least(inside: list[Shape], x: np.ndarray) -> float:
    return min(float(argument.value(x)) for argument in inside)


def _most_inside(claims: Claims, inside: list[Shape]) -> np.ndarray:
    """The policy that makes the least of the logarithms' arguments largest, (S, A)."""
    found = prove(claims.with_objective(MinimumShape(tuple(inside))))
    if found.upper <= 0 or found.evidence.policy is None:
        raise ProblemError(
            "objective or slack is minus infinity for every policy: no policy makes the argument of every "
            f"logarithm positive (the least of them is at most {found.upper:.3g}, proven)"
        )
    return found.evidence.policy
