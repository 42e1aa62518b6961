r"""Storm as an independent referee of linear problems.

The problem is written down once more, for a model checker. A discount is a chance of ending at every step, so
the model is gamma P with the rest going to one absorbing state; objective and slacks are reward structures, and
the question is multi(R{"f"}max=? [C], R{"g0"}>=b0 [C], ...). Where every row ends with a positive chance e(s,a)
adding K e(s,a) to a reward adds exactly K to its sum: so none is negative. Up to 10,000 states all numbers are
the exact rationals that the floats are, and Storm computes with such.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.base.errors import ProblemError, SolverError, require
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status

EXACT_STATES = 10_000  # up to which Storm computes with rationals
# That is asked of it, relative to the answer; of rationals with budgets, too.
PRECISION = Fraction(1, 10**10)


@dataclass(frozen=True)
class CrossCheck(InNotebooks):
    """What Storm says to a problem and its answer; true where both agree.

    Attributes:
        storm: the best objective by Storm, in the user's sign; NaN where it says that there is no policy.
        ours: the solution's objective; NaN where it says that there is no policy.
        exact: whether Storm computed with rationals.
        tolerance: relative difference up to which they agree.
        seconds: that Storm took, reading the model included.
    """

    storm: float
    ours: float
    exact: bool
    tolerance: float
    seconds: float

    @property
    def difference(self) -> float:
        """|storm - ours|, relative to the larger; zero where both say that there is no policy."""
        if math.isnan(self.storm) and math.isnan(self.ours):
            return 0.0
        largest = max(abs(self.storm), abs(self.ours))
        gap = abs(self.storm - self.ours)
        return math.inf if math.isnan(gap) else gap / largest if largest > 0 else 0.0

    def __bool__(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        how = "in rationals" if self.exact else f"in floats, precision {float(PRECISION):.0e}"
        both = ["infeasible" if math.isnan(one) else number(one) for one in (self.storm, self.ours)]
        verdict = "They agree" if self else "They do NOT agree"
        return (
            f"Storm ({how}): {both[0]}. The solution: {both[1]}. {verdict}: relative difference "
            f"{self.difference:.1e}, {self.tolerance:.0e} allowed. {self.seconds:.2f} s."
        )


def cross_check(
    problem: Problem, solution: Solution, *, tolerance: float = 1e-6, exact: bool | None = None
) -> CrossCheck:
    """Ask Storm the same question (extra ``storm``): whether it finds the objective that a solution has.

    Args:
        problem: linear in objective and constraints.
        solution: its answer.
        tolerance: relative difference of the objectives up to which the two agree.
        exact: whether Storm computes with rationals; by default up to 10,000 states. Those of probabilities
            with many digits grow long, and floats are then many times faster.
    """
    require("stormpy", "storm")
    problem.require_model("cross_check")
    asked = StormQuestion.of(problem)
    if exact is None:
        # Long-run averages under bounds are the one question that Storm answers in floats only.
        bounded_average = asked.path == "LRA" and len(asked.parts) > 1
        exact = problem.mdp.n_states <= EXACT_STATES and not bounded_average
    ours = solution.objective if solution.has_policy else math.nan
    if not solution.has_policy and solution.status is not Status.INFEASIBLE:
        raise ProblemError(f"there is no answer to check: the solution is {solution.status.name}")
    started = time.perf_counter()
    size = Fraction(abs(ours) if abs(ours) > 0 else 1.0)
    found = asked.ask(asked.model(exact), exact, PRECISION * size)
    return CrossCheck(problem.sign * found, ours, exact, tolerance, time.perf_counter() - started)


class _Part(NamedTuple):
    """An affine function of the occupancy: rewards (S, A), and an offset."""

    reward: np.ndarray
    offset: float

    @classmethod
    def of(cls, problem: Problem, affine: Any) -> _Part:
        """Of functions of all steps' occupancies, those that pay the same at every step."""
        layers = affine.reward.reshape(-1, *problem.mdp.shape)
        if (layers != layers[0]).any():
            raise ProblemError("cross_check takes signals that are the same at every step")
        return cls(layers[0], affine.offset)


class _Row(NamedTuple):
    """A pair: where it leads, with which chances, and the chance that it ends."""

    targets: list[int]
    chances: list[Fraction]
    ending: Fraction


