"""Models from Gymnasium environments that carry their transition table (``env.unwrapped.P``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import CvxmdpWarning, ModelError
from cvxmdp.base.gymnasium_ids import make_environment
from cvxmdp.models.horizon import horizon_arguments
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.table import TabularMDP
from cvxmdp.models.validation import read_table

Outcome = Callable[[int, int, int, float, bool], float]

# Wrappers that change no probability, reward or state number: those that ``gymnasium.make`` adds, and those
# that only watch. A time limit is not part of the table either, but then it is not part of the problem.
HARMLESS = {
    "PassiveEnvChecker",
    "OrderEnforcing",
    "TimeLimit",
    "Autoreset",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "HumanRendering",
}


def from_gymnasium_table(
    env_or_id: Any,
    discount: float | None = None,
    *,
    signals: Mapping[str, Outcome] | None = None,
    horizon: int | None = None,
    average: bool = False,
    **make_arguments: Any,
) -> TabularMDP:
    """The model of FrozenLake, CliffWalking, Taxi or any environment with a table ``P``.

    A table entry (probability, next_state, reward, terminated) with ``terminated`` ends the episode:
    its reward counts, its next state is not visited. The signal "reward" is the table's reward. Wrappers
    have no part in the table: one that may change rewards, observations or actions is warned about.

    Args:
        env_or_id: an environment, or the id that ``gymnasium.make`` understands.
        discount: gamma.
        signals: further signals, each a function (state, action, next_state, reward, terminated)
            -> number, averaged over the outcomes. Falling into a hole of FrozenLake, for instance:
            ``signals={"fall": lambda s, a, t, r, end: float(end and r == 0)}``.
        horizon, average: instead of a discount, a number of steps, or True for the long run (``TabularMDP``).
        **make_arguments: passed to ``gymnasium.make`` with an id, such as ``is_slippery=False``.
    """
    functions = read_table(signals, "signals", '{"fall": function}')
    made_here = isinstance(env_or_id, str)
    env = make_environment(env_or_id, **make_arguments) if made_here else env_or_id
    if not made_here and make_arguments:
        raise ModelError(f"{sorted(make_arguments)} only go with an id, not with an environment")
    try:
        _warn_of_wrappers(env)
        return _read_table(
            env.unwrapped, horizon_arguments(discount, horizon, average), dict(functions)
        )
    finally:
        if made_here:
            env.close()


def _warn_of_wrappers(env: Any) -> None:
    """A wrapper acts when one steps; the table below knows nothing of it."""
    ignored = []
    while env is not env.unwrapped:
        if type(env).__name__ not in HARMLESS:
            ignored.append(type(env).__name__)
        env = getattr(env, "env", env.unwrapped)
    if ignored:
        warnings.warn(
            f"the model is read from the table of {type(env).__name__}, which does not hold what these "
            f"wrappers change: {', '.join(ignored)}. Give such a reward or cost "
            "with signals=, or remove the wrappers.",
            CvxmdpWarning,
            stacklevel=3,
        )


def _read_table(env: Any, ahead: dict[str, Any], signals: dict[str, Outcome]) -> TabularMDP:
    table = getattr(env, "P", None)
    if table is None:
        raise ModelError(
            f"{type(env).__name__} has no transition table (attribute P). This importer reads "
            "environments such as FrozenLake-v1, CliffWalking-v1 and Taxi-v4."
        )
    if getattr(env, "fickle_passenger", False):
        raise ModelError(
            f"{type(env).__name__} with fickle_passenger=True changes destinations in ways its table "
            "does not hold; import it with fickle_passenger=False"
        )
    n_states, n_actions = int(env.observation_space.n), int(env.action_space.n)
    initial = getattr(env, "initial_state_distrib", None)
    if initial is None:
        raise ModelError(
            f"{type(env).__name__} has a table but no initial_state_distrib: build the model with "
            "TabularMDP(transition, initial, discount) instead"
        )
    rows, columns, probabilities = [], [], []
    outcomes: dict[str, Outcome] = {"reward": lambda s, a, t, reward, end: reward, **signals}
    expected = {name: np.zeros((n_states, n_actions)) for name in outcomes}
    for state in range(n_states):
        for action in range(n_actions):
            for probability, successor, reward, terminated in table[state][action]:
                for name, outcome in outcomes.items():
                    value = outcome(state, action, int(successor), float(reward), bool(terminated))
                    expected[name][state, action] += probability * value
                if not terminated:
                    rows.append(state * n_actions + action)
                    columns.append(int(successor))
                    probabilities.append(float(probability))
    shape = (n_states * n_actions, n_states)
    return TabularMDP(
        sp.csr_array((probabilities, (rows, columns)), shape=shape),
        initial,
        **ahead,
        signals=expected,
        action_names=_action_names(env, n_actions),
        layout=_layout(env),
    )


def _action_names(env: Any, n_actions: int) -> tuple[str, ...] | None:
    """Names for the grids of the toy-text family, whose actions have a known order."""
    known = {
        "FrozenLakeEnv": ("left", "down", "right", "up"),
        "CliffWalkingEnv": ("up", "right", "down", "left"),
        "TaxiEnv": ("down", "up", "right", "left", "pick up", "drop off"),
    }
    names = known.get(type(env).__name__)
    return names if names and len(names) == n_actions else None


def _layout(env: Any) -> GridLayout | None:
    """The grid of FrozenLake and CliffWalking, so that their solutions can be drawn."""
    if type(env).__name__ == "FrozenLakeEnv":
        letters = np.char.decode(np.asarray(env.desc, dtype="S1"), "ascii")
        rows, columns = letters.shape

        def cells(letter: str) -> tuple[int, ...]:
            return tuple(int(state) for state in np.flatnonzero(letters.ravel() == letter))

        return GridLayout(rows, columns, (), cells("H"), cells("S"), cells("G"))
    if type(env).__name__ == "CliffWalkingEnv":
        rows, columns = env.shape
        cliff = tuple(int(state) for state in np.flatnonzero(np.asarray(env._cliff).ravel()))
        start = (rows - 1) * columns
        return GridLayout(rows, columns, (), cliff, (start,), (rows * columns - 1,))
    return None
