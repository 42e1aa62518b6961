"""Solutions: what a solver found, how it ended, and a table that people can read."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cvxmdp.atoms.utility import Utility
from cvxmdp.base.errors import FileFormatError, PolicyError, ProblemError, require
from cvxmdp.base.interval import Interval
from cvxmdp.base.notebooks import InNotebooks, ShortTable
from cvxmdp.base.text_tables import number
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import TimedPolicy
from cvxmdp.problems.fallback import with_fallback
from cvxmdp.problems.findings import Finding, computed, status_of, unjudged
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Evaluation, Problem, load_problem
from cvxmdp.problems.problem_folder import DOCUMENT as QUESTION
from cvxmdp.problems.problem_folder import write_problem
from cvxmdp.problems.sensitivity import Sensitivity, sensitivity
from cvxmdp.problems.solution_figures import plot_solution
from cvxmdp.problems.solution_folder import DOCUMENT as SOLUTION
from cvxmdp.problems.solution_folder import ESTIMATE, MODEL, read_solution, write_solution
from cvxmdp.problems.solution_table import solution_columns
from cvxmdp.problems.solution_text import solution_html, solution_text

# What to ask when nothing satisfies the constraints; a status alone helps nobody to go on.
ASK_WHY = "cm.slater(problem) says which constraints conflict and by how much they miss."
ASK_PROOF = "cm.certify(problem, solution) gives the proof."
ASK_OF_ESTIMATE = (
    "That is so of the estimate: cm.certify(problem, solution, confidence=None) gives the proof. "
    "What is known of the true model: cm.certify(problem, solution)."
)
PLAIN = (TabularPolicy, TimedPolicy)  # tables whose rows are no functions of parameters

if TYPE_CHECKING:
    from cvxmdp.policies import Policy

Found = TypeVar("Found")


class Status(Enum):
    """How a solver ended. The value is its sentence."""

    OPTIMAL = "The solver met its optimality tolerances."
    INACCURATE = "The solver stopped short of its tolerances and calls its answer inaccurate."
    CAUTIOUS = "The plan is proven feasible in every model that may be the true one."
    INFEASIBLE = "No policy satisfies all constraints."
    ITERATION_LIMIT = "The iterations ran out before any test of convergence was met."
    TIME_LIMIT = "The time ran out before any test of convergence was met."
    INTERRUPTED = "Interrupted; this is the best answer so far."
    FAILED = "The run stopped with an error."

    @property
    def has_policy(self) -> bool:
        """True when there is a policy to look at."""
        return self not in (Status.INFEASIBLE, Status.FAILED)


@dataclass(frozen=True)
class Nearest(InNotebooks):
    """What comes nearest where no policy satisfies all constraints.

    Attributes:
        policy: the one with the largest smallest slack that was found, and of those with the least violations
            together.
        slack: its slack per constraint.
    """

    policy: TabularPolicy
    slack: Mapping[str, float]

    @property
    def violation(self) -> dict[str, float]:
        """max(0, -slack) per constraint."""
        return violation_of(self.slack)

    def __str__(self) -> str:
        missed = [f"{name!r} by {number(by)}" for name, by in self.violation.items() if by > 0]
        kept = [repr(name) for name, by in self.violation.items() if not by > 0]
        keeps = f" and keeps {', '.join(kept)}" if kept else ""
        return f"The policy that violates least (solution.nearest.policy) misses {', '.join(missed)}{keeps}."


def violation_of(slack: Mapping[str, float]) -> dict[str, float]:
    """max(0, -slack) per constraint; NaN where there is no slack to speak of."""
    return {name: max(-value, 0.0) + 0.0 for name, value in slack.items()}  # no zero below zero


def infeasible_message(
    problem: Problem, reason: str = "", nearest: Nearest | None = None, conflict: Sequence[str] = ()
) -> str:
    """The message of an infeasible solution: what is known, what comes nearest, and what to ask next.

    Args:
        problem: that has no answer.
        reason: which constraints conflict, where the solver knows it (``str(slater)``).
        nearest: the policy that violates least.
        conflict: the constraints whose budgets are in the way.
    """
    known = problem.environment is not None or problem.mdp.counts is None
    proof = ASK_PROOF if known else ASK_OF_ESTIMATE
    if not reason:
        return f"{Status.INFEASIBLE.value} {ASK_WHY} {proof}"
    # The status is printed before the message, so the reason need not repeat it.
    lines = [reason.removeprefix("Infeasible: "), *([] if nearest is None else [str(nearest)])]
    if conflict:
        asked = shlex.quote(conflict[0])
        lines.append(
            f"From which budget on there is one: cm.frontier(problem, {conflict[0]!r}), or cvxmdp frontier "
            f"PROBLEM.toml {asked}."
        )
    return "\n".join([*lines, proof])


@dataclass(frozen=True)
class Solution:
    """The answer to a problem.

    Attributes:
        problem: what was solved.
        status: how the solver ended.
        objective: of ``policy``, in the user's sign; NaN without a policy.
        slack: signed slack per constraint, of ``policy``.
        multipliers: mu_i >= 0 per constraint: Lagrangian = objective + sum multipliers * slack, and
            what a unit more of the budget is worth at the margin.
        policy: the policy; asking for it where there is none (``has_policy``) is an error that says why.
        occupancy: its occupancy, (S, A), recomputed from the policy; in an environment it is
            estimated from episodes, like ``objective`` and ``slack``, and has the signals' rows below those of
            the features.
        policy_or_none, occupancy_or_none: the same, for code that goes on without them.
        evidence: what the solver knows about the best possible objective, or that there is none: ``certify``
            proves at least as much as follows from it. None where the multipliers say it all.
        history: what happened on the way, by name; empty for solvers without iterates to show.
        stats: solver, time, iterations and the like.
        message: the status in a sentence, with this run's details.
        slack_interval: of a learner: what fresh episodes say of each slack; of no width where it was computed
            with a model.
        constraint_status: "satisfied", "violated" or "open" for each constraint: where the interval of its
            slack lies, or the slack itself where there is none.
        findings: what a learner's history says of the answer: whether the policy has collapsed, the objective
            is flat or still improving, a budget seems out of reach; since when, and what to do.
        nearest: where it is proven that no policy satisfies all constraints, the policy that violates least.
    """

    problem: Problem
    status: Status
    objective: float
    slack: Mapping[str, float]
    multipliers: Mapping[str, float]
    policy_or_none: Policy | None
    occupancy_or_none: np.ndarray | None
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    evidence: Evidence | None = None
    slack_interval: Mapping[str, Interval] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    nearest: Nearest | None = None

    def __post_init__(self) -> None:
        # Printed, they are read by people: long arrays by their shape.
        for name in ("history", "stats"):
            object.__setattr__(self, name, ShortTable(getattr(self, name)))

    @property
    def constraint_status(self) -> dict[str, str]:
        """For each constraint; see above. Empty without a policy."""
        if not self.has_policy:
            return {}
        played = self.problem.environment is not None  # where a slack is an estimate
        known = {**(unjudged if played else computed)(self.slack), **self.slack_interval}
        return {name: status_of(one) for name, one in known.items()}

    @property
    def violation(self) -> dict[str, float]:
        """max(0, -slack) per constraint; NaN where there is no policy."""
        return violation_of(self.slack)

    @property
    def has_policy(self) -> bool:
        """Whether there is a policy to look at; none where the problem is infeasible."""
        return self.policy_or_none is not None

    @property
    def policy(self) -> Policy:
        """The policy; see above."""
        return self._present(self.policy_or_none, "policy")

    @property
    def occupancy(self) -> np.ndarray:
        """Its occupancy; see above."""
        return self.problem.space.horizon.collected(self.measured)

    @property
    def measured(self) -> np.ndarray:
        """The occupancy as the problem's functions take it: with a horizon, of all steps above each other."""
        return self._present(self.occupancy_or_none, "occupancy")

    @property
    def occupancy_by_time(self) -> np.ndarray:
        """The occupancy of every step, (T, S, A), for a model with ``horizon=T``."""
        steps = self.problem.space.horizon.steps
        if steps is None:
            raise ProblemError(
                "occupancies by time are those of a model with horizon=T; this one has "
                f"{self.problem.space.horizon}"
            )
        return self.measured.reshape(steps, *self.problem.space.shape)

    def _present(self, value: Found | None, what: str) -> Found:
        if value is None:
            raise PolicyError(f"this solution has no {what}: {self.message}")
        return value

    @classmethod
    def of_policy(
        cls,
        problem: Problem,
        policy: Policy,
        status: Status,
        multipliers: Mapping[str, float],
        evaluation: Evaluation | None = None,
        fallback: bool = True,
        **details: Any,
    ) -> Solution:
        """The solution that belongs to a policy: everything else is computed from it, if it is not known.

        Where a table never comes, it gets a best response (``fallback``); a plan that is proven in models other
        than the problem's stays as it is.
        """
        found = problem.evaluate(policy) if evaluation is None else evaluation
        if problem.environment is None and isinstance(policy, TabularPolicy):
            if fallback and policy.fallback is None and type(policy) in PLAIN:
                known = details.get("evidence")
                ahead = None if known is None else known.values
                policy = with_fallback(problem, policy, found.occupancy, multipliers, ahead)
            policy = policy.named(problem.space.state_names, problem.space.action_names)
        details.setdefault("message", status.value)
        return cls(
            problem,
            status,
            found.objective,
            found.slack,
            dict(multipliers),
            policy,
            found.occupancy,
            **details,
        )

    @classmethod
    def without_policy(cls, problem: Problem, status: Status, **details: Any) -> Solution:
        """A solution that only says why there is none."""
        nothing = dict.fromkeys(problem.constraints, math.nan)
        infeasible = status is Status.INFEASIBLE
        details.setdefault("message", infeasible_message(problem) if infeasible else status.value)
        return cls(problem, status, math.nan, nothing, nothing, None, None, **details)

    def columns(self) -> dict[str, np.ndarray]:
        """A row per available state and action, by name, where the policy has a table.

        ``probability``, ``randomises`` and ``fallback`` are the policy's (``TabularPolicy.columns``). ``share``
        is the share of time in the state, ``occupancy`` that of the pair; ``value`` what follows from the
        state, in the objective's sign with constraints at their prices; ``advantage`` what taking this action
        once changes, at most zero but for rounding where the policy is optimal and comes; ``second_best_cost``
        what the second best action of the state gives away per visit. The last three are NaN under average
        reward in states out of reach, and large where entropies are ahead, which rise infinitely fast at zero.
        """
        return solution_columns(self)

    def to_pandas(self) -> Any:
        """A data frame with the rows of ``columns``."""
        return require("pandas", "report").DataFrame(self.columns())

    def gradient(self, of: str) -> Sensitivity:
        """How the best objective changes with a number of the problem, to first order.

        Args:
            of: "budget/NAME" for the budget of a constraint: a number; "signal/NAME" for a signal of the
                model: an array (S, A). The result has ``value`` and, where the optimum is not differentiable or
                not the only one, a ``statement``.
        """
        return sensitivity(self, of)

    def plot(self, path: str | None = None) -> Any:
        """A picture: the occupancy (on its grid, with the policy's arrows) and the constraints.

        Args:
            path: write the picture there instead of returning only the Matplotlib figure.
        """
        return plot_solution(self, path)

    def save(self, folder: str | Path) -> None:
        """Write the solution and its problem into a folder; ``load_solution`` reads it again.

        An environment is in no file: of a problem about one, the solution alone is written.
        """
        if self.problem.environment is None:
            write_problem(folder, self.problem)
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_solution(folder, self)

    def __str__(self) -> str:
        return solution_text(self)

    def __repr__(self) -> str:
        return f"Solution({self.status.name.lower()}, objective {self.objective:.8g})"

    def _repr_html_(self) -> str:
        return solution_html(self)


