"""The two arithmetics a proof is computed in: floats with terms for rounding, and balls, which need none.

Both answer the same four questions and give floats rounded to the safe side, so that whoever compares claims
with them (``check``) is one piece of code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from cvxmdp.checker.arithmetic import LARGEST_FACTOR, CertificateError
from cvxmdp.checker.bounds import PlainProblem, proof_part, upper_bound
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_flow import Visited
from cvxmdp.checker.closed_forms import ClosedForm
from cvxmdp.checker.exact_flow import ExactEpisodes
from cvxmdp.checker.exact_forms import exact_form
from cvxmdp.checker.exact_numbers import at_least, at_most, ball, precisely

FLOATING = "floating point with error terms"
EXACT = "exact arithmetic"


class ProofArithmetic(Protocol):
    """What a checker computes with.

    Attributes:
        level: its name, for people.
    """

    level: str

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        """What no feasible policy's f exceeds."""

    def visited(self, problem: PlainProblem, policy: Any) -> Any:
        """The occupancy of a policy, for the two below."""

    def value(self, form: ClosedForm, visited: Any) -> float:
        """A function of it, near enough to compare with."""

    def surely(self, form: ClosedForm, visited: Any) -> float:
        """What a function of it is at least."""


class Floating:
    """NumPy's floats, with explicit terms for all rounding."""

    level = FLOATING

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        return upper_bound(problem, multipliers, proof)

    def visited(self, problem: PlainProblem, policy: Any) -> Visited:
        return problem.flow.visited(policy)

    def value(self, form: ClosedForm, visited: Visited) -> float:
        return form.value(visited.x)

    def surely(self, form: ClosedForm, visited: Visited) -> float:
        value = form.value(visited.x)
        if not math.isfinite(value):
            return -math.inf
        return value - form.drift(visited.x, visited.error)


class ExactVisits(NamedTuple):
    """An occupancy as balls, (S * A,)."""

    x: np.ndarray


class Exact:
    """Balls of 256 bits: every inequality holds as it stands, with no word about rounding.

    Args:
        plain: the problem's plain data, whose numbers are read as the binary fractions they are.
    """

    level = EXACT

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.plain = plain
        self.flow: ExactEpisodes | None = None

    def _flow(self, problem: PlainProblem) -> ExactEpisodes:
        if self.flow is None:
            if type(problem.flow) is not CheckedEpisodes:
                raise CertificateError(
                    "exact arithmetic knows discounted and total sums only, so far"
                )
            self.flow = ExactEpisodes(problem.flow, self.plain)
        return self.flow

    def upper_bound(
        self, problem: PlainProblem, multipliers: Mapping[str, float], proof: Mapping[str, Any]
    ) -> float:
        if set(multipliers) != set(problem.slacks):
            raise CertificateError("there must be a multiplier for every constraint, and no others")
        with precisely():
            tangent = exact_form(problem.objective).tangent(proof_part(proof, "objective"))
            reward, constant = tangent.reward, tangent.constant
            slacks = proof_part(proof, "slacks")
            for name, form in problem.slacks.items():
                multiplier = float(multipliers[name])
                if not 0 <= multiplier <= LARGEST_FACTOR:
                    raise CertificateError(f"the multiplier of {name!r} is {multiplier}")
                if multiplier > 0:
                    part = exact_form(form).tangent(proof_part(slacks, name))
                    reward = reward + part.reward * ball(multiplier)
                    constant = constant + part.constant * ball(multiplier)
            return at_most(self._flow(problem).best_return(reward, proof) + constant)

    def visited(self, problem: PlainProblem, policy: Any) -> ExactVisits:
        with precisely():
            return ExactVisits(self._flow(problem).visited(policy))

    def value(self, form: ClosedForm, visited: ExactVisits) -> float:
        with precisely():
            found = exact_form(form).bound(visited.x)
            return float(found.mid()) if found.is_finite() else -math.inf

    def surely(self, form: ClosedForm, visited: ExactVisits) -> float:
        with precisely():
            return at_least(exact_form(form).bound(visited.x))
