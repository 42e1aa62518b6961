"""Problems and solutions in folders: what is loaded is what was saved, or an error that says why not."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from random import Random

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.certificates import certify as certifying
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.saved_problem import read_problem
from strategies import CONCAVE, CONVEX, coverage, generator, random_model, random_policy


def some_problem(**changes):
    mdp = cm.gridworld(4, slip=0.1, discount=0.9, hazards=[5, 6])
    subject_to = {"hazard": cm.linear("hazard", per="step") <= 0.1 / 3}
    return cm.Problem(mdp, **{"maximize": cm.entropy(), "subject_to": subject_to, **changes})


@pytest.mark.parametrize("kind", [*CONCAVE, *CONVEX])
def test_every_atom_is_read_back_to_the_last_bit(kind, tmp_path):
    random = generator(17)
    mdp = random_model(random)
    utility = {**CONCAVE, **CONVEX}[kind](mdp, random)
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    subject_to = {"cost": cm.linear("cost") <= 100.1 / 3}
    problem = cm.Problem(mdp, **{sense: utility}, subject_to=subject_to)
    problem.save(tmp_path / "problem")
    again = cm.load_problem(tmp_path / "problem")
    assert repr(again) == repr(problem)
    assert fingerprint(again) == fingerprint(problem)
    policy = random_policy(mdp, random)
    assert again.evaluate(policy).objective == problem.evaluate(policy).objective


def test_a_loaded_problem_is_like_the_one_that_was_saved(tmp_path):
    problem = some_problem()
    problem.save(tmp_path)
    again = cm.load_problem(tmp_path)
    assert again.budgets == problem.budgets
    assert again.mdp.layout == problem.mdp.layout
    assert cm.solve(again).objective == pytest.approx(cm.solve(problem).objective, rel=1e-12)
    other = again.with_budget("hazard", 0.01)
    assert fingerprint(other) == fingerprint(problem.with_budget("hazard", 0.01))


def test_functions_of_ones_own_are_given_again(tmp_path):
    problem = some_problem(maximize=coverage)
    problem.save(tmp_path)
    with pytest.raises(
        cm.UtilityError, match=r"coverage, a function of the user's own.*functions="
    ):
        cm.load_problem(tmp_path)
    again = cm.load_problem(tmp_path, functions={"coverage": coverage})
    assert fingerprint(again) == fingerprint(problem)


def test_a_folder_that_holds_none(tmp_path):
    with pytest.raises(cm.FileFormatError, match=r"Problem\.save"):
        cm.load_problem(tmp_path)
    with pytest.raises(cm.FileFormatError, match="problem"):
        cm.load_solution(tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "cvxmdp problem 1"),
        (("written", "utility", "atom"), "surprise"),
        (("written", "utility", "of"), 7),
        (("written", "constraints", "hazard", "sense"), "=="),
        (("written", "constraints", "hazard", "budget"), 0.2),  # not what the numbers say
        (("written", "constraints", "hazard", "utility", "per"), "total"),
        (("objective", "map", "sparse"), "function/99"),
        (("objective", "map", "shape"), [3, 3]),
        (("model", "discount"), 2.0),
        (("model", "layout"), {"rows": 10**9, "columns": 10**9}),
        (("sense",), "both"),
        (("slacks",), []),
    ],
)
def test_changed_folders_are_refused(path, value, tmp_path):
    some_problem().save(tmp_path)
    file = tmp_path / "problem.json"
    document = json.loads(file.read_text())
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    file.write_text(json.dumps(document))
    with pytest.raises(cm.CvxmdpError):
        cm.load_problem(tmp_path)


@pytest.mark.parametrize("length", [0, 4, 100, 2000])
def test_truncated_arrays_are_refused(length, tmp_path):
    some_problem().save(tmp_path)
    file = tmp_path / "problem.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(cm.FileFormatError):
        cm.load_problem(tmp_path)


VALUES = [None, -1, 1e308, 10**30, "x", "nan", [], {}, [[1]], True, 5e-324, {"array": "initial"}]


def mutated(document, random):
    """A copy with something put in the place of something else, or left out."""
    document = copy.deepcopy(document)
    holder, steps = document, random.randrange(1, 7)
    while True:
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        steps -= 1
        if steps == 0 or not isinstance(holder[key], dict | list) or not holder[key]:
            break
        holder = holder[key]
    if isinstance(holder, dict) and random.random() < 0.2:
        del holder[key]
    else:
        holder[key] = random.choice(VALUES)
    return document


def test_whatever_is_in_a_folder_the_errors_are_ours(tmp_path):
    mdp = cm.garnet(5, 2, 2, seed=0)
    fair = cm.minimum(cm.linear("reward") + 0.1, 2 * cm.entropy()) - cm.linear("cost")
    near = cm.distance(cm.box(0.0, np.full((5, 2), 3.0)), norm="l1") <= 0.5
    problem = cm.Problem(mdp, maximize=fair, subject_to={"near": near})
    cm.solve(problem).save(tmp_path)
    random = Random(0)
    for name in ("problem.json", "solution.json"):
        honest = json.loads((tmp_path / name).read_text())
        for _ in range(100):
            (tmp_path / name).write_text(json.dumps(mutated(honest, random)))
            with contextlib.suppress(cm.CvxmdpError):
                str(cm.load_solution(tmp_path))
            with contextlib.suppress(CertificateError):
                PlainProblem(read_problem(tmp_path))
        (tmp_path / name).write_text(json.dumps(honest))
    assert cm.load_solution(tmp_path).has_policy


def test_what_is_no_number_or_no_name_is_refused(tmp_path):
    problem = cm.Problem(cm.garnet(5, 2, 2, seed=0), maximize=cm.entropy())
    cm.solve(problem).save(tmp_path)
    answer = json.loads((tmp_path / "solution.json").read_text())
    for name, value in {"seconds": "soon", "iterations": []}.items():
        wrong = {**answer, "stats": {**answer["stats"], name: value}}
        (tmp_path / "solution.json").write_text(json.dumps(wrong))
        with pytest.raises(cm.FileFormatError, match=f"{name} are a number"):
            cm.load_solution(tmp_path)
    plain = read_problem(tmp_path)
    for changed in ({"discount": "often"}, {"objective": {"kind": plain["initial"]}}):
        with pytest.raises(CertificateError):
            PlainProblem({**plain, **changed})


# Solutions.


@pytest.mark.parametrize(
    "solver", [cm.ConvexProgram(), cm.ColumnGeneration(1e-3), cm.PDPG(50)], ids=repr
)
def test_a_solution_is_read_back(solver, tmp_path):
    problem = some_problem()
    solution = cm.solve(problem, solver)
    solution.save(tmp_path / "answer")
    again = cm.load_solution(tmp_path / "answer")
    assert again.status is solution.status
    assert again.message == solution.message
    assert again.objective == solution.objective
    assert again.slack == solution.slack
    assert again.multipliers == solution.multipliers
    np.testing.assert_array_equal(again.occupancy, solution.occupancy)
    np.testing.assert_array_equal(again.policy.probabilities(), solution.policy.probabilities())
    assert str(again.problem) == str(problem)
    assert str(again) == str(solution)
    assert set(again.history) == set(solution.history)
    first, second = cm.certify(problem, solution), cm.certify(problem, again)
    assert second.upper == pytest.approx(first.upper, rel=1e-12)


def test_an_infeasible_solution_is_read_back(tmp_path):
    problem = some_problem(subject_to={"much": cm.linear("hazard", per="step") >= 2.0})
    solution = cm.solve(problem, cm.ColumnGeneration())
    solution.save(tmp_path)
    again = cm.load_solution(tmp_path)
    assert again.status is cm.Status.INFEASIBLE
    assert not again.has_policy
    assert math.isnan(again.objective)
    assert cm.certify(problem, again).infeasible


# Evidence.


@cm.concave
def spread(occupancy):
    return (occupancy.sum(axis=1) + 1e-3) ** 0.5 @ np.ones(occupancy.shape[0])


@pytest.fixture
def no_search(monkeypatch):
    """Proofs are taken from evidence, not looked for."""

    def refuse(*arguments, **keywords):
        raise AssertionError("a proof was searched for")

    for name in ("by_columns", "by_gradient", "linearise"):
        monkeypatch.setattr(certifying, name, refuse)
    monkeypatch.setattr(certifying, "CHEAP", 0)


@pytest.mark.parametrize(
    ("utility", "tolerance"), [(cm.entropy(), 1e-3), (cm.linear("reward"), 1e-6), (spread, 1e-3)]
)
def test_certify_uses_what_the_solver_knows(utility, tolerance, no_search):
    mdp = cm.garnet(30, 3, 4, seed=1, discount=0.9)
    problem = cm.Problem(mdp, maximize=utility, subject_to={"cost": cm.linear("cost") <= 4.0})
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=tolerance))
    assert solution.status is cm.Status.OPTIMAL
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= solution.stats["certified_gap"] * (1 + 1e-6) + 1e-12


def test_a_proof_after_an_exact_answer_costs_little():
    mdp = cm.garnet(150, 4, 5, seed=1, discount=0.95)
    problem = cm.Problem(mdp, maximize=spread, subject_to={"cost": cm.linear("cost") <= 9.0})
    started = time.perf_counter()
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-4))
    solved = time.perf_counter() - started
    assert solution.status is cm.Status.OPTIMAL
    started = time.perf_counter()
    certificate = cm.certify(problem, solution)
    assert time.perf_counter() - started < max(0.1 * solved, 0.3)
    assert certificate.relative_gap <= 1e-4


def conic_problems():
    mdp = cm.garnet(40, 3, 4, seed=2, discount=0.9)
    uniform = cm.uniform_policy(mdp)
    cost = {"cost": cm.linear("cost") <= 4.5}
    return {
        "l1": cm.Problem(
            mdp,
            maximize=cm.linear("reward"),
            subject_to={"near": cm.distance(uniform, norm="l1") <= 4.0},
        ),
        "kl": cm.Problem(
            mdp,
            maximize=cm.linear("reward"),
            subject_to={"near": cm.distance(uniform, norm="kl") <= 0.1},
        ),
        "minimum": cm.Problem(
            mdp, maximize=cm.minimum(cm.linear("reward"), 5 - cm.linear("cost")), subject_to=cost
        ),
        "linear": cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=cost),
    }


@pytest.mark.parametrize("name", ["l1", "kl", "minimum", "linear"])
def test_one_conic_program_answers_and_proves(name, no_search, monkeypatch):
    problem = conic_problems()[name]
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.evidence is not None
    assert solution.evidence.values is not None

    def refuse(*arguments, **keywords):
        raise AssertionError("a second program was solved")

    monkeypatch.setattr("cvxmdp.certificates.evidence.solve_conic", refuse)
    assert cm.certify(problem, solution).relative_gap <= 1e-7


def test_infeasibility_is_taken_over(monkeypatch):
    problem = some_problem(subject_to={"much": cm.linear("hazard", per="step") >= 2.0})
    solution = cm.solve(problem, cm.ColumnGeneration())

    def refuse(*arguments):
        raise AssertionError("a proof was searched for")

    monkeypatch.setattr("cvxmdp.certificates.slater.by_program", refuse)
    certificate = cm.certify(problem, solution)
    assert certificate.infeasible
    assert certificate.conflict == ("much",)


def test_evidence_of_another_problem_does_no_harm():
    problem = some_problem()
    solution = cm.solve(problem, cm.ColumnGeneration(1e-3))
    wider = problem.with_budget("hazard", 0.05)
    certificate = cm.certify(wider, solution)
    assert certificate.upper >= cm.solve(wider).objective - 1e-9
    free = some_problem(subject_to={})
    certificate = cm.certify(free, solution)
    assert certificate.upper >= cm.solve(free).objective - 1e-9
    larger = cm.Problem(cm.gridworld(5), maximize=cm.entropy())
    assert math.isfinite(cm.certify(larger, cm.solve(larger)).gap)


@pytest.mark.parametrize("name", ["array", "function", "sparse", "kind", "slacks"])
def test_constraints_may_have_any_name(name, tmp_path) -> None:
    """Also those that stand for something in files: all of a problem is kept, and fingerprinted."""
    mdp = cm.gridworld(3, discount=0.9, hazards=[4])
    without = cm.Problem(mdp, maximize=cm.entropy())
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to={name: cm.linear("hazard") <= 0.1})
    problem.save(tmp_path / "problem")
    again = cm.load_problem(tmp_path / "problem")
    assert list(again.constraints) == [name]
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", again)
    assert not cm.check(tmp_path / "certificate.json", without)
    assert (
        cm.certify(problem.with_budget(name, 0.2), solution).fingerprint != certificate.fingerprint
    )
