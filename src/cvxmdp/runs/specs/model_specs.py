"""The ``[model]`` table of a problem file: every kind of model, each with its own keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cvxmdp.base.errors import CvxmdpError, did_you_mean
from cvxmdp.experience.environments.gymnasium_env import GymnasiumEnv
from cvxmdp.experience.environments.signal_reading import from_info
from cvxmdp.experience.logs import from_transitions
from cvxmdp.experience.probability_table import from_table
from cvxmdp.models import GridLayout, TabularMDP, from_gymnasium_table, garnet, gridworld
from cvxmdp.policies.features import RandomFourier, UniformBins
from cvxmdp.runs.specs.array_specs import ENDINGS, ArrayFolder
from cvxmdp.runs.specs.imports import imported
from cvxmdp.runs.specs.places import SpecError, validated

LARGEST_GARNET = 40_000_000  # transitions, or numbers of its signals
LARGEST_GRID = 4_000_000  # states that a few characters may ask for


class Strict(BaseModel):
    """No unknown keys, no numbers in quotes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Cell = int | Annotated[list[int], Field(min_length=2, max_length=2)]
Cells = int | list[Cell]
Numbers = str | int | list[float] | list[list[float]]  # a file, a number, or the numbers themselves
Named = dict[str, float | dict[str, float]]  # numbers of states, or of their actions, by name
Size = Annotated[int, Field(ge=1, le=LARGEST_GRID)]
Ranges = dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]  # least and largest


class Gridworld(Strict):
    """``gridworld(...)``. A cell is its number or [row, column]; several come in a list."""

    kind: Literal["gridworld"]
    size: Size | Annotated[list[Size], Field(min_length=2, max_length=2)] = 8
    slip: float = 0.0
    discount: float = 0.95
    start: Cells = 0
    goal: Cells | None = None
    goal_reward: float = 1.0
    step_reward: float = 0.0
    rewards: dict[str, float] = Field(default_factory=dict)
    hazards: Cells = []
    walls: Cells = []

    def build(self, folder: ArrayFolder) -> TabularMDP:
        rows, columns = (self.size,) * 2 if isinstance(self.size, int) else self.size
        if rows * columns > LARGEST_GRID:
            raise SpecError(f"size: a grid of {rows} x {columns} is beyond {LARGEST_GRID:,} states")
        numbers = self.model_dump(include={"slip", "discount", "goal_reward", "step_reward"})
        rewards = {_cell_key(key): value for key, value in self.rewards.items()}
        names = ("start", "goal", "hazards", "walls")
        cells = {name: _cells(getattr(self, name)) for name in names}
        return gridworld((rows, columns), rewards=rewards, **numbers, **cells)


class Garnet(Strict):
    """``garnet(...)``: a random model, the same for the same numbers."""

    kind: Literal["garnet"]
    n_states: Size
    n_actions: Annotated[int, Field(ge=1, le=10_000)]
    branching: Size
    seed: int
    discount: float = 0.95
    signals: list[str] = ["reward", "cost"]
    ending: float = 0.0

    def build(self, folder: ArrayFolder) -> TabularMDP:
        if self.n_states * self.n_actions * max(self.branching, len(self.signals)) > LARGEST_GARNET:
            raise SpecError(
                f"this Garnet would have more than {LARGEST_GARNET:,} transitions or rewards; make it in "
                "Python, and save it"
            )
        return garnet(**self.model_dump(exclude={"kind"}))


class WrittenTable(Strict):
    """``TabularMDP(...)`` from arrays: names of files, or the numbers themselves.

    A row that sums to less than one ends episodes, or has lost a line: ``endings = "implicit"`` says which.
    """

    kind: Literal["table"]
    endings: Literal["implicit", "none"] = "none"
    transition: str | list[list[list[float]]]
    initial: Numbers | dict[str, float]
    discount: float
    signals: dict[str, Numbers | Named] = Field(default_factory=dict)
    actions: str | list[list[bool]] | None = None
    state_names: list[str] | None = None
    action_names: list[str] | None = None
    layout: Layout | None = None

    def build(self, folder: ArrayFolder) -> TabularMDP:
        given = self.transition
        transition = folder.transition(given) if isinstance(given, str) else _regular(given)
        actions = None
        if self.actions is not None:
            actions = np.asarray(_numbers(folder, self.actions)).astype(bool)
        mdp = TabularMDP(
            transition,
            _initial(folder, self.initial),
            self.discount,
            signals={name: _numbers(folder, signal) for name, signal in self.signals.items()},
            actions=actions,
            state_names=self.state_names,
            action_names=self.action_names,
            layout=None if self.layout is None else self.layout.build(),
        )
        if self.endings == "none" and (mdp.ending > 0).any():
            state, action = (int(place) for place in np.argwhere(mdp.ending > 0)[0])
            raise SpecError(
                f"the probabilities of state {mdp.state_label(state)}, action {mdp.action_label(action)} "
                f"sum to {1.0 - mdp.ending[state, action]:.6g}; {mdp.endings}. If episodes end there, write "
                'endings = "implicit" under [model]; otherwise lines are missing'
            )
        return mdp


