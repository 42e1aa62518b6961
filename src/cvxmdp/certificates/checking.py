"""check and fingerprint of problems in memory: they are handed to the checker as plain data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cvxmdp.base.described import described
from cvxmdp.base.errors import require
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.checker import check as checker
from cvxmdp.checker.check import Check
from cvxmdp.checker.fingerprint import digest_of
from cvxmdp.checker.fingerprint import fingerprint as plain_fingerprint
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem import Problem


def check(certificate: str | Path | Certificate, problem: Problem, exact: bool = False) -> Check:
    """Verify a certificate, trusting neither its author nor our solvers.

    Args:
        certificate: path of a JSON file written by ``Certificate.save``, or a certificate, of which the file
            that it would write is checked.
        problem: the problem it claims to be about.
        exact: in exact arithmetic, with no word about rounding (python-flint, the extra ``exact``; some
            seconds for 1,000 states).

    Returns:
        The outcome; true when every claim was verified. A file that is no certificate is rejected,
        not an error; only a file that cannot be opened is.
    """
    if exact:
        require("flint", "exact")
    plain = Lowered(problem).plain()
    if not isinstance(certificate, Certificate):
        return checker.check_file(certificate, plain, exact)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        certificate.save(path)
        return checker.check_file(path, plain, exact)


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
