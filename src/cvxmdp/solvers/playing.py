"""Where a learner that counts states plays: an environment, or a model that is simulated."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from cvxmdp.base.errors import SettingsError
from cvxmdp.experience.environments.environment import Environment, environment_of, seeds
from cvxmdp.experience.environments.simulated import ModelSimulator
from cvxmdp.experience.episodes import Episodes, Sample, summarise
from cvxmdp.experience.tallies import StepCounter, Tally
from cvxmdp.models.horizon import Horizon
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.policy import draw_actions
from cvxmdp.problems.problem import Problem

LANES = 16  # episodes at a time, of a model
# Of the steps, where that is more: a round stays the same share of a long run.
MORE_LANES = 1 / 6_250
MOST_LANES = 256
MOST_STATES = 100_000  # that are counted
LENGTH = 5.0  # of an episode, times the largest mass of an occupancy


def episode_length(horizon: Horizon) -> int:
    """Where an episode is cut."""
    return max(1, math.ceil(LENGTH * horizon.longest))


def require_steps(steps: int, lanes: int) -> None:
    """An error where there are too few for one in each lane."""
    if steps < lanes:
        raise SettingsError(
            f"steps={steps} is less than one step in each of {lanes} lanes; give more, or fewer lanes (n_envs=)"
        )


class Playground(Protocol):
    """Where episodes come from.

    Attributes:
        counter: of their steps.
        lanes: episodes at a time.
        known: signals that are known functions of state and action, (S, A) by name.
        markov: whether what is counted are states, and not bins of observations.
    """

    counter: StepCounter
    lanes: int
    known: dict[str, np.ndarray]
    markov: bool

    def play(self, tables: np.ndarray, shares: np.ndarray, horizon: int, *path: int) -> Episodes:
        """One episode in every lane, each with one of the tables (K, S, A), drawn by their shares."""
        ...

    def add(self, tally: Tally, episodes: Episodes) -> Tally:
        """The tally with what they showed."""
        ...

    def measured(self, episodes: Episodes) -> np.ndarray:
        """The sum of the occupancies of episodes, signals below; empty where policies are known exactly."""
        ...

    def visits(self, tables: np.ndarray, shares: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """The occupancy of what was played: exactly, or by its mean measurement."""
        ...


def playground(problem: Problem, steps: int, seed: int) -> Playground:
    """Where the problem is played; an error where its states cannot be counted."""
    if not math.isfinite(problem.space.horizon.longest):
        raise SettingsError(
            f"ModelBased plays episodes of some discounted steps, and learns with a discount below 1; here is "
            f"{problem.space.horizon}. A discount near one (0.99, 0.999) approximates it."
        )
    environment = environment_of(problem)
    if environment is None:
        more = min(int(MORE_LANES * steps), MOST_LANES)
        return ModelGround(problem.mdp, seed, min(max(LANES, more), steps))
    require_steps(steps, environment.n_lanes)
    if not environment.has_states:
        raise SettingsError(
            f"ModelBased counts states, and {environment!r} has features of observations that are none. Give "
            "bins, features=UniformBins(low, high, bins); or learn with ActorCritic(steps), which needs none."
        )
    if environment.n_states > MOST_STATES:
        raise SettingsError(
            f"ModelBased counts up to {MOST_STATES:,} states; {environment!r} has {environment.n_states:,}. "
            "Learn with ActorCritic(steps), or with coarser bins."
        )
    return EnvironmentGround(environment, problem.space.signal_names, seed)


class Drawn:
    """A policy for each lane, drawn where an episode begins and kept until it ends."""

    def __init__(self, tables: np.ndarray, shares: np.ndarray, lanes: int, seed: int) -> None:
        self.tables, self.random = tables, np.random.default_rng(seed)
        self.acting = self.random.choice(len(tables), size=lanes, p=shares)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Actions for the states of all lanes."""
        return draw_actions(self.tables[self.acting, states], self.random)


class ModelGround:
    """A model that is only shown by its episodes; its signals are known functions."""

    def __init__(self, mdp: TabularMDP, seed: int, lanes: int = LANES) -> None:
        self.simulator, self.seed, self.lanes = ModelSimulator(mdp), seed, lanes
        self.counter = StepCounter(mdp.actions, (), {}, ("drawn from the given model",))
        self.known = dict(mdp.signals)
        self.markov = True

    def play(self, tables: np.ndarray, shares: np.ndarray, horizon: int, *path: int) -> Episodes:
        of_model, of_policy = seeds(self.seed, *path, count=2)
        drawn = Drawn(tables, shares, self.lanes, of_policy)
        return self.simulator.episodes(
            lambda observations, states, begins: drawn(states),
            self.lanes,
            horizon,
            np.random.default_rng(of_model),
        )

    def add(self, tally: Tally, episodes: Episodes) -> Tally:
        return self.counter.add(tally, episodes, episodes.inputs, episodes.last)

    def measured(self, episodes: Episodes) -> np.ndarray:
        return np.zeros((0, 0))

    def visits(self, tables: np.ndarray, shares: np.ndarray, measured: np.ndarray) -> np.ndarray:
        return np.tensordot(shares, self.simulator.mdp.flow.occupancies(tables), axes=1)


class EnvironmentGround:
    """An environment whose states, or bins, are counted."""

    def __init__(self, environment: Environment, names: tuple[str, ...], seed: int) -> None:
        self.environment, self.seed, self.lanes = environment, seed, environment.n_lanes
        available = np.ones((environment.n_states, environment.n_actions), dtype=bool)
        promised = {name: environment.bounds[name] for name in names if name in environment.bounds}
        told = () if environment.shows_last else ("without the steps that cut episodes",)
        self.counter = StepCounter(available, tuple(names), promised, told)
        self.known: dict[str, np.ndarray] = {}
        self.markov = environment.features is None

    def play(self, tables: np.ndarray, shares: np.ndarray, horizon: int, *path: int) -> Episodes:
        of_environment, of_policy = seeds(self.seed, *path, count=2)
        drawn = Drawn(tables, shares, self.lanes, of_policy)

        def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
            return drawn(np.asarray(self.environment.states(inputs)))

        return self.environment.episodes(
            act, horizon, signals=self.counter.signals, seed=of_environment
        )

    def add(self, tally: Tally, episodes: Episodes) -> Tally:
        inputs, states = episodes.inputs, self.environment.states
        flat = inputs.reshape(-1, *inputs.shape[2:])
        numbers = np.asarray(states(flat), dtype=np.int64).reshape(inputs.shape[:2])
        last = None if episodes.last is None else np.asarray(states(episodes.last), dtype=np.int64)
        return self.counter.add(tally, episodes, numbers, last)

    def sampled(self, episodes: Episodes) -> Sample:
        """What episodes measured, each on its own."""
        environment, (states, actions) = self.environment, self.counter.available.shape
        given = {"n_states": states, "features": environment.features}
        return summarise(episodes, environment.horizon, actions, **given)

    def measured(self, episodes: Episodes) -> np.ndarray:
        sample, (states, actions) = self.sampled(episodes), self.counter.available.shape
        total = np.zeros((states + len(self.counter.signals), actions))
        total[:states] = sample.mean() * sample.n
        # A signal's return is the sum of its row: which action had it does not matter.
        total[states:, 0] = [sample.returns[name].sum() for name in self.counter.signals]
        return total

    def visits(self, tables: np.ndarray, shares: np.ndarray, measured: np.ndarray) -> np.ndarray:
        return measured
