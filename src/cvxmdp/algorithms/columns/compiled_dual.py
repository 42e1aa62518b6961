r"""The smoothed dual on an accelerator: a whole descent is one program.

The mathematics is that of ``smoothed_dual``. Evaluations are cheap there and the way back to the host is
not, so a descent takes more of them. The last pairs of steps and changes stand in tables (M, S + n), newest
last; a pair that curves nothing, <step, change> = 0, takes no part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.columns.aggregates import Aggregates, aggregates_of
from cvxmdp.algorithms.columns.column_places import HostPlace
from cvxmdp.algorithms.columns.flow_duals import Leaf
from cvxmdp.algorithms.columns.smoothed_dual import (
    CURVED,
    ENOUGH,
    FIRST_MOVE,
    HARDLY,
    IDLE,
    MEMORY,
    MOST_HALVINGS,
    DualPoint,
    DualTerms,
    SmoothedDual,
    can_be_smoothed,
    terms_of,
)
from cvxmdp.base.arrays import Array
from cvxmdp.base.compiling import program
from cvxmdp.base.pytrees import chosen
from cvxmdp.models.compiled_planning import CompiledModel
from cvxmdp.problems.lowered import Lowered

LONGER = 25  # times the evaluations of a descent on the host, measured on grids


class Pairs(NamedTuple):
    """The last steps and changes of the slope, (M, S + n) both, and <step, change>, (M,)."""

    steps: Array
    changes: Array
    bends: Array


class Descent(NamedTuple):
    """Where a descent is."""

    here: DualPoint
    pairs: Pairs
    evaluations: Array
    idle: Array
    over: Array


class CompiledDual(SmoothedDual):
    """``SmoothedDual`` where its place is an accelerator."""

    def __init__(
        self,
        terms: DualTerms,
        units: np.ndarray,
        place: HostPlace,
        aggregates: Aggregates,
        model: CompiledModel,
    ) -> None:
        super().__init__(terms, units, place, aggregates)
        self.compiled = model
        self.aggregates = jax.tree.map(place.put, self.aggregates)
        self.steps = np.zeros((MEMORY, self.values.size + self.multipliers.size))
        self.changes = self.steps

    def _descended(self, prior: np.ndarray, gap: float, evaluations: int) -> DualPoint:
        steps, changes = jnp.asarray(self.steps), jnp.asarray(self.changes)
        pairs = Pairs(steps, changes, jnp.einsum("ki,ki->k", steps, changes))
        given = jnp.asarray(self.values), jnp.asarray(self.multipliers)
        asked = jnp.asarray(gap), jnp.asarray(LONGER * evaluations)
        smoothing = prior, jnp.asarray(self.temperature)
        ended = descent(self.compiled, self.terms, self.aggregates, smoothing, given, pairs, asked)
        here = ended.here._replace(multipliers=np.asarray(ended.here.multipliers))
        self.steps, self.changes = ended.pairs.steps, ended.pairs.changes
        self.values, self.multipliers = here.values, here.multipliers
        self.evaluations += int(ended.evaluations)
        self.place.oracle.work.sweeps += 2 * int(ended.evaluations)
        return here


def dual_of(lowered: Lowered, leaf: Leaf, place: HostPlace) -> SmoothedDual | None:
    """The smoothed dual of a problem, where its place is; None where it has none."""
    if not can_be_smoothed(lowered, leaf):
        return None
    parts = *terms_of(lowered, leaf), place, aggregates_of(lowered.flow)
    return SmoothedDual(*parts) if place.model is None else CompiledDual(*parts, place.model)


@program()
def descent(
    model: CompiledModel,
    terms: DualTerms,
    aggregates: Aggregates,
    smoothing: tuple[Array, Array],
    given: tuple[Array, Array],
    pairs: Pairs,
    asked: tuple[Array, Array],
) -> Descent:
    """``SmoothedDual._descended``.

    Args:
        model, terms, aggregates: the problem.
        smoothing: logarithms of a policy, (S, A), and the temperature.
        given: values and multipliers to begin with.
        pairs: of descents before.
        asked: the gap between the bounds, and the evaluations.
    """
    gap, most = asked

    def at(values: Array, multipliers: Array) -> DualPoint:
        following = model.following(values).T
        return terms.at(smoothing, values, multipliers, following, model.residual)

    def step(now: Descent) -> Descent:
        slope = now.here.free
        direction = _newton(now.pairs, slope, aggregates)
        promised = jnp.vdot(direction, slope)
        fresh = ~(now.pairs.bends > 0).any()
        first = FIRST_MOVE * terms.factor * smoothing[1] / jnp.abs(direction).max()
        tries = jnp.where(promised > 0, MOST_HALVINGS, 0)

        def short(search: Any) -> Array:
            count, length, there = search
            enough = now.here.value - ENOUGH * length * promised
            return (count < tries) & ~((count > 0) & (there.value <= enough))

        def halved(search: Any) -> Any:
            count, length, _ = search
            length = jnp.where(count > 0, 0.5 * length, length)
            return count + 1, length, at(*_moved(now.here, length * direction))

        begin = (jnp.asarray(0), jnp.where(fresh, first, 1.0), now.here)
        count, length, there = jax.lax.while_loop(short, halved, begin)
        gained = now.here.value - there.value
        good = (count > 0) & (gained >= ENOUGH * length * promised)
        kept = _remembered(now.pairs, now.here, there)
        none = jax.tree.map(jnp.zeros_like, now.pairs)
        idle = jnp.where(good & (gained > HARDLY * gap), 0, now.idle + good)
        return Descent(
            chosen(good, there, now.here),
            chosen(good, kept, none),  # another temperature may have made them useless
            now.evaluations + count,
            idle,
            ~good & fresh,
        )

    def wanted(now: Descent) -> Array:
        return (now.evaluations < most) & (now.idle < IDLE) & ~now.over

    zero = jnp.asarray(0)
    begin = Descent(at(*given), pairs, zero + 1, zero, jnp.asarray(False))
    return jax.lax.while_loop(wanted, step, begin)


def _moved(here: DualPoint, change: Array) -> tuple[Array, Array]:
    states = here.values.size
    return here.values - change[:states], jnp.maximum(here.multipliers - change[states:], 0.0)


def _remembered(pairs: Pairs, here: DualPoint, there: DualPoint) -> Pairs:
    step = jnp.append(there.values - here.values, there.multipliers - here.multipliers)
    change = there.slope - here.slope
    bend = jnp.vdot(step, change)
    curved = bend > CURVED * jnp.sqrt(jnp.vdot(step, step) * jnp.vdot(change, change))
    last = Pairs(step, change, bend)
    moved = jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), pairs, last)
    return Pairs(*chosen(curved, moved, pairs))


def _newton(pairs: Pairs, slope: Array, aggregates: Aggregates) -> Array:
    """The inverse Hessian that the last pairs suggest, times the slope (Nocedal, 1980)."""
    direction, weights = slope, []
    used = pairs.bends > 0
    bends = jnp.where(used, pairs.bends, 1.0)
    for k in reversed(range(MEMORY)):
        weight = jnp.where(used[k], jnp.vdot(pairs.steps[k], direction) / bends[k], 0.0)
        direction = direction - weight * pairs.changes[k]
        weights.append(weight)
    last, direction = pairs.changes[-1], aggregates.applied(direction)
    size = jnp.where(used[-1], jnp.vdot(last, aggregates.applied(last)), 1.0)
    direction = direction * jnp.where(used[-1], bends[-1] / size, 1.0)
    for k in range(MEMORY):
        back = jnp.vdot(pairs.changes[k], direction) / bends[k]
        more = jnp.where(used[k], weights.pop() - back, 0.0)
        direction = direction + more * pairs.steps[k]
    return direction
