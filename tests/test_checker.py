"""check accepts what follows from the problem, and nothing else, whoever wrote the file."""

from __future__ import annotations

import copy
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.jsonable import encode_array as encode
from cvxmdp.checker.arithmetic import CertificateError, ErrorBound
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.certificate_document import decode, evidence_digest
from cvxmdp.problems.lowered import Lowered
from strategies import CONCAVE, CONVEX, coverage, generator, random_model, random_policy

# A forger's numbers overflow here and there.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow"),
    pytest.mark.filterwarnings("ignore:invalid value"),
]


def make_problem(budget=None, discount=0.85, scale=1.0, sense="maximize"):
    random = generator(31)
    mdp = random_model(random, n_states=4, n_actions=2, discount=discount, endings=True, mask=False)
    mdp = mdp.with_signals(cost=scale * mdp.signal("cost"))
    uniform = cm.uniform_policy(mdp)
    if budget is None:
        budget = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(uniform).objective
    utility = cm.minimum(cm.entropy(), cm.linear("reward")) + cm.linear("reward")
    if sense == "minimize":
        utility = -utility
    return cm.Problem(
        mdp,
        **{sense: utility},
        subject_to={
            "cost": cm.linear("cost") <= budget,
            "near": cm.distance(uniform, norm="l2") <= 0.6,
            "fair": cm.minimum(cm.linear("reward"), 3 * cm.linear("cost")) >= 0.01,
        },
    )


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module")
def certificate(problem):
    return cm.certify(problem, cm.solve(problem))


@pytest.fixture
def honest(certificate):
    return json.loads(certificate.to_json())


@pytest.fixture
def verify(problem, tmp_path):
    """Write a document with a fresh checksum, so that only the mathematics can catch it."""

    def write_and_check(document, of=problem):
        document["evidence_sha256"] = evidence_digest(document["evidence"])
        path = tmp_path / "certificate.json"
        path.write_text(json.dumps(document))
        return cm.check(path, of)

    return write_and_check


# Honest files.


