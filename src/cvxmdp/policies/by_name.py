"""Policies by the names of states and actions: of one model in another, and as people write them down.

Two estimates number what they saw in the order they saw it: number 3 of one is another state in the other, and
one may know states that the other never met. Names say which is which.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpWarning, PolicyError
from cvxmdp.models.names import Names, thing_named
from cvxmdp.models.space import Space
from cvxmdp.policies.mixtures import ROUNDING, MixturePolicy
from cvxmdp.policies.tables import TabularPolicy
from cvxmdp.policies.timed_policy import table_policy

SHOWN = 5  # names that a warning lists


def needs_names(policy: TabularPolicy, space: Space) -> bool:
    """Whether both have names, and not the same ones in the same order.

    A file without names has numbers instead; where the model knows none of them as names, they are numbers.
    """
    pairs = ((policy.state_names, space.state_names), (policy.action_names, space.action_names))
    return any(
        ours is not None and theirs is not None and ours != theirs and not _counted(ours, theirs)
        for ours, theirs in pairs
    )


def _counted(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    numbers = tuple(map(str, range(len(ours))))
    return ours == numbers and not set(ours) & set(theirs)


def by_name(policy: TabularPolicy, space: Space) -> TabularPolicy:
    """The same decisions in the states of another model that have the same names.

    A state that the policy does not know gets the uniform row over its available actions, and a warning says
    which ones do.
    """
    actions = _numbers(policy.action_names, space.action_names, policy.n_actions)
    states = _numbers(policy.state_names, space.state_names, policy.n_states)
    found = [actions.get(space.action_label(action), -1) for action in range(space.shape[1])]
    places, met = np.maximum(found, 0), np.array(found) >= 0
    labels = [space.state_label(state) for state in range(space.shape[0])]
    unknown = [label for label in labels if label not in states]

    def carried(tables: np.ndarray) -> np.ndarray:
        """Probabilities (..., S, A) in the states and actions of the model."""
        uniform = space.actions / space.actions.sum(axis=1, keepdims=True)
        matrix = np.broadcast_to(uniform, (*tables.shape[:-2], *uniform.shape)).copy()
        for state, label in enumerate(labels):
            if label not in states:
                continue
            given = tables[..., states[label], :]
            row = given[..., places] * met
            if (np.abs(row.sum(axis=-1) - 1.0) > ROUNDING).any():
                taken = given.reshape(-1, given.shape[-1]).max(axis=0) > 0
                lost = [name for name, a in actions.items() if taken[a]]
                raise PolicyError(
                    f"in state {label!r} the policy takes {', '.join(map(repr, lost))}; the model knows the "
                    f"actions {', '.join(map(repr, space.action_names or ()))}"
                )
            matrix[..., state, :] = row
        return matrix

    tables = carried(policy.probabilities())
    if unknown:
        warnings.warn(
            f"the policy does not know {len(unknown):,} of {space.shape[0]:,} states ({_listed(unknown)}); "
            "there it is uniform over the available actions",
            CvxmdpWarning,
            stacklevel=3,
        )
    if isinstance(policy, MixturePolicy):
        read: TabularPolicy = MixturePolicy(tables, carried(policy.components))
    else:
        read = table_policy(tables)
    return read.named(space.state_names, space.action_names)


def written_policy(space: Space, given: Any) -> TabularPolicy:
    """The policy that a mapping or a function says: of every state its action, or the chances of its actions.

    Args:
        space: the model.
        given: ``{"good": "wait", "worn": {"wait": 0.2, "repair": 0.8}}``, or a function that gives the same for
            a state: for its name (a tuple where it is one), or its number where states have no names.
    """
    states, actions = (
        Names(what, count, known, PolicyError)
        for what, count, known in zip(
            ("state", "action"), space.shape, (space.state_names, space.action_names), strict=True
        )
    )
    if isinstance(given, Mapping):
        said = {states.number(state): said for state, said in given.items()}
        missing = [space.state_label(s) for s in range(states.count) if s not in said]
        if missing:
            raise PolicyError(
                f"the policy says nothing of {len(missing):,} of {states.count:,} states: "
                f"{_listed(missing)}. Give each an action, or the chances of its actions"
            )
    else:
        named = space.state_names is not None
        said = {
            state: given(thing_named(space.state_label(state)) if named else state)
            for state in range(states.count)
        }
    written = TabularPolicy([_decision(said[state], actions) for state in range(states.count)])
    return written.named(space.state_names, space.action_names)


def _decision(said: Any, actions: Names) -> np.ndarray:
    """The row of probabilities of an action, of chances by name, or of all of them in order."""
    if isinstance(said, Mapping):
        return actions.column(said)
    chances = np.asarray(said) if isinstance(said, list | np.ndarray) else np.zeros(())
    if chances.shape == (actions.count,) and chances.dtype.kind == "f":
        return chances
    return np.asarray(np.eye(actions.count)[actions.number(said)])


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")


def _numbers(
    names: tuple[str, ...] | None, others: tuple[str, ...] | None, count: int
) -> dict[str, int]:
    """Numbers by name; where one side has none, their numbers are the names."""
    both = names is not None and others is not None and not _counted(names, others)
    known = names if both else others
    labels = known if known is not None else tuple(map(str, range(count)))
    return {name: number for number, name in enumerate(labels[:count])}
