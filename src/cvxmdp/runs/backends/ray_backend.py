"""``Ray``: sweeps, frontiers and coverage sets by the workers of a cluster, with the bits of one machine.

The driver, which is the process that called, alone writes the folder, so machines need not share a disk. A set
of runs is computed by one worker in pieces of some seconds; after each, its state comes back and is written. So
a worker that dies costs the piece it was at, a driver that is killed no more than that for each worker, and
both go on with the same bits.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cvxmdp.base.blocks import own_cores
from cvxmdp.base.checkpoints import Checkpoints
from cvxmdp.base.errors import ExperienceError, SettingsError, require
from cvxmdp.base.progress import Progress
from cvxmdp.base.settings import whole
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Status
from cvxmdp.runs.backends.backend import Answer, Backend
from cvxmdp.runs.backends.ray_workers import Job, Piece, Workers, connected, working
from cvxmdp.runs.interruption import Stop
from cvxmdp.runs.lanes import Member
from cvxmdp.runs.run import asked_to_stop
from cvxmdp.runs.sweep_plan import SweepPlan

LOOK = 0.25  # seconds between two looks at the keyboard
ANY = 2**31  # workers


@dataclass(frozen=True)
class Ray(Backend):
    """A Ray cluster, for ``sweep``, ``frontier`` and ``pareto``: ``backend=Ray()``.

    A Ray that this process is connected to already (``ray.init(...)``) is used as it is.

    Attributes:
        address: of the cluster, as ``ray.init`` takes it: ``"auto"`` for the one of this machine,
            ``"ray://HOST:10001"`` from outside. None starts Ray on this machine, for as long as it is needed.
        workers: how many processes, of one core each; by default one for every core there is.
        gpus: of each worker, where the cluster has any; a share such as 0.5 is allowed.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole("workers", self.workers)
        if not isinstance(self.address, str | None):
            raise SettingsError(
                f"address is a text such as 'auto', or None to start Ray here; got {self.address!r}"
            )

    def cores(self) -> int:
        if self.workers is not None:
            return self.workers
        if self.address is None:
            return own_cores()
        with connected(self.address, None) as ray:
            return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def sweep(
        self,
        plan: SweepPlan,
        numbers: Sequence[int],
        place: Checkpoints | None,
        seconds: float,
        stop: Stop,
        line: Progress,
    ) -> tuple[list[Member], Status | None]:
        members = {number: plan.member(number) for number in numbers}
        if place is not None:
            for member in members.values():
                saved = place.load(member.name)
                if saved is not None:
                    member.restore(saved, partial(place.load, member.name))
        if all(member.finished for member in members.values()):
            return list(members.values()), None
        begin = working(self.address, self.workers, self.gpus, len(members))
        with begin(plan) as workers:
            stopped = _Sweeping(workers, members, place, seconds).drive(stop, line)
        return list(members.values()), stopped

    @contextmanager
    def answers(self, problem: Problem) -> Iterator[_Asking]:
        with working(self.address, self.workers, self.gpus, ANY)(_Answering(problem)) as workers:
            asking = _Asking(workers, problem)
            yield asking


