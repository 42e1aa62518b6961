"""Groups of runs that are computed together: in lanes of one batched program, by threads, or both.

On an accelerator all runs of a group are lanes. On a CPU a batched program gains while its tables are small
and loses when they are not (docs/sweeps.md has the measurement): there a few runs are lanes, and threads take
one set of lanes after the other on all cores. Bits depend on the number of lanes alone, which is recorded; with
one lane they are those of ``solve``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax
import jax.numpy as jnp
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
from cvxmdp.base.compiling import program, small_loop
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.runs.axes import Case
from cvxmdp.solvers.environment_runs import run_of
from cvxmdp.solvers.saved_runs import Arrays, pack, unpack
from cvxmdp.solvers.vr_pdpg_run import (
    choose_iterates,
    chunk_size,
    not_finite,
    read_first,
)


class Group(Protocol):
    """Runs that are advanced and saved together."""

    cases: list[Case]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        ...

    @property
    def progress(self) -> float:
        """How many runs' worth of work is done."""
        ...

    def advance(self) -> None:
        """A chunk of every run."""
        ...

    def dump(self) -> Arrays:
        """All that is needed to go on."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        ...

    def solution(self, place: int) -> Solution:
        """The answer of one run."""
        ...


class ThreadGroup:
    """Groups advanced by threads, one core each."""

    def __init__(self, members: Sequence[Group], threads: int) -> None:
        self.members, self.threads, self.compiled = list(members), threads, False
        self.cases = [case for member in members for case in member.cases]
        self._places = [(m, place) for m in self.members for place in range(len(m.cases))]

    @property
    def finished(self) -> bool:
        """Whether all members are."""
        return all(member.finished for member in self.members)

    @property
    def progress(self) -> float:
        """Added up over the members."""
        return sum(member.progress for member in self.members)

    def advance(self) -> None:
        """Each unfinished member by a piece; at first one alone, so that it compiles for all."""
        waiting = [member for member in self.members if not member.finished]
        if not self.compiled:
            waiting.pop(0).advance()
            self.compiled = True
        pool = ThreadPoolExecutor(self.threads)
        try:
            for done in [pool.submit(member.advance) for member in waiting]:
                done.result()
        finally:  # also when interrupted: what has begun ends, what has not is left
            pool.shutdown(cancel_futures=True)

    def dump(self) -> Arrays:
        """Every member's own arrays under its number."""
        return {
            f"{place}/{name}": array
            for place, member in enumerate(self.members)
            for name, array in member.dump().items()
        }

    def restore(self, arrays: Arrays) -> None:
        """Every member from its own arrays."""
        for place, member in enumerate(self.members):
            mine = f"{place}/"
            member.restore({k[len(mine) :]: v for k, v in arrays.items() if k.startswith(mine)})

    def solution(self, place: int) -> Solution:
        """The member's own."""
        member, inside = self._places[place]
        return member.solution(inside)


@small_loop("length", "every", "axes")
def run_lanes(
    learning: Any,
    carry: Carry,
    words: Any,
    kept_at: Any,
    count: Any,
    length: int,
    every: int,
    axes: Any,
) -> tuple[Carry, Summary, LearningTrace]:
    """``run_chunk`` for all lanes at once."""
    leaves, form = jax.tree.flatten(learning)
    lanes = jax.tree.unflatten(form, [0 if batched else None for batched in axes])
    assert len(leaves) == len(axes)

    def lane(learning: Learning, carry: Carry, words: Any, kept_at: Any) -> Any:
        # Options of the compiler go with the outermost function alone.
        return run_chunk.function(learning, carry, words, kept_at, count, length, every)

    return jax.vmap(lane, in_axes=(lanes, 0, 0, 0))(learning, carry, words, kept_at)


@program()
def begin_lanes(
    learning: Learning, seeds: Any, given: Any, multipliers: Any, kept_at: Any
) -> tuple[Any, Any, Carry]:
    """``begin`` for all lanes at once."""

    def lane(seed: Any, given: Any, multipliers: Any, kept_at: Any) -> Any:
        return begin.function(learning, seed, given, multipliers, kept_at)

    found: tuple[Any, Any, Carry] = jax.vmap(lane)(seeds, given, multipliers, kept_at)
    return found


