"""check and fingerprint of problems in memory: they are handed to the checker as plain data."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from numbers import Real
from pathlib import Path
from typing import Any

from cvxmdp.base.described import described
from cvxmdp.base.errors import ProblemError, require
from cvxmdp.base.progress import Progress
from cvxmdp.base.storage import whole_file
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.checker import check as checker
from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.check import Check
from cvxmdp.checker.fingerprint import digest_of
from cvxmdp.checker.fingerprint import fingerprint as plain_fingerprint
from cvxmdp.checker.mps_files import linear_proof
from cvxmdp.checker.proof_arithmetic import MOST_SECONDS, Exact
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem, load_problem, require_problem

EXACT_STEPS = 5  # of a check, besides one for each constraint


def check(
    certificate: str | Path | Certificate,
    problem: Problem | str | Path,
    exact: bool = False,
    *,
    time_limit: float = MOST_SECONDS,
    progress: bool | None = None,
) -> Check:
    """Verify a certificate, trusting neither its author nor our solvers.

    Args:
        certificate: path of a JSON file written by ``Certificate.save``, or a certificate, of which the file
            that it would write is checked.
        problem: the problem it claims to be about, or the folder in which that was saved.
        exact: in exact arithmetic, with no word about rounding (python-flint, the extra ``exact``; a second
            for 1,000 states). A function of your own is computed in floats as ever, and the outcome says so.
        time_limit: seconds for that; a problem that would take longer is not begun, and the outcome says how
            long it would.
        progress: False for no progress line of an exact check.

    Returns:
        The outcome; true when every claim was verified. A file that is no certificate is rejected,
        not an error; only a file that cannot be opened is.
    """
    if isinstance(problem, str | Path):
        problem = load_problem(problem)
    require_problem(problem, "check(certificate, problem)")
    plain = Lowered(problem).plain()
    if not exact:
        return _checked(certificate, plain, None)
    require("flint", "exact")
    if not isinstance(time_limit, Real) or not time_limit > 0:
        raise ProblemError(f"time_limit must be a positive number of seconds; got {time_limit!r}")
    line = Progress("exact arithmetic", EXACT_STEPS + len(problem.constraints), progress)
    told = count()
    try:
        exactly = Exact(plain, time_limit, lambda what: line.update(next(told), what))
        return _checked(certificate, plain, exactly)
    finally:
        line.close()


def _checked(
    certificate: str | Path | Certificate, plain: dict[str, Any], arithmetic: Exact | None
) -> Check:
    if not isinstance(certificate, Certificate):
        return checker.check_file(certificate, plain, arithmetic)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        certificate.save(path)
        return checker.check_file(path, plain, arithmetic)


def write_mps(certificate: Certificate, problem: Problem, path: str | Path) -> None:
    """Write a linear problem as MPS, and beside it the proof of its bound, for other programs to check.

    ``path`` becomes a linear program that minimises minus the objective (the objective itself where the problem
    minimises); the same name with ``.dual`` holds "bound p/q" and a multiplier p/q for each row: in exact
    arithmetic they show that no feasible point is better than the bound. Every number is exact in both.

    Args:
        certificate: of the problem; functions have to be linear.
        problem: the problem.
        path: of the file, which ends with ``.mps``.
    """
    require("flint", "exact")
    place = Path(path)
    if place.suffix != ".mps":
        raise ProblemError(f"a linear program is written to a file that ends with .mps; got {path}")
    plain = Lowered(problem).plain()
    if certificate.fingerprint != plain_fingerprint(plain):
        raise ProblemError("the certificate is about another problem")
    try:
        program, dual = linear_proof(json.loads(certificate.to_json()), plain)
    except CertificateError as error:
        raise ProblemError(f"nothing to write: {error}") from error
    for file, text in ((place, program), (place.with_suffix(".dual"), dual)):
        with whole_file(file) as temporary:
            temporary.write_text(text, "utf-8")


def loosened(certificate: Certificate, problem: Problem) -> Certificate:
    """The certificate with claims that pass in exact arithmetic.

    Where floats claimed more than is exactly shown, the claim becomes what is shown; a policy that is not
    exactly feasible is not claimed.
    """
    found = check(certificate, problem, exact=True)
    if not found and not found.unverified:
        looser = replace(
            certificate,
            upper=max(certificate.upper, found.upper),
            lower=min(certificate.lower, found.lower),
            slack={
                name: min(least, found.slack.get(name, least))
                for name, least in certificate.slack.items()
            },
            slack_bound=max(certificate.slack_bound, found.slack_bound),
            reaches=_weaker(certificate.sense)(certificate.reaches, found.reaches),
        )
        if any(least < 0 for least in looser.slack.values()) and certificate.confidence is None:
            looser = _without_policy(looser)
        certificate, found = looser, check(looser, problem, exact=True)
    if not found:
        raise ProblemError(f"nothing could be proven in exact arithmetic. {found}")
    return replace(certificate, level=found.level)


def _weaker(sense: str) -> Callable[[float, float], float]:
    """Of what a policy reaches."""
    return min if sense == "maximize" else max


def _without_policy(certificate: Certificate) -> Certificate:
    bare = replace(certificate, policy=None, slack={})
    if certificate.sense == "maximize":
        return replace(bare, lower=-math.inf)
    return replace(bare, upper=math.inf)


def fingerprint(problem: Problem) -> str:
    """SHA-256 of a problem's numbers; of an environment, of all that it says of itself."""
    environment = problem.environment
    if environment is None:
        return plain_fingerprint(Lowered(problem).plain())
    slacks = [[name, g.plain()] for name, g in problem.slack_functions.items()]
    return digest_of(
        "cvxmdp problem in an environment",
        [
            environment.identity,
            described(environment.features),
            list(problem.space.signal_names),
            float(problem.space.discount),
            problem.sense,
            problem.objective_function.plain(),
            slacks,
        ],
    )
