"""Settings that earlier releases had: giving one is an error that says which release, and why it went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from cvxmdp.base.errors import SettingsError

Settings = TypeVar("Settings", bound=type)


class Removed(NamedTuple):
    """A setting that is gone."""

    release: str  # the last one that had it
    because: str
    instead: str = "remove it"


# By the name of the solver; docs/vr-pdpg.md has the measurements.
REMOVED: Mapping[str, Mapping[str, Removed]] = {
    "VRPDPG": {
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
    },
}


def refusing_removed(settings_class: Settings) -> Settings:
    """Decorates a class of settings, so that its constructor refuses what is gone."""
    construct = vars(settings_class)["__init__"]

    @wraps(construct)
    def checked(self: Any, *arguments: Any, **settings: Any) -> None:
        refuse_removed(settings_class.__name__, settings)
        construct(self, *arguments, **settings)

    setattr(settings_class, "__init__", checked)  # noqa: B010
    return settings_class


def refuse_removed(owner: str, names: Iterable[str]) -> None:
    """Raise the error if one of these settings of ``owner`` existed once."""
    for name in names:
        gone = REMOVED.get(owner, {}).get(name)
        if gone is not None:
            raise SettingsError(
                f"{name} was an option of cvxmdp {gone.release}; it is gone because {gone.because}; "
                f"{gone.instead}"
            )
