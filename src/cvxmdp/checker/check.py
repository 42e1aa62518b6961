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
    checking = Checking(document, plain, arithmetic)
    problem = checking.problem
    found = checking.infeasible() if checking.stated["infeasible"] else checking.bounds()
    own = any(form.promises for form in (problem.objective, *problem.slacks.values()))
    return replace(
        found, level=arithmetic.level + (OWN if own and arithmetic.level == EXACT else "")
    )


class Checking:
    """One certificate against one problem: what is claimed, what is shown, and what is wrong.

    Args:
        document: the certificate.
        plain: the problem.
        arithmetic: that claims are computed in.

    Attributes:
        problem: that it speaks of.
        stated: its claims.
        reasons: what is wrong, in words.
        unverified: what could not be computed because a function of the user's own is not at hand.
        slack, reaches: see ``Check``.
    """

    def __init__(
        self, document: dict[str, Any], plain: Mapping[str, Any], arithmetic: ProofArithmetic
    ) -> None:
        self.document, self.plain, self.arithmetic = document, plain, arithmetic
        self.problem = _subject(document, plain, arithmetic.scalars)
        self.stated = _claims(document, fingerprint(plain), self.problem)
        self.reasons: list[str] = []
        self.unverified: list[str] = []
        self.slack: dict[str, float] = {}
        self.reaches = math.nan

    def outcome(self, **shown: Any) -> Check:
        """With what was shown."""
        notes = self.document.get("notes")
        return Check(
            not self.reasons and not self.unverified,
            tuple(self.reasons),
            assumes=self.problem.promises,
            unchecked=tuple(sorted(map(str, notes))) if isinstance(notes, dict) else (),
            unverified=tuple(self.unverified),
            **shown,
        )

    def verified(self, what: str, compute: Callable[[], float]) -> float | None:
        """The number, or None where it cannot be had."""
        try:
            return compute()
        except NotVerifiableError as error:
            self.unverified.append(f"{what} could not be verified: {error}.")
            return None

    def infeasible(self) -> Check:
        """Of the claim that no policy satisfies all constraints."""
        if self.document["evidence"].get("policy") is not None:
            raise CertificateError("an infeasible problem has no policy, yet one is given")
        proof = decode_tree(self.document["evidence"].get("proof"))
        _check_conflict(self.stated["conflict"], proof["objective"]["weights"], self.problem)
        stated, smallest = _number(self.stated, "slack_bound"), self.problem.smallest_slack()
        shown = partial(self.arithmetic.upper_bound, smallest, {}, {**proof, "slacks": {}})
        bound = self.verified("infeasibility", shown)
        if bound is None:
            return self.outcome()
        if not bound < 0:
            self.reasons.append(
                f"infeasibility is not proven: the smallest slack is only shown to be at most {bound:.6g}."
            )
        if stated < bound:
            self.reasons.append(
                f"the smallest slack is claimed to be at most {stated:.17g}; the evidence shows {bound:.17g}."
            )
        return self.outcome(slack_bound=bound)

    def bounds(self) -> Check:
        """Of what is claimed of every policy, and of the certificate's own."""
        stated_upper, stated_lower = (_number(self.stated, name) for name in ("upper", "lower"))
        ceiling = self.verified("the bound on every policy", self.ceiling)
        problem = self.problem
        floor = self.true_floor(problem) if isinstance(problem, TrueProblem) else self.floor()
        upper, lower = ceiling, floor
        if problem.sign < 0:
            upper = None if floor is None else -floor
            lower = None if ceiling is None else -ceiling
        if upper is not None and not stated_upper >= upper:
            self.reasons.append(
                f"upper bound {stated_upper:.17g} is claimed; {upper:.17g} is shown."
            )
        if lower is not None and not stated_lower <= lower:
            self.reasons.append(
                f"lower bound {stated_lower:.17g} is claimed; {lower:.17g} is shown."
            )
        self.uniform()
        if "least_size" in self.stated:
            self.least_size()
        return self.outcome(
            upper=math.nan if upper is None else upper,
            lower=math.nan if lower is None else lower,
            slack=self.slack,
            reaches=problem.sign * self.reaches,
        )

    def ceiling(self) -> float:
        """What no feasible policy's f exceeds, by the evidence; multipliers are claims only with it."""
        multipliers = _named(self.stated, "multipliers")
        proof = self.document["evidence"].get("proof")
        if proof:
            return self.arithmetic.upper_bound(self.problem, multipliers, decode_tree(proof))
        if multipliers:
            raise CertificateError("multipliers are claimed without a proof that uses them")
        return math.inf

    def policy_and_slack(self) -> tuple[Any, dict[str, float]]:
        """The policy as written, or None, and the slack that is claimed of it: of every constraint."""
        policy, slack = self.document["evidence"].get("policy"), _named(self.stated, "slack")
        if policy is None and slack:
            raise CertificateError("slack is claimed without a policy that has it")
        if policy is not None and set(slack) != set(self.problem.slacks):
            raise CertificateError("the slack of some constraint is not claimed")
        return policy, slack

    def floor(self) -> float | None:
        """What the policy's f surely reaches; minus infinity where some constraint does not surely hold."""
        policy, stated = self.policy_and_slack()
        if policy is None:
            return -math.inf
        visited = self.arithmetic.visited(self.problem, decode(policy))
        surely, feasible = self.arithmetic.surely, True
        for name, form in self.problem.slacks.items():
            slack = self.verified(f"the slack of {name!r}", partial(surely, form, visited))
            if slack is not None:
                self.slack[name] = slack
            if slack is not None and not slack >= max(0.0, stated[name]):
                feasible = False
                self.reasons.append(
                    f"the slack of {name!r} is claimed to be at least {stated[name]:.17g}; it is "
                    f"only shown to be at least {slack:.17g}."
                )
        objective = partial(surely, self.problem.objective, visited)
        reached = self.verified("the objective of the policy", objective)
        return reached if feasible else -math.inf

    def true_floor(self, problem: TrueProblem) -> float | None:
        """The same in every model that may be the true one; slacks of either sign may be claimed."""
        data = self.stated["data"]
        if data != problem.data:
            raise CertificateError(f"it claims to rest on {data!r}; it is {problem.data!r}")
        policy, slack = self.policy_and_slack()
        claimed = problem.sign * _number(self.stated, "reaches")
        if policy is None:
            if claimed > -math.inf:
                raise CertificateError("something is claimed of a policy that is not there")
            return -math.inf
        values = RecordedValues(decode_tree(self.document["evidence"].get("values")))
        # Whether there is time, where that takes long.
        self.arithmetic.visited(problem, decode(policy))
        anywhere = policy_in(problem.models, decode(policy), values)
        claims = {"the objective": (problem.objective, claimed)}
        claims |= {f"the slack of {name!r}": (problem.slacks[name], slack[name]) for name in slack}
        shown = []
        for what, (form, least) in claims.items():
            known = self.verified(what, partial(anywhere.at_least, form))
            if known is None:
                return None
            if not known >= least:
                self.reasons.append(
                    f"{what} is claimed to be at least {least:.17g}; {known:.17g} is shown."
                )
            shown.append(known)
        self.reaches, self.slack = shown[0], dict(zip(slack, shown[1:], strict=True))
        return shown[0] if all(one >= 0 for one in shown[1:]) else -math.inf

    def uniform(self) -> None:
        """The uniform policy's objective is what relative gaps refer to."""
        problem, arithmetic = self.problem, self.arithmetic
        claimed = _number(self.stated, "uniform")
        visited = arithmetic.visited(problem, problem.flow.uniform)
        computed = partial(arithmetic.value, problem.objective, visited)
        value = self.verified("the uniform policy's objective", computed)
        if value is None:
            return
        value = problem.sign * value
        known = (value, _number(self.stated, "upper"), _number(self.stated, "lower"))
        scale = max((abs(number) for number in known if math.isfinite(number)), default=0.0)
        # Where all of them are next to nothing, what rounding does to the function is what counts.
        floats, of = problem.flow.visited(problem.flow.uniform), arithmetic.scalars
        rounding = of.at_most(problem.objective.drift(of.array(floats.x), floats.error))
        near = value == claimed or abs(value - claimed) <= ROUNDED * scale + rounding
        if not near:
            self.reasons.append(
                f"the uniform policy is claimed to reach {claimed:.17g}; it reaches {value:.17g}."
            )

    def least_size(self) -> None:
        """What relative gaps refer to where zero is between the bounds: what floats say it is, for no proof
        rests on it.
        """
        claimed = _number(self.stated, "least_size")
        floats = _subject(self.document, self.plain, FLOATS)
        if not _number(self.stated, "lower") <= 0 <= _number(self.stated, "upper"):
            self.reasons.append("a least size is claimed of bounds that zero is not between.")
        size = self.verified("the least size", partial(change_of, floats))
        if size is not None and not claimed <= size:
            self.reasons.append(f"a least size of {claimed:.17g} is claimed; it is {size:.17g}.")


def _subject(
    document: dict[str, Any], plain: Mapping[str, Any], scalars: ScalarKind
) -> PlainProblem:
    """The problem that a certificate speaks of."""
    stated = document["claims"]
    if "confidence" not in stated:
        return PlainProblem(plain, scalars=scalars)
    known = plain.get("uncertainty")
    if not isinstance(known, Mapping):
        raise CertificateError("it speaks of the true model, and the problem has no counts")
    if known.get("kind") == "counts":
        return true_problem(plain, _number(stated, "confidence"), scalars)
    return true_problem(plain, math.nan, scalars)


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


def _check_conflict(conflict: Any, weights: Any, problem: PlainProblem) -> None:
    """The proof may only use the constraints that are said to be in conflict, and uses each of them."""
    if not isinstance(conflict, list) or not set(conflict) <= set(problem.slacks):
        raise CertificateError("the conflict does not name constraints of the problem")
    for name, weight in zip(problem.slacks, weights, strict=True):
        if weight > 0 and name not in conflict:
            raise CertificateError(f"the proof uses {name!r}, which the conflict does not name")
        if not weight > 0 and name in conflict:
            raise CertificateError(f"the conflict names {name!r}, which the proof does not use")
