"""What VR-PDPG reads of its task: when things are recorded, and the numbers that compiled code takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from cvxmdp.algorithms.chunks import Carry, Snapshot, Summary, snapshot_of
from cvxmdp.algorithms.directions import Departures
from cvxmdp.algorithms.recursion import Learning, Watched
from cvxmdp.atoms import Shape, entropy, walk
from cvxmdp.atoms.shapes.separating import separated
from cvxmdp.base.compiling import has_accelerator, rows_for
from cvxmdp.base.errors import SettingsError
from cvxmdp.base.interval import Interval
from cvxmdp.base.precision import on_device
from cvxmdp.base.saved_trees import Growing
from cvxmdp.experience.environments.environment import Environment, environment_of
from cvxmdp.experience.trajectories import sampling_model
from cvxmdp.policies.families import BoundDirect, BoundFamily
from cvxmdp.policies.gaussian import BoundGaussian
from cvxmdp.policies.networks import BoundMLP, BoundNetwork
from cvxmdp.problems.findings import Course, Timeline
from cvxmdp.problems.problem import Evaluation, Problem
from cvxmdp.solvers.contract import Task, spacing
from cvxmdp.solvers.start import exploring_start, per_constraint, take_start
from cvxmdp.solvers.vr_pdpg_settings import Settings

EXPLORING = 0.5  # of the iterations, over which exploration falls to zero
KEPT = 256  # iterates that answers are made of and violations are counted by, at most
NARROW = 0.05  # of log A: the entropy of a policy that hardly varies what it does
LEAST_KEPT = 40  # of them where the model is large, or there is none
IMAGE = 1_000  # numbers, beyond which an observation with axes is an image
SOLVED = 100_000  # states of all exact occupancies together, beyond LEAST_KEPT of them


class Plan(NamedTuple):
    """When things are recorded and evaluated, by counts of iterations."""

    iterations: int
    every: int  # iterations between records
    length: int  # of a chunk, at whose end the policy is kept; a multiple of ``every``
    iterate: str

    @classmethod
    def of(cls, settings: Settings, rows: int | None) -> Plan:
        """As the settings have it, with at most so many records. Chunks begin where a record does."""
        every = settings.record_every or 1
        if settings.record_every is None or rows is not None:
            every = max(every, spacing(settings.iterations, rows))
        length = -(-min(settings.evaluate_every, settings.iterations) // every) * every
        return cls(settings.iterations, every, length, settings.iterate)

    @property
    def capacity(self) -> int:
        """Rows that the records of a chunk are written to."""
        return rows_for(self.length // self.every)

    def rounds(self, count: int) -> int:
        """Iterations between two of ``count`` iterations' records where compiled code is to know them, else 0.

        A processor does without a loop where each is recorded; an accelerator need not ask after each round.
        """
        known = self.every == 1 or (has_accelerator() and count % self.every == 0)
        return self.every if known else 0

    def end(self, done: int) -> int:
        """Of the chunk that is under way."""
        return min((done // self.length + 1) * self.length, self.iterations)

    def begun(self, done: int) -> int:
        """Where the chunk that is under way, or has just ended, began."""
        return max(done - 1, 0) // self.length * self.length


class Kept(NamedTuple):
    """The policy at the end of a chunk."""

    done: Any
    snapshot: Snapshot


class Learned(NamedTuple):
    """The state between two pieces."""

    done: Any
    carry: Carry
    steps: Any  # taken in the model
    largest_weight: Any
    snapshots: Growing  # of ``Kept``, the first of the start

    def after(self, plan: Plan, until: int, carry: Carry, summary: Summary) -> Learned:
        """The state after a piece, of one run or of all lanes, with a snapshot where a chunk ended."""
        snapshots = self.snapshots
        if until == plan.end(int(self.done)):
            kept = Kept(np.array(until), snapshot_of(carry, until - plan.begun(until)))
            snapshots = Growing([*snapshots, kept])
        steps = self.steps + summary.steps
        largest = np.maximum(self.largest_weight, summary.largest_weight)
        return Learned(np.array(until), carry, steps, largest, snapshots)


class Worth(NamedTuple):
    """What a policy is worth, and what is said of it."""

    policy: Any
    evaluation: Evaluation
    slack_interval: dict[str, Interval]
    history: dict[str, Any]
    stats: dict[str, Any]
    remark: str  # for the message


class Shared:
    """What runs that differ in their seed alone have in common."""

    def __init__(self, settings: Settings, task: Task, pessimism: np.ndarray) -> None:
        self.settings = settings
        self.plan = Plan.of(settings, task.rows)
        self.learning: Learning = single_precision(read_learning(settings, task.problem, pessimism))


def first_numbers(shared: Shared, task: Task) -> tuple[Any, Any, str]:
    """theta_0, or None where the family draws it, and mu_0, in single precision; and what ``start=`` gave."""
    bound = np.asarray(shared.learning.dual_bound)
    given, problem = shared.settings.initial_multiplier, task.problem
    if given is not None:
        multipliers = per_constraint(given, problem, "initial_multiplier")
        outside = multipliers > bound
        if outside.any():
            k = int(np.argmax(outside))
            raise SettingsError(
                f"the initial_multiplier of {list(problem.constraints)[k]!r} is {multipliers[k]:g}, outside "
                f"the box that ends at dual_bound={bound[k]:g}"
            )
    found = take_start(task, shared.learning.family, given)
    multipliers, params = np.minimum(found.multipliers, bound), found.params
    family = shared.learning.family
    known = problem.environment is None and not isinstance(family, BoundNetwork)
    if shared.settings.safe and shared.settings.explore and known:
        params = exploring_start(task, family, params)
    return single_precision(params), single_precision(multipliers), found.taken


def choose_iterates(plan: Plan, seed: int, problem: Problem) -> np.ndarray | None:
    """Iterations whose policies are kept, in order: all of them, or as many as can be evaluated.

    For iterate="uniform" they are drawn without replacement, as the theorem has it; otherwise they are spread
    evenly. None where nobody asks for them: there is no model to evaluate them with, and the last is returned.
    """
    known = problem.environment is None
    if plan.iterate == "last" and not known:
        return None
    if plan.iterate == "uniform":
        count = min(KEPT, plan.iterations)
        chosen = np.random.default_rng([seed, 1]).choice(plan.iterations, count, False)
        return np.sort(chosen).astype(np.int32)
    solved = SOLVED // problem.shape[0] if known else 0
    count = min(plan.iterations, KEPT, max(LEAST_KEPT, solved))
    return np.round(np.linspace(0, plan.iterations - 1, count)).astype(np.int32)


def course_of(problem: Problem, history: Mapping[str, Any], bound: np.ndarray) -> Course:
    """How a run went, for the findings about it.

    By the exact values of the policies played where there is a model; else by every batch of episodes where the
    function is affine, and by the mean occupancies of chunks where single episodes say something else (Jensen).
    """
    known, names = problem.environment is None, list(problem.constraints)
    recorded = np.asarray(history["recorded"])

    def curve(function: Shape, exact: Any, sampled: Any) -> Timeline:
        if known or function.affine() is None:
            return Timeline(np.asarray(history.get("played", ())), np.asarray(exact, dtype=float))
        return Timeline(recorded, np.asarray(sampled, dtype=float))

    worth = curve(
        problem.objective_function,
        history.get("played_objective", ()),
        history["episode_objective"],
    )
    played, sampled = history.get("played_slack", {}), history["episode_slack"]
    actions = problem.space.shape[1]
    narrow = np.asarray(history["policy_entropy"]) < NARROW * math.log(actions)
    return Course(
        Timeline(worth.at, problem.sign * worth.values),
        {
            name: curve(function, played.get(name, ()), sampled[name])
            for name, function in problem.slack_functions.items()
        },
        {name: Timeline(recorded, np.asarray(history["multipliers"][name])) for name in names},
        dict(zip(names, np.asarray(bound, dtype=float).tolist(), strict=True)),
        Timeline(recorded, narrow.astype(float)),
    )


def not_finite(iteration: int) -> str:
    """What to say of a run that broke."""
    return (
        f"iteration {iteration}: the gradient, the slack or an importance weight is not finite. Likely causes: "
        "steps so large that the weights explode (try a smaller primal_step), or a utility of your own that is "
        "not finite at points that are no occupancies."
    )


def refuse_images(family: BoundFamily, environment: Environment | None) -> None:
    """An error for observations that a perceptron would make nothing of."""
    if environment is None or not isinstance(family, BoundMLP | BoundGaussian):
        return
    shape = environment.reader.shape
    if len(shape) >= 2 and math.prod(shape) > IMAGE and environment.features is None:
        raise SettingsError(
            f"{environment.name} shows images of shape {shape}, which a perceptron makes nothing of. Give a "
            "network of your own, policy=EquinoxModule(network), or features=; or flatten them "
            "(gymnasium.wrappers.FlattenObservation), where they are no pictures"
        )


def read_learning(settings: Settings, problem: Problem, pessimism: np.ndarray) -> Learning:
    """Everything an iteration needs."""
    family = settings.policy.bind(problem.space.deciding)
    refuse_images(family, environment_of(problem))
    if isinstance(family, BoundDirect):
        raise SettingsError(
            "VR-PDPG needs scores: use Table(), LinearSoftmax, MLP or an Equinox module"
        )
    theorem = isinstance(settings.momentum, str)
    transform = settings.primal_step if hasattr(settings.primal_step, "update") else None
    objective, departures = _departures(settings, problem)
    return Learning(
        model=_source(problem, family),
        objective=objective.extended(),
        slacks=tuple(slack.extended() for slack in problem.slack_functions.values()),
        family=family,
        watched=_watched(problem),
        primal_step=0.0 if transform is not None else settings.primal_step,
        primal_decay=settings.primal_decay,
        dual_step=settings.dual_step,
        dual_decay=settings.dual_decay,
        dual_bound=settings.dual_bound,
        pessimism=pessimism,
        momentum=1.0 if theorem else settings.momentum,
        momentum_decay=0.5 if theorem else 0.0,
        shape=problem.shape,
        horizon=settings.horizon,
        batch_size=settings.batch_size,
        baseline=settings.baseline,
        transform=transform,
        departures=departures,
    )


def _departures(settings: Settings, problem: Problem) -> tuple[Shape, Departures]:
    """What is maximised beside logarithms that are kept inside, and what goes beyond the paper."""
    objective, logs, weights = separated(problem.objective_function)
    if not settings.safe:
        objective, logs, weights = problem.objective_function, (), ()
    return objective, Departures(
        logs=tuple(replace(log, parts=(log.parts[0].extended(),)) for log in logs),
        log_weights=np.array(weights, dtype=np.float64),
        exploration=(problem.bind(entropy()).extended(),) if settings.explore else (),
        explore=settings.explore,
        until=EXPLORING * settings.iterations,
        trust=settings.trust,
        whole=1.0 / (1.0 - settings.unseen),
        natural=settings.direction == "natural",
    )


def _source(problem: Problem, family: BoundFamily) -> Any:
    """Where trajectories come from."""
    environment = environment_of(problem)
    if environment is None:
        steps = problem.mdp.horizon.steps
        return sampling_model(problem.mdp if steps is None else problem.mdp.unroll(steps))
    return environment.source(problem.space.signal_names, family.observes)


def _watched(problem: Problem) -> Watched:
    targets = tuple(targets_of(problem).values())
    if problem.environment is None:
        reward = problem.mdp.signals.get("reward")
        return Watched(None if reward is None else problem.mdp.horizon.rows(reward), targets)
    known = "reward" in problem.space.signal_names  # not where it is a vector
    return Watched(problem.space.signal("reward") if known else None, targets, mean=True)


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
