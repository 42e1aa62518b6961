"""Compiled programs on disk, so that the next process need not compile them again.

This is JAX's own cache, set up so that small programs are kept as well, and bounded in size. Nothing here needs
JAX: where it is not loaded yet, it reads the same settings from the environment.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

FOLDER = "JAX_COMPILATION_CACHE_DIR"
SETTINGS: dict[str, float] = {  # JAX keeps programs that took a second; ours are many and quick
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
LARGEST = 500_000_000  # bytes, of a folder of ours


def compilation_cache(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs on disk, for this process, those it starts, and those to come.

    The command line does so by itself; in a script, call it once at the top.

    Args:
        folder: where. Without one it is JAX_COMPILATION_CACHE_DIR if that is set, else a folder of the user's
            cache directory (XDG_CACHE_HOME, or ~/.cache). It must be one that only you can write to: what lies
            there is executed.

    Returns:
        The folder, or None where it cannot be written to: then nothing is kept.
    """
    theirs = folder is None and os.environ.get(FOLDER)
    try:
        place = Path(theirs or folder or _usual_folder()).expanduser().absolute()
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            return None
        if not theirs:
            _shrink(place, LARGEST)
    except (OSError, RuntimeError):  # no home, no room, no rights
        return None
    os.environ[FOLDER] = str(place)
    chosen = {name: value for name, value in SETTINGS.items() if name.upper() not in os.environ}
    os.environ.update({name.upper(): str(value) for name, value in chosen.items()})
    _tell_jax({"jax_compilation_cache_dir": str(place), **chosen})
    return place


def _usual_folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "cvxmdp" / "programs"


def _shrink(folder: Path, largest: int) -> None:
    """Remove what was used longest ago until the rest is small enough."""
    entries = [(path.stat(), path) for path in folder.glob("*-cache")]
    entries.sort(key=lambda entry: max(entry[0].st_atime, entry[0].st_mtime), reverse=True)
    size = 0
    for found, path in entries:
        size += found.st_size
        if size > largest:
            with suppress(FileNotFoundError):  # another process was quicker
                path.unlink()


def _tell_jax(settings: dict[str, object]) -> None:
    jax = sys.modules.get("jax")
    if jax is None:
        return  # it will read the environment
    for name, value in settings.items():
        jax.config.update(name, value)
    # It may have opened another folder.
    import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()
