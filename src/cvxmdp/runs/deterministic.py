"""deterministic(problem): a good policy that never draws lots, and how far it is from what is proven of all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cvxmdp.algorithms.deterministic_search import (
    Candidate,
    DeterministicSearch,
    branch_and_bound,
)
from cvxmdp.base.errors import ProblemError, SettingsError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import from_rows
from cvxmdp.problems.lowered import Evidence, Lowered
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.problems.solution_text import said_of_model
from cvxmdp.runs.solving import read_seconds, solve_among_many

SMALL = 120  # pairs up to which branch and bound is tried
CLOSE = 1e-6  # relative gap below which nothing is left to search for
UNDERFLOW = 1e-290
PATIENCE = 5.0  # seconds of branch and bound


@dataclass(frozen=True, eq=False)
class Deterministic(InNotebooks):
    """A deterministic policy and what is known of it.

    Attributes:
        solution: the policy with its objective and slack; ``solution.has_policy`` is False where the problem
            has no feasible policy at all.
        relaxed: the optimum over all policies, which may randomise.
        certificate: what is proven of the model as it stands: the bound on every policy, and of this policy
            where it surely satisfies all constraints. None where there is no policy.
        feasible: whether it satisfies every constraint there.
        found_by: how it was found.
        branched: what branch and bound says; empty where it was not asked.
    """

    solution: Solution
    relaxed: Solution
    certificate: Certificate | None
    feasible: bool
    found_by: str
    branched: str

    @property
    def policy(self) -> TabularPolicy:
        """The policy, probabilities of zero and one."""
        found = self.solution.policy
        assert isinstance(found, TabularPolicy)
        return found

    @property
    def objective(self) -> float:
        """Its objective, in the user's sign."""
        return self.solution.objective

    @property
    def bound(self) -> float:
        """Proven: no policy that satisfies the constraints, randomised or not, is better."""
        return math.nan if self.certificate is None else self.certificate.bound

    @property
    def gap(self) -> float:
        """How far the objective is from the bound; negative where the policy violates and gains by it."""
        return self.solution.problem.sign * (self.bound - self.objective)

    @property
    def relative_gap(self) -> float:
        """The same relative to the objective's size, as the certificate has it."""
        if self.certificate is None or abs(self.gap) < UNDERFLOW:
            return 0.0 if self.certificate else math.nan
        return self.gap / self.certificate.size

    @property
    def statement(self) -> str:
        """All of it in a few sentences."""
        if not self.solution.has_policy:
            return f"There is no policy at all. {self.relaxed.message}"
        said = [self._feasibility()]
        if self.feasible:
            better = "below" if self.solution.problem.sign < 0 else "above"
            said.append(
                f"Objective {number(self.objective)}; no policy, randomised or not, is {better} "
                f"{number(self.bound)} (proven): {100.0 * max(self.relative_gap, 0.0):.2g}% away."
            )
        said.append(f"Found by {self.found_by}.")
        text = " ".join([*said, *([self.branched] if self.branched else [])])
        mdp = self.solution.problem.mdp
        if mdp.counts is None and not mdp.relative_error:
            return text
        return (
            f"Of the model as it stands: {said_of_model(text, mdp.note)} certify(problem, policy) says what "
            "holds of the true one."
        )

    def _feasibility(self) -> str:
        if self.feasible:
            return "Deterministic, and every constraint holds."
        missed = {name: size for name, size in self.solution.violation.items() if size > 0}
        listed = ", ".join(f"{name!r} by {number(size)}" for name, size in missed.items())
        return f"No deterministic policy was found that satisfies all constraints; this one misses {listed}."

    def __str__(self) -> str:
        _, _, tables = str(self.solution).partition("\n\n")  # the status is in the statement
        return f"{self.statement}\n\n{tables}" if self.solution.has_policy else self.statement

    def __repr__(self) -> str:
        return f"Deterministic({self.statement})"


def deterministic(
    problem: Problem, *, branch: bool | None = None, time_limit: float = PATIENCE
) -> Deterministic:
    """A good deterministic policy, for those who cannot randomise, with its distance to the proven bound.

    The best policy of a constrained problem randomises. Without that, the problem is hard: this searches from
    the optimum (rounding, columns, local search), and on small affine problems asks branch and bound. What is
    proven is the bound on all policies; that no deterministic one is better is said where HiGHS says so.

    Args:
        problem: about a model.
        branch: ask branch and bound; by default where there are at most 120 pairs and something is left open.
            Only affine problems can be asked.
        time_limit: seconds for branch and bound.
    """
    require_problem(problem, "deterministic(problem)")
    problem.require_model("a search for deterministic policies")
    seconds = read_seconds(time_limit)
    lowered = Lowered(problem)
    if branch and not lowered.affine:
        raise SettingsError("branch=True is for problems with linear objective and constraints")
    relaxed = solve_among_many(problem, progress=False)
    if not relaxed.has_policy:
        return Deterministic(relaxed, relaxed, None, False, "", "")
    evidence = relaxed.evidence or Evidence(
        dict(relaxed.multipliers), lowered.tangents_at(relaxed.measured)
    )
    search = DeterministicSearch(lowered, evidence, relaxed.measured)
    best = search.search()
    if best is None:
        raise ProblemError(
            "no deterministic policy of this model could be evaluated: all stay for ever"
        )
    bound = float(problem.sign * relaxed.objective)
    open_still = best.violation > 0 or bound - best.objective > CLOSE * max(abs(bound), 1e-300)
    small = int(lowered.flow.usable.sum()) <= SMALL
    said = ""
    if (branch or (branch is None and small and lowered.affine)) and open_still:
        best, said = _branched(search, best, seconds)
    return _judged(problem, relaxed, best, said)


def _branched(
    search: DeterministicSearch, best: Candidate, seconds: float
) -> tuple[Candidate, str]:
    found = branch_and_bound(search.lowered, seconds)
    if found.actions is not None:
        search.evaluate([found.actions], "branch and bound")
        best = search.best or best
    if not found.finished:
        return best, f"Branch and bound (HiGHS) was not done after {seconds:g} s."
    if found.actions is None:
        return best, "Branch and bound (HiGHS) says that no deterministic policy is feasible."
    return best, "Branch and bound (HiGHS) says that no deterministic policy is better."


def _judged(problem: Problem, relaxed: Solution, best: Candidate, said: str) -> Deterministic:
    rows = np.eye(problem.mdp.flow.shape[1])[best.actions]
    policy = from_rows(rows, problem.mdp)
    solution = Solution.of_policy(
        problem,
        policy,
        Status.ITERATION_LIMIT,
        relaxed.multipliers,
        evidence=relaxed.evidence,
        stats={"solver": "deterministic", "found by": best.found_by},
        message="the best deterministic policy that was found; a randomised one may be better.",
    )
    certificate = certify(problem, solution, confidence=None)
    if certificate.relative_gap <= CLOSE and best.violation == 0:
        # The status is about the problem, whose policies may randomise: none of them is better.
        solution = replace(solution, status=Status.OPTIMAL)
    return Deterministic(solution, relaxed, certificate, best.violation == 0, best.found_by, said)
