r"""Linear certificates for a stranger's checker: the linear program in MPS, and a dual solution in fractions.

The occupancies x of a problem with linear functions are the solutions of a linear program, and a certificate's
multipliers and values are a solution of its dual, up to rounding. Here both are written without any:

    minimise -f(x) = -<r, x> - k   with   A x = b,   <c_i, x> >= -d_i,   x >= 0

in MPS, every number as the exact decimal of a binary fraction, and y, a fraction for each row, with y_i <= 0
for the inequalities and A'y >= r for every column: f(x) <= b'y + k for every feasible x. What rounding took
from the values is given back to them: a constant where discounts or shares of time allow one, else the proof's
remainder.

A row of probabilities that ends no episode means its floats divided by their sum w, which no decimal can hold:
the columns of such a pair stand for x(s, a) / w. Pairs that no policy reaches have no column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.certificate_document import decode_tree
from cvxmdp.checker.checked_average import CheckedAverage
from cvxmdp.checker.checked_episodes import CheckedEpisodes
from cvxmdp.checker.checked_finite import CheckedFinite
from cvxmdp.checker.checked_flow import CheckedFlow, Proof
from cvxmdp.checker.closed_forms import ClosedForm
from cvxmdp.checker.exact_numbers import BALLS, Ball, ball, precisely, refuse_unless

Numbers = dict[str, Fraction]


@dataclass
class PairColumn:
    """A pair of the flow: its index, w, and its entries by row."""

    pair: int
    whole: Fraction
    entries: Numbers = field(default_factory=dict)

    def add(self, row: str, number: Fraction) -> None:
        self.entries[row] = self.entries.get(row, Fraction(0)) + number

    def inner(self, multipliers: Numbers) -> Fraction:
        """Of the entries with numbers by row."""
        return sum((one * multipliers[row] for row, one in self.entries.items()), Fraction(0))


class FlowProgram(ABC):
    """The flow equations of a horizon as rows and columns.

    Attributes:
        right: the right-hand sides by row.
        columns: of the pairs that some policy reaches.
    """

    def __init__(self, flow: CheckedFlow, plain: Mapping[str, Any]) -> None:
        self.right: Numbers = {}
        self.columns: list[PairColumn] = []
        self.written = sp.csr_array(plain["transition"])
        self.discount = Fraction(float(plain.get("discount", 1.0)))
        self.ends = flow.ends.ravel()
        self.initial = [Fraction(float(one)) for one in flow.initial]

    def successors(self, row: int) -> tuple[Fraction, list[tuple[int, Fraction]]]:
        """w of a row of probabilities, and where it leads with which of them."""
        piece = slice(self.written.indptr[row], self.written.indptr[row + 1])
        chances = [Fraction(float(one)) for one in self.written.data[piece]]
        whole = Fraction(1) if self.ends[row] or not chances else sum(chances, Fraction(0))
        return whole, list(zip(self.written.indices[piece].tolist(), chances, strict=True))

    @abstractmethod
    def multipliers(self, reward: list[Fraction], proof: Proof) -> Numbers:
        """y of the rows with A'y >= r, from what a proof holds."""


