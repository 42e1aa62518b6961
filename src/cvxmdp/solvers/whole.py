"""Work of one iteration: a solver that is called once, and an answer that was known at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cvxmdp.base.saved_trees import Plain
from cvxmdp.policies.tables import table_of
from cvxmdp.policies.timed_policy import table_policy
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Work

ANSWER = "answer"


class Whole(Work[Plain]):
    """One call, all or nothing.

    Args:
        name: of the solver.
        problem: that is solved.
        call: gives the answer, without iterates on the way.
    """

    def __init__(self, name: str, problem: Problem, call: Callable[[], Solution]) -> None:
        self.name, self.problem, self.call = name, problem, call
        self.found: tuple[Plain, Solution] | None = None  # by the state it belongs to

    @classmethod
    def known(cls, name: str, answer: Solution) -> Whole:
        """Of an answer that is there already."""
        return cls(name, answer.problem, lambda: answer)

    def first(self) -> Plain:
        return Plain()

    def where(self, state: Plain) -> tuple[int, int]:
        # Where the time ran out, another call begins again.
        known = ANSWER in state and Status[state[ANSWER]["status"]] is not Status.TIME_LIMIT
        return int(known), 1

    def advance(self, state: Plain, until: int) -> tuple[Plain, Rows]:
        answer = self.call()
        state = Plain({ANSWER: plain_answer(answer)})
        self.found = state, answer
        return state, {}

    def judge(self, state: Plain) -> Judgement:
        return Judgement(ended=Status[state[ANSWER]["status"]])

    def finish(self, state: Plain, rows: Rows, status: Status) -> Solution:
        if self.found is not None and self.found[0] is state:
            return self.found[1]
        if ANSWER not in state:
            message = f"{status.value} Nothing is known before {self.name} has ended."
            return Solution.without_policy(self.problem, status, message=message)
        return answer_from(self.problem, state[ANSWER])


def plain_answer(answer: Solution) -> dict[str, Any]:
    """What makes a solution: the policy on every state, what goes with it, and plain statistics."""
    table = table_of(answer.policy) if answer.has_policy else None
    plain = bool | int | float | str
    return {
        "status": answer.status.name,
        "message": answer.message,
        "multipliers": list(answer.multipliers.values()),
        "policy": table,
        "stats": {name: one for name, one in answer.stats.items() if isinstance(one, plain)},
    }


def answer_from(problem: Problem, plain: dict[str, Any]) -> Solution:
    """The solution, evaluated again from its policy."""
    status = Status[plain["status"]]
    details = {"message": plain["message"], "stats": plain["stats"]}
    if plain["policy"] is None:
        return Solution.without_policy(problem, status, **details)
    multipliers = dict(zip(problem.constraints, plain["multipliers"], strict=True))
    policy = table_policy(plain["policy"])
    return Solution.of_policy(problem, policy, status, multipliers, **details)
