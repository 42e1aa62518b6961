"""pessimism="auto" in an environment: a policy that episodes say is feasible, at a stated confidence.

Where there is no model nothing can be certified, but fresh episodes bound every slack from below. The run is
repeated with more pessimism, by what the bound misses, until it is not negative for any constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cvxmdp.experience.environments.environment import environment_of, seeds
from cvxmdp.experience.evaluation import evaluate
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.contract import Task, Work
from cvxmdp.solvers.repeated import Repeated, Tries

EPISODES = 1_000  # of each evaluation
CONFIDENCE = 0.95  # shared by the evaluations, of which the last one is believed
MOST_RUNS = 6


class ConfidentlyFeasible(Repeated):
    """The first run whose slacks are bounded away from below zero, or the last one."""

    def __init__(self, task: Task, horizon: int, make: Callable[[np.ndarray], Work[Any]]) -> None:
        self.task, self.horizon = task, horizon
        self.names = list(task.problem.constraints)
        self.evaluated: tuple[int, PolicyEvaluation] | None = None  # the last one, and of which try
        super().__init__(make, len(self.names))

    def concluded(self, state: Tries, solution: Solution) -> Tries:
        """More pessimism, by what the bounds miss."""
        number, state = int(state.number), state._replace(kept=state.current)
        found = self._evaluation(solution, number)
        short = np.array([max(0.0, -found.slack[name].lower) for name in self.names])
        if not short.any() or number == MOST_RUNS - 1:
            return state._replace(over=np.array(True))
        return self.following(state, state.current.pessimism + short)

    def searched(self, state: Tries, solution: Solution) -> Solution:
        found = self._evaluation(solution, int(state.number))
        stats = {
            **solution.stats,
            "slack_at_least": {name: found.slack[name].lower for name in self.names},
            "confidence": CONFIDENCE,
            "violation_proven_zero": found.feasible == "proven",
        }
        message = f"{solution.message} From {found.episodes:,} fresh episodes: {found.statement}"
        return replace(solution, stats=stats, message=message)

    def _evaluation(self, solution: Solution, number: int) -> PolicyEvaluation:
        """Fresh episodes of a policy. Each look may err: with all of them together, as seldom as was said."""
        if self.evaluated is None or self.evaluated[0] != number:
            assert self.task.seed is not None
            (seed,) = seeds(self.task.seed, number, 1, count=1)
            found = evaluate(
                solution,
                environment_of(self.problem),
                EPISODES,
                seed=seed,
                horizon=self.horizon,
                confidence=1.0 - (1.0 - CONFIDENCE) / MOST_RUNS,
            )
            self.evaluated = number, found
        return self.evaluated[1]
