"""Many runs at once: as lanes of one program where a solver has one, by threads, or both.

On an accelerator all runs of a group are lanes. On a CPU a batched program gains while its tables are small
and loses when they are not (docs/sweeps.md has the measurement): there a few runs are lanes, and threads take
one set of lanes after the other on all cores. Bits depend on the number of lanes alone, which is recorded; with
one lane they are those of ``solve``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpError, ExperienceError
from cvxmdp.base.saved_trees import Arrays, letters, text_of
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.axes import Case
from cvxmdp.runs.run import Run
from cvxmdp.runs.specification import this_machine
from cvxmdp.solvers.contract import Work

FINISHED, MACHINES = "finished", "machines"  # what a checkpoint says beside the state of the run


class Member:
    """Runs of one or more cases that are advanced together: lanes of one program, or a single run.

    Args:
        cases: what is run.
        prepare: makes the work, when it is first needed; an error about a case's settings is its answer.
    """

    def __init__(self, cases: Sequence[Case], prepare: Callable[[], Work[Any]]) -> None:
        self.cases, self.prepare = cases, prepare
        self.name = f"runs-{cases[0].index:05d}"  # of its checkpoint
        self.run: Run | None = None
        self.refused: CvxmdpError | None = None
        self.failed: ExperienceError | None = None  # of a simulator, on another machine
        self.saved: Callable[[], Arrays | None] | None = None  # a state that is not taken up yet
        self.share = 0.0  # of the work that is done in that state
        self.machines: set[str] = set()  # that had a part in it

    def begin(self) -> None:
        """Prepare the run, unless that is done; go on from the state that was saved of it."""
        if self.run is not None or self.refused is not None:
            return
        try:
            run = Run(self.prepare())
        except CvxmdpError as error:
            self.refused = error
            return
        arrays = None if self.saved is None else self.saved()
        if arrays is not None:
            run.restore(arrays)
        run.error = run.error or self.failed
        self.run, self.saved = run, None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        if self.run is None:
            return self.refused is not None or self.share >= 1.0
        return self.run.finished

    @property
    def progress(self) -> float:
        """How many runs' worth of work is done."""
        if self.run is None:
            return len(self.cases) * (1.0 if self.finished else self.share)
        return len(self.cases) * self.run.progress

    def advance(self) -> None:
        """One piece; an error ends these runs alone."""
        self.begin()
        if self.run is not None:
            self.run.attempt()

    def dump(self) -> Arrays:
        """Everything that is needed to go on; nothing of what has not begun."""
        if self.run is None:
            return {}
        # A simulator that failed may work next time.
        done = self.run.finished and not isinstance(self.run.error, ExperienceError)
        self.machines.add(this_machine())
        machines = letters("\n".join(sorted(self.machines)))
        return {**self.run.dump(), FINISHED: np.array(done), MACHINES: machines}

    def restore(self, arrays: Arrays, again: Callable[[], Arrays | None] | None = None) -> None:
        """Take up a state when it is needed.

        Args:
            arrays: that ``dump`` gave.
            again: reads them once more, where they need not be kept in memory until then.
        """
        self.share = float(arrays[FINISHED]) if FINISHED in arrays else 0.0
        self.machines |= set(text_of(arrays.get(MACHINES, letters(""))).split("\n")) - {""}
        self.saved = again or (lambda: arrays)

    def solution(self, place: int) -> Solution:
        """The answer of one case."""
        self.begin()
        if self.run is None:
            problem = self.cases[place].problem
            return Solution.without_policy(problem, Status.FAILED, message=str(self.refused))
        return self.run.solution(place=place)


class Group:
    """Members advanced by threads, one core each."""

    def __init__(self, members: Sequence[Member], threads: int) -> None:
        self.members, self.threads, self.compiled = list(members), threads, False

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
