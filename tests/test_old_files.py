"""Files as earlier releases wrote them are read, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.runs.run_folder import read_run

FILES = Path(__file__).parent / "files" / "0.1.0"


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return cm.Problem(
        cm.TabularMDP.load(FILES / "model.npz"),
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") <= 0.05},
    )


def test_a_model_is_the_one_it_was(problem) -> None:
    expected = cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4])
    assert np.array_equal(problem.mdp.dense_transition(), expected.dense_transition())
    assert np.array_equal(problem.mdp.signal("hazard"), expected.signal("hazard"))


def test_policies_act_as_they_did(problem) -> None:
    found = problem.evaluate(cm.load_policy(FILES / "policy.safetensors"))
    assert found.objective == pytest.approx(2.1739849, abs=1e-6)
    network = cm.load_policy(FILES / "network.safetensors")
    assert network.probabilities().shape == (9, 4)


def test_an_evaluation_is_read() -> None:
    assert "20 episodes" in str(cm.PolicyEvaluation.load(FILES / "evaluation.json"))


def test_a_certificate_is_refused_with_what_to_do(problem) -> None:
    report = cm.check(FILES / "certificate.json", problem)
    assert not report.accepted
    assert "Certify the problem again" in str(report)


def test_a_run_is_shown_without_its_certificate() -> None:
    with pytest.warns(CvxmdpWarning, match="certificate of cvxmdp 0.1"):
        record = read_run(FILES / "run")
    assert record.certificate is None
    assert record.objective == pytest.approx(2.1739849, abs=1e-6)


def test_the_runs_of_a_sweep_are_read() -> None:
    records = [read_run(folder) for folder in sorted((FILES / "sweep" / "runs").iterdir())]
    assert [record.objective for record in records] == pytest.approx([2.143562, 2.156517], abs=1e-6)


def test_everything_of_0_2_0_is_read_as_it_was(problem) -> None:
    kept = FILES.parent / "0.2.0"
    assert fingerprint(cm.load_problem(kept / "problem")) == fingerprint(problem)
    solution = cm.load_solution(kept / "solution")
    assert solution.status is cm.Status.OPTIMAL
    assert problem.evaluate(solution.policy).objective == pytest.approx(2.1739849, abs=1e-6)
    assert cm.load_policy(kept / "network.safetensors").probabilities().shape == (9, 4)
    assert cm.load_policy(kept / "timed.safetensors").probabilities().shape[-2:] == (9, 4)
    assert "20 episodes" in str(cm.PolicyEvaluation.load(kept / "evaluation.json"))
    assert read_run(kept / "run").certificate is not None
    runs = sorted((kept / "sweep" / "runs").iterdir())
    assert [read_run(run).objective for run in runs] == pytest.approx(
        [2.145153, 2.156517], abs=1e-6
    )


def test_certificates_of_0_2_0_are_accepted(problem) -> None:
    kept = FILES.parent / "0.2.0"
    never = cm.Problem(
        problem.mdp,
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") >= 1.0},
    )
    counted = cm.Problem(
        cm.TabularMDP.load(kept / "counted.safetensors"), maximize=cm.linear("moved")
    )
    for name, case in {"optimal": problem, "infeasible": never, "counted": counted}.items():
        assert cm.check(kept / f"certificate-{name}.json", case).accepted, name
