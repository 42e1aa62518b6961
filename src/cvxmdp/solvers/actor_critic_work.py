"""``ActorCritic`` at work: iterations in compiled code, or between steps of a simulator, and the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from cvxmdp.algorithms.actor_iteration import ActorState, ActorTrace, learn, mean_of, scaled_by
from cvxmdp.algorithms.actor_lanes import CompiledLanes, first_lanes, iterations
from cvxmdp.algorithms.actor_multipliers import MOST_UNITS
from cvxmdp.algorithms.chunks import host
from cvxmdp.base.compiling import program
from cvxmdp.base.errors import DivergedError
from cvxmdp.base.saved_trees import to_arrays
from cvxmdp.experience.counted_random import key_words
from cvxmdp.experience.environments.environment import Environment, environment_of
from cvxmdp.policies.gaussian import BoundGaussian
from cvxmdp.policies.networks import BoundNetwork
from cvxmdp.policies.observers import on_observations
from cvxmdp.policies.policy import draw_actions, masked
from cvxmdp.problems.findings import findings_of
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.actor_critic_answer import ChosenPolicy, Examination, course_of_rows
from cvxmdp.solvers.actor_critic_playing import Draw, Mask, SteppedLanes
from cvxmdp.solvers.actor_critic_setup import (
    LEARNER,
    choose,
    first_state,
    read_setup,
    source_of,
    taken_over,
)
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work, require_stationary
from cvxmdp.solvers.environment_work import chances_on_states
from cvxmdp.solvers.start import given_start

if TYPE_CHECKING:
    from cvxmdp.solvers.actor_critic import ActorCritic

PIECE = 32  # iterations in compiled code, at most
BLOCK = 20  # iterations between two resets of a simulator


class Learnt(NamedTuple):
    """The state between two pieces: of the learner, and of lanes in compiled code."""

    learner: ActorState
    lanes: CompiledLanes | None


class ActorCriticWork(Work[Learnt]):
    """See ``solvers.actor_critic``."""

    name = "ActorCritic"

    def __init__(self, solver: ActorCritic, task: Task) -> None:
        assert task.seed is not None
        require_stationary(task.problem)
        self.solver, self.task, self.problem, self.seed = solver, task, task.problem, int(task.seed)
        self.chosen = choose(solver, task.problem)
        self.setup = read_setup(solver, task.problem, self.chosen)
        self.source = source_of(task.problem, self.setup)
        self.names = list(task.problem.constraints)
        self.longest = PIECE if self.source is not None else BLOCK
        self.grain = 1 if self.source is not None else BLOCK
        key = jax.random.key(np.uint32(self.seed % 2**32))
        self.keys = jax.random.split(key, 3)
        self.recent, self.taken = "", ""

    @property
    def environment(self) -> Environment | None:
        return environment_of(self.problem)

    def first(self) -> Learnt:
        learner, self.taken = taken_over(
            host(first_state(self.setup, self.keys[0], lanes=self.chosen.lanes)),
            given_start(self.problem, self.task.start),
            self.setup.family,
        )
        if self.source is None:
            return Learnt(learner, None)
        lanes = begun(self.source, self.keys[1], count=self.chosen.lanes, limit=self.chosen.limit)
        return Learnt(learner, host(lanes))

    def where(self, state: Learnt) -> tuple[int, int]:
        return int(state.learner.done), self.chosen.iterations

    def mark(self, state: Learnt) -> int:
        return min((int(state.learner.done) // BLOCK + 1) * BLOCK, self.chosen.iterations)

    def advance(self, state: Learnt, until: int) -> tuple[Learnt, Rows]:
        """Iterations; records as the history has them."""
        count = until - int(state.learner.done)
        if self.source is None:
            reached, traces = self._stepped(state.learner, until), None
            learner, lanes, traces = reached[0], None, reached[1]
        else:
            learner, lanes, traces = iterations(
                self.source,
                self.setup,
                state.learner,
                state.lanes,
                np.int32(self.chosen.limit),
                key_words(self.keys[2]),
                count,
                length=self.chosen.length,
                most=PIECE,
            )
        rows = {name: part[:count] for name, part in host(traces)._asdict().items()}
        self._require_finite(rows, int(state.learner.done))
        mean = self.problem.sign * float(rows["objective"][-1])
        self.recent = f"objective of the episodes {mean:.5g}"
        return Learnt(host(learner), host(lanes)), rows

    def _stepped(self, learner: ActorState, until: int) -> tuple[ActorState, ActorTrace]:
        """Iterations between steps of a simulator, which begins anew."""
        chosen, setup, environment = self.chosen, self.setup, self.environment
        assert environment is not None
        lanes = SteppedLanes(
            environment,
            self.problem.space.signal_names,
            chosen.lanes,
            chosen.limit,
            self.seed,
            setup.readings.features,
            setup.family.observes,
            getattr(setup.family, "in_box", np.asarray),
        )
        traces = []
        lanes.reset(int(learner.done))
        learner = learner._replace(returns=np.zeros_like(learner.returns))
        for t in range(int(learner.done), until):
            steps = lanes.play(t, chosen.length, self._draw(learner))
            key = jax.random.fold_in(self.keys[2], t)
            learner, trace = lesson(setup, learner, steps, key)
            traces.append(host(trace))
        return learner, jax.tree.map(lambda *rows: np.stack(rows), *traces)

    def _draw(self, learner: ActorState) -> Draw:
        """The policy at work outside of compiled code."""
        actor = host(learner.actor)
        family = scaled_by(self.setup.family, actor.moments)
        if isinstance(family, BoundGaussian):
            drawing = family.drawing(actor.params)
            return lambda inputs, masks, random: drawing(inputs, random)
        if isinstance(family, BoundNetwork) and family.observes:
            rows = family.rows(actor.params)
        else:
            table = np.asarray(chances_on_states(family, actor.params), dtype=np.float64)
            rows = table.__getitem__

        def draw(inputs: np.ndarray, masks: Mask, random: np.random.Generator) -> np.ndarray:
            chances = rows(inputs)
            return draw_actions(chances if masks is None else masked(chances, masks), random)

        return draw

    def _require_finite(self, rows: Rows, done: int) -> None:
        fine = np.isfinite(rows["objective"]) & np.isfinite(rows["kl"])
        if not fine.all():
            raise DivergedError(
                f"iteration {done + int(np.argmin(fine))}: the objective or a step is not finite. Likely "
                "causes: signals so large that squares overflow (scale them), or a utility of your own that is "
                "not finite at points that are no occupancies."
            )

    def judge(self, state: Learnt) -> Judgement:
        """People see what the latest episodes showed."""
        return Judgement(self.recent)

    def policy(self, acting: Any) -> Any:
        """What acts on the environment's observations, or on the model's states."""
        acting = host(acting)
        family = jax.tree.map(np.asarray, scaled_by(self.setup.family, acting.moments))
        found = family.deploy(acting.params)
        environment = self.environment
        return found if environment is None else on_observations(found, environment)

    def finish(self, state: Learnt, rows: Rows, status: Status) -> Solution:
        """The last policy or the averaged one, whichever is better satisfied."""
        learner = state.learner
        answer = self._answer(learner, rows, status)
        stats: dict[str, Any] = {
            "solver": "ActorCritic",
            "iterations": int(learner.done),
            "samples": int(learner.done) * self.chosen.batch,
            "settings": self.chosen.words,
            "answer": answer.which,
            "evaluation_episodes": answer.episodes,
            "params": host(learner.actor.params),
            "family": self.setup.family.name,
            LEARNER: to_arrays(learner._replace(returns=np.zeros((0, 0)))),
        }
        if self.taken:
            stats["start"] = self.taken
        found = Solution.of_policy(
            self.problem,
            answer.policy,
            status,
            dict(zip(self.names, self._multipliers(learner, rows), strict=True)),
            evaluation=answer.evaluation,
            history=self._history(rows),
            stats=stats,
            message=f"{status.value} The answer is the {answer.which} policy.{answer.remark}",
            slack_interval=answer.slack_interval,
        )
        if not rows:
            return found
        course = course_of_rows(self.problem, rows, MOST_UNITS)
        return replace(found, findings=findings_of(course, found.constraint_status))

    def _answer(self, learner: ActorState, rows: Rows, status: Status) -> ChosenPolicy:
        played = int(learner.done) * self.chosen.batch
        examination = Examination(
            self.problem, played, self.chosen.limit, self.solver.check, self.seed
        )
        last = self.policy(learner.actor)
        if status is not Status.ITERATION_LIMIT or not rows:
            seen = float(learner.measured.weight) > 0
            return examination.unexamined(last, self._occupancy(learner) if seen else None)
        worst = dict(zip(self.names, map(float, rows["sample"].min(axis=0)), strict=True))
        candidates = {"last": last, "averaged": self.policy(learner.averaged)}
        return examination.best(candidates, worst)

    def _occupancy(self, learner: ActorState) -> np.ndarray:
        """What was measured lately, as an occupancy to every function."""
        m = mean_of(learner.measured, self.setup.longest)
        return np.asarray(self.setup.readings.occupancy(m), dtype=np.float64)

    def _multipliers(self, learner: ActorState, rows: Rows) -> list[float]:
        """The mean over the last part of the run: single ones answer to noise."""
        if not rows:
            return [float(mu) for mu in learner.dual.multipliers]
        late = rows["multipliers"][-(-len(rows["objective"]) * 3 // 4) :]
        return [float(mu) for mu in late.mean(axis=0)]

    def _history(self, rows: Rows) -> dict[str, Any]:
        if not rows:
            return {}
        sign = self.problem.sign

        def by_name(columns: np.ndarray) -> dict[str, np.ndarray]:
            return {name: columns[:, k] for k, name in enumerate(self.names)}

        count = len(rows["objective"])
        return {
            "iteration": np.arange(1, count + 1),
            "objective": sign * rows["objective"],
            "slack": by_name(rows["slack"]),
            "multipliers": by_name(rows["multipliers"]),
            "policy_entropy": rows["entropy"],
            "kl": rows["kl"],
            "explained": rows["explained"],
            "episodes": rows["episodes"],
            "episode_length": rows["length"],
            "noise": by_name(rows["noise"]),
            "unit": by_name(rows["unit"]),
            "episodes_over": by_name(rows["over"]),
            "sum_over": by_name(rows["excess"]),
        }


@program("count", "limit")
def begun(source: Any, key: Any, count: int, limit: int) -> CompiledLanes:
    """CompiledLanes at their first step."""
    return first_lanes(source, count, limit, key)


@program()
def lesson(setup: Any, learner: ActorState, steps: Any, key: Any) -> tuple[ActorState, ActorTrace]:
    """One iteration with what a simulator showed."""
    return learn(setup, learner, steps, key)
