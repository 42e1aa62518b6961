"""VR-PDPG in environments: nothing is known but episodes.

One written in JAX is a source of trajectories inside the compiled chunk, like a model. Any other is played
between compiled steps. In both, the random numbers of iteration t depend on the seed and on t alone, so that a
run that is stopped and continued ends as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.chunks import Carry, Summary, advanced, empty_summary, renewed
from cvxmdp.algorithms.learning_state import LearningTrace
from cvxmdp.algorithms.recursion import Learning, noted_of, trace_of, update
from cvxmdp.algorithms.views import view
from cvxmdp.base.compiling import program
from cvxmdp.base.precision import host
from cvxmdp.experience.environments.environment import Environment, environment_of, seeds
from cvxmdp.experience.episodes import Episodes, Sample
from cvxmdp.experience.episodes import summarise as sample_of
from cvxmdp.experience.judging import FIRST, Play, in_rounds, judge_by_episodes, measured_mean
from cvxmdp.experience.trajectories import Experience, Played
from cvxmdp.policies.networks import BoundNetwork
from cvxmdp.policies.observers import mixture_on_observations, on_observations
from cvxmdp.policies.policy import draw_actions
from cvxmdp.problems.findings import unjudged
from cvxmdp.problems.problem import Evaluation
from cvxmdp.problems.solution import Status
from cvxmdp.problems.while_learning import played_history, violations_while_learning
from cvxmdp.solvers.contract import Rows, Task
from cvxmdp.solvers.learning import Learned, Shared, Worth
from cvxmdp.solvers.vr_pdpg_work import LearningWork

LONGER = 5  # times the horizon that was learned with: where fresh episodes are cut at the latest


def work_of(shared: Shared, task: Task) -> LearningWork:
    """Work of the kind that goes with the problem."""
    if environment_of(task.problem) is None:
        return LearningWork(shared, task)
    kind = PlayedWork if isinstance(shared.learning.model, Played) else EnvironmentWork
    return kind(shared, task)


class EnvironmentWork(LearningWork):
    """VR-PDPG where nobody can evaluate policies exactly; here, in compiled code.

    The history's objective and slack are those of the mean occupancy of each chunk's episodes; the answer's are
    estimated from fresh episodes of its policy.
    """

    @property
    def horizon(self) -> int:
        """Where fresh episodes are cut: later than those that were learned from, which hides less."""
        learned = self.settings.horizon
        longer = max(learned, min(self.environment.default_horizon(), LONGER * learned))
        return self.environment.within(longer)

    def fresh(self, state: Learned) -> Play:
        """Episodes of the last policy that nothing was learned from."""
        learning = replace(self.learning, horizon=self.horizon)

        def block(number: int) -> Sample:
            t = self.settings.iterations + number
            drawn = play(learning, state.carry.state.params, self.begun[0], t, FIRST)
            return self._sample(_episodes(host(drawn), self.problem.space.signal_names))

        return in_rounds(block, FIRST)

    def _sample(self, episodes: Episodes) -> Sample:
        """What episodes measured, whose inputs are states or features."""
        shape = self.problem.space.shape
        return sample_of(episodes, self.environment.horizon, shape[1], n_states=shape[0])

    def evaluated(self, state: Learned, status: Status, trace: LearningTrace) -> Worth:
        """Estimates from fresh episodes; of a run that was stopped, from the episodes it learned from."""
        chunks, policy = state.snapshots[1:], self.policy(state)
        visits = np.array([one.snapshot.seen for one in chunks], dtype=np.float64)
        visits = visits.reshape(-1, *self.learning.shape)
        ends = np.array([int(one.done) for one in chunks], dtype=int)
        history = self.curves(ends, visits) | played_history(self.problem, ends, visits)
        sizes = np.diff(ends, prepend=0)
        violations = violations_while_learning(self.problem, history, sizes)
        if status is not Status.ITERATION_LIMIT:  # the environment is not to be asked again
            stats = {"evaluation_episodes": 0, "truncated": 0.0, "truncation_bias": 0.0}
            stats |= violations
            remark = " Objective and slack are those of the last episodes it learned from."
            latest = self._of_latest(state, visits)
            return Worth(policy, latest, unjudged(latest.slack), history, stats, remark)
        last = self.settings.iterate == "last"
        worst = dict(zip(self.names, trace.episode_slack.min(axis=0, initial=np.inf), strict=True))
        judged = judge_by_episodes(
            self.problem,
            self.fresh(state) if last else self.play_mixture(policy),
            check=self.settings.check,
            most_steps=int(state.steps),
            worst={name: float(w) for name, w in worst.items()},
        )
        sample, cut = judged.sample, float((~judged.sample.terminated).mean())
        tail = float(sample.tails.mean())
        stats = {
            "evaluation_episodes": sample.n,
            "truncated": cut,
            "truncation_bias": tail,
            **violations,
        }
        found = self.problem.evaluate_occupancy(measured_mean(self.problem, sample))
        remark = self._remark(sample.n, cut, tail)
        return Worth(policy, found, judged.slack, history, stats, remark)

    def _remark(self, episodes: int, cut: float, tail: float) -> str:
        """Where the numbers come from, and what truncation hid."""
        share = tail / self.problem.space.max_mass
        hidden = (
            f" ({cut:.0%} of them cut, which hides at most {share:.1%} of the discounted mass)"
            if cut
            else ""
        )
        return (
            f" Objective and slack are estimates from {episodes:,} episodes{hidden}; bounds on them: "
            "evaluate(solution, environment, episodes)."
        )

    def _of_latest(self, state: Learned, visits: np.ndarray) -> Evaluation:
        """What the latest episodes were worth; nothing is known before there are any."""
        if len(visits):
            return self.problem.evaluate_occupancy(visits[-1])
        if state.done:
            mean = np.asarray(state.carry.seen, dtype=np.float64) / int(state.done)
            return self.problem.evaluate_occupancy(mean)
        return Evaluation.unknown(self.problem)

    def policy(self, state: Learned) -> Any:
        """What acts on the environment's own observations: the last iterate, or one of several per episode."""
        environment, chosen = self.environment, [self.latest(state)]
        if self.settings.iterate != "last":
            every = zip(self.drawn(state), self.answering(state), strict=True)
            chosen = [params for params, used in every if used] or chosen
        policies = [self.family.deploy(params) for params in chosen]
        if self.settings.iterate == "last":
            return on_observations(policies[0], environment)
        return mixture_on_observations(policies, environment)

    @property
    def environment(self) -> Environment:
        environment = environment_of(self.problem)
        assert environment is not None
        return environment

    def play_mixture(self, mixture: Any) -> Play:
        """Episodes of a policy that draws one of several for each."""
        of_environment, of_policy = seeds(self.seed, self.settings.iterations, 0, count=2)
        mixture.seed(of_policy)

        def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
            return np.asarray(mixture.predict(observations, episode_start=begins)[0])

        return self.rounds(lambda number: act, lambda number: None if number else of_environment)

    def rounds(self, act_of: Any, seed_of: Any) -> Play:
        """Whole rounds of fresh episodes, one in each lane.

        Args:
            act_of: from the number of a round to what acts in it.
            seed_of: from the number of a round to its seed; None to go on from where the environment is.
        """
        environment, names = self.environment, self.problem.space.signal_names

        def block(number: int) -> Sample:
            episodes = environment.episodes(
                act_of(number), self.horizon, signals=names, seed=seed_of(number)
            )
            if environment.features is None:
                return self._sample(episodes)
            shape, features = self.problem.space.shape, environment.features
            return sample_of(episodes, environment.horizon, shape[1], features=features)

        return in_rounds(block, environment.n_lanes)

    def played(self, count: int, act_of: Any, seed_of: Any) -> Experience:
        """``count`` episodes, in as many rounds as that takes; arguments as those of ``rounds``."""
        environment, names = self.environment, self.problem.space.signal_names
        rounds = range(-(-count // environment.n_lanes))
        parts = [
            environment.episodes(
                act_of(number),
                self.settings.horizon,
                signals=names,
                seed=seed_of(number),
            )
            for number in rounds
        ]
        return self._read(parts, count)

    def _read(self, parts: list[Episodes], count: int) -> Experience:
        """Episodes as arrays of one shape, whatever their lengths."""
        environment, horizon = self.environment, self.settings.horizon

        def padded(columns: list[np.ndarray]) -> np.ndarray:
            full = [
                np.pad(
                    column, [(0, 0), (0, horizon - column.shape[1])] + [(0, 0)] * (column.ndim - 2)
                )
                for column in columns
            ]
            return np.concatenate(full)[:count]

        inputs = padded([part.inputs for part in parts])
        flat = inputs.reshape(-1, *inputs.shape[2:])
        lengths = np.concatenate([part.lengths for part in parts])[:count]
        names = self.problem.space.signal_names
        signals = [padded([part.signals[name] for part in parts]) for name in names]
        features = environment.states(flat) if environment.has_states else None
        if features is None and environment.features is not None:
            features = np.asarray(environment.features(flat), dtype=np.float32)
        if features is None:  # signals alone are measured
            features = np.zeros((len(flat), 0), np.float32)
        places = np.asarray(features).reshape(*inputs.shape[:2], *np.shape(features)[1:])
        return Experience(
            states=inputs.astype(np.float32) if self.family.observes else places,
            actions=padded([part.actions for part in parts]).astype(np.int32),
            alive=(np.arange(horizon) < lengths[:, None]).astype(np.float32),
            features=places,
            signals=np.stack(signals, axis=2).astype(np.float32),
            cut=(~np.concatenate([part.terminated for part in parts])[:count]).astype(np.float32),
        )


@program("episodes")
def play(learning: Learning, params: Any, words: Any, t: Any, episodes: int) -> Any:
    """A batch of episodes in compiled code."""
    policy = view(learning.family, params, learning.horizon)
    numbers = learning.model.numbers(words, t, episodes, learning.horizon)
    return learning.model.trajectories(policy, numbers, learning.horizon)


def _episodes(experience: Experience, names: Sequence[str]) -> Episodes:
    """A batch that was drawn in compiled code; its features are its inputs."""
    return Episodes(
        experience.features,
        experience.actions,
        {name: np.asarray(experience.signals[..., k], float) for k, name in enumerate(names)},
        experience.alive.sum(axis=1).astype(int),
        experience.cut == 0,
    )


class PlayedWork(EnvironmentWork):
    """VR-PDPG in an environment that is stepped by Python, such as Gymnasium's."""

    def __init__(self, shared: Shared, task: Task) -> None:
        super().__init__(shared, task)
        # Each iteration is taken over at once: an error of the environment keeps what was before it.
        self.grain = self.longest = 1

    @property
    def program(self) -> Any:
        """There is one simulator, which runs take turns with."""
        return None

    def fresh(self, state: Learned) -> Play:
        act_of, first = self._acting(state, self.settings.iterations)
        return self.rounds(act_of, first)

    def advance(self, state: Learned, until: int) -> tuple[Learned, Rows]:
        experience = self.play(state, int(state.done), self.settings.batch_size)
        carry, summary, trace = learn(
            self.learning, state.carry, self.kept_at, experience, self.plan.length
        )
        return self._taken(state, until, carry, host(summary), host(trace))

    def play(self, state: Learned, t: int, count: int) -> Experience:
        """``count`` episodes under the current policy."""
        return self.played(count, *self._acting(state, t))

    def _acting(self, state: Learned, t: int) -> tuple[Any, Any]:
        """From the number of a round of iteration t to what acts in it, and to the environment's seed."""
        chances = self._chances(state)

        def act_of(number: int) -> Any:
            random = np.random.default_rng(seeds(self.seed, t, number, count=2)[1])
            return lambda observations, inputs, begins: draw_actions(chances(inputs), random)

        return act_of, lambda number: seeds(self.seed, t, number, count=2)[0]

    def _chances(self, state: Learned) -> Any:
        """A function from inputs (n, ...) to the chances of the actions, (n, A)."""
        environment, params = self.environment, state.carry.state.params
        if isinstance(self.family, BoundNetwork) and self.family.observes:
            return self.family.rows(params)
        table = np.asarray(chances_on_states(self.family, params), dtype=np.float64)
        return lambda inputs: table[environment.states(inputs)]


@program()
def chances_on_states(family: Any, params: Any) -> Any:
    """pi(a | s) for every state."""
    return jnp.exp(family.log_table(params))


@program()
def learn(
    learning: Learning, carry: Carry, kept_at: Any, experience: Experience, length: Any
) -> tuple[Carry, Summary, LearningTrace]:
    """One iteration with what was played; ``length`` is that of chunks, at whose ends the mean begins anew."""
    policy = view(learning.family, carry.state.params, learning.horizon)
    found = update(learning, carry.state, experience, policy)
    carry, summary, witnessed = advanced(renewed(carry, length), empty_summary(), kept_at, found)
    trace = trace_of(learning, noted_of(learning, carry.state, witnessed))
    return carry, summary, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], trace)