class EpisodesProgram(FlowProgram):
    """out(x) = rho + gamma P'x."""

    def __init__(self, flow: CheckedEpisodes, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.flow = flow
        self.right = {f"s{s}": self.initial[s] for s in np.flatnonzero(flow.reached).tolist()}
        for pair in np.flatnonzero(flow.usable.ravel()).tolist():
            whole, following = self.successors(pair)
            column = PairColumn(pair, whole)
            column.add(f"s{pair // flow.shape[1]}", whole)
            for state, chance in following:
                column.add(f"s{state}", -self.discount * chance)
            self.columns.append(column)

    def _named(self, proof: Proof, name: str) -> Numbers:
        numbers = self.flow.per_state(proof, name)
        return {row: Fraction(float(numbers[int(row[1:])])) for row in self.right}

    def multipliers(self, reward: list[Fraction], proof: Proof) -> Numbers:
        values = self._named(proof, "values")
        found = []
        if self.discount < 1:
            missing = [(reward[c.pair] * c.whole - c.inner(values)) / c.whole for c in self.columns]
            most = max(missing) / (1 - self.discount)
            more = most if self.flow.endless else max(most, Fraction(0))
            found.append({row: value + more for row, value in values.items()})
        if "remainder" in proof:
            rest = self._named(proof, "remainder")
            found.append({row: value + rest[row] for row, value in values.items()})
        sure = [
            y for y in found if all(c.inner(y) >= reward[c.pair] * c.whole for c in self.columns)
        ]
        if not sure:
            raise CertificateError("the values in the certificate bound no return")
        return min(sure, key=lambda y: sum(self.right[row] * y[row] for row in y))


class AverageProgram(FlowProgram):
    """out(x) = P'x, <1, x> = 1."""

    def __init__(self, flow: CheckedAverage, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        self.flow = flow
        self.right = {f"s{s}": Fraction(0) for s in np.flatnonzero(flow.reached).tolist()}
        self.right["mass"] = Fraction(1)
        for pair in np.flatnonzero(flow.usable.ravel()).tolist():
            whole, following = self.successors(pair)
            column = PairColumn(pair, whole, {"mass": whole})
            column.add(f"s{pair // flow.shape[1]}", whole)
            for state, chance in following:
                column.add(f"s{state}", -chance)
            self.columns.append(column)

    def multipliers(self, reward: list[Fraction], proof: Proof) -> Numbers:
        h = self.flow.per_state(proof, "values")
        y = {row: Fraction(float(h[int(row[1:])])) for row in self.right if row != "mass"}
        y["mass"] = Fraction(0)
        y["mass"] = max(reward[c.pair] - c.inner(y) / c.whole for c in self.columns)
        return y


class FiniteProgram(FlowProgram):
    """out(x_0) = rho, out(x_{t+1}) = gamma P'x_t."""

    def __init__(self, flow: CheckedFinite, plain: Mapping[str, Any]) -> None:
        super().__init__(flow, plain)
        pairs, states = self.written.shape
        for row in np.flatnonzero(flow.reached).tolist():
            self.right[f"s{row}"] = self.initial[row] if row < states else Fraction(0)
        for pair in np.flatnonzero(flow.usable.ravel()).tolist():
            time = pair // pairs
            whole, following = self.successors(pair % pairs)
            column = PairColumn(pair, whole)
            column.add(f"s{pair // flow.shape[1]}", whole)
            for state, chance in following if time + 1 < flow.steps else []:
                column.add(f"s{(time + 1) * states + state}", -self.discount * chance)
            self.columns.append(column)
        self.actions = flow.shape[1]

    def multipliers(self, reward: list[Fraction], proof: Proof) -> Numbers:
        """Backwards, the best of each row rounded up to a float: larger ones are as good."""
        y = dict.fromkeys(self.right, Fraction(0))
        best: dict[str, Fraction] = {}
        for column in reversed(self.columns):
            row = f"s{column.pair // self.actions}"
            after = sum(
                (-one * y[to] for to, one in column.entries.items() if to != row), Fraction(0)
            )
            gained = reward[column.pair] + after / column.whole
            best[row] = max(best.get(row, gained), gained)
            y[row] = _rounded_up(best[row])
        return y


def _rounded_up(number: Fraction) -> Fraction:
    near = float(number)
    while Fraction(near) < number:
        near = float(np.nextafter(near, np.inf))
    return Fraction(near)


PROGRAMS: dict[type[CheckedFlow], Any] = {
    CheckedEpisodes: EpisodesProgram,
    CheckedAverage: AverageProgram,
    CheckedFinite: FiniteProgram,
}


class LinearFunction:
    """<reward, x> + constant, in fractions."""

    def __init__(self, form: ClosedForm, name: str) -> None:
        flat = form.flat_parameters
        if flat is None:
            raise CertificateError(f"{name} is not linear: MPS holds linear programs")
        tangent = form.tangent(flat)
        self.reward = [_fraction(one) for one in tangent.reward.ravel()]
        self.constant = _fraction(ball(tangent.constant))


def _fraction(number: Ball) -> Fraction:
    refuse_unless(number.is_exact(), "a number of the problem has more digits than are kept here")
    mantissa, exponent = (int(part) for part in number.mid().man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def linear_proof(document: Mapping[str, Any], plain: Mapping[str, Any]) -> tuple[str, str]:
    """The linear program of a problem in MPS, and the dual solution that a certificate has for it."""
    claims, proof = document["claims"], decode_tree(document["evidence"].get("proof"))
    if claims["infeasible"] or not proof or "confidence" in claims:
        raise CertificateError("only a bound on the objective of a model as it stands is exported")
    with precisely():
        problem = PlainProblem(plain, scalars=BALLS)
        if type(problem.flow) not in PROGRAMS:
            raise CertificateError("the problem's horizon has no linear program here")
        f = LinearFunction(problem.objective, "the objective")
        limits = {name: LinearFunction(g, repr(name)) for name, g in problem.slacks.items()}
    program: FlowProgram = PROGRAMS[type(problem.flow)](problem.flow, plain)
    weights = {name: Fraction(float(claims["multipliers"][name])) for name in limits}
    reward = [
        one + sum((weights[name] * g.reward[pair] for name, g in limits.items()), Fraction(0))
        for pair, one in enumerate(f.reward)
    ]
    dual = program.multipliers(reward, proof)
    bound = f.constant + sum((program.right[row] * y for row, y in dual.items()), Fraction(0))
    bound += sum((weights[name] * g.constant for name, g in limits.items()), Fraction(0))
    for index, name in enumerate(limits):
        dual[f"limit{index}"] = -weights[name]
    lines = [f"bound {bound}", *(f"{row} {number}" for row, number in dual.items())]
    return _mps(program, f, list(limits.values())), "\n".join(lines) + "\n"


def _mps(program: FlowProgram, f: LinearFunction, limits: list[LinearFunction]) -> str:
    lines = ["NAME cvxmdp", "ROWS", " N minus_f"]
    lines += [f" E {row}" for row in program.right]
    lines += [f" G limit{index}" for index in range(len(limits))]
    lines.append("COLUMNS")
    for column in program.columns:
        entries = {"minus_f": -f.reward[column.pair] * column.whole, **column.entries}
        for index, g in enumerate(limits):
            entries[f"limit{index}"] = g.reward[column.pair] * column.whole
        lines += [f" x{column.pair} {row} {_decimal(one)}" for row, one in entries.items()]
    right = {"minus_f": f.constant, **program.right}
    right |= {f"limit{index}": -g.constant for index, g in enumerate(limits)}
    lines += ["RHS", *(f" rhs {row} {_decimal(one)}" for row, one in right.items() if one)]
    return "\n".join([*lines, "ENDATA"]) + "\n"


def _decimal(number: Fraction) -> str:
    """A binary fraction as the decimal it is: n / 2^k = n 5^k / 10^k."""
    places = number.denominator.bit_length() - 1
    digits = number.numerator * 5**places
    return f"{digits}e-{places}" if places else str(digits)
