"""Models that Storm builds: PRISM programs, JANI models, DRN files, with the states that properties speak of.

stormpy is under the GPL: it is imported when it is used, and nothing of it is copied.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import FileFormatError, ModelError, require
from cvxmdp.base.storage import require_file
from cvxmdp.models.importers.explicit_model import ExplicitModel

Constants = Mapping[str, bool | int | float] | str
KINDS = ("MDP", "DTMC")
TYPED = re.compile(
    r"^\s*(mdp|dtmc|ctmc|ma|pta|pomdp|smg|csg|nondeterministic|probabilistic|stochastic)\b", re.M
)
UNNAMED_REWARD = re.compile(r"\bR(?=(?:max|min)?\s*(?:=\s*\?|[<>]))")


class StormModel:
    """A program or a file, the properties asked of it, and the model that Storm built for them.

    Args:
        path: a PRISM program, a JANI model (.jani), or explicit files (.drn, .umb).
        properties: in Storm's language, or names of those in a JANI file; expressions in them become labels.
        constants: of the program, by name or as "N=3,p=0.5".
    """

    def __init__(
        self, path: str | Path, properties: Sequence[str] = (), constants: Constants | None = None
    ) -> None:
        self.storm = require("stormpy", "storm")
        self.path = require_file(path)
        try:
            self.built, self.formulas = self._build(list(properties), constants)
        except (RuntimeError, self.storm.exceptions.StormError) as error:
            raise FileFormatError(f"{self.path.name}: Storm says: {error}") from error
        kind = str(self.built.model_type).rpartition(".")[2]
        if kind not in KINDS or self.built.is_partially_observable:
            raise FileFormatError(
                f"{self.path.name} is a model of the kind {kind}; expected one of {', '.join(KINDS)}"
            )

    def _build(self, properties: list[str], constants: Constants | None) -> tuple[Any, list[Any]]:
        storm, suffix = self.storm, self.path.suffix
        if suffix in (".drn", ".umb"):
            read = storm.build_model_from_drn if suffix == ".drn" else storm.build_model_from_umb
            return read(self.path), [self._parsed(text, None) for text in properties]
        program, named = self._program()
        asked = [named.get(text) or self._parsed(text, program) for text in properties]
        program, asked = storm.instantiate_constants(program, constants or {}, asked)
        if asked:
            return storm.build_model(program, asked), asked
        options = storm.BuilderOptions(build_full=True)
        return storm.build_model(program, options=options), []

    def _program(self) -> tuple[Any, dict[str, Any]]:
        """The program, and the properties that its file has, by name."""
        if self.path.suffix != ".jani":
            return self._prism(), {}
        program, found = self.storm.parse_jani_model(self.path)
        listed = found.values() if isinstance(found, Mapping) else found
        return program, {one.get_name(): one for one in listed}

    def _prism(self) -> Any:
        if TYPED.search(self.path.read_text("utf-8", errors="replace")):
            return self.storm.parse_prism_program(self.path)
        # PRISM takes a program for an MDP, Storm asks.
        with tempfile.TemporaryDirectory() as folder:
            typed = Path(folder) / self.path.name
            typed.write_text("mdp\n" + self.path.read_text("utf-8"), "utf-8")
            return self.storm.parse_prism_program(typed)

    def _parsed(self, text: str, program: Any) -> Any:
        names = [one.name for one in getattr(program, "reward_models", [])]
        if len(names) > 1 and names[0]:
            text = UNNAMED_REWARD.sub(f'R{{"{names[0]}"}}', text)  # the first, as PRISM has it
        found = self.storm.parse_properties(text, program)
        if len(found) != 1:
            raise ModelError(f"expected one property; {text!r} has {len(found)}")
        return found[0]

    def states(self, formula: Any) -> np.ndarray:
        """(S,): where a formula about states holds."""
        found = np.zeros(self.built.nr_states, dtype=bool)
        found[list(self.storm.model_checking(self.built, formula).get_truth_values_vector())] = True
        return found

    def reward(self, name: str | None) -> np.ndarray:
        """What every choice earns: rewards of its state, its own, and those of its transitions on average."""
        built = self.built
        names = list(built.reward_models)
        if name is None and not names:
            raise ModelError(f"{self.path.name} has no rewards")
        model = built.reward_models[names[0] if name is None else name]
        starts = np.append(_starts(built), built.nr_choices)
        total = np.zeros(built.nr_choices)
        if model.has_state_rewards:
            total += np.repeat(np.array(model.state_rewards, dtype=np.float64), np.diff(starts))
        if model.has_state_action_rewards:
            total += np.array(model.state_action_rewards, dtype=np.float64)
        if model.has_transition_rewards:
            paid, chances = _matrix(model.transition_rewards), _matrix(built.transition_matrix)
            total += np.asarray(paid.multiply(chances).sum(axis=1)).ravel()
        return total

    def explicit(self) -> ExplicitModel:
        """The model in arrays, with all rewards and labels that Storm built."""
        built = self.built
        matrix = _matrix(built.transition_matrix)
        first = np.zeros(built.nr_states)
        first[list(built.initial_states)] = 1.0 / len(list(built.initial_states))
        labels = {}
        for label in sorted(built.labeling.get_labels()):
            labels[label] = np.zeros(built.nr_states, dtype=bool)
            labels[label][list(built.labeling.get_states(label))] = True
        return ExplicitModel(
            np.repeat(
                np.arange(built.nr_states), np.diff(np.append(_starts(built), built.nr_choices))
            ),
            matrix,
            first,
            {name or "reward": self.reward(name) for name in built.reward_models},
            labels,
        )


def _starts(built: Any) -> np.ndarray:
    """The first choice of every state."""
    if not built.is_nondeterministic_model:
        return np.arange(built.nr_states)
    matrix = built.transition_matrix
    return np.array([matrix.get_row_group_start(state) for state in range(built.nr_states)])


def _matrix(given: Any) -> sp.csr_array:
    columns, data, pointers = [], [], [0]
    for row in range(given.nr_rows):
        for entry in given.get_row(row):
            columns.append(entry.column)
            data.append(float(entry.value))
        pointers.append(len(columns))
    return sp.csr_array((data, columns, pointers), shape=(given.nr_rows, given.nr_columns))