class Layout(Strict):
    """Where the states of a table lie on a grid, for pictures."""

    rows: Size
    columns: Size
    walls: list[int] = []
    hazards: list[int] = []
    starts: list[int] = []
    goals: list[int] = []

    def build(self) -> GridLayout:
        parts = {name: tuple(value) for name, value in self if isinstance(value, list)}
        return GridLayout(self.rows, self.columns, **parts)


class ModelFile(Strict):
    """A model that ``mdp.save`` wrote."""

    kind: Literal["file"]
    path: str

    def build(self, folder: ArrayFolder) -> TabularMDP:
        return TabularMDP.load(folder.path(self.path))


class LogFile(Strict):
    """``from_transitions(...)`` of a CSV or Parquet file, or of the HDF5 file of a Minari dataset."""

    kind: Literal["log"]
    path: str
    discount: float
    columns: dict[str, str] = Field(default_factory=dict)
    signals: list[str] | None = None
    initial: Numbers | dict[str, float] | None = None
    known: list[str] | dict[str, Numbers] | None = None
    bounds: Ranges = Field(default_factory=dict)
    supports: str | None = None
    actions: list[str] | str | None = None  # names, or a file with the (S, A) mask
    unknown: Literal["worst", "end"] = "worst"
    n_states: Size | None = None
    n_actions: Size | None = None

    def build(self, folder: ArrayFolder) -> TabularMDP:
        known: Any = self.known
        if isinstance(known, dict):
            known = {name: _numbers(folder, given) for name, given in known.items()}
        actions: Any = self.actions
        if isinstance(actions, str):
            actions = folder.array(actions).astype(bool)
        bounds = {name: (low, high) for name, (low, high) in self.bounds.items()}
        sizes = self.model_dump(include={"unknown", "n_states", "n_actions"})
        return from_transitions(
            folder.path(self.path),
            self.discount,
            columns=self.columns,
            signals=self.signals,
            initial=None if self.initial is None else _initial(folder, self.initial),
            known=known,
            bounds=bounds,
            supports=None if self.supports is None else folder.array(self.supports),
            actions=actions,
            **sizes,
        )


class ProbabilityTable(Strict):
    """``from_table(...)`` of a CSV or Parquet file with known probabilities."""

    kind: Literal["probabilities"]
    path: str
    discount: float
    initial: Numbers | dict[str, float]
    ends: list[str] | list[int] = []
    missing: Literal["error", "ends"] = "error"
    columns: dict[str, str] = Field(default_factory=dict)
    signals: list[str] | None = None

    def build(self, folder: ArrayFolder) -> TabularMDP:
        given = self.model_dump(include={"ends", "missing", "columns", "signals"})
        initial = _initial(folder, self.initial)
        return from_table(folder.path(self.path), self.discount, initial=initial, **given)


class GymnasiumTable(Strict):
    """``from_gymnasium_table(...)`` of an environment that is registered under its id."""

    kind: Literal["gymnasium"]
    id: str
    discount: float
    arguments: dict[str, bool | int | float | str] = Field(default_factory=dict)
    failure: str | None = None  # name of a signal: 1 for a step that ends the episode unrewarded

    def build(self, folder: ArrayFolder) -> TabularMDP:
        told = _failure(self.failure)
        return _made(from_gymnasium_table, self.id, self.discount, self.arguments, signals=told)


class Bins(Strict):
    """``UniformBins(low, high, bins)``."""

    low: list[float]
    high: list[float]
    bins: int | list[int]


class Fourier(Strict):
    """``RandomFourier(dimension, size, seed=, scale=)``."""

    dimension: Size
    size: Size
    seed: int
    scale: float | list[float] = 1.0


class Simulator(Strict):
    """``GymnasiumEnv(...)``: to learn in, not to solve.

    Of an environment that is registered under its id, or of ``module:Class`` where the command line allows the
    module (``--import``).
    """

    kind: Literal["environment"]
    id: str
    discount: float
    horizon: Size | None = None
    arguments: dict[str, bool | int | float | str] = Field(default_factory=dict)
    n_envs: Size | None = None
    workers: Size | None = None
    rewards: list[str] = Field(default_factory=list)
    # Signals that are entries of info, by their keys.
    info: dict[str, str] = Field(default_factory=dict)
    bins: Bins | None = None
    fourier: Fourier | None = None
    absent: dict[str, float] = Field(default_factory=dict)
    bounds: Ranges = Field(default_factory=dict)
    failure: str | None = None  # name of a signal: 1 for a step that ends the episode unrewarded

    def build(self, folder: ArrayFolder) -> GymnasiumEnv:
        if self.bins is not None and self.fourier is not None:
            raise SpecError("give bins or fourier, not both: they are two kinds of features")
        features: Any = None
        if self.bins is not None:
            features = UniformBins(self.bins.low, self.bins.high, self.bins.bins)
        if self.fourier is not None:
            of = self.fourier
            features = RandomFourier(of.dimension, of.size, seed=of.seed, scale=of.scale)
        own = {
            "horizon": self.horizon,
            "features": features,
            "n_envs": self.n_envs,
            "workers": self.workers,
            "rewards": self.rewards,
            "absent": self.absent,
            "bounds": self.bounds,
        }
        told = {
            **_failure(self.failure),
            **{name: from_info(key) for name, key in self.info.items()},
        }
        return _made(GymnasiumEnv, self.id, self.discount, self.arguments, signals=told, **own)