class StormQuestion:
    """A problem in the words of a model checker."""

    def __init__(self, problem: Problem, parts: list[_Part]) -> None:
        self.mdp, self.parts = problem.mdp, parts
        self.horizon = self.mdp.horizon.arguments()
        self.rows = {int(pair): self._row(int(pair)) for pair in np.flatnonzero(self.mdp.actions)}
        self.least = min(row.ending for row in self.rows.values())
        self.shifts = [self._shift(part.reward) for part in parts]

    @classmethod
    def of(cls, problem: Problem) -> StormQuestion:
        """Of a linear problem, or an error."""
        parts = [function.affine() for function in problem.functions]
        if any(part is None for part in parts):
            raise ProblemError(
                "cross_check asks a model checker, and those know linear problems only"
            )
        return cls(problem, [_Part.of(problem, part) for part in parts])

    def _row(self, pair: int) -> _Row:
        matrix, state = self.mdp.transition, pair // self.mdp.n_actions
        part = slice(matrix.indptr[pair], matrix.indptr[pair + 1])
        chances = [Fraction(float(chance)) for chance in matrix.data[part]]
        total = sum(chances, Fraction(0))
        if self.mdp.ending[state, pair % self.mdp.n_actions] == 0:
            # Rows that do not end are their floats divided by their sum.
            chances, total = [chance / total for chance in chances], Fraction(1)
        discount = Fraction(float(self.horizon.get("discount", 1.0)))
        scaled = [discount * chance for chance in chances]
        return _Row(matrix.indices[part].tolist(), scaled, 1 - discount * total)

    def _shift(self, reward: np.ndarray) -> Fraction:
        """K, such that reward + K ending is nowhere negative; zero where some row does not end."""
        least = Fraction(float(reward[self.mdp.actions].min()))
        if least >= 0 or self.least <= 0 or "horizon" in self.horizon:
            return Fraction(0)
        return Fraction(2) ** math.ceil(math.log2(-least / self.least))  # few digits

    def drn(self) -> Iterator[str]:
        """The lines of Storm's own format."""
        mdp = self.mdp
        names = ["f", *(f"g{place}" for place in range(len(self.parts) - 1))]
        yield "@type: MDP\n@parameters\n\n@reward_models\n" + " ".join(names)
        yield f"@nr_states\n{mdp.n_states + 2}\n@nr_choices\n{len(self.rows) + 2}\n@model"
        # A first state that draws the initial one earns nothing.
        yield "state 0 init\n\taction 0"
        begun = np.flatnonzero(mdp.initial).tolist()
        shares = [Fraction(float(mdp.initial[state])) for state in begun]
        whole = sum(shares, Fraction(0))
        yield from (
            f"\t\t{state + 1} : {share / whole}" for state, share in zip(begun, shares, strict=True)
        )
        for state in range(mdp.n_states):
            yield f"state {state + 1}"
            for place, action in enumerate(np.flatnonzero(mdp.actions[state])):
                yield from self._choice(state, int(action), place)
        yield f"state {mdp.n_states + 1} end\n\taction 0\n\t\t{mdp.n_states + 1} : 1"

    def _choice(self, state: int, action: int, place: int) -> Iterator[str]:
        row = self.rows[state * self.mdp.n_actions + action]
        rewards = [
            Fraction(float(part.reward[state, action])) + shift * row.ending
            for part, shift in zip(self.parts, self.shifts, strict=True)
        ]
        yield f"\taction {place} [{', '.join(str(reward) for reward in rewards)}]"
        yield from (
            f"\t\t{target + 1} : {chance}"
            for target, chance in zip(row.targets, row.chances, strict=True)
            if chance > 0
        )
        if row.ending > 0:
            yield f"\t\t{self.mdp.n_states + 1} : {row.ending}"

    @property
    def path(self) -> str:
        """What is summed up, in a formula."""
        if self.horizon.get("average"):
            return "LRA"
        if "horizon" in self.horizon:
            return f"C<={self.horizon['horizon'] + 1}"  # one more: the first state is drawn
        return "C"

    def question(self) -> str:
        """The property."""
        path = self.path
        best = f'R{{"f"}}max=? [{path}]'
        bounds = [
            f'R{{"g{place}"}}>={_decimal(shift - Fraction(float(part.offset)))} [{path}]'
            for place, (part, shift) in enumerate(zip(self.parts[1:], self.shifts[1:], strict=True))
        ]
        return f"multi({', '.join([best, *bounds])})" if bounds else best

    def model(self, exact: bool) -> Any:
        """For Storm."""
        import stormpy

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "problem.drn"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in self.drn())
            kind = stormpy.Rational if exact else float
            return stormpy.build_model_from_drn[kind](path)

    def ask(self, model: Any, exact: bool, precision: Fraction) -> float:
        """The best objective, maximised, to an absolute precision; NaN where there is no policy."""
        import stormpy

        environment = _environment(stormpy, exact, precision)
        asked = stormpy.parse_properties(self.question())[0]
        try:
            found = stormpy.model_checking(
                model, asked, only_initial_states=True, environment=environment
            )
        except RuntimeError as error:
            raise SolverError(f"Storm cannot answer {self.question()}: {error}") from error
        if not found.is_quantitative():
            return math.nan  # "false": the bounds cannot be satisfied
        value = found.get_value(0)
        exactly = Fraction(str(value)) if exact else Fraction(float(value))
        return float(exactly - self.shifts[0] + Fraction(float(self.parts[0].offset)))


def _decimal(value: Fraction) -> str:
    """A rational whose parts Storm reads with all their digits: its whole numbers have 64 bits."""
    return f"{value.numerator}.0/{value.denominator}.0"


def _environment(stormpy: Any, exact: bool, precision: Fraction) -> Any:
    """How exact Storm is to be.

    Its floats are not asked in the default way: the multi-objective answers of that were wrong in trials. With
    budgets its search between rationals, too, ends at a precision, whose default is 1e-4.
    """
    environment = stormpy.environments.exact() if exact else stormpy.Environment()
    wanted = stormpy.Rational(str(precision))
    environment.modelchecker().multi().precision = wanted
    if not exact:
        environment.solver().min_max().precision = wanted
    return environment
