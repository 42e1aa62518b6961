"""Verify a certificate file against a problem, trusting neither its author nor our solvers.

Everything that is claimed is computed anew from the problem: the upper bound from the file's
multipliers, tangents and values; the lower bound and the slacks from its policy; what the uniform policy
reaches, which relative gaps refer to. A claim passes if it is no stronger than what was computed, so bounds
that somebody loosened by hand still pass (they remain true) and bounds that somebody tightened do not. A claim
without its evidence, or one that is not known here, is refused; what is no claim (the notes) is named as not
checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from cvxmdp.checker.arithmetic import CertificateError, NotVerifiableError
from cvxmdp.checker.bounds import PlainProblem, change_of
from cvxmdp.checker.certificate_document import decode, decode_tree, read_document
from cvxmdp.checker.fingerprint import fingerprint
from cvxmdp.checker.policy_anywhere import policy_in
from cvxmdp.checker.proof_arithmetic import EXACT, FLOATING, OWN, Floating, ProofArithmetic
from cvxmdp.checker.scalars import FLOATS, ScalarKind
from cvxmdp.checker.true_problem import RecordedValues, TrueProblem, true_problem

COMMON = {"infeasible", "sense", "statement", "assumes"}
BOUNDS = COMMON | {"upper", "lower", "slack", "multipliers", "uniform"}
INFEASIBLE = COMMON | {"slack_bound", "conflict"}
NEAR_NOTHING = {"least_size"}  # may be claimed where zero is between the bounds
ON_TRUTH = {"confidence", "data", "reaches"}
ROUNDED = 1e-6  # relative: how near to what is stated the uniform policy's objective has to be


Floor = Callable[
    [dict[str, Any], dict[str, Any], PlainProblem, ProofArithmetic, "_Findings"], float | None
]


@dataclass(frozen=True)
class Check:
    """The outcome of checking a certificate.

    Attributes:
        accepted: every claim was verified.
        reasons: what was wrong, in words; empty when accepted.
        upper, lower: the bounds as computed by the checker, in the user's sign; NaN where it did not
            get that far, or where no policy is feasible.
        assumes: promises that the proof rests on, which no checker can verify.
        unchecked: what the file says besides its claims: nobody recomputed it.
        unverified: claims that rest on a function of the user's own which is not at hand, in words.
        level: the arithmetic it was checked in.
        slack: what each constraint's slack is shown to be at least, of the policy.
        slack_bound: what the smallest slack of every policy is shown to be at most, of a conflict.
        reaches: what the policy's objective is shown to be at least (at most when minimising) in every model
            that may be the true one, whatever its slack.
    """

    accepted: bool
    reasons: tuple[str, ...]
    upper: float = math.nan
    lower: float = math.nan
    assumes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    level: str = FLOATING
    slack: Mapping[str, float] = field(default_factory=dict)
    slack_bound: float = math.nan
    reaches: float = math.nan

    def __bool__(self) -> bool:
        return self.accepted

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        if self.reasons:
            return "Rejected: " + " ".join(self.reasons)
        if not self.accepted:
            return "Not verified: " + " ".join(self.unverified)
        text = f"Accepted: every claim follows from the problem ({self.level})."
        if self.assumes:
            text += " It rests on these promises: " + "; ".join(self.assumes) + "."
        if self.unchecked:
            text += (
                "\nNotes that no proof rests on, not checked: " + ", ".join(self.unchecked) + "."
            )
        return text


def check_file(
    certificate: str | Path, plain: Mapping[str, Any], arithmetic: ProofArithmetic | None = None
) -> Check:
    """Verify a certificate file.

    Args:
        certificate: path of a JSON file written by ``Certificate.save``.
        plain: the problem it claims to be about, as plain data (``PlainProblem`` says which).
        arithmetic: ``Exact(plain)`` for no rounding at all; floats with terms for it, when not given.

    Returns:
        The outcome; true when every claim was verified. A file that is no certificate is rejected,
        not an error; only a file that cannot be opened is.
    """
    used = Floating() if arithmetic is None else arithmetic
    try:
        with used.working():
            return _checked(read_document(Path(certificate)), plain, used)
    except NotVerifiableError as error:
        return Check(False, (), unverified=(f"{error}.",), level=used.level)
    except CertificateError as error:
        return Check(False, (str(error),), level=used.level)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        # Claims are compared only after everything was read and computed, so a file that breaks the
        # arithmetic (numbers that overflow, tables where arrays belong) has proven nothing.
        reason = f"the certificate cannot be evaluated: {error!r}."
        return Check(False, (reason,), level=used.level)


def _checked(
    document: dict[str, Any], plain: Mapping[str, Any], arithmetic: ProofArithmetic
) -> Check:
    problem, floor = _subject(document, plain, arithmetic.scalars)
    stated = _claims(document, fingerprint(plain), problem)
    if stated["infeasible"]:
        found = _check_infeasible(document, stated, problem, arithmetic)
    else:
        found = _check_bounds(document, stated, problem, arithmetic, floor)
        if "least_size" in stated:
            # No proof rests on it: it is what floats say it is.
            floats, _ = _subject(document, plain, FLOATS)
            found = _with_least_size(found, stated, floats)
    own = any(form.promises for form in (problem.objective, *problem.slacks.values()))
    return replace(
        found, level=arithmetic.level + (OWN if own and arithmetic.level == EXACT else "")
    )


def _subject(
    document: dict[str, Any], plain: Mapping[str, Any], scalars: ScalarKind
) -> tuple[PlainProblem, Floor]:
    """The problem that a certificate speaks of, and how the floor of its policy is found."""
    stated = document["claims"]
    if "confidence" not in stated:
        return PlainProblem(plain, scalars=scalars), _floor
    known = plain.get("uncertainty")
    if not isinstance(known, Mapping):
        raise CertificateError("it speaks of the true model, and the problem has no counts")
    if known.get("kind") == "counts":
        return true_problem(plain, _number(stated, "confidence"), scalars), _true_floor
    return true_problem(plain, math.nan, scalars), _true_floor


def _claims(document: dict[str, Any], known: str, problem: PlainProblem) -> dict[str, Any]:
    """The claims with their types, after it is clear that they are about this problem."""
    if document.get("problem") != known:
        raise CertificateError(
            "the certificate is about another problem: the fingerprints of model, objective, "
            "constraints or budgets differ"
        )
    stated: dict[str, Any] = document["claims"]
    if not isinstance(stated.get("infeasible"), bool):
        raise CertificateError("the certificate does not say whether the problem is infeasible")
    if stated["infeasible"] and not problem.slacks:
        raise CertificateError("the problem has no constraints and cannot be infeasible")
    expected = INFEASIBLE if stated["infeasible"] else BOUNDS
    if "confidence" in stated:
        expected = expected | ON_TRUTH
    possible = expected if stated["infeasible"] else expected | NEAR_NOTHING
    for name in sorted(stated.keys() - possible):
        raise CertificateError(f"{name!r} is claimed, which does not go with the other claims")
    for name in sorted(expected - stated.keys()):
        raise CertificateError(f"the certificate has no usable {name!r}")
    if stated["sense"] != problem.sense:
        raise CertificateError(f"the certificate claims to {stated['sense']!r}")
    if stated["statement"] != problem.statement:
        raise CertificateError("the certificate states another problem in words")
    assumes = stated["assumes"]
    if not isinstance(assumes, list) or not all(isinstance(one, str) for one in assumes):
        raise CertificateError("the certificate does not list the promises it rests on")
    missing = [promise for promise in problem.promises if promise not in assumes]
    if missing:
        raise CertificateError(f"the certificate hides a promise it rests on: {missing[0]}")
    return stated


def _number(table: Any, name: str) -> float:
    try:
        value = float(table[name])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CertificateError(f"the certificate has no usable {name!r}") from error
    if math.isnan(value):
        raise CertificateError(f"the certificate claims that {name!r} is not a number")
    return value


def _named(stated: dict[str, Any], name: str) -> dict[str, float]:
    table = stated.get(name)
    if not isinstance(table, dict):
        raise CertificateError(f"the certificate has no usable {name!r}")
    return {key: _number(table, key) for key in table}


def _unchecked(document: dict[str, Any]) -> tuple[str, ...]:
    """What stands in a certificate file besides claims and evidence."""
    notes = document.get("notes")
    return tuple(sorted(str(name) for name in notes)) if isinstance(notes, dict) else ()


def _check_infeasible(
    document: dict[str, Any],
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
) -> Check:
    if document["evidence"].get("policy") is not None:
        raise CertificateError("an infeasible problem has no policy, yet one is given")
    proof = decode_tree(document["evidence"].get("proof"))
    _check_conflict(stated["conflict"], proof["objective"]["weights"], problem)
    stated_bound = _number(stated, "slack_bound")
    try:
        bound = arithmetic.upper_bound(problem.smallest_slack(), {}, {**proof, "slacks": {}})
    except NotVerifiableError as error:
        return Check(False, (), unverified=(f"infeasibility could not be verified: {error}.",))
    reasons = []
    if not bound < 0:
        reasons.append(
            f"infeasibility is not proven: the smallest slack is only shown to be at most {bound:.6g}."
        )
    if stated_bound < bound:
        reasons.append(
            f"the smallest slack is claimed to be at most {stated_bound:.17g}; the evidence shows "
            f"{bound:.17g}."
        )
    return Check(
        not reasons,
        tuple(reasons),
        assumes=problem.promises,
        unchecked=_unchecked(document),
        slack_bound=bound,
    )


def _check_conflict(conflict: Any, weights: Any, problem: PlainProblem) -> None:
    """The proof may only use the constraints that are said to be in conflict, and uses each of them."""
    if not isinstance(conflict, list) or not set(conflict) <= set(problem.slacks):
        raise CertificateError("the conflict does not name constraints of the problem")
    for name, weight in zip(problem.slacks, weights, strict=True):
        if weight > 0 and name not in conflict:
            raise CertificateError(f"the proof uses {name!r}, which the conflict does not name")
        if not weight > 0 and name in conflict:
            raise CertificateError(f"the conflict names {name!r}, which the proof does not use")


class _Findings:
    """What is wrong, and what could not be computed because a function of the user's own is not at hand."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.unverified: list[str] = []
        self.slack: dict[str, float] = {}
        self.reaches = math.nan

    def verified(self, what: str, compute: Callable[[], float]) -> float | None:
        """The number, or None where it cannot be had."""
        try:
            return compute()
        except NotVerifiableError as error:
            self.unverified.append(f"{what} could not be verified: {error}.")
            return None


