"""A run: the one loop that drives every solver.

The work iterates (``solvers.contract``); the run owns what is around it: the clock, Ctrl-C, the progress line,
checkpoints, and the records on their way to a history. What changes numbers or a status is decided by counts of
iterations; the clock decides only how long a piece is and when a file is written. So terminals, pieces and
kills change no bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from cvxmdp.base.checkpoints import Checkpoints
from cvxmdp.base.errors import CvxmdpError, ExperienceError
from cvxmdp.base.progress import Progress
from cvxmdp.base.saved_trees import Arrays, Plain, from_arrays, to_arrays
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.interruption import Stop
from cvxmdp.solvers.contract import Batch, Rows, Work

PIECE_SECONDS = 0.25  # of work between two looks at keyboard and clock
CHECKPOINT_SECONDS = 5.0  # between checkpoints
WRITING_SHARE = 0.05  # of the time, that goes into checkpoints, at most


# What ended a run before its time: the same call goes on.
STOPPED = (Status.INTERRUPTED, Status.TIME_LIMIT)


class Run:
    """Work on its way.

    Args:
        work: what is driven.
        seconds: that went into it before.
    """

    def __init__(self, work: Work[Any], seconds: float = 0.0) -> None:
        self.work, self.seconds = work, seconds
        self.state: Any = None  # before ``begin``
        self.pieces: list[Rows] = []
        self.ended: Status | None = None
        self.error: CvxmdpError | None = None
        self.note = ""
        self.piece = 1  # iterations
        self.watch: Callable[[int, int, Rows], None] | None = None  # is shown records as they come

    def begin(self) -> None:
        """Make the first state, unless there is one."""
        if self.state is None:
            started = time.perf_counter()
            self.state = self.work.first()
            self.seconds += time.perf_counter() - started

    @property
    def count(self) -> int:
        """How many runs these are: the lanes of a batch."""
        return len(self.work.members) if isinstance(self.work, Batch) else 1

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        if self.ended is not None or self.error is not None:
            return True
        if self.state is None:
            return False
        done, total = self.work.where(self.state)
        return done >= total

    @property
    def progress(self) -> float:
        """The share of the work that is done."""
        if self.state is None or self.finished:
            return float(self.finished)
        done, total = self.work.where(self.state)
        return done / total

    def advance(self) -> None:
        """One piece, never across an iteration at which the state is judged."""
        self.begin()
        work, (done, _) = self.work, self.work.where(self.state)
        mark = work.mark(self.state)
        wanted = -(-(done + min(self.piece, work.longest)) // work.grain) * work.grain
        until, started = min(wanted, mark), time.perf_counter()
        # Nothing is taken over before everything is known: an error leaves the run where it was.
        state, rows = work.advance(self.state, until)
        self.state = state
        if rows:
            self.pieces.append(rows)
            if self.watch is not None:
                self.watch(done, until, rows)
        seconds = time.perf_counter() - started
        # The first piece compiles, and so says little of how long an iteration takes; the second does.
        self.piece = max(1, int((until - done) * PIECE_SECONDS / max(seconds, 1e-9)))
        if until == mark:
            judgement = work.judge(state)
            self.note, self.ended = judgement.note, judgement.ended
        self.seconds += time.perf_counter() - started

    def attempt(self) -> None:
        """One piece; an error ends this run alone."""
        try:
            self.advance()
        except CvxmdpError as error:
            self.error = error

    def rows(self) -> Rows:
        if len(self.pieces) > 1:
            axis = int(isinstance(self.work, Batch))
            names = self.pieces[0]
            self.pieces = [
                {n: np.concatenate([piece[n] for piece in self.pieces], axis) for n in names}
            ]
        return self.pieces[0] if self.pieces else {}

    def dump(self) -> Arrays:
        """Everything that is needed to go on with the same bits."""
        self.begin()
        # A simulator that failed may work next time; any other error would come again.
        broken = self.error is not None and not isinstance(self.error, ExperienceError)
        facts = Plain(
            seconds=self.seconds,
            ended=None if self.ended is None else self.ended.name,
            error=[type(self.error).__name__, str(self.error)] if broken else None,
            note=self.note,
            rows=self.rows(),
        )
        return to_arrays({"run": facts, "state": self.state})

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``dump`` gave; an error, and nothing changed, where it does not fit."""
        self.begin()
        found = from_arrays(arrays, {"run": Plain(), "state": self.state})
        facts = found["run"]
        self.state, self.seconds, self.note = found["state"], facts["seconds"], facts["note"]
        ended = None if facts["ended"] is None else Status[facts["ended"]]
        self.ended = None if ended in STOPPED else ended
        self.error = None if facts["error"] is None else CvxmdpError(facts["error"][1])
        self.pieces = [facts["rows"]] if facts["rows"] else []

    def status(self, stopped: Status = Status.INTERRUPTED) -> Status:
        """How the run ended, or why it did not."""
        if self.ended is not None:
            return self.ended
        return Status.ITERATION_LIMIT if self.finished else stopped

    def solution(self, stopped: Status = Status.INTERRUPTED, place: int = 0) -> Solution:
        """The answer from what there is.

        Args:
            stopped: the status of a run that is not finished.
            place: of the lane, in a batch.
        """
        started = time.perf_counter()
        self.begin()
        work, state, rows, broken = self.work, self.state, self.rows(), ""
        if isinstance(work, Batch):
            state, rows, broken = work.lane(state, rows, place)
            work = work.members[place]
        if self.error is not None or broken:
            return self._failed(work, state, rows, broken or str(self.error))
        found = work.finish(state, rows, self.status(stopped))
        seconds = self.seconds / self.count + time.perf_counter() - started
        return replace(found, stats={**found.stats, "seconds": seconds})

    def _failed(self, work: Work[Any], state: Any, rows: Rows, message: str) -> Solution:
        """After an environment failed, what was learned before; after any other error, nothing."""
        if isinstance(self.error, ExperienceError) and work.where(state)[0]:
            found = work.finish(state, rows, Status.FAILED)
            stats = {**found.stats, "seconds": self.seconds}
            return replace(found, message=f"{message} {found.message}", stats=stats)
        return Solution.without_policy(work.problem, Status.FAILED, message=message)


