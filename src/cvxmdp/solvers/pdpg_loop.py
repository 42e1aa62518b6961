"""The loop of PDPG: compiled iterations in pieces; between them checks, progress and interruption."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.algorithms.primal_dual.pieces import Totals, first_state, occupancy_at, run_piece
from cvxmdp.base.errors import SolverError
from cvxmdp.base.precision import on_device
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.policies import Policy
from cvxmdp.policies.occupancies import policy_of
from cvxmdp.problems.snapshots import Snapshots
from cvxmdp.problems.solution import Solution, Status

if TYPE_CHECKING:
    from cvxmdp.solvers.pdpg_run import Run

PIECE_SECONDS = 0.25  # of compiled work between two looks at the keyboard
LARGEST_PARAMETER = 1e9  # beyond which no number of steps brings a policy back


class Reached(NamedTuple):
    """Where the loop is."""

    done: int
    state: Any
    totals: Totals


class Loop:
    """One run with one pessimism."""

    def __init__(self, run: Run, compiled: core.Compiled) -> None:
        self.task, self.compiled = run, compiled
        self.solver, self.problem = run.solver, run.problem
        self.steps = on_device(run.steps)
        # The last half begins at the end of a chunk: there are at least four of them.
        self.chunk = min(self.solver.check_every, -(-self.solver.iterations // 4))
        self.piece = 1  # iterations; the first pieces measure how long one takes
        totals = Totals.zero(run.family.actions.shape, run.n)
        # One name for all of it, so that an interruption never meets half of a change.
        self.reached = Reached(0, self._first_state(), totals)
        # (iterations done, totals) at the chunk ends from which the last half may begin, oldest first.
        self.beginning = (0, totals)
        self.marks = [self.beginning]
        self.traces: list[core.Trace] = []
        self.snapshots = Snapshots()
        self.certificate: Certificate | None = None  # the last one
        self.progress = Progress("PDPG", self.solver.iterations, self.solver.progress)

    def _first_state(self) -> Any:
        params, multipliers = on_device((self.task.params, self.task.multipliers))
        rounded = self.task.round_functions() if self.task.method.kind == "tuned" else None
        return first_state(self.compiled, params, multipliers, rounded, self.task.method)

    def run(self) -> Status:
        """Iterate to the end, to the tolerance, or until interrupted; returns which."""
        iterations, tolerance = self.solver.iterations, self.solver.tolerance
        try:
            while self.reached.done < iterations:
                self._advance(min(self.reached.done + self.chunk, iterations))
                if tolerance is None and not self.progress.show:
                    continue
                self.certificate = self._certify()
                self._show()
                if self.certificate.infeasible:
                    return Status.INFEASIBLE
                if tolerance is not None and self.certificate.relative_gap <= tolerance:
                    return Status.OPTIMAL
        except KeyboardInterrupt:
            if not self.reached.done:
                raise  # what there is, is the start, and the caller has it
            self.certificate = None  # it speaks of an earlier answer
            return Status.INTERRUPTED
        finally:
            self.progress.close()
        return Status.ITERATION_LIMIT

    def _known_gap(self) -> float | None:
        gap = math.inf if self.certificate is None else self.certificate.relative_gap
        return gap if math.isfinite(gap) else None

    def _show(self) -> None:
        gap = self._known_gap()
        self.progress.update(self.reached.done, "" if gap is None else f"certified gap {gap:.2g}")

    def _advance(self, until: int) -> None:
        """One chunk, in pieces so short that Ctrl-C is soon answered."""
        while (done := self.reached.done) < until:
            length, started = min(self.piece, until - done), time.perf_counter()
            state, totals, history = run_piece(
                self.compiled,
                self.reached.state,
                self.reached.totals,
                self.steps,
                length,
                self.task.method,
                self.chunk,
            )
            trace = jax.tree.map(lambda rows, filled=length: np.asarray(rows)[:filled], history)
            self._check_finite(trace)
            self._check_size(state.params, done + length)
            self.traces.append(trace)
            self.reached = Reached(done + length, state, jax.device_get(totals))
            self._show()
            # The first one compiles, and so says little of how long an iteration takes.
            seconds = time.perf_counter() - started
            self.piece = max(1, int(length * PIECE_SECONDS / seconds))
        since, before = self.marks[-1]
        visits = (self.reached.totals.visits - before.visits) / (until - since)
        self.snapshots.add(until, visits)  # of the chunk's average: an occupancy, too
        self.marks.append((until, self.reached.totals))
        while len(self.marks) > 2 and self.marks[1][0] <= until // 2:
            self.marks.pop(0)

    def _check_finite(self, trace: core.Trace) -> None:
        fine = np.isfinite(trace.objective) & np.isfinite(trace.gradient_norm)
        fine &= np.isfinite(trace.slack).all(axis=1)
        if fine.all():
            return
        first = int(np.argmin(fine))
        slack = f", the slacks {trace.slack[first]}" if self.task.n else ""
        causes = [
            "a logarithm or barrier whose domain the iterate left (without start= a table begins deep "
            "inside it; else start from cm.slater(...).policy of the problem with that constraint in place "
            "of its barrier; and take smaller steps)",
            "a utility of your own that is infinite or has an infinite gradient there",
        ]
        if self.task.method.kind == "paper":
            causes.insert(0, self._too_large())
        raise SolverError(
            f"iteration {self.reached.done + first}: the objective is {trace.objective[first]}{slack}, "
            f"the norm of the gradient {trace.gradient_norm[first]}. Likely causes: {'; or '.join(causes)}."
        )

    def _check_size(self, params: Any, done: int) -> None:
        """A softmax hides a diverging run: its parameters grow, its probabilities stay finite."""
        if self.task.method.kind != "paper":
            return
        largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(params))
        if not largest < LARGEST_PARAMETER:
            raise SolverError(
                f"iteration {done}: the largest parameter is {largest:.1e}. Likely cause: {self._too_large()}."
            )

    def _too_large(self) -> str:
        return (
            f"steps that are too large, so that the run diverges (primal_step was "
            f"{self.solver.primal_step!r}; try a tenth, or primal_step='auto')"
        )

    def _occupancy(self) -> tuple[np.ndarray, np.ndarray]:
        """The occupancy and the multipliers of the iterate that was asked for."""
        done, state, totals = self.reached
        if self.solver.iterate == "last":
            return occupancy_at(self.compiled, state), np.asarray(state.multipliers)
        first, before = self.beginning if self.solver.iterate == "average" else self.marks[0]
        multipliers = (totals.multipliers - before.multipliers) / (done - first)
        if self.solver.iterate == "best":
            return totals.best, multipliers
        return (totals.visits - before.visits) / (done - first), multipliers

    def _answer(self) -> tuple[Policy, dict[str, float]]:
        x, multipliers = self._occupancy()
        named = dict(zip(self.problem.constraints, multipliers.tolist(), strict=True))
        if self.solver.iterate == "last":
            return self.task.family.deploy(self.reached.state.params), named
        return policy_of(self.problem.mdp, np.maximum(x, 0.0)), named

    def _certify(self) -> Certificate:
        """A proof from what is at hand: the answer's own occupancy, and the last iterate."""
        policy, multipliers = self._answer()
        x, _ = self._occupancy()
        state = self.reached.state
        last = occupancy_at(self.compiled, state)
        now = dict(zip(self.problem.constraints, np.asarray(state.multipliers), strict=True))
        points = [(x, multipliers), (last, now)]
        return self.task.certifier.certify(policy, None, at=points)

    def solution(self, status: Status) -> Solution:
        """The answer, from what there is."""
        policy, multipliers = self._answer()
        names, pessimism = list(self.problem.constraints), np.asarray(self.compiled.pessimism)
        stats: dict[str, Any] = {
            "iterations": self.reached.done,
            "pessimism": dict(zip(names, pessimism.tolist(), strict=True)),
            "family": self.task.family.name,
            "params": jax.tree.map(np.asarray, self.reached.state.params),
        }
        if self.certificate is not None:
            stats["certified_gap"] = self.certificate.relative_gap
        return Solution.of_policy(
            self.problem,
            policy,
            status,
            multipliers,
            history=self._history(names, pessimism),
            stats=stats,
            message=self._message(status),
        )

    def _message(self, status: Status) -> str:
        gap = self._known_gap()
        known = "" if gap is None else f" Its certified relative gap is {gap:.1e}."
        if status is Status.OPTIMAL:
            return f"The certified relative gap is at most {self.solver.tolerance:.0e}.{known}"
        return status.value + known

    def _history(self, names: list[str], pessimism: np.ndarray) -> dict[str, Any]:
        """One entry per iteration; objective in the user's sign, slack of the problem itself."""
        pieces = zip(*self.traces, strict=True)
        trace = core.Trace(*(np.concatenate(parts)[: self.reached.done] for parts in pieces))
        return {
            "objective": self.problem.sign * trace.objective,
            "slack": {name: trace.slack[:, k] + pessimism[k] for k, name in enumerate(names)},
            "multipliers": {name: trace.multipliers[:, k] for k, name in enumerate(names)},
            "gradient_norm": trace.gradient_norm,
            "primal_step": trace.primal_step,
            **self.snapshots.history(),
        }
