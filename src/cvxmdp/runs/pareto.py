r"""Coverage sets: all trade-offs of several objectives under the constraints, between proven envelopes.

What can be reached, {v : v <= f(x) for some feasible occupancy x}, is convex, for occupancies mix and every
objective is concave. A solve of max <w, f(x)> with weights w >= 0 gives two things: a policy, whose certified
objectives are a point of the set, and a certified bound <w, v> <= U(w) that holds for all of it. Mixtures of
points, with all that lies below them, are the *inner* set; the *outer* one is where every bound holds.

The next weights are the normal of the inner set at the outer vertex that is farthest from it, in units of each
objective's range, until none is farther than the tolerance (``envelopes`` has the geometry).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cvxmdp.atoms import Curvature, Utility
from cvxmdp.atoms.utility import require_curvature
from cvxmdp.base.errors import ProblemError, SettingsError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.claims import Claims
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.problems.problem import Problem, require_problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.backends.backend import Answers, Backend
from cvxmdp.runs.backends.this_process import ThisProcess
from cvxmdp.runs.envelopes import farthest, inner_facets, outer_vertices
from cvxmdp.runs.front import ROUNDING, SAME, Front, FrontPoint
from cvxmdp.runs.solving import solve_among_many
from cvxmdp.solvers.choice import choose_solver
from cvxmdp.solvers.column_generation import ColumnGeneration
from cvxmdp.solvers.contract import Solver
from cvxmdp.solvers.pdpg import PDPG

SMALL = 2_000  # pairs up to which one program per weights is as fast as column generation
SHARE = 0.25  # of the tolerance, that a certificate may leave open
LOOSEST, TIGHTEST = 1e-3, 1e-8  # relative gaps that are asked of column generation
BELOW = 2.0  # ranges below every point: surely inside of both sets
NEAR = 0.02  # distance of weights at which a solve that was not accurate enough is not repeated


def pareto(
    problem: Problem,
    objectives: Mapping[str, Utility],
    *,
    tolerance: float = 1e-2,
    solver: Solver | None = None,
    solves: int = 300,
    backend: Backend | None = None,
) -> Front:
    """All trade-offs of several objectives under a problem's constraints, with policies, proven.

    Args:
        problem: its model and constraints; its own objective plays no part unless it is named again.
        objectives: two or more concave utilities by name, all maximised: ``-linear("cost")`` for a cost.
        tolerance: distance of the envelopes at which to stop, as a share of each objective's range.
        solver: for the weighted problems; by default a convex program for small models, else column
            generation from the nearest point.
        solves: of weighted problems, at most.
        backend: where to solve: ``Ray()`` for the workers of a cluster, by default this process. Workers that
            are left over solve what will probably be asked next; the answer is the same.
    """
    require_problem(problem, 'pareto(problem, {"name": utility, ...})')
    problem.require_model("pareto")
    if not isinstance(objectives, Mapping) or len(objectives) < 2:
        raise ProblemError(
            "objectives are two or more utilities by name, as in {'reward': linear('reward'), 'safe': "
            f"-linear('hazard')}}; got {objectives!r}"
        )
    for name, utility in objectives.items():
        require_curvature(utility, Curvature.CONCAVE, f"objectives[{name!r}]")
    if not 0.0 < tolerance < 1.0:
        raise SettingsError(
            f"tolerance is a share of the ranges, between 0 and 1; got {tolerance!r}"
        )
    if solves < 2 * len(objectives):
        raise SettingsError(f"solves must be at least {2 * len(objectives)}; got {solves}")
    with (ThisProcess() if backend is None else backend).answers(problem) as answers:
        return _Explorer(problem, dict(objectives), tolerance, solver, solves, answers).front()


Certified = tuple[Solution, Certificate]


def _certified(
    problem: Problem, solver: Solver, start: Solution | None, otherwise: bool
) -> Certified:
    """An answer with its certificate; another solver's, where the first left it open and one may choose."""
    solution = solve_among_many(problem, solver, start)
    if solution.status is not Status.OPTIMAL and otherwise:
        solution = solve_among_many(problem)
    return solution, certify(problem, solution, confidence=None)


