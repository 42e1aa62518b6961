"""Settings that earlier releases had: giving one is an error that says which release, and why it went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cvxmdp.base.errors import SettingsError


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


def refuse_removed(owner: str, names: Iterable[str]) -> None:
    """Raise the error if one of these settings of ``owner`` existed once."""
    for name in names:
        gone = REMOVED.get(owner, {}).get(name)
        if gone is not None:
            raise SettingsError(
                f"{name} was an option of cvxmdp {gone.release}; it is gone because {gone.because}; "
                f"{gone.instead}"
            )