def _check_bounds(
    document: dict[str, Any],
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
    floor_of: Floor,
) -> Check:
    stated_upper, stated_lower = _number(stated, "upper"), _number(stated, "lower")
    found = _Findings()
    ceiling = found.verified(
        "the bound on every policy", partial(_ceiling, document, stated, problem, arithmetic)
    )
    floor = floor_of(document, stated, problem, arithmetic, found)
    upper, lower = ceiling, floor
    if problem.sign < 0:
        upper = None if floor is None else -floor
        lower = None if ceiling is None else -ceiling
    if upper is not None and not stated_upper >= upper:
        found.reasons.append(f"upper bound {stated_upper:.17g} is claimed; {upper:.17g} is shown.")
    if lower is not None and not stated_lower <= lower:
        found.reasons.append(f"lower bound {stated_lower:.17g} is claimed; {lower:.17g} is shown.")
    _check_uniform(stated, problem, arithmetic, found)
    return Check(
        not found.reasons and not found.unverified,
        tuple(found.reasons),
        math.nan if upper is None else upper,
        math.nan if lower is None else lower,
        problem.promises,
        _unchecked(document),
        tuple(found.unverified),
        slack=found.slack,
        reaches=problem.sign * found.reaches,
    )


def _ceiling(
    document: dict[str, Any],
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
) -> float:
    """What no feasible policy's f exceeds, by the evidence; multipliers are claims only together with it."""
    multipliers = _named(stated, "multipliers")
    proof = document["evidence"].get("proof")
    if proof:
        return arithmetic.upper_bound(problem, multipliers, decode_tree(proof))
    if multipliers:
        raise CertificateError("multipliers are claimed without a proof that uses them")
    return math.inf


