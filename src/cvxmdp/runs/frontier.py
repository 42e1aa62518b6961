r"""The budget frontier: the best objective as a function of one budget, with proven envelopes.

Let v(b) be the best objective with budget b. It is concave in b (convex when minimising), and every
proof at a budget b_k with multiplier mu_k is a line that bounds v *everywhere*: the Lagrangian with
budget b instead of b_k differs by mu_k (b - b_k). Every certified policy at b_k is a point below v, and
mixtures of two policies reach the chord between their points. So few solves give two envelopes,

    max of chords  <=  v(b)  <=  min of lines,

between the budgets that were solved. Those are spread along the curve, by what they cost and what they buy:
the next one halves the longest piece, in shares of all that budget and objective can change, with what the
envelopes leave open counted as length. The budget that the problem was asked with is always one of them.

The slack of a *share* of the steps taken, <b - c, x>, rises with the budget by the steps taken, m = <1, x>, in
which policies differ. There v is not concave. But with m between m_0 (the first step is always taken) and W
(the longest stay), a proof's line rises by mu W to the right and falls by mu m_0 to the left. Of two policies
with m_l and m_r steps, the mixture with t of the second one is within the budget where

    (1 - t) m_l (b - b_l)  >=  t m_r (b_r - b).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.atoms import Utility
from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number, text_table
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.words_on_truth import subject_of
from cvxmdp.policies.occupancies import measured_occupancy
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.solution import Solution
from cvxmdp.runs.backends.backend import Answers, Backend
from cvxmdp.runs.backends.this_process import ThisProcess
from cvxmdp.runs.frontier_figures import plot_frontier
from cvxmdp.runs.solving import solve_among_many

FREE_GAP = 1e-5  # of what the budget matters: the gap up to which a constraint is said not to bind
CONFIDENCE = 0.95  # of statements about the true model
NEAR = 1e-2  # of the width of a frontier: an end this near to the user's own budget is not solved besides
STEPS = 20  # places between two solved budgets that are looked at
MOST = 0.9  # of what a budget can buy: the least budget that does is named
STEPS_ROUNDING = 1e-9  # of the steps taken, far above what their computation is off by
ROUNDING = 1e-9  # of what is large in a problem: what solvers cannot tell from zero


@dataclass(frozen=True)
class FrontierPoint:
    """One budget that was solved and certified."""

    budget: float
    solution: Solution
    certificate: Certificate


@dataclass(frozen=True)
class Frontier(InNotebooks):
    """The best objective as a function of a budget.

    Attributes:
        problem: whose budget is varied.
        constraint: the name of the constraint.
        points: the budgets that were solved, in order; infeasible ones included.
        infeasible_until: proven: on this side of the axis no policy satisfies all constraints
            (for <= budgets below it, for >= above it). Infinite if no such budget was met.
        feasible_from: proven: at this budget some policy satisfies all constraints.
        free_from: proven: from this budget on (away from the infeasible side) the constraint does not
            matter any more, up to ``free_gap``.
        free_gap: the certified gap of that statement.
    """

    problem: Problem
    constraint: str
    points: tuple[FrontierPoint, ...]
    infeasible_until: float
    feasible_from: float
    free_from: float
    free_gap: float

    def envelope(self, budget: float) -> tuple[float, float]:
        """Proven bounds on the best objective at any budget, in the user's sign.

        Returns:
            (lower, upper); minus infinity (when maximising) where no policy is known to be feasible,
            and NaN where it is proven that none is.
        """
        direction = self._direction
        if direction * budget < direction * self.infeasible_until:
            return math.nan, math.nan
        sign = self.problem.sign
        floor = _chords(*self._reached(), direction * budget)
        ceiling = min((line(direction * budget) for line in self._lines()), default=math.inf)
        return (floor, ceiling) if sign > 0 else (-ceiling, -floor)

    @property
    def _direction(self) -> float:
        """1 where a larger budget allows more, else -1; direction * budget always helps."""
        return 1.0 if self.problem.constraints[self.constraint].sense == "<=" else -1.0

    @cached_property
    def _steps(self) -> tuple[float, float]:
        """How much a unit of budget changes a slack, for any policy: at least, and at most."""
        if not self.problem.constraints[self.constraint].utility.bends_in_budget:
            return 1.0, 1.0
        flow = self.problem.mdp.flow
        least = flow.mass if flow.endless else float(flow.initial.sum())
        return least * (1 - STEPS_ROUNDING), flow.mass * (1 + STEPS_ROUNDING)

    def _steps_taken(self, policy: Any) -> tuple[float, float]:
        """The same for one policy."""
        least, most = self._steps
        if least == most:
            return least, most
        taken = float(measured_occupancy(self.problem.mdp, policy).sum())
        return max(least, taken * (1 - STEPS_ROUNDING)), min(most, taken * (1 + STEPS_ROUNDING))

    def _reached(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = [
            (
                self._direction * point.budget,
                _floor(self.problem, point.certificate),
                *self._steps_taken(point.certificate.policy),
            )
            for point in self.points
            if point.certificate.feasible
        ]
        points = np.array(sorted(found)).reshape(-1, 4)
        return points[:, 0], points[:, 1], points[:, 2:]

    def _lines(self) -> list[Any]:
        lines = []
        least, most = self._steps
        for point in self.points:
            if point.certificate.infeasible or not point.certificate.multipliers:
                continue
            slope = point.certificate.multipliers[self.constraint]
            ceiling = self.problem.sign * point.certificate.bound
            at = self._direction * point.budget
            lines.append(
                lambda b, c=ceiling, m=slope, a=at: c + m * (b - a) * (most if b > a else least)
            )
        return lines

    @property
    def step(self) -> float:
        """The change of the budget that prices are of: a round number, up to a tenth of the problem's own.

        Where that is zero or far outside of what was solved, of the range of budgets.
        """
        budgets = [point.budget for point in self.points]
        width = max(budgets) - min(budgets)
        own = abs(self.problem.budgets[self.constraint])
        size = own if width / 100.0 <= own <= 100.0 * width or width == 0 else width
        size = size if size > 0 and math.isfinite(size) else 1.0
        power = float(f"1e{math.floor(math.log10(size / 10.0))}")
        return max(power * leading for leading in (1.0, 2.0, 5.0) if power * leading <= size / 9.99)

    def worth(self, certificate: Certificate) -> float:
        """Proven: what a ``step`` of the budget improves at most. Of a share, each step taken gains as much."""
        return certificate.worth(self.constraint, self.step * self._steps[1])

    def enough(self) -> tuple[float, float] | None:
        """The tightest solved budget that buys most of what can be bought, and the share; None where all do."""
        at, value, _ = self._reached()
        if at.size < 2 or not value[-1] > value[0]:
            return None
        shares = (value - value[0]) / (value.max() - value[0])
        first = int(np.argmax(shares >= MOST))
        return self._direction * float(at[first]) + 0.0, float(shares[first])

    def rows(self) -> list[tuple[str, ...]]:
        """The solved budgets as cells: budget, lower, upper, price of a ``step``, state."""
        table: list[tuple[str, ...]] = []
        for point in self.points:
            certificate = point.certificate
            if certificate.infeasible:
                table.append((number(point.budget), "-", "-", "-", "infeasible (proven)"))
                continue
            free = self._direction * point.budget >= self._direction * self.free_from
            table.append(
                (
                    number(point.budget),
                    number(certificate.lower),
                    number(certificate.upper),
                    number(self.worth(certificate)),
                    # Of the true model it is not known whether another policy would need it.
                    "not binding" if free else "binding" if certificate.confidence is None else "",
                )
            )
        return table

    def __str__(self) -> str:
        constraint = self.problem.constraints[self.constraint]
        lines = [
            f"{self.problem.sense} {self.problem.utility!r} as a function of the budget of "
            f"{self.constraint!r}: {constraint.utility!r} {constraint.sense} budget",
            "",
        ]
        about = self.points[0].certificate
        if about.confidence is not None:
            lines.insert(1, f"{subject_of(about.confidence, about.data)}:")
        header = (
            "budget",
            "objective, lower",
            "upper",
            f"{self.step:g} {'more' if self._direction > 0 else 'less'} is worth at most",
            "",
        )
        lines += [line.rstrip() for line in text_table(header, self.rows())]
        less = "below" if self._direction > 0 else "above"
        lines.append("")
        if math.isfinite(self.infeasible_until):
            lines.append(f"Infeasible {less} {self._least_budget()} (proven).")
        if math.isfinite(self.free_from):
            more = "above" if self._direction > 0 else "below"
            lines.append(
                f"Not binding {more} {number(self.free_from)}, up to {self.free_gap:.1g} (proven)."
            )
        enough = self.enough()
        if enough is not None and enough[1] < 1:
            lines.append(
                f"At {number(enough[0])} it buys {enough[1]:.0%} of what the budgets solved do."
            )
        return "\n".join(lines).rstrip()

    def _least_budget(self) -> str:
        off = abs(self.infeasible_until)
        size = max(abs(point.budget) for point in self.points)
        if off > ROUNDING * size:
            return number(self.infeasible_until)
        return f"0, up to {off:.1g}" if off > np.finfo(float).eps * size else "0"

    def plot(self, path: str | Path | None = None) -> Any:
        """The two envelopes and the solved budgets, as a Matplotlib figure."""
        return plot_frontier(self, path)


def _rounded(left: float, right: float, share: float) -> float:
    """A budget that people can say, near the place at this share of an interval and well inside it."""
    place = left + min(max(share, 0.1), 0.9) * (right - left)
    digits = 1 - math.floor(math.log10(right - left))
    return round(place, digits) if left < round(place, digits) < right else place


def _floor(problem: Problem, certificate: Certificate) -> float:
    return certificate.lower if problem.sign > 0 else -certificate.upper


def _chords(at: np.ndarray, value: np.ndarray, steps: np.ndarray, wanted: float) -> float:
    """What mixtures of two points reach at ``wanted``; ``steps`` (n, 2): least and most of each point."""
    if at.size == 0 or wanted < at[0]:
        return -math.inf
    best = float(value[at <= wanted].max())  # a larger budget never hurts
    for left in np.flatnonzero(at <= wanted):
        for right in np.flatnonzero(at > wanted):
            room = (wanted - at[left]) * steps[left, 0]
            share = room / (room + (at[right] - wanted) * steps[right, 1])
            best = max(best, float((1 - share) * value[left] + share * value[right]))
    return best


def frontier(
    problem: Problem,
    constraint: str,
    budgets: Sequence[float] | None = None,
    *,
    n: int | None = None,
    backend: Backend | None = None,
) -> Frontier:
    """The best objective as a function of a budget, and what a unit of slack is worth, proven.

    Where the model has counts, or states its error, the envelopes are those of the true model, with confidence
    0.95, or of every model within the error; policies are cautious plans.

    Args:
        problem: any problem with this constraint.
        constraint: its name.
        budgets: the budgets to solve; or
        n: how many to solve, at least 2: the problem's own budget, where the problem becomes infeasible, where
            the constraint stops binding, and others between them, spread by what they cost and what they buy.
            Without either, n = 9.
        backend: where to solve: ``Ray()`` for the workers of a cluster, by default this process. With ``n``,
            workers that are left over solve what will probably be asked next; the answer is the same.
    """
    require_problem(problem, 'frontier(problem, "constraint")')
    if not isinstance(constraint, str):
        raise ProblemError(
            'the name of a constraint comes second, frontier(problem, "constraint", [0.1, 0.2]); got '
            f"{constraint!r}"
        )
    if constraint not in problem.constraints:
        hint = did_you_mean(constraint, problem.constraints)
        raise ProblemError(f"no constraint {constraint!r}. {hint}")
    if problem.constraints[constraint].utility.bends_in_budget and budgets is None:
        raise ProblemError(
            f"{constraint!r} is a budget for a share of the steps taken, a quotient: where it begins to matter "
            "is not sought. Give the budgets to solve: frontier(problem, name, [0.01, 0.02, 0.05])."
        )
    if budgets is not None and n is not None:
        raise ProblemError("give either budgets or n, not both")
    if budgets is not None and np.ndim(budgets) != 1:
        raise ProblemError(
            f"budgets are a list of numbers, such as [0.01, 0.02]; got {budgets!r}. How many to choose is n="
        )
    if budgets is not None and len(budgets) == 0:
        raise ProblemError("budgets is empty; give at least one")
    count = 9 if n is None else n
    if not isinstance(count, int | np.integer) or count < 2:
        raise ProblemError(f"n must be a whole number, at least 2; got {n!r}")
    with (ThisProcess() if backend is None else backend).answers(problem) as answers:
        tracer = _Tracer(problem, constraint, answers)
        return tracer.refine(count) if budgets is None else tracer.all_of(budgets)


Certified = tuple[Solution, Certificate]


def _certified(problem: Problem, cautious: float | None) -> Certified:
    solution = solve_among_many(problem, cautious=cautious)
    return solution, certify(problem, solution)


class _Tracer:
    """Solves budgets one by one, some of them ahead of time, and keeps what is known."""

    def __init__(self, problem: Problem, constraint: str, answers: Answers) -> None:
        self.problem, self.name, self.answers = problem, constraint, answers
        self.direction = 1.0 if problem.constraints[constraint].sense == "<=" else -1.0
        # Where the model may not be the true one, only cautious plans are proven feasible.
        sure = problem.mdp.counts is None and not problem.mdp.relative_error
        self.cautious = None if sure else CONFIDENCE
        self.points: dict[float, FrontierPoint] = {}
        self.asked: dict[float, Callable[[], Certified]] = {}
        self.infeasible_until = -self.direction * math.inf

    def ask(self, budget: float) -> None:
        """Have a budget solved, now or when it is needed."""
        if budget not in self.points and budget not in self.asked:
            problem = self.problem.with_budget(self.name, budget)
            self.asked[budget] = self.answers.ask(_certified, problem, self.cautious)

    def all_of(self, budgets: Iterable[float]) -> Frontier:
        wanted = sorted({float(budget) for budget in budgets})
        for budget in wanted:
            self.ask(budget)
        for budget in wanted:
            self.solve(budget)
        return self.frontier()

    def solve(self, budget: float) -> FrontierPoint:
        if budget not in self.points:
            self.ask(budget)
            point = FrontierPoint(budget, *self.asked.pop(budget)())
            self.points[budget] = point
            if point.certificate.infeasible:
                ahead = self.direction * budget > self.direction * self.infeasible_until
                self.infeasible_until = budget if ahead else self.infeasible_until
        return self.points[budget]

    @cached_property
    def free(self) -> Certified:
        """The problem without the constraint, solved and certified."""
        return self._without(self.problem.sense, self.problem.utility)()

    def _without(self, sense: str, utility: Utility) -> Callable[[], Certified]:
        """An objective under the other constraints."""
        others = {name: c for name, c in self.problem.constraints.items() if name != self.name}
        problem = Problem(self.problem.source, **{sense: utility}, subject_to=others)
        return self.answers.ask(_certified, problem, self.cautious)

    def ends(self) -> tuple[float, float]:
        """The least budget that allows a policy (nearly), and one that does not bind."""
        utility = self.problem.constraints[self.name].utility
        tightest = self._without("minimize" if self.direction > 0 else "maximize", utility)
        loosest = self._without(self.problem.sense, self.problem.utility)
        _, best = tightest()
        if best.infeasible:
            raise ProblemError(
                "no budget helps: the other constraints cannot be satisfied together "
                f"({', '.join(repr(name) for name in best.conflict)})"
            )
        reached = best.upper if self.direction > 0 else best.lower
        self.infeasible_until, self.free = best.bound, loosest()
        used = float(self.problem.bind(utility).value(self.free[0].measured))
        # A little room at the tight end keeps a Slater point; none is lost at the loose end.
        size = max(best.size, best.range) or 1.0
        width = max(self.direction * (used - reached), ROUNDING * size)
        tight = reached + self.direction * 1e-3 * width
        if width == ROUNDING * size:  # what spends least is best anyway: there is nothing between
            return tight, tight
        return tight, used + self.direction * ROUNDING * width

    def refine(self, count: int) -> Frontier:
        own = self.problem.budgets[self.name]
        self.ask(own)
        tight, loose = self.ends()
        near = NEAR * abs(loose - tight)
        self.all_of([own, *(end for end in (tight, loose) if abs(end - own) > near)])
        while len(self.points) < count:
            wanted = self._halves(self.frontier(), tight, loose)
            if not wanted:
                break
            # A solve changes the curve around it alone, so the next longest pieces will be next.
            for budget in wanted[: min(self.answers.ahead + 1, count - len(self.points))]:
                self.ask(budget)
            self.solve(wanted[0])
        return self.frontier()

    def _halves(self, known: Frontier, tight: float, loose: float) -> list[float]:
        """The budgets that halve pieces of the curve, the longest first; none where nothing is left."""
        low, high = sorted((tight, loose))
        solved = np.array([budget for budget in sorted(self.points) if low <= budget <= high])
        if solved.size < 2 or not high > low:
            return []
        if self.cautious is not None:  # envelopes are as wide as the data leaves them: evenly
            order = np.argsort(-np.diff(solved), kind="stable")
            return [_rounded(float(solved[k]), float(solved[k + 1]), 0.5) for k in order]
        grid = np.linspace(solved[:-1], solved[1:], STEPS + 1, axis=1)  # (pieces, STEPS + 1)
        bounds = np.array([known.envelope(float(budget)) for budget in grid.ravel()])
        bounds = bounds.reshape(*grid.shape, 2)
        height = float(np.nanmax(bounds[..., 1]) - np.nanmin(bounds[..., 0])) or 1.0
        if not math.isfinite(height):
            return []
        curve, room = bounds.mean(axis=2) / height, (bounds[..., 1] - bounds[..., 0]) / height
        moves = np.hypot(np.diff(grid) / (high - low), np.diff(curve))
        moves += (room[:, 1:] + room[:, :-1]) / (2 * STEPS)
        lengths = moves.sum(axis=1, keepdims=True)
        shares = (np.argmax(np.cumsum(moves, axis=1) >= lengths / 2, axis=1) + 0.5) / STEPS
        order = np.argsort(-lengths.ravel(), kind="stable")
        return [_rounded(float(solved[k]), float(solved[k + 1]), float(shares[k])) for k in order]

    def frontier(self) -> Frontier:
        points = tuple(self.points[budget] for budget in sorted(self.points))
        allowed = [p for p in points if p.certificate.feasible]
        ordered = sorted(allowed, key=lambda p: self.direction * p.budget)
        feasible_from = ordered[0].budget if ordered else self.direction * math.inf
        free_from, free_gap = self.direction * math.inf, math.nan
        if ordered:
            # Without the constraint no policy exceeds the ceiling; from the first budget whose
            # policy reaches it, the constraint is free. (A small multiplier alone proves nothing:
            # budgets in small units have small prices.)
            free = self.free[1]
            ceiling = self.problem.sign * free.bound
            gaps = [ceiling - _floor(self.problem, point.certificate) for point in ordered]
            size = max((abs(one) for one in (ceiling, *gaps) if math.isfinite(one)), default=0.0)
            most = max(FREE_GAP * size, ROUNDING * max(free.size, free.range))
            for point, gap in zip(ordered, gaps, strict=True):
                if gap <= most:
                    free_from, free_gap = point.budget, max(gap, 0.0)
                    break
        return Frontier(
            self.problem,
            self.name,
            points,
            self.infeasible_until,
            feasible_from,
            free_from,
            free_gap,
        )