def test_the_honest_file_is_accepted(problem, certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    outcome = cm.check(tmp_path / "certificate.json", problem)
    assert outcome
    assert outcome.reasons == ()
    assert outcome.lower >= certificate.lower
    assert outcome.upper <= certificate.upper
    assert "Accepted" in str(outcome)


def test_a_certificate_is_checked_as_the_file_it_would_write(problem, certificate):
    assert cm.check(certificate, problem)
    assert not cm.check(replace(certificate, upper=certificate.lower - 1.0), problem)


def test_the_checker_knows_the_problem_by_its_numbers(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(str(tmp_path / "certificate.json"), make_problem())


def test_when_minimising(verify):
    problem = make_problem(sense="minimize")
    found = cm.certify(problem, cm.solve(problem))
    document = json.loads(found.to_json())
    assert verify(document, problem)
    document["claims"]["lower"] += 1e-6
    assert not verify(document, problem)
    document = json.loads(found.to_json())
    document["claims"]["upper"] -= 1e-6
    assert not verify(document, problem)


@pytest.mark.parametrize("kind", [*CONCAVE, *CONVEX])
def test_every_atom_goes_through_a_file(kind, verify):
    random = generator(17)
    mdp = random_model(random)
    utility = {**CONCAVE, **CONVEX}[kind](mdp, random)
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    problem = cm.Problem(mdp, **{sense: utility})
    found = cm.certify(problem, random_policy(mdp, random))
    document = json.loads(found.to_json())
    assert verify(document, problem)
    name, towards = ("upper", -1) if sense == "maximize" else ("lower", 1)
    document["claims"][name] += towards * 1e-9 * max(1.0, abs(document["claims"][name]))
    assert not verify(document, problem)


def test_a_file_with_infinite_claims_is_accepted(problem, verify):
    strict = problem.with_budget("cost", 1e9)
    document = json.loads(cm.certify(strict, cm.uniform_policy(strict.mdp)).to_json())
    document["claims"]["upper"] = "inf"
    document["evidence"]["proof"] = {}
    assert "multipliers" in str(verify(document, strict))
    document["claims"]["multipliers"] = {}
    assert verify(document, strict)


def test_saving_twice_replaces_the_file(certificate, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text("old")
    certificate.save(path)
    assert json.loads(path.read_text())["format"].startswith("cvxmdp")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_there_is_an_error(problem, tmp_path):
    with pytest.raises(FileNotFoundError):
        cm.check(tmp_path / "nothing.json", problem)


# Claims.


def test_loosened_bounds_still_pass(honest, verify):
    honest["claims"]["upper"] += 1.0
    honest["claims"]["lower"] -= 1.0
    honest["claims"]["slack"] = dict.fromkeys(honest["claims"]["slack"], 0.0)
    assert verify(honest)


@pytest.mark.parametrize("relative", [1e-9, 1e-6, 0.1])
@pytest.mark.parametrize(("name", "sign"), [("upper", -1), ("lower", 1)])
def test_tightened_bounds_do_not(honest, verify, name, sign, relative):
    honest["claims"][name] += sign * relative * abs(honest["claims"][name])
    outcome = verify(honest)
    assert not outcome
    assert f"{name} bound" in str(outcome)


@pytest.mark.parametrize("name", ["cost", "near", "fair"])
def test_more_slack_than_there_is_does_not(honest, verify, name):
    honest["claims"]["slack"][name] += 1e-9 * (1 + honest["claims"]["slack"][name])
    assert "slack" in str(verify(honest))


def test_the_slack_of_every_constraint_is_claimed(honest, verify):
    del honest["claims"]["slack"]["near"]
    assert not verify(honest)


def test_other_multipliers_prove_other_bounds(honest, verify):
    multipliers = honest["claims"]["multipliers"]
    name = max(multipliers, key=multipliers.get)
    for changed in (0.5 * multipliers[name], 1.5 * multipliers[name]):
        document = copy.deepcopy(honest)
        document["claims"]["multipliers"][name] = changed
        assert not verify(document)


@pytest.mark.parametrize(
    "value", [-1e-12, -1.0, "nan", "inf", "-inf", 1e300, "many", None, [], True * 10**400]
)
def test_multipliers_that_are_none(honest, verify, value):
    honest["claims"]["multipliers"]["cost"] = value
    assert not verify(honest)


def test_multipliers_for_other_constraints(honest, verify):
    honest["claims"]["multipliers"]["costs"] = 0.0
    assert not verify(honest)


def test_another_policy_reaches_less(honest, verify, problem):
    honest["evidence"]["policy"] = encode(cm.uniform_policy(problem.mdp).probabilities())
    outcome = verify(honest)
    assert not outcome
    assert "lower bound" in str(outcome)


@pytest.mark.parametrize(
    "policy",
    [
        np.full((4, 2), 0.6),
        np.full((4, 2), 0.5 + 1e-6),
        np.tile([1.5, -0.5], (4, 1)),
        np.full((3, 2), 0.5),
        np.full((4, 2), np.nan),
        np.zeros((4, 2)),
    ],
    ids=["above one", "a little above", "negative", "shape", "nan", "zero"],
)
def test_a_policy_that_is_none(honest, verify, policy):
    honest["evidence"]["policy"] = encode(policy)
    assert not verify(honest)


def test_a_policy_with_masked_actions(verify):
    mdp = random_model(generator(9), n_states=4, n_actions=2, mask=True)
    assert not mdp.actions.all()
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    document = json.loads(cm.certify(problem, cm.uniform_policy(mdp)).to_json())
    document["evidence"]["policy"] = encode(np.full((4, 2), 0.5))
    assert "not available" in str(verify(document, problem))


def test_without_a_policy_nothing_is_reached(honest, verify):
    honest["evidence"]["policy"] = None
    assert not verify(honest)
    honest["claims"]["lower"] = "-inf"
    assert "slack is claimed without a policy" in str(verify(honest))
    honest["claims"]["slack"] = {}
    assert verify(honest)


def test_without_a_proof_nothing_is_bounded(honest, verify):
    honest["evidence"]["proof"] = {}
    assert not verify(honest)


def arrays(tree, path=()):
    """The paths of all encoded arrays of a proof."""
    if isinstance(tree, dict) and set(tree) == {"shape", "float64"}:
        yield path
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from arrays(value, (*path, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from arrays(value, (*path, index))


def forged(document, path, change):
    """A copy of the document with one array of its proof changed."""
    other = copy.deepcopy(document)
    holder = other["evidence"]["proof"]
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = encode(change(decode(holder[path[-1]])))
    return other


CHANGES = {
    "noise": lambda array: array + 0.1 * generator(1).normal(size=array.shape),
    "zero": lambda array: 0.0 * array,
    "minus": lambda array: -array,
    "huge": lambda array: np.full(array.shape, 1.7e308),
    "minus huge": lambda array: np.full(array.shape, -1.7e308),
    "tiny": lambda array: 1e-310 * array,
    "nan": lambda array: np.full(array.shape, np.nan),
    "infinite": lambda array: np.full(array.shape, np.inf),
    "shape": lambda array: np.append(array.ravel(), 1.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_number_of_the_evidence_can_be_changed_for_a_better_bound(honest, verify, change):
    """Whatever is changed, the claimed bound never gets below what the honest solver reached."""
    paths = list(arrays(honest["evidence"]["proof"]))
    assert len(paths) >= 4
    reached = honest["claims"]["lower"]
    for path in paths:
        document = forged(honest, path, CHANGES[change])
        outcome = verify(document)
        assert not outcome.upper < reached
        if change in ("nan", "infinite", "shape"):
            assert not outcome


def test_changed_values_do_not_prove_the_claim(honest, verify):
    outcome = verify(forged(honest, ("values",), lambda array: array - 1e-3 * np.arange(4)))
    assert not outcome
    assert "upper bound" in str(outcome)


def test_damage_is_noticed_before_anything_else(honest, problem, tmp_path):
    honest["evidence"]["policy"]["float64"] = "A" + honest["evidence"]["policy"]["float64"][1:]
    honest["evidence"]["proof"]["values"] = encode(np.zeros(4))
    (tmp_path / "damaged.json").write_text(json.dumps(honest))
    assert "checksum" in str(cm.check(tmp_path / "damaged.json", problem))


# Another problem.


def other_problems(problem):
    mdp = problem.mdp
    moved = mdp.transition.copy()
    moved.data = moved.data * (1 - 1e-3)
    arguments = {"maximize": problem.utility, "subject_to": dict(problem.constraints)}
    renamed = {f"{name}!": constraint for name, constraint in problem.constraints.items()}
    fewer = {"cost": problem.constraints["cost"], "near": problem.constraints["near"]}
    return {
        "budget": problem.with_budget("cost", problem.budgets["cost"] - 1e-9),
        "model": cm.Problem(mdp.replace(transition=moved), **arguments),
        "discount": cm.Problem(mdp.replace(discount=mdp.discount - 1e-9), **arguments),
        "signal": cm.Problem(
            mdp.with_signals(reward=mdp.signal("reward") * (1 - 1e-9)), **arguments
        ),
        "objective": cm.Problem(mdp, maximize=cm.entropy(), subject_to=dict(problem.constraints)),
        "names": cm.Problem(mdp, maximize=problem.utility, subject_to=renamed),
        "fewer constraints": cm.Problem(mdp, maximize=problem.utility, subject_to=fewer),
        "initial": cm.Problem(mdp.replace(initial=np.array([0.1, 0.2, 0.3, 0.4])), **arguments),
    }


OTHERS = (
    "budget", "model", "discount", "signal", "objective", "names", "fewer constraints", "initial"
)  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_another_problem_is_noticed(honest, verify, problem, other):
    outcome = verify(honest, other_problems(problem)[other])
    assert not outcome
    assert "another problem" in str(outcome)


@pytest.mark.parametrize("other", OTHERS)
def test_another_problem_is_noticed_even_with_its_fingerprint(honest, verify, problem, other):
    """The fingerprint only helps the message: the mathematics alone refuses as well."""
    wrong = other_problems(problem)[other]
    ours = json.loads(cm.certify(wrong, cm.uniform_policy(wrong.mdp)).to_json())
    honest["problem"] = ours["problem"]
    honest["claims"]["statement"] = ours["claims"]["statement"]
    outcome = verify(honest, wrong)
    assert not outcome.upper < cm.solve(wrong).objective - 1e-9
    if other != "fewer constraints":
        assert not outcome


def test_maximising_is_not_minimising(honest, verify):
    honest["claims"]["sense"] = "minimize"
    assert not verify(honest)


def test_the_statement_is_that_of_the_problem(honest, verify):
    honest["claims"]["statement"] = honest["claims"]["statement"].replace("0.6", "0.5")
    assert "in words" in str(verify(honest))


# Infeasibility.


@pytest.fixture(scope="module")
def impossible():
    problem = make_problem()
    return problem.with_budget("cost", 0.0)


@pytest.fixture
def infeasible(impossible):
    found = cm.certify(impossible, cm.uniform_policy(impossible.mdp))
    assert found.infeasible
    return json.loads(found.to_json())


def test_a_proof_of_infeasibility_is_accepted(infeasible, impossible, verify):
    assert verify(infeasible, impossible)
    infeasible["claims"]["slack_bound"] -= 1e-9
    assert not verify(infeasible, impossible)


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_an_infeasible_problem_has_no_bounds(sense, impossible, verify):
    problem = cm.Problem(
        impossible.mdp, **{sense: cm.linear("cost")}, subject_to=impossible.constraints
    )
    found = cm.certify(problem, cm.uniform_policy(problem.mdp))
    assert found.infeasible
    assert math.isnan(found.upper)
    assert math.isnan(found.lower)
    assert "inf" not in str(found)
    document = json.loads(found.to_json())
    outcome = verify(document, problem)
    assert outcome
    assert math.isnan(outcome.upper)
    assert math.isnan(outcome.lower)
    for name in ("upper", "lower"):
        for wrong in (0.0, -1.0, "many", None):
            changed = copy.deepcopy(document)
            changed["claims"][name] = wrong
            assert not verify(changed, problem)


def test_infeasibility_is_not_believed(honest, infeasible, problem, verify):
    infeasible["problem"] = honest["problem"]
    infeasible["claims"]["statement"] = honest["claims"]["statement"]
    outcome = verify(infeasible, problem)
    assert not outcome
    assert "not proven" in str(outcome)


def test_infeasibility_of_a_feasible_problem_cannot_be_forged(honest, infeasible, problem, verify):
    infeasible["problem"] = honest["problem"]
    infeasible["claims"]["statement"] = honest["claims"]["statement"]
    infeasible["claims"]["slack_bound"] = -1e-12
    for path in arrays(infeasible["evidence"]["proof"]):
        for change in CHANGES.values():
            assert not verify(forged(infeasible, path, change), problem)


def test_a_bare_claim_of_infeasibility(honest, verify):
    honest["claims"]["infeasible"] = True
    honest["claims"]["slack_bound"] = -1.0
    assert not verify(honest)


def test_a_problem_without_constraints_is_not_infeasible(verify, problem):
    free = cm.Problem(problem.mdp, maximize=cm.linear("reward"))
    document = json.loads(cm.certify(free, cm.uniform_policy(free.mdp)).to_json())
    document["claims"]["infeasible"] = True
    assert "no constraints" in str(verify(document, free))


def test_the_conflict_names_what_the_proof_uses(infeasible, impossible, verify):
    assert infeasible["claims"]["conflict"]
    for wrong in ([], ["near"], ["nobody"], None):
        document = copy.deepcopy(infeasible)
        document["claims"]["conflict"] = wrong
        assert not verify(document, impossible)


# Promises.


def test_a_promise_cannot_be_hidden(problem, verify):
    promised = cm.Problem(problem.mdp, maximize=coverage)
    found = cm.certify(promised, cm.uniform_policy(promised.mdp))
    document = json.loads(found.to_json())
    outcome = verify(document, promised)
    assert outcome
    assert "coverage" in str(outcome)
    assert outcome.assumes == found.assumes
    for hidden in ([], None, "none", ["something else"]):
        document["claims"]["assumes"] = hidden
        assert not verify(document, promised)


# Files that are no certificates.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"cvxmdp certificate 2"',
        "{}",
        '{"format": "cvxmdp certificate 2"}',
        '{"format": "cvxmdp certificate 2", "claims": [], "evidence": {}}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=range(12),
)
def test_other_files_are_rejected(text, problem, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(text, encoding="latin-1")
    assert not cm.check(path, problem)


@pytest.mark.parametrize("length", [10, 100, 1000, -1])
def test_truncated_files_are_rejected(certificate, problem, tmp_path, length):
    path = tmp_path / "file.json"
    path.write_text(certificate.to_json()[:length])
    assert not cm.check(path, problem)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
@pytest.mark.parametrize("name", ["upper", "lower"])
def test_literals_that_are_no_numbers(certificate, problem, tmp_path, literal, name):
    document = json.loads(certificate.to_json())
    document["claims"][name] = "HERE"
    text = json.dumps(document).replace('"HERE"', literal)
    path = tmp_path / "file.json"
    path.write_text(text)
    if name == "upper" and literal == "1e999":  # an infinite upper bound is true
        assert cm.check(path, problem)
    else:
        assert not cm.check(path, problem)


def test_a_name_that_occurs_twice(certificate, problem, tmp_path):
    text = certificate.to_json().replace('"claims": {', '"claims": {"upper": 0.0,', 1)
    (tmp_path / "file.json").write_text(text)
    assert "twice" in str(cm.check(tmp_path / "file.json", problem))


@pytest.mark.parametrize("depth", [100, 900, 5000])
def test_deep_evidence(honest, problem, tmp_path, depth):
    text = json.dumps(honest)
    deep = '{"parts": [' * depth + "0" + "]}" * depth
    text = text.replace('"proof": {', f'"proof": {{"deep": {deep}, ', 1)
    (tmp_path / "file.json").write_text(text)
    assert not cm.check(tmp_path / "file.json", problem)


@pytest.mark.parametrize(
    "path",
    [
        ("format",),
        ("problem",),
        ("claims",),
        ("evidence",),
        ("claims", "upper"),
        ("claims", "lower"),
        ("claims", "infeasible"),
        ("claims", "sense"),
        ("claims", "multipliers"),
        ("claims", "slack"),
        ("claims", "assumes"),
        ("evidence", "proof", "objective"),
        ("evidence", "proof", "slacks"),
        ("evidence", "proof", "values"),
        ("evidence", "policy", "shape"),
        ("evidence", "policy", "float64"),
    ],
    ids="/".join,
)
@pytest.mark.parametrize(
    "value", ["missing", None, 5, "text", [], [1], {}, {"shape": [-1]}], ids=str
)
def test_wrong_types_and_missing_keys(honest, problem, tmp_path, path, value):
    holder = honest
    for step in path[:-1]:
        holder = holder[step]
    if value == "missing":
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    if "evidence" in honest:
        honest["evidence_sha256"] = evidence_digest(honest["evidence"])
    file = tmp_path / "file.json"
    file.write_text(json.dumps(honest))
    outcome = cm.check(file, problem)
    true = path[-1] == "upper" and value == 5
    assert bool(outcome) == true


@pytest.mark.parametrize(
    "shape", [[2**40, 2**40], [10**30], [8.5], [-4, -2], ["4", "2"], [[4], [2]]]
)
def test_shapes_that_do_not_fit(honest, verify, shape):
    honest["evidence"]["policy"]["shape"] = shape
    outcome = verify(honest)
    assert not outcome or shape == ["4", "2"]


# Claims that nobody would compute are refused, what is no claim is named.


def test_notes_are_named_as_not_checked(honest, verify):
    honest["notes"]["gap"] = 0.0
    outcome = verify(honest)
    assert outcome
    assert "gap" in outcome.unchecked
    assert "Notes that no proof rests on, not checked: flow_cost, " in str(outcome)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slack_bound", -5.0),
        ("conflict", ["cost"]),
        ("gap", 0.0),
        ("uniform", 1e12),
        ("uniform", "nan"),
        ("uniform", "-inf"),
        ("least_size", 1e-9),  # zero is not between the bounds
        ("upper", "nan"),
        ("lower", "nan"),
        ("slack", {"cost": "nan", "near": 0.0, "fair": 0.0}),
        ("multipliers", {}),
    ],
)
def test_claims_that_do_not_follow(honest, verify, name, value):
    honest["claims"][name] = value
    assert not verify(honest)


@pytest.mark.parametrize("size", [1e12, "inf", "nan", [], None])
def test_a_least_size_is_what_the_objective_changes_by(verify, size):
    mdp = cm.garnet(4, 2, 2, discount=0.9, seed=0)
    problem = cm.Problem(mdp, minimize=cm.distance(cm.uniform_policy(mdp)))
    document = json.loads(cm.certify(problem, cm.uniform_policy(mdp)).to_json())
    assert verify(document, problem)
    document["claims"]["least_size"] = size
    assert not verify(document, problem)


@pytest.mark.parametrize("missing", ["uniform", "slack", "multipliers", "upper", "statement"])
def test_claims_that_are_missing(honest, verify, missing):
    del honest["claims"][missing]
    assert not verify(honest)


def test_multipliers_need_a_proof_that_uses_them(honest, verify):
    honest["evidence"]["proof"] = {}
    honest["claims"]["upper"] = "inf"
    assert "without a proof" in str(verify(honest))
    honest["claims"]["multipliers"] = {}
    assert verify(honest)


@pytest.mark.parametrize(
    ("name", "value"),
    [("slack", {"cost": 1.0}), ("multipliers", {"cost": 1.0}), ("upper", 1.0), ("uniform", 0.0)],
)
def test_an_infeasible_problem_has_nothing_else(infeasible, impossible, verify, name, value):
    infeasible["claims"][name] = value
    assert "does not go with" in str(verify(infeasible, impossible))


def test_an_infeasible_problem_has_no_policy(infeasible, impossible, verify):
    infeasible["evidence"]["policy"] = encode(cm.uniform_policy(impossible.mdp).probabilities())
    assert "no policy" in str(verify(infeasible, impossible))


def test_a_conflict_names_no_bystanders(infeasible, impossible, verify):
    infeasible["claims"]["conflict"] = list(impossible.constraints)
    assert "does not use" in str(verify(infeasible, impossible))


def test_what_an_estimated_model_is_is_a_promise(problem, verify):
    estimated = cm.Problem(
        problem.mdp.replace(note="model estimated from 12 transitions"), maximize=problem.utility
    )
    found = cm.certify(estimated, cm.uniform_policy(estimated.mdp))
    document = json.loads(found.to_json())
    assert verify(document, estimated)
    assert "speaks of the model estimated" in str(found)
    document["claims"]["assumes"] = []
    assert "hides a promise" in str(verify(document, estimated))


@cm.convex(lipschitz=3.0)
def declared(occupancy):
    return jnp.sqrt((occupancy**2).sum() + 1.0)


def test_a_declared_constant_is_a_promise(problem, verify):
    promised = cm.Problem(problem.mdp, minimize=declared)
    found = cm.certify(promised, cm.uniform_policy(promised.mdp))
    document = json.loads(found.to_json())
    assert any("Lipschitz constant" in promise for promise in found.assumes)
    document["claims"]["assumes"] = document["claims"]["assumes"][:1]
    assert "hides a promise" in str(verify(document, promised))


def test_certificates_of_the_first_version_are_refused_with_what_to_do(honest, verify):
    honest["format"] = "cvxmdp certificate 1"
    assert "Certify the problem again" in str(verify(honest))
    with pytest.raises(cm.FileFormatError, match="certify the problem again"):
        cm.Certificate.from_json(json.dumps(honest))


def test_subnormal_numbers_are_allowed_for():
    signal = np.full((2, 2), 5e-324)
    mdp = cm.TabularMDP(np.full((2, 2, 2), 0.5), [0.5, 0.5], 0.9, signals={"reward": signal})
    problem = cm.Problem(mdp, maximize=cm.log_sum("reward"))
    assert cm.certify(problem, cm.uniform_policy(mdp)).lower == -math.inf


# A problem that is none.


def plain_problem(**changes):
    plain = Lowered(make_problem()).plain()
    return {**plain, **changes}


def test_a_problem_that_is_not_concave_is_refused():
    plain = plain_problem()
    bent = {
        "kind": "sum",
        "weights": np.array([-1.0]),
        "offset": 0.0,
        "parts": [plain["objective"]],
    }
    with pytest.raises(CertificateError, match="not concave"):
        PlainProblem({**plain, "objective": bent})
    both = [plain["objective"], plain["objective"]]
    mixed = {"kind": "sum", "weights": np.array([-1.0, 1.0]), "offset": 0.0, "parts": both}
    with pytest.raises(CertificateError, match="neither concave nor convex"):
        PlainProblem({**plain, "objective": mixed})
    for kind in ("log", "minimum"):
        with pytest.raises(CertificateError, match="not concave"):
            PlainProblem({**plain, "objective": {"kind": kind, "parts": [bent]}})


@pytest.mark.parametrize(
    "changes",
    [
        {"discount": 1.1},
        {"discount": -0.1},
        {"discount": math.nan},
        {"initial": np.array([1.5, -0.5, 0.0, 0.0])},
        {"initial": np.ones(3)},
        {"actions": np.zeros((4, 2), dtype=bool)},
        {"actions": np.ones((2, 4), dtype=bool)},
        {"sense": "both"},
        {"objective": None},
        {"objective": {"kind": "surprise"}},
        {"objective": {"kind": "linear", "reward": np.full((4, 2), np.inf)}},
        {"slacks": {"cost": {"kind": "entropy", "map": sp.csr_array(-np.eye(8))}}},
        {"slacks": {"cost": {"kind": "entropy", "map": sp.csr_array(np.eye(7))}}},
    ],
)
def test_malformed_problems_are_refused(changes):
    with pytest.raises(CertificateError):
        PlainProblem(plain_problem(**changes))


# Powers, and divergences with two moving sides, have closed forms of their own.


def change_of_decisions(scale):
    """p = scale x(s,a) and q = scale pi_0(a|s) sum_b x(s,b), for the uniform pi_0 of two actions."""
    own = sp.csr_array(scale * sp.eye_array(8))
    base = sp.csr_array(0.5 * scale * np.kron(np.eye(4), np.ones((2, 2))))
    zero = np.zeros(8)
    return {
        "kind": "relative_entropy",
        "map": own,
        "offset": zero,
        "base_map": base,
        "base_offset": zero,
    }


def root_of(part):
    return {"kind": "power", "exponent": 0.5, "parts": [part]}


@pytest.mark.parametrize("seed", range(20))
def test_a_divergence_of_two_moving_sides(seed):
    random = generator(seed)
    minus = {"kind": "sum", "weights": np.array([-1.0]), "offset": 0.0}
    plain = plain_problem(objective={**minus, "parts": [change_of_decisions(0.15)]})
    form = PlainProblem(plain).objective
    x, y = (random.gamma(0.3, size=(4, 2)) for _ in range(2))
    x[0] *= 1e-9  # a state that is hardly visited

    def truth(z):
        p, q = z, 0.5 * z.sum(axis=1, keepdims=True)
        return -0.15 * float((p * np.log(p / q) - p + q).sum())

    assert form.value(x) == pytest.approx(truth(x), rel=1e-12)
    tangent = form.tangent({"parts": [{"log_ratio": random.normal(size=8)}]})
    assert truth(y) <= float((tangent.reward * y).sum()) + tangent.constant + 1e-12
    moved = np.maximum(x + 10.0 ** random.uniform(-14, -2) * random.normal(size=x.shape), 1e-300)
    error = ErrorBound(float(np.abs(moved - x).sum()), np.ones((4, 2), dtype=bool))
    assert abs(truth(moved) - form.value(x)) <= form.drift(x, error) + 1e-15


@pytest.mark.parametrize("seed", range(10))
def test_a_power(seed):
    random = generator(seed)
    reward = random.random((4, 2))
    form = PlainProblem(
        plain_problem(objective=root_of({"kind": "linear", "reward": reward}))
    ).objective
    x, y = random.gamma(0.3, size=(4, 2)), random.gamma(0.3, size=(4, 2))
    assert form.value(x) == pytest.approx(math.sqrt(float((reward * x).sum())), rel=1e-14)
    t = 10.0 ** random.uniform(-6, 3)
    tangent = form.tangent({"t": t, "parts": [{}]})
    assert form.value(y) <= float((tangent.reward * y).sum()) + tangent.constant + 1e-12
    assert form.value(-x) == -math.inf
    moved = x * (1 + 1e-6 * random.normal(size=x.shape))
    error = ErrorBound(float(np.abs(moved - x).sum()), np.ones((4, 2), dtype=bool))
    assert abs(form.value(moved) - form.value(x)) <= form.drift(x, error)


# Independence.


CHECK_ALONE = """
import sys

ALLOWED = ("numpy", "scipy", "cvxmdp")

class Block:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in ALLOWED or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Block())
try:
    import jax
except ImportError:
    pass
else:
    raise SystemExit("the block does not work")
from cvxmdp.checker.__main__ import main
code = main(sys.argv[1:])
own = sorted(name for name in sys.modules if name.startswith("cvxmdp"))
print("own modules:", *own)
sys.exit(code)
"""


def run_alone(certificate, folder):
    return subprocess.run(
        [sys.executable, "-c", CHECK_ALONE, str(certificate), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_checker_runs_where_nothing_else_is_installed(problem, certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    problem.save(tmp_path / "problem")
    finished = run_alone(tmp_path / "certificate.json", tmp_path / "problem")
    assert finished.returncode == 0, finished.stderr
    assert (
        "Accepted: every claim follows from the problem (floating point with error terms)."
        in finished.stdout
    )
    assert f"upper bound {cm.check(tmp_path / 'certificate.json', problem).upper:.17g}" in (
        finished.stdout
    )
    (own,) = [line for line in finished.stdout.splitlines() if line.startswith("own modules:")]
    rooms = {name.split(".")[1] for name in own.split()[2:] if name.count(".") > 0}
    # The front door knows its version and loads nothing else.
    assert rooms == {"checker", "base"}
    assert [name for name in own.split() if name.startswith("cvxmdp.base")] == [
        "cvxmdp.base",
        "cvxmdp.base.version",
    ]


def test_a_colleague_sees_what_is_wrong(problem, certificate, tmp_path):
    document = json.loads(certificate.to_json())
    document["claims"]["upper"] -= 0.1
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    problem.save(tmp_path / "problem")
    finished = run_alone(tmp_path / "certificate.json", tmp_path / "problem")
    assert finished.returncode == 1
    assert "Rejected." in finished.stdout
    assert "upper bound" in finished.stdout


def test_functions_of_ones_own_are_named_as_not_verified(problem, tmp_path):
    promised = cm.Problem(problem.mdp, maximize=coverage)
    cm.certify(promised, cm.uniform_policy(promised.mdp)).save(tmp_path / "certificate.json")
    promised.save(tmp_path / "problem")
    finished = run_alone(tmp_path / "certificate.json", tmp_path / "problem")
    assert finished.returncode == 1
    assert "Not verified." in finished.stdout
    assert "coverage is a function of the user's own" in finished.stdout


def test_the_command_without_its_files(tmp_path):
    assert run_alone(tmp_path / "nothing.json", tmp_path).returncode == 2
    (tmp_path / "certificate.json").write_text("{}")
    finished = run_alone(tmp_path / "certificate.json", tmp_path)
    assert finished.returncode == 2
    assert "problem.json" in finished.stderr


def test_the_page_says_how_long_the_checker_is():
    root = Path(__file__).parents[1]
    files = (root / "src" / "cvxmdp" / "checker").glob("*.py")
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    stated = re.search(r"([\d,]+) lines", (root / "docs" / "checker.md").read_text("utf-8"))
    assert stated is not None
    assert int(stated[1].replace(",", "")) == pytest.approx(lines, rel=0.03)


def test_the_page_of_the_theorem_names_functions_that_exist():
    page = (Path(__file__).parents[1] / "docs" / "certificate-theorem.md").read_text("utf-8")
    room = Path(CertificateError.__module__.replace(".", "/")).parent  # cvxmdp/checker
    files = (Path(cm.__file__).parents[1] / room).glob("[!_]*.py")
    modules = {file.stem: import_module(f"cvxmdp.checker.{file.stem}") for file in files}
    known = {name: one for module in modules.values() for name, one in vars(module).items()}
    named = set(re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)?)`", page)) - {"exp", "log"}
    assert len(named) > 30
    for name in named:
        owner, _, own = name.partition(".")
        if own == "py":
            assert owner in modules, name
        else:
            assert hasattr({**known, **modules}[owner], own) if own else owner in known, name