class _Sweeping:
    """The sets of a sweep on their way through the workers."""

    def __init__(
        self,
        workers: Workers,
        members: dict[int, Member],
        place: Checkpoints | None,
        seconds: float,
    ) -> None:
        self.workers, self.members, self.place, self.seconds = workers, members, place, seconds
        open_ = (number for number, member in members.items() if not member.finished)
        self.waiting = deque(Job(number, "advance", ()) for number in open_)
        self.pieces = dict.fromkeys(members, 0)  # of each set, in this call
        self.progress = {number: member.progress for number, member in members.items()}

    def drive(self, stop: Stop, line: Progress) -> Status | None:
        """Until everything is done, or somebody asks for an end: then what is under way is waited for."""
        stopped = asked_to_stop(stop)
        while self.workers.busy or (self.waiting and stopped is None):
            while stopped is None and self.waiting and self.workers.idle:
                self._submit(self.waiting.popleft())
            for job, actor, piece, arrays in self.workers.collect(LOOK):
                if piece is None:
                    self.waiting.appendleft(job)
                else:
                    self._take(job, actor, piece, arrays, go_on=not stop.asked)
            line.update(round(sum(self.progress.values()), 1), str(self.workers))
            stopped = stopped or asked_to_stop(stop)
        return stopped if any(not member.finished for member in self.members.values()) else None

    def _submit(self, job: Job, actor: Any = None) -> None:
        """To a worker; with the state of the set, unless the worker has it."""
        member = self.members[job.key]
        state = member.saved() if actor is None and member.saved is not None else None
        arguments = (job.key, self.pieces[job.key], state, self.seconds)
        self.workers.submit(replace(job, arguments=arguments), actor)

    def _take(self, job: Job, actor: Any, piece: Piece, arrays: Any, go_on: bool) -> None:
        """The next piece goes to the same worker before this one is written: nobody waits for the disk."""
        number, member = job.key, self.members[job.key]
        self.pieces[number] += 1
        self.progress[number] = piece.progress
        if not piece.finished and go_on:
            self._submit(replace(job, deaths=0), actor)
        # What Ray gives is a window to its store, which would fill up: a copy, or the file.
        state = {name: array.copy() for name, array in self.workers.ray.get(arrays).items()}
        if piece.failed:
            member.failed = ExperienceError(piece.failed)
        if not state:  # settings that were refused: so they will be here
            member.begin()
        elif self.place is None:
            member.restore(state)
        else:
            self.place.save(member.name, state)
            member.restore(state, partial(self.place.load, member.name))


class _Answering:
    """In a worker: unpacks a question about the problem it keeps, and packs the answer.

    Neither has the model in it. Whatever of a problem is large stands in what is packed as a name, so that
    models travel once and answers, which know their problems, are small.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, packed: bytes) -> bytes:
        function, arguments = unpack(packed, self.problem)
        return pack(function(*arguments), self.problem)


def _large(problem: Problem) -> dict[str, Any]:
    """What two processes with the same problem both have."""
    found = {"source": problem.source}
    return found if problem.environment is not None else {**found, "flow": problem.mdp.flow}


def pack(value: Any, problem: Problem) -> bytes:
    """A value as bytes, without what is large in a problem."""
    names = {id(one): name for name, one in _large(problem).items()}
    file = io.BytesIO()

    class Packer(require("ray.cloudpickle", "ray").Pickler):  # type: ignore[misc]
        def persistent_id(self, one: Any) -> str | None:
            return names.get(id(one))

    Packer(file).dump(value)
    return file.getvalue()


def unpack(packed: bytes, problem: Problem) -> Any:
    """What ``pack`` was given, about this problem."""
    large = _large(problem)

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, name: str) -> Any:
            return large[name]

    return Unpacker(io.BytesIO(packed)).load()


@dataclass
class _Asking:
    """Questions on their way; see ``Answers``."""

    workers: Workers
    problem: Problem
    waiting: deque[Job] = field(default_factory=deque)
    found: dict[int, bytes] = field(default_factory=dict)
    count: int = 0

    @property
    def ahead(self) -> int:
        return len(self.workers.actors) - 1

    def ask(
        self, function: Callable[..., Answer], problem: Problem, *arguments: object
    ) -> Callable[[], Answer]:
        packed = pack((function, (problem, *arguments)), self.problem)
        job = Job(self.count, "call", (packed,))
        self.count += 1
        self.waiting.append(job)
        self._look(0.0)
        return partial(self._answer, job.key)

    def _answer(self, key: int) -> Any:
        while key not in self.found:
            self._look(LOOK)
        return unpack(self.found[key], self.problem)

    def _look(self, seconds: float) -> None:
        while self.waiting and self.workers.idle:
            self.workers.submit(self.waiting.popleft())
        for job, _, found, _ in self.workers.collect(seconds):
            if found is None:
                self.waiting.appendleft(job)
            else:
                self.found[job.key] = found
        while self.waiting and self.workers.idle:
            self.workers.submit(self.waiting.popleft())
