"""VR-PDPG as work: compiled iterations, policies kept on the way, and the answer that is made of them.

The model is only sampled from while learning. Where it is known, the policies at the ends of the chunks are
evaluated exactly afterwards, so that a learning curve shows truth and sample. ``environment_work`` has what is
different where it is not, ``vr_pdpg_lanes`` several runs as lanes of one program.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import jax
import numpy as np

from cvxmdp.algorithms.chunks import (
    NEVER,
    Carry,
    Snapshot,
    begin,
    run_chunk,
)
from cvxmdp.algorithms.learning_state import LearningTrace
from cvxmdp.base.errors import CvxmdpWarning, DivergedError
from cvxmdp.base.precision import host
from cvxmdp.base.saved_trees import Growing
from cvxmdp.policies.families import deployed
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.occupancies import measured_policy
from cvxmdp.problems.findings import computed, findings_of
from cvxmdp.problems.snapshots import snapshots_of
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.problems.while_learning import played_history, violations_while_learning
from cvxmdp.solvers.contract import Batch, Judgement, Rows, Task, Work, by_name
from cvxmdp.solvers.learning import (
    Kept,
    Learned,
    Shared,
    Worth,
    choose_iterates,
    course_of,
    first_numbers,
    not_finite,
    targets_of,
)
from cvxmdp.solvers.start import box_note
from cvxmdp.solvers.vr_pdpg_lanes import Lanes
from cvxmdp.solvers.vr_pdpg_words import border_note, warn_of_lies

EXPLODED = 20.0  # an importance weight that says the steps are too large


class LearningWork(Work[Learned]):
    """VR-PDPG on a problem with one seed.

    Args:
        shared: what runs of other seeds have, too.
        task: problem, start and seed.
    """

    name = "VR-PDPG"

    def __init__(self, shared: Shared, task: Task) -> None:
        assert task.seed is not None
        self.shared, self.task, self.seed = shared, task, task.seed
        self.settings, self.plan = shared.settings, shared.plan
        self.learning, self.problem = shared.learning, task.problem
        self.family = self.learning.family
        self.grain, self.longest = self.plan.every, self.plan.length
        self.names = list(self.problem.constraints)
        self.params, self.multipliers, self.taken = first_numbers(shared, task)
        self.kept_at = choose_iterates(self.plan, self.seed, self.problem)
        self.recent = ""  # what the latest episodes showed, for people alone

    @cached_property
    def begun(self) -> tuple[Any, Any, Carry]:
        """The words of the key, theta_0 and the first carry."""
        found: tuple[Any, Any, Carry] = begin(
            self.learning,
            np.uint32(self.seed % 2**32),
            self.params,
            self.multipliers,
            self.kept_at,
        )
        return found

    @property
    def program(self) -> Any:
        """Equal for works that can be lanes of one program."""
        leaves, form = jax.tree.flatten(self.learning)
        return form, tuple((leaf.shape, leaf.dtype.name) for leaf in leaves), self.plan

    def first(self) -> Learned:
        _, params, carry = self.begun
        start = Kept(np.array(0), host(Snapshot(params, carry.seen)))
        return Learned(np.array(0), carry, np.array(0), np.array(0.0), Growing([start]))

    def where(self, state: Learned) -> tuple[int, int]:
        return int(state.done), self.plan.iterations

    def mark(self, state: Learned) -> int:
        return self.plan.end(int(state.done))

    def advance(self, state: Learned, until: int) -> tuple[Learned, Rows]:
        """Part of a chunk, or what is left of it."""
        carry, summary, traces = run_chunk(
            self.learning,
            state.carry,
            self.begun[0],
            self.kept_at,
            until - int(state.done),
            self.plan.length,
            self.plan.every,
            self.plan.capacity,
            self.plan.rounds(until - int(state.done)),
        )
        return self._taken(state, until, carry, host(summary), host(traces))

    def _taken(
        self, state: Learned, until: int, carry: Carry, summary: Any, traces: LearningTrace
    ) -> tuple[Learned, Rows]:
        """The state after a piece, checked, and its records."""
        if summary.broken_at != NEVER:
            raise DivergedError(not_finite(int(summary.broken_at)))
        recorded = until // self.plan.every - int(state.done) // self.plan.every
        rows = {name: part[:recorded] for name, part in traces._asdict().items()}
        if recorded:
            mean = self.problem.sign * rows["episode_objective"].mean()
            self.recent = f"objective of the episodes {mean:.5g}"
        return state.after(self.plan, until, carry, summary), rows

    def judge(self, state: Learned) -> Judgement:
        """Nothing is proven of samples; people see what the latest episodes showed."""
        return Judgement(self.recent)

    def finish(self, state: Learned, rows: Rows, status: Status) -> Solution:
        """The answer, with all that is known of it."""
        largest = float(state.largest_weight)
        if largest > EXPLODED and self.settings.momentum != 1:  # with 1 nothing is weighted
            warnings.warn(
                f"the largest importance weight was {largest:.3g}: with such weights, variance "
                "reduction adds variance. Take a smaller primal_step or horizon.",
                CvxmdpWarning,
                stacklevel=2,
            )
        trace = self._trace(rows)
        worth = self.evaluated(state, status, trace)
        history = worth.history | self._sampled(trace)
        warn_of_lies(history, self.names, self._momentum(state), self._unseen())
        stats: dict[str, Any] = {
            "solver": f"VR-PDPG (momentum {self.settings.momentum})",
            "iterations": int(state.done),
            "samples": int(state.steps),
            "largest_weight": largest,
            "pessimism": dict(zip(self.names, self._pessimism().tolist(), strict=True)),
            "params": self.latest(state),
            "family": self.family.name,
        }
        if self.taken:
            stats["start"] = self.taken
        found = Solution.of_policy(
            self.problem,
            worth.policy,
            status,
            self._multipliers(state, trace),
            evaluation=worth.evaluation,
            history=history,
            stats={**stats, **worth.stats},
            message=f"{status.value}{worth.remark}{self._notes(state)}",
            slack_interval=worth.slack_interval,
        )
        course = course_of(self.problem, history, np.asarray(self.learning.dual_bound))
        return replace(found, findings=findings_of(course, found.constraint_status))

    def latest(self, state: Learned) -> Any:
        """theta_T, or the latest there is."""
        return host(state.carry.state.params)

    def _notes(self, state: Learned) -> str:
        """Multipliers at the end of their box, steps held back at a border, and settings that were chosen."""
        now, bound = state.carry.state.multipliers, self.learning.dual_bound
        held = box_note(self.names, np.asarray(now), np.asarray(bound))
        held += border_note(
            self.learning, state.carry.state, self._momentum(state), self.settings.batch_size
        )
        return f"{held} {self.settings.chosen}" if self.settings.chosen else held

    def _unseen(self) -> float:
        """The share of discounted sums beyond the horizon that slacks do not allow for."""
        limit, cut = self.problem.space.horizon.limit, self.settings.horizon
        if self.settings.unseen or (limit is not None and cut >= limit):
            return 0.0
        return float(self.problem.space.discount) ** cut

    def _momentum(self, state: Learned) -> float:
        """alpha at the end; the theorem's falls."""
        alpha = self.settings.momentum
        return max(int(state.done), 1) ** -0.5 if isinstance(alpha, str) else alpha

    def _multipliers(self, state: Learned, trace: LearningTrace) -> dict[str, float]:
        """mu_T, beside theta_T; for a mean of policies, the mean of theirs."""
        multipliers = np.asarray(state.carry.state.multipliers, dtype=float)
        if self.settings.iterate != "last" and self.names and len(trace.multipliers):
            begin = 0 if self.settings.iterate == "uniform" else len(trace.multipliers) // 2
            multipliers = trace.multipliers[begin:].mean(axis=0)
        return {name: float(mu) for name, mu in zip(self.names, multipliers, strict=True)}

    def evaluated(self, state: Learned, status: Status, trace: LearningTrace) -> Worth:
        """The policy of the answer, its worth, the curves, more to say in ``stats`` and in the message.

        Here, where the model is known, exactly.
        """
        seen = list(state.snapshots)
        if int(seen[-1].done) < int(state.done):  # stopped within a chunk
            seen.append(Kept(state.done, Snapshot(self.latest(state), None)))
        tables = np.stack([self._table(one.snapshot.params) for one in seen])
        visits = self.problem.mdp.flow.occupancies(tables)
        iterations = np.array([int(one.done) for one in seen])
        history, reached = self.curves(iterations, visits), self.reached(state)
        played = np.stack([*map(self._table, self.drawn(state))]) if reached.size else tables[:0]
        visits = self.problem.mdp.flow.occupancies(played)
        history |= played_history(self.problem, reached, visits)
        more = violations_while_learning(
            self.problem, history, int(state.done) / max(reached.size, 1)
        )
        policy = self._deployed(state, visits, played)
        found = self.problem.evaluate(policy)
        return Worth(policy, found, computed(found.slack), history, more, "")

    def _table(self, params: Any) -> np.ndarray:
        return np.asarray(self.family.deploy(params).probabilities())

    def curves(self, iterations: np.ndarray, visits: np.ndarray) -> dict[str, Any]:
        """Objective, slack and occupancies at some iterations, for the history."""
        every = [self.problem.evaluate_occupancy(x) for x in visits]
        return {
            "iteration": iterations,
            "objective": np.array([found.objective for found in every]),
            "slack": {
                name: np.array([found.slack[name] for found in every]) for name in self.names
            },
            **snapshots_of(iterations, self._shown(visits)),
        }

    def _shown(self, visits: np.ndarray) -> np.ndarray:
        """Of what is measured, (K, ...), what people look at: visits of states, (K, S, A)."""
        collected = [self.problem.space.horizon.collected(x) for x in visits]
        size = self.problem.space.shape
        return np.stack(collected)[:, : size[0]] if collected else np.zeros((0, *size))

    def _deployed(self, state: Learned, visits: np.ndarray, tables: np.ndarray) -> Any:
        """The last policy, or one made of those that were kept, with these occupancies and probabilities."""
        mdp, chosen, late = self.problem.mdp, self.settings.iterate, self.answering(state)
        if chosen == "last" or not late.any():  # stopped before the first of them
            return deployed(self.family, self.latest(state), mdp)
        mean = measured_policy(mdp, visits[late].mean(axis=0))
        if chosen == "half" or mdp.horizon.steps is not None:
            return mean
        return MixturePolicy(mean.probabilities(), tables)

    def reached(self, state: Learned) -> np.ndarray:
        """Iterations, already reached, whose policies are kept."""
        if self.kept_at is None:
            return np.zeros(0, np.int32)
        return self.kept_at[self.kept_at < int(state.done)]

    def answering(self, state: Learned) -> np.ndarray:
        """Which of those the answer is made of, where it is made of several."""
        begin = int(state.done) // 2 if self.settings.iterate == "half" else 0
        return self.reached(state) >= begin

    def drawn(self, state: Learned) -> list[Any]:
        """The policies that are kept, in the order of their iterations."""
        kept = host(state.carry.kept)
        return [
            jax.tree.map(lambda rows, k=k: rows[k], kept) for k in range(self.reached(state).size)
        ]

    def _pessimism(self) -> np.ndarray:
        return np.asarray(self.learning.pessimism)

    def _trace(self, rows: Rows) -> LearningTrace:
        if rows:
            return LearningTrace(**rows)
        n, nothing = len(self.names), np.zeros(0)
        columns = {"episode_slack": n, "recursive_slack": n, "multipliers": n}
        columns |= {"tracking_error": len(targets_of(self.problem)), "episode_return": 0}
        return LearningTrace(
            **{
                name: np.zeros((0, columns[name])) if name in columns else nothing
                for name in LearningTrace._fields
            }
        )

    def _sampled(self, trace: LearningTrace) -> dict[str, Any]:
        """What the episodes and the recursion showed, per iteration."""
        names, sign = self.names, self.problem.sign
        found = {
            "recorded": np.arange(1, len(trace.gradient_norm) + 1) * self.plan.every,
            "episode_objective": sign * trace.episode_objective,
            "episode_slack": by_name(trace.episode_slack + self._pessimism(), names),
            "recursive_slack": by_name(trace.recursive_slack + self._pessimism(), names),
            "multipliers": by_name(trace.multipliers, names),
            "gradient_norm": trace.gradient_norm,
            "policy_entropy": trace.policy_entropy,
            "weight_mean": trace.weight_mean,
            "weight_max": trace.weight_max,
            "effective_sample_size": trace.effective_sample_size,
            "episode_length": trace.episode_length,
        }
        if trace.episode_return.shape[1]:
            found["episode_return"] = trace.episode_return[:, 0]
        targets = list(targets_of(self.problem))
        if targets:
            found["tracking_error"] = by_name(trace.tracking_error, targets)
        return found

    def reseeded(self, task: Task) -> Self:
        """The same with another seed."""
        return type(self)(self.shared, task)

    def batch(self, others: Sequence[LearningWork]) -> Batch[Any] | None:
        """Lanes of one program, where all have the same form."""
        return Lanes([self, *others])
