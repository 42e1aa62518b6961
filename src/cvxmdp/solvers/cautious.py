r"""Cautious plans: policies whose constraints surely hold in every model that may be the true one.

On the estimate, with an exact solver. For the objective and each slack u_i the plan's own pessimism is
known: V_i, its values in the worst model for the slope of u_i, and b_i = gamma (p^.V_i - min_p p.V_i), and what
estimated signals may lack: what each pair adds to the difference. Seen from the plan, u_i - <b_i, x> less a
remainder *is* what u_i surely reaches, so

1. solve, and prove what the plan reaches; the best plan that is proven feasible is kept;
2. solve again with u_i - <b_i, x> at least the remainder and a margin, which grows by 1.5 times what was
   missing and shrinks where there was too much; where that has no answer, with the largest smallest penalised
   slack. Also with margins and no penalties, which are those of one plan and not of the next;
3. go from the best proven plan towards the last unproven one, by bisection in occupancies, as far as is proven;
4. where nothing is proven, say which pairs would have to be tried: at the plan with the largest smallest slack
   e_i on the estimate, the pairs that make most of <b_i, x>, so many times as often that the plan would be
   proven if the same shares came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cvxmdp.atoms import Constraint, Utility, linear, minimum
from cvxmdp.atoms.utility import signal_names
from cvxmdp.base.errors import SettingsError
from cvxmdp.base.text_tables import number, several
from cvxmdp.certificates.true_claims import Pessimism, TrueClaims
from cvxmdp.experience.confidence import confidence_level
from cvxmdp.models.counts import Counts
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Solver, Task, Work, completed
from cvxmdp.solvers.whole import Whole

ROUNDS = 12
GROWTH = 1.5  # of a margin, in units of what was missing
SHRINKAGE = 0.8  # of a margin, in units of what was too much
AVERAGED = 3  # rounds after which penalties are averaged with those before
WORTHWHILE = 1e-3  # gain of a proven plan, relative, that another round is worth
BISECTIONS = 5
TIGHTENINGS = 3  # of the estimate's own plan
MOST_OF_IT = 0.9  # share of the pessimism that the named pairs make
NAMED = 8  # pairs that a message names
# How often pairs would have to be tried, as powers of what is lacking: pessimism shrinks like one over visits
# where it is about what was never seen, like one over their root where it is noise, and hardly at all at first
# where anything may happen.
POWERS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
MOST_TIMES = 1e6
SolveExactly = Callable[[Problem], Solution]


@dataclass(frozen=True)
class Cautious:
    """Another solver's answer, made so cautious that the constraints hold in reality with a confidence.

    Attributes:
        solver: an exact one, for the estimate.
        confidence: with which everything holds that is said of the true model.
    """

    solver: Solver
    confidence: float = 0.95
    needs_seed: ClassVar[bool] = False
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        confidence_level(self.confidence, 1)
        if self.solver.needs_seed:
            raise SettingsError(
                f"a cautious plan needs an exact solver, which plans on the estimate; {self.solver!r} samples. "
                "Leave solver= out, or give ConvexProgram() or ColumnGeneration()."
            )

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``."""
        task.problem.require_model("a cautious plan")
        claims = TrueClaims.about(task.problem, self.confidence)

        def call() -> Solution:
            return cautious_plan(
                claims,
                task.problem,
                lambda asked: completed(self.solver, replace(task, problem=asked)),
            )

        return Whole("a cautious plan", task.problem, call)


class ProvenPlan(NamedTuple):
    """A policy and what is known of it.

    Attributes:
        policy: probabilities (S, A).
        occupancy: in the estimate, (S, A).
        seen: what it surely reaches: of the objective, then of each slack.
    """

    policy: np.ndarray
    occupancy: np.ndarray
    seen: list[Pessimism]

    @property
    def proven(self) -> bool:
        return all(one.lower >= 0 for one in self.seen[1:])

    @property
    def worth(self) -> float:
        return self.seen[0].lower


