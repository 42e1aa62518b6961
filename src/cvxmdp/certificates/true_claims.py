r"""What can be claimed about a problem in every model that may be the true one.

The upper bound: tangents and multipliers as ever, and V of the optimist, who chooses the model with the
policy. First with those that are best for the estimate, a true bound; then column generation with the
optimist as its oracle, whose limit is the best bound that the set allows, because the occupancies of all
policies in all models of the set are convex. The lower bounds of a policy: V of its worst models. Finding
is not trusted; what is claimed the checker computes (``policy_anywhere``, ``checked_models``).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.algorithms.columns.concave_master import ConcaveMaster
from cvxmdp.algorithms.columns.linear_master import Answer, LinearMaster
from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.algorithms.robust_finite import RobustFiniteFlow
from cvxmdp.algorithms.robust_flow import RobustFlow
from cvxmdp.base.errors import ProblemError
from cvxmdp.certificates.claims import Claims, Proof, best
from cvxmdp.certificates.evidence import by_program
from cvxmdp.certificates.words_on_truth import subject_of
from cvxmdp.checker.arithmetic import CertificateError, NotKnownError
from cvxmdp.checker.checked_finite_models import CheckedFiniteModels
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.policy_anywhere import policy_in
from cvxmdp.checker.true_problem import TrueProblem, true_problem
from cvxmdp.experience.confidence import (
    RelativeErrors,
    RowSets,
    confidence_balls,
    confidence_level,
)
from cvxmdp.models.counts import Counts
from cvxmdp.models.finite_flow import FiniteFlow
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.problems.lowered import Evidence, Lowered
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.uncertainty import Uncertainty, uncertainty_of

PROGRAM_ENTRIES = 100_000  # of the transition, up to which a conic program takes seconds
CALLS = 50  # of the optimist in one search, at most
PATIENCE = 8  # calls in a row without a better bound after which a search ends
BETTER = 1e-3  # of what the objective spans: what counts as better
# Of what the bounds span: distance to the best bound of the set at which a search ends.
CLOSE = 2e-3


class Reached(NamedTuple):
    """What a policy surely reaches in every model of a set; minus infinity where that is not known.

    Attributes:
        objective: f.
        slack: g_i by name.
        values: V of its worst models, in the order they were asked for: the evidence.
    """

    objective: float
    slack: dict[str, float]
    values: list[np.ndarray]

    @property
    def feasible(self) -> bool:
        return all(one >= 0 for one in self.slack.values())


class Pessimism(NamedTuple):
    """What a function of a policy's occupancy surely is, and why not more.

    Attributes:
        lower: it is at least this; minus infinity where that is not known.
        penalty: gamma (p^.V - min_p p.V) for V of the policy's worst model, and what estimated signals may lack
            in it, (S, A): what each pair adds to the difference between the estimate and that model.
    """

    lower: float
    penalty: np.ndarray


@dataclass(frozen=True, eq=False)
class TrueClaims(Claims):
    """Claims whose flow is a set of models, and whose lowered functions have signals as large as they may be.

    Attributes:
        confidence: with which the set holds the true model; of no account where errors are stated.
        counts: what was seen; None where errors are stated.
        estimate: the problem there, with all pairs that are available.
    """

    confidence: float = math.nan
    counts: Counts | None = None
    estimate: Uncertainty | None = None

    @classmethod
    def about(cls, problem: Problem, confidence: float) -> TrueClaims:
        """Of a problem whose model has counts, or a stated error."""
        uncertainty = uncertainty_of(problem)
        if uncertainty is None:
            raise ProblemError(
                "confidence is for models that carry their counts (from_transitions) or state their error "
                "(mdp.uncertain); this model is taken as known"
            )
        counts, lowered = problem.mdp.counts, Lowered(problem)
        plain = lowered.plain()
        try:
            checked = true_problem(plain, confidence)
        except CertificateError as error:
            raise ProblemError(f"nothing can be proven of the true model: {error}") from error
        ends, slacks = checked.flow.boxes, uncertainty.slacks
        hopeful = {name: one.hopeful(ends) for name, one in slacks.items()}
        lowered = lowered.with_objective(uncertainty.objective.hopeful(ends), hopeful)
        lowered.flow = _flow(problem, uncertainty, confidence, checked.flow.longest)
        return cls(lowered, checked, plain, confidence, counts, uncertainty)

    @property
    def data(self) -> str:
        """What statements rest on, in words."""
        assert isinstance(self.checked, TrueProblem)
        return self.checked.data

    @property
    def subject(self) -> str:
        """What statements are about."""
        return subject_of(math.nan if self.counts is None else self.confidence, self.data)

    @property
    def models(self) -> RobustFlow | RobustFiniteFlow:
        assert isinstance(self.lowered.flow, RobustFlow | RobustFiniteFlow)
        return self.lowered.flow

    @property
    def _set(self) -> CheckedModels | CheckedFiniteModels:
        assert isinstance(self.checked.flow, CheckedModels | CheckedFiniteModels)
        return self.checked.flow

    def matrix_of(self, given: Any) -> np.ndarray:
        """A policy's rows in the flow; it may take pairs that nobody tried."""
        assert self.estimate is not None
        return np.asarray(rows_of(self.estimate.model, given))

    def slack_of_estimate(self, policy: np.ndarray) -> dict[str, float]:
        """Of each constraint in the estimate, where pairs that nobody tried end at once."""
        assert self.estimate is not None
        x = self.models.occupancy(policy)
        return {name: float(slack.value(x)) for name, slack in self.estimate.slacks.items()}

    def reached(self, policy: np.ndarray) -> Reached:
        """What a policy, (S, A) probabilities, surely reaches, with the evidence."""
        values: list[np.ndarray] = []

        def find(rewards: np.ndarray) -> np.ndarray:
            values.append(self.models.worst_values(policy, rewards))
            return values[-1]

        anywhere = policy_in(self._set, policy, find)
        objective = anywhere.at_least(self.checked.objective)
        slack = {name: anywhere.at_least(form) for name, form in self.checked.slacks.items()}
        return Reached(objective, slack, values)

    def pessimism(self, policy: np.ndarray) -> list[Pessimism]:
        """What a policy surely reaches, of the objective and each slack, and which pairs keep it from more."""
        flow, estimate = self.models, self.estimate
        assert estimate is not None

        def find(rewards: np.ndarray) -> np.ndarray:
            return flow.worst_values(policy, rewards)

        anywhere = policy_in(self._set, policy, find)
        forms = (self.checked.objective, *self.checked.slacks.values())
        functions, found = (estimate.objective, *estimate.slacks.values()), []
        for form, function in zip(forms, functions, strict=True):
            penalty = np.zeros(flow.shape)
            with suppress(NotKnownError):
                least = form.chord(anywhere).reward
                slope = np.where(anywhere.taken, least, 0.0)
                values = find((anywhere.policy * slope).sum(axis=1)[None, :])[0]
                penalty = flow.penalty(values)
                affine = function.affine()
                if affine is not None:
                    lacking = np.where(np.isfinite(least) & flow.usable, affine.reward - least, 0.0)
                    penalty += np.maximum(lacking, 0.0)
            found.append(Pessimism(anywhere.at_least(form), penalty))
        return found

    def upper(self, evidence: Evidence | None, policy: np.ndarray | None = None) -> Proof | None:
        """The best proof of an upper bound: what is best for the estimate, then the best that the set allows.

        Args:
            evidence: of a solver on the estimate, or None.
            policy: a good one, to begin with.
        """
        first = None if evidence is None else self.prove_anew(evidence)
        first = self._of_estimate() if first is None else first
        found = best([first, self.by_optimist(first, policy)])
        if found is None:
            return None
        # Where little was seen, a multiplier costs more than its constraint is worth: also without.
        free = dict.fromkeys(self.slacks, 0.0)
        return best([found, self.prove_anew(Evidence(free, found.evidence.tangents))])

    def _of_estimate(self) -> Proof | None:
        """With what a conic program finds best for the estimate, where that is small."""
        return by_program(self) if self.models.transition.nnz <= PROGRAM_ENTRIES else None

    def prove_anew(self, evidence: Evidence) -> Proof | None:
        """With the optimist's values instead of the estimate's."""
        if set(evidence.multipliers) != set(self.slacks):
            return None
        try:
            return self.prove(Evidence(evidence.multipliers, evidence.tangents))
        except (LookupError, TypeError, ValueError):
            return None

    def by_optimist(
        self, known: Proof | None = None, policy: np.ndarray | None = None
    ) -> Proof | None:
        """Column generation with the optimist as the oracle.

        Args:
            known: the best proof so far.
            policy: a good one, to begin with.
        """
        search = OptimistSearch(self, math.inf if known is None else known.upper)
        starts = [one for one in (self.models.uniform, policy) if one is not None]
        for start in starts:
            search.add_policy(start)
        if not search.begun:
            return None
        for _ in range(CALLS):
            if search.step() <= CLOSE or search.idle == PATIENCE:
                break
        return None if search.proof is None else self.prove(search.proof)

    @cached_property
    def room(self) -> Proof | None:
        """That no policy has a smallest slack above some number, in any model of the set."""
        robust = self._smallest_slack
        first = robust._of_estimate()
        return best([first, robust.by_optimist(first)])

    def room_of(self, tangents: dict[str, Any], otherwise: Proof) -> Proof:
        """The same with other tangents, where they prove as much; else as it was."""
        found = self._smallest_slack.prove(Evidence({}, tangents))
        return found if found is not None and found.upper < 0 else otherwise

    @cached_property
    def _smallest_slack(self) -> TrueClaims:
        inner = self.smallest_slack()
        return TrueClaims(inner.lowered, inner.checked, None, self.confidence, self.counts)


