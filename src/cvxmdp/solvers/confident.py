"""pessimism="auto" in an environment: a policy that episodes say is feasible, at a stated confidence.

Where there is no model nothing can be certified, but fresh episodes bound every slack from below. The run is
repeated with more pessimism, by what the bound misses, until it is not negative for any constraint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.experience.environments.environment import seeds
from cvxmdp.experience.evaluation import evaluate
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.problems.solution import Solution, Status

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg_study import Study

EPISODES = 1_000  # of each evaluation
CONFIDENCE = 0.95  # shared by the evaluations, of which the last one is believed
MOST_RUNS = 6


def confidently_feasible(study: Study) -> Solution:
    """The answer of the first run whose slacks are bounded away from below zero, or of the last one."""
    names = list(study.problem.constraints)
    pessimism = np.zeros(study.n)
    for number in range(MOST_RUNS):
        solution = study.go(pessimism)
        if solution.status is Status.INTERRUPTED:
            return solution
        found = _evaluated(study, solution, number)
        short = np.array([max(0.0, -found.slack[name].lower) for name in names])
        if not short.any():
            break
        pessimism = pessimism + short
    stats = {
        **solution.stats,
        "slack_at_least": {name: found.slack[name].lower for name in names},
        "confidence": CONFIDENCE,
        "violation_proven_zero": found.feasible == "proven",
    }
    message = f"{solution.message} From {found.episodes:,} fresh episodes: {found.statement}"
    return study.timed(replace(solution, stats=stats, message=message))


def _evaluated(study: Study, solution: Solution, number: int) -> PolicyEvaluation:
    """Fresh episodes of a policy. Each look may err: with all of them together, as seldom as was said."""
    (seed,) = seeds(study.seed, number, 1, count=1)
    return evaluate(
        solution,
        study.problem.environment,
        EPISODES,
        seed=seed,
        horizon=study.solver.horizon,
        confidence=1.0 - (1.0 - CONFIDENCE) / MOST_RUNS,
    )