class Driven(Protocol):
    """What ``drive`` advances: a run, or several at once."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        ...

    def advance(self) -> None:
        """One piece."""
        ...


class Saved(Protocol):
    """What has a checkpoint of its own."""

    @property
    def finished(self) -> bool:
        """Whether it will not change any more."""
        ...

    def dump(self) -> Arrays:
        """Everything that is needed to go on; nothing of what has not begun."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        ...


class Keeper:
    """Writes checkpoints now and then: as often as was asked, unless writing takes too long for that.

    Args:
        place: where.
        parts: what is written, by the name of its file.
        seconds: between two checkpoints, at least.
    """

    def __init__(
        self, place: Checkpoints, parts: Mapping[str, Saved], seconds: float | None = None
    ) -> None:
        self.place, self.parts = place, parts
        self.seconds = CHECKPOINT_SECONDS if seconds is None else seconds
        self.due = time.perf_counter() + self.seconds
        self.complete: set[str] = set()  # parts that are finished, and written

    def take_up(self) -> None:
        """Go on from the checkpoints there are."""
        for name, part in self.parts.items():
            saved = self.place.load(name)
            if saved is not None:
                part.restore(saved)
                self.complete |= {name} if part.finished else set()

    def look(self, at_once: bool = False) -> None:
        """Write, if it is time to."""
        started = time.perf_counter()
        if not at_once and started < self.due:
            return
        for name, part in self.parts.items():
            arrays = {} if name in self.complete else part.dump()
            if arrays:
                self.place.save(name, arrays)
                self.complete |= {name} if part.finished else set()
        ended = time.perf_counter()
        self.due = ended + max(self.seconds, (ended - started) / WRITING_SHARE)


def drive(
    driven: Driven,
    stop: Stop,
    line: Progress,
    show: Callable[[Progress], None],
    keeper: Keeper | None = None,
    deadline: float = math.inf,
) -> Status | None:
    """Advance until nothing is left to do, or somebody or the clock asks for an end.

    Args:
        driven: a run, or several.
        stop: Ctrl-C.
        line, show: the progress line, and what is said on it.
        keeper: of the checkpoints, where there are any.
        deadline: by ``time.perf_counter``.

    Returns:
        What ended it before its time, or None.
    """
    stopped = asked_to_stop(stop, deadline)
    try:
        while not driven.finished and stopped is None:
            driven.advance()
            show(line)
            if keeper is not None and not driven.finished:
                keeper.look()
            stopped = asked_to_stop(stop, deadline)
    except (ExperienceError, KeyboardInterrupt):  # the second Ctrl-C
        if keeper is not None:
            keeper.look(at_once=True)
        raise
    if keeper is not None:
        keeper.look(at_once=True)
    return None if driven.finished else stopped


def asked_to_stop(stop: Stop, deadline: float = math.inf) -> Status | None:
    """The status of a run that has to end now, or None."""
    if stop.asked:
        return Status.INTERRUPTED
    return Status.TIME_LIMIT if time.perf_counter() >= deadline else None