def _policy_and_slack(
    document: dict[str, Any], stated: dict[str, Any], problem: PlainProblem
) -> tuple[Any, dict[str, float]]:
    """The policy as written, or None, and the slack that is claimed of it: of every constraint."""
    policy, slack = document["evidence"].get("policy"), _named(stated, "slack")
    if policy is None and slack:
        raise CertificateError("slack is claimed without a policy that has it")
    if policy is not None and set(slack) != set(problem.slacks):
        raise CertificateError("the slack of some constraint is not claimed")
    return policy, slack


def _floor(
    document: dict[str, Any],
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
    found: _Findings,
) -> float | None:
    """What the policy's f surely reaches; minus infinity where some constraint does not surely hold."""
    policy, stated_slack = _policy_and_slack(document, stated, problem)
    if policy is None:
        return -math.inf
    visited = arithmetic.visited(problem, decode(policy))
    feasible = True
    for name, form in problem.slacks.items():
        slack = found.verified(f"the slack of {name!r}", partial(arithmetic.surely, form, visited))
        if slack is not None:
            found.slack[name] = slack
        if slack is not None and not slack >= max(0.0, stated_slack[name]):
            feasible = False
            found.reasons.append(
                f"the slack of {name!r} is claimed to be at least {stated_slack[name]:.17g}; it is "
                f"only shown to be at least {slack:.17g}."
            )
    surely = partial(arithmetic.surely, problem.objective, visited)
    reached = found.verified("the objective of the policy", surely)
    return reached if feasible else -math.inf


