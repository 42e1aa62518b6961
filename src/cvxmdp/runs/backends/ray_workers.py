"""The workers of a Ray cluster: actors that keep what is large, restarted when they die.

A worker is one process with one core. What all of them need (a plan with its models, a model) is put into Ray's
object store once; every machine fetches it once, and the workers there read the same memory. Compiled programs
stay in a worker while it lives and in the cache of its machine (``compilation_cache``) for all that follow.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import ExperienceError, SettingsError, SolverError, require
from cvxmdp.base.program_cache import compilation_cache
from cvxmdp.base.saved_trees import Arrays
from cvxmdp.runs.lanes import Member
from cvxmdp.runs.sweep_plan import SweepPlan

PATIENCE = 10.0  # seconds, with an address where nobody answers
MOST_DEATHS = 3  # of workers in a row on one task, after which it is the task's fault


class Piece(NamedTuple):
    """What a worker says of a set that it advanced.

    Attributes:
        finished: whether it is done.
        progress: how many runs' worth of it is.
        seconds: that went into it so far.
        failed: what a simulator failed with.
    """

    finished: bool
    progress: float
    seconds: float
    failed: str


class Worker:
    """One process of the cluster."""

    def __init__(self) -> None:
        compilation_cache()
        self.shared: Any = None
        self.live: tuple[int, int, Member] | None = None  # set, pieces of it, and where it is

    def hello(self, shared: Any) -> str:
        """Keep what every worker needs: a plan, or a function of what is asked. Returns the machine's name."""
        self.shared = shared
        return os.uname().nodename

    def advance(
        self, number: int, pieces: int, arrays: Arrays | None, seconds: float
    ) -> tuple[Piece, Arrays]:
        """A set of the plan by some seconds; ``arrays`` is its state after so many pieces, where needed."""
        plan: SweepPlan = self.shared
        if self.live is None or self.live[:2] != (number, pieces):
            let_go()
            self.live = number, pieces, plan.member(number)
            if arrays is not None:
                self.live[2].restore(arrays)
        member, end = self.live[2], time.perf_counter() + seconds
        member.advance()
        while not member.finished and time.perf_counter() < end:
            member.advance()
        self.live = number, pieces + 1, member
        run = member.run
        seconds, error = (0.0, None) if run is None else (run.seconds, run.error)
        failed = str(error) if isinstance(error, ExperienceError) else ""
        return Piece(member.finished, member.progress, seconds, failed), member.dump()

    def call(self, packed: bytes) -> bytes:
        """The answer to a question, as ``ray_backend`` packs both."""
        answered: bytes = self.shared(packed)
        return answered


@dataclass
class Job:
    """One call of a worker.

    Attributes:
        key: what the driver knows it by.
        method: of ``Worker``.
        arguments: of it.
        deaths: how many workers died of it so far.
    """

    key: Any
    method: str
    arguments: tuple[Any, ...]
    deaths: int = 0


class Workers:
    """Actors, the idle and the busy ones.

    Args:
        ray: the package.
        shared: see ``Worker``.
        count: of actors.
        gpus: of each.
    """

    def __init__(self, ray: Any, shared: Any, count: int, gpus: float) -> None:
        self.ray, self.lost = ray, 0
        actor = ray.remote(Worker).options(num_cpus=1, num_gpus=gpus, max_restarts=-1)
        self.shared = _put(ray, shared)
        self.actors = [actor.remote() for _ in range(count)]
        self.joining = {one.hello.remote(self.shared): one for one in self.actors}
        self.idle: list[Any] = []
        # By the first result: actor, job, the other result.
        self.busy: dict[Any, tuple[Any, Job, Any]] = {}
        self.machines: dict[Any, str] = {}

    def submit(self, job: Job, actor: Any = None) -> None:
        """Give a job to a worker: an idle one, or that which just did the one before."""
        if actor is None:
            actor = self.idle.pop()
        else:
            self.idle.remove(actor)
        method = getattr(actor, job.method)
        if job.method == "advance":
            method = method.options(num_returns=2)
        found = method.remote(*job.arguments)
        first, rest = (found[0], found[1]) if isinstance(found, list) else (found, None)
        self.busy[first] = actor, job, rest

    def collect(self, seconds: float) -> Iterator[tuple[Job, Any, Any, Any]]:
        """What was done within some seconds: job, actor, and both results; None for those of a dead worker."""
        waiting = [*self.busy, *self.joining]
        ready, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
        if not ready:
            ready, _ = self.ray.wait(waiting, num_returns=1, timeout=seconds)
        for reference in ready:
            if reference in self.joining:
                self._join(reference)
                continue
            actor, job, rest = self.busy.pop(reference)
            try:
                found = self.ray.get(reference)
            except self.ray.exceptions.RayActorError as error:
                self._died(actor, job, error)
                yield job, None, None, None
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            else:
                self.idle.append(actor)
                yield job, actor, found, rest

    def _join(self, reference: Any) -> None:
        actor = self.joining.pop(reference)
        try:
            self.machines[actor] = self.ray.get(reference)
            self.idle.append(actor)
        except self.ray.exceptions.RayActorError:  # it died before it was up; Ray starts it again
            self.joining[actor.hello.remote(self.shared)] = actor

    def _died(self, actor: Any, job: Job, error: Exception) -> None:
        self.lost += 1
        job.deaths += 1
        self.machines.pop(actor, None)
        if job.deaths >= MOST_DEATHS:
            raise SolverError(
                f"{job.deaths} workers in a row died at the same task ({job.key}). Out of memory? Fewer "
                f"workers to a machine, or fewer lanes, need less. Ray says: {error}"
            ) from error
        self.joining[actor.hello.remote(self.shared)] = actor  # Ray starts it again

    def __str__(self) -> str:
        lost = f", {self.lost} died" if self.lost else ""
        names = set(self.machines.values())
        machines = f" on {len(names)} machines" if len(names) > 1 else ""
        return f"{len(self.busy)} of {len(self.actors)} workers busy{machines}{lost}"

    def end(self) -> None:
        """Give the workers back."""
        for actor in self.actors:
            self.ray.kill(actor)


def _put(ray: Any, shared: Any) -> Any:
    try:
        return ray.put(shared)
    except Exception as error:  # whatever a user's object raises when it is pickled
        reason = str(error.__cause__ or error).splitlines()[0]
        raise SolverError(
            f"this cannot be sent to other processes: {reason}. Environments, functions and solvers must be "
            "ones that Python can pickle; without backend= there is no such need."
        ) from error


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Any]:
    """Ray, connected to a cluster or started on this machine; one that is in use already is left as it is."""
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        _reachable(address)
        if address is None:
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            # "local": never a cluster that happens to run here. A dashboard would be a server of its own.
            ray.init("local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(
            f"there is no Ray cluster at {address!r}: {error}. `ray start --head` starts one and says its "
            "address; without an address, Ray is started on this machine."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _reachable(address: str | None) -> None:
    """An error where nobody listens at HOST:PORT: Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), PATIENCE).close()


def working(address: str | None, count: int | None, gpus: float, most: int) -> Callable[[Any], Any]:
    """A context manager of ``Workers`` for something shared; at most ``most`` of them."""

    @contextmanager
    def begin(shared: Any) -> Iterator[Workers]:
        with connected(address, count) as ray:
            there = int(ray.cluster_resources().get("CPU", 1))
            workers = Workers(ray, shared, max(1, min(count or there, most)), gpus)
            try:
                yield workers
            finally:
                workers.end()

    return begin
