r"""ColumnGeneration: a certified answer for models that conic solvers cannot hold.

The method (design section 3, "Large models"; ``generation`` has the loop, ``oracle`` the MDP, ``master`` and
``concave_master`` the small problems): keep occupancies of policies, mix them as well as possible, ask for the
policy that is best for the mixture's shadow reward, add its occupancy. The oracle's value is an upper bound
on what any policy can achieve and the mixture's objective a lower one, at every step; the run stops when they
are as close as was asked, and the bounds of the certificate it returns are computed by the checker's own
code, errors of every iterative solve included.

The answer is one policy: that of the mixed occupancy, which is an occupancy again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cvxmdp.algorithms.columns.flow_duals import only_leaf
from cvxmdp.algorithms.columns.generation import Generation
from cvxmdp.base.errors import SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import Certifier
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.repair import Repaired, repair
from cvxmdp.certificates.slater import slater_of
from cvxmdp.models.flow import Flow
from cvxmdp.models.systems import EPS
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.problems.lowered import Evidence
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status, infeasible_message

ROUNDING_FACTOR = 64.0  # between the rounding of a bound and the tolerance that is sure to be met
USELESS = 1e-2  # relative gap beyond which rounding makes a certificate useless
STOP_EARLY = 0.9  # of the tolerance: the certificate allows for rounding and errors on top
KEPT = {"linear": 200, "entropy": 12, "concave": 40}  # columns, by kind of problem
TRIES = 3  # of certification before what there is is returned


@dataclass(frozen=True)
class ColumnGeneration:
    """Solve by column generation: certified, for models with up to millions of states.

    Attributes:
        tolerance: certified relative gap at which to stop.
        iterations: calls of the oracle, at most.
        columns: how many occupancies are kept; the least used are forgotten beyond that. By default 200 for
            linear problems, whose columns are cheap, 12 for entropies and kl, 40 for others.
        mixture: whether ``stats["mixture"]`` holds the weights and policies whose occupancies are mixed.
        progress: show a progress line; by default on a terminal.
    """

    tolerance: float = 1e-6
    iterations: int = 1_000
    columns: int | None = None
    mixture: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.tolerance, int | float) and 0.0 < self.tolerance < 1.0):
            raise SolverError(
                f"tolerance is a relative gap between 0 and 1; got {self.tolerance!r}. A usual value is 1e-6."
            )
        for name, least in (("iterations", 1), ("columns", 5)):
            given = getattr(self, name)
            if name == "columns" and given is None:
                continue
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise SolverError(
                    f"{name} must be a whole number of at least {least}; got {given!r}"
                )

    def solve(self, problem: Problem, start: Any = None, seed: int | None = None) -> Solution:
        """The certified answer.

        Args:
            problem: what to solve.
            start: a policy, a solution (of any solver) or ``slater(problem)``: its occupancy is the first
                column, and multipliers it has are where the oracle is asked first.
            seed: accepted and not needed: nothing here is random.
        """
        problem.require_model("ColumnGeneration")
        return _Run(self, problem, start).solve()


def smallest_tolerance(model: Flow) -> float:
    """The relative gap that float64 can surely certify: rounding of a bound grows with 1 / (1 - gamma)."""
    successors = int(np.diff(model.transition.indptr).max(initial=0))
    return ROUNDING_FACTOR * (successors + 8) * EPS * model.mass


class _Run:
    """One call of ``solve``."""

    def __init__(self, solver: ColumnGeneration, problem: Problem, start: Any) -> None:
        self.solver, self.problem = solver, problem
        self.started = time.perf_counter()
        self.claims = Claims.of(problem)
        self._check_tolerance()
        self.certifier = Certifier(problem, self.claims)
        most = max(self._columns(), len(self.claims.slacks) + 5)
        self.generation = Generation(self.claims.lowered, solver.tolerance, most)
        self.trouble = ""
        self.evidence: Evidence | None = None  # of the last certificate
        if start is not None:
            self._start(start)

    def _columns(self) -> int:
        if self.solver.columns is not None:
            return self.solver.columns
        lowered = self.claims.lowered
        kind = "linear" if lowered.affine else "entropy" if only_leaf(lowered) else "concave"
        return KEPT[kind]

    def _check_tolerance(self) -> None:
        least = smallest_tolerance(self.claims.flow)
        if least > USELESS:
            raise SolverError(
                f"with a discount of {self.claims.flow.discount!r} rounding alone loosens a bound by up to "
                f"{least:.1g} of its size: float64 can certify nothing useful. Use a discount further from "
                "one, or let episodes end."
            )
        if self.solver.tolerance < least:
            raise SolverError(
                f"tolerance = {self.solver.tolerance:.1g} is tighter than float64 can certify: with a discount "
                f"of {self.claims.flow.discount:g} the least is {least:.1g}"
            )

    def _start(self, start: Any) -> None:
        policy = as_policy(self.problem.mdp, start).probabilities()
        self.generation.add_policy(np.asarray(policy, dtype=np.float64))
        known = getattr(start, "multipliers", None) or {}
        if set(known) == set(self.claims.slacks) and all(
            math.isfinite(mu) and mu >= 0 for mu in known.values()
        ):
            self.generation.start_at(known)

    def solve(self) -> Solution:
        """Iterate, certify, and put together what there is."""
        status, found = self._iterate()
        if found is None:
            found = self._certify()
        if found is None:
            return self._without_answer(status)
        certificate, x = found
        if certificate.infeasible:
            return Solution.without_policy(
                self.problem,
                Status.INFEASIBLE,
                message=infeasible_message(reason=str(self.certifier.slater())),
                stats=self._stats(certificate),
                history=self._history(),
                evidence=self.evidence,
            )
        if status is Status.OPTIMAL and certificate.relative_gap > self.solver.tolerance:
            status = Status.INACCURATE
        return self._solution(status, certificate, x)

    def _iterate(self) -> tuple[Status, tuple[Certificate, np.ndarray] | None]:
        """Steps until the certified gap is small enough; how it ended, and the last certificate."""
        generation, target = self.generation, STOP_EARLY * self.solver.tolerance
        progress = Progress("ColumnGeneration", self.solver.iterations, self.solver.progress)
        tries = 0
        try:
            for done in range(1, self.solver.iterations + 1):
                generation.step()
                progress.update(done, f"gap {generation.gap:.2g}" if generation.gap < 9 else "")
                if generation.infeasible:
                    return Status.INFEASIBLE, None
                if generation.stuck:
                    return Status.INACCURATE, None
                if generation.gap <= target:
                    found = self._certify()
                    tries += 1
                    if found is not None and found[0].relative_gap <= self.solver.tolerance:
                        return Status.OPTIMAL, found
                    if tries == TRIES:
                        return Status.INACCURATE, found
                    target *= 0.1
        except KeyboardInterrupt:
            return Status.INTERRUPTED, None
        except MemoryError:
            self.trouble = (
                f" Out of memory with {len(generation.columns)} columns: ask for fewer (columns=)."
            )
            return Status.INTERRUPTED, None
        finally:
            progress.close()
        return Status.ITERATION_LIMIT, None

    def _certify(self) -> tuple[Certificate, np.ndarray] | None:
        """The certificate of the best mixture and bound so far, and its occupancy; None where there is none."""
        if self.generation.infeasible:
            room = self.generation.room_evidence()
            proof = None if room is None else self.claims.smallest_slack().prove(room)
            if proof is not None and proof.upper < 0:
                self.certifier.take_slater(slater_of(self.claims, proof))
                self.evidence = replace(self.certifier.slater().evidence, infeasible=True)
                nothing = np.zeros(self.claims.flow.shape)
                return self.certifier.infeasible(None, self.certifier.slater()), nothing
        x = self.generation.occupancy()
        if x is None:
            return None
        policy = self.claims.flow.policy(x)
        given = self.claims.achieved(policy)
        kept: Repaired | None = Repaired(policy, 0.0, given)
        if not given.feasible:
            kept = repair(self.claims, policy, given, self._safest)
        self.evidence = self.generation.evidence()
        proof = None if self.evidence is None else self.claims.prove(self.evidence)
        return self.certifier.write(given, kept, proof), given.occupancy

    def _safest(self) -> np.ndarray:
        return self.claims.flow.policy(self.generation.safest())

    def _solution(self, status: Status, certificate: Certificate, x: np.ndarray) -> Solution:
        # What is returned is what is certified: the mixture's policy or, where rounding made it miss a
        # constraint, the repaired one.
        policy = certificate.policy
        if policy is None or certificate.repaired:
            chosen = policy or TabularPolicy(self.claims.flow.policy(x))
            evaluation = self.problem.evaluate(chosen)
            policy, x = chosen, evaluation.occupancy
        else:
            evaluation = self.problem.evaluate_occupancy(x)
        known = certificate.multipliers or dict.fromkeys(self.claims.slacks, math.nan)
        message = self._message(status, certificate)
        return Solution(
            self.problem,
            status,
            evaluation.objective,
            evaluation.slack,
            dict(known),
            policy,
            x,
            self._history(),
            self._stats(certificate),
            message,
            self.evidence,
        )

    def _message(self, status: Status, certificate: Certificate) -> str:
        gap = certificate.relative_gap
        known = f" The certified relative gap is {gap:.1e}." if math.isfinite(gap) else ""
        if status is Status.OPTIMAL:
            return f"The certified relative gap is {gap:.1e}, at most {self.solver.tolerance:.0e}."
        return status.value + known + self.trouble

    def _without_answer(self, status: Status) -> Solution:
        """No feasible mixture was found, and infeasibility was not proven either."""
        bound = self.generation.room_upper
        proven = f"; none above {bound:.2g} exists" if math.isfinite(bound) else ""
        room = self.generation.room
        text = (
            "No policy that satisfies all constraints was found so far. In units of the constraints the best "
            f"smallest slack found is {room:.2g}{proven}."
        )
        if status is Status.OPTIMAL:
            status = Status.INACCURATE
        x = self.claims.flow.policy(self.generation.safest())
        return Solution.of_policy(
            self.problem,
            TabularPolicy(x),
            status,
            dict.fromkeys(self.claims.slacks, math.nan),
            history=self._history(),
            stats=self._stats(None),
            message=f"{status.value} {text}{self.trouble}",
        )

    def _history(self) -> dict[str, Any]:
        trail, sign = self.generation.trail, self.problem.sign
        above, below = sign * np.array(trail.upper), sign * np.array(trail.lower)
        multipliers = np.array(trail.multipliers).reshape(len(trail.upper), len(self.claims.slacks))
        return {
            "upper": above if sign > 0 else below,
            "lower": below if sign > 0 else above,
            "columns": np.array(trail.columns),
            "multipliers": {name: multipliers[:, k] for k, name in enumerate(self.claims.slacks)},
        }

    def _stats(self, certificate: Certificate | None) -> dict[str, Any]:
        generation, work = self.generation, self.generation.oracle.work
        stats: dict[str, Any] = {
            "solver": "ColumnGeneration",
            "seconds": time.perf_counter() - self.started,
            "iterations": len(generation.trail.upper),
            "columns": len(generation.columns),
            "oracle_calls": work.calls,
            "sweeps": work.sweeps,
            "policy_sweeps": work.policy_sweeps,
        }
        if certificate is not None:
            stats["certified_gap"] = certificate.relative_gap
        if self.solver.mixture:
            stats["mixture"] = generation.mixture()
        return stats
