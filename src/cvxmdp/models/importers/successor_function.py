"""Models from a successor function: queues, inventories, games, anything with discrete states."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.horizon import horizon_arguments
from cvxmdp.models.names import name_of
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import read_table

State = Hashable
Outcomes = Iterable[tuple[float, State | None] | tuple[float, State | None, Mapping[str, float]]]


def from_function(
    successors: Callable[[Any, Any], Outcomes],
    *,
    initial: State | Mapping[State, float],
    actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
    discount: float | None = None,
    signals: Mapping[str, Callable[[Any, Any], float]] | None = None,
    max_states: int = 1_000_000,
    horizon: int | None = None,
    average: bool = False,
) -> TabularMDP:
    """Explore the states reachable from ``initial`` and make a model of them.

    Args:
        successors: ``successors(state, action)`` gives the outcomes as (probability, next_state) or
            (probability, next_state, {signal: value}); next_state ``None`` ends the episode. Signals
            of outcomes are averaged; a signal an outcome does not name is zero there.
        initial: the first state, or a mapping of first states to probabilities.
        actions: the actions, or a function of the state that gives the ones available there.
        discount: gamma.
        signals: further signals as functions (state, action) -> number.
        max_states: stop with an error beyond this many, rather than fill the memory.
        horizon, average: instead of a discount, a number of steps, or True for the long run (``TabularMDP``).

    Returns:
        A model whose states are named by ``str(state)`` and numbered in the order they were found (breadth
        first), whole numbers by size; actions not available in a state are masked.
    """
    functions = read_table(signals, "signals", '{"reward": function}')
    explorer = _Explorer(successors, _availability(actions), dict(functions), max_states)
    if not isinstance(initial, Mapping):
        explorer.number(initial)
    starts = dict(initial) if isinstance(initial, Mapping) else {initial: 1.0}
    if not starts or None in starts:
        raise ModelError("initial names no state (None is the end of an episode, not a state)")
    for state in starts:
        explorer.number(state)
    explorer.run()
    return explorer.model(starts, horizon_arguments(discount, horizon, average))


def _availability(actions: Any) -> Callable[[Any], Iterable[Hashable]]:
    if isinstance(actions, Iterable):  # first: an Enum of actions can be called, too
        every = tuple(actions)
        return lambda _: every
    if not callable(actions):
        raise ModelError(
            f"actions must be the actions or a function of the state that gives them; got {actions!r}"
        )
    return actions


class _Explorer:
    """Breadth-first search; keeps entries in plain lists until the sizes are known."""

    def __init__(
        self,
        successors: Callable[[Any, Any], Outcomes],
        available: Callable[[Any], Iterable[Hashable]],
        signals: dict[str, Callable[[Any, Any], float]],
        max_states: int,
    ) -> None:
        self.successors, self.available = successors, available
        self.signals, self.max_states = signals, max_states
        self.states: dict[State, int] = {}
        self.queue: deque[State] = deque()
        self.actions: dict[Hashable, int] = {}
        self.entries: list[tuple[int, int, int, float]] = []  # state, action, successor, chance
        self.pairs: list[tuple[int, int]] = []
        self.values: dict[str, list[tuple[int, int, float]]] = {name: [] for name in signals}

    def number(self, state: State) -> int:
        try:
            known = state in self.states
        except TypeError as error:
            raise ModelError(
                f"state {state!r} cannot be a dictionary key; use tuples instead of lists or arrays"
            ) from error
        if not known:
            if len(self.states) >= self.max_states:
                raise ModelError(
                    f"more than max_states={self.max_states:,} states are reachable (one more is "
                    f"{state!r}). Is the state space infinite? Bound it, or raise max_states."
                )
            self.states[state] = len(self.states)
            self.queue.append(state)
        return self.states[state]

    def run(self) -> None:
        while self.queue:
            self._expand(self.queue.popleft())

    def _expand(self, state: State) -> None:
        here = self.states[state]
        seen = set()
        for action in self._listed(self.available(state), f"actions({state!r})"):
            column = self.actions.setdefault(action, len(self.actions))
            if action in seen:
                raise ModelError(f"action {action!r} is given twice in state {state!r}")
            seen.add(action)
            self.pairs.append((here, column))
            for name, function in self.signals.items():
                self.values[name].append((here, column, float(function(state, action))))
            total = 0.0
            outcomes = self.successors(state, action)
            for outcome in self._listed(outcomes, f"successors({state!r}, {action!r})"):
                total += self._add_outcome(state, action, here, column, outcome)
            if not math.isclose(total, 1.0, rel_tol=0, abs_tol=1e-9):
                raise ModelError(
                    f"the outcomes of state {state!r}, action {action!r} have probabilities that sum "
                    f"to {total:.12g}, not to one (an outcome that ends the episode has next state "
                    "None)"
                )

    @staticmethod
    def _listed(given: Any, call: str) -> Iterable[Any]:
        if not isinstance(given, Iterable):
            raise ModelError(f"{call} must give a list; it gave {given!r}. Is a return missing?")
        return given

    def _add_outcome(
        self, state: State, action: Hashable, here: int, column: int, outcome: Any
    ) -> float:
        try:
            probability, successor, *rest = outcome
            probability = float(probability)
            (given,) = rest or ({},)
            values = {name: float(value) for name, value in dict(given).items()}
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"an outcome of state {state!r}, action {action!r} is {outcome!r}; expected "
                "(probability, next_state) or (probability, next_state, {signal: value})"
            ) from error
        if not 0.0 <= probability <= 1.0 + 1e-9:
            raise ModelError(
                f"an outcome of state {state!r}, action {action!r} has probability {probability}"
            )
        if probability == 0.0:
            return probability
        if successor is not None:
            self.entries.append((here, column, self.number(successor), probability))
        for name, value in values.items():
            if name in self.signals:
                raise ModelError(
                    f"signal {name!r} is given both as a function, in signals, and with the outcomes "
                    f"of state {state!r}, action {action!r}; give it once"
                )
            self.values.setdefault(name, []).append((here, column, probability * value))
        return probability

    def model(self, starts: Mapping[State, float], ahead: dict[str, Any]) -> TabularMDP:
        n_states, n_actions = len(self.states), len(self.actions)
        if not n_actions:
            raise ModelError("no state has an action; `actions` gives none")
        states, state_names = _in_order(self.states)
        actions, action_names = _in_order(self.actions)
        mask = np.zeros((n_states, n_actions), dtype=bool)
        for state, action in self.pairs:
            mask[states[state], actions[action]] = True
        initial = np.zeros(n_states)
        for first, probability in starts.items():
            initial[states[self.states[first]]] += probability
        table = np.array([entry[:3] for entry in self.entries], dtype=np.int64).reshape(-1, 3)
        chances = np.array([entry[3] for entry in self.entries])
        rows = states[table[:, 0]] * n_actions + actions[table[:, 1]]
        shape = (n_states * n_actions, n_states)
        signals = {}
        for name, values in self.values.items():
            signals[name] = np.zeros((n_states, n_actions))
            for state, action, value in values:
                signals[name][states[state], actions[action]] += value
        return TabularMDP(
            sp.csr_array((chances, (rows, states[table[:, 2]])), shape=shape),
            initial,
            **ahead,
            signals=signals,
            actions=mask,
            state_names=state_names,
            action_names=action_names,
        )


def _in_order(found: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The numbers of things in the order they were found, and their names; None where two print alike.

    Whole numbers are numbered by size, so that those from 0 on are their own numbers.
    """
    things = list(found)
    order = list(range(len(things)))
    if all(isinstance(thing, int | np.integer) for thing in things):
        order.sort(key=things.__getitem__)
    names = tuple(name_of(things[place]) for place in order)
    return np.argsort(order), names if len(set(names)) == len(names) else None
