"""Gymnasium's environments by their ids, and what to write where an id is none, or no longer one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cvxmdp.base.errors import ExperienceError, did_you_mean, require


def make_environment(wanted: Any, **arguments: Any) -> Any:
    """``gymnasium.make`` of an id or a specification."""
    with said_as_ours(wanted):
        return require("gymnasium", "gym").make(wanted, **arguments)


@contextmanager
def said_as_ours(wanted: Any) -> Iterator[None]:
    """Gymnasium's errors about an id or a specification become ours, with the id to write instead."""
    gymnasium = require("gymnasium", "gym")
    try:
        yield
    except gymnasium.error.Error as error:
        env_id = str(getattr(wanted, "id", wanted))
        raise ExperienceError(
            f"Gymnasium cannot make {env_id!r}: {error}{_instead(env_id, gymnasium.registry)}"
        ) from error


def _instead(env_id: str, registry: dict[str, Any]) -> str:
    """The newest version of the same environment, or the id that looks most like an unknown one."""
    newest = max(
        (one for one in registry if _unversioned(one) == _unversioned(env_id)),
        key=lambda one: registry[one].version or 0,
        default=None,
    )
    if newest == env_id:  # it is known, and something else is missing
        return ""
    return f" {did_you_mean(env_id, registry)}" if newest is None else f" Write {newest!r}."


def _unversioned(env_id: str) -> str:
    return env_id.rpartition(":")[2].rpartition("-v")[0] or env_id
