"""The commands and their help. What a command does is imported when it runs, so that help comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cvxmdp.base.machine import environment
from cvxmdp.base.version import __version__
from cvxmdp.cli.options import (
    GapOption,
    ImportOption,
    JsonOption,
    OverwriteOption,
    PolicyArgument,
    ProblemArgument,
    RayOption,
    RunOption,
    RunsArgument,
    SeedOption,
    SetOption,
    SolverOption,
)
from cvxmdp.cli.outcome import CommandGroup, Exit, command, say

commands = typer.Typer(
    cls=CommandGroup,
    name="cvxmdp",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a bug, 2 bad input, 3 infeasible, 4 not converged, 5 certificate rejected, "
    "130 interrupted. Tab completion: cvxmdp --install-completion",
)


def _version(wanted: bool) -> None:
    if wanted:
        parts = {name: text for name, text in environment().items() if name != "cvxmdp"}
        say(f"cvxmdp {__version__}")
        say("".join(f"  {name} {text}\n" for name, text in parts.items()).rstrip())
        raise typer.Exit


@commands.callback()
def introduction(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version, and those of its parts.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Concave constrained Markov decision processes: exact answers, learned answers, and proofs.

    Write a problem file, solve it, look at it:

        cvxmdp solve problem.toml -o runs/first
        cvxmdp report runs/first -o report.html

    A problem file is TOML. A small one:

        maximize = "entropy()"

        [subject_to]
        hazard = 'linear("hazard", per="step") <= 0.02'

        [model]
        kind = "gridworld"
        size = 8
        hazards = [10, 11, [2, 2]]

    Every command has examples in its own help: cvxmdp solve --help
    """


@commands.command("solve")
@command
def solve(
    problem: ProblemArgument,
    out: RunOption = None,
    seed: SeedOption = None,
    solver: SolverOption = None,
    settings: SetOption = None,
    prove: Annotated[
        bool, typer.Option("--certify/--no-certify", help="Prove how good the answer is.")
    ] = True,
    gap: GapOption = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds after which iterations end.", min=0.001),
    ] = None,
    overwrite: OverwriteOption = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="RUN|POLICY", help="Begin with a run's folder or a policy."
        ),
    ] = None,
    modules: ImportOption = None,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", help="Write curves for TensorBoard there.")
    ] = None,
    as_json: JsonOption = False,
) -> Exit:
    """Solve a problem file, and prove how good the answer is.

    Without a solver in the file or on the command line one is chosen, and the answer says which and why.
    With --out the run is kept: its problem, history, policy and certificate. The same command again finds a
    finished run and shows it; one that was interrupted, killed or out of time goes on where it was.

        cvxmdp solve problem.toml
        cvxmdp solve problem.toml -o runs/exact
        cvxmdp solve problem.toml --solver PDPG --set iterations=500 --gap 0.01
        cvxmdp solve problem.toml --seed 3 -o runs/learned-3
        cvxmdp solve problem.toml --seed 4 -o runs/longer --start runs/learned-3 --set steps=500000
        cvxmdp solve problem.toml --import my_package --seed 0

    Exit codes: 0 solved; 2 bad input; 3 infeasible; 4 not converged (with --gap: a larger gap); 130
    interrupted.
    """
    from cvxmdp.cli.solve_command import solve_file

    return solve_file(
        problem,
        out,
        seed,
        solver,
        settings,
        prove,
        gap,
        time_limit,
        overwrite,
        start,
        modules,
        tensorboard,
        as_json,
    )


