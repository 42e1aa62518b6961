"""The command ``cvxmdp``. Without its extra installed it says which one is missing."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from typing import Any

INTERRUPTED = 130  # exit code of Ctrl-C, before the commands that know it are loaded
NEEDED = ("typer", "rich", "pydantic", "pyarrow")


def app() -> None:
    """Run the command line."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        sys.exit(
            f"cvxmdp: the command line needs {', '.join(missing)}, not installed here. Install it with: "
            "pip install 'cvxmdp[cli]'"
        )
    try:
        commands = _loaded()
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no such letter shows its code
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    commands(prog_name="cvxmdp")


def _loaded() -> Any:
    """The commands: reading them takes a second or two, in which somebody may change their mind."""
    from cvxmdp.base.program_cache import compilation_cache
    from cvxmdp.cli.commands import commands
    from cvxmdp.runs.interruption import remember_interrupts

    remember_interrupts()
    compilation_cache()
    return commands
