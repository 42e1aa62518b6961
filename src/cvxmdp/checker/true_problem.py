"""A problem in every model that may be the true one, as the checker reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.checked_finite_models import CheckedFiniteModels
from cvxmdp.checker.checked_models import CheckedModels
from cvxmdp.checker.exact_models import ExactModels
from cvxmdp.checker.scalars import FLOATS, ScalarKind


class TrueProblem(PlainProblem):
    """A problem whose flow is a set of models."""

    flow: CheckedModels | CheckedFiniteModels
    models: CheckedModels | CheckedFiniteModels | ExactModels  # the same in the problem's scalars
    data = ""  # what statements rest on, in words

    @property
    def promises(self) -> tuple[str, ...]:
        """What users promised of functions, and of the data."""
        forms = [self.objective, *self.slacks.values()]
        made = [promise for form in forms for promise in form.promises]
        return (*dict.fromkeys(made), *self.flow.promises)


def true_problem(
    plain: Mapping[str, Any], confidence: float, scalars: ScalarKind = FLOATS
) -> TrueProblem:
    """The problem in every model of the set that holds the true one with this confidence."""
    known = plain.get("uncertainty")
    if not isinstance(known, Mapping):
        raise CertificateError("the problem has neither counts nor a stated error")
    try:
        flow = read_models(plain, confidence)
        models = _exactly(flow, plain) if scalars.exact else flow
        slacks = dict(zip(plain["slacks"], known["slacks"], strict=True))
        functions = {"objective": known["objective"], "slacks": slacks}
        boxes = {name: (box.low, box.high) for name, box in models.boxes.items()}
        found = TrueProblem({**plain, **functions}, flow, boxes, scalars)
        found.models = models
        found.data = data_words(known)
        return found
    except (ArithmeticError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"the counts of the problem lack something: {error!r}") from error


def read_models(plain: Mapping[str, Any], confidence: float) -> CheckedModels | CheckedFiniteModels:
    """The set of models of a problem, by its horizon."""
    if "average" in plain:
        raise CertificateError(
            "a long-run average needs that every model comes back to one state, which counts do not show"
        )
    kind = CheckedFiniteModels if "horizon" in plain else CheckedModels
    return kind(plain, confidence)


def _exactly(flow: CheckedModels | CheckedFiniteModels, plain: Mapping[str, Any]) -> ExactModels:
    if isinstance(flow, CheckedFiniteModels) or flow.discount == 1:
        raise CertificateError(
            "what is claimed of the true model without a discount, or over so many steps, is checked in "
            "floating point only"
        )
    return ExactModels(flow, plain)


def data_words(known: Mapping[str, Any]) -> str:
    """What statements rest on: rows and pairs, or the stated error."""
    if known["kind"] == "relative":
        share = f"{float(known['share']):.6g}"
        return f"whose probabilities are within {share} of these, each relative to itself"
    available = np.asarray(known["available"], dtype=bool)
    visits = np.asarray(known["outcomes"].sum(axis=1)).reshape(available.shape)
    never = int((available & (visits == 0)).sum())
    return f"{int(visits.sum()):,} rows, {int(available.sum()):,} pairs, {never:,} never tried"


class RecordedValues:
    """V of a certificate, given in the order in which they are asked for."""

    def __init__(self, values: Any) -> None:
        self.left = list(values) if isinstance(values, list) else []

    def __call__(self, rewards: np.ndarray) -> np.ndarray:
        if not self.left:
            raise CertificateError("the certificate holds too few values of its policy")
        return np.asarray(self.left.pop(0), dtype=np.float64)
