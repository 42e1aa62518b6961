"""The command ``cvxmdp``. Without its extra installed it says which one is missing."""

from __future__ import annotations

import io
import json
import sys
from importlib.util import find_spec

from cvxmdp.runs.interruption import leave_on_interrupts

INTERRUPTED = {"error": "interrupted", "exit_code": 130, "exit": "interrupted"}
NEEDED = ("typer", "rich", "pydantic", "pyarrow")


def app() -> None:
    """Run the command line."""
    as_json = json.dumps(INTERRUPTED, indent=2) + "\n" if "--json" in sys.argv else ""
    leave_on_interrupts("Error: interrupted\n", as_json)  # before anything is loaded
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        sys.exit(
            f"cvxmdp: the command line needs {', '.join(missing)}, not installed here. Install it with: "
            "pip install 'cvxmdp[cli]'"
        )
    # The command line is an extra, and takes a second to load.
    from cvxmdp.base.program_cache import compilation_cache
    from cvxmdp.cli.commands import commands

    compilation_cache()
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no such letter shows its code
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    commands(prog_name="cvxmdp")
