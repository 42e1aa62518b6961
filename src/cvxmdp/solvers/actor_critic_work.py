"""``ActorCritic`` at work: iterations in compiled code, or between steps of a simulator, and the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from cvxmdp.algorithms.actor_iteration import (
    ActorPart,
    ActorState,
    ActorTrace,
    learn,
    mean_of,
    scaled_by,
)
from cvxmdp.algorithms.actor_lanes import CompiledLanes, first_lanes, iterations
from cvxmdp.base.compiling import program, run_once
from cvxmdp.base.errors import DivergedError
from cvxmdp.base.precision import host
from cvxmdp.base.saved_trees import to_arrays
from cvxmdp.experience.counted_random import key_words
from cvxmdp.experience.environments.environment import Environment, environment_of
from cvxmdp.policies.gaussian import BoundGaussian
from cvxmdp.policies.networks import BoundNetwork
from cvxmdp.policies.observers import StatePolicy, on_observations
from cvxmdp.policies.policy import draw_actions, masked
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.problems.findings import findings_of
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.actor_critic_answer import (
    WHICH,
    Examination,
    JudgedPolicy,
    course_of_rows,
    short,
)
from cvxmdp.solvers.actor_critic_playing import Draw, Mask, SteppedLanes
from cvxmdp.solvers.actor_critic_setup import (
    ABOUT,
    LEARNER,
    REPAIR,
    asked,
    choose,
    first_state,
    read_setup,
    source_of,
    taken_over,
)
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work, by_name, require_stationary
from cvxmdp.solvers.environment_work import chances_on_states
from cvxmdp.solvers.start import given_start

if TYPE_CHECKING:
    from cvxmdp.solvers.actor_critic import ActorCritic

PIECE = 32  # iterations in compiled code, at most
BLOCK = 20  # iterations between two resets of a simulator
REPAIRS = 2  # at most
LATE = 0.5  # of a run, from whose end single episodes count for what may happen again


class BestAnswer(NamedTuple):
    """The answer so far, after all steps were played.

    Attributes:
        policy: see there; the first one before that.
        which: of the candidates it was.
        done: iterations, after which it was found.
        round: repairs before.
        worst: the smallest slacks of batches by then, and of late episodes, (n,).
        short: its worst violation, in units of the budget; infinite before anything was judged.
    """

    policy: ActorPart
    which: Any
    done: Any
    round: Any
    worst: np.ndarray
    short: Any


class ActorProgress(NamedTuple):
    """The state between two pieces.

    Attributes:
        learner: see there.
        lanes: in compiled code.
        worst: the smallest slacks of batches, and of late episodes, (n,).
        repairs: that were begun.
        best: see there.
    """

    learner: ActorState
    lanes: CompiledLanes | None
    worst: np.ndarray
    repairs: Any
    best: BestAnswer


class ActorCriticWork(Work[ActorProgress]):
    """See ``solvers.actor_critic``."""

    name = "ActorCritic"

    def __init__(self, solver: ActorCritic, task: Task) -> None:
        assert task.seed is not None
        require_stationary(task.problem)
        self.solver, self.task, self.problem, self.seed = solver, task, task.problem, int(task.seed)
        self.chosen = choose(solver, task.problem)
        self.setup = read_setup(solver, task.problem, self.chosen)
        self.about = asked(task.problem, self.setup.readings)
        self.source = source_of(task.problem, self.setup)
        if self.source is None and self.environment is not None:
            self.environment.reset(self.seed)  # whether it has masks is known from then on
        self.names = list(task.problem.constraints)
        self.longest = PIECE if self.source is not None else BLOCK
        self.grain = 1 if self.source is not None else BLOCK
        key = jax.random.key(np.uint32(self.seed % 2**32))
        self.keys = jax.random.split(key, 3)
        self.recent, self.taken = "", ""
        # What was asked last, by the iterations that led to it.
        self.judged: tuple[int, JudgedPolicy] | None = None

    @property
    def environment(self) -> Environment | None:
        return environment_of(self.problem)

    def first(self) -> ActorProgress:
        learner, self.taken = taken_over(
            host(first_state(self.setup, self.keys[0], lanes=self.chosen.lanes)),
            given_start(self.problem, self.task.start),
            self.setup.family,
            self.about,
        )
        lanes = None
        if self.source is not None:
            count, limit = self.chosen.lanes, self.chosen.limit
            lanes = host(begun(self.source, self.keys[1], count=count, limit=limit))
        none, worst = np.int32(0), np.full(len(self.names), np.inf)
        best = BestAnswer(learner.actor, none, none, none, worst, np.float64(np.inf))
        return ActorProgress(learner, lanes, worst, none, best)

    def where(self, state: ActorProgress) -> tuple[int, int]:
        total = self.chosen.iterations + int(state.repairs) * self.chosen.repair
        return int(state.learner.done), total

    def mark(self, state: ActorProgress) -> int:
        done, total = self.where(state)
        return min((done // BLOCK + 1) * BLOCK, total)

    def advance(self, state: ActorProgress, until: int) -> tuple[ActorProgress, Rows]:
        """Iterations; records as the history has them."""
        count = until - int(state.learner.done)
        if self.source is None:
            (learner, traces), lanes = self._stepped(state.learner, until), None
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
        worst = np.minimum(state.worst, rows["sample"].min(axis=0))
        # Single episodes of policies like the answer: what is rare in them hardly moves the mean of a batch.
        first = int(state.learner.done)
        late = rows["deepest"][max(0, int((1.0 - LATE) * self.chosen.iterations) - first) :]
        worst = np.minimum(worst, late.min(axis=0, initial=np.inf))
        reached = state._replace(learner=host(learner), lanes=host(lanes), worst=worst)
        return self._repaired(reached), rows

    def _repaired(self, state: ActorProgress) -> ActorProgress:
        """At the end of the steps: the better answer is kept; where it exceeds a budget, a repair begins.

        Margins grow by what the budget is exceeded by, and a tenth of the iterations is played again.
        """
        done, total = self.where(state)
        if done < total:
            return state
        learner, evaluation = state.learner, self._judged(found := self._better(state)).evaluation
        found = found._replace(short=np.float64(short(self.problem, evaluation)))
        if found.short <= state.best.short:
            state = state._replace(best=found)
        # A tenth of fewer than ten iterations repairs nothing.
        short_run = self.chosen.iterations * REPAIR < 1.0
        if found.short == 0.0 or int(state.repairs) == REPAIRS or short_run:
            return state
        missed = np.array([max(0.0, -evaluation.slack[name]) for name in self.names])
        # Outside of a domain there is no distance.
        missed = np.where(np.isfinite(missed), missed, 0.0)
        extra = learner.dual.extra + missed.astype(learner.dual.extra.dtype)
        learner = learner._replace(dual=learner.dual._replace(extra=extra))
        return state._replace(learner=learner, repairs=state.repairs + np.int32(1))

    def _better(self, state: ActorProgress) -> BestAnswer:
        """The last policy, the averaged one or an earlier one; or, until there is an answer, the first."""
        learner, none_yet = state.learner, not int(state.best.done)
        candidates = (
            learner.actor,
            learner.averaged,
            learner.kept.actor,
            *[state.best.policy] * none_yet,
        )
        examination = self._examination(int(learner.done), int(state.repairs))
        which = examination.better([self.policy(one) for one in candidates])
        nothing = np.float64(np.inf)
        return BestAnswer(
            candidates[which], np.int32(which), learner.done, state.repairs, state.worst, nothing
        )

    def _judged(self, best: BestAnswer) -> JudgedPolicy:
        """What fresh episodes say of an answer; the same whenever it is asked."""
        if self.judged is None or self.judged[0] != int(best.done):
            examination = self._examination(int(best.done), int(best.round))
            worst = dict(zip(self.names, map(float, best.worst), strict=True))
            found = examination.judged(self.policy(best.policy), worst)
            self.judged = (int(best.done), found)
        return self.judged[1]

    def _examination(self, done: int, round: int) -> Examination:
        chosen, check = self.chosen, self.solver.check
        return Examination(self.problem, done * chosen.batch, chosen.limit, check, self.seed, round)

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
            getattr(host(setup.family), "in_box", np.asarray),
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
                "causes: signals that are NaN or so large that squares overflow (look at the simulator, scale "
                "them), or a utility of your own that is not finite at points that are no occupancies."
            )

    def judge(self, state: ActorProgress) -> Judgement:
        """People see what the latest episodes showed."""
        return Judgement(self.recent)

    def policy(self, acting: Any) -> Any:
        """What acts on the environment's observations, or on the model's states."""
        acting = host(acting)
        family = jax.tree.map(np.asarray, scaled_by(self.setup.family, acting.moments))
        found = family.deploy(acting.params)
        environment = self.environment
        if environment is None:
            return found
        if environment.masks is not None and isinstance(found, TabularPolicy):
            return StatePolicy(found, environment.reader, environment.features)  # it keeps masks
        return on_observations(found, environment)

    def finish(self, state: ActorProgress, rows: Rows, status: Status) -> Solution:
        """The answer with all that is known of it."""
        learner = state.learner
        which, answer = self._answer(state, status)
        repaired = ("", " after a repair", " after two repairs")[int(state.best.round)]
        stats: dict[str, Any] = {
            "solver": "ActorCritic",
            "iterations": int(learner.done),
            "samples": int(learner.done) * self.chosen.batch,
            "settings": self.chosen.words,
            "answer": which,
            "repairs": int(state.repairs),
            "evaluation_episodes": answer.episodes,
            "params": host(learner.actor.params),
            "family": self.setup.family.name,
            LEARNER: {**to_arrays(learner._replace(returns=np.zeros((0, 0)))), ABOUT: self.about},
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
            message=f"{status.value} The answer is the {which} policy{repaired}.{answer.remark}",
            slack_interval=answer.slack_interval,
        )
        if not rows:
            return found
        extended = self.setup.readings.functions[0]
        x = np.asarray(found.measured)
        # Of an earlier policy: what led to it.
        until = len(rows["objective"])
        if which == WHICH[2]:
            until = -(-until * (int(learner.kept.done) + 1) // int(learner.done))
        course = replace(
            course_of_rows(self.problem, {name: part[:until] for name, part in rows.items()}),
            asks=bool(np.any(extended.gradient(x))),
            began=which == WHICH[-1],
            believed=float(extended.value(x)) - self.problem.sign * found.objective,
        )
        return replace(found, findings=findings_of(course, found.constraint_status))

    def _answer(self, state: ActorProgress, status: Status) -> tuple[str, JudgedPolicy]:
        """Which policy it is, and what is known of it; of a run that was stopped, the last one."""
        learner, best = state.learner, state.best
        if status is Status.ITERATION_LIMIT and int(best.done):
            return WHICH[int(best.which)], self._judged(best)
        examination = self._examination(int(learner.done), 0)
        seen = float(learner.measured.weight) > 0
        m = self._occupancy(learner) if seen else None
        return WHICH[0], examination.unexamined(self.policy(learner.actor), m)

    def _occupancy(self, learner: ActorState) -> np.ndarray:
        """What was measured lately, as an occupancy to every function."""
        m = mean_of(learner.measured, self.setup.longest)
        return np.asarray(self.setup.readings.occupancy(m), dtype=np.float64)

    def _multipliers(self, learner: ActorState, rows: Rows) -> list[float]:
        """The mean over the last part of the run: single ones answer to noise."""
        if not rows:
            return [float(mu) for mu in learner.dual.multipliers]
        count = len(rows["objective"])
        late = rows["multipliers"][min(-(-count * 3 // 4), count - 1) :]
        return [float(mu) for mu in late.mean(axis=0)]

    def _history(self, rows: Rows) -> dict[str, Any]:
        if not rows:
            return {}
        sign = self.problem.sign

        count = len(rows["objective"])
        return {
            "iteration": np.arange(1, count + 1),
            "objective": sign * rows["objective"],
            "slack": by_name(rows["slack"], self.names),
            "multipliers": by_name(rows["multipliers"], self.names),
            "policy_entropy": rows["entropy"],
            "kl": rows["kl"],
            "explained": rows["explained"],
            "episodes": rows["episodes"],
            "episode_length": rows["length"],
            "noise": by_name(rows["noise"], self.names),
            "unit": by_name(rows["unit"], self.names),
            "episodes_over": by_name(rows["over"], self.names),
            "sum_over": by_name(rows["excess"], self.names),
        }


@run_once("count", "limit")
def begun(source: Any, key: Any, count: int, limit: int) -> CompiledLanes:
    """Lanes at their first step."""
    return first_lanes(source, count, limit, key)


@program()
def lesson(setup: Any, learner: ActorState, steps: Any, key: Any) -> tuple[ActorState, ActorTrace]:
    """One iteration with what a simulator showed."""
    return learn(setup, learner, steps, key)
