"""The backend of one process: sets of lanes on threads, questions when their answers are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from cvxmdp.base.blocks import own_cores
from cvxmdp.base.checkpoints import Checkpoints
from cvxmdp.base.compiling import let_go
from cvxmdp.base.progress import Progress
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Status
from cvxmdp.runs.backends.backend import Answer, Backend
from cvxmdp.runs.interruption import Stop
from cvxmdp.runs.lanes import Group, Member
from cvxmdp.runs.run import Keeper, asked_to_stop, drive
from cvxmdp.runs.sweep_plan import SweepPlan, is_played

GROUP = 64  # runs that threads compute together


class ThisProcess(Backend):
    """This process."""

    ahead = 0

    def cores(self) -> int:
        return own_cores()

    def sweep(
        self,
        plan: SweepPlan,
        numbers: Sequence[int],
        place: Checkpoints | None,
        seconds: float,
        stop: Stop,
        line: Progress,
    ) -> tuple[list[Member], Status | None]:
        members: list[Member] = []
        before, stopped = 0.0, asked_to_stop(stop)
        for group in self._groups(plan, numbers):
            let_go()
            members += group.members
            keeper = None
            if place is not None:
                keeper = Keeper(place, {member.name: member for member in group.members}, seconds)
                keeper.take_up()

            def show(line: Progress, before: float = before, group: Group = group) -> None:
                line.update(round(before + group.progress, 1))

            if stopped is None:
                stopped = drive(group, stop, line, show, keeper)
            before += sum(len(member.cases) for member in group.members)
        return members, stopped

    def _groups(self, plan: SweepPlan, numbers: Sequence[int]) -> Iterator[Group]:
        """Sets of one program together: the first compiles for all."""
        threads = 1 if is_played(plan.cases[0].problem) else self.cores()
        for _, alike in groupby(numbers, key=lambda number: plan.sets[number].program):
            wanted = list(alike)
            together = max(threads, GROUP // plan.sets[wanted[0]].width)
            for k in range(0, len(wanted), together):
                yield Group([plan.member(n) for n in wanted[k : k + together]], threads)

    @contextmanager
    def answers(self, problem: Problem) -> Iterator[ThisProcess]:
        yield self

    def ask(
        self, function: Callable[..., Answer], problem: Problem, *arguments: object
    ) -> Callable[[], Answer]:
        return lambda: function(problem, *arguments)
