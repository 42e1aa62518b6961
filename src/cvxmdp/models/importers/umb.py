"""UMB, the model checkers' common binary format: a tar of arrays (``umbi`` reads and writes it).

An archive has states, their choices, the branches of each choice with target and probability, atomic
propositions, and rewards of states, choices and branches. It has neither discounts nor endings: the first is
given when reading; episodes end on the way into states with a label that the reader is told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError, require
from cvxmdp.base.storage import require_file
from cvxmdp.models.importers.explicit_model import ExplicitModel
from cvxmdp.models.table import TabularMDP


def from_umb(path: str | Path, discount: float, *, end: str | None = None) -> TabularMDP:
    """Read a model from a UMB archive.

    Args:
        path: the archive.
        discount: gamma.
        end: a label. Entering a state that has it ends the episode; such states are left out.

    Returns:
        The model. Rewards of states, choices and branches under one name add up to a signal; other labels are
        signals that are one in the labelled states. Several initial states are equally likely.
    """
    require("umbi", "umb")
    model = _model(_read(require_file(path)), Path(path).name)
    return (model if end is None else model.ending_at(end)).table(discount=discount)


def _read(path: Path) -> Any:
    import umbi.umb

    try:
        return umbi.umb.read(path)
    except Exception as error:  # whatever a parser makes of a file that is none of its kind
        raise FileFormatError(f"{path.name} is not a UMB archive: {error!r}") from error


def _model(umb: Any, name: str) -> ExplicitModel:
    system = umb.index.transition_system
    _refuse_others(system, name)
    if not umb.branch_to_target:
        raise FileFormatError(f"{name} has no transitions")
    n_states, n_branches = system.num_states, system.num_branches
    choices = _pointers(umb.state_to_choices, n_states, system.num_choices, name)
    branches = _pointers(umb.choice_to_branches, system.num_choices, n_branches, name)
    without = np.flatnonzero(np.diff(choices) == 0)
    if without.size:
        raise FileFormatError(f"{name}: state {without[0]} has no choice; give deadlocks a loop")
    given = umb.branch_to_probability
    chances = np.ones(n_branches) if given is None else np.array([float(p) for p in given])
    targets = np.asarray(umb.branch_to_target, dtype=np.int64)
    try:
        matrix = sp.csr_array((chances, targets, branches), shape=(system.num_choices, n_states))
        matrix.check_format(full_check=True)  # SciPy's compiled code trusts what is in there
    except ValueError as error:
        raise FileFormatError(f"{name}: its branches are malformed: {error}") from error
    state_of = np.repeat(np.arange(n_states), np.diff(choices))
    matrix.sum_duplicates()
    first = np.asarray(umb.state_is_initial, dtype=np.float64)
    if not first.any():
        raise FileFormatError(f"{name} has no initial state")
    actions, names = umb.choice_to_choice_action, umb.choice_action_to_string
    if actions is not None and len(actions) != system.num_choices:
        raise FileFormatError(
            f"{name} names {len(actions)} actions of {system.num_choices} choices"
        )
    return ExplicitModel(
        state_of,
        matrix,
        first / first.sum(),
        _rewards(umb, state_of, branches, chances),
        _labels(umb),
        None if actions is None or names is None else np.asarray(actions, dtype=np.int64),
        tuple(action or "-" for action in names or ()),
        _state_names(umb),
    )


def _refuse_others(system: Any, name: str) -> None:
    outside = {
        "continuous time": system.time != "discrete",
        f"{system.num_players} players": system.num_players > 1,
        "observations": system.num_observations > 0,
    }
    kind = system.branch_probability_type
    if kind is not None:
        outside["intervals of probabilities"] = "interval" in str(kind.type).lower()
    for what, found in outside.items():
        if found:
            raise FileFormatError(f"{name} has {what}; expected a Markov decision process")


def _pointers(given: list[int] | None, count: int, parts: int, name: str) -> np.ndarray:
    """Where the parts of each thing begin, and all end; where the file leaves it out, each has one."""
    found = np.arange(count + 1) if given is None else np.asarray(given, dtype=np.int64)
    ends = (found[0], found[-1]) if found.size == count + 1 else None
    if ends != (0, parts) or (np.diff(found) < 0).any():
        raise FileFormatError(f"{name}: its lists of choices or branches do not fit each other")
    return found


def _annotated(umb: Any, group: str) -> dict[str, dict[str, np.ndarray]]:
    """By the name that people read, and by what they apply to: the values of a group of annotations."""
    described = (umb.index.annotations or {}).get(group, {})
    values = (umb.annotations or {}).get(group, {})
    return {
        described[key].alias or key: {
            part: np.array([float(one) for one in numbers]) for part, numbers in parts.items()
        }
        for key, parts in values.items()
    }


def _rewards(
    umb: Any, state_of: np.ndarray, branches: np.ndarray, chances: np.ndarray
) -> dict[str, np.ndarray]:
    rewards = {}
    for name, parts in _annotated(umb, "rewards").items():
        reward = parts.get("choices", np.zeros(state_of.size)).copy()
        if "states" in parts:
            reward += parts["states"][state_of]
        if "branches" in parts:
            reward += np.add.reduceat(chances * parts["branches"], branches[:-1])
        rewards[name] = reward
    return rewards


def _labels(umb: Any) -> dict[str, np.ndarray]:
    found = _annotated(umb, "aps")
    return {name: parts["states"] > 0 for name, parts in found.items() if "states" in parts}


def _state_names(umb: Any) -> tuple[str, ...] | None:
    """The values of the variables, where they tell states apart."""
    valued = (umb.valuations or {}).get("states")
    if not valued:
        return None
    names = tuple(" ".join(f"{key}={value}" for key, value in state.items()) for state in valued)
    return names if len(set(names)) == len(names) else None
