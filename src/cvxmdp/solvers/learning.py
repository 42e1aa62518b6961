"""From a solver's settings and a problem to the numbers that compiled code takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cvxmdp.algorithms.recursion import Learning, Watched
from cvxmdp.atoms import Shape, walk
from cvxmdp.base.errors import SolverError
from cvxmdp.base.precision import on_device
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.experience.trajectories import sampling_model
from cvxmdp.policies.families import BoundDirect, BoundFamily
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.start import per_constraint

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg import VRPDPG


def read_learning(solver: VRPDPG, problem: Problem, pessimism: np.ndarray) -> Learning:
    """Everything an iteration needs."""
    family = solver.policy.bind(problem.space)
    if isinstance(family, BoundDirect):
        raise SolverError(
            "VR-PDPG needs scores: use Table(), LinearSoftmax, MLP or an Equinox module"
        )
    theorem = isinstance(solver.momentum, str)
    transform = solver.primal_step if hasattr(solver.primal_step, "update") else None
    numbers = partial(per_constraint, problem=problem)
    return Learning(
        model=_source(problem, family),
        objective=problem.objective_function.extended(),
        slacks=tuple(slack.extended() for slack in problem.slack_functions.values()),
        family=family,
        watched=_watched(problem),
        primal_step=0.0 if transform is not None else solver.primal_step,
        primal_decay=solver.primal_decay,
        dual_step=numbers(solver.dual_step, what="dual_step"),
        dual_decay=solver.dual_decay,
        dual_bound=numbers(solver.dual_bound, what="dual_bound"),
        pessimism=pessimism,
        momentum=1.0 if theorem else solver.momentum,
        momentum_decay=0.5 if theorem else 0.0,
        shape=problem.shape,
        horizon=solver.horizon,
        batch_size=solver.batch_size,
        baseline=solver.baseline,
        transform=transform,
    )


def _source(problem: Problem, family: BoundFamily) -> Any:
    """Where trajectories come from."""
    environment = environment_of(problem)
    if environment is None:
        return sampling_model(problem.mdp)
    return environment.source(problem.space.signal_names, family.observes)


def _watched(problem: Problem) -> Watched:
    targets = tuple(targets_of(problem).values())
    if problem.environment is None:
        return Watched(problem.mdp.signals.get("reward"), targets)
    return Watched(problem.space.signal("reward"), targets, mean=True)


def single_precision(tree: Any) -> Any:
    """On the device, real numbers in single precision whatever JAX's flag."""

    def convert(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    return on_device(jax.tree.map(convert, tree))


def targets_of(problem: Problem) -> dict[str, np.ndarray]:
    """Occupancies that the objective or a constraint takes a distance to, by its name."""
    functions = {"objective": problem.objective_function, **problem.slack_functions}
    found = {name: _target(function) for name, function in functions.items()}
    return {name: target for name, target in found.items() if target is not None}


def _target(function: Shape) -> np.ndarray | None:
    """The first target in it."""
    targets = (step.node.target() for step in walk(function))
    return next((target for target in targets if target is not None), None)
