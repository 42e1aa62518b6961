"""Policies that may stay for ever where that costs nothing: drawn on coming there, with a bit of memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.policy import Acting, Arrays, draw_actions
from cvxmdp.policies.tables import TabularPolicy


class StayingPolicy(Acting):
    """A policy of ``mdp.collapsed(...)`` in the model itself, whatever its chances to stay. Immutable.

    Whoever comes to a part in which one can stay for ever for nothing, at the start of an episode, from
    elsewhere, or by a way out that led back, draws whether to stay; else the table acts, which leads out. The
    returns are those of the policy of the collapsed model. No table has them: in a state that can be left, one
    that leaves at all leaves surely.

    Args:
        table: what is done by those who do not stay, (S, A).
        stays: the chance to stay, (S,), the same in all states of a part.
        parts: the part of each state, (S,), -1 outside of all.
        inside: boolean (S, A): pairs with which one stays in a part.
    """

    kind = "staying"

    def __init__(self, table: Any, stays: Any, parts: Any, inside: Any) -> None:
        self.table = TabularPolicy(table)
        self.stays = np.asarray(stays, dtype=np.float64)
        self.parts, self.inside = np.asarray(parts, dtype=np.int64), np.asarray(inside, dtype=bool)
        shape = (self.table.n_states, self.table.n_actions)
        if (
            self.stays.shape != shape[:1]
            or self.parts.shape != shape[:1]
            or self.inside.shape != shape
        ):
            raise PolicyError(
                f"stays and parts are numbers per state, inside one per pair, of {shape}; got shapes "
                f"{self.stays.shape}, {self.parts.shape} and {self.inside.shape}"
            )
        if not ((self.stays >= 0) & (self.stays <= 1)).all():
            raise PolicyError("stays are chances, between zero and one")
        if (~self.inside[self.parts >= 0].any(axis=1)).any():
            raise PolicyError("a state of a part has no action that stays in it")
        idle = self.inside / np.maximum(self.inside.sum(axis=1, keepdims=True), 1)
        self._idle = np.where((self.parts >= 0)[:, None], idle, self.table.probabilities())
        self._before: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, mdp: TabularMDP, policy: Any, *signals: str) -> StayingPolicy:
        """A policy of ``mdp.collapsed(*signals)``, or a solution there, in the model itself."""
        found = mdp.unfolding(getattr(policy, "policy", policy), *signals)
        return cls(found.table, found.stays, found.parts, found.inside)

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        """``deterministic`` stays where that is likelier, and takes the likeliest actions."""
        states = self.table.states.numbers(observation)
        comes = np.ones(states.shape, dtype=bool)
        staying = np.zeros(states.shape, dtype=bool)
        if self._before is not None and self._before[0].shape == states.shape:
            last, action, staying = self._before
            stayed = (self.parts[last] == self.parts[states]) & self.inside[last, action]
            comes = ~stayed if episode_start is None else ~stayed | np.asarray(episode_start)
        level = 0.5 if deterministic else self.random.random(states.shape)
        staying = np.where(comes, level < self.stays[states], staying) & (self.parts[states] >= 0)
        rows = np.where(staying[..., None], self._idle[states], self.table.probabilities()[states])
        actions = rows.argmax(axis=-1) if deterministic else draw_actions(rows, self.random)
        self._before = (states, np.asarray(actions), staying)
        return actions if states.ndim else actions[()]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"probabilities": self.table.probabilities(), "stays": self.stays}
        return {**arrays, "parts": self.parts, "inside": self.inside}, {"kind": self.kind}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> StayingPolicy:
        return cls(*(arrays[name] for name in ("probabilities", "stays", "parts", "inside")))

    def __repr__(self) -> str:
        drawn = np.unique(self.parts[(self.stays > 0) & (self.parts >= 0)]).size
        return (
            f"StayingPolicy({self.table.n_states:,} states; may stay for ever in {drawn:,} parts)"
        )
