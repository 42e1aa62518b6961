"""``ModelBased(safe=True)``: nothing is played that is not proven, but the policy that was promised to be safe.

That policy is played alone until the counts prove that its constraints hold. From then on an episode plays the
best plan that is proven, or the explorer, in a share b so small that with it the mixture is proven as well:
(1 - b) slack_i + b lower_i(explorer) >= 0 for every constraint. Slacks are concave, and a policy that is drawn
for an episode has the mixture of the occupancies in every model. All proofs hold together, at all times, with
the stated confidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.algorithms.optimism import explorer, meeting
from cvxmdp.atoms.utility import signal_names
from cvxmdp.base.errors import SettingsError
from cvxmdp.certificates.true_claims import TrueClaims
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.cautious import cautious_plan
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.counted_plans import CountedPlan, answered, noise
from cvxmdp.solvers.model_based_work import Counted, ModelBasedWork, shares_of

if TYPE_CHECKING:
    from cvxmdp.solvers.model_based import ModelBased

# The shares of plan, optimist and explorer where only the first plays.
ALONE = np.array([1.0, 0.0, 0.0])


class SafeWork(ModelBasedWork):
    """See above."""

    renews = False  # an explorer is played only with its proof

    def __init__(self, solver: ModelBased, task: Task) -> None:
        super().__init__(solver, task)
        self._require_proofs()

    def _require_proofs(self) -> None:
        """An error where nothing could ever be proven."""
        if self.start is None:
            raise SettingsError(
                "safe=True begins with a policy that is promised to satisfy the constraints: give start=, a "
                "policy or an (S, A) array (on the command line --start)"
            )
        if not self.ground.markov:
            raise SettingsError(
                "safe=True rests on proofs from counts, and bins of observations are not Markov: nothing is "
                "proven of them. Leave it out; evaluate(solution, environment, episodes) bounds the answer."
            )
        counter = self.ground.counter
        named = set().union(*(signal_names(one.slack) for one in self.problem.constraints.values()))
        missing = [name for name in counter.signals if name in named and name not in counter.bounds]
        if missing:
            raise SettingsError(
                f"safe=True needs the range of {missing[0]!r}, without which no constraint on it is proven: "
                f"give bounds={{{missing[0]!r}: (least, largest)}} to the environment"
            )

    def first_policies(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._alone(), ALONE

    def _alone(self) -> np.ndarray:
        assert self.start is not None
        return np.stack([self.start] * 3)

    def policies(self, model: TabularMDP, state: Counted) -> Counted:
        """The best proven plan, and as much of the explorer as is proven beside it."""
        asked = self.problem.with_model(model)
        claims = TrueClaims.about(asked, self.solver.confidence)
        plan = self._best(claims, asked)
        slack = claims.reached(plan).slack
        if any(one < 0 for one in slack.values()):
            return state._replace(tables=self._alone(), shares=ALONE)
        curious = explorer(model, self.horizon)
        lower = claims.reached(curious).slack
        share = float(shares_of(meeting(model, self.horizon))[2])
        for name, least in lower.items():
            if least < 0:
                room = slack[name]
                share = min(share, room / (room - least)) if np.isfinite(least) else 0.0
        shares = np.array([1.0 - share, 0.0, share])
        return state._replace(tables=np.stack([plan, plan, curious]), shares=shares)

    def _best(self, claims: TrueClaims, asked: Problem) -> np.ndarray:
        """The best plan that is proven; the one it began with where there is none."""
        assert self.start is not None
        found = cautious_plan(claims, asked, answered)
        proven = found.has_policy and bool(found.stats.get("proven", False))
        return np.asarray(found.policy.probabilities()) if proven else self.start

    def answer(self, asked: Problem) -> tuple[CountedPlan, dict[str, float]]:
        """The best proven plan."""
        claims = TrueClaims.about(asked, self.solver.confidence)
        policy = self._best(claims, asked)
        multipliers = dict.fromkeys(asked.constraints, 0.0)
        return CountedPlan(policy, np.zeros(policy.shape), multipliers, True), noise(asked, policy)
