r"""PRISM's explicit model files, read; ``prism_writer`` writes them (the appendix of PRISM's manual has them).

| file    | first line                                | further lines                            |
|---------|-------------------------------------------|------------------------------------------|
| `.tra`  | states choices transitions                | state choice next probability [action]   |
| `.sta`  | (variable, ...)                           | state:(value, ...)                       |
| `.lab`  | 0="init" 1="deadlock" 2="goal" ...        | state: label label ...                   |
| `.srew` | states entries                            | state reward                             |
| `.trew` | states choices entries                    | state choice next reward                 |

Markov chains (a first line of two numbers, lines "state next probability") are models with one action.
PRISM has neither discounts nor endings. The discount is given when reading; episodes end on the way into
states with a label that the reader is told (``end="done"``). A model that ends episodes is written with
one more state, absorbing, with the label "end".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError, did_you_mean
from cvxmdp.base.storage import require_file
from cvxmdp.models.importers.prism_lines import (
    Place,
    at,
    header,
    lines_of,
    number,
    unexpected,
    whole,
)
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import ROUNDING

LABEL = re.compile(r'(\d+)="([^"]*)"')
NAMED = re.compile(r'#\s*Reward structure:?\s*"([^"]*)"')
# Files in a modelling language.
PROGRAMS = (".nm", ".prism", ".pm", ".sm", ".mdp", ".dtmc", ".jani")
NUMBERED_ACTION = re.compile(r"a(\d+)")


def from_prism(
    path: str | Path,
    discount: float,
    *,
    end: str | None = None,
    initial: Any = None,
    actions: Sequence[str] | None = None,
    rescale: bool = False,
    max_pairs: int = 50_000_000,
) -> TabularMDP:
    """Read a model from PRISM's explicit files.

    Args:
        path: the common part of the files' names ("model" for model.tra, model.sta, model.lab,
            model.srew, model1.trew, ...), or the .tra file. Only that one is needed.
        discount: gamma.
        end: a label. Entering a state that has it ends the episode; such states are left out.
        initial: the initial distribution or state; otherwise uniform over the states labelled "init".
        actions: the names of the actions in order; otherwise they are in the order they appear.
        rescale: divide each row of probabilities by its sum, for files written with few digits.
        max_pairs: stop with an error beyond so many states times actions.

    Returns:
        The model. Rewards are signals, under the name in the file's comment, else "reward" and the
        number in the file's name; other labels are signals that are one in the labelled states.
    """
    tra, prefix = _find(path)
    table = _read_transitions(tra)
    codes, action_names = _actions(table, actions, tra)
    n_actions = len(action_names) if action_names else int(codes.max()) + 1
    if table.n_states * n_actions > max_pairs:
        raise FileFormatError(
            f"{tra.name} has {table.n_states:,} states and {n_actions:,} actions, more than max_pairs="
            f"{max_pairs:,} together; give a larger max_pairs= if there is memory for it"
        )
    pairs = table.states * n_actions + codes
    chances = _probabilities(table, pairs, rescale, tra)
    room = max_pairs // (table.n_states * n_actions)  # each label becomes a signal of that size
    labels = _read_labels(prefix.with_name(prefix.name + ".lab"), table.n_states, room)
    ends = _label(labels, end, prefix) if end is not None else np.zeros(table.n_states, dtype=bool)
    signals = _read_rewards(prefix, table, pairs, chances, n_actions, ends)
    for name, states in labels.items():
        if name not in ("init", "deadlock", end) and name not in signals:
            signals[name] = np.repeat(states.astype(np.float64)[:, None], n_actions, axis=1)
    matrix = sp.csr_array(
        (chances, (pairs, table.following)), shape=(table.n_states * n_actions, table.n_states)
    )
    mask = np.zeros(table.n_states * n_actions, dtype=bool)
    mask[pairs] = True
    kept = np.flatnonzero(~ends)
    if not kept.size:
        raise FileFormatError(f"every state of {tra.name} has the label {end!r} that ends episodes")
    rows = (kept[:, None] * n_actions + np.arange(n_actions)).ravel()
    if initial is None:
        initial = _initial(labels, ends, prefix)[kept]
    names = _read_states(prefix.with_name(prefix.name + ".sta"), table.n_states)
    return TabularMDP(
        matrix[rows][:, kept],
        initial,
        discount,
        signals={name: signal[kept] for name, signal in signals.items()},
        actions=mask.reshape(-1, n_actions)[kept],
        state_names=None if names is None else [names[state] for state in kept],
        action_names=action_names,
    )


def _find(path: str | Path) -> tuple[Path, Path]:
    given = Path(path)
    if given.suffix in PROGRAMS:
        raise FileFormatError(
            f"{given.name} is a program, and from_prism reads the tables that PRISM makes of one. Let Storm "
            f"build it: from_storm({str(path)!r}); or PRISM: `prism {given.name} -exportmodel model.all`, then "
            "from_prism('model', discount)."
        )
    prefix = given.with_suffix("") if given.suffix == ".tra" else given
    tra = prefix.with_name(prefix.name + ".tra")
    if not tra.exists():
        raise FileNotFoundError(f"there is no file {tra}, which lists the transitions of the model")
    return tra, prefix


@dataclass(frozen=True)
class _Table:
    """The lines of a .tra file, in their order."""

    n_states: int
    chain: bool  # a Markov chain: lines without a choice
    names: tuple[str, ...]  # of actions
    states: np.ndarray
    choices: np.ndarray
    following: np.ndarray
    chances: np.ndarray
    labels: np.ndarray  # number of the action's name, -1 where there is none


def _read_transitions(path: Path) -> _Table:
    lines = lines_of(path)
    sizes = header(lines, path, (2, 3))
    chain, n_states, promised = len(sizes) == 2, sizes[0], sizes[-1]
    states, choices, following, labels = array("q"), array("q"), array("q"), array("q")
    chances = array("d")
    names: dict[str, int] = {}
    for place, line in lines:
        words = line.split()
        if len(words) not in ((3, 4) if chain else (4, 5)):
            form = "state next probability" if chain else "state choice next probability"
            raise unexpected(place, line, f"{form!r} and perhaps an action")
        if len(states) >= promised:
            raise FileFormatError(
                f"{at(place)}: more transitions than the {promised:,} of the first line"
            )
        first, *rest = words
        states.append(whole(first, n_states, "the state", place))
        # PRISM numbers the choices of a state from 0; there are never more than lines.
        choices.append(0 if chain else whole(rest.pop(0), promised, "the choice", place))
        following.append(whole(rest.pop(0), n_states, "the next state", place))
        chance = number(rest.pop(0), "the probability", place)
        if not 0.0 < chance <= 1.0 + 1e-9:
            raise FileFormatError(
                f"{at(place)}: the probability is {chance}; expected one in (0, 1]"
            )
        chances.append(chance)
        labels.append(names.setdefault(rest[0], len(names)) if rest and not chain else -1)
    if len(states) != promised:
        raise FileFormatError(
            f"{path.name} ends after {len(states):,} of the {promised:,} transitions of its first line"
        )
    if n_states > promised:
        raise FileFormatError(
            f"{path.name} has {n_states:,} states and only {promised:,} transitions: some state has "
            "none (PRISM gives deadlocks a loop when it exports with -fixdl)"
        )
    read = (np.array(column) for column in (states, choices, following, chances, labels))
    table = _Table(n_states, chain, tuple(names), *read)
    without = np.bincount(table.states, minlength=n_states) == 0
    if without.any():
        raise FileFormatError(f"{path.name}: state {int(np.argmax(without))} has no transition")
    return table


def _actions(
    table: _Table, asked: Sequence[str] | None, path: Path
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The action of each line: by name where names tell the choices of a state apart, else by choice."""
    named = bool((table.labels >= 0).all())
    if named:
        wide = max(int(table.choices.max()), int(table.labels.max())) + 1
        choice, label = table.states * wide + table.choices, table.states * wide + table.labels
        both = np.unique(np.stack([choice, label]), axis=1)
        named = both.shape[1] == np.unique(choice).size == np.unique(label).size
    if not named:
        if asked is not None:
            raise FileFormatError(
                f"actions={list(asked)} were given, but {path.name} does not name the action of every "
                "choice, or gives two choices of a state the same name"
            )
        return table.choices, None
    numbers = [NUMBERED_ACTION.fullmatch(name) for name in table.names]
    if asked is None and all(match and len(match[1]) < 9 for match in numbers):
        # the names that to_prism gives to actions without one
        order = np.array([int(match[1]) for match in numbers if match], dtype=np.int64)
        return order[table.labels], None
    names = tuple(table.names) if asked is None else tuple(asked)
    for name in table.names:
        if name not in names:
            raise FileFormatError(
                f"{path.name} has an action {name!r}. {did_you_mean(name, names)}"
            )
    order = np.array([names.index(name) for name in table.names], dtype=np.int64)
    return order[table.labels], names


