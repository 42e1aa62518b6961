"""``python -m cvxmdp.checker [--exact] certificate.json problem-folder``: for colleagues who trust nobody."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.check import Check, check_file
from cvxmdp.checker.proof_arithmetic import MOST_SECONDS, Exact
from cvxmdp.checker.saved_problem import read_problem

USAGE = (
    "usage: python -m cvxmdp.checker [--exact [--limit SECONDS]] certificate.json problem-folder"
)


def main(arguments: list[str]) -> int:
    """0 when every claim was verified, 1 when one was not, 2 where there is nothing to read."""
    try:
        given = _parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    certificate, folder = given.certificate, given.folder
    if not certificate.is_file():
        print(f"there is no file {certificate}\n{USAGE}", file=sys.stderr)
        return 2
    try:
        plain = read_problem(folder)
    except CertificateError as error:
        print(f"{error}\n{USAGE}", file=sys.stderr)
        return 2
    try:
        arithmetic = Exact(plain, given.limit, _tell) if given.exact else None
        found = check_file(certificate, plain, arithmetic)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    print(_report(found, str(plain["statement"])))
    return 0 if found else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cvxmdp.checker", USAGE.removeprefix("usage: "))
    parser.add_argument("certificate", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--limit", type=float, default=MOST_SECONDS)
    return parser


def _tell(what: str) -> None:
    if sys.stderr.isatty():
        print(f"exactly: {what}", file=sys.stderr)


def _report(found: Check, statement: str) -> str:
    lines = ["The problem, as the folder states it in words (the numbers are what is checked):", ""]
    lines += [f"    {line}" for line in statement.splitlines()]
    verdict = "Rejected." if found.reasons else "Not verified."
    lines += [
        "",
        f"Accepted: every claim follows from the problem ({found.level})." if found else verdict,
    ]
    lines += [f"  - {reason}" for reason in (*found.reasons, *found.unverified)]
    if found.upper == found.upper or found.lower == found.lower:  # not NaN: they were computed
        lines += [f"Recomputed: lower bound {found.lower:.17g}, upper bound {found.upper:.17g}."]
    lines += [f"Not verified, a promise: {promise}." for promise in found.assumes]
    if found.unchecked:
        lines += [f"Not checked, notes on how the proof was found: {', '.join(found.unchecked)}."]
    # Texts are somebody else's: control characters stay out of the terminal.
    text = "\n".join(lines)
    return "".join(c if c == "\n" or c.isprintable() else "?" for c in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