def _flow(
    problem: Problem, uncertainty: Uncertainty, confidence: float, longest: float
) -> RobustFlow | RobustFiniteFlow:
    """The estimate with the sets of its rows; ``longest`` is no stay of any policy in any model."""
    flow, counts = uncertainty.model.flow, problem.mdp.counts
    starts: RowSets | None = None
    if counts is None:
        listed = flow.reached
        step = flow.single if isinstance(flow, FiniteFlow) else flow.transition
        sets: RowSets = RelativeErrors(_with_endings(step), problem.mdp.relative_error)
    else:
        listed = counts.listed
        bounded = [one for one in counts.signals.values() if one.bounds and not one.exact]
        count = int(counts.available.sum()) * (1 + len(bounded)) + (counts.initial is not None)
        level = confidence_level(confidence, count)
        possible = np.append(listed, True)
        sets = confidence_balls(counts.outcomes, level, possible, counts.supports)
        if counts.initial is not None:
            begun = sp.csr_array(np.append(counts.initial, 0)[None, :])
            starts = confidence_balls(begun, level, np.append(listed, False))
    listed, common = np.asarray(listed), (flow.transition, flow.initial, flow.actions)
    discount = uncertainty.model.discount
    if isinstance(flow, FiniteFlow):
        if listed.size < flow.shape[0]:
            listed = np.tile(listed, flow.steps)
        return RobustFiniteFlow(*common, discount, flow.steps, flow.single, sets, starts, listed)
    return RobustFlow(*common, discount, sets, starts, listed, longest)