def _probabilities(table: _Table, pairs: np.ndarray, rescale: bool, path: Path) -> np.ndarray:
    keys = pairs * table.n_states + table.following
    values, counts = np.unique(keys, return_counts=True)
    if (counts > 1).any():
        twice = int(np.flatnonzero(keys == values[int(np.argmax(counts > 1))])[1])
        raise FileFormatError(
            f"{path.name}: the transition {table.states[twice]} {table.choices[twice]} "
            f"{table.following[twice]} is there twice"
        )
    sums = np.bincount(pairs, table.chances)
    off = np.abs(sums[pairs] - 1.0)
    if off.max() > ROUNDING and not rescale:
        line = int(np.argmax(off))
        raise FileFormatError(
            f"{path.name}: the probabilities of state {table.states[line]}, choice "
            f"{table.choices[line]} sum to {sums[pairs[line]]:.17g}, not to one. Export the model with "
            "more digits, or give rescale=True to divide each row by its sum."
        )
    return table.chances / sums[pairs] if rescale else table.chances


def _read_labels(path: Path, n_states: int, most: int) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    lines = lines_of(path)
    place, line = next(lines, ((path.name, 1), ""))
    found = LABEL.findall(line)
    if not found or LABEL.sub("", line).strip():
        raise unexpected(place, line, 'labels such as 0="init" 1="goal"')
    names = {int(number): name for number, name in found}
    if len(names) > most:
        raise FileFormatError(
            f"{path.name} has {len(names):,} labels; with the states and actions of this model more than "
            f"{most:,} exceed max_pairs="
        )
    held = {number: array("q") for number in names}
    for place, line in lines:
        state, colon, rest = line.partition(":")
        if not colon:
            raise unexpected(place, line, "a state, a colon and labels")
        here = whole(state.strip(), n_states, "the state", place)
        for word in rest.split():
            number = whole(word, None, "a label", place)
            if number not in names:
                raise FileFormatError(f"{at(place)}: label {number} is not named in the first line")
            held[number].append(here)
    labels = {}
    for number, name in names.items():
        labels[name] = np.zeros(n_states, dtype=bool)
        labels[name][np.array(held[number], dtype=np.int64)] = True
    return labels


