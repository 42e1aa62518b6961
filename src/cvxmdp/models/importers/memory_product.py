r"""What a model checker's query asks about, as sums of signals: a product with the memory that it needs.

A memory is open at first, and closes once a state outside ``stay`` is entered or its budget is overspent. A
payment is what every choice earns that leaves its memory open until then. So

| query          | stays open in | pays                           | budget           |
|----------------|---------------|--------------------------------|------------------|
| P [a U b]      | a and not b   | the chance of entering b       | -                |
| P [a U<=k b]   | a and not b   | the chance of entering b       | k, of which a step takes 1 |
| P [a U{r}<=k b] | a and not b  | the chance of entering b       | k, of which a step takes its reward r |
| R [F b]        | not b         | the reward                     | -                |
| R [C<=k]       | everywhere    | the reward                     | k, of which a step takes 1 |

are expected sums in the product of the model with one small counter per memory, zero once it is closed. Where
nothing can be paid any more the episode ends. Where one can stay for ever without being paid (in an end
component), staying is a choice that ends the episode; it pays one for every recurring label, P [G F a], that is
met again and again there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.importers.choice_graphs import ChoiceGraph
from cvxmdp.models.importers.explicit_model import ExplicitModel

LARGEST = 50_000_000  # transitions of a product


@dataclass(frozen=True, eq=False)
class OpenGoal:
    """Whether something is still waited for.

    Attributes:
        stay: (S,), states in which it stays open.
        budget: what can be spent before it closes; None where it may stay open as long as it likes.
        price: what every choice takes of it, whole numbers, (choices,); None where that is one, for a step.
        closing: policies have to close it, surely.
    """

    stay: np.ndarray
    budget: int | None = None
    price: np.ndarray | None = None
    closing: bool = False

    @property
    def steps(self) -> int | None:
        """After which it closes, whatever one does; None where no number of steps closes it."""
        return self.budget if self.price is None else None

    @property
    def size(self) -> int:
        """How many values its counter has: what is left and one more, or zero once it is closed."""
        return 2 if self.budget is None else self.budget + 2

    def spent(self, values: np.ndarray) -> np.ndarray:
        """(choices or 1, values): what a choice makes of each value, before a state is entered."""
        if self.budget is None:
            return values[None, :]
        price = np.ones(1, dtype=np.int64) if self.price is None else self.price
        return np.maximum(values - np.minimum(price, self.size)[:, None], 0)

    def following(self, values: np.ndarray) -> np.ndarray:
        """(values, S): what follows each value when a state is entered."""
        return np.where(self.stay[None, :], values[:, None], 0)


@dataclass(frozen=True, eq=False)
class Payment:
    """What every choice earns that leaves a memory open; for ever where there is none."""

    reward: np.ndarray
    memory: int | None = None


def product(
    model: ExplicitModel,
    memories: Sequence[OpenGoal],
    payments: Mapping[str, Payment],
    recurring: Mapping[str, np.ndarray] | None = None,
    *,
    timed: bool = False,
) -> ExplicitModel:
    """The model with its memories, reachable states only; its rewards are the payments.

    Args:
        model: that memories are about.
        memories: numbered in this order.
        payments: by the name of their signal.
        recurring: by the name of their signal, labels (S,) that pay if they are met for ever.
        timed: whether a horizon counts the steps, so that waiting is not nothing.
    """
    sizes = tuple(memory.size for memory in memories) or (1,)
    count = int(np.prod(sizes, dtype=np.int64))  # product states are state * count + memory
    if model.matrix.nnz * count > LARGEST:
        raise ModelError(
            f"{model.matrix.nnz:,} transitions with {count:,} states of memory are too many to hold; ask for "
            "fewer goals, steps or rewards at once"
        )
    values = np.array(np.unravel_index(np.arange(count), sizes))
    following = np.zeros((count, model.n_states), dtype=np.int64)
    start = np.zeros(model.n_states, dtype=np.int64)
    after = np.zeros((1, count), dtype=np.int64)  # what choices make of memories
    left = [memory.spent(values[place]) for place, memory in enumerate(memories)]
    for place, memory in enumerate(memories):
        after = after * memory.size + left[place]
        following = following * memory.size + memory.following(values[place])
        start = start * memory.size + np.where(memory.stay, memory.size - 1, 0)
    initial = np.zeros(model.n_states * count)
    initial[np.arange(model.n_states) * count + start] = model.initial
    # A row for every choice and memory, sorted by state and memory.
    states = (model.state_of[:, None] * count + np.arange(count)).ravel()
    order = np.argsort(states, kind="stable")
    rewards = {}
    for name, payment in payments.items():
        open_ = np.ones((1, count)) if payment.memory is None else left[payment.memory] > 0
        rewards[name] = (payment.reward[:, None] * open_).ravel()[order]
    whole = ExplicitModel(
        states[order],
        sp.csr_array(_steps(model.matrix, after, following)[order]),
        initial,
        rewards,
        {},
        None if model.action_of is None else model.action_of.repeat(count)[order],
        model.action_names,
        _names(model, count),
    )
    must = [
        np.tile(values[place] > 0, model.n_states)
        for place, memory in enumerate(memories)
        if memory.closing
    ]
    labels = {name: np.repeat(mark, count) for name, mark in (recurring or {}).items()}
    for name in labels:
        whole.rewards[name] = np.zeros(whole.state_of.size)
    whole = replace(whole, labels=labels)
    made = _alive(whole if timed else _collapsed(*_closing(whole, must)))
    return replace(made, labels={})


def _steps(matrix: sp.csr_array, after: np.ndarray, following: np.ndarray) -> sp.csr_array:
    """Rows (choice, memory), columns (state, memory)."""
    entries, count = sp.coo_array(matrix), following.shape[0]
    rows = entries.row[:, None] * count + np.arange(count)
    after = np.broadcast_to(after, (matrix.shape[0], count))[entries.row]
    columns = entries.col[:, None] * count + following[after, entries.col[:, None]]
    data = entries.data.repeat(count)
    shape = (matrix.shape[0] * count, matrix.shape[1] * count)
    return sp.csr_array((data, (rows.ravel(), columns.ravel())), shape=shape)


def _names(model: ExplicitModel, count: int) -> tuple[str, ...] | None:
    if model.state_names is None or count == 1:
        return model.state_names
    return tuple(f"{name} {memory}" for name in model.state_names for memory in range(count))


def _graph(model: ExplicitModel) -> ChoiceGraph:
    return ChoiceGraph(model.state_of, model.matrix)


def _silent(model: ExplicitModel) -> np.ndarray:
    """Choices that pay nothing."""
    return np.all([reward == 0 for reward in model.rewards.values()], axis=0)


def _closing(model: ExplicitModel, must: list[np.ndarray]) -> tuple[ExplicitModel, np.ndarray]:
    """Only what policies do that surely close every one of these memories, and where some is open.

    Args:
        model: whose rows do not end.
        must: for every memory, (S,) where it is open.
    """
    waiting = np.any(must, axis=0) if must else np.zeros(model.n_states, dtype=bool)
    allowed = _graph(model).surely_reaching([~one for one in must])
    useful = np.zeros(model.n_states, dtype=bool)
    useful[model.state_of[allowed]] = True
    if (model.initial > 0)[~useful].any():
        raise ModelError(
            "no policy surely reaches the goal: the expected reward until then is infinite for every one"
        )
    return model.kept(useful, allowed), waiting[useful]


def _collapsed(model: ExplicitModel, waiting: np.ndarray) -> ExplicitModel:
    """Every end component in which nothing is paid as one state, with the ways out of all of its states.

    Who stays in it for ever ends: one more choice, which leads nowhere. Not where a memory has to be closed.
    """
    number, staying = _graph(model).end_components(_silent(model))
    inside = np.flatnonzero(number >= 0)
    if not inside.size:
        return model
    stands_for = np.arange(model.n_states)
    _, first, which = np.unique(number[inside], return_index=True, return_inverse=True)
    stands_for[inside] = inside[first[which]]
    stays = np.array(sorted(_stays(model, stands_for, waiting)), dtype=np.int64)
    stays = stays.reshape(-1, 1 + len(model.labels))
    merge = sp.csr_array(
        (np.ones(model.n_states), (np.arange(model.n_states), stands_for)),
        shape=(model.n_states,) * 2,
    )
    rows = sp.vstack([(model.matrix @ merge)[~staying], sp.csr_array((len(stays), model.n_states))])
    states = np.concatenate([stands_for[model.state_of[~staying]], stays[:, 0]])
    order = np.argsort(states, kind="stable")
    met = dict(zip(model.labels, stays.T[1:], strict=True))
    nothing = np.zeros(len(stays))
    merged = replace(
        model,
        state_of=states[order],
        matrix=sp.csr_array(sp.csr_array(rows)[order]),
        initial=np.bincount(stands_for, model.initial, minlength=model.n_states),
        rewards={
            name: np.concatenate([reward[~staying], met.get(name, nothing)])[order]
            for name, reward in model.rewards.items()
        },
        action_of=None,  # ways out of several states may have one name
    )
    return merged.kept(stands_for == np.arange(model.n_states))


def _stays(
    model: ExplicitModel, stands_for: np.ndarray, waiting: np.ndarray
) -> set[tuple[int, ...]]:
    """The ways of staying for ever: a component's state, and for every label whether it recurs.

    Inside a component everything can be reached for nothing; so of any part of it that avoids some labels, too,
    one can stay in, and meet all the others that it has.
    """
    graph, silent = _graph(model), _silent(model)
    found = set()
    for size in range(len(model.labels) + 1):
        for avoided in combinations(model.labels.values(), size):
            outside = np.any(avoided, axis=0) if avoided else np.zeros(model.n_states, dtype=bool)
            allowed = silent & ~outside[model.state_of] & ~graph.leads(outside)
            number, _ = graph.end_components(allowed)
            for part in np.unique(number[(number >= 0) & ~waiting]):
                members = number == part
                met = (int(mark[members].any()) for mark in model.labels.values())
                found.add((int(stands_for[np.argmax(members)]), *met))
    return found


def _alive(model: ExplicitModel) -> ExplicitModel:
    """The states that can be reached and in which something can still be paid; the first ones in any case."""
    graph, everything = _graph(model), np.ones(model.state_of.size, dtype=bool)
    first = model.initial > 0
    pays = np.zeros(model.n_states, dtype=bool)
    pays[model.state_of[~_silent(model)]] = True
    alive = graph.reaching(pays, everything) & graph.reached(first, everything)
    return model.kept(alive | first)
