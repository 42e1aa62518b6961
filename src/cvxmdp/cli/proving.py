"""``cvxmdp certify``, ``check``, ``frontier`` and ``pareto``: what is proven about a problem."""

from __future__ import annotations

import math
import shlex
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from cvxmdp.base.errors import did_you_mean
from cvxmdp.base.notebooks import picture_endings
from cvxmdp.base.text_tables import number
from cvxmdp.certificates.certificate import Certificate, certificate_facts
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.checking import check
from cvxmdp.cli.outcome import Exit, note, require_place, say, say_json, working
from cvxmdp.cli.overrides import read
from cvxmdp.cli.policy_arguments import FORMATS, read_policy, write_policy
from cvxmdp.cli.solve_command import problem_files
from cvxmdp.problems.problem import Problem, load_problem
from cvxmdp.runs.backends.ray_backend import Ray
from cvxmdp.runs.frontier import Frontier, frontier
from cvxmdp.runs.pareto import pareto
from cvxmdp.runs.record import frontier_facts, record_of
from cvxmdp.runs.record_text import ROUNDING
from cvxmdp.runs.run_folder import (
    CERTIFICATE,
    RunState,
    StoreError,
    require_ours,
    state_of,
    write_run,
    writing,
)
from cvxmdp.runs.solving import write_answer, write_question
from cvxmdp.runs.specs.array_specs import ArrayFolder
from cvxmdp.runs.specs.expressions import Reader
from cvxmdp.runs.specs.places import SpecError
from cvxmdp.runs.specs.problem_specs import ProblemSpec
from cvxmdp.solvers.cautious import Cautious
from cvxmdp.solvers.choice import choose_solver


def certify_policy(
    problem: Path,
    policy: str,
    out: Path | None,
    repaired: Path | None,
    gap: float | None,
    exact: bool,
    as_json: bool,
) -> Exit:
    """Certify a policy; see ``cvxmdp certify --help``."""
    require_place(out)
    require_place(repaired, FORMATS)
    spec = read(problem)
    given = read_policy(policy)
    with working("proving"):
        certificate = certify(spec.problem, given, exact=exact)
    violated = _violated(spec.problem, certificate)
    if out is not None:
        certificate.save(out)
    # One about the true model is of the policy that was given, whatever that violates.
    better = certificate.policy if repaired is not None and certificate.feasible else None
    if repaired is not None and better is not None:
        write_policy(better, repaired)
    code = _proof_code(certificate, bool(violated), gap)
    if as_json:
        say_json(
            {
                **certificate_facts(certificate),
                "given_slack": dict(certificate.given_slack),
                "given_violates": violated,
                "repaired": certificate.repaired,
                "certificate": None if out is None else str(out),
                "repaired_policy": None if better is None else str(repaired),
                "exit_code": int(code),
            }
        )
        return code
    if violated:
        names = ", ".join(f"{name!r} by {number(by)}" for name, by in violated.items())
        here = "The" if certificate.confidence is None else "On the model as it stands, the"
        say(f"{here} policy given violates {names}.\n")
    say(str(certificate))
    if out is not None:
        note(f"\nWritten to {out}. Check it: cvxmdp check {out} {problem}")
    if better is not None:
        note(f"The policy of this certificate, which violates nothing: {repaired}")
    elif repaired is not None:
        plan = (
            ""
            if certificate.confidence is None
            else " cautious = 0.95 under [solver] looks for one."
        )
        note(f"Nothing is written to {repaired}: no policy is known that violates nothing.{plan}")
    return code


def _violated(problem: Problem, certificate: Certificate) -> dict[str, float]:
    """The constraints that the given policy misses by more than rounding, and by how much."""
    found = {}
    for name, slack in certificate.given_slack.items():
        budget = problem.constraints[name].budget
        # The value is budget - slack up to its sign: both say how large rounding is.
        if slack < -ROUNDING * max(abs(budget), abs(budget - slack), abs(budget + slack)):
            found[name] = -slack
    return found


def _proof_code(certificate: Certificate, violates: bool, gap: float | None) -> Exit:
    if certificate.infeasible:
        return Exit.INFEASIBLE
    wanted = math.inf if gap is None else gap
    proven = certificate.feasible and certificate.relative_gap <= wanted
    return Exit.OK if proven and not violates else Exit.NOT_CONVERGED


def check_certificate(
    certificate: Path, problem: Path | None, exact: bool, limit: float, as_json: bool
) -> Exit:
    """Check a certificate; see ``cvxmdp check --help``."""
    if certificate.is_dir():
        problem = certificate if problem is None else problem
        certificate = certificate / CERTIFICATE
        if not certificate.is_file():
            raise SpecError(
                f"{certificate.parent} holds no {CERTIFICATE}: give a run's folder that was solved with a "
                "proof, or the certificate's file and the problem"
            )
    if not certificate.is_file():
        raise SpecError(f"there is no file {certificate}")
    if problem is None:
        raise SpecError(
            f"which problem is {certificate} about? cvxmdp check {certificate} PROBLEM.toml, or give a run's "
            "folder, which holds both"
        )
    found = check(certificate, _asked(problem), exact=exact, time_limit=limit)
    code = Exit.OK if found else Exit.REJECTED
    if as_json:
        document = {
            "accepted": found.accepted,
            "level": found.level,
            "reasons": list(found.reasons),
            "upper": found.upper,
            "lower": found.lower,
            "assumes": list(found.assumes),
            "unchecked": list(found.unchecked),
            "unverified": list(found.unverified),
            "exit_code": int(code),
        }
        say_json(document)
    else:
        say(str(found))
    return code


