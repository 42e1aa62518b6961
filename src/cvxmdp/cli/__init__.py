"""The command ``cvxmdp``. Without its extra installed it says which one is missing."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "pydantic", "pyarrow")


def app() -> None:
    """Run the command line."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        sys.exit(
            f"cvxmdp: the command line needs {', '.join(missing)}, not installed here. Install it with: "
            "pip install 'cvxmdp[cli]'"
        )
    from cvxmdp.base.program_cache import compilation_cache
    from cvxmdp.cli.commands import commands

    compilation_cache()
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no such letter shows its code
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    commands(prog_name="cvxmdp")
