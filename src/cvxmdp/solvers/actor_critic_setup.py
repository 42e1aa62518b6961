"""What an actor-critic reads of its task: settings that were not given, networks, and where it plays."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.actor_iteration import (
    ActorCriticSetup,
    ActorPart,
    ActorState,
    Critic,
    KeptPolicy,
    Moments,
    RunningMeasure,
    Scaled,
    seeing,
)
from cvxmdp.algorithms.actor_lanes import JaxLanes, TableLanes
from cvxmdp.algorithms.actor_multipliers import SETTLED as ALLOWED
from cvxmdp.algorithms.actor_multipliers import Gains, first_dual
from cvxmdp.algorithms.actor_readings import Readings, readings_of
from cvxmdp.algorithms.clipped_steps import StepSizes, first_adam, imitated
from cvxmdp.base.compiling import run_once
from cvxmdp.base.errors import FileFormatError, SettingsError
from cvxmdp.base.precision import host
from cvxmdp.base.saved_trees import from_arrays
from cvxmdp.experience.environments.environment import Environment, environment_of
from cvxmdp.experience.environments.jax_env import CompiledSource
from cvxmdp.experience.trajectories import sampling_model
from cvxmdp.models.horizon import Horizon
from cvxmdp.policies.families import BoundDirect, BoundFamily
from cvxmdp.policies.gaussian import Gaussian, GaussianPolicy
from cvxmdp.policies.networks import MLP, BoundMLP, BoundNetwork, NetworkPolicy, Observed
from cvxmdp.policies.tables import table_of
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.learning import refuse_images, single_precision
from cvxmdp.solvers.playing import require_steps
from cvxmdp.solvers.start import fitting, parameters_of

if TYPE_CHECKING:
    from cvxmdp.solvers.actor_critic import ActorCritic

BATCH, LEAST_BATCH, BATCHES = 2048, 256, 100
# A hundred batches that are gone through four times are too few steps of Adam to learn what was seen seldom.
PARTS, PASSES, EPOCHS = 8, 800, (4, 8)  # of a batch; of all batches together; of a batch
LANES = 64  # in compiled code
LONG, FEW_LANES = 400, 4  # steps of an episode, from which on so few lanes are played
LEAST_LENGTH = 16  # steps of a lane between two updates
CUT, LATEST_CUT = 2.0, 5.0  # times 1 / (1 - discount), where episodes are cut
UNLIMITED = 10_000  # steps of an episode that nothing else ends
# The integral part can cross its box's first units well within a run, however few iterations that has.
REACHED, INTEGRAL = 5.0, (0.002, 0.03)
CRITIC = (64, 64)
CRITIC_HORIZON = 200
REACH = 10.0  # standard deviations, at which observations are cut
REPAIR = 0.1  # of the run, that a repair takes
SEEN = 10_000.0  # observations that the scale of a given policy counts for
LEARNER, ABOUT = "learner", "about"  # in a solution's stats, and in there


class Chosen(NamedTuple):
    """Settings with nothing left open."""

    batch: int
    epochs: int
    minibatch: int
    learning_rate: float
    gae: float
    critic_discount: float
    entropy: float
    integral: float
    lanes: int
    length: int
    limit: int
    iterations: int

    @property
    def repair(self) -> int:
        """Iterations of a repair."""
        return math.ceil(REPAIR * self.iterations)

    @property
    def words(self) -> str:
        """For people."""
        shown = (
            "batch",
            "epochs",
            "minibatch",
            "learning_rate",
            "gae",
            "critic_discount",
            "entropy",
            "integral",
        )
        return ", ".join(f"{name} {getattr(self, name):g}" for name in shown)


def choose(solver: ActorCritic, problem: Problem) -> Chosen:
    """What was given, and what the problem suggests where nothing was."""
    environment, horizon = environment_of(problem), problem.space.horizon
    limit = episode_limit(horizon, environment)
    batch = solver.batch or min(BATCH, max(LEAST_BATCH, solver.steps // BATCHES))
    lanes = LANES if environment is None else environment.n_lanes
    if limit > LONG and environment is not None and not environment.compiled:
        lanes = min(lanes, FEW_LANES)
    lanes = max(1, min(lanes, batch // LEAST_LENGTH))
    if environment is not None and not environment.idles:
        lanes = environment.n_lanes
    length = max(LEAST_LENGTH, batch // lanes)
    require_steps(solver.steps, lanes)
    length = min(length, solver.steps // lanes)
    iterations = max(1, solver.steps // (lanes * length))
    discounted, vectors = horizon.discount < 1.0, continuous(problem)
    far = 1.0 - 1.0 / min(limit, CRITIC_HORIZON)
    part, passes = max(1, batch // PARTS), round(np.clip(PASSES / iterations, *EPOCHS))
    size = min(solver.minibatch or (64 if vectors else part), lanes * length)
    return Chosen(
        batch=lanes * length,
        epochs=solver.epochs or (10 if vectors else passes),
        minibatch=size,
        learning_rate=solver.learning_rate or (3e-4 if vectors else 1e-3),
        gae=_either(solver.gae, 0.95 if vectors and not discounted else 0.9),
        critic_discount=_either(solver.critic_discount, horizon.discount if discounted else far),
        entropy=_either(solver.entropy, 0.0 if vectors else 0.03),
        integral=_either(solver.integral, float(np.clip(REACHED / iterations, *INTEGRAL))),
        lanes=lanes,
        length=length,
        limit=limit,
        iterations=iterations,
    )


def continuous(problem: Problem) -> bool:
    """Whether actions are vectors of numbers."""
    environment = environment_of(problem)
    return environment is not None and environment.action_box is not None


def _either(given: Any, otherwise: float) -> float:
    return otherwise if given is None else float(given)


def episode_limit(horizon: Horizon, environment: Environment | None) -> int:
    """Where an episode is cut: where little is left to come, or where the environment would."""
    own = None if environment is None else environment.episode_limit
    if horizon.limit is not None:
        return horizon.limit
    if horizon.discount >= 1.0:
        return own or UNLIMITED
    ahead = horizon.longest
    return math.ceil(min(max(CUT * ahead, own or 0.0), max(LATEST_CUT * ahead, 1.0)))


def read_setup(solver: ActorCritic, problem: Problem, chosen: Chosen) -> ActorCriticSetup:
    """Everything an iteration needs, on the device."""
    horizon, functions = problem.space.horizon, problem.slack_functions.values()
    signals = 0 if problem.environment is None else len(problem.space.signal_names)
    readings = readings_of((problem.objective_function, *functions), problem.shape, signals)
    family = bound_family(solver, problem)
    discounted = horizon.discount < 1.0
    setup = ActorCriticSetup(
        readings=readings,
        family=family,
        critic=critic_of(family, readings),
        discount=horizon.discount,
        longest=horizon.longest if math.isfinite(horizon.longest) else float(chosen.limit),
        tail=float(discounted and horizon.limit is None),
        critic_discount=chosen.critic_discount,
        gae=chosen.gae,
        memory=solver.memory,
        iterations=chosen.iterations,
        repair=chosen.repair,
        gains=Gains(chosen.integral, solver.proportional, solver.ramp, solver.check, solver.memory),
        sizes=StepSizes(
            chosen.learning_rate,
            solver.clip,
            chosen.entropy,
            solver.kl,
            chosen.epochs,
            chosen.batch // chosen.minibatch,
        ),
    )
    found: ActorCriticSetup = single_precision(_as_numbers(setup))
    return found


def _as_numbers(setup: ActorCriticSetup) -> Any:
    """Python's numbers as real numbers: whole ones would count in integers."""
    return jax.tree.map(lambda leaf: float(leaf) if isinstance(leaf, int) else leaf, setup)


