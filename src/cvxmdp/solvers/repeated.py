"""pessimism="auto": the same run from the same start, again with more or less pessimism, until one will do.

Theorem zero asks for g_i(x) >= delta_i, so that what the iterations miss of it is not missed of the constraint
itself. Its delta needs constants that are rarely known. But where the model is known, feasibility can be proven
afterwards, and so delta can be found (``ZeroViolation``). In an environment nothing can be certified, but fresh
episodes bound every slack from below (``ConfidentlyFeasible``). The state of the search is the try that is
under way and the one worth returning so far.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.base.saved_trees import Plain
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import Certifier
from cvxmdp.experience.environments.environment import environment_of, seeds
from cvxmdp.experience.evaluation import evaluate
from cvxmdp.experience.policy_evaluation import PolicyEvaluation
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work

STATUSES = list(Status)  # files have their places in this list
MOST_HALVINGS = 20  # to a millionth of what was enough at first
EPISODES = 1_000  # of each evaluation in an environment
CONFIDENCE = 0.95  # shared by the evaluations, of which the last one is believed
MOST_RUNS = 6


class Try(NamedTuple):
    """One run of the other solver."""

    pessimism: Any  # (n,)
    state: Any
    rows: Plain
    status: Any  # its place among ``STATUSES``; -1 while it is under way


class Tries(NamedTuple):
    """Between two pieces."""

    number: Any  # of the try that is under way, from 0
    current: Try
    kept: Try  # the answer if the search ends here; under way itself where there is none
    plain: Try  # the first one, without pessimism, once it has ended
    too_little: Any  # the largest pessimism known not to be enough, (n,)
    halvings: Any  # of the pessimism so far; -1 before one was enough
    over: Any


class Repeated(Work[Tries]):
    """Tries until one will do.

    Args:
        make: the work with a given pessimism (n,).
    """

    def __init__(self, make: Callable[[np.ndarray], Work[Any]], n: int) -> None:
        self.make, self.n = make, n
        self.inner = np.zeros(n), make(np.zeros(n))  # the work of the last pessimism
        work = self.inner[1]
        self.name, self.problem = work.name, work.problem
        self.grain, self.longest = work.grain, work.longest
        self.answered: tuple[Any, Solution] | None = None  # the last answer, and of which state

    def work(self, pessimism: np.ndarray) -> Work[Any]:
        """The work with this pessimism."""
        if not np.array_equal(self.inner[0], pessimism):
            self.inner = pessimism, self.make(pessimism)
        return self.inner[1]

    def answer(self, one: Try, status: Status) -> Solution:
        if self.answered is None or self.answered[0] is not one.state:
            found = self.work(one.pessimism).finish(one.state, one.rows, status)
            self.answered = one.state, found
        return self.answered[1]

    def another(self, pessimism: np.ndarray) -> Try:
        """A try that has not begun."""
        return Try(pessimism, self.work(pessimism).first(), Plain(), np.array(-1))

    def first(self) -> Tries:
        nothing = np.zeros(self.n)
        one = self.another(nothing)
        return Tries(np.array(0), one, one, one, nothing, np.array(-1), np.array(False))

    def where(self, state: Tries) -> tuple[int, int]:
        """In the try that is under way."""
        return self.work(state.current.pessimism).where(state.current.state)

    def mark(self, state: Tries) -> int:
        """In the try that is under way."""
        return self.work(state.current.pessimism).mark(state.current.state)

    def advance(self, state: Tries, until: int) -> tuple[Tries, Rows]:
        """Part of a try; at its end, the choice of the next one."""
        current = state.current
        work = self.work(current.pessimism)
        at_mark = until == work.mark(current.state)
        inner, rows = work.advance(current.state, until)
        current = current._replace(state=inner, rows=_joined(current.rows, rows))
        state = state._replace(current=current)
        ended = work.judge(inner).ended if at_mark else None
        done, total = work.where(inner)
        if ended is None and done < total:
            return state, {}
        status = ended or Status.ITERATION_LIMIT
        current = current._replace(status=np.array(STATUSES.index(status)))
        plain = state.plain if state.number else current
        state = state._replace(current=current, plain=plain)
        return self.concluded(state, self.answer(current, status)), {}

    @abstractmethod
    def concluded(self, state: Tries, solution: Solution) -> Tries:
        """After a try: over, or with the next one under way."""

    def following(self, state: Tries, pessimism: np.ndarray, **changes: Any) -> Tries:
        """With the next try under way."""
        number = np.array(int(state.number) + 1)
        return state._replace(number=number, current=self.another(pessimism), **changes)

    def judge(self, state: Tries) -> Judgement:
        """Which try it is, or how the one that is returned ended."""
        ended = STATUSES[int(state.kept.status)] if state.over else None
        return Judgement(f"try {int(state.number) + 1}", ended=ended)

    def finish(self, state: Tries, rows: Rows, status: Status) -> Solution:
        """The answer of the search, or of one that was stopped."""
        if state.over:
            return self.searched(state, self.answer(state.kept, status))
        begun = self.where(state)[0] > 0
        known = int(state.kept.status) >= 0
        if known and (not begun or int(state.halvings) >= 0):
            found = self.answer(state.kept, STATUSES[int(state.kept.status)])
            return self.stopped(replace(found, status=status, message=status.value))
        return self.stopped(
            self.work(state.current.pessimism).finish(
                state.current.state, state.current.rows, status
            )
        )

    @abstractmethod
    def searched(self, state: Tries, solution: Solution) -> Solution:
        """The answer with what the search says of it."""

    def stopped(self, solution: Solution) -> Solution:
        """The same of a search that was stopped."""
        return solution


def _joined(before: Plain, rows: Rows) -> Plain:
    if not before:
        return Plain(rows)
    return Plain({name: np.concatenate([before[name], rows[name]]) for name in rows})


class ZeroViolation(Repeated):
    """The smallest pessimism, up to a factor of 2, with which the answer is surely feasible; and its price.

    From zero up while it is too little, then down while half is enough. Every try is the same run from the same
    start, so ``PDPG(pessimism=...)`` with the value found gives the same answer, and with half of it one that
    is not proven feasible.

    Where even the largest pessimism that leaves a policy is not enough, the answer is mixed with the Slater
    point, as ``certify`` does it. So is that of the run without pessimism, and the better of the two is
    returned: where that run misses a constraint by little, mixing costs little.
    """

    def __init__(self, certifier: Certifier, make: Callable[[np.ndarray], Work[Any]]) -> None:
        self.certifier = certifier
        self.names = list(certifier.problem.constraints)
        super().__init__(make, len(self.names))

    @cached_property
    def limit(self) -> np.ndarray:
        """The largest pessimism that is tried, (n,)."""
        margins = self.certifier.slater().margins if self.names else {}
        return 0.9 * np.array([max(margins[name], 0.0) for name in self.names])

    def concluded(self, state: Tries, solution: Solution) -> Tries:
        """Raise the pessimism until the answer is surely feasible, then halve it while it still is."""
        short, pessimism = self._shortfall(solution), state.current.pessimism
        if state.halvings >= 0 and short.any():
            return state._replace(over=np.array(True))
        state = state._replace(kept=state.current)
        if short.any():
            # Violated constraints ask for at least what they missed, and for twice as much as last time.
            wanted = np.where(short > 0, np.maximum(2.0 * pessimism, short), pessimism)
            wanted = np.minimum(wanted, self.limit)
            if (wanted <= pessimism).all():
                return state._replace(over=np.array(True))
            return self.following(state, wanted, too_little=pessimism)
        halvings = np.array(max(int(state.halvings), 0) + 1)
        if halvings > MOST_HALVINGS or (0.5 * pessimism <= state.too_little).all():
            return state._replace(over=np.array(True))
        return self.following(state, 0.5 * pessimism, halvings=halvings)

    def searched(self, state: Tries, solution: Solution) -> Solution:
        """With the proof, and what feasibility costs."""
        if not solution.has_policy:
            return solution
        sign = self.problem.sign
        solution, certificate = self._repaired(solution)
        bound = certificate.bound
        if state.number and state.kept.state is not state.plain.state:
            status = STATUSES[int(state.plain.status)]
            plain, other = self._repaired(self.answer(state.plain, status))
            bound = (min if sign > 0 else max)(bound, other.bound)
            better = sign * (plain.objective - solution.objective) > 0
            if other.policy is not None and (better or certificate.policy is None):
                solution, certificate = plain, other
        price = sign * (bound - solution.objective)
        proven = certificate.policy is not None
        stats = {**solution.stats, "violation_proven_zero": proven, "price": price}
        message = f"{solution.message} {_note(proven, stats['pessimism'], price, bound)}"
        return replace(solution, stats=stats, message=message)

    def _repaired(self, solution: Solution) -> tuple[Solution, Certificate]:
        """The answer, mixed with the Slater point as far as it takes, and what is proven of it."""
        certificate = self.certifier.certify(solution, None)
        if certificate.repaired and certificate.policy is not None:
            solution = _take_repaired(solution, certificate)
        return solution, certificate

    def stopped(self, solution: Solution) -> Solution:
        proven = solution.has_policy and not self._shortfall(solution).any()
        return replace(solution, stats={**solution.stats, "violation_proven_zero": proven})

    def _shortfall(self, solution: Solution) -> np.ndarray:
        """What each constraint surely misses at most, (n,); zeros for a surely feasible policy."""
        if not solution.has_policy:
            return np.zeros(self.n)
        sure = self.certifier.claims.achieved(solution.policy.probabilities())
        return np.array([max(0.0, -sure.slack[name]) for name in self.names])


def _take_repaired(solution: Solution, certificate: Certificate) -> Solution:
    """Where pessimism alone was not enough: the mixture with the Slater point that surely is."""
    note = f" Made feasible by a share of {certificate.repair_share:.1e} of the Slater point."
    assert certificate.policy is not None
    return Solution.of_policy(
        solution.problem,
        certificate.policy,
        solution.status,
        solution.multipliers,
        history=solution.history,
        stats={**solution.stats, "repair_share": certificate.repair_share},
        message=solution.message + note,
    )


def _note(proven: bool, pessimism: dict[str, float], price: float, bound: float) -> str:
    if not proven:
        return "That it violates nothing could not be proven."
    largest = max(pessimism.values(), default=0.0)
    return (
        f"Proven: it violates no constraint. With a pessimism of at most {largest:.2g} its objective is at "
        f"most {price:.2g} from the best possible, which is at best {bound:.8g} (proven)."
    )


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
