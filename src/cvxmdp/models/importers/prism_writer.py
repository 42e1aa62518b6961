"""Models as PRISM's explicit files; ``cvxmdp.models.importers.prism`` describes them and reads them again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cvxmdp.base.errors import ModelError
from cvxmdp.base.settings import one_of
from cvxmdp.base.storage import whole_file
from cvxmdp.models.table import TabularMDP

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VALUES = re.compile(r"\(-?\d+(,-?\d+)*\)")


DIALECTS = ("prism", "storm")


def to_prism(mdp: TabularMDP, path: str | Path, *, dialect: str = "prism") -> list[Path]:
    """Write a model as ``path``.tra, .sta, .lab and a reward file per signal; numbers keep every digit.

    A signal that is the same for all actions of each state is a state reward, any other a transition
    reward; with several signals, files are numbered and their first line names the signal. A model that
    ends episodes gets one more state, the last one, labelled "end": read it with ``end="end"``.

    Args:
        mdp: the model.
        path: the common part of the files' names.
        dialect: "prism"; or "storm", whose parser wants the kind of model where PRISM has sizes, labels by
            name, and neither sizes nor comments in reward files (it takes one such file of each kind).

    Returns:
        The files written.
    """
    one_of("dialect", dialect, DIALECTS, error=ModelError)
    if not isinstance(mdp, TabularMDP):
        raise ModelError(f"to_prism writes a TabularMDP; got {type(mdp).__name__}")
    prefix = Path(path)
    ends = bool((mdp.ending > 0).any())
    starts = np.flatnonzero(mdp.initial)
    if not np.allclose(mdp.initial[starts], 1.0 / starts.size, rtol=1e-9):
        raise ModelError(
            "PRISM's files hold initial states, not a distribution over them; this model's is not "
            "uniform. Write mdp.replace(initial=state), and give from_prism(..., initial=...) when "
            "reading."
        )
    # choice of each pair: PRISM numbers the available actions of a state from 0
    choices = np.where(mdp.actions, np.cumsum(mdp.actions, axis=1) - 1, -1)
    files = {
        ".tra": _transitions(mdp, choices, ends),
        ".sta": _states(mdp, ends),
        ".lab": _labels(mdp, starts, ends),
    }
    for number, name in enumerate(mdp.signals, start=1):
        suffix = "" if len(mdp.signals) == 1 else str(number)
        spread = np.where(mdp.actions, mdp.signals[name], np.nan)
        same = np.nanmax(spread, axis=1) == np.nanmin(spread, axis=1)
        if same.all():
            files[f"{suffix}.srew"] = _state_rewards(mdp, name, ends)
        else:
            files[f"{suffix}.trew"] = _transition_rewards(mdp, name, choices, ends)
    if dialect == "storm":
        del files[".sta"]
        files = {
            suffix: _for_storm(suffix, lines, mdp, starts, ends) for suffix, lines in files.items()
        }
    written = []
    for suffix, lines in files.items():
        target = prefix.with_name(prefix.name + suffix)
        with whole_file(target) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        written.append(target)
    return written


def _labels(mdp: TabularMDP, starts: np.ndarray, ends: bool) -> Iterator[str]:
    yield " ".join(['0="init"', *(['1="end"'] if ends else [])])
    yield from (f"{state}: 0" for state in starts)
    yield from [f"{mdp.n_states}: 1"] if ends else []


def _for_storm(
    suffix: str, lines: Iterator[str], mdp: TabularMDP, starts: np.ndarray, ends: bool
) -> Iterator[str]:
    """The lines of a file as Storm's parser of explicit files wants them."""
    if suffix == ".lab":
        yield from ("#DECLARATION", "init end" if ends else "init", "#END")
        yield from (f"{state} init" for state in starts)
        yield from [f"{mdp.n_states} end"] if ends else []
        return
    if suffix == ".tra":
        yield "mdp"
    plain = (line for line in lines if not line.startswith("#"))
    next(plain)  # the sizes
    words = 4 if suffix == ".tra" else None  # without the action's name
    yield from (" ".join(line.split()[:words]) for line in plain)