def cautious_plan(claims: TrueClaims, problem: Problem, solve: SolveExactly) -> Solution:
    """The best plan that is proven feasible, or what would have to be tried for one.

    Args:
        claims: about every model that may be the true one.
        problem: on the estimate.
        solve: gives exact answers on the estimate.
    """
    search = _Search(claims, problem, solve)
    search.run()
    search.go_further()
    if search.tighten():
        search.go_further()
    return search.cannot() if search.best is None else search.answer()


def moved(margins: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Margins that have grown where slacks lacked something, and shrunk where there was too much."""
    change = np.where(lower < 0, -GROWTH * lower, -SHRINKAGE * lower)
    return np.asarray(np.maximum(margins + change, 0.0))


class _Search:
    def __init__(self, claims: TrueClaims, problem: Problem, solve: SolveExactly) -> None:
        self.claims, self.problem, self.solve = claims, problem, solve
        self.best: ProvenPlan | None = None
        self.unproven: ProvenPlan | None = None
        self.plain: ProvenPlan | None = None  # the estimate's own
        self.first: Solution | None = None  # of the estimate as it stands
        self.last: Solution | None = None
        self.rounds = 0

    def plan(self, policy: np.ndarray) -> ProvenPlan:
        return ProvenPlan(
            policy, self.problem.mdp.flow.occupancy(policy), self.claims.pessimism(policy)
        )

    def run(self) -> None:
        """Rounds of planning and proving."""
        found = self.first = self.solve(self.problem)
        penalties, margins = None, np.zeros(len(self.problem.constraints))
        for self.rounds in range(1, ROUNDS + 1):
            if not found.has_policy:
                return
            self.last = found
            plan = self.plan(rows_of(self.problem.mdp, found.policy))
            self.plain = self.plain or plan
            if self._take(plan):
                return
            fresh = [one.penalty for one in plan.seen]
            if penalties is not None and self.rounds > AVERAGED:
                fresh = [0.5 * (old + new) for old, new in zip(penalties, fresh, strict=True)]
            penalties = fresh
            needed = [
                float(f.value(plan.occupancy)) - float((b * plan.occupancy).sum()) - one.lower
                for f, b, one in zip(self.problem.functions, penalties, plan.seen, strict=True)
            ]
            if not np.isfinite(needed[1:]).all():
                return  # nothing is known of some constraint, whatever the plan
            lower = np.array([one.lower for one in plan.seen[1:]])
            if self.rounds > 1:  # the first plan knew no penalties: what it lacks, they may give
                margins = moved(margins, lower)
            found = self._solve_penalised(penalties, np.array(needed[1:]) + margins)

    def _take(self, plan: ProvenPlan) -> bool:
        """Keep what is best; whether more rounds are not worth it."""
        if not plan.proven:
            self.unproven = plan
            return False
        if self.best is None:
            self.best = plan
            return False
        gained, size = plan.worth - self.best.worth, max(abs(plan.worth), abs(self.best.worth))
        if gained > 0:
            self.best = plan
        return not gained > WORTHWHILE * size

    def _solve_penalised(self, penalties: list[np.ndarray], least: np.ndarray) -> Solution:
        """With u_i - <b_i, x>; where no policy satisfies that, the largest smallest penalised slack."""
        utility = self.problem.utility if self.problem.sign > 0 else -self.problem.utility
        slacks = self._slacks(penalties)
        asked = {
            name: Constraint(slack, ">=", float(one))
            for (name, slack), one in zip(slacks.items(), least, strict=True)
        }
        found = self.solve(self._problem(self._less(utility, penalties[0]), asked))
        if found.has_policy or not slacks:
            return found
        return self.solve(self._problem(minimum(*slacks.values()), {}))

    def _less(self, utility: Utility, penalty: np.ndarray) -> Utility:
        """Less what the worst model takes, by time where there is a horizon."""
        steps = self.problem.mdp.horizon.steps
        shaped = penalty if steps is None else penalty.reshape(steps, -1, penalty.shape[1])
        return utility - linear(shaped) if penalty.any() else utility

    def _slacks(self, penalties: list[np.ndarray]) -> dict[str, Utility]:
        pairs = zip(self.problem.constraints.items(), penalties[1:], strict=True)
        return {name: self._less(constraint.slack, b) for (name, constraint), b in pairs}

    def _problem(self, utility: Utility, constraints: dict[str, Constraint]) -> Problem:
        return Problem(self.problem.mdp, maximize=utility, subject_to=constraints)

    def tighten(self) -> bool:
        """Plans with more slack on the estimate and no penalties; whether one was worth a look.

        Penalties are those of one plan, and another plan may go where they are larger. Near what was played,
        margins alone are often better.
        """
        plan = self.plain
        if plan is None or plan.proven:
            return False
        nothing = [np.zeros_like(one.penalty) for one in plan.seen]
        margins, looked = np.zeros(len(plan.seen) - 1), False
        for _ in range(TIGHTENINGS):
            margins = moved(margins, np.array([one.lower for one in plan.seen[1:]]))
            if not np.isfinite(margins).all():
                break
            found = self._solve_penalised(nothing, margins)
            if not found.has_policy:
                break
            plan = self.plan(rows_of(self.problem.mdp, found.policy))
            if not plan.proven and self.best is not None and plan.worth <= self.best.worth:
                break  # with larger margins it is worth even less
            self._take(plan)
            looked = True
        return looked

    def go_further(self) -> None:
        """From the best proven plan towards an unproven one that promises more, as far as is proven."""
        if self.unproven is None or self.best is None:
            return
        near, far = 0.0, 1.0
        proven, other = self.best, self.unproven.occupancy
        for _ in range(BISECTIONS):
            share = 0.5 * (near + far)
            x = (1.0 - share) * proven.occupancy + share * other
            plan = self.plan(self.problem.mdp.flow.policy(x))
            if plan.proven and plan.worth > self.best.worth:
                self.best, near = plan, share
            else:
                far = share

    def answer(self) -> Solution:
        assert self.best is not None
        reaches = self.problem.sign * self.best.worth
        side = "at least" if self.problem.sign > 0 else "at most"
        known = f"and the objective is {side} {number(reaches)}" if math.isfinite(reaches) else ""
        holds = "every constraint holds" if self.problem.constraints else "the plan may be played"
        message = f"{self.claims.subject}: {holds} {known}".rstrip() + "."
        return self._solution(self.best.policy, Status.CAUTIOUS, message, proven=True)

    def _solution(
        self, policy: np.ndarray, status: Status, message: str, proven: bool, **more: Any
    ) -> Solution:
        last = self.last
        known = {} if last is None else dict(last.multipliers)
        multipliers = {name: known.get(name, 0.0) for name in self.problem.constraints}
        stats = {"solver": "cautious plan", "rounds": self.rounds, "proven": proven, **more}
        evidence = None if self.first is None else self.first.evidence
        return Solution.of_policy(
            self.problem,
            self.claims.policy(policy),
            status,
            multipliers,
            stats=stats,
            message=message,
            evidence=evidence,
            fallback=False,  # other models may lead where this one never does
        )

    def cannot(self) -> Solution:
        """The plan with the most room on the estimate, and which pairs would have to be tried."""
        assert self.first is not None
        if not self.problem.constraints or not self.first.has_policy:
            return self.first
        slacks = [constraint.slack for constraint in self.problem.constraints.values()]
        found = self.solve(self._problem(minimum(*slacks), {}))
        if not found.has_policy:
            return self.first
        plan = self.plan(rows_of(self.problem.mdp, found.policy))
        wanted, words = self._wanted(plan)
        message = (
            f"{self.claims.subject}: no plan could be proven to satisfy every constraint. {words}"
        )
        return self._solution(plan.policy, Status.INACCURATE, message, proven=False, wanted=wanted)

    def _wanted(self, plan: ProvenPlan) -> tuple[list[dict[str, Any]], str]:
        """Pairs that make most of the pessimism, and roughly how often they would have to be tried."""
        mdp = self.problem.mdp
        slack = self.problem.evaluate_occupancy(plan.occupancy).slack
        lacking = np.ones(mdp.n_states * mdp.n_actions)
        for (name, room), one in zip(slack.items(), plan.seen[1:], strict=True):
            if room <= 0:
                return [], f"On the estimate {name!r} has no room either: {number(room)} at most."
            weights = (one.penalty * plan.occupancy).reshape(-1, lacking.size).sum(axis=0)
            price = max(float(weights.sum()), room - one.lower)
            if one.lower >= 0 or not weights.sum() > 0:
                continue
            order = np.argsort(-weights)
            # What the others make must leave room.
            most = max(MOST_OF_IT, 1.0 - 0.5 * room / price) * weights.sum()
            named = order[: int(np.searchsorted(np.cumsum(weights[order]), most)) + 1]
            lacking[named] = np.maximum(lacking[named], price / room)
        counts = self.claims.counts
        if counts is not None and not all(math.isfinite(one.lower) for one in plan.seen[1:]):
            return [], self._unbounded(counts)
        if counts is None or not (lacking > 1).any():
            return [], "The models allowed differ too much for that."
        visits, factors = counts.visits.ravel(), self._often_enough(plan, lacking)
        if factors is None:
            return [], f"More of the same would not prove it.{self._nobody_left(counts)}"
        listed = [
            {
                "state": mdp.state_label(pair // mdp.n_actions),
                "action": mdp.action_label(pair % mdp.n_actions),
                "visits": int(visits[pair]),
                "wanted": int(factors[pair]) * max(int(visits[pair]), 1),
            }
            for pair in np.argsort(-factors, kind="stable")[: (lacking > 1).sum()]
        ]
        shown = [f"({p['state']}, {p['action']}) {p['wanted']:,} times" for p in listed[:NAMED]]
        more = f" and {several(len(listed) - NAMED, 'more pair')}" if len(listed) > NAMED else ""
        begun = None if counts.initial is None else int(factors.max()) * int(counts.initial.sum())
        often = "" if begun is None else f", in {begun:,} episodes"
        return listed, f"Roughly, these would have to be tried: {'; '.join(shown)}{more}{often}."

    def _unbounded(self, counts: Counts) -> str:
        """Why nothing at all is known of a constraint: a signal that may be anything where nobody looked."""
        read = {
            name for one in self.problem.constraints.values() for name in signal_names(one.slack)
        }
        free = [name for name, one in counts.signals.items() if name in read and one.bounds is None]
        ranges = ", ".join(f"{name!r}: (least, largest)" for name in free)
        partly = all(counts.signals[name].exact for name in free)
        where = " in pairs that nobody tried" if partly else ""
        told = f"Of {', '.join(map(repr, free))} nothing is known{where}: give bounds={{{ranges}}}."
        return f"{told if free else 'Of a constraint nothing is known.'}{self._nobody_left(counts)}"

    def _nobody_left(self, counts: Counts) -> str:
        """That states are unknown, where some are."""
        unknown = np.flatnonzero(counts.unknown).tolist()
        states = [self.problem.mdp.state_label(state) for state in unknown]
        if not states:
            return ""
        named = f"{states[0]!r}{f' and {len(states) - 1:,} more' if len(states) > 1 else ''}"
        return (
            f" Nobody left the state {named}, so what follows may be anything: try what can be done there, or "
            'say that it is an end, unknown="end".'
        )

    def _often_enough(self, plan: ProvenPlan, lacking: np.ndarray) -> np.ndarray | None:
        """How many times as often each pair would have to be tried for the plan to be proven; None for never.

        Args:
            plan: the one with the most room.
            lacking: how many times what there is room for is missing, by pair.
        """
        counts, mdp = self.claims.counts, self.problem.mdp
        assert counts is not None
        for power in POWERS:
            factors = np.ceil(np.minimum(lacking**power, MOST_TIMES)).astype(np.int64)
            seen = mdp.replace(counts=counts.repeated(factors.reshape(counts.available.shape)))
            more = TrueClaims.about(self.problem.with_model(seen), self.claims.confidence)
            if more.reached(plan.policy).feasible:
                return factors
        return None
