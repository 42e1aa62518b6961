"""The two arithmetics a proof is computed in: floats with terms for rounding, and balls, which need none.

Both answer the same four questions and give floats rounded to the safe side, so that whoever compares claims
with them (``check``) is one piece of code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import ErrorBound, NotVerifiableError
from cvxmdp.checker.bounds import PlainProblem, lagrangian_tangent, surely, upper_bound
from cvxmdp.checker.checked_average import CheckedAverage
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_finite import CheckedFinite
from cvxmdp.checker.checked_flow import CheckedFlow, Visited
from cvxmdp.checker.closed_forms import ClosedForm
from cvxmdp.checker.exact_average import ExactAverage
from cvxmdp.checker.exact_finite import ExactFinite
from cvxmdp.checker.exact_flow import ExactEpisodes, ExactFlow
from cvxmdp.checker.exact_models import ExactModels
from cvxmdp.checker.exact_numbers import BALLS, ExactMatrix, at_most, balls, precisely
from cvxmdp.checker.scalars import FLOATS, ScalarKind
from cvxmdp.checker.true_problem import TrueProblem

FLOATING = "floating point with error terms"
EXACT = "exact arithmetic"
OWN = ", but for functions of the user's own"
MOST_SECONDS = 600.0  # that an exact check may be expected to take where nobody gives another limit
PRODUCTS = 25  # of the model's matrix, that a check takes: bounds, and two policies refined
SAMPLE = 20_000  # entries of it that are multiplied to see how fast this machine is
Tell = Callable[[str], None]


class ProofArithmetic(Protocol):
    """What a checker computes with.

    Attributes:
        level: its name, for people.
        scalars: what functions of a problem are read for.
    """

    @property
    def level(self) -> str: ...

    @property
    def scalars(self) -> ScalarKind: ...

    def working(self) -> AbstractContextManager[None]:
        """In which problems are read and everything is computed."""

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        """What no feasible policy's f exceeds."""

    def visited(self, problem: PlainProblem, policy: Any) -> Visited:
        """The occupancy of a policy, for the two below."""

    def value(self, form: ClosedForm, visited: Visited) -> float:
        """A function of it, near enough to compare with."""

    def surely(self, form: ClosedForm, visited: Visited) -> float:
        """What a function of it is at least."""


class Floating:
    """NumPy's floats, with explicit terms for all rounding."""

    level, scalars = FLOATING, FLOATS

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        return upper_bound(problem, multipliers, proof)

    def visited(self, problem: PlainProblem, policy: Any) -> Visited:
        return problem.flow.visited(policy)

    def value(self, form: ClosedForm, visited: Visited) -> float:
        return float(form.value(visited.x))

    def surely(self, form: ClosedForm, visited: Visited) -> float:
        return surely(form, visited)


FLOWS: dict[type[CheckedFlow], Any] = {
    CheckedEpisodes: ExactEpisodes,
    CheckedFinite: ExactFinite,
    CheckedAverage: ExactAverage,
}


class Exact:
    """Balls of 256 bits, inside ``working()``: inequalities hold as they stand, with no word about rounding.

    Args:
        plain: the problem's plain data, whose numbers are read as the binary fractions they are.
        limit: seconds; a problem that would take longer is not begun, and one that does is given up.
        tell: is told what is computed next.
    """

    level, scalars = EXACT, BALLS

    def __init__(
        self,
        plain: Mapping[str, Any],
        limit: float = MOST_SECONDS,
        tell: Tell | None = None,
    ) -> None:
        self.plain, self.limit, self.tell = plain, limit, tell
        self.flow: ExactFlow | None = None
        self.began = time.monotonic()

    def working(self) -> AbstractContextManager[None]:
        return precisely()

    def _flow(self, problem: PlainProblem) -> ExactFlow:
        if self.flow is None:
            self._expect(problem.flow)
            if isinstance(problem, TrueProblem):
                assert isinstance(problem.models, ExactModels)
                self.flow = problem.models
                return self.flow
            self.flow = FLOWS[type(problem.flow)](problem.flow, self.plain)
        assert self.flow is not None
        return self.flow

    def _expect(self, flow: CheckedFlow) -> None:
        """Refuse what would take longer than the limit, by a product of a part of the matrix."""
        matrix = sp.csr_array(self.plain["transition"])
        rows = min(matrix.shape[0], 1 + int(SAMPLE * matrix.shape[0] / max(matrix.nnz, 1)))
        part = matrix[:rows]
        began = time.process_time()
        ExactMatrix(part).times(balls(np.ones(matrix.shape[1])))
        took = time.process_time() - began
        products = PRODUCTS + 3 * (flow.shape[0] // matrix.shape[1] - 1)
        seconds = took * products * matrix.nnz / max(part.nnz, 1)
        if seconds > self.limit:
            raise NotVerifiableError(
                f"in exact arithmetic this would take about {seconds:,.0f} s here, and the limit is "
                f"{self.limit:,.0f} s: give a longer one"
            )

    def _begin(self, what: str) -> None:
        """Say what comes next, while there is time for it."""
        if time.monotonic() - self.began > self.limit:
            raise NotVerifiableError(f"the limit of {self.limit:,.0f} s was over")
        if self.tell is not None:
            self.tell(what)

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        flow = self._flow(problem)
        self._begin("what no policy exceeds")
        tangent = lagrangian_tangent(problem, multipliers, proof)
        return at_most(flow.best_return(tangent.reward.ravel(), proof) + tangent.constant)

    def visited(self, problem: PlainProblem, policy: Any) -> Visited:
        flow = self._flow(problem)
        self._begin("where a policy goes")
        x = flow.visited(policy).reshape(problem.flow.shape)
        return Visited(x, ErrorBound(0.0, problem.flow.usable), 0.0)

    def value(self, form: ClosedForm, visited: Visited) -> float:
        self._begin("a function of it")
        found = form.value(visited.x)
        return float(BALLS.rough(found)) if BALLS.finite(found) else -math.inf

    def surely(self, form: ClosedForm, visited: Visited) -> float:
        self._begin("a function of it")
        return BALLS.at_least(form.value(visited.x))
