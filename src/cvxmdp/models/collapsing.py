r"""Undiscounted models in which one can stay for ever for nothing: each such part as one state.

Among pairs whose signals are all zero, a maximal end component can be crossed and stayed in for free. So all
of its states are as good as one, which has the ways out of them all, and one action more: to *stay* for ever,
which ends the episode and is worth nothing. Returns are the same in both models; in the smaller one they end.

Back in the model itself, a policy carries whoever enters a component to the ways out: visits y >= 0 of the
pairs inside with

    out(y) + leaving = entering + P'y,

which have a solution, since inside everything can be reached. The shortest is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxmdp.base.errors import ModelError, PolicyError
from cvxmdp.models.end_components import EndComponents, end_components
from cvxmdp.models.episode_flow import ROUNDED

LARGEST = 50_000_000  # entries of a signal
NAMED = 4  # states in a name
ROUNDING = 1e-9  # of the visits of a component, that nobody takes for a decision to stay


@dataclass(frozen=True, eq=False)
class Silence:
    """Where one can stay for ever for nothing.

    Attributes:
        transition: (S * A, S) of the model.
        actions: boolean (S, A), those that are available.
        parts: the end components.
    """

    transition: sp.csr_array
    actions: np.ndarray
    parts: EndComponents

    @classmethod
    def of(cls, arguments: Mapping[str, Any], signals: tuple[str, ...]) -> Silence:
        """The parts of a model, by its constructor's arguments, where these signals are zero."""
        actions = np.asarray(arguments["actions"], dtype=bool)
        transition = sp.csr_array(arguments["transition"])
        sums = np.asarray(transition.sum(axis=1)).reshape(actions.shape)
        silent = actions & (np.abs(sums - 1.0) < ROUNDED)
        for name in signals:
            silent &= np.asarray(arguments["signals"][name]) == 0
        return cls(transition, actions, end_components(transition, silent))

    @cached_property
    def stands_for(self) -> np.ndarray:
        """(S,): the state that each one becomes, the first of its part; itself outside of all."""
        found = np.arange(self.actions.shape[0])
        for part in range(self.parts.count):
            members = self.parts.members(part)
            found[members] = members[0]
        return found

    @cached_property
    def ways_out(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every part: states and actions of the pairs that leave it, or end."""
        leaving = self.actions & ~self.parts.inside
        pairs = [np.nonzero(leaving & (self.parts.labels == part)[:, None]) for part in self._all]
        return [(states, actions) for states, actions in pairs]

    @property
    def _all(self) -> range:
        return range(self.parts.count)

    @cached_property
    def columns(self) -> int:
        """Actions of the smaller model: those there were, to stay, and as many ways out as one part has."""
        return self.actions.shape[1] + 1 + max((len(s) for s, _ in self.ways_out), default=0)

    @cached_property
    def source(self) -> np.ndarray:
        """(S, columns): the pair that an action stands for, s * A + a; -1 for none."""
        n_states, n_actions = self.actions.shape
        pairs = np.arange(n_states * n_actions).reshape(n_states, n_actions)
        found = np.full((n_states, self.columns), -1)
        outside = self.parts.labels < 0
        found[outside, :n_actions] = np.where(self.actions, pairs, -1)[outside]
        for part, (states, actions) in zip(self._all, self.ways_out, strict=True):
            first = self.parts.members(part)[0]
            ways = n_actions + 1 + np.arange(len(states))
            found[first, ways] = pairs[states, actions]
        return found

    def carried(self, arriving: np.ndarray, leaving: np.ndarray) -> np.ndarray:
        """Visits of the pairs inside, (S, A), that carry who arrives, (S,), to who leaves, (S,)."""
        places = np.flatnonzero(self.parts.inside)
        if not places.size:
            return np.zeros(self.actions.shape)
        owner = places // self.actions.shape[1]
        entries = (np.ones(places.size), (owner, np.arange(places.size)))
        out = sp.csr_array(entries, shape=(arriving.size, places.size))
        inside = self.parts.labels >= 0
        equations = (out - self.transition[places].T)[inside]
        right = (arriving - leaving)[inside]
        size = max(float(np.abs(right).max(initial=0.0)), 1e-300)
        found = linprog(np.ones(places.size), A_eq=equations, b_eq=right / size, method="highs")
        if found.x is None:
            raise PolicyError(
                f"the ways out could not be reached as often as wanted: {found.message}"
            )
        visits = np.zeros(self.actions.size)
        visits[places] = size * np.maximum(found.x, 0.0)
        return visits.reshape(self.actions.shape)


def collapsed(arguments: Mapping[str, Any], signals: tuple[str, ...]) -> dict[str, Any]:
    """The model with every silent part as one state.

    States keep their numbers, and actions theirs where nothing was merged. A part is its first state, with the
    name of all; the others are never visited. There, "stay" and "way out 1", "way out 2", ... are available.

    Args:
        arguments: the constructor's, as the model keeps them.
        signals: those that count.
    """
    silence = Silence.of(arguments, signals)
    (n_states, n_actions), columns = silence.actions.shape, silence.columns
    if n_states * columns > LARGEST:
        raise ModelError(
            f"{n_states:,} states with {columns:,} actions are too many: a part in which one can stay for "
            "nothing has so many ways out. Give a discount, or end episodes there with mdp.ending_at([...])."
        )
    source = silence.source.ravel()
    taken = np.flatnonzero(source >= 0)
    pick = sp.csr_array(
        (np.ones(taken.size), (taken, source[taken])),
        shape=(source.size, silence.transition.shape[0]),
    )
    merge = sp.csr_array(
        (np.ones(n_states), (np.arange(n_states), silence.stands_for)), shape=(n_states, n_states)
    )
    available = silence.source >= 0
    available[silence.parts.labels >= 0, n_actions] = True  # to stay
    given = {name: np.asarray(one).ravel() for name, one in arguments["signals"].items()}
    worth = {
        name: np.where(source >= 0, one[np.maximum(source, 0)], 0.0).reshape(available.shape)
        for name, one in given.items()
    }
    actions = list(arguments["action_names"] or map(str, range(n_actions)))
    ways = [f"way out {number}" for number in range(1, columns - n_actions)]
    return {
        **arguments,
        "transition": sp.csr_array(pick @ silence.transition @ merge),
        "initial": np.bincount(silence.stands_for, arguments["initial"], minlength=n_states),
        "signals": worth,
        "actions": available,
        "action_names": [*actions, "stay", *ways],
        "state_names": _names(arguments["state_names"] or map(str, range(n_states)), silence),
        "layout": None,
        "counts": None,
    }


def _names(given: Any, silence: Silence) -> list[str]:
    names = [str(name) for name in given]
    for part in range(silence.parts.count):
        members = silence.parts.members(part)
        shown = [names[state] for state in members[:NAMED]]
        more = [f"{len(members) - NAMED} more"] if len(members) > NAMED else []
        names[members[0]] = "+".join([*shown, *more])
    return names


class Unfolded(NamedTuple):
    """A policy of a collapsed model, in the model itself.

    Attributes:
        table: (S, A): what it does while it does not stay for ever.
        stays: (S,): the chance to stay for ever, drawn on coming to a part; the same in all of its states.
        parts: (S,): the part of each state, -1 outside of all.
        inside: boolean (S, A): the pairs with which one stays in a part.
        names: of the states, parts in the names of their first.
    """

    table: np.ndarray
    stays: np.ndarray
    parts: np.ndarray
    inside: np.ndarray
    names: list[str]

    def plain(self) -> np.ndarray:
        """The table alone, where it is all of the policy."""
        drawn = np.flatnonzero((self.stays > ROUNDING) & (self.stays < 1 - ROUNDING))
        if drawn.size:
            where, chance = self.names[drawn[0]], self.stays[drawn[0]]
            raise PolicyError(
                f"the policy stays for ever in {where} with probability {chance:.3g}, which no table can do: "
                "it takes memory. cvxmdp.StayingPolicy.of(mdp, policy) draws on coming there whether it stays."
            )
        return self.table


def unfolded(
    arguments: Mapping[str, Any], signals: tuple[str, ...], policy: np.ndarray, x: np.ndarray
) -> Unfolded:
    """The policy of the model itself for one of the collapsed model.

    Args:
        arguments, signals: of the model, as for ``collapsed``.
        policy: of the collapsed model, (S, columns).
        x: its occupancy there.
    """
    silence = Silence.of(arguments, signals)
    n_states, n_actions = silence.actions.shape
    inside, stays = silence.parts.labels >= 0, np.zeros(n_states)
    taken = silence.source >= 0
    counted = np.bincount(silence.source[taken], x[taken], minlength=silence.actions.size)
    visits = counted.reshape(silence.actions.shape)
    arriving = np.asarray(arguments["initial"]) + silence.transition.T @ visits.ravel()
    leaving = np.where(inside, visits.sum(axis=1), 0.0)
    for part in range(silence.parts.count):
        members = silence.parts.members(part)
        comes, goes = float(arriving[members].sum()), float(leaving[members].sum())
        stays[members] = policy[members[0], n_actions] if comes > 0 else 0.0
        arriving[members] *= goes / comes if comes > 0 else 0.0  # of those who do not stay
    visits += silence.carried(np.where(inside, arriving, 0.0), leaving)
    rows = np.where(inside[:, None], visits, policy[:, :n_actions])
    there = rows.sum(axis=1, keepdims=True) > 0
    idle = silence.parts.inside / np.maximum(silence.parts.inside.sum(axis=1, keepdims=True), 1)
    table = np.where(there, rows / np.where(there, rows.sum(axis=1, keepdims=True), 1.0), idle)
    names = _names(arguments["state_names"] or range(n_states), silence)
    return Unfolded(table, stays, silence.parts.labels, silence.parts.inside, names)
