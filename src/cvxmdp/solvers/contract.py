"""What a solver is: settings that make work of a task, which a run then drives.

A solver is a frozen dataclass of settings. ``prepare`` reads the task once, and errors about settings come
there. The work says how to begin, how to go on, and what to make of any state; it keeps no state of its own, so
that a run can be stopped anywhere and continued from a file with the same bits (``runs.run``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from cvxmdp.base.errors import SolverError
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status

State = TypeVar("State")
Rows = Mapping[str, np.ndarray]  # records by name, one entry for every recorded iteration
MOST_ROWS = 10_000  # of a history: longer runs record every second iteration, every third, ...
GRADIENTS = "A policy gradient"  # as errors call those who follow one


def unlimited() -> float:
    """The seconds left where nobody counts them."""
    return np.inf


def require_gradients(problem: Problem) -> None:
    """An error where there are no policy gradients: for the horizon, the actions, or endless stays."""
    _require_episodes(problem, problem.space.horizon.gradients, GRADIENTS)
    require_listed_actions(problem, "This learner")


def require_stationary(problem: Problem, who: str = GRADIENTS) -> None:
    """The same, and where policies have to depend on time."""
    _require_episodes(problem, problem.space.horizon.stationary, who)


def _require_episodes(problem: Problem, reason: str, who: str) -> None:
    """An error where there is a reason against the horizon, or some policy stays for ever."""
    if reason:
        raise SolverError(reason)
    if problem.environment is None:
        problem.require_bounded_stays(who)


def require_listed_actions(problem: Problem, who: str) -> None:
    """An error where actions are vectors of numbers, for solvers that choose from a list."""
    environment = environment_of(problem)
    if environment is not None and environment.action_box is not None:
        raise SolverError(
            f"{who} chooses from a list of actions, and {environment.name} takes vectors of numbers. "
            "ActorCritic(steps=...) takes those; or wrap it so that it offers a list: "
            "gymnasium.wrappers.TransformAction."
        )


@dataclass(frozen=True)
class Task:
    """What a solver is given.

    Attributes:
        problem: to solve.
        start: a solution, a policy, or where one is kept; None for the solver's own start (``solvers.start``).
        seed: of the random numbers.
        rows: of the history, at most; None for the solver's own choice.
        seconds_left: asked by work that cannot be stopped on its way, such as a convex program.
    """

    problem: Problem
    start: Any = None
    seed: int | None = None
    rows: int | None = None
    seconds_left: Callable[[], float] = unlimited


@dataclass(frozen=True)
class Judgement:
    """What is known of a state.

    Attributes:
        note: for the progress line.
        ended: the status, where there is nothing left to do.
    """

    note: str = ""
    ended: Status | None = None


class Work(ABC, Generic[State]):
    """A solver on a task: iterations, and what is made of them.

    A state is a pytree of arrays (``base.saved_trees`` says of which kind): all that a resume needs. Nothing
    here depends on the clock or on a terminal, and ``advance`` gives the same bits however it is cut up.

    Attributes:
        problem: that is solved.
        name: of the solver, for the progress line.
        grain: pieces begin at multiples of this.
        longest: iterations of a piece, at most.
        program: equal for works that ``batch`` puts together; None where there is no such thing.
    """

    problem: Problem
    name: str
    grain: int = 1
    longest: int = 2**31

    @property
    def program(self) -> Any:
        return None

    @abstractmethod
    def first(self) -> State:
        """Before the first iteration."""

    @abstractmethod
    def where(self, state: State) -> tuple[int, int]:
        """How many iterations are done, and of how many."""

    def mark(self, state: State) -> int:
        """The next iteration at which the state is judged; no piece crosses it."""
        return self.where(state)[1]

    @abstractmethod
    def advance(self, state: State, until: int) -> tuple[State, Rows]:
        """Iterations up to ``until``, and their records."""

    def judge(self, state: State) -> Judgement:
        """What is known of the state at a mark."""
        return Judgement()

    @abstractmethod
    def finish(self, state: State, rows: Rows, status: Status) -> Solution:
        """The answer from any state, the first included, with the records that led to it."""

    def batch(self, others: Sequence[Self]) -> Batch[Any] | None:
        """This work and others like it as lanes of one program, where there is one."""
        return None

    def reseeded(self, task: Task) -> Self:
        """The same work with the seed of another task, sharing what does not depend on it."""
        raise NotImplementedError(f"{self.name} has no lanes")


class Batch(Work[State]):
    """Several works as lanes of one; the records have an axis of lanes before that of iterations."""

    members: Sequence[Work[Any]]

    @abstractmethod
    def lane(self, state: State, rows: Rows, place: int) -> tuple[Any, Rows, str]:
        """State and records of one member, and what broke it, if anything did."""


@runtime_checkable
class Solver(Protocol):
    """A small immutable object that holds its own settings, in fields of a dataclass."""

    needs_seed: ClassVar[bool]
    has_lanes: ClassVar[bool]  # whether works of it can be lanes of one program

    def prepare(self, task: Task) -> Work[Any]:
        """Read the task; what is wrong with the settings is said here."""
        ...


def completed(solver: Solver, task: Task) -> Solution:
    """A solver's answer in one go, for solvers that ask another one; ``runs.run`` drives those of users."""
    work = solver.prepare(task)
    state, pieces, ended = work.first(), [], None
    while ended is None and work.where(state)[0] < work.where(state)[1]:
        mark = work.mark(state)
        until = min(mark, work.where(state)[0] + work.longest)
        state, rows = work.advance(state, until)
        pieces += [rows] if rows else []
        ended = work.judge(state).ended if until == mark else None
    names = pieces[0] if pieces else {}
    rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
    return work.finish(state, rows, ended or Status.ITERATION_LIMIT)


def by_name(columns: np.ndarray, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Columns of a table of records, (rows, n), each under its name."""
    return dict(zip(names, columns.T, strict=True))


def spacing(iterations: int, most: int | None) -> int:
    """Every how many iterations one is recorded, so that a history has at most so many rows."""
    return max(1, -(-iterations // (most or MOST_ROWS)))