def _true_floor(
    document: dict[str, Any],
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
    found: _Findings,
) -> float | None:
    """The same in every model that may be the true one; slacks of either sign may be claimed."""
    assert isinstance(problem, TrueProblem)
    if stated["data"] != problem.data:
        raise CertificateError(f"it claims to rest on {stated['data']!r}; it is {problem.data!r}")
    policy, slack = _policy_and_slack(document, stated, problem)
    claimed = problem.sign * _number(stated, "reaches")
    if policy is None:
        if claimed > -math.inf:
            raise CertificateError("something is claimed of a policy that is not there")
        return -math.inf
    values = RecordedValues(decode_tree(document["evidence"].get("values")))
    arithmetic.visited(problem, decode(policy))  # whether there is time, where that takes long
    anywhere = policy_in(problem.models, decode(policy), values)
    claims = {"the objective": (problem.objective, claimed)}
    claims |= {f"the slack of {name!r}": (problem.slacks[name], slack[name]) for name in slack}
    shown = []
    for what, (form, least) in claims.items():
        known = found.verified(what, partial(anywhere.at_least, form))
        if known is None:
            return None
        if not known >= least:
            found.reasons.append(
                f"{what} is claimed to be at least {least:.17g}; {known:.17g} is shown."
            )
        shown.append(known)
    found.reaches, found.slack = shown[0], dict(zip(slack, shown[1:], strict=True))
    return shown[0] if all(one >= 0 for one in shown[1:]) else -math.inf


def _check_uniform(
    stated: dict[str, Any],
    problem: PlainProblem,
    arithmetic: ProofArithmetic,
    found: _Findings,
) -> None:
    """The uniform policy's objective is what relative gaps refer to."""
    claimed = _number(stated, "uniform")
    visited = arithmetic.visited(problem, problem.flow.uniform)
    computed = partial(arithmetic.value, problem.objective, visited)
    value = found.verified("the uniform policy's objective", computed)
    if value is None:
        return
    value = problem.sign * value
    known = (value, _number(stated, "upper"), _number(stated, "lower"))
    scale = max((abs(number) for number in known if math.isfinite(number)), default=0.0)
    # Where all of them are next to nothing, what rounding does to the function is what counts.
    floats, of = problem.flow.visited(problem.flow.uniform), arithmetic.scalars
    rounding = of.at_most(problem.objective.drift(of.array(floats.x), floats.error))
    near = value == claimed or abs(value - claimed) <= ROUNDED * scale + rounding
    if not near:
        found.reasons.append(
            f"the uniform policy is claimed to reach {claimed:.17g}; it reaches {value:.17g}."
        )


def _with_least_size(found: Check, stated: dict[str, Any], problem: PlainProblem) -> Check:
    """What relative gaps refer to where zero is between the bounds."""
    claimed, more = _number(stated, "least_size"), _Findings()
    if not _number(stated, "lower") <= 0 <= _number(stated, "upper"):
        more.reasons.append("a least size is claimed of bounds that zero is not between.")
    size = more.verified("the least size", partial(change_of, problem))
    if size is not None and not claimed <= size:
        more.reasons.append(f"a least size of {claimed:.17g} is claimed; it is {size:.17g}.")
    return replace(
        found,
        accepted=found.accepted and not more.reasons and not more.unverified,
        reasons=(*found.reasons, *more.reasons),
        unverified=(*found.unverified, *more.unverified),
    )
