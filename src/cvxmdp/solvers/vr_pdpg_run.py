"""One run of VR-PDPG: chunk after chunk, and what is made of them.

The model is only sampled from while learning. Where it is known, the policies at the ends of the chunks are
evaluated exactly afterwards, so that a learning curve shows truth and sample. ``environment_runs`` has what is
different where it is not.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cvxmdp.algorithms.chunks import (
    NEVER,
    Carry,
    Snapshot,
    Summary,
    begin,
    host,
    run_chunk,
    snapshot_of,
)
from cvxmdp.algorithms.recursion import Learning, LearningTrace
from cvxmdp.base.errors import CvxmdpWarning, ExperienceError, SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.occupancies import policy_of
from cvxmdp.problems.problem import Evaluation, Problem
from cvxmdp.problems.snapshots import snapshots_of
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.learning import read_learning, single_precision, targets_of
from cvxmdp.solvers.saved_runs import Arrays, pack, unpack
from cvxmdp.solvers.start import per_constraint, read_start

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg import VRPDPG

KEPT = 256  # iterates that iterate="uniform" draws from, themselves drawn uniformly from all
EXPLODED = 20.0  # an importance weight that says the steps are too large


def chunk_size(solver: VRPDPG, done: int) -> tuple[int, int]:
    """The length that chunks are compiled for, and how many iterations the next one has.

    Chunks begin where a record does.
    """
    every = solver.record_every
    length = -(-min(solver.evaluate_every, solver.iterations) // every) * every
    return length, min(length, solver.iterations - done)


def prepare(solver: VRPDPG, problem: Problem, pessimism: np.ndarray) -> Learning:
    """What every run of a solver on a problem takes, on the device."""
    learning: Learning = single_precision(read_learning(solver, problem, pessimism))
    return learning


def read_first(
    solver: VRPDPG, problem: Problem, learning: Learning, start: Any, seed: int
) -> tuple[Any, Any]:
    """theta_0, or None where the family draws it, and mu_0; in single precision."""
    bound = np.asarray(learning.dual_bound)
    given = solver.initial_multiplier
    multipliers = per_constraint(given, problem, "initial_multiplier")
    outside = multipliers > bound
    if outside.any():
        k = int(np.argmax(outside))
        raise SolverError(
            f"the initial_multiplier of {list(problem.constraints)[k]!r} is {multipliers[k]:g}, outside the "
            f"box that ends at dual_bound={bound[k]:g}"
        )
    params = None
    if start is not None:
        claims: Any = None  # only asked for where there is no start
        params, multipliers = read_start(problem, learning.family, claims, start, seed, given)
        multipliers = np.minimum(multipliers, bound)
    return single_precision(params), single_precision(multipliers)


def choose_iterates(solver: VRPDPG, seed: int) -> np.ndarray | None:
    """For iterate="uniform": iterations drawn uniformly without replacement, in order."""
    if solver.iterate != "uniform":
        return None
    count = min(KEPT, solver.iterations)
    chosen = np.random.default_rng([seed, 1]).choice(solver.iterations, count, False)
    return np.sort(chosen).astype(np.int32)


def not_finite(iteration: int) -> str:
    """What to say of a run that broke."""
    return (
        f"iteration {iteration}: the gradient, the slack or an importance weight is not finite. Likely causes: "
        "steps so large that the weights explode (try a smaller primal_step), or a utility of your own that is "
        "not finite at points that are no occupancies."
    )


class Run:
    """A solver on a problem with one seed.

    Args:
        solver, problem: what to run.
        start: a policy or a solution to start from, or None.
        seed: of the random numbers.
        learning: from ``prepare``; runs that differ in their seed alone share it.
    """

    def __init__(
        self, solver: VRPDPG, problem: Problem, start: Any, seed: int, learning: Learning
    ) -> None:
        self.solver, self.problem, self.learning = solver, problem, learning
        self.family = learning.family
        given, multipliers = read_first(solver, problem, learning, start, seed)
        self.kept_at = choose_iterates(solver, seed)
        self.words, params, self.carry = begin(
            learning, np.uint32(seed % 2**32), given, multipliers, self.kept_at
        )
        self.done, self.steps, self.largest_weight = 0, 0, 0.0
        self.traces: list[LearningTrace] = []
        self.snapshots = [(0, host(Snapshot(params, self.carry.seen)))]

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.done >= self.solver.iterations

    def advance(self) -> None:
        """One more chunk."""
        self.take(*self.compute())

    def compute(self) -> tuple[int, Carry, Summary, LearningTrace]:
        """The next chunk, computed but not yet taken over."""
        solver = self.solver
        length, count = chunk_size(solver, self.done)
        carry, summary, traces = run_chunk(
            self.learning,
            self.carry,
            self.words,
            self.kept_at,
            count,
            length=length,
            every=solver.record_every,
        )
        return count, carry, host(summary), host(traces)

    def take(self, count: int, carry: Carry, summary: Summary, traces: LearningTrace) -> None:
        """Check a chunk and put it into the history."""
        if summary.broken_at != NEVER:
            raise SolverError(not_finite(int(summary.broken_at)))
        # Nothing is kept before everything is known: an interrupt leaves no half of a chunk behind.
        done, every = self.done + count, self.solver.record_every
        recorded = done // every - self.done // every
        self.keep_snapshot(carry, done, count)
        self.carry, self.done = carry, done
        self.steps += int(summary.steps)
        self.largest_weight = max(self.largest_weight, float(summary.largest_weight))
        self.traces.append(jax.tree.map(lambda rows: rows[:recorded], traces))

    def keep_snapshot(self, carry: Carry, done: int, count: int) -> None:
        """The policy at the end of a chunk."""
        self.snapshots.append((done, snapshot_of(carry, count)))

    def dump(self) -> Arrays:
        """Everything that is needed to continue with the same bits."""
        return pack(self.carry, self._joined(), self.snapshots) | {
            "counts": np.array([self.done, self.steps]),
            "largest_weight": np.array(self.largest_weight),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from what ``dump`` gave; an error, and nothing changed, where it does not fit."""
        self.carry, self.traces, self.snapshots = unpack(arrays, self.carry, self.snapshots)
        self.done, self.steps = (int(count) for count in arrays["counts"])
        self.largest_weight = float(arrays["largest_weight"])

    def note(self) -> str:
        """For a progress line: what the latest episodes showed."""
        recent = self.problem.sign * self.traces[-1].episode_objective
        return f"objective of the episodes {recent.mean():.5g}" if recent.size else ""

    def solution(self, status: Status, seconds: float) -> Solution:
        """The answer, with all that is known of it."""
        problem, names = self.problem, list(self.problem.constraints)
        trace = self._joined()
        if self.largest_weight > EXPLODED:
            warnings.warn(
                f"the largest importance weight was {self.largest_weight:.3g}: with such weights, variance "
                "reduction adds variance. Take a smaller primal_step or horizon.",
                CvxmdpWarning,
                stacklevel=2,
            )
        policy, evaluation, history = self.evaluated()
        multipliers = np.asarray(self.carry.state.multipliers, dtype=float)  # mu_T, beside theta_T
        if self.solver.iterate != "last" and names and len(trace.multipliers):
            begin = 0 if self.solver.iterate == "uniform" else len(trace.multipliers) // 2
            multipliers = trace.multipliers[begin:].mean(axis=0)
        stats = {
            "solver": f"VR-PDPG (momentum {self.solver.momentum})",
            "iterations": self.done,
            "seconds": seconds,
            "samples": self.steps,
            "largest_weight": self.largest_weight,
            "pessimism": dict(zip(names, self._pessimism().tolist(), strict=True)),
            "params": self.params,
            "family": self.family.name,
        }
        return Solution.of_policy(
            problem,
            policy,
            status,
            {name: float(mu) for name, mu in zip(names, multipliers, strict=True)},
            evaluation=evaluation,
            history={**history, **self._sampled(trace)},
            stats={**stats, **self.more_stats()},
            message=f"{status.value}{self.remark()}",
        )

    @property
    def params(self) -> Any:
        """theta_T, or the latest there is."""
        return host(self.carry.state.params)

    def evaluated(self) -> tuple[Any, Evaluation, dict[str, Any]]:
        """The policy of the answer, what it is worth, and what those on the way to it were worth: exactly."""
        tables = [self.family.deploy(one.params).probabilities() for _, one in self.snapshots]
        visits = self.problem.mdp.flow.occupancies(np.stack(tables))
        iterations = np.array([at for at, _ in self.snapshots])
        policy = self._deployed(visits, iterations)
        return policy, self.problem.evaluate(policy), self.curves(iterations, visits)

    def curves(self, iterations: np.ndarray, visits: np.ndarray) -> dict[str, Any]:
        """Objective, slack and occupancies at some iterations, for the history."""
        every = [self.problem.evaluate_occupancy(x) for x in visits]
        return {
            "iteration": iterations,
            "objective": np.array([found.objective for found in every]),
            "slack": {
                name: np.array([found.slack[name] for found in every])
                for name in self.problem.constraints
            },
            **snapshots_of(iterations, visits[:, : self.problem.space.shape[0]]),
        }

    def so_far(self, seconds: float) -> Solution | None:
        """The answer of a run that cannot go on."""
        return self.solution(Status.FAILED, seconds)

    def more_stats(self) -> dict[str, Any]:
        """What there is to say of this kind of run."""
        return {}

    def remark(self) -> str:
        """What to add to the status."""
        return ""

    def _deployed(self, visits: np.ndarray, iterations: np.ndarray) -> Any:
        mdp, chosen = self.problem.mdp, self.solver.iterate
        if chosen == "average":
            return policy_of(mdp, visits[iterations >= self.done // 2].mean(axis=0))
        if chosen == "uniform":
            every = self.kept() or [self.params]  # interrupted before the first of them
            tables = np.stack([self.family.deploy(params).probabilities() for params in every])
            mean = mdp.flow.occupancies(tables).mean(axis=0)
            return MixturePolicy(policy_of(mdp, mean).probabilities(), tables)
        return self.family.deploy(self.params)

    def kept(self) -> list[Any]:
        """For iterate="uniform": the chosen iterates that were reached."""
        if self.kept_at is None:
            return []
        kept, reached = host(self.carry.kept), np.flatnonzero(self.kept_at < self.done)
        return [jax.tree.map(lambda rows, k=k: rows[k], kept) for k in reached]

    def _pessimism(self) -> np.ndarray:
        return np.asarray(self.learning.pessimism)

    def _joined(self) -> LearningTrace:
        if self.traces:
            joined = LearningTrace(*(np.concatenate(p) for p in zip(*self.traces, strict=True)))
            self.traces = [joined]
            return joined
        n, nothing = len(self.problem.constraints), np.zeros(0)
        columns = {"episode_slack": n, "recursive_slack": n, "multipliers": n}
        columns |= {"tracking_error": len(targets_of(self.problem)), "episode_return": 0}
        return LearningTrace(
            **{
                name: np.zeros((0, columns[name])) if name in columns else nothing
                for name in LearningTrace._fields
            }
        )

    def _sampled(self, trace: LearningTrace) -> dict[str, Any]:
        """What the episodes and the recursion showed, per iteration."""
        names, sign = list(self.problem.constraints), self.problem.sign

        def by_name(columns: np.ndarray, of: list[str] = names) -> dict[str, np.ndarray]:
            return {name: columns[:, k] for k, name in enumerate(of)}

        every = self.solver.record_every
        found = {
            "recorded": np.arange(1, len(trace.gradient_norm) + 1) * every,
            "episode_objective": sign * trace.episode_objective,
            "episode_slack": by_name(trace.episode_slack + self._pessimism()),
            "recursive_slack": by_name(trace.recursive_slack + self._pessimism()),
            "multipliers": by_name(trace.multipliers),
            "gradient_norm": trace.gradient_norm,
            "policy_entropy": trace.policy_entropy,
            "weight_mean": trace.weight_mean,
            "weight_max": trace.weight_max,
            "effective_sample_size": trace.effective_sample_size,
            "episode_length": trace.episode_length,
        }
        if trace.episode_return.shape[1]:
            found["episode_return"] = trace.episode_return[:, 0]
        targets = list(targets_of(self.problem))
        if targets:
            found["tracking_error"] = by_name(trace.tracking_error, targets)
        return found


def run_to_the_end(run: Run) -> Solution:
    """All iterations, with progress; Ctrl-C ends them early and keeps what there is."""
    started, status = time.perf_counter(), Status.ITERATION_LIMIT
    progress = Progress("VR-PDPG", run.solver.iterations, run.solver.progress)
    try:
        while not run.finished:
            run.advance()
            progress.update(run.done, run.note())
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except ExperienceError as error:
        # Hours of simulation may be behind it: what was learned so far goes with the error.
        error.solution = run.so_far(time.perf_counter() - started)
        raise
    finally:
        progress.close()
    return run.solution(status, time.perf_counter() - started)
