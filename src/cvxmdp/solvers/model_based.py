r"""Learn a table and plan: counts of episodes, an exact plan on what they suggest, exploration of what is
unknown.

Phases grow by 1.4. Before each, the estimate's own plan is computed, with its multipliers and shadow reward r;
an episode then follows one of three policies: the *plan*; the *optimist*, who hopes for the best that the
counts allow in one place and goes on as planned (``algorithms.optimism``); the *explorer*, who is after pairs
that were seldom tried. The explorer's share is 0.1 + 0.6 u, u the largest discounted probability of meeting a
pair that was tried fewer than ten times; of the rest the plan has two thirds. Plans use pairs that were tried.
The answer is the best plan whose slacks are at least one standard error of the counts' noise, arguments of
logarithms three. An episode is cut after 5 / (1 - discount) steps, which is a truncation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cvxmdp.base.errors import SettingsError
from cvxmdp.base.settings import whole
from cvxmdp.experience.confidence import confidence_level
from cvxmdp.solvers.contract import Task, Work, require_listed_actions, require_stationary
from cvxmdp.solvers.model_based_work import ModelBasedWork
from cvxmdp.solvers.safe_model_based import SafeWork


@dataclass(frozen=True)
class ModelBased:
    """Learn from episodes by counting and planning, where states can be counted.

    For environments whose observations are discrete, or bins of them, and for models, which are then
    simulated. It has no settings but how long it may play, and needs far fewer steps than ``VRPDPG``.

    Attributes:
        steps: of the environment, in all.
        confidence: of what is said about the true model at the end.
        safe: play nothing that is not proven to satisfy the constraints, with that confidence, but the policy
            given as ``start=``, which is promised to. The answer is then a proven plan, or that policy.
    """

    steps: int
    confidence: float = 0.95
    safe: bool = False
    needs_seed: ClassVar[bool] = True
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("steps", self.steps, what="how long to play")
        confidence_level(self.confidence, 1)

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. ``start=`` is a policy to begin with, or a solution that has one."""
        known = task.problem.environment is not None or task.problem.mdp.counts is None
        if not known:
            raise SettingsError(
                "ModelBased would play an estimate, and what it says of the true model would be of that: plan "
                "on the counts there are, solve(problem) or solve(problem, cautious=0.95), or learn in the "
                "environment itself. To play the estimate as if it were true: problem.with_model(mdp.replace("
                "transition=mdp.transition)), which has no counts."
            )
        require_stationary(task.problem, "ModelBased")
        require_listed_actions(task.problem, "ModelBased")
        if task.problem.space.horizon.limit is not None:
            raise SettingsError(
                f"ModelBased plans with a discount, and this environment counts {task.problem.space.horizon}: "
                "give it a discount below one and no horizon=, or take ActorCritic(steps=...)"
            )
        return SafeWork(self, task) if self.safe else ModelBasedWork(self, task)
