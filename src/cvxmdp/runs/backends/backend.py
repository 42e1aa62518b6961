"""What a backend is given and gives: it knows sets of runs and questions, and no solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from cvxmdp.base.checkpoints import Checkpoints
from cvxmdp.base.progress import Progress
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Status
from cvxmdp.runs.interruption import Stop
from cvxmdp.runs.lanes import Member
from cvxmdp.runs.sweep_plan import SweepPlan

Answer = TypeVar("Answer")


class Answers(Protocol):
    """Questions about one problem, some of them asked before it is known whether they matter."""

    @property
    def ahead(self) -> int:
        """How many questions are worth asking ahead of the one whose answer is needed."""
        ...

    def ask(
        self, function: Callable[..., Answer], problem: Problem, *arguments: object
    ) -> Callable[[], Answer]:
        """``function(problem, *arguments)``, when it is called for."""
        ...


class Backend(Protocol):
    """Where things are computed."""

    def cores(self) -> int:
        """How many runs can be computed at once."""
        ...

    def sweep(
        self,
        plan: SweepPlan,
        numbers: Sequence[int],
        place: Checkpoints | None,
        seconds: float,
        stop: Stop,
        line: Progress,
    ) -> tuple[list[Member], Status | None]:
        """Compute sets of a plan.

        Args:
            plan: of the sweep.
            numbers: of the sets that are wanted.
            place: of the checkpoints, where there are any; what is there is not computed again.
            seconds: between two checkpoints of a set, at least.
            stop: Ctrl-C.
            line: the progress line.

        Returns:
            The sets, and what ended the work before its time, or None.
        """
        ...

    def answers(self, problem: Problem) -> AbstractContextManager[Answers]:
        """Questions about a problem."""
        ...