@commands.command("sweep")
@command
def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="The sweep file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder of the sweep; runs/NAME.")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--certify/--no-certify", help="Prove how good every answer is.")
    ] = False,
    ray: RayOption = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="Compute the I-th of N parts, into one folder."
        ),
    ] = None,
    modules: ImportOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Run a solver for every combination of settings, budgets and seeds of a sweep file.

    Interrupted or killed, the same command goes on where it was, with the same bits as if it had never
    stopped. The runs are kept as runs: show and report read them.

        cvxmdp sweep sweep.toml
        cvxmdp sweep sweep.toml -o runs/steps --certify
        cvxmdp report runs/steps -o report.html

    On a cluster, or as parts that a scheduler starts, all into one folder; then once without --shard:

        cvxmdp sweep sweep.toml --ray auto
        cvxmdp sweep sweep.toml -o runs/steps --shard 3/8

    A sweep file names a problem file and what to vary:

        problem = "tracking.toml"
        seeds = 16

        [over]
        primal_step = [0.03, 0.1]
        "budget/near the expert" = [0.1, 0.5]

    Exit codes: 0 done; 2 bad input; 4 a run failed; 130 interrupted.
    """
    from cvxmdp.cli.sweep_command import run_sweep

    return run_sweep(file, out, prove, ray, shard, modules, as_json)


@commands.command("reproduce")
@command
def reproduce(
    which: Annotated[str, typer.Argument(metavar="8x8|20x20|all", help="Which grid of the paper.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder; runs/reproduce.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form: few runs of few iterations.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Runs at a time; one per core.")
    ] = None,
    as_json: JsonOption = False,
) -> Exit:
    """Run the paper's experiment again: its grids of settings, its baselines, and the settings we recommend.

    Leaves figures in the paper's layout with the published curves beside ours, one table, the runs, and a
    report. Interrupted or killed, the same command goes on where it was.

        cvxmdp reproduce 8x8 --quick
        cvxmdp reproduce all -o runs/reproduce

    Exit codes: 0 done; 2 bad input; 130 interrupted.
    """
    from cvxmdp.cli.reproducing import reproduce_paper

    return reproduce_paper(which, out, quick, workers, as_json)


@commands.command("certify")
@command
def certify(
    problem: ProblemArgument,
    policy: PolicyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the certificate to this JSON file.")
    ] = None,
    repaired: Annotated[
        Path | None,
        typer.Option("--repaired", help="Write the certificate's policy, which violates nothing."),
    ] = None,
    gap: GapOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Claims that pass in exact arithmetic.")
    ] = False,
    as_json: JsonOption = False,
) -> Exit:
    """Prove how good any policy is: ours, or one trained elsewhere.

    The certificate has a proven bound on what any policy could achieve, the slack of every constraint, and
    where the policy violates one a repaired policy that does not. A colleague checks it with cvxmdp check.

        cvxmdp certify problem.toml runs/learned-3 -o certificate.json
        cvxmdp certify problem.toml policy.csv --gap 0.05 --repaired better.csv

    Exit codes: 0 proven; 2 bad input; 3 infeasible (proven); 4 the policy given violates a constraint, no
    policy is proven feasible, or a gap above --gap.
    """
    from cvxmdp.cli.proving import certify_policy

    return certify_policy(problem, policy, out, repaired, gap, exact, as_json)


@commands.command("evaluate")
@command
def evaluate(
    problem: ProblemArgument,
    policy: PolicyArgument,
    episodes: Annotated[
        int, typer.Option("--episodes", min=2, help="How many episodes to play.")
    ] = 1_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random numbers.")] = 0,
    confidence: Annotated[
        float, typer.Option("--confidence", help="With which all bounds hold at once.")
    ] = 0.95,
    horizon: Annotated[
        int | None, typer.Option("--horizon", min=1, help="Steps after which episodes are cut.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Take the likeliest actions.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the evaluation to this JSON file.")
    ] = None,
    modules: ImportOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Play episodes of any policy in the problem's model or environment, and bound what it is worth.

    All bounds hold at once, with the confidence asked for.

        cvxmdp evaluate problem.toml runs/learned-3 --episodes 5000
        cvxmdp evaluate problem.toml policy.csv --import my_package

    Exit codes: 0 evaluated; 2 bad input; 4 a constraint is violated, at the confidence asked for.
    """
    from cvxmdp.cli.evaluating import evaluate_policy

    return evaluate_policy(
        problem,
        policy,
        episodes,
        seed,
        confidence,
        horizon,
        deterministic,
        out,
        modules,
        as_json,
    )


@commands.command("check")
@command
def check(
    certificate: Annotated[
        Path,
        typer.Argument(metavar="CERTIFICATE.json", help="The file to check, or a run's folder."),
    ],
    problem: Annotated[
        Path | None,
        typer.Argument(
            metavar="PROBLEM.toml",
            help="The problem file, or a folder that holds the problem; a run's own where it is left out.",
            show_default=False,
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="In exact arithmetic, without any rounding.")
    ] = False,
    limit: Annotated[
        float, typer.Option("--limit", metavar="SECONDS", help="That --exact may take.")
    ] = 600.0,
    as_json: JsonOption = False,
) -> Exit:
    """Check a certificate against a problem, trusting neither its author nor our solvers.

    Every claim is computed anew from the problem file, or from a folder that holds a saved problem, as a run's
    does; a certificate of another problem, a tightened bound or a damaged file is rejected with the reason.

        cvxmdp check certificate.json problem.toml
        cvxmdp check runs/exact --exact && echo proven

    Exit codes: 0 accepted; 2 bad input; 5 rejected.
    """
    from cvxmdp.cli.proving import check_certificate

    return check_certificate(certificate, problem, exact, limit, as_json)


