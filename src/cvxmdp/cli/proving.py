"""``cvxmdp certify``, ``check`` and ``frontier``: what is proven about a problem."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from cvxmdp.base.errors import did_you_mean
from cvxmdp.certificates.certificate import Certificate, certificate_facts
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.checking import check
from cvxmdp.cli.outcome import Exit, note, say, say_json, working
from cvxmdp.cli.overrides import read
from cvxmdp.cli.policy_arguments import read_policy
from cvxmdp.cli.solve_command import problem_files
from cvxmdp.problems.problem import load_problem
from cvxmdp.runs.backends.ray_backend import Ray
from cvxmdp.runs.frontier import frontier
from cvxmdp.runs.record import frontier_facts, record_of
from cvxmdp.runs.run_folder import RunState, StoreError, state_of, write_run, writing
from cvxmdp.runs.solving import solve
from cvxmdp.runs.specs.places import SpecError
from cvxmdp.solvers.choice import choose_solver


def certify_policy(
    problem: Path, policy: str, out: Path | None, gap: float | None, exact: bool, as_json: bool
) -> Exit:
    """Certify a policy; see ``cvxmdp certify --help``."""
    spec = read(problem)
    given = read_policy(policy)
    with working("proving"):
        certificate = certify(spec.problem, given, exact=exact)
    if out is not None:
        certificate.save(out)
    code = _proof_code(certificate, gap)
    if as_json:
        say_json(
            {
                **certificate_facts(certificate),
                "given_slack": dict(certificate.given_slack),
                "repaired": certificate.repaired,
                "certificate": None if out is None else str(out),
                "exit_code": int(code),
            }
        )
        return code
    say(str(certificate))
    if out is not None:
        note(f"\nWritten to {out}. Check it: cvxmdp check {out} {problem}")
    return code


def _proof_code(certificate: Certificate, gap: float | None) -> Exit:
    if certificate.infeasible:
        return Exit.INFEASIBLE
    wanted = math.inf if gap is None else gap
    proven = certificate.feasible and certificate.relative_gap <= wanted
    return Exit.OK if proven else Exit.NOT_CONVERGED


def check_certificate(
    certificate: Path, problem: Path, exact: bool, limit: float, as_json: bool
) -> Exit:
    """Check a certificate; see ``cvxmdp check --help``."""
    if not certificate.is_file():
        raise SpecError(f"there is no file {certificate}")
    about = load_problem(problem) if problem.is_dir() else read(problem).problem
    found = check(certificate, about, exact=exact, time_limit=limit)
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
    if out is not None and state_of(out) is not RunState.ABSENT and not overwrite:
        raise StoreError(f"{out} holds a run already; choose another folder, or use --overwrite")
    with writing(out) if out else nullcontext(), working("solving one budget after the other"):
        found = frontier(spec.problem, name, _numbers(budgets), n=n, backend=ray_at(ray))
        if out is not None:
            solver, _ = choose_solver(spec.problem)
            solution = solve(spec.problem, solver)
            record = record_of(
                solution,
                title=spec.title,
                solver=solver,
                certificate=certify(spec.problem, solution),
                frontier=found,
                rerun=f"cvxmdp frontier {problem.name} {name}",
            )
            write_run(out, record, problem_files=problem_files(spec))
    feasible = any(not point.certificate.infeasible for point in found.points)
    code = Exit.OK if feasible else Exit.INFEASIBLE
    if as_json:
        say_json({**asdict(frontier_facts(found)), "exit_code": int(code)})
    else:
        say(str(found))
        if out is not None:
            note(f"\nKept in {out}. Look at it: cvxmdp report {out} -o report.html")
    return code


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