def _failure(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    return {name: lambda before, action, after, reward, end: float(end and reward <= 0)}


def _made(
    make: Callable[..., Any], name: str, discount: float, arguments: Mapping[str, Any], **own: Any
) -> Any:
    """What Gymnasium makes of an id; its errors, of many classes, as one of ours."""
    # Gymnasium would import the module before a colon, and a file must not run code.
    meant = imported(name) if ":" in name else name
    try:
        return make(meant, discount, **own, **arguments)
    except CvxmdpError:
        raise
    except Exception as error:
        raise SpecError(f"Gymnasium cannot make {name!r}: {error}") from error


class Ahead(Strict):
    """How far ahead a model of any kind looks, where that is no discount."""

    horizon: Annotated[int, Field(ge=1)] | None = None
    average: bool = False
    budget_state: dict[str, int | list[float]] = Field(default_factory=dict)  # levels by signal

    @property
    def given(self) -> dict[str, Any]:
        """What a model is given for it."""
        steps = {} if self.horizon is None else {"horizon": self.horizon}
        return {**steps, **({"average": True} if self.average else {})}

    def of(self, model: TabularMDP | GymnasiumEnv) -> TabularMDP | GymnasiumEnv:
        """The model with this horizon, and with what it has cost so far in its states."""
        if not self.given and not self.budget_state:
            return model
        if not isinstance(model, TabularMDP):
            raise SpecError("average and budget_state are for models; this is an environment")
        model = model.replace(**self.given) if self.given else model
        for signal, levels in self.budget_state.items():
            model = model.with_budget_state(signal, levels)
        return model


AHEAD = tuple(Ahead.model_fields)
MODELS: Mapping[str, type[Any]] = {
    "gridworld": Gridworld,
    "garnet": Garnet,
    "table": WrittenTable,
    "file": ModelFile,
    "log": LogFile,
    "probabilities": ProbabilityTable,
    "gymnasium": GymnasiumTable,
    "environment": Simulator,
}


def build_model(table: Mapping[str, Any], folder: ArrayFolder) -> TabularMDP | GymnasiumEnv:
    """The model, or the environment, that a ``[model]`` table describes."""
    kind = table.get("kind")
    if kind is None:
        raise SpecError(f"kind is missing: one of {', '.join(repr(name) for name in MODELS)}")
    if not isinstance(kind, str) or kind not in MODELS:
        raise SpecError(f"unknown kind {kind!r}. {did_you_mean(str(kind), MODELS)}")
    own = MODELS[kind].model_fields  # an environment has a horizon of its own kind
    looks = {name: table[name] for name in AHEAD if name in table and name not in own}
    ahead = validated(Ahead, looks, ("model",))
    rest = {name: value for name, value in table.items() if name not in AHEAD or name in own}
    if (ahead.given or "horizon" in rest) and "discount" in own:
        # All steps count the same, unless the file says otherwise.
        rest = {"discount": 1.0, **rest}
    return ahead.of(validated(MODELS[kind], rest, ("model",)).build(folder))


def _cells(given: Any) -> Any:
    several = isinstance(given, list)
    return [tuple(c) if isinstance(c, list) else c for c in given] if several else given


def _cell_key(key: str) -> Any:
    """The keys of ``rewards`` are strings in TOML: "63", or "7, 7" for row and column."""
    if not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)?", key):
        raise SpecError(
            f'rewards: a cell is written as "63" or as "7, 7" (row, column); got {key!r}'
        )
    parts = tuple(int(part) for part in key.split(","))
    return parts[0] if len(parts) == 1 else parts


def _initial(folder: ArrayFolder, given: Any) -> Any:
    """A distribution, or a state: a text that does not end like a file is its name."""
    a_file = isinstance(given, str) and given.partition("#")[0].endswith(ENDINGS)
    return given if isinstance(given, str) and not a_file else _numbers(folder, given)


def _numbers(folder: ArrayFolder, given: Any) -> Any:
    if isinstance(given, int | dict):
        return given
    return folder.named_or_array(given) if isinstance(given, str) else _regular(given)


def _regular(given: Any) -> np.ndarray:
    """Numbers, or lists of them, as an array; lists in a list are of one length."""
    try:
        return np.array(given)
    except ValueError as error:
        raise SpecError(
            "the lists in a list have different lengths; every row needs as many"
        ) from error
