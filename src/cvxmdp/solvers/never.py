r"""Never: budgets of zero for what costs nothing or something (``linear(c) <= 0`` with c >= 0).

Such a constraint has no interior: no Slater point, no bound on the multipliers, no mixture that keeps it unless
every part does. But it says plainly which pairs are forbidden: those that cost, and those that may lead to a
state which has nothing else. Without them the constraint always holds and is left out; what is left is a
problem like any other. Its answer is an answer to the problem as written, and so is its proof, with a
multiplier that makes every forbidden pair not worth taking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.claims import ENOUGH, Claims, Proof
from cvxmdp.certificates.measured import measure
from cvxmdp.models.flow import Flow
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.policies.tables import table_of
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Nearest, Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work
from cvxmdp.solvers.start import given_start

PENALTIES = (1.0, 1e2, 1e4, 1e6)  # in units of what the objective can gain per unit of cost


@dataclass(frozen=True)
class Never:
    """A problem, and the same without forbidden pairs.

    Attributes:
        problem: as written.
        restricted: without forbidden pairs, and without the constraints that forbid them.
        names: of those constraints.
    """

    problem: Problem
    restricted: Problem
    names: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> Never | None:
        """None where nothing is forbidden outright, or everything is."""
        flow = problem.mdp.flow
        if problem.space.horizon.steps is not None:
            return None  # what is forbidden may depend on time, and a model's actions do not
        forbidden, names = np.zeros(flow.shape, dtype=bool), []
        for name, slack in problem.slack_functions.items():
            part = slack.affine()
            if part is None or part.offset != 0 or (part.reward[flow.usable] > 0).any():
                continue
            costs = (part.reward < 0) & flow.usable
            if costs.any():
                forbidden |= costs
                names.append(name)
        allowed = _allowed(flow, forbidden) if names else None
        if allowed is None:
            return None
        others = {name: one for name, one in problem.constraints.items() if name not in names}
        try:
            model = problem.mdp.replace(actions=allowed)
            return cls(
                problem,
                Problem(model, **{problem.sense: problem.utility}, subject_to=others),
                tuple(names),
            )
        except CvxmdpError:  # a target of the problem takes forbidden actions, for example
            return None

    def task(self, task: Task) -> Task:
        """The task of the restricted problem; of a start, what is allowed of its policy is kept."""
        start = given_start(self.problem, task.start)
        if start is not None:
            table = as_policy(self.problem.mdp, start).probabilities()
            kept = np.where(self.restricted.mdp.actions, table, 0.0)
            rows = kept.sum(axis=1, keepdims=True)
            start = np.where(rows > 0, kept / np.where(rows > 0, rows, 1.0), self._uniform)
        return replace(task, problem=self.restricted, start=start)

    @property
    def _uniform(self) -> np.ndarray:
        return self.restricted.mdp.flow.uniform

    def lifted(self, found: Solution) -> Solution:
        """The answer to the problem as written, measured there."""
        message = f"{found.message}{self._sentence}"
        if not found.has_policy:
            return replace(
                Solution.without_policy(self.problem, found.status),
                message=message,
                stats=found.stats,
                history=found.history,
                nearest=self._nearest(found),
            )
        policy, table, status = found.policy, table_of(found.policy), found.status
        certifier = Certifier(self.problem)
        proof = self._proof(certifier.claims, found)
        multipliers = {**dict.fromkeys(self.names, math.nan), **found.multipliers}
        if proof is not None:
            multipliers |= {name: proof.evidence.multipliers[name] for name in self.names}
        if status is Status.OPTIMAL and table is not None:
            measured = measure(certifier, table, None if proof is None else proof.evidence)
            policy = policy if measured.policy is table else TabularPolicy(measured.policy)
            least = max(ENOUGH, 1.1 * float(found.stats.get("certified_gap", 0.0)))
            if measured.gap > least:
                status, message = Status.INACCURATE, f"{Status.INACCURATE.value} {message}"
        return Solution.of_policy(
            self.problem,
            policy,
            status,
            {name: multipliers[name] for name in self.problem.constraints},
            stats=found.stats,
            history=found.history,
            message=message,
            evidence=None if proof is None else proof.evidence,
        )

    def _nearest(self, found: Solution) -> Nearest | None:
        if found.nearest is None:
            return None
        policy = found.nearest.policy
        return Nearest(policy, self.problem.evaluate(policy).slack)

    @property
    def _sentence(self) -> str:
        names = " and ".join(repr(name) for name in self.names)
        pairs = int(self.problem.mdp.flow.usable.sum() - self.restricted.mdp.flow.usable.sum())
        return f" Kept without exception: {names}, which {pairs:,} pairs of state and action would break."

    def _proof(self, claims: Claims, found: Solution) -> Proof | None:
        """The bound of the restricted problem's evidence, with multipliers that keep forbidden pairs out."""
        known = found.evidence or self._found_again(found)
        if known is None or known.infeasible:
            return None
        rewards = {name: claims.slacks[name].affine() for name in self.names}
        costs = np.zeros(claims.flow.shape)
        for part in rewards.values():
            assert part is not None
            costs -= part.reward
        least = float(costs[(costs > 0) & claims.flow.usable].min())
        nowhere = np.zeros(claims.flow.shape)
        slacks = {
            name: known.tangents["slacks"].get(name) or claims.slacks[name].at(nowhere)
            for name in claims.slacks
        }
        tangents = {"objective": known.tangents["objective"], "slacks": slacks}
        zero = {**dict.fromkeys(self.names, 0.0), **known.multipliers}
        reward, _ = claims.lowered.lagrangian_tangent(zero, tangents)
        gain = float(np.abs(reward[claims.flow.usable]).max()) * claims.flow.mass or 1.0
        best: Proof | None = None
        for penalty in PENALTIES:
            kept = {**zero, **dict.fromkeys(self.names, penalty * gain / least)}
            proof = claims.prove(Evidence(kept, tangents, None, known.policy))
            if proof is None or (best is not None and proof.upper >= best.upper):
                break
            best = proof
        return best

    def _found_again(self, found: Solution) -> Evidence | None:
        """Of a solver whose multipliers say it all."""
        proof = Certifier(self.restricted).upper(found)
        return None if proof is None else proof.evidence