class _Explorer:
    """Solves weights one by one and keeps what is known."""

    def __init__(
        self,
        problem: Problem,
        objectives: dict[str, Utility],
        tolerance: float,
        solver: Solver | None,
        most: int,
        answers: Answers,
    ) -> None:
        self.problem, self.objectives, self.tolerance = problem, objectives, tolerance
        self.given, self.most, self.answers = solver, most, answers
        self.asked: dict[Any, Callable[[], Certified]] = {}
        first, *_ = objectives.values()
        named = {name: utility >= 0.0 for name, utility in objectives.items()}
        # The slack of f >= 0 is f: so one look at a policy gives sure values of all objectives. Budgets are
        # among them because they may be what ends episodes.
        budgets = {f"subject to {name}": one for name, one in problem.constraints.items()}
        both = {**budgets, **named}
        self.claims = Claims.of(Problem(problem.source, maximize=first, subject_to=both))
        self.solved: list[FrontPoint] = []
        self.spans: np.ndarray | None = None  # of the objectives, once they are known

    def front(self) -> Front:
        size = len(self.objectives)
        for place in range(size):
            self.solve(np.eye(size)[place])
        if not self.points.size:
            raise ProblemError(self._nothing())
        # What is best for one objective alone can be needlessly bad at the others: a little weight on these.
        self.spans, little = self.ranges(), math.sqrt(self.tolerance)
        extremes = (1.0 - little) * np.eye(size) + little / size
        for weights in extremes / self.spans:
            self.ask(weights)
        for weights in extremes / self.spans:
            self.solve(weights)
        self.spans = spans = self.ranges(since=size)
        line = Progress("pareto", self.most)
        try:
            while True:
                distance, wanted = self.widest(spans)
                line.update(len(self.solved), f"distance {distance:.2g}")
                if distance <= self.tolerance or not wanted or len(self.solved) >= self.most:
                    break
                for weights in wanted:
                    self.ask(weights)
                self.solve(wanted[0])
        finally:
            line.close()
        return Front(
            self.problem, self.objectives, tuple(self.solved), spans, distance, self.tolerance
        )

    @property
    def points(self) -> np.ndarray:
        found = [point.values for point in self.solved if np.isfinite(point.values).all()]
        return np.array(found)

    def ranges(self, since: int = 0) -> np.ndarray:
        """From the worst to the best of every objective, among the solves from some one on.

        A range that certificates cannot resolve is taken as what they can.
        """
        best = np.array([point.certificate.upper for point in self.solved[: len(self.objectives)]])
        found = [p.values for p in self.solved[since:] if np.isfinite(p.values).all()]
        spans = best - np.array(found if found else self.points).min(axis=0)
        unknown = (best - self.points.max(axis=0)) / (SHARE * self.tolerance)
        spans = np.maximum(spans, unknown)
        return np.where(spans > 0, spans, 1.0)

    def widest(self, spans: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The distance of the envelopes, and the weights to ask next and probably after that, if any."""
        best = np.array([point.certificate.upper for point in self.solved[: spans.size]])
        points = (self.points - best) / spans
        weights = np.array([point.weights for point in self.solved]) * spans
        sums = weights.sum(axis=1, keepdims=True)
        bounds = [p.certificate.upper - float(p.weights @ best) for p in self.solved]
        inner = inner_facets(points)
        inside = np.minimum(points.min(axis=0), 0.0) - BELOW
        vertices = outer_vertices(weights / sums, np.array(bounds) / sums[:, 0], inside)
        distances, places = farthest(vertices, inner)
        largest = max(0.0, float(distances.max())) * (1 + SAME) + ROUNDING
        wanted: list[np.ndarray] = []
        for vertex in np.argsort(-distances):
            normal = inner.normals[places[vertex]]
            if distances[vertex] > self.tolerance and not self._known(normal, spans):
                wanted.append(normal / spans)
            if len(wanted) > self.answers.ahead:
                break
        return largest, wanted

    def _known(self, wanted: np.ndarray, spans: np.ndarray) -> bool:
        """Whether these weights were solved, or some near them without the accuracy that is needed."""
        for point in self.solved:
            shares = point.weights * spans
            away = float(np.abs(shares / shares.sum() - wanted).sum())
            gap = (point.certificate.upper - float(point.weights @ point.values)) / shares.sum()
            if away <= SAME or (away <= NEAR and not gap <= self.tolerance / 2):
                return True
        return False

    def ask(self, weights: np.ndarray) -> Any:
        """Have weights solved, now or when they are needed; returns what ``asked`` has it under."""
        nearest = self._nearest(weights)
        key = (weights.tobytes(), id(nearest))
        if key not in self.asked:
            pairs = zip(weights, self.objectives.values(), strict=True)
            utility, *others = [float(weight) * one for weight, one in pairs if weight > 0]
            for other in others:
                utility = utility + other
            problem = Problem(
                self.problem.source, maximize=utility, subject_to=dict(self.problem.constraints)
            )
            solver = self.given or self._solver(problem, weights, nearest)
            start = None if nearest is None else nearest.solution
            self.asked[key] = self.answers.ask(
                _certified, problem, solver, start, self.given is None
            )
        return key

    def solve(self, weights: np.ndarray) -> None:
        """Solve, certify and keep."""
        solution, certificate = self.asked.pop(self.ask(weights))()
        values = np.full(len(self.objectives), -math.inf)
        if certificate.policy is not None:
            rows = rows_of(self.problem.mdp, certificate.policy)
            surely = self.claims.achieved(rows).slack
            values = np.array([surely[name] for name in self.objectives])
        self.solved.append(FrontPoint(weights, solution, certificate, values))

    def _nearest(self, weights: np.ndarray) -> FrontPoint | None:
        """The best point so far for these weights: a good start."""
        found = [point for point in self.solved if np.isfinite(point.values).all()]
        return max(found, key=lambda point: float(weights @ point.values), default=None)

    def _solver(self, problem: Problem, weights: np.ndarray, nearest: FrontPoint | None) -> Solver:
        """Column generation as exact as the tolerance asks, where models are not small."""
        chosen, _ = choose_solver(problem)
        few = int(problem.mdp.reachable_pairs.sum()) <= SMALL
        # Before there are ranges, nobody knows how exact is exact enough.
        if few or nearest is None or self.spans is None or isinstance(chosen, PDPG):
            return chosen
        # A weighted objective spans about one; what it measures may be far from zero.
        relative = SHARE * self.tolerance / max(1.0, abs(float(weights @ nearest.values)))
        return ColumnGeneration(tolerance=min(max(relative, TIGHTEST), LOOSEST))

    def _nothing(self) -> str:
        """Why there is no point."""
        first = self.solved[0].certificate
        if first.infeasible:
            names = ", ".join(repr(name) for name in first.conflict)
            return f"there are no trade-offs: no policy satisfies {names} (proven)"
        return "no policy was found that surely satisfies every constraint; widen a budget a little"
