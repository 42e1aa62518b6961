"""How a command ends: its exit code, and its errors as a sentence or as JSON."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from cvxmdp.base.errors import CvxmdpError, DivergedError, FileFormatError
from cvxmdp.base.text_tables import printable

Command = TypeVar("Command", bound=Callable[..., Any])

# Where nobody looks at a terminal, lines are as long as they need to be.
WIDE = None if sys.stdout.isatty() else 160
out = Console(highlight=False, soft_wrap=True, width=WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


# Click's, which newer versions of Typer have inside.
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]


class Exit(IntEnum):
    """What the exit code of every command means."""

    OK = 0
    UNEXPECTED = 1  # a bug: please report it
    BAD_INPUT = 2  # a file, an option or a folder that is not as it should be
    INFEASIBLE = 3  # no policy satisfies all constraints
    NOT_CONVERGED = 4  # no test of convergence was met, or not the gap that was asked for
    REJECTED = 5  # a certificate that does not prove what it claims
    INTERRUPTED = 130  # Ctrl-C


def say(text: str) -> None:
    """Print text as it is: brackets in a name are no markup."""
    out.print(Text(printable(text)))


def note(text: str) -> None:
    """Say something on the side, where it does not disturb what a machine reads."""
    err.print(Text(printable(text), style="dim"))


def working(what: str) -> Any:
    """A sign of life on a terminal while something without a progress line of its own goes on."""
    return err.status(Text(printable(what), style="dim")) if err.is_terminal else nullcontext()


def require_place(path: Path | None, endings: Collection[str] = ()) -> None:
    """An error about a file that cannot be written, before there is anything to write."""
    if path is None:
        return
    if endings and path.suffix not in endings:
        ends = ", ".join(endings)
        raise FileFormatError(f"cannot write {path.name!r}: give a file that ends in {ends}")
    if not path.parent.is_dir():
        raise FileFormatError(
            f"cannot write {path}: there is no folder {path.parent}; make it first"
        )


def say_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object; infinities and NaN become null, what is no plain data its words."""
    sys.stdout.write(json.dumps(plain(document), indent=2, default=str) + "\n")


def plain(value: Any) -> Any:
    """What JSON can say."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def command(function: Command) -> Command:
    """A command whose errors become sentences and exit codes. It returns its ``Exit``."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        as_json = bool(options.get("as_json"))
        try:
            code = function(*arguments, **options)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            code = _fail("interrupted", Exit.INTERRUPTED, as_json)
        except BrokenPipeError:
            # Whoever read has seen enough ("| head"). Nothing more is written, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.OK
        except DivergedError as error:
            code = _fail(str(error), Exit.NOT_CONVERGED, as_json)
        except FileNotFoundError as error:
            missing = f"there is no file {error.filename}" if error.filename else str(error)
            code = _fail(missing, Exit.BAD_INPUT, as_json)
        except (CvxmdpError, OSError) as error:
            code = _fail(str(error), Exit.BAD_INPUT, as_json)
        except Exception as error:
            traceback.print_exc()
            code = _fail(f"unexpected: {error!r}", Exit.UNEXPECTED, as_json)
        raise typer.Exit(int(code))

    return run  # type: ignore[return-value]


class CommandGroup(TyperGroup):
    """The commands; with ``--json`` a wrong option is said as JSON, too."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        as_json = "--json" in [*getattr(ctx, "_protected_args", ()), *ctx.args]
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            if not as_json:
                raise
            said = getattr(error, "format_message", error.__str__)()
            raise typer.Exit(int(_fail(said, Exit.BAD_INPUT, True))) from error


def _fail(message: str, code: Exit, as_json: bool) -> Exit:
    if as_json:
        say_json({"error": message, "exit_code": int(code), "exit": code.name.lower()})
    err.print(Text.assemble(("Error: ", "bold red"), printable(message)))
    return code
