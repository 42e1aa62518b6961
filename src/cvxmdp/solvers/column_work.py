"""Column generation as work: an iteration is a step of ``generation``, certified where that may be enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvxmdp.algorithms.columns.flow_duals import only_leaf
from cvxmdp.algorithms.columns.generation import (
    CREEPING_STEPS,
    USELESS,
    Generation,
    smallest_tolerance,
)
from cvxmdp.algorithms.columns.resuming import resume, saved
from cvxmdp.algorithms.conic import has_conic_form
from cvxmdp.base.errors import MissingExtraError, SettingsError
from cvxmdp.base.saved_trees import Plain
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.evidence import is_large
from cvxmdp.certificates.measured import conflicting, infeasible_answer
from cvxmdp.certificates.repair import Repaired, repair
from cvxmdp.policies.occupancies import rows_of
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work, by_name, spacing
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.start import given_start, known_multipliers

if TYPE_CHECKING:
    from cvxmdp.solvers.column_generation import ColumnGeneration

STOP_EARLY = 0.9  # of the tolerance: the certificate allows for rounding and errors on top
KEPT = {"linear": 200, "entropy": 12, "concave": 40}  # columns, by kind of problem
HOPELESS_STEPS, HARDLY_ROOM = 30, 1e-4  # without a feasible mixture; of the slacks' units
CLOSER = 0.5  # what should be left of the distance between the bounds after some steps
UNSOLVED = 3  # masters in a row that ended far from their optimum
STANDING = 0.97  # what is left of it where nothing more is to be expected
LINEAR_PROGRAM = 200_000  # pairs of a linear program that is worth a try where columns led nowhere
TRIES = 3  # of certification before what there is is returned


class Proven(NamedTuple):
    """What is proven, in the checker's numbers: the claims of a certificate, which is written when asked for.

    Attributes:
        bounds: upper and lower, in the user's sign.
        kept: the surely feasible policy, if there is one.
        occupancy: of the policy that was looked at, (S, A).
        evidence: of the upper bound or, where ``infeasible``, that no policy is feasible.
        multipliers: of the upper bound.
        infeasible: whether that is proven.
    """

    bounds: tuple[float, float]
    kept: Repaired | None
    occupancy: np.ndarray
    evidence: Evidence | None
    multipliers: Mapping[str, float]
    infeasible: bool = False


class ColumnWork(Work[Plain]):
    """Column generation on a problem.

    The state is plain data (``resuming``). The generation that it was taken from is kept beside it, so that
    nothing is put together again while a run goes on.
    """

    name = "ColumnGeneration"

    def __init__(self, solver: ColumnGeneration, task: Task) -> None:
        self.solver, self.problem, self.left = solver, task.problem, task.seconds_left
        self.every = spacing(solver.iterations, task.rows)
        task.problem.require_bounded_stays("ColumnGeneration")
        self.claims = Claims.of(task.problem)
        self._check_tolerance()
        self.certifier = Certifier(task.problem, self.claims)
        self.start, self.taken = given_start(task.problem, task.start), ""
        self.live: tuple[Plain, Generation] | None = None
        self.certified: tuple[Plain, Proven | None] | None = None

    def _check_tolerance(self) -> None:
        least = smallest_tolerance(self.claims.flow)
        if least > USELESS:
            raise SettingsError(
                f"with {self.claims.lowered.horizon} rounding alone loosens a bound by up to "
                f"{least:.1g} of its size: float64 can certify nothing useful. Use a discount further from "
                "one, or let episodes end."
            )
        if self.solver.tolerance < least:
            raise SettingsError(
                f"tolerance = {self.solver.tolerance:.1g} is tighter than float64 can certify: with "
                f"{self.claims.lowered.horizon} the least is {least:.1g}"
            )

    def _columns(self) -> int:
        lowered, most = self.claims.lowered, self.solver.columns
        if most is None:
            kind = "linear" if lowered.affine else "entropy" if only_leaf(lowered) else "concave"
            most = KEPT[kind]
        return max(most, len(self.claims.slacks) + 5)

    def _fresh(self) -> Generation:
        return Generation(self.claims.lowered, self.solver.tolerance, self._columns())

    def first(self) -> Plain:
        """The uniform policy's column, and that of the start."""
        generation = self._fresh()
        if self.start is not None:
            self._take_start(generation)
        target = STOP_EARLY * self.solver.tolerance
        return self._kept(generation, done=0, tries=0, target=target, ended=None, trouble="")

    def _take_start(self, generation: Generation) -> None:
        policy = rows_of(self.problem.mdp, self.start)
        generation.add_policy(np.asarray(policy, dtype=np.float64))
        known = known_multipliers(self.problem, self.start)
        if known is not None and len(known):
            generation.start_at(self.claims.lowered.named(known))
        self.taken = "policy" if known is None else "policy and multipliers"

    def _kept(self, generation: Generation, **facts: Any) -> Plain:
        state = Plain(**facts, generation=saved(generation))
        self.live = state, generation
        return state

    def generation(self, state: Plain) -> Generation:
        if self.live is None or self.live[0] is not state:
            self.live = state, resume(self._fresh(), state["generation"])
        return self.live[1]

    def where(self, state: Plain) -> tuple[int, int]:
        return state["done"], self.solver.iterations

    def mark(self, state: Plain) -> int:
        return int(state["done"]) + 1

    def advance(self, state: Plain, until: int) -> tuple[Plain, Rows]:
        """One step; as soon as its bounds are close enough, the certificate."""
        generation = self.generation(state)
        if generation.outside:  # no policy was found at which the objective is finite
            return self._stopped(state, generation, ended=Status.INACCURATE.name)
        try:
            generation.step()
        except MemoryError:
            count = len(generation.columns)
            trouble = f" Out of memory with {count} columns: ask for fewer (columns=)."
            memory = {"trouble": trouble, "ended": Status.INTERRUPTED.name}
            return self._stopped(state, generation, **memory)
        facts = {name: state[name] for name in ("tries", "target", "trouble")}
        ended, found = self._ended(generation, facts)
        following = self._kept(generation, done=until, ended=ended and ended.name, **facts)
        if found is not None:
            self.certified = following, found
        return following, self._row(generation, until)

    def _stopped(self, state: Plain, generation: Generation, **facts: Any) -> tuple[Plain, Rows]:
        self.live = Plain({**state, **facts}), generation
        return self.live[0], {}

    def _ended(
        self, generation: Generation, facts: dict[str, Any]
    ) -> tuple[Status | None, Proven | None]:
        """Whether that was the last step, and the certificate where one was made."""
        if generation.infeasible:
            found = self._certify(generation)  # what the oracle says up to rounding is no proof
            proven = found is not None and found.infeasible
            return (Status.INFEASIBLE if proven else Status.INACCURATE), found
        if generation.stuck or self._hopeless(generation) or self._creeps(generation):
            return Status.INACCURATE, None
        if generation.answer is not None and generation.creeps(STANDING):
            facts["trouble"] = (
                f" The bounds hardly moved over {CREEPING_STEPS} steps: about as close as columns bring them. "
                "Ask for a larger tolerance, or start= at this answer with more columns=."
            )
            return Status.INACCURATE, None
        if generation.gap > facts["target"]:
            return None, None
        found = self._certify(generation)
        facts["tries"] += 1
        facts["target"] *= 0.1
        if found is not None and self._gap(found) <= self.solver.tolerance:
            return Status.OPTIMAL, found
        return (Status.INACCURATE if facts["tries"] == TRIES else None), found

    def _hopeless(self, generation: Generation) -> bool:
        """Next to no room in the constraints and no mixture inside, where another solver can do better."""
        if generation.answer is not None or len(generation.trail.upper) < HOPELESS_STEPS:
            return False
        return generation.room_upper < HARDLY_ROOM and self._fits_a_program

    def _creeps(self, generation: Generation) -> bool:
        """Kinks that no mixture meets exactly, where another solver can do better."""
        slow = generation.creeps(CLOSER) or generation.master.unsolved >= UNSOLVED
        return slow and self._fits_a_program

    @property
    def _fits_a_program(self) -> bool:
        return not is_large(self.claims) and has_conic_form(self.claims.lowered)

    def _row(self, generation: Generation, done: int) -> Rows:
        """The bounds after a step, if it is recorded."""
        n, trail = len(self.claims.slacks), generation.trail
        recorded = slice(None) if done % self.every == 0 else slice(0)
        return {
            "iteration": np.array([done])[recorded],
            "upper": np.array(trail.upper[-1:])[recorded],
            "lower": np.array(trail.lower[-1:])[recorded],
            "multipliers": np.reshape(trail.multipliers[-1], (1, n))[recorded],
            "columns": np.array(trail.columns[-1:])[recorded],
        }

    def judge(self, state: Plain) -> Judgement:
        gap, ended = self.generation(state).gap, state["ended"]
        note = f"gap {gap:.2g}" if gap < 9 else ""
        return Judgement(note, ended=None if ended is None else Status[ended])

    def _certify(self, generation: Generation) -> Proven | None:
        """What is proven with the best mixture and bound so far; None where there is none."""
        if generation.infeasible:
            room = generation.room_evidence()
            proof = None if room is None else self.claims.smallest_slack().prove(room)
            if proof is not None and proof.upper < 0:
                self.certifier.take_room(proof)
                against = replace(self.certifier.slater().evidence, infeasible=True)
                nothing = np.zeros(self.claims.flow.shape)
                return Proven((math.nan, math.nan), None, nothing, against, {}, infeasible=True)
        x = generation.occupancy()
        if x is None:
            return None
        policy = self.claims.flow.policy(x)
        given = self.claims.achieved(policy, generation.place.sharpened(x, policy))
        kept: Repaired | None = Repaired(policy, 0.0, given)
        if not given.feasible:
            kept = repair(
                self.claims,
                policy,
                given,
                lambda: self.claims.flow.policy(generation.safest()),
            )
        evidence = generation.evidence()
        proof = None if evidence is None else self.claims.prove(evidence)
        bounds, multipliers = self.certifier.bounds(kept, proof), {}
        if proof is not None:
            multipliers = dict(proof.evidence.multipliers)
        return Proven(bounds, kept, given.occupancy, evidence, multipliers)

    def _gap(self, found: Proven) -> float:
        """Relative, as for every solver's status."""
        lower, upper = sorted(self.problem.sign * side for side in found.bounds)
        return self.claims.relative_gap(upper, lower)

    def finish(self, state: Plain, rows: Rows, status: Status) -> Solution:
        """What is certified of the best mixture so far."""
        generation = self.generation(state)
        if generation.outside:
            return self._outside(generation, state)
        if not len(generation.columns):  # stopped before the first step, without constraints
            generation.add_policy(self.claims.flow.uniform)
        generation.begin()
        found = self.certified[1] if self.certified and self.certified[0] is state else None
        found = found or self._certify(generation)
        history, trouble = self._history(rows), state["trouble"]
        if status is Status.INACCURATE:
            other = self._otherwise(state, generation, history)
            if other is not None:
                return other
        if found is None:
            return self._without_answer(generation, status, state, history)
        kept, x, evidence = found.kept, found.occupancy, found.evidence
        stats = self._stats(generation, state, found)
        if found.infeasible:
            return conflicting(
                self.problem, self.certifier, stats=stats, history=history, evidence=evidence
            )
        if status is Status.OPTIMAL and self._gap(found) > self.solver.tolerance:
            status = Status.INACCURATE
        # What is returned is what is certified: the mixture's policy or, where rounding made it miss a
        # constraint, the repaired one.
        chances = self.claims.flow.policy(x) if kept is None else kept.policy
        policy, evaluation = self.claims.policy(chances), None
        if kept is not None and not kept.share > 0:
            evaluation = self.problem.evaluate_occupancy(x)
        known = found.multipliers or dict.fromkeys(self.claims.slacks, math.nan)
        return Solution.of_policy(
            self.problem,
            policy,
            status,
            known,
            evaluation=evaluation,
            history=history,
            stats=stats,
            message=self._message(status, found, trouble),
            evidence=evidence,
        )

    def _outside(self, generation: Generation, state: Plain) -> Solution:
        stats = self._stats(generation, state, None)
        none = infeasible_answer(self.problem, self.certifier, stats)
        if none is not None:
            return none
        message = f"{Status.INACCURATE.value} No policy was found at which the objective is finite."
        return Solution.without_policy(
            self.problem, Status.INACCURATE, stats=stats, message=message
        )

    def _otherwise(
        self, state: Plain, generation: Generation, history: dict[str, Any]
    ) -> Solution | None:
        """The answer of one program, where the model is small enough for it and columns led nowhere."""
        linear = self.claims.lowered.affine and self.claims.flow.actions.sum() <= LINEAR_PROGRAM
        if not (self._fits_a_program or linear):
            return None
        try:
            found = ConvexProgram().answer(self.problem, self.left)
        except MissingExtraError:
            return None
        if found.status is Status.INACCURATE:
            return None
        stats = {**found.stats, **self._stats(generation, state, None)}
        stats["solver"] = f"ColumnGeneration, then {found.stats['solver']}"
        return replace(found, history=history, stats=stats)

    def _message(self, status: Status, found: Proven, trouble: str) -> str:
        gap = self._gap(found)
        known = f" The certified relative gap is {gap:.1e}." if math.isfinite(gap) else ""
        if status is Status.OPTIMAL:
            return f"The certified relative gap is {gap:.1e}, at most {self.solver.tolerance:.0e}."
        return status.value + known + trouble

    def _without_answer(
        self, generation: Generation, status: Status, state: Plain, history: dict[str, Any]
    ) -> Solution:
        """No feasible mixture was found, and infeasibility was not proven either."""
        bound = generation.room_upper
        proven = f"; none above {bound:.2g} exists" if math.isfinite(bound) else ""
        text = (
            "No policy that satisfies all constraints was found so far. In units of the constraints the best "
            f"smallest slack found is {generation.room:.2g}{proven}."
        )
        if status is Status.OPTIMAL:
            status = Status.INACCURATE
        return Solution.of_policy(
            self.problem,
            self.claims.policy(self.claims.flow.policy(generation.safest())),
            status,
            dict.fromkeys(self.claims.slacks, math.nan),
            history=history,
            stats=self._stats(generation, state, None),
            message=f"{status.value} {text}{state['trouble']}",
        )

    def _history(self, rows: Rows) -> dict[str, Any]:
        if not rows:
            return {}
        sign = self.problem.sign
        above, below = sign * rows["upper"], sign * rows["lower"]
        return {
            "iteration": rows["iteration"],
            "upper": above if sign > 0 else below,
            "lower": below if sign > 0 else above,
            "columns": rows["columns"],
            "multipliers": by_name(rows["multipliers"], self.claims.slacks),
        }

    def _stats(self, generation: Generation, state: Plain, found: Proven | None) -> dict[str, Any]:
        effort = generation.oracle.work
        stats: dict[str, Any] = {
            "solver": "ColumnGeneration",
            "iterations": state["done"],
            "columns": len(generation.columns),
            "oracle_calls": effort.calls,
            "sweeps": effort.sweeps,
            "policy_sweeps": effort.policy_sweeps,
        }
        if self.taken:
            stats["start"] = f"{self.taken} as the first column"
        if found is not None:
            stats["certified_gap"] = self._gap(found)
        if self.solver.mixture:
            stats["mixture"] = generation.mixture()
        return stats
