"""Groups of a single run: one that can be stopped and continued, or a whole call of a solver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cvxmdp.algorithms.recursion import Learning
from cvxmdp.base.errors import CvxmdpError, ExperienceError, FileFormatError
from cvxmdp.policies import TabularPolicy
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.axes import Case
from cvxmdp.runs.solving import solve
from cvxmdp.solvers.environment_runs import run_of
from cvxmdp.solvers.saved_runs import Arrays


class LearningJob:
    """A run of VR-PDPG, chunk by chunk."""

    def __init__(self, case: Case, start: Any, learning: Learning) -> None:
        self.case, self.cases, self.seconds = case, [case], 0.0
        self.error: str | None = None
        self.may_go_on = False
        self.run = run_of(case.solver, case.problem, start, case.seed, learning)

    @property
    def finished(self) -> bool:
        """Whether all iterations are done, or the run is broken."""
        return self.run.finished or self.error is not None

    @property
    def progress(self) -> float:
        """The share of the iterations that is done."""
        return 1.0 if self.error is not None else self.run.done / self.run.solver.iterations

    def advance(self) -> None:
        """One chunk. A run that breaks ends there; the others go on."""
        started = time.perf_counter()
        try:
            self.run.advance()
        except CvxmdpError as error:
            self.error = str(error)
            # A simulator that failed may work next time; the run is where it was before.
            self.may_go_on = isinstance(error, ExperienceError)
        self.seconds += time.perf_counter() - started

    def dump(self) -> Arrays:
        """The state of the run and its history."""
        arrays = {**self.run.dump(), "seconds": np.array(self.seconds)}
        if self.error is None or self.may_go_on:
            return arrays
        return {**arrays, "error": _letters(self.error)}

    def restore(self, arrays: Arrays) -> None:
        """Continue from there."""
        self.seconds = float(arrays["seconds"])
        self.error = _text(arrays["error"]) if "error" in arrays else None
        self.run.restore(arrays)

    def solution(self, place: int = 0) -> Solution:
        """The answer so far."""
        if self.error is not None:
            kept = self.run.so_far(self.seconds) if self.may_go_on else None
            if kept is not None:
                return replace(kept, message=f"{self.error} {kept.message}")
            return Solution.without_policy(self.case.problem, Status.FAILED, message=self.error)
        status = Status.ITERATION_LIMIT if self.finished else Status.INTERRUPTED
        return self.run.solution(status, self.seconds)


class WholeJob:
    """One call of ``solve``, all or nothing."""

    def __init__(self, case: Case, start: Any) -> None:
        self.case, self.cases, self.start = case, [case], start
        self.found: Solution | None = None

    @property
    def finished(self) -> bool:
        """Whether it has been solved."""
        return self.found is not None

    @property
    def progress(self) -> float:
        """Nothing or all."""
        return float(self.finished)

    def advance(self) -> None:
        """Solve."""
        case = self.case
        silent = (
            replace(case.solver, progress=False)
            if hasattr(case.solver, "progress")
            else case.solver
        )
        try:
            self.found = solve(case.problem, silent, start=self.start, seed=case.seed)
        except CvxmdpError as error:
            self.found = Solution.without_policy(case.problem, Status.FAILED, message=str(error))

    def dump(self) -> Arrays:
        """The solution as plain numbers."""
        if self.found is None:
            return {}
        found = self.found
        arrays: Arrays = {"status": _letters(found.status.name), "message": _letters(found.message)}
        arrays["multipliers"] = np.array([found.multipliers[n] for n in found.problem.constraints])
        if found.has_policy:
            arrays["probabilities"] = np.asarray(found.policy.probabilities())
        for name, value in found.stats.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                arrays[f"stats/{name}"] = np.array(float(value))
        for name, curve in _flat(found.history).items():
            arrays[f"history/{name}"] = curve
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """The solution that ``dump`` wrote, evaluated again from its policy."""
        if not arrays:
            return
        problem = self.case.problem
        try:
            status = Status[_text(arrays["status"])]
        except (KeyError, ValueError) as error:
            raise FileFormatError(f"a solution of unknown status: {error}") from error
        names = list(problem.constraints)
        details: dict[str, Any] = {
            "message": _text(arrays["message"]),
            "history": _nested({k[8:]: v for k, v in arrays.items() if k.startswith("history/")}),
            "stats": {k[6:]: float(v) for k, v in arrays.items() if k.startswith("stats/")},
        }
        if "probabilities" not in arrays:
            self.found = Solution.without_policy(problem, status, **details)
            return
        multipliers = dict(zip(names, arrays["multipliers"].tolist(), strict=True))
        policy = TabularPolicy(arrays["probabilities"])
        self.found = Solution.of_policy(problem, policy, status, multipliers, **details)

    def solution(self, place: int = 0) -> Solution:
        """The answer."""
        if self.found is None:
            return Solution.without_policy(
                self.case.problem,
                Status.INTERRUPTED,
                message="Interrupted before this run was solved.",
            )
        return self.found


def _letters(text: str) -> np.ndarray:
    """A text as numbers, for a file of arrays."""
    return np.frombuffer(text.encode("utf-8"), np.uint8)


def _text(letters: np.ndarray) -> str:
    return bytes(letters.astype(np.uint8)).decode("utf-8", "replace")


def _flat(history: Mapping[str, Any]) -> Arrays:
    found: Arrays = {}
    for name, value in history.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{part}": np.asarray(curve) for part, curve in value.items()}
        else:
            found[name] = np.asarray(value)
    return found


def _nested(flat: Arrays) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, curve in flat.items():
        outer, _, inner = name.partition("/")
        if inner:
            found.setdefault(outer, {})[inner] = curve
        else:
            found[outer] = curve
    return found