def _steps(mdp: TabularMDP, choices: np.ndarray) -> Iterator[tuple[int, int, int, int, float]]:
    """(state, choice, action, next state, probability); an ending leads to state S."""
    pointers, columns, data = mdp.transition.indptr, mdp.transition.indices, mdp.transition.data
    for state, action in np.argwhere(mdp.actions):
        row = state * mdp.n_actions + action
        choice = int(choices[state, action])
        for entry in range(pointers[row], pointers[row + 1]):
            yield int(state), choice, int(action), int(columns[entry]), float(data[entry])
        if mdp.ending[state, action] > 0:
            yield int(state), choice, int(action), mdp.n_states, float(mdp.ending[state, action])


def _sizes(mdp: TabularMDP, ends: bool) -> tuple[int, int, int]:
    """States, choices and transitions, those of the end included."""
    steps = mdp.transition.nnz + int((mdp.ending > 0).sum())
    return mdp.n_states + ends, int(mdp.actions.sum()) + ends, steps + ends


def _transitions(mdp: TabularMDP, choices: np.ndarray, ends: bool) -> Iterator[str]:
    names = _action_names(mdp)
    yield " ".join(str(size) for size in _sizes(mdp, ends))
    for state, choice, action, following, chance in _steps(mdp, choices):
        yield f"{state} {choice} {following} {chance!r} {names[action]}"
    if ends:
        yield f"{mdp.n_states} 0 {mdp.n_states} 1.0 {names[0]}"


def _action_names(mdp: TabularMDP) -> list[str]:
    """Names as PRISM allows them: letters, digits and underscores."""
    plain = [f"a{action}" for action in range(mdp.n_actions)]
    if mdp.action_names is None:
        return plain
    names = [re.sub(r"\W", "_", name, flags=re.ASCII) for name in mdp.action_names]
    fits = all(IDENTIFIER.fullmatch(name) for name in names) and len(set(names)) == len(names)
    return names if fits else plain


def _states(mdp: TabularMDP, ends: bool) -> Iterator[str]:
    names = mdp.state_names or ()
    variables = names[0].count(",") + 1 if names else 1
    if names and all(VALUES.fullmatch(n) and n.count(",") == variables - 1 for n in names):
        yield "(" + ",".join(f"v{k}" for k in range(variables)) + ")"
        yield from (f"{state}:{name}" for state, name in enumerate(names))
        if ends:
            beyond = 1 + max(int(name.strip("()").split(",")[0]) for name in names)
            yield f"{mdp.n_states}:(" + ",".join([str(beyond), *["0"] * (variables - 1)]) + ")"
        return
    yield "(state)"
    yield from (f"{state}:({state})" for state in range(mdp.n_states + ends))


def _state_rewards(mdp: TabularMDP, name: str, ends: bool) -> Iterator[str]:
    first = mdp.actions.argmax(axis=1)
    rewards = mdp.signals[name][np.arange(mdp.n_states), first]
    yield f'# Reward structure "{name}"'
    yield "# State rewards"
    yield f"{mdp.n_states + ends} {int((rewards != 0).sum())}"
    yield from (f"{state} {float(rewards[state])!r}" for state in np.flatnonzero(rewards))


def _transition_rewards(
    mdp: TabularMDP, name: str, choices: np.ndarray, ends: bool
) -> Iterator[str]:
    signal = mdp.signals[name]
    lengths = np.diff(mdp.transition.indptr).reshape(mdp.actions.shape) + (mdp.ending > 0)
    states, pairs, _ = _sizes(mdp, ends)
    yield f'# Reward structure "{name}"'
    yield "# Transition rewards"
    yield f"{states} {pairs} {int(lengths[signal != 0].sum())}"
    for state, choice, action, following, _ in _steps(mdp, choices):
        if signal[state, action] != 0:
            yield f"{state} {choice} {following} {float(signal[state, action])!r}"