class LaneGroup:
    """Runs of VR-PDPG as lanes of one batched program, split over the devices there are."""

    def __init__(
        self, cases: list[Case], start: Any, learnings: list[Learning], idle: int = 0
    ) -> None:
        """``idle`` more lanes repeat the last case, for a width that is always the same."""
        self.cases, self.start, self.learnings = cases, start, learnings
        self.solver = cases[0].solver
        cases, learnings = [*cases, *cases[-1:] * idle], [*learnings, *learnings[-1:] * idle]
        self.width = len(cases)
        self.learning, self.axes = _stack(learnings)
        firsts = [
            read_first(case.solver, case.problem, learning, start, case.seed)
            for case, learning in zip(cases, learnings, strict=True)
        ]
        given = None
        if firsts[0][0] is not None:
            given = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(first for first, _ in firsts))
        chosen = [choose_iterates(case.solver, case.seed) for case in cases]
        self.kept_at = None if chosen[0] is None else jnp.stack([jnp.asarray(at) for at in chosen])
        self.words, params, carry = begin_lanes(
            learnings[0],
            np.array([case.seed for case in cases], np.uint32),
            given,
            np.stack([np.asarray(multipliers) for _, multipliers in firsts]),
            self.kept_at,
        )
        self.carry = self._on_devices(carry)
        self.done, self.seconds = 0, 0.0
        self.steps = np.zeros(len(cases), np.int64)
        self.largest_weight = np.zeros(len(cases))
        self.broken_at = np.full(len(cases), NEVER)
        self.traces: list[LearningTrace] = []
        self.snapshots = [(0, host(Snapshot(params, carry.seen)))]

    def _on_devices(self, tree: Any) -> Any:
        """Lanes split evenly over the devices, where their number allows it."""
        devices = jax.local_devices()
        if len(devices) == 1 or self.width % len(devices):
            return tree
        mesh = jax.sharding.Mesh(np.array(devices), ("lanes",))
        split = jax.sharding.NamedSharding(
            mesh,
            jax.sharding.PartitionSpec("lanes"),  # type: ignore[no-untyped-call]
        )
        return jax.device_put(tree, split)

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.done >= self.solver.iterations

    @property
    def progress(self) -> float:
        """The share that is done, times the number of lanes."""
        return len(self.cases) * self.done / self.solver.iterations

    def advance(self) -> None:
        """One chunk of all lanes."""
        started = time.perf_counter()
        length, count = chunk_size(self.solver, self.done)
        every = self.solver.record_every
        carry, summary, traces = run_lanes(
            self.learning,
            self.carry,
            self.words,
            self.kept_at,
            count,
            length=length,
            every=every,
            axes=self.axes,
        )
        self.broken_at = np.minimum(self.broken_at, np.asarray(summary.broken_at))
        recorded = (self.done + count) // every - self.done // every
        self.traces.append(jax.tree.map(lambda rows: np.asarray(rows)[:, :recorded], traces))
        self.carry, self.done = carry, self.done + count
        self.snapshots.append((self.done, snapshot_of(carry, count)))
        self.steps += np.asarray(summary.steps)
        self.largest_weight = np.maximum(self.largest_weight, np.asarray(summary.largest_weight))
        self.seconds += time.perf_counter() - started

    def _joined(self) -> LearningTrace:
        parts = zip(*self.traces, strict=True)
        self.traces = [LearningTrace(*(np.concatenate(part, axis=1) for part in parts))]
        return self.traces[0]

    def dump(self) -> Arrays:
        """The stacked state and histories."""
        return pack(self.carry, self._joined() if self.traces else None, self.snapshots) | {
            "done": np.array(self.done),
            "seconds": np.array(self.seconds),
            "steps": self.steps,
            "largest_weight": self.largest_weight,
            "broken_at": self.broken_at,
        }

    def restore(self, arrays: Arrays) -> None:
        """Go on from what ``dump`` gave."""
        carry, self.traces, self.snapshots = unpack(arrays, self.carry, self.snapshots)
        self.carry = self._on_devices(carry)
        self.done, self.seconds = int(arrays["done"]), float(arrays["seconds"])
        self.steps, self.largest_weight = arrays["steps"], arrays["largest_weight"]
        self.broken_at = arrays["broken_at"]

    def solution(self, place: int) -> Solution:
        """The answer of one lane, evaluated as a run of its own."""
        case = self.cases[place]
        if self.broken_at[place] != NEVER:
            return Solution.without_policy(
                case.problem, Status.FAILED, message=not_finite(int(self.broken_at[place]))
            )

        def lane(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: np.asarray(leaf)[place], tree)

        run = run_of(case.solver, case.problem, self.start, case.seed, self.learnings[place])
        run.carry = lane(self.carry)
        run.traces = [lane(self._joined())] if self.traces else []
        run.snapshots = [(at, lane(params)) for at, params in self.snapshots]
        run.done, run.steps = self.done, int(self.steps[place])
        run.largest_weight = float(self.largest_weight[place])
        status = Status.ITERATION_LIMIT if self.finished else Status.INTERRUPTED
        return run.solution(status, self.seconds / self.width)  # its share of the lanes' time


def _stack(learnings: list[Learning]) -> tuple[Learning, tuple[bool, ...]]:
    """One record for all lanes: leaves that differ are stacked, the others shared."""
    form = jax.tree.structure(learnings[0])
    columns = zip(*(jax.tree.leaves(one) for one in learnings), strict=True)
    leaves, axes = [], []
    for column in columns:
        distinct = {id(leaf): np.asarray(leaf) for leaf in column}
        first = np.asarray(column[0])
        same = all(np.array_equal(first, other) for other in distinct.values())
        leaves.append(column[0] if same else jnp.stack([jnp.asarray(leaf) for leaf in column]))
        axes.append(not same)
    return jax.tree.unflatten(form, leaves), tuple(axes)
