"""PDPG as work: compiled iterations, averages and records on the way, and the answer that is made of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.algorithms.primal_dual.pieces import Totals, first_state, occupancy_at, run_piece
from cvxmdp.base.compiling import rows_for
from cvxmdp.base.errors import DivergedError
from cvxmdp.base.precision import double_precision, host, on_device
from cvxmdp.base.saved_trees import Growing
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.claims import best
from cvxmdp.certificates.evidence import linearise
from cvxmdp.policies import Policy
from cvxmdp.policies.families import BoundDirect, BoundTable, deployed
from cvxmdp.policies.occupancies import measured_policy
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.snapshots import Snapshots
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Work, by_name, spacing
from cvxmdp.solvers.start import box_note

if TYPE_CHECKING:
    from cvxmdp.solvers.pdpg_setting import PDPGSetting

LARGEST_PARAMETER = 1e9  # beyond which no number of steps brings a policy back
NO_ROOM_NOTE = (
    " No policy was found with room to spare in all constraints; gradients come to such budgets from outside: "
    "ConvexProgram() and ColumnGeneration() meet them, a little more budget lets PDPG."
)


Certified = tuple[Certificate, Evidence | None]  # and what it rests on


class Mark(NamedTuple):
    """Where the end of a chunk was."""

    done: Any
    totals: Totals


class Progressed(NamedTuple):
    """The state between two pieces."""

    done: Any
    iterate: Any  # ``TunedState`` or ``PaperState``
    totals: Totals
    marks: Growing  # chunk ends from which the last half may begin, oldest first
    snapshots: Snapshots


class PDPGWork(Work[Progressed]):
    """PDPG with one pessimism."""

    name = "PDPG"

    def __init__(self, setting: PDPGSetting, compiled: core.Compiled) -> None:
        self.setting, self.compiled = setting, compiled
        self.solver, self.problem = setting.solver, setting.problem
        self.steps = on_device(setting.steps)
        self.every = spacing(self.solver.iterations, setting.rows)
        # The last half begins at the end of a chunk: there are at least four of them.
        self.longest = min(self.solver.check_every, -(-self.solver.iterations // 4))
        self.certified: tuple[Any, Certified] | None = None  # the last one, and of which state

    def first(self) -> Progressed:
        with double_precision():
            totals = Totals.zero(self.setting.family.actions.shape, self.setting.n)
            done = np.array(0)
            marks = Growing([Mark(done, totals)])
            nothing = Snapshots.none(self.problem.shape)
            return Progressed(done, self._first_iterate(), totals, marks, nothing)

    def _first_iterate(self) -> Any:
        start, method = self.setting.start, self.setting.method
        params, multipliers = on_device((start.params, start.multipliers))
        rounded = self.setting.round_functions() if method.kind == "tuned" else None
        return first_state(self.compiled, params, multipliers, rounded, method)

    def where(self, state: Progressed) -> tuple[int, int]:
        return int(state.done), self.solver.iterations

    def mark(self, state: Progressed) -> int:
        return min((int(state.done) // self.longest + 1) * self.longest, self.solver.iterations)

    def advance(self, state: Progressed, until: int) -> tuple[Progressed, Rows]:
        """Part of a chunk, or what is left of it."""
        done, end = int(state.done), self.mark(state)
        length = until - done
        with double_precision():
            iterate, totals, history = run_piece(
                self.compiled,
                state.iterate,
                state.totals,
                self.steps,
                length,
                self.setting.method,
                rows_for(self.longest),
            )
            trace = jax.tree.map(lambda rows: np.asarray(rows)[:length], history)
            self._check_finite(trace, done)
            if until == end:
                self._check_size(iterate.params, until)
            totals = jax.device_get(totals)
            reached = Progressed(np.array(until), iterate, totals, state.marks, state.snapshots)
            recorded = np.flatnonzero((done + 1 + np.arange(length)) % self.every == 0)
            rows = {"iteration": done + 1 + recorded}
            rows |= {name: part[recorded] for name, part in trace._asdict().items()}
            return (_marked(reached) if until == end else reached), rows

    def _check_finite(self, trace: core.Trace, done: int) -> None:
        fine = np.isfinite(trace.objective) & np.isfinite(trace.gradient_norm)
        fine &= np.isfinite(trace.slack).all(axis=1)
        if fine.all():
            return
        first = int(np.argmin(fine))
        slack = f", the slacks {trace.slack[first]}" if self.setting.n else ""
        causes = [
            "a logarithm or barrier whose domain the iterate left (without start= a table begins deep "
            "inside it; else start from cm.slater(...).policy of the problem with that constraint in place "
            "of its barrier; and take smaller steps)",
            "a utility of your own that is infinite or has an infinite gradient there",
        ]
        if self.setting.method.kind == "paper":
            causes.insert(0, self._too_large())
        raise DivergedError(
            f"iteration {done + first}: the objective is {trace.objective[first]}{slack}, "
            f"the norm of the gradient {trace.gradient_norm[first]}. Likely causes: {'; or '.join(causes)}."
        )

    def _check_size(self, params: Any, done: int) -> None:
        """A softmax hides a diverging run: its parameters grow, its probabilities stay finite."""
        if self.setting.method.kind != "paper":
            return
        largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(params))
        if not largest < LARGEST_PARAMETER:
            raise DivergedError(
                f"iteration {done}: the largest parameter is {largest:.1e}. Likely cause: {self._too_large()}."
            )

    def _too_large(self) -> str:
        return (
            f"steps that are too large, so that the run diverges (primal_step was "
            f"{self.solver.primal_step!r}; try a tenth, or primal_step='auto')"
        )

    def judge(self, state: Progressed) -> Judgement:
        """The certified gap, where a tolerance was asked for."""
        if self.solver.tolerance is None:
            return Judgement()
        certificate, _ = self._certified(state)
        gap, ended = certificate.relative_gap, None
        if certificate.infeasible:
            ended = Status.INFEASIBLE
        elif gap <= self.solver.tolerance and (self._is_table or not certificate.repaired):
            ended = Status.OPTIMAL
        note = f"certified gap {gap:.2g}" if math.isfinite(gap) else ""
        return Judgement(note, ended)

    @property
    def _is_table(self) -> bool:
        """Whether any table is a policy of the family, so that one may be repaired."""
        return isinstance(self.setting.family, BoundTable | BoundDirect)

    def _certified(self, state: Progressed) -> Certified:
        """A proof from what is at hand: the answer's own occupancy, and the last iterate."""
        if self.certified is None or self.certified[0] is not state:
            with double_precision():
                x, multipliers = self._occupancy(state)
                last = occupancy_at(self.compiled, state.iterate)
                now = np.asarray(state.iterate.multipliers)
                points, certifier = ((x, multipliers), (last, now)), self.setting.certifier
                proofs = [linearise(certifier.claims, at, self._named(mu)) for at, mu in points]
                found = certifier.certify(self._policy(state, x), None, known=proofs)
                proof = best(proofs)
                self.certified = state, (found, None if proof is None else proof.evidence)
        return self.certified[1]

    def _named(self, numbers: np.ndarray) -> dict[str, float]:
        return dict(zip(self.setting.names, numbers.tolist(), strict=True))

    def _occupancy(self, state: Progressed) -> tuple[np.ndarray, np.ndarray]:
        """The occupancy and the multipliers of the iterate that was asked for."""
        totals, chosen = state.totals, self.solver.iterate
        if chosen == "last" or not state.done:
            last = occupancy_at(self.compiled, state.iterate)
            return last, np.asarray(state.iterate.multipliers)
        since, before = state.marks[0] if chosen != "average" else (0, None)
        visits, multipliers = np.asarray(totals.visits), np.asarray(totals.multipliers)
        if before is not None:
            visits = visits - np.asarray(before.visits)
            multipliers = multipliers - np.asarray(before.multipliers)
        count = int(state.done) - int(since)
        x = np.asarray(totals.best) if chosen == "best" else visits / count
        return x, multipliers / count

    def _policy(self, state: Progressed, x: np.ndarray) -> Policy:
        if self.solver.iterate == "last" or not state.done:
            return deployed(self.setting.family, state.iterate.params, self.problem.mdp)
        return measured_policy(self.problem.mdp, np.maximum(x, 0.0))

    def finish(self, state: Progressed, rows: Rows, status: Status) -> Solution:
        if not status.has_policy:
            return self.setting.no_policy()
        with double_precision():
            x, multipliers = self._occupancy(state)
            policy = self._policy(state, x)
            pessimism = np.asarray(self.compiled.pessimism)
            stats: dict[str, Any] = {
                "solver": f"PDPG ({self.solver.direction})",
                "iterations": int(state.done),
                "pessimism": self._named(pessimism),
                "family": self.setting.family.name,
                "params": host(state.iterate.params),
            }
        if self.setting.start.taken:
            stats["start"] = self.setting.start.taken
        gap, evidence = math.inf, None
        if status in (Status.OPTIMAL, Status.ITERATION_LIMIT) and self.solver.tolerance is not None:
            certificate, evidence = self._certified(state)
            gap = stats["certified_gap"] = certificate.relative_gap
            if status is Status.OPTIMAL and certificate.repaired and certificate.policy is not None:
                # What is called optimal is what is proven: the policy whose constraints surely hold.
                policy, stats["repaired"] = certificate.policy, certificate.repair_share
        return Solution.of_policy(
            self.problem,
            policy,
            status,
            self._named(multipliers),
            history=self._history(rows, pessimism, state) if rows else {},
            stats=stats,
            message=self._message(status, gap, state),
            evidence=evidence,
        )

    def _message(self, status: Status, gap: float, state: Progressed) -> str:
        if not state.done:
            word = "Interrupted" if status is Status.INTERRUPTED else "Stopped"
            return f"{word} before the first iteration was done; this is the start."
        known = f" Its certified relative gap is {gap:.1e}." if math.isfinite(gap) else ""
        if status is Status.OPTIMAL:
            return f"The certified relative gap is at most {self.solver.tolerance:.0e}.{known}"
        now, bound = np.asarray(state.iterate.multipliers), np.asarray(self.compiled.dual_bound)
        tight = NO_ROOM_NOTE if self.setting.without_room else ""
        return status.value + known + tight + box_note(self.setting.names, now, bound)

    def _history(self, rows: Rows, pessimism: np.ndarray, state: Progressed) -> dict[str, Any]:
        """One entry per recorded iteration; objective in the user's sign, slack of the problem itself."""
        names = self.setting.names
        return {
            "iteration": rows["iteration"],
            "objective": self.problem.sign * rows["objective"],
            "slack": by_name(rows["slack"] + pessimism, names),
            "multipliers": by_name(rows["multipliers"], names),
            "gradient_norm": rows["gradient_norm"],
            "primal_step": rows["primal_step"],
            **state.snapshots.history(self.problem.space.horizon.collected),
        }


def _marked(state: Progressed) -> Progressed:
    """At the end of a chunk: a snapshot of it, and one more place from which the last half may begin."""
    done, last = int(state.done), state.marks[-1]
    # The chunk's average is an occupancy, too.
    visits = (state.totals.visits - last.totals.visits) / (done - int(last.done))
    marks = [*state.marks, Mark(np.array(done), state.totals)]
    while len(marks) > 2 and int(marks[1].done) <= done // 2:
        marks.pop(0)
    return state._replace(marks=Growing(marks), snapshots=state.snapshots.offer(done, visits))