def bound_family(solver: ActorCritic, problem: Problem) -> BoundFamily:
    """The family on what the environment shows."""
    gaussian = Gaussian(64, 64) if solver.std is None else Gaussian(64, 64, std=solver.std)
    chosen = solver.policy or (gaussian if continuous(problem) else MLP(64, 64))
    family = chosen.bind(problem.space)
    if continuous(problem) != family.continuous:
        raise SettingsError(
            f"policy={solver.policy!r} is for actions of another kind: Gaussian(64, 64) for vectors in a box, "
            "MLP(64, 64) for a list"
        )
    refuse_images(family, environment_of(problem))
    if isinstance(family, BoundDirect):
        raise SettingsError(
            "ActorCritic needs a family with scores: MLP(64, 64), Table(), or an Equinox module"
        )
    return seeing(family, lambda seen: replace(seen, reach=REACH))


def critic_of(family: BoundFamily, readings: Readings) -> BoundMLP:
    """A network with a number for every channel, that sees what the policy sees."""
    inputs = family.inputs if isinstance(family, BoundNetwork) else None
    rows = np.ones((family.actions.shape[0], readings.channels), dtype=bool)
    return BoundMLP(rows, inputs, CRITIC)


def source_of(problem: Problem, setup: ActorCriticSetup) -> Any:
    """What compiled code plays; None where steps are taken outside of it."""
    environment = environment_of(problem)
    if environment is None:
        return single_precision(TableLanes(sampling_model(problem.mdp), problem.space.shape[1]))
    source = environment.source(problem.space.signal_names, setup.family.observes)
    if not isinstance(source, CompiledSource):
        return None
    return single_precision(JaxLanes(source, setup.readings.features))


