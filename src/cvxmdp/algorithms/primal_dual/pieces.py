"""PDPG's compiled programs: the first state, a piece of iterations, and the occupancy at a state.

They are all that a run compiles. Problems of one shape share them: budgets, targets, steps and the number of
iterations are arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.base.compiling import program, run_once

Array = Any


class Method(NamedTuple):
    """What is compiled: another method is another compilation."""

    kind: str  # "tuned" or "paper"
    rule: str
    direction: str
    transform: Any

    def first(self, compiled: core.Compiled, params: Any, multipliers: Array, rounded: Any) -> Any:
        """The state before the first iteration."""
        if self.kind == "tuned":
            return core.tuned_start(compiled, params, multipliers, rounded)
        optimiser = self.transform.init(params) if self.transform is not None else ()
        return core.PaperState(params, multipliers, optimiser)

    def step(self, compiled: core.Compiled, state: Any, steps: Any) -> Any:
        """One iteration: the state, the point it was at, and its entry in the history."""
        if self.kind == "tuned":
            return core.tuned_step(compiled, state, steps, self.direction)
        return core.paper_step(compiled, state, steps, self.rule, self.transform, self.direction)


class Totals(NamedTuple):
    """Sums over the iterations, and the best iterate."""

    visits: Any  # the sum of the occupancies, (S, A)
    multipliers: Any  # the sum of the multipliers, (n,)
    best: Any  # an occupancy, (S, A)
    best_objective: Any
    least_violated: Any

    @classmethod
    def zero(cls, shape: tuple[int, ...], n: int) -> Totals:
        nothing = np.zeros(shape)
        return cls(nothing, np.zeros(n), nothing, np.array(-np.inf), np.array(np.inf))

    def plus(self, compiled: core.Compiled, point: core.Point, multipliers: Any) -> Totals:
        """With one more iterate. The best one violates least, and of the feasible has the best objective."""
        violated = jnp.maximum(0.0, -(point.slack + compiled.pessimism)).sum()
        better = violated < self.least_violated
        better |= (violated == self.least_violated) & (point.objective > self.best_objective)
        return Totals(
            self.visits + point.occupancy,
            self.multipliers + multipliers,
            jnp.where(better, point.occupancy, self.best),
            jnp.where(better, point.objective, self.best_objective),
            jnp.where(better, violated, self.least_violated),
        )


@run_once("method")
def first_state(
    compiled: core.Compiled, params: Any, multipliers: Array, rounded: Any, method: Method
) -> Any:
    """The state before the first iteration."""
    return method.first(compiled, params, multipliers, rounded)


@program("method", "capacity")
def run_piece(
    compiled: core.Compiled,
    state: Any,
    totals: Totals,
    steps: Any,
    length: Any,
    method: Method,
    capacity: int,
) -> tuple[Any, Totals, core.Trace]:
    """``length`` iterations: the state, the totals and the history, of which ``length`` rows are filled.

    The length is a number, not structure: pieces of any length up to ``capacity`` are compiled once.
    """
    n = compiled.dual_bound.shape[0]

    def iteration(place: Any, carry: Any) -> Any:
        state, totals, rows = carry
        state, point, entry = method.step(compiled, state, steps)
        # One row of numbers: storing them one by one is a kernel each.
        row = jnp.concatenate([jnp.atleast_1d(column) for column in entry])
        rows = jax.lax.dynamic_update_index_in_dim(rows, row, place, 0)
        return state, totals.plus(compiled, point, entry.multipliers), rows

    empty = jnp.zeros((capacity, 2 * n + 3))
    state, totals, rows = jax.lax.fori_loop(0, length, iteration, (state, totals, empty))
    middle = 1 + n, 1 + 2 * n  # of the columns: objective, slack, multipliers, norm, step
    slack, multipliers = rows[:, 1 : middle[0]], rows[:, middle[0] : middle[1]]
    return state, totals, core.Trace(rows[:, 0], slack, multipliers, rows[:, -2], rows[:, -1])


def occupancy_at(compiled: core.Compiled, state: Any) -> np.ndarray:
    """The occupancy of the state's own policy, (S, A)."""
    if isinstance(state, core.TunedState):
        return np.asarray(state.point.occupancy)
    return np.asarray(_evaluated(compiled, state.params))


@program()
def _evaluated(compiled: core.Compiled, params: Any) -> Array:
    return core.evaluate(compiled, params)[0].occupancy