def _label(labels: Mapping[str, np.ndarray], name: str, prefix: Path) -> np.ndarray:
    if name not in labels:
        raise FileFormatError(
            f"{prefix.name}.lab has no label {name!r}. {did_you_mean(name, labels)}"
        )
    return labels[name]


def _initial(labels: Mapping[str, np.ndarray], ends: np.ndarray, prefix: Path) -> np.ndarray:
    if not labels:
        states = np.zeros(ends.size, dtype=bool)
        states[0] = True  # PRISM's rule where no labels are given
    else:
        states = _label(labels, "init", prefix)
    if (states & ends).any() or not states.any():
        raise FileFormatError(
            f"{prefix.name}.lab labels no state, or one that ends episodes, as initial; give initial="
        )
    return states / states.sum()


def _read_states(path: Path, n_states: int) -> list[str] | None:
    """Names of the states; None where the file only repeats their numbers."""
    if not path.exists():
        return None
    lines = lines_of(path)
    place, header = next(lines, ((path.name, 1), ""))
    if not (header.startswith("(") and header.endswith(")")):
        raise unexpected(place, header, "the variables, as (x,y)")
    names: list[str] = []
    for place, line in lines:
        number, colon, values = line.partition(":")
        if not colon or whole(number.strip(), n_states, "the state", place) != len(names):
            raise unexpected(place, line, f"state {len(names)} and its values")
        names.append(values.strip())
    if len(names) != n_states:
        raise FileFormatError(f"{path.name} names {len(names):,} states of {n_states:,}")
    if len(set(names)) != n_states:
        raise FileFormatError(f"{path.name} gives two states the same values")
    plain = all(name == f"({number})" for number, name in enumerate(names))
    return None if plain else names