def _allowed(flow: Flow, forbidden: np.ndarray) -> np.ndarray | None:
    """Pairs after which the forbidden can be avoided for ever, (S, A); None where a start cannot."""
    allowed = flow.actions & ~forbidden
    successors = flow.transition.copy()
    successors.data = (successors.data > 0).astype(np.float64)
    while True:
        dead = ~allowed.any(axis=1)
        if (flow.initial[dead] > 0).any():
            return None
        into = (successors @ dead.astype(np.float64)).reshape(flow.shape) > 0
        if not (allowed & into).any():
            break
        allowed &= ~into
    # No policy gets to a dead state any more; a model wants some action everywhere.
    return np.where(dead[:, None], flow.actions, allowed)


class NeverWork(Work[Any]):
    """Work on the restricted problem that answers the problem as written."""

    def __init__(self, never: Never, work: Work[Any]) -> None:
        self.never, self.work = never, work
        self.problem, self.name = never.problem, work.name
        self.grain, self.longest = work.grain, work.longest

    def first(self) -> Any:
        return self.work.first()

    def where(self, state: Any) -> tuple[int, int]:
        return self.work.where(state)

    def mark(self, state: Any) -> int:
        return self.work.mark(state)

    def advance(self, state: Any, until: int) -> tuple[Any, Rows]:
        return self.work.advance(state, until)

    def judge(self, state: Any) -> Judgement:
        return self.work.judge(state)

    def finish(self, state: Any, rows: Rows, status: Status) -> Solution:
        return self.never.lifted(self.work.finish(state, rows, status))


def without_forbidden(task: Task, prepare: Callable[[Task], Work[Any]]) -> Work[Any]:
    """The work on a task, without what its constraints forbid outright."""
    never = Never.of(task.problem)
    return prepare(task) if never is None else NeverWork(never, prepare(never.task(task)))