def _asked(problem: Path) -> Problem:
    """The problem of a file, or of a folder: as it was saved, or as the file in it says."""
    if not problem.is_dir():
        return read(problem).problem
    written = problem / "problem.toml"
    saved = (problem / "problem.json").is_file() or not written.is_file()
    return load_problem(problem) if saved else read(written).problem


def trace_frontier(
    problem: Path,
    constraint: str | None,
    budgets: str | None,
    n: int | None,
    out: Path | None,
    ray: str | None,
    overwrite: bool,
    as_json: bool,
) -> Exit:
    """Trace a frontier; see ``cvxmdp frontier --help``."""
    spec = read(problem)
    name = _constraint(list(spec.problem.constraints), constraint)
    if out is not None and state_of(out) is RunState.ABSENT:
        require_ours(out, ())
    elif out is not None and not overwrite:
        raise StoreError(f"{out} holds a run already; choose another folder, or use --overwrite")
    if spec.solver is not None:
        note("[solver] plays no part in a frontier: budgets are solved by what suits the model.")
    with writing(out) if out else nullcontext(), working("solving one budget after the other"):
        found = frontier(spec.problem, name, _numbers(budgets), n=n, backend=ray_at(ray))
        if out is not None:
            wanted = ["--budgets", budgets] if budgets else ["-n", str(n)] if n else []
            rerun = shlex.join(["cvxmdp", "frontier", problem.name, name, *wanted])
            _keep_frontier(spec, found, out, rerun)
    feasible = any(not point.certificate.infeasible for point in found.points)
    code = Exit.OK if feasible else Exit.INFEASIBLE
    if as_json:
        say_json({**asdict(frontier_facts(found)), "exit_code": int(code)})
    else:
        say(str(found))
        if out is not None:
            note(f"\nKept in {out}. Look at it: cvxmdp report {out} -o report.html")
    return code


def _keep_frontier(spec: ProblemSpec, found: Frontier, out: Path, rerun: str) -> None:
    """As a run at the file's own budget, which is solved like the others where it is none of them."""
    own, name = spec.problem.budgets[found.constraint], found.constraint
    solved = [point for point in found.points if point.budget == own]
    point = (solved or frontier(spec.problem, name, [own]).points)[0]
    solver, confidence = choose_solver(spec.problem)[0], point.certificate.confidence
    record = record_of(
        point.solution,
        title=spec.title,
        solver=solver if confidence is None else Cautious(solver, confidence),
        certificate=point.certificate,
        frontier=found,
        rerun=rerun,
    )
    write_question(out, spec.problem)
    write_answer(out, point.solution)
    write_run(out, record, problem_files=problem_files(spec))


def trace_front(
    problem: Path,
    objectives: list[str],
    tolerance: float,
    out: Path | None,
    plot: Path | None,
    ray: str | None,
    as_json: bool,
) -> Exit:
    """Trace a coverage set; see ``cvxmdp pareto --help``."""
    spec = read(problem)
    if out is not None and out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty; choose another folder")
    if plot is not None:
        require_place(plot, picture_endings())
    reader = Reader(ArrayFolder(problem.parent), spec.problem.space)
    named = [_named(given) for given in objectives]
    asked = {name: reader.utility(text) for name, text in named}
    if len(asked) < len(named):
        raise SpecError(f"a name occurs twice: {', '.join(name for name, _ in named)}")
    with working("solving one weighting after the other"):
        found = pareto(spec.problem, asked, tolerance=tolerance, backend=ray_at(ray))
    if out is not None:
        found.save(out)
    if plot is not None:
        found.plot(plot)
    code = Exit.OK if found.distance <= tolerance else Exit.NOT_CONVERGED
    if as_json:
        known = {"weights": found.weights, "bounds": found.bounds, "points": found.points}
        shown = {name: numbers.tolist() for name, numbers in known.items()}
        more = {"ranges": found.ranges.tolist(), "distance": found.distance, "exit_code": int(code)}
        say_json({"objectives": list(asked), **shown, **more})
    else:
        say(str(found))
        if out is not None:
            proof = f"python -m cvxmdp.checker {out}/00/certificate.json {out}/00"
            note(f"\nEvery solve is kept in {out}. Check one: {proof}")
    return code


def _named(given: str) -> tuple[str, str]:
    name, equals, text = given.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise SpecError(
            f"an objective has a name, 'safe=-linear(\"hazard\")'; got {given!r}. All are maximised."
        )
    return name.strip(), text


def ray_at(address: str | None) -> Ray | None:
    """The cluster at an address; ``here`` starts Ray on this machine."""
    return None if address is None else Ray(None if address == "here" else address)


def _constraint(names: list[str], given: str | None) -> str:
    if given is None and len(names) == 1:
        return names[0]
    if given is None:
        raise SpecError(f"say which budget to vary. {did_you_mean('', names)}")
    if given not in names:
        raise SpecError(f"there is no constraint {given!r}. {did_you_mean(given, names)}")
    return given


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecError(f"--budgets {text}: expected numbers separated by commas") from error