def _with_endings(transition: sp.csr_array) -> sp.csr_array:
    ending = np.maximum(1.0 - np.asarray(transition.sum(axis=1)).ravel(), 0.0)
    ending = np.where(ending > 1e-12, ending, 0.0)
    return sp.csr_array(sp.hstack([transition, sp.csr_array(ending[:, None])]))


class OptimistSearch:
    """Mixtures of occupancies of policies in models of the set, and what the optimist adds to them.

    Args:
        claims: the problem.
        upper: a bound that is known already.

    Attributes:
        idle: calls in a row that made the bound no better.
        begun: there is a column to begin with.
    """

    def __init__(self, claims: TrueClaims, upper: float) -> None:
        self.claims, self.flow = claims, claims.models
        kind = LinearMaster if claims.lowered.affine else ConcaveMaster
        self.master: Any = kind(claims.lowered, 0.0)
        self.upper, self.lower, self.idle = upper, -math.inf, 0
        self.uniform = claims.uniform_value
        self.proof: Evidence | None = None
        self.values: np.ndarray | None = None
        self.begun = False

    def add_policy(self, policy: np.ndarray) -> None:
        """The occupancy of a policy in the estimate; nothing where the objective is infinite there."""
        x = self.flow.occupancy(policy)
        if math.isfinite(self.claims.lowered.objective.value(x)):
            self.master.add(Column(x.sum(axis=1), None, policy, 0.0))
            self.begun = True

    def step(self) -> float:
        """Ask the optimist at the best mixture; the distance that is left, of what the bounds span."""
        self.master.gap = self.upper - self.lower
        answer: Answer = self.master.solve()
        if not answer.feasible:
            return self._towards_feasible(answer)
        self.lower = max(self.lower, answer.value)
        price = self.master.price(answer)
        if not np.isfinite(price.reward[self.flow.usable]).all():
            return 0.0
        found = self.flow.optimum(price.reward, self.values)
        self.values = found.values
        better = self.upper - (found.upper + price.constant)
        self.idle = 0 if better > BETTER * self._size() else self.idle + 1
        if better > 0:
            self.upper = found.upper + price.constant
            named = self.claims.lowered.named(answer.multipliers)
            self.proof = Evidence(named, dict(answer.tangents), found.values)
        self.master.add(Column(found.visits, found.actions, None, 0.0))
        return (self.upper - self.lower) / self._size()

    def _size(self) -> float:
        """What the objective spans."""
        sizes = (self.upper, self.lower, self.upper - self.uniform, 1e-300)
        return max(abs(size) for size in sizes if math.isfinite(size))

    def _towards_feasible(self, answer: Answer) -> float:
        """No mixture is feasible yet: the optimist's best for the weighted slacks."""
        price = self.master.price(answer)
        found = self.flow.optimum(price.reward, None)
        self.master.add(Column(found.visits, found.actions, None, 0.0))
        return 0.0 if found.upper + price.constant < 0 else math.inf
