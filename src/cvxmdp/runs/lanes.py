"""Many runs at once: as lanes of one program where a solver has one, by threads, or both.

On an accelerator all runs of a group are lanes. On a CPU a batched program gains while its tables are small
and loses when they are not (docs/sweeps.md has the measurement): there a few runs are lanes, and threads take
one set of lanes after the other on all cores. Bits depend on the number of lanes alone, which is recorded; with
one lane they are those of ``solve``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError
from cvxmdp.base.saved_trees import Arrays
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.axes import Case
from cvxmdp.runs.run import Run
from cvxmdp.solvers.contract import Work


class Member:
    """Runs of one or more cases that are advanced together: lanes of one program, or a single run.

    Args:
        cases: what is run.
        prepare: makes the work, when it is first needed; an error about a case's settings is its answer.
    """

    def __init__(self, cases: Sequence[Case], prepare: Callable[[], Work[Any]]) -> None:
        self.cases, self.prepare = cases, prepare
        self.run: Run | None = None
        self.refused: CvxmdpError | None = None

    def begin(self) -> None:
        """Prepare the run, unless that is done."""
        if self.run is None and self.refused is None:
            try:
                self.run = Run(self.prepare())
            except CvxmdpError as error:
                self.refused = error

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.refused is not None or (self.run is not None and self.run.finished)

    @property
    def progress(self) -> float:
        """How many runs' worth of work is done."""
        share = float(self.finished) if self.run is None else self.run.progress
        return len(self.cases) * share

    def advance(self) -> None:
        """One piece; an error ends these runs alone."""
        self.begin()
        if self.run is not None:
            self.run.attempt()

    def dump(self) -> Arrays:
        """Everything that is needed to go on; nothing of what has not begun."""
        return {} if self.run is None else self.run.dump()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        if arrays:
            self.begin()
        if arrays and self.run is not None:
            self.run.restore(arrays)

    def solution(self, place: int) -> Solution:
        """The answer of one case."""
        self.begin()
        if self.run is None:
            problem = self.cases[place].problem
            return Solution.without_policy(problem, Status.FAILED, message=str(self.refused))
        return self.run.solution(place=place)


class Group:
    """Members advanced by threads, one core each, between two checkpoints."""

    def __init__(self, members: Sequence[Member], threads: int) -> None:
        self.members, self.threads, self.compiled = list(members), threads, False
        self.cases = [case for member in members for case in member.cases]
        self._places = [(m, place) for m in self.members for place in range(len(m.cases))]

    @property
    def finished(self) -> bool:
        return all(member.finished for member in self.members)

    @property
    def progress(self) -> float:
        """How many runs' worth of work is done."""
        return sum(member.progress for member in self.members)

    def advance(self) -> None:
        """Each unfinished member by a piece; at first one alone, so that it compiles for all."""
        waiting = [member for member in self.members if not member.finished]
        if not self.compiled or len(waiting) == 1:
            waiting.pop(0).advance()
            self.compiled = True
        if not waiting:
            return
        pool = ThreadPoolExecutor(self.threads)
        try:
            for done in [pool.submit(member.advance) for member in waiting]:
                done.result()
        finally:  # also when interrupted: what has begun ends, what has not is left
            pool.shutdown(cancel_futures=True)

    def dump(self) -> Arrays:
        """Every member's own arrays under its number."""
        return {
            f"{place}/{name}": array
            for place, member in enumerate(self.members)
            for name, array in member.dump().items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Every member from its own arrays."""
        for place, member in enumerate(self.members):
            mine = f"{place}/"
            member.restore({k[len(mine) :]: v for k, v in arrays.items() if k.startswith(mine)})

    def solution(self, place: int) -> Solution:
        member, inside = self._places[place]
        return member.solution(inside)
