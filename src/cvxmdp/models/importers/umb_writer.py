"""Models as UMB archives; ``cvxmdp.models.importers.umb`` describes them and reads them again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import ModelError, require
from cvxmdp.base.storage import whole_file

IDENTIFIER = re.compile(r"[a-z0-9_-]+")
END = "end"


def write_umb(path: str | Path, arguments: Mapping[str, Any], ending: np.ndarray) -> None:
    """Write a model, given by its constructor's arguments and by where episodes end, as a UMB archive."""
    require("umbi", "umb")
    import umbi.umb

    archive = _archive(arguments, ending)
    with whole_file(path) as temporary:
        umbi.umb.write(archive, temporary)


def _archive(arguments: Mapping[str, Any], ending: np.ndarray) -> Any:
    import umbi.umb
    from umbi.binary import SizedType
    from umbi.datatypes import NumericPrimitiveType

    actions, initial = arguments["actions"], arguments["initial"]
    n_states, n_actions = actions.shape
    starts = np.flatnonzero(initial)
    if not np.allclose(initial[starts], 1.0 / starts.size, rtol=1e-9):
        raise ModelError(
            "a UMB archive holds initial states, not a distribution over them; this model's is not uniform. "
            "Write mdp.replace(initial=state).to_umb(path)."
        )
    end = 1 if (ending > 0).any() else 0  # one more state, absorbing, with one choice
    pairs = np.flatnonzero(actions.ravel())
    targets, chances, lengths = _branches(arguments["transition"], ending.ravel(), pairs, n_states)
    archive = umbi.umb.ExplicitUmb()
    archive.index.format_version = umbi.__format_version__
    archive.index.format_revision = umbi.__format_revision__
    archive.index.transition_system = umbi.umb.index.TransitionSystem(
        num_players=1,
        num_states=n_states + end,
        num_initial_states=int(starts.size),
        num_choices=int(pairs.size) + end,
        num_choice_actions=n_actions,
        num_branches=len(targets) + end,
        branch_probability_type=SizedType.for_type(NumericPrimitiveType.DOUBLE),
    )
    archive.state_is_initial = (initial > 0).tolist() + [False] * end
    archive.state_to_choices = _starts(actions.sum(axis=1).tolist() + [1] * end)
    archive.choice_to_branches = _starts(lengths + [1] * end)
    archive.branch_to_target = targets + [n_states] * end
    archive.branch_to_probability = chances + [1.0] * end
    archive.choice_to_choice_action = (pairs % n_actions).tolist() + [0] * end
    names = arguments["action_names"]
    archive.choice_action_to_string = list(names or (f"a{a}" for a in range(n_actions)))
    paid = {name: signal.ravel()[pairs] for name, signal in arguments["signals"].items()}
    _annotate(archive, paid, n_states, end)
    return archive


def _annotate(archive: Any, paid: Mapping[str, np.ndarray], n_states: int, end: int) -> None:
    """Signals as rewards of choices; a label for the state that ends episodes."""
    import umbi.umb
    from umbi.binary import SizedType
    from umbi.datatypes import NumericPrimitiveType, PrimitiveType

    described = umbi.umb.index.AnnotationDescription
    double = SizedType.for_type(NumericPrimitiveType.DOUBLE)
    archive.index.annotations, archive.annotations = {"rewards": {}}, {"rewards": {}}
    for place, (name, rewards) in enumerate(paid.items()):
        key = name if IDENTIFIER.fullmatch(name) else f"signal-{place}"
        shown = described(alias=name, applies_to=["choices"], type=double)
        archive.index.annotations["rewards"][key] = shown
        archive.annotations["rewards"][key] = {"choices": rewards.tolist() + [0.0] * end}
    if end:
        bit = SizedType.for_type(PrimitiveType.BOOL)
        archive.index.annotations["aps"] = {END: described(applies_to=["states"], type=bit)}
        archive.annotations["aps"] = {END: {"states": [*[False] * n_states, True]}}


def _branches(
    transition: Any, ending: np.ndarray, pairs: np.ndarray, n_states: int
) -> tuple[list[int], list[float], list[int]]:
    """Targets and probabilities of all pairs one after the other, endings last, and how many each has."""
    rows = transition[pairs]
    leaving = np.flatnonzero(ending[pairs] > 0)
    where = rows.indptr[leaving + 1]  # what is inserted stands before these entries
    targets = np.insert(rows.indices, where, n_states)
    chances = np.insert(rows.data, where, ending[pairs][leaving])
    lengths = np.diff(rows.indptr)
    lengths[leaving] += 1
    return targets.tolist(), chances.tolist(), lengths.tolist()


def _starts(counts: list[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()]
