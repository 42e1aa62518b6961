"""Options that earlier releases had: giving one is an error that says which release, and why it went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from cvxmdp.base.errors import SettingsError

Owner = TypeVar("Owner", bound=Callable[..., Any])


class Removed(NamedTuple):
    """An option that is gone, or is called otherwise."""

    release: str  # the last one that had it
    because: str
    instead: str = "remove it"


PROGRESS = Removed("0.1", "runs show it, not solvers", "write it in solve(..., progress=False)")

# By the name of the solver or function; docs/results/learning.md has the measurements of VRPDPG's.
REMOVED: Mapping[str, Mapping[str, Removed]] = {
    "PDPG": {"progress": PROGRESS},
    "ColumnGeneration": {"progress": PROGRESS},
    "VRPDPG": {
        "progress": PROGRESS,
        "weight_cap": Removed("0.1", "importance weights of short steps never came near it"),
        "per_decision": Removed("0.1", "it made no difference beyond the intervals"),
        "entropy_bonus": Removed(
            "0.1",
            "it was no cure for corners and biased the answer",
            'remove it, or add a multiple of entropy(of="state-action") to the objective',
        ),
        "same_trajectory": Removed(
            "0.1",
            "the estimator that judges a trajectory by its own shadow reward is biased",
            "remove it; momentum=1 is the baseline without memory",
        ),
        'iterate="average"': Removed(
            "0.1",
            'it averages over the last half, as iterate="half" of PDPG',
            'write iterate="half"',
        ),
    },
    "Interval": {
        name: Removed("0.1", "every interval has value, lower and upper", f"write {now}")
        for name, now in (("mean", "value"), ("low", "lower"), ("high", "upper"))
    },
    "evaluate": {
        "time_limit": Removed(
            "0.1", "it counts steps, and time limits are seconds", "write episode_limit"
        ),
    },
    "demonstrations": {
        "model": Removed("0.1", "a model is called mdp everywhere", "write mdp"),
        "horizon": Removed(
            "0.1", "it says where others cut episodes, not where we do", "write episode_limit"
        ),
    },
}


def refusing_removed(owner: Owner) -> Owner:
    """Decorates a function, or a class of settings: by keyword, what is gone is refused."""
    is_class = isinstance(owner, type)
    function: Callable[..., Any] = vars(owner)["__init__"] if is_class else owner

    @wraps(function)
    def checked(*arguments: Any, **settings: Any) -> Any:
        refuse_removed(owner.__name__, settings)
        return function(*arguments, **settings)

    if not is_class:
        return cast(Owner, checked)
    setattr(owner, "__init__", checked)  # noqa: B010
    return owner


def refuse_removed(owner: str, names: Iterable[str]) -> None:
    """Raise the error if one of these settings of ``owner`` existed once."""
    for name in names:
        gone = REMOVED.get(owner, {}).get(name)
        if gone is not None:
            raise SettingsError(
                f"{name} was an option of cvxmdp {gone.release}; it is gone because {gone.because}; "
                f"{gone.instead}"
            )