def load_solution(
    folder: str | Path,
    *,
    problem: Problem | None = None,
    functions: Mapping[str, Utility] | None = None,
) -> Solution:
    """The solution that ``Solution.save``, or a run with a ``folder=``, wrote, with its problem.

    Args:
        folder: where it is.
        problem: that it solves, where this is about an environment, which is in no file.
        functions: functions of your own by name; see ``load_problem``.
    """
    if problem is None:
        if (Path(folder) / SOLUTION).is_file() and not (Path(folder) / QUESTION).is_file():
            raise FileFormatError(
                f"{folder} holds a solution without its problem, as of an environment, which is in no file: "
                "give the problem, load_solution(folder, problem=problem)"
            )
        problem = load_problem(folder, functions=functions)
    found = read_solution(folder)
    status, x = found.pop("status"), found["occupancy_or_none"]
    named = set(problem.constraints)
    if (
        status not in Status.__members__
        or (x is not None and np.shape(x) != problem.shape)
        or not set(found["slack"]) == set(found["multipliers"]) == named
        or not set(found["slack_interval"]) <= named
    ):
        raise FileFormatError(f"the solution in {folder} is not one of the problem beside it")
    if found["policy_or_none"] is not None and problem.environment is None:
        as_policy(problem.mdp, found["policy_or_none"])
    if found["nearest"] is not None:
        found["nearest"] = Nearest(*found["nearest"])
    if (Path(folder) / ESTIMATE / QUESTION).is_file():
        found["stats"][MODEL] = load_problem(Path(folder) / ESTIMATE, functions=functions).mdp
    return Solution(problem, Status[status], **found)
