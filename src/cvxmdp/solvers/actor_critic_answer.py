"""Which policy of an actor-critic is the answer, and what is known of it.

Of the last policy and the running average of its parameters, which swings less with the multipliers, the one
that is better satisfied is the answer; or the best policy on the way that kept all
budgets, where that is clearly better; or the one that the run began with, where that is better in every
respect: by exact values where there is a model, else by fresh episodes of all. Others, of the answer alone,
then judge it (``experience.judging``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.base.interval import Interval
from cvxmdp.experience.environments.environment import Environment, environment_of, seeds
from cvxmdp.experience.environments.simulated import actor_in
from cvxmdp.experience.episodes import Sample, joined, summarise
from cvxmdp.experience.judging import (
    Play,
    first_look,
    in_rounds,
    judge_by_episodes,
    measured_mean,
    unjudged,
)
from cvxmdp.problems.findings import Course, Timeline, computed
from cvxmdp.problems.problem import Evaluation, Problem
from cvxmdp.solvers.contract import Rows, by_name

COMPARED, LEAST_COMPARED = 100, 8  # episodes of each candidate
COMPARING, JUDGING = 0.05, 0.2  # of the steps that were learned from, spent on fresh ones
FRESH = 3  # what random numbers are for
WHICH = ("last", "averaged", "earlier", "first")  # candidates
COMPARED_BY, JUDGED = (0, 1, 4, 3), 2  # numbers of their fresh episodes, and of those of the answer
CLEARLY = 0.05  # of a budget or of the objective, by which an earlier policy is better: others differ by chance
NARROW = 0.05  # of log A: an entropy below it is hardly any
NARROW_STD = 0.02  # of a Gaussian policy
STEADY = 7.0  # times 1 / (1 - discount), where fresh episodes are cut


class JudgedPolicy(NamedTuple):
    """A policy, and what is known of it."""

    policy: Any
    evaluation: Evaluation
    slack_interval: dict[str, Interval]
    remark: str
    episodes: int


class Examination:
    """Of candidates, after all steps are played.

    Args:
        problem: to solve.
        steps: that were learned from.
        limit: where episodes are cut at the earliest.
        check: episodes, at most, that judge the answer.
        seed: of the run.
        round: how many repairs there were.
    """

    def __init__(
        self, problem: Problem, steps: int, limit: int, check: int, seed: int, round: int
    ) -> None:
        self.problem, self.steps, self.check = problem, steps, check
        self.path = (seed, FRESH, round)
        discount = problem.space.discount
        ahead = STEADY / (1.0 - discount) if discount < 1.0 else limit
        self.limit = max(limit, math.ceil(ahead))

    def better(self, candidates: Sequence[Any]) -> int:
        """Which of the first two is better satisfied; another only where it is no worse in any respect.

        Exactly where there is a model, else by fresh episodes.
        """
        environment = environment_of(self.problem)
        found = [
            self.problem.evaluate(policy)
            if environment is None
            else self._worth(self._compared(self._play(environment, policy, number)))
            for number, policy in zip(COMPARED_BY, candidates, strict=False)
        ]
        ranks = [(-short(self.problem, one), self.problem.sign * one.objective) for one in found]
        best = max((0, 1), key=ranks.__getitem__)
        better = [k for k in range(2, len(ranks)) if _dominates(ranks[k], ranks[best])]
        if 2 in better and not _clearly(ranks[2], ranks[best]):
            better.remove(2)
        return max(better, key=ranks.__getitem__, default=best)

    def judged(self, policy: Any, worst: Mapping[str, float]) -> JudgedPolicy:
        """By episodes that nobody has seen; ``worst``, the smallest slacks of batches, by constraint."""
        environment = environment_of(self.problem)
        if environment is None:
            found = self.problem.evaluate(policy)
            return JudgedPolicy(policy, found, computed(found.slack), "", 0)
        judged = judge_by_episodes(
            self.problem,
            self._play(environment, policy, JUDGED),
            check=self.check,
            learned=self.steps,
            most_steps=JUDGING * self.steps,
            worst=worst,
        )
        found = self._worth(judged.sample)
        remark = f" Objective and slack are estimates from {judged.sample.n:,} fresh episodes."
        return JudgedPolicy(policy, found, judged.slack, remark, judged.sample.n)

    def unexamined(self, policy: Any, m: np.ndarray | None) -> JudgedPolicy:
        """Of a run that was stopped: the environment is not to be asked again."""
        if environment_of(self.problem) is None:
            found = self.problem.evaluate(policy)
            return JudgedPolicy(policy, found, computed(found.slack), "", 0)
        found = (
            Evaluation.unknown(self.problem) if m is None else self.problem.evaluate_occupancy(m)
        )
        remark = " Objective and slack are those of the last episodes it learned from."
        return JudgedPolicy(policy, found, unjudged(found.slack), remark, 0)

    def _compared(self, play: Play) -> Sample:
        """A few episodes: as many as the steps that may go into it."""
        sample = first_look(play, LEAST_COMPARED, self.steps)
        affordable = COMPARING * self.steps / max(float(sample.lengths.mean()), 1.0)
        more = min(COMPARED, int(affordable)) - sample.n
        return joined([sample, play(more)]) if more > 0 else sample

    def _play(self, environment: Environment, policy: Any, number: int) -> Play:
        """Fresh episodes of a policy, in whole rounds of the lanes."""
        of_environment, of_policy = seeds(*self.path, number, count=2)
        act = actor_in(environment, policy, of_policy, False)
        names = self.problem.space.signal_names
        measured: dict[str, Any] = {
            "n_states": environment.n_states,
            "features": environment.features,
        }

        def block(number: int) -> Sample:
            first = of_environment if number == 0 else None
            played = environment.episodes(act, self.limit, signals=names, seed=first)
            return summarise(played, environment.horizon, environment.n_actions, **measured)

        return in_rounds(block, environment.n_lanes)

    def _worth(self, sample: Sample) -> Evaluation:
        return self.problem.evaluate_occupancy(measured_mean(self.problem, sample))


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine >= theirs for mine, theirs in zip(one, other, strict=True))


def _clearly(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether a rank is better by more than chance explains."""
    less, more = one[0] - other[0], one[1] - other[1]
    return less > CLEARLY or more > CLEARLY * max(abs(one[1]), abs(other[1]))


def short(problem: Problem, found: Evaluation) -> float:
    """The worst violation, in units of its budget."""
    budgets = problem.budgets
    over = [
        max(0.0, -slack) / max(abs(budgets[name]), 1e-12) for name, slack in found.slack.items()
    ]
    return max(over, default=0.0)


def course_of_rows(problem: Problem, rows: Rows) -> Course:
    """How a run went, for the findings about it; multipliers in units of what pulls equally."""
    at = np.arange(1, len(rows["objective"]) + 1)

    def timelines(columns: np.ndarray) -> dict[str, Timeline]:
        named = by_name(columns.astype(float), problem.constraints)
        return {name: Timeline(at, column) for name, column in named.items()}

    actions, environment = problem.space.shape[1], environment_of(problem)
    narrow = rows["entropy"] < NARROW * math.log(max(actions, 1.0))
    if environment is not None and environment.action_box is not None:
        each = rows["entropy"] / np.size(environment.action_box[0])
        narrow = each < math.log(NARROW_STD) + 0.5 * math.log(2.0 * math.pi * math.e)
    return Course(
        Timeline(at, rows["objective"].astype(float)),
        timelines(rows["slack"]),
        timelines(rows["multipliers"] / np.maximum(rows["unit"], 1e-30)),
        narrow=Timeline(at, np.asarray(narrow, dtype=float)),
    )
