"""evaluate(policy, environment, episodes): what a policy is worth, with bounds that say how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cvxmdp.atoms import Constraint, Curvature, Utility
from cvxmdp.atoms.utility import require_curvature, signal_names
from cvxmdp.base.errors import ExperienceError, ProblemError, did_you_mean
from cvxmdp.base.removed import refusing_removed
from cvxmdp.base.settings import whole
from cvxmdp.experience.concentration import Radius, VectorBound, bernstein_radius
from cvxmdp.experience.environments.environment import Actor, Environment
from cvxmdp.experience.environments.gymnasium_env import GymnasiumEnv
from cvxmdp.experience.environments.simulated import ModelSimulator, actor_in, actor_of
from cvxmdp.experience.episodes import Episodes, Sample, joined, summarise
from cvxmdp.experience.intervals import Setting, interval_of, leaves
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.features import Features
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.problems.problem import Problem

Bounds = Mapping[str, tuple[float, float]]
HIDDEN = 1e-3  # share of the mass that a default horizon may leave out
TOGETHER = 4_000_000  # steps of a model simulated at a time


@dataclass(frozen=True)
class _Question:
    """What is to be evaluated."""

    objective: Utility
    slacks: Mapping[str, Utility]
    written: Mapping[str, str]
    model: TabularMDP | None

    @property
    def utilities(self) -> list[Utility]:
        return [self.objective, *self.slacks.values()]

    @property
    def signals(self) -> list[str]:
        return sorted({name for utility in self.utilities for name in signal_names(utility)})


@refusing_removed
def evaluate(
    policy: Any,
    source: Any = None,
    episodes: int = 1_000,
    *,
    seed: int | None = None,
    problem: Any = None,
    maximize: Utility | None = None,
    minimize: Utility | None = None,
    subject_to: Mapping[str, Constraint] | None = None,
    discount: float | None = None,
    features: Features | None = None,
    confidence: float = 0.95,
    horizon: int | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    return_bounds: Mapping[str, tuple[float, float]] | None = None,
    episode_limit: int | None = None,
    deterministic: bool = False,
) -> PolicyEvaluation:
    """Play episodes and bound every utility and constraint from them.

    Bounds of linear utilities are empirical Bernstein bounds of the episodes' returns; those of other atoms
    come from bounded differences pushed through the atom's modulus of continuity (see
    ``cvxmdp.experience.concentration``, which states both); where an atom has no modulus, or a signal no
    bounds, a bootstrap is used and labelled. What truncation hid is inside proven bounds, not in a bootstrap.

    Args:
        policy: one of ours, a solution, an (S, A) array, anything with ``predict(observation)``, such as a
            model trained with Stable-Baselines3, or a function of an observation; in a model, of a state's
            name (or number), where it may give an action's name or the chances of several.
        source: a model, a Gymnasium environment or its id, or a ``GymnasiumEnv`` or ``JaxEnv``; where not
            given, what the problem is about.
        episodes: how many, at least 2.
        seed: of everything random.
        problem: what to evaluate; a solution brings its own. Or
        maximize, minimize, subject_to: as in ``Problem``, where there is no model to make one of.
        discount, features: for an environment that is not a ``GymnasiumEnv``; the discount of the problem's
            model where not given.
        confidence: the probability with which all bounds hold at once.
        horizon: where episodes are cut; where discount^horizon falls below 1e-3 when not given. With
            ``discount=1`` so many steps are the whole episode, and nothing is cut. With
            ``average=True`` one long path is played, and ``episodes`` are batches of so many steps of it; their
            means are bootstrapped, and prove nothing.
        bounds: smallest and largest value per step of the environment's signals, {"reward": (0, 1)}, beside
            those that the environment was made with. Without them nothing can be proven of a signal. A model
            knows its own.
        return_bounds: the same for the discounted sum over a whole episode, where that is narrower: a reward of
            one that is received once, at the end, has a return between 0 and 1. Promises, both of them.
        episode_limit: say that the environment cuts episodes at so many steps and never sooner, as Gymnasium's
            ``max_episode_steps`` does; otherwise the bounds allow for cuts anywhere.
        deterministic: passed to ``predict``: evaluate the policy of the likeliest actions.
    """
    if isinstance(policy, Problem):
        raise ExperienceError(
            "evaluate takes the policy first: evaluate(policy, source, problem=..., episodes=..., seed=...)"
        )
    if seed is None:
        raise ExperienceError("evaluate draws episodes: give seed=, an integer, to say which")
    whole("episodes", episodes, 2, ExperienceError)
    if not 0.0 < confidence < 1.0:
        raise ExperienceError(f"confidence must be between 0 and 1; got {confidence!r}")
    if problem is None and maximize is None and minimize is None:
        problem = getattr(policy, "problem", None)
    question = _question(problem, maximize, minimize, subject_to)
    if source is None and problem is None:
        raise ExperienceError("where is it to be played? Give a model or an environment as source")
    source = (problem.environment or problem.mdp) if source is None else source
    sides = 2 * sum(1 for utility in question.utilities for _ in leaves(utility))
    if isinstance(source, TabularMDP):
        if discount is not None or features is not None or bounds or return_bounds or episode_limit:
            raise ExperienceError("a model brings its own discount, states and bounds")
        delta = (1.0 - confidence) / max(sides, 1)
        horizon = source.flow.steps_until(HIDDEN) if horizon is None else horizon
        horizon = min(horizon, source.horizon.steps or horizon)
        sample = _play_model(source, policy, int(episodes), horizon, seed, deterministic)
        setting = _model_setting(source, sample, horizon, delta, seed)
        name = f"simulated {source.note or 'model'}"
    else:
        delta = (1.0 - confidence) / (sides + 1)  # one more for what truncation hid
        if discount is None and question.model is not None:
            discount = question.model.discount
        step_bounds = _read_bounds(bounds, question.signals)
        return_bounds = _read_bounds(return_bounds, question.signals)
        env, mine = _environment(source, discount, features, horizon)
        try:
            env.require_bounds_of(question.signals)
            horizon = env.default_horizon() if horizon is None else horizon
            sample = _play(env, policy, int(episodes), horizon, seed, question, deterministic)
            promised = {name: env.bounds[name] for name in question.signals if name in env.bounds}
            promised.update(step_bounds)
            setting = _env_setting(env, sample, question, delta, seed, promised, return_bounds)
            episode_limit = episode_limit or _own_limit(env, sample)
            if episode_limit is not None:
                setting = _with_limit(setting, min(int(episode_limit), horizon))
            name = env.name
        finally:
            if mine:
                env.close()
    return PolicyEvaluation(
        interval_of(question.objective, setting),
        {label: interval_of(slack, setting) for label, slack in question.slacks.items()},
        float(confidence),
        sample.n,
        int(sample.lengths.sum()),
        int(horizon),
        sample.truncated,
        setting.tail.l1,
        question.written,
        name,
        _promises(question, setting, episode_limit),
        sample.mean(),
        int(sample.lengths[~sample.terminated].max(initial=0)),
    )


def _promises(question: _Question, setting: Setting, limit: int | None) -> tuple[str, ...]:
    """What the user said and nobody can check from episodes."""
    promised = ((setting.bounds, "at every step"), (setting.return_bounds, "over a whole episode"))
    said = [
        f"{name!r} lies between {low:g} and {high:g} {where}"
        for bounds, where in promised
        for name, (low, high) in bounds.items()
        if name in question.signals
    ]
    if limit is not None:
        said.append(f"the environment cuts no episode before {limit} steps")
    for utility in question.utilities:
        for atom in (one for one in leaves(utility) if one.curvature is not Curvature.AFFINE):
            modulus = atom.lower(setting.space).modulus(setting.one_hot, setting.pairs)
            if modulus is not None and modulus.promise:
                said.append(modulus.promise)
    return tuple(dict.fromkeys(said))


def _question(problem: Any, maximize: Any, minimize: Any, subject_to: Any) -> _Question:
    if problem is not None:
        if maximize is not None or minimize is not None or subject_to is not None:
            raise ProblemError("give a problem, or maximize= and subject_to=, not both")
        constraints, sense, utility = problem.constraints, problem.sense, problem.utility
        model = problem.space if isinstance(problem.space, TabularMDP) else None
    else:
        if (maximize is None) == (minimize is None):
            raise ProblemError(
                "what is to be evaluated? Give problem=, or one of maximize= and minimize= with "
                "subject_to="
            )
        sense, utility = ("maximize", maximize) if minimize is None else ("minimize", minimize)
        wanted = Curvature.CONCAVE if sense == "maximize" else Curvature.CONVEX
        require_curvature(utility, wanted, f"{sense}=")
        constraints, model = dict(subject_to or {}), None
        for name, constraint in constraints.items():
            if not isinstance(constraint, Constraint):
                raise ProblemError(f"constraint {name!r} must compare a utility with a number")
    written = {"objective": f"{sense} {utility!r}"}
    written |= {name: repr(constraint) for name, constraint in constraints.items()}
    slacks = {name: constraint.slack for name, constraint in constraints.items()}
    return _Question(utility, slacks, written, model)


def _seeds(seed: int, count: int) -> list[int]:
    return [int(part.generate_state(1)[0]) for part in np.random.SeedSequence(seed).spawn(count)]


def _play_model(
    mdp: TabularMDP, policy: Any, episodes: int, horizon: int, seed: int, deterministic: bool
) -> Sample:
    acts, draws = _seeds(seed, 2)
    if isinstance(policy, Mapping | TabularPolicy) or not hasattr(policy, "predict"):
        policy = as_policy(mdp, policy)
    act: Actor = actor_of(
        policy, mdp.n_actions, acts, n_states=mdp.n_states, deterministic=deterministic
    )
    random = np.random.default_rng(draws)
    simulator = ModelSimulator(mdp)
    if not mdp.horizon.episodic:
        return _long_run(simulator, act, episodes, horizon, random)
    block = max(1, TOGETHER // horizon)
    parts = []
    for begin in range(0, episodes, block):
        batch = simulator.episodes(act, min(block, episodes - begin), horizon, random)
        if horizon == mdp.horizon.steps:  # nothing is cut where nothing follows
            batch = replace(batch, terminated=np.ones_like(batch.terminated))
        parts.append(_summarised(batch, mdp))
    return joined(parts)


def _summarised(batch: Episodes, mdp: TabularMDP) -> Sample:
    """With a horizon, also with the time of every step: rewards may depend on it."""
    told: dict[str, Any] = {"after": mdp.flow.after}
    found = summarise(batch, mdp.discount, mdp.n_actions, n_states=mdp.n_states, **told)
    steps = mdp.horizon.steps
    if steps is None:
        return found
    inputs = batch.inputs + mdp.n_states * np.arange(batch.inputs.shape[1])
    rows = mdp.n_states * steps
    timed = summarise(
        replace(batch, inputs=inputs), mdp.discount, mdp.n_actions, n_states=rows, **told
    )
    return replace(found, by_time=timed.occupancies)


def _long_run(
    simulator: ModelSimulator, act: Actor, batches: int, steps: int, random: np.random.Generator
) -> Sample:
    """One path, cut into batches of so many steps; the first batch is for getting started, and left out."""
    mdp = simulator.mdp
    path = simulator.episodes(act, 1, (batches + 1) * steps, random)
    cut = (path.inputs[0, steps:].reshape(batches, steps), path.actions[0, steps:])
    lengths, whole = np.full(batches, steps), np.ones(batches, dtype=bool)
    batch = Episodes(cut[0], cut[1].reshape(batches, steps), {}, lengths, whole, path.last)
    sample = summarise(batch, 1.0, mdp.n_actions, n_states=mdp.n_states, after=mdp.flow.after)
    shares = sample.occupancies / float(steps)
    means = {name: shares @ signal.ravel() for name, signal in mdp.signals.items()}
    return replace(sample, occupancies=shares, returns=means)


def _model_setting(
    mdp: TabularMDP, sample: Sample, horizon: int, delta: float, seed: int
) -> Setting:
    # Batches of one path depend on each other: nothing is proven of them.
    if not mdp.horizon.episodic:
        seen, pairs = Radius(0.0, 0.0), mdp.reachable_pairs
        return Setting(sample, mdp, None, {}, {}, None, True, seen, math.inf, pairs, delta, seed)
    mass, pairs = min(mdp.horizon.longest, float(horizon)), mdp.reachable_pairs
    tail = mdp.flow.tail(horizon)  # a model is cut at the horizon and nowhere else
    return Setting(
        sample=sample,
        space=mdp,
        model=mdp,
        bounds={},
        return_bounds={},
        vectors=VectorBound(sample.n, Radius(mass, mass), True, int(pairs.sum()), sample.squares()),
        one_hot=True,
        tail=Radius(tail, tail),
        mass=min(mdp.horizon.longest, horizon + mdp.flow.longest),
        pairs=pairs,
        delta=delta,
        seed=seed,
    )


def _environment(
    source: Any, discount: float | None, features: Features | None, horizon: int | None
) -> tuple[Environment, bool]:
    if isinstance(source, Environment):
        if features is not None or discount not in (None, source.discount):
            raise ExperienceError(
                f"{source!r} has its own discount and features; the problem (or discount=) says "
                f"{discount}"
            )
        return source, False
    if discount is None:
        raise ExperienceError("an environment has no discount of its own: give discount=")
    # One at a time: a policy from elsewhere may know single observations only.
    lanes = 1 if isinstance(source, str) else None
    # With a discount of 1 the episode of so many steps is the problem: nothing is cut where it ends.
    whole = horizon if discount == 1 else None
    return GymnasiumEnv(source, discount, horizon=whole, features=features, n_envs=lanes), True


def _play(
    env: Environment,
    policy: Any,
    episodes: int,
    horizon: int,
    seed: int,
    question: _Question,
    deterministic: bool,
) -> Sample:
    acts, resets = _seeds(seed, 2)
    shape, model = (env.n_states, env.n_actions), question.model
    if model is not None and env.features is None and model.shape != shape:
        raise ExperienceError(
            f"the problem's model has {model.n_states} states and {model.n_actions} actions, {env.name} has "
            f"{shape[0]} and {shape[1]}"
        )
    act = actor_in(env, policy, acts, deterministic)
    measured: dict[str, Any] = {"n_states": env.n_states, "features": env.features}
    parts: list[Sample] = []
    while len(parts) * env.n_lanes < episodes:
        first = resets if not parts else None
        batch = env.episodes(act, horizon, signals=question.signals, seed=first)
        if env.horizon.limit is not None:  # nothing is cut where nothing counts any more
            whole = batch.terminated | (batch.lengths >= env.horizon.limit)
            batch = replace(batch, terminated=whole)
        parts.append(summarise(batch, env.horizon, env.n_actions, **measured))
    return joined(parts, episodes)


def _env_setting(
    env: Environment,
    sample: Sample,
    question: _Question,
    delta: float,
    seed: int,
    bounds: Bounds,
    return_bounds: Bounds,
) -> Setting:
    mass = env.horizon.longest
    shape = (env.n_states, env.n_actions)
    model = question.model
    fits = model is not None and model.shape == shape and model.discount == env.discount
    norms = None if env.features is None else env.features.norms
    known = env.features is None or norms is not None
    l1, l2, nonnegative = (1.0, 1.0, True) if norms is None else norms
    hidden = min(float(sample.tails.mean()) + bernstein_radius(sample.tails, mass, delta), mass)
    vectors = VectorBound(
        sample.n, Radius(l1 * mass, l2 * mass), nonnegative, math.prod(shape), sample.squares()
    )
    return Setting(
        sample=sample,
        space=model if fits else FeatureSpace(*shape, env.horizon, question.signals),
        model=None,
        bounds=_holding(bounds, sample.ranges, "the signal"),
        return_bounds=_holding(return_bounds, _seen(sample), "the return of"),
        vectors=vectors if known else None,
        one_hot=env.has_states,
        tail=Radius(l1 * hidden, l2 * hidden),
        mass=mass,
        pairs=np.ones(shape, dtype=bool),
        delta=delta,
        seed=seed,
    )


def _own_limit(env: Environment, sample: Sample) -> int | None:
    """Where nothing counts after so many steps, that many, unless episodes were cut sooner."""
    limit = env.horizon.limit
    sooner = ~sample.terminated & (sample.lengths < (limit or 0))
    return None if limit is None or sooner.any() else limit


def _with_limit(setting: Setting, limit: int) -> Setting:
    """The same where no episode is cut before ``limit`` steps: what is hidden is known, not estimated."""
    sample = setting.sample
    sooner = ~sample.terminated & (sample.lengths < limit)
    if sooner.any():
        raise ExperienceError(
            f"an episode was cut after {int(sample.lengths[sooner][0])} steps, although episode_limit= says "
            f"that none is before {limit}"
        )
    horizon = setting.space.horizon
    hidden = float(horizon.tail(limit))
    unit = Radius(1.0, 1.0) if setting.vectors is None else setting.vectors.size
    scale = 1.0 if setting.vectors is None else 1.0 / horizon.longest
    return replace(setting, tail=Radius(hidden * unit.l1 * scale, hidden * unit.l2 * scale))


def _seen(sample: Sample) -> Bounds:
    """Smallest and largest return of the episodes that were not cut."""
    whole = sample.terminated
    return {
        name: (float(returns[whole].min()), float(returns[whole].max()))
        for name, returns in sample.returns.items()
        if whole.any()
    }


def _read_bounds(bounds: Bounds | None, signals: Sequence[str]) -> Bounds:
    """What the user promises, before anything is played."""
    read = {}
    for name, given in (bounds or {}).items():
        if name not in signals:
            raise ExperienceError(
                f"bounds are given for {name!r}, which no utility here reads. {did_you_mean(name, signals)}"
            )
        try:
            low, high = (float(end) for end in given)
        except (TypeError, ValueError) as error:
            raise ExperienceError(
                f"the bounds of {name!r} are {given!r}; expected a pair (smallest, largest)"
            ) from error
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ExperienceError(
                f"the bounds of {name!r} are {given!r}; expected finite, in order"
            )
        read[name] = (low, high)
    return read


def _holding(bounds: Bounds, seen: Bounds, what: str) -> Bounds:
    """The same, where what was seen does not contradict it."""
    for name, (low, high) in bounds.items():
        least, most = seen.get(name, (low, high))
        if least < low or most > high:
            raise ExperienceError(
                f"{what} {name!r} was seen between {least:g} and {most:g}, outside the bounds "
                f"({low:g}, {high:g}) that were given for it; nothing would follow from them"
            )
    return bounds
