"""Lanes in processes of their own: simulators use all cores, and one that hangs can be ended.

A process is a fresh Python that imports no more than it needs, and gets the maker of environments by value
(cloudpickle): scripts need no guard around their main part, and nothing is forked. It answers lane by lane, so
that whoever waits knows which lane it is waiting for.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from cvxmdp.base.errors import require
from cvxmdp.experience.environments.side_by_side import (
    RINGS,
    ImpatientError,
    Several,
    SideBySide,
)

START_SECONDS = 120.0  # for a process to begin and to make its environments
SIZE = struct.Struct("<Q")
COMMAND = "from cvxmdp.experience.environments.processes import serve; serve()"


class InProcesses(SideBySide):
    """``n`` environments made alike, in ``workers`` processes.

    Args:
        make: makes one; anything that cloudpickle can take, lambdas included.
        n: lanes.
        workers: processes, at most one per lane.
        seconds: that a reset or a step of one lane may take; then its process is ended.
    """

    def __init__(self, make: Callable[[], Any], n: int, workers: int, seconds: float) -> None:
        super().__init__(n)
        self.example = Several(make, 1)  # never played: it tells what the others are like
        self.adopt(self.example.envs[0])
        self.seconds = seconds
        self.workers: list[_Worker] = []
        workers = min(workers, n)
        self.owner = [k * workers // n for k in range(n)]
        try:
            for number in range(workers):
                self.workers.append(_Worker(make, self.owner.count(number)))
            for worker in self.workers:
                worker.answer(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def resetting(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Any]:
        """What ``reset`` gives in these lanes."""
        return self._asked("reset", lanes, seeds)

    def stepping(self, lanes: Sequence[int], actions: Sequence[Any]) -> list[Any]:
        """What ``step`` gives in these lanes."""
        return self._asked("step", lanes, actions)

    def _asked(self, what: str, lanes: Sequence[int], given: Sequence[Any]) -> list[Any]:
        for number, worker in enumerate(self.workers):
            own = [
                (lane - self.owner.index(number), one)
                for lane, one in zip(lanes, given, strict=True)
                if self.owner[lane] == number
            ]
            if own:
                worker.ask((what, own))
        answers = []
        for lane in lanes:  # in the order in which every process answers
            self.lane = lane
            answers.append(self.workers[self.owner[lane]].answer(self.seconds))
        return answers

    def close(self) -> None:
        self.example.close()
        for worker in self.workers:
            worker.end()


class _Worker:
    """A process and the way to talk to it."""

    def __init__(self, make: Callable[[], Any], lanes: int) -> None:
        package = str(Path(__file__).parents[3])
        paths = os.pathsep.join([package, *(path for path in sys.path if path)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.ask((require("cloudpickle", "gym").dumps(make), lanes))

    def ask(self, question: Any) -> None:
        assert self.process.stdin is not None
        try:
            _send(self.process.stdin, question)
        except (BrokenPipeError, ValueError) as error:
            raise RuntimeError("the process of this lane has ended") from error

    def answer(self, seconds: float) -> Any:
        """The next answer; an error where it is one, and where none comes in time."""
        assert self.process.stdout is not None
        failed, value = _receive(self.process.stdout, time.monotonic() + seconds, seconds)
        if failed:
            raise value
        return value

    def end(self) -> None:
        """Whether it answers or not."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


def _send(pipe: IO[bytes], message: Any) -> None:
    content = require("cloudpickle", "gym").dumps(message)
    pipe.write(SIZE.pack(len(content)) + content)
    pipe.flush()


def _receive(pipe: IO[bytes], until: float, seconds: float) -> Any:
    size = SIZE.unpack(_bytes(pipe, SIZE.size, until, seconds))[0]
    return pickle.loads(_bytes(pipe, size, until, seconds))


def _bytes(pipe: IO[bytes], count: int, until: float, seconds: float) -> bytes:
    """So many bytes, by a time of the clock; a process that was stopped meanwhile looks once more."""
    found = bytearray()
    while len(found) < count:
        left = max(until - time.monotonic(), seconds / RINGS)
        if not select.select([pipe], [], [], left)[0]:
            raise ImpatientError(f"no answer within {seconds:g} seconds")
        part = os.read(pipe.fileno(), count - len(found))
        if not part:
            raise RuntimeError("the process of this lane has ended")
        found += part
    return bytes(found)


def serve() -> None:
    """What a process does: make environments, then answer until nobody asks any more."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what simulators print is no answer
    content, lanes = _wait(questions)
    try:
        several = Several(pickle.loads(content), lanes)
        _send(answers, (False, None))
    except Exception as error:
        _send(answers, (True, _sendable(error)))
        return
    work = {"reset": several.reset_one, "step": several.step_one}
    while True:
        try:
            what, given = _wait(questions)
        except EOFError:
            return
        for lane, argument in given:
            try:
                reply = (False, work[what](lane, argument))
            except Exception as error:
                reply = (True, _sendable(error))
            _send(answers, reply)


def _wait(questions: IO[bytes]) -> Any:
    head = questions.read(SIZE.size)
    if len(head) < SIZE.size:
        raise EOFError
    return pickle.loads(questions.read(SIZE.unpack(head)[0]))


def _sendable(error: Exception) -> Exception:
    """The error, or one with its words where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
