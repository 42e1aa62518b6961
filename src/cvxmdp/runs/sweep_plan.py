"""What a sweep computes: its cases, in sets that are advanced together; the same for whoever computes them.

A set is some lanes of one program, or a single run. Bits depend on the number of lanes alone, so sets can be
computed in any order, in any process and on any machine of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.problems.problem import Problem
from cvxmdp.runs.axes import Case
from cvxmdp.runs.lanes import Member
from cvxmdp.solvers.contract import Task, Work

ALONE = -1  # the program of runs that share none


@dataclass(frozen=True)
class LaneSet:
    """Cases that are advanced together.

    Attributes:
        cases: their places in the plan.
        width: lanes of the program; the last ones may be idle.
        program: a number that sets of one compiled program have in common; ``ALONE`` where there is none.
    """

    cases: tuple[int, ...]
    width: int
    program: int


@dataclass
class SweepPlan:
    """The sets of a sweep. It travels to other processes as it is, without what was prepared here."""

    cases: Sequence[Case]
    start: Any
    rows: int
    lanes: int
    works: dict[int, Work[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alike: dict[Any, list[int]] = {}
        others: list[int] = []
        for place, work in self._prepared(range(len(self.cases))):
            if work is not None and work.program is not None:
                alike.setdefault(work.program, []).append(place)
            else:
                others.append(place)
        self.programs = len(alike)
        self.sets = [LaneSet((place,), 1, ALONE) for place in others]
        for program, places in enumerate(alike.values()):
            width = min(self.lanes, len(places))
            starts = range(0, len(places), width)
            self.sets += [LaneSet(tuple(places[k : k + width]), width, program) for k in starts]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "works": {}}

    def member(self, number: int) -> Member:
        """A set, to be advanced."""
        one = self.sets[number]
        return Member([self.cases[place] for place in one.cases], partial(self._work, one))

    def _work(self, one: LaneSet) -> Work[Any]:
        works = []
        for place, work in self._prepared(one.cases):
            works.append(work or self.cases[place].solver.prepare(self._task(self.cases[place])))
        if one.width == 1:
            return works[0]
        # The last lanes are filled up: bits depend on the width.
        filled = [*works, *works[-1:] * (one.width - len(works))]
        together = filled[0].batch(filled[1:])
        assert together is not None  # their programs are equal
        return together

    def _prepared(self, places: Sequence[int]) -> Iterator[tuple[int, Work[Any] | None]]:
        """The work of cases whose solver has lanes; those that differ in their seed alone share the rest."""
        made: dict[Any, Work[Any]] = {}
        for place in places:
            case = self.cases[place]
            if not case.solver.has_lanes:
                yield place, None
                continue
            key = (id(case.problem), *((name, id(v)) for name, v in case.settings.items()))
            if place not in self.works:
                task, like = self._task(case), made.get(key)
                fresh = case.solver.prepare(task) if like is None else like.reseeded(task)
                self.works[place] = fresh
            made.setdefault(key, self.works[place])
            yield place, self.works[place]

    def _task(self, case: Case) -> Task:
        return Task(case.problem, self.start, case.seed, rows=self.rows)


def is_played(problem: Problem) -> bool:
    """Whether there is one simulator, outside of compiled code, that all runs must take turns with."""
    environment = environment_of(problem)
    return environment is not None and not environment.compiled