@commands.command("frontier")
@command
def frontier(
    problem: ProblemArgument,
    constraint: Annotated[
        str | None,
        typer.Argument(help="Whose budget to vary; may be left out where there is only one."),
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option("--budgets", metavar="B1,B2,...", help="Solve exactly these budgets."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("-n", min=2, help="How many budgets to solve, chosen well; 9.")
    ] = None,
    out: RunOption = None,
    ray: RayOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> Exit:
    """What a budget is worth: the best objective as a function of it, proven.

    Without --budgets they are spread by what they cost and what they buy, the file's own among them.

        cvxmdp frontier problem.toml hazard
        cvxmdp frontier problem.toml hazard --budgets 0.01,0.02,0.05 -o runs/frontier

    Exit codes: 0 done; 2 bad input; 3 infeasible at every budget that was solved.
    """
    from cvxmdp.cli.proving import trace_frontier

    return trace_frontier(problem, constraint, budgets, n, out, ray, overwrite, as_json)


@commands.command("pareto")
@command
def pareto(
    problem: ProblemArgument,
    objectives: Annotated[
        list[str], typer.Argument(metavar="NAME=UTILITY...", help="Two or more, all maximised.")
    ],
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Where to stop, as a share of each range.")
    ] = 1e-2,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A folder for the problem, policy and proof of each solve."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the proven envelopes into this file.")
    ] = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """All trade-offs of several objectives under the problem's constraints, proven.

    Points with their policies, and envelopes that no policy gets beyond.

        cvxmdp pareto problem.toml 'reward=linear("reward")' 'safe=-linear("hazard")' --plot front.png

    Exit codes: 0 done; 2 bad input; 4 the tolerance was not reached.
    """
    from cvxmdp.cli.proving import trace_front

    return trace_front(problem, objectives, tolerance, out, plot, ray, as_json)


@commands.command("report")
@command
def report(
    runs: RunsArgument,
    file: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option("--title", help="The page's title.")] = None,
    as_json: JsonOption = False,
) -> Exit:
    """Make one HTML page of runs: curves, where the policy goes, what is proven, how to run it again.

    The page is a single file that needs no network. Runs that differ in their seeds only are drawn as one
    curve with a band. Runs that are not finished are left out, and the command says so.

        cvxmdp report runs/exact
        cvxmdp report runs -o report.html --title "Safe exploration"

    Exit codes: 0 written; 2 no run could be read, or one is damaged.
    """
    from cvxmdp.cli.looking import make_report

    return make_report(runs, file, title, as_json)


@commands.command("show")
@command
def show(runs: RunsArgument, as_json: JsonOption = False) -> Exit:
    """Show runs as a table in the terminal; a single one in full.

    Runs that were not finished, or that are damaged, are listed as such and never read as whole.

        cvxmdp show runs
        cvxmdp show runs/exact

    Exit codes: 0 shown; 2 a folder without runs, or a damaged one among them.
    """
    from cvxmdp.cli.looking import show_runs

    return show_runs(runs, as_json)


@commands.command("export")
@command
def export(
    policy: PolicyArgument,
    file: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The file to write: .csv, .json, .parquet, .npz, .safetensors, .onnx.",
        ),
    ],
    as_json: JsonOption = False,
) -> Exit:
    """Write a policy for other programs: a row per state and action, by name.

    csv, json and parquet have what is known of each pair: how likely it is, the share of time in its state,
    what taking it once would change, and whether the state is never visited (fallback). npz has the
    probabilities for NumPy; safetensors keeps everything, a network's parameters too; onnx is a network for
    other programs.

        cvxmdp export runs/exact -o policy.csv
        cvxmdp export policy.safetensors -o policy.json

    Exit codes: 0 written; 2 bad input.
    """
    from cvxmdp.cli.looking import export_policy

    return export_policy(policy, file, as_json)
