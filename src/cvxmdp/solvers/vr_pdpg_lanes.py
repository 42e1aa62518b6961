"""Runs of VR-PDPG as lanes of one batched program, split over the devices there are.

Bits depend on the number of lanes alone: not on the neighbours, nor on the place among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.chunks import (
    NEVER,
    Carry,
    Snapshot,
    Summary,
    begin,
    run_chunk,
)
from cvxmdp.algorithms.learning_state import LearningTrace
from cvxmdp.algorithms.recursion import Learning
from cvxmdp.base.compiling import run_once, small_loop, split
from cvxmdp.base.precision import host
from cvxmdp.base.saved_trees import Growing
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.solvers.contract import Batch, Rows
from cvxmdp.solvers.learning import Kept, Learned, not_finite

if TYPE_CHECKING:
    from cvxmdp.solvers.vr_pdpg_work import LearningWork


@small_loop("capacity", "rounds", "axes")
def run_lanes(
    learning: Any,
    carry: Carry,
    words: Any,
    kept_at: Any,
    count: Any,
    length: Any,
    every: Any,
    capacity: int,
    rounds: int,
    axes: Any,
) -> tuple[Carry, Summary, LearningTrace]:
    """``run_chunk`` for all lanes at once."""
    leaves, form = jax.tree.flatten(learning)
    lanes = jax.tree.unflatten(form, [0 if batched else None for batched in axes])
    assert len(leaves) == len(axes)

    def lane(learning: Learning, carry: Carry, words: Any, kept_at: Any) -> Any:
        # Options of the compiler go with the outermost function alone.
        return run_chunk.function(
            learning, carry, words, kept_at, count, length, every, capacity, rounds
        )

    return jax.vmap(lane, in_axes=(lanes, 0, 0, 0))(learning, carry, words, kept_at)


@run_once()
def begin_lanes(
    learning: Learning, seeds: Any, given: Any, multipliers: Any, kept_at: Any
) -> tuple[Any, Any, Carry]:
    """``begin`` for all lanes at once."""

    def lane(seed: Any, given: Any, multipliers: Any, kept_at: Any) -> Any:
        return begin.function(learning, seed, given, multipliers, kept_at)

    found: tuple[Any, Any, Carry] = jax.vmap(lane)(seeds, given, multipliers, kept_at)
    return found


class LanesState(NamedTuple):
    """The states of all lanes, stacked, and where each broke, if it did."""

    learned: Learned
    broken_at: Any  # (lanes,)


class Lanes(Batch[LanesState]):
    """Works of one form, advanced together. The last ones may be idle: they repeat another."""

    name = "VR-PDPG"

    def __init__(self, members: Sequence[LearningWork]) -> None:
        self.members, first = members, members[0]
        self.problem, self.plan = first.problem, first.plan
        self.grain, self.longest = first.grain, first.longest
        self.learning, self.axes = _stack([member.learning for member in members])
        self.kept_at = None
        if first.kept_at is not None:
            self.kept_at = np.stack([np.asarray(member.kept_at) for member in members])
        given = None
        if first.params is not None:
            every = [member.params for member in members]
            given = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
        self.words, self.params, self.carry = begin_lanes(
            first.learning,
            np.array([member.seed for member in members], np.uint32),
            given,
            np.stack([np.asarray(member.multipliers) for member in members]),
            self.kept_at,
        )

    def first(self) -> LanesState:
        lanes, carry = len(self.members), split(self.carry)
        start = Kept(np.array(0), host(Snapshot(self.params, carry.seen)))
        nothing = np.zeros(lanes, np.int64)
        learned = Learned(np.array(0), carry, nothing, np.zeros(lanes), Growing([start]))
        return LanesState(learned, np.full(lanes, NEVER))

    def where(self, state: LanesState) -> tuple[int, int]:
        return int(state.learned.done), self.plan.iterations

    def mark(self, state: LanesState) -> int:
        return self.plan.end(int(state.learned.done))

    def advance(self, state: LanesState, until: int) -> tuple[LanesState, Rows]:
        learned, plan = state.learned, self.plan
        done, carry = int(learned.done), learned.carry
        if isinstance(carry.state.step, np.ndarray):  # from a file
            carry = split(carry)
        carry, summary, traces = run_lanes(
            self.learning,
            carry,
            self.words,
            self.kept_at,
            until - done,
            plan.length,
            plan.every,
            plan.capacity,
            plan.rounds(until - done),
            self.axes,
        )
        summary = host(summary)
        recorded = until // plan.every - done // plan.every
        rows = {name: np.asarray(part)[:, :recorded] for name, part in traces._asdict().items()}
        broken_at = np.minimum(state.broken_at, summary.broken_at)
        return LanesState(learned.after(plan, until, carry, summary), broken_at), rows

    def lane(self, state: LanesState, rows: Rows, place: int) -> tuple[Learned, Rows, str]:
        """One lane as a run of its own."""

        def alone(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: np.asarray(leaf)[place], tree)

        learned, broken_at = state.learned, int(state.broken_at[place])
        snapshots = Growing(Kept(one.done, alone(one.snapshot)) for one in learned.snapshots)
        own = Learned(
            learned.done,
            alone(learned.carry),
            learned.steps[place],
            learned.largest_weight[place],
            snapshots,
        )
        broken = "" if broken_at == NEVER else not_finite(broken_at)
        return own, {name: part[place] for name, part in rows.items()}, broken

    def finish(self, state: LanesState, rows: Rows, status: Status) -> Solution:
        """That of the first lane; ``lane`` gives any of them."""
        own, records, _ = self.lane(state, rows, 0)
        return self.members[0].finish(own, records, status)


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
