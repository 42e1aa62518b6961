"""A solver made of another: the same run from the same start, again with more or less pessimism.

Its state is the try that is under way and the one worth returning so far. ``zero_violation`` and
``confident`` say which try comes next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.base.saved_trees import Plain
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Work

STATUSES = list(Status)  # files have their places in this list


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
