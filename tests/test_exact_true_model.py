"""What is claimed of the true model, checked in exact arithmetic: of counts and a few logarithms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from adaptive_data import looked_at
from command_line import Done
from cvxmdp.checker.certificate_document import decode
from cvxmdp.checker.checked_confidence import ConfidenceRows
from cvxmdp.checker.exact_models import ExactRows
from cvxmdp.checker.exact_numbers import ball, precisely
from cvxmdp.checker.proof_arithmetic import EXACT
from random_problems import drawn
from test_forged_certificates import forgeries
from test_true_model import UTILITIES, WORLD, counted, estimated_signal

pytest.importorskip("flint")
LIMITS = {"cost": cm.linear("cost") <= 3.0}
MODELS = {
    "counts": counted(WORLD, 300, seed=1, declared=False),
    "errors": WORLD.uncertain(0.01),
}


OF_ERRORS = ("linear", "entropy", "kl", "l2", "minimum", "root")
KINDS = [*((name, "counts") for name in UTILITIES), *((name, "errors") for name in OF_ERRORS)]


@pytest.mark.parametrize(("name", "known"), KINDS)
def test_certificates_of_every_atom_pass_as_they_are(name: str, known: str) -> None:
    problem = cm.Problem(MODELS[known], maximize=UTILITIES[name], subject_to=LIMITS)
    certificate = cm.certify(problem, WORLD.flow.uniform, confidence=0.9)
    floats, exact = (cm.check(certificate, problem, exact=one) for one in (False, True))
    assert exact, exact.reasons
    assert exact.level == EXACT
    seen = [(one.upper, one.reaches, one.slack["cost"]) for one in (floats, exact)]
    np.testing.assert_allclose(*seen, rtol=1e-9, atol=1e-9)
    for claim, change in (("upper", -1e-3), ("reaches", 1e-3)):
        forged = replace(certificate, **{claim: getattr(certificate, claim) + change})
        assert not cm.check(forged, problem, exact=True)
    forged = replace(certificate, slack={"cost": certificate.slack["cost"] + 1e-3})
    assert not cm.check(forged, problem, exact=True)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 4.0), None])
@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_estimated_signals(bounds: Any, exactly: bool, sense: str) -> None:
    model = estimated_signal(2_000, 0, bounds, exactly)
    problem = cm.Problem(model, **{sense: cm.linear("reward")})  # type: ignore[arg-type]
    certificate = cm.certify(problem, cm.solve(problem), exact=True)
    assert certificate.level == EXACT
    assert np.isfinite(certificate.gap) == (exactly or bounds is not None)
    assert cm.check(certificate, problem, exact=True)


def test_infeasibility_supports_and_pairs_that_nobody_tried() -> None:
    inside = np.column_stack([WORLD.transition.toarray() > 0, np.zeros(12, dtype=bool)])
    limits = {"cost": cm.linear("cost") <= 1.2, "reward": cm.linear("reward") >= 0.1}
    asked: dict[str, Any] = {"maximize": cm.linear("reward")}
    few = np.full((6, 2), 50)
    few[2, 1] = 0
    problems = [
        cm.Problem(counted(WORLD, 20_000, seed=4), **asked, subject_to=limits),
        cm.Problem(counted(WORLD, 300, seed=1, supports=sp.csr_array(inside)), **asked),
        cm.Problem(counted(WORLD, few, seed=1), **asked),
        cm.Problem(counted(WORLD, 0, seed=1), **asked),
    ]
    for problem in problems:
        certificate = cm.certify(problem, cm.solve(problem), exact=True)
        assert certificate.infeasible is bool(problem.constraints)
        assert cm.check(certificate, problem, exact=True)


def test_balls_are_a_little_smaller_than_those_of_floats() -> None:
    random = np.random.default_rng(0)
    counts = sp.csr_array(random.poisson(10.0 ** random.uniform(-1, 4, (12, 1)), (12, 5)))
    floats = ConfidenceRows(counts, np.ones(5, dtype=bool), None, 7.0)
    values = random.normal(size=(5, 3))
    with precisely():
        exact = ExactRows(floats, ball(7.0))
        radius = np.array([float(one.mid()) for one in exact.radius])
        known = np.isfinite(floats.radius)
        assert (radius <= floats.radius)[known].all()
        np.testing.assert_allclose(radius[known], floats.radius[known], rtol=1e-8, atol=1e-12)
        wanted = np.ones(12, dtype=bool)
        most = np.vectorize(lambda one: float(one.mid()))(exact.largest(values, wanted))
        np.testing.assert_allclose(most, floats.largest(values, wanted), atol=1e-9)


def test_from_the_command_line(tmp_path: Path) -> None:
    problem = cm.Problem(MODELS["counts"], maximize=cm.linear("reward"), subject_to=LIMITS)
    certificate = cm.certify(problem, cm.solve(problem), exact=True)
    assert "Checked in exact arithmetic." in str(certificate)
    problem.save(tmp_path / "problem")
    certificate.save(tmp_path / "certificate.json")
    words = ("check", tmp_path / "certificate.json", tmp_path / "problem", "--exact")
    assert Done(*words).code == 0
    document = json.loads(certificate.to_json())
    document["claims"]["confidence"] = 0.999
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    assert Done(*words).code != 0


def untrue(document: dict[str, Any], problem: cm.Problem, best: cm.Solution) -> str:
    """What is claimed and does not even hold in the estimate, which is a model of the set."""
    claims, policy = document["claims"], document["evidence"]["policy"]
    if claims["infeasible"]:
        return "infeasible"
    if float(claims["upper"]) < best.objective - 1e-9:
        return "upper"
    if policy is None:
        return "" if float(claims["reaches"]) == -np.inf else "reaches"
    there = problem.evaluate(cm.TabularPolicy(decode(policy)))
    if float(claims["reaches"]) > there.objective + 1e-9:
        return "reaches"
    wrong = [n for n, s in claims["slack"].items() if float(s) > there.slack[n] + 1e-9]
    return f"slack of {wrong[0]}" if wrong else ""


@pytest.mark.filterwarnings("ignore")  # a forger's numbers overflow
def test_forged_claims_about_the_true_model_are_accepted_only_if_true(tmp_path: Path) -> None:
    utility = cm.entropy() + 0.2 * cm.linear("reward")
    model = counted(WORLD, 3_000, seed=2, declared=False)
    problem = cm.Problem(model, maximize=utility, subject_to=LIMITS)
    best, file = cm.solve(problem), tmp_path / "certificate.json"
    honest = json.loads(cm.certify(problem, best, confidence=0.9).to_json())
    counts = {True: 0, False: 0}
    for place, (said, document) in enumerate(forgeries(honest)):
        file.write_text(json.dumps(document))
        found = cm.check(file, problem, exact=place % 5 == 0, progress=False)
        counts[bool(found)] += 1
        assert not found or not untrue(document, problem, best), said
    assert counts[False] > counts[True] > 0  # notes may say anything


def passes(problem: cm.Problem, confidence: float | None) -> bool:
    """certify(exact=True), and check(exact=True) of it; False where nothing could be certified at all."""
    try:
        solution = cm.solve(problem, progress=False)
        cm.certify(problem, solution, confidence=confidence)
    except cm.CvxmdpError:
        return False
    certificate = cm.certify(problem, solution, confidence=confidence, exact=True)
    found = cm.check(certificate, problem, exact=True, progress=False)
    assert found, found.reasons
    return True


def certified(seeds: range, looks: int) -> int:
    """How many problems of a model and of counts pass."""
    count = 0
    for seed in seeds:
        try:
            problem = drawn(seed, quick=True).problem
        except cm.CvxmdpError:  # a sum per step where episodes differ, two parts to stay in
            continue
        count += passes(problem, None)
    logs = [problem for seed in seeds for problem, _ in looked_at(seed, looks, linear=False)]
    return count + sum(passes(problem, 0.95) for problem in logs)


@pytest.mark.filterwarnings("ignore")
def test_what_was_certified_exactly_passes_exactly() -> None:
    assert certified(range(50_000, 50_004), looks=1) >= 7


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_three_hundred_exact_certificates_pass_exactly() -> None:
    assert certified(range(60_000, 60_160), looks=2) >= 300
