"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _solvers(incomplete: str) -> list[str]:
    from cvxmdp.solvers.registry import SOLVERS

    return [name for name in SOLVERS if name.startswith(incomplete)]


ProblemArgument = Annotated[
    Path, typer.Argument(metavar="PROBLEM.toml", help="The problem file.", show_default=False)
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS...", help="Folders of runs, or folders that hold such folders."),
]
PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY",
        help="The folder of a run or solution, a policy that cvxmdp saved, a table with the columns state, "
        "action and probability (csv, json, parquet), or its (S, A) probabilities in a csv, json, npy or npz "
        "file (file.npz#name where it holds several arrays).",
    ),
]
SolverOption = Annotated[
    str | None,
    typer.Option(
        "--solver",
        help="Solver instead of the file's: ConvexProgram, PDPG, VRPDPG, ColumnGeneration, ModelBased, "
        "ActorCritic.",
        autocompletion=_solvers,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a setting of the solver; may be repeated."
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the random numbers, for solvers that sample.")
]
GapOption = Annotated[
    float | None,
    typer.Option(
        "--gap",
        min=0.0,
        help="Relative gap to ask for: with a certified gap up to this the command ends with 0, with a larger "
        "one with 4.",
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace a different run in the same folder.")
]
RunOption = Annotated[Path | None, typer.Option("--out", "-o", help="Keep the run in this folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Run this module of yours, which registers its environments; the problem file may then name "
        "what is in it as MODULE:Class. May be repeated.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Compute on the Ray cluster at this address: auto for the one of this machine, here to start one.",
    ),
]