def _read_rewards(
    prefix: Path,
    table: _Table,
    pairs: np.ndarray,
    chances: np.ndarray,
    n_actions: int,
    ends: np.ndarray,
) -> dict[str, np.ndarray]:
    signals: dict[str, np.ndarray] = {}
    pattern = re.compile(re.escape(prefix.name) + r"(\d*)\.(srew|rews|trew|rewt)")
    for path in sorted(prefix.parent.iterdir()):
        match = pattern.fullmatch(path.name)
        if not match:
            continue
        name = _reward_name(path) or f"reward{match[1]}"
        if match[2] in ("srew", "rews"):
            per_state = _state_rewards(path, table.n_states)
            unpaid = ends & (per_state != 0)
            if unpaid.any():
                raise FileFormatError(
                    f"{path.name}: state {int(np.argmax(unpaid))} ends episodes on the way in, so its "
                    f"reward {per_state[unpaid][0]:g} would never be received"
                )
            found = np.repeat(per_state[:, None], n_actions, axis=1)
        else:
            found = _transition_rewards(path, table, pairs, chances, n_actions)
        signals[name] = signals[name] + found if name in signals else found
    return signals


def _reward_name(path: Path) -> str:
    with require_file(path).open(encoding="utf-8", errors="replace") as file:
        for _ in range(10):
            line = file.readline(1_000)
            if not line.startswith("#"):
                return ""
            match = NAMED.match(line)
            if match:
                return match[1]
    return ""


def _state_rewards(path: Path, n_states: int) -> np.ndarray:
    rewards = np.zeros(n_states)
    for place, line in _reward_lines(path, n_states, 2):
        words = line.split()
        if len(words) != 2:
            raise unexpected(place, line, "'state reward'")
        state = whole(words[0], n_states, "the state", place)
        rewards[state] = number(words[1], "the reward", place)
    return rewards


def _transition_rewards(
    path: Path, table: _Table, pairs: np.ndarray, chances: np.ndarray, n_actions: int
) -> np.ndarray:
    width = int(table.choices.max()) + 1
    keys, rewards, numbers = array("q"), array("d"), array("q")
    for place, line in _reward_lines(path, table.n_states, 2 if table.chain else 3):
        words = line.split()
        if len(words) != (3 if table.chain else 4):
            raise unexpected(place, line, "'state choice next reward'")
        state = whole(words[0], table.n_states, "the state", place)
        choice = 0 if table.chain else whole(words[1], width, "the choice", place)
        following = whole(words[-2], table.n_states, "the next state", place)
        keys.append((state * width + choice) * table.n_states + following)
        rewards.append(number(words[-1], "the reward", place))
        numbers.append(place[1])
    known = (table.states * width + table.choices) * table.n_states + table.following
    order = np.argsort(known)
    asked = np.array(keys, dtype=np.int64)
    position = np.minimum(np.searchsorted(known[order], asked), known.size - 1)
    entries = order[position]
    unknown = known[entries] != asked
    if unknown.any():
        wrong = int(np.argmax(unknown))
        rest, following = divmod(keys[wrong], table.n_states)
        raise FileFormatError(
            f"{at((path.name, numbers[wrong]))}: the model has no transition {rest // width} "
            + ("" if table.chain else f"{rest % width} ")
            + str(following)
        )
    paid = chances[entries] * np.array(rewards)
    expected = np.bincount(pairs[entries], paid, table.n_states * n_actions)
    return expected.reshape(table.n_states, n_actions)


def _reward_lines(path: Path, n_states: int, sizes: int) -> Iterator[tuple[Place, str]]:
    """The lines behind the first, which has so many sizes: as many as it says, for as many states."""
    lines, count = lines_of(path), 0
    states, *_, promised = header(lines, path, (sizes,))
    if states != n_states:
        raise FileFormatError(f"{path.name} is for {states:,} states, the model has {n_states:,}")
    for line in lines:
        count += 1
        yield line
    if count != promised:
        raise FileFormatError(
            f"{path.name} holds {count:,} rewards, its first line says {promised:,}"
        )