@run_once("lanes")
def first_state(setup: ActorCriticSetup, key: Any, lanes: int) -> ActorState:
    """Before the first iteration."""
    of_policy, of_critic = jax.random.split(key)
    params = _single(setup.family.init(of_policy))
    values = _single(setup.critic.init(of_critic))
    channels, constraints = setup.readings.channels, len(setup.readings.functions) - 1
    actor = ActorPart(params, first_moments(setup.family))
    nothing = jnp.zeros(channels)
    return ActorState(
        jnp.zeros((), jnp.int32),
        actor,
        actor,
        KeptPolicy(jnp.asarray(-jnp.inf), jnp.zeros((), jnp.int32), actor),
        Critic(values, Scaled(nothing, nothing)),
        (first_adam(params), first_adam(values)),
        RunningMeasure(jnp.zeros(setup.readings.size), *[jnp.zeros(())] * 3),
        first_dual(constraints),
        jnp.zeros_like(setup.readings.inside(jnp.zeros(setup.readings.size))),
        jnp.zeros((lanes, channels)),
    )


def first_moments(family: Any) -> Moments:
    """As if nothing was seen: the box of the observations, or nothing where states are seen by number."""
    seen = getattr(family, "inputs", None)
    if not isinstance(seen, Observed) or seen.features is not None:
        return Moments(jnp.zeros(()), jnp.zeros(0), jnp.zeros(0))
    middle = jnp.asarray(seen.middle, jnp.float32)
    return Moments(jnp.zeros(()), middle, jnp.asarray(seen.scale, jnp.float32) ** 2)


def _single(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)


def asked(problem: Problem, readings: Readings) -> str:
    """What a learner's critic, measure and multipliers are about: signals, constraints and channels."""
    channels = b"" if readings.rewards is None else np.asarray(readings.rewards).tobytes()
    names = list(getattr(problem.space, "signal_names", ())), list(problem.constraints)
    return json.dumps([*names, hashlib.sha256(channels).hexdigest()])


def taken_over(first: ActorState, start: Any, family: Any, about: str) -> tuple[ActorState, str]:
    """The first state with what ``start=`` gives: all of a learner's, or the parameters of a policy; in words.

    There is something to keep already: no violation is allowed at first. Of a learner that was asked for
    something else (``asked``), the policy alone is taken: its multipliers belong to other constraints.
    """
    if start is None:
        return first, ""
    known = getattr(start, "stats", {}).get(LEARNER)
    if known is not None and known.get(ABOUT) == about:
        try:
            found: ActorState | None = from_arrays(known, first._replace(returns=np.zeros((0, 0))))
        except FileFormatError:
            found = None
        if found is not None and _alike(found, first):
            dual = found.dual._replace(
                allowance=np.zeros_like(found.dual.allowance),
                extra=np.zeros_like(found.dual.extra),
            )
            reached = found._replace(
                done=first.done,
                kept=first.kept._replace(actor=found.actor),
                dual=dual,
                outside=first.outside,
                returns=first.returns,
            )
            return reached, "parameters, critic, scales, measure and multipliers of the solution"
    actor = _policy_of(start, first.actor, family)
    dual = first.dual._replace(updates=np.float32(ALLOWED))
    kept = first.kept._replace(actor=actor)
    reached = first._replace(actor=actor, averaged=actor, kept=kept, dual=dual)
    return reached, "parameters of the policy"


def _alike(one: ActorState, other: ActorState) -> bool:
    """Whether two states differ in their numbers alone."""
    pairs = zip(jax.tree.leaves(one[:-1]), jax.tree.leaves(other[:-1]), strict=True)
    return all(np.shape(mine) == np.shape(theirs) for mine, theirs in pairs)


def _policy_of(start: Any, first: ActorPart, family: Any) -> ActorPart:
    """Parameters, and how observations are scaled, of a policy that fits."""
    policy, moments = getattr(start, "policy", start), first.moments
    if isinstance(policy, NetworkPolicy | GaussianPolicy):
        # As it was: parameters mean little without the scale that they were learned with.
        params = fitting(policy.params, family) if policy.family == family.name else None
        seen = policy.bound.inputs
        if moments.mean.size and seen.features is None:
            square = np.asarray(seen.scale, np.float32) ** 2
            moments = Moments(np.float32(SEEN), np.asarray(seen.middle, np.float32), square)
    else:
        params = parameters_of(start, family)
    table = table_of(policy) if params is None and not family.observes else None
    if table is not None and table.shape == family.actions.shape:
        params = imitated(family, first.params, np.asarray(table, np.float32))
    if params is None:
        raise SettingsError(
            f"start= is {policy!r}, which this learner's {family.name} cannot take over: give a solution of "
            "ActorCritic, or a policy of the same family and widths"
        )
    return ActorPart(host(_single(params)), moments)
