"""What is accepted in exact arithmetic is true of the problem as written, with no word about rounding."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import cvxmdp as cm
from command_line import Done
from cvxmdp.certificates.checking import loosened
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.exact_numbers import add_up, at_least, at_most, ball, balls, precisely
from cvxmdp.checker.proof_arithmetic import EXACT, FLOATING, OWN, Exact
from cvxmdp.problems.lowered import Lowered
from strategies import (
    CONCAVE,
    CONVEX,
    coverage,
    exact_inner,
    exact_occupancy,
    generator,
    random_model,
    random_policy,
    random_problem,
)

pytest.importorskip("flint")
KINDS = [*(("maximize", kind) for kind in CONCAVE), *(("minimize", kind) for kind in CONVEX)]


@pytest.mark.parametrize(("sense", "kind"), KINDS)
def test_certificates_of_every_atom_pass_as_they_are(sense, kind):
    """Floats with error terms claim less than is true, so what they claim passes without them."""
    random = generator(3)
    mdp = random_model(random, mask=True)
    utility = (CONCAVE if sense == "maximize" else CONVEX)[kind](mdp, random)
    problem = cm.Problem(mdp, **{sense: utility})
    certificate = cm.certify(problem, random_policy(mdp, random))
    found = cm.check(certificate, problem, exact=True)
    assert found, found.reasons
    assert (found.level, cm.check(certificate, problem).level) == (EXACT, FLOATING)
    scale = 1e-9 * (1 + abs(certificate.upper) + abs(certificate.lower))
    assert certificate.lower <= found.lower <= certificate.lower + scale
    assert certificate.upper - scale <= found.upper <= certificate.upper


@pytest.mark.parametrize("seed", range(12))
def test_random_problems_with_constraints(seed):
    random = generator(100 + seed)
    mdp = random_model(random)
    problem = random_problem(mdp, random, random_policy(mdp, random))
    certificate = cm.certify(problem, cm.solve(problem))
    found = cm.check(certificate, problem, exact=True)
    assert found or found.unverified, found.reasons


@pytest.mark.parametrize("discount", [1.0, 1 - 1e-10, 0.999999])
def test_discounts_of_one_and_near_it(discount):
    """Episodes surely end: every row does with a tenth."""
    base = cm.garnet(8, 3, 3, discount=0.9, seed=2)
    mdp = cm.TabularMDP(
        0.9 * base.dense_transition(), base.initial, discount, signals=dict(base.signals)
    )
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 4.5}
    )
    certificate = cm.certify(problem, cm.solve(problem))
    found = cm.check(certificate, problem, exact=True)
    assert found, found.reasons
    assert found.upper - found.lower <= 1e-9 * abs(found.upper)


def average_model(random, two_classes=False):
    """The third state is passed through; with two classes, the policy may settle in either of the others."""
    rows = np.array(
        [
            [[0.5, 0.5, 0], [0.25, 0.75, 0]],
            [[0.125, 0.875, 0], [0.5, 0.5, 0]],
            [[0.25, 0.5, 0.25], [0.5, 0.125, 0.375]],
        ]
    )
    if two_classes:
        rows[0, 0], rows[1, 0] = [1, 0, 0], [0, 1, 0]
    signals = {name: random.normal(size=(3, 2)) for name in ("reward", "cost")}
    return cm.TabularMDP(rows, initial=[0.25, 0.25, 0.5], average=True, signals=signals)


@pytest.mark.parametrize("kind", ["linear", "entropy", "distance"])
@pytest.mark.parametrize("horizon", ["finite", "average"])
def test_other_horizons(horizon, kind):
    random = generator(8)
    mdp = average_model(random)
    if horizon == "finite":
        rows = mdp.dense_transition() * np.array([1, 0.9, 0.5])[:, None, None]
        mdp = cm.TabularMDP(rows, mdp.initial, 0.9, horizon=4, signals=dict(mdp.signals))
    uniform = cm.uniform_policy(mdp)
    utility = {
        "linear": cm.linear("reward"),
        "entropy": cm.entropy(),
        "distance": -cm.distance(uniform, norm="l2"),
    }[kind]
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(uniform).objective
    budget = {"cost": cm.linear("cost") <= used - 0.01}
    problem = cm.Problem(mdp, maximize=utility, subject_to=budget)
    certificate = cm.certify(problem, cm.solve(problem))
    found = cm.check(certificate, problem, exact=True)
    assert found, found.reasons
    assert certificate.lower <= found.lower <= found.upper <= certificate.upper
    assert found.upper - found.lower <= 1e-5
    for name, change in (("upper", -1e-3), ("lower", 1e-3)):
        forged = replace(certificate, **{name: getattr(certificate, name) + change})
        assert not cm.check(forged, problem, exact=True)


def test_occupancies_of_finite_and_average_horizons_are_exact():
    """Against fractions: steps one by one, and shares of time of two classes with their chances."""
    random = generator(9)
    policy = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    average = average_model(random, two_classes=True)
    finite = cm.TabularMDP(
        average.dense_transition(), average.initial, 0.75, horizon=3, signals=dict(average.signals)
    )
    table = [
        [[Fraction(float(p)) for p in row] for row in rows] for rows in average.dense_transition()
    ]
    chosen = [[Fraction(float(p)) for p in row] for row in policy]
    visits, steps = [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)], []
    for _ in range(3):
        steps.append([[v * p for p in row] for v, row in zip(visits, chosen, strict=True)])
        pairs = [(s, a) for s in range(3) for a in range(2)]
        visits = [
            Fraction(3, 4) * sum(steps[-1][s][a] * table[s][a][t] for s, a in pairs)
            for t in range(3)
        ]
    # From the third state one moves to the first with 3/8, to the second with 5/16, and stays with 5/16.
    chances = [Fraction(1, 4) + Fraction(1, 2) * Fraction(n, 11) for n in (6, 5)]
    settled = [[chances[0], Fraction(0)], [chances[1], Fraction(0)], [Fraction(0), Fraction(0)]]
    for mdp, truth in ((average, settled), (finite, [row for step in steps for row in step])):
        plain = Lowered(cm.Problem(mdp, maximize=cm.linear("reward"))).plain()
        flat = [number for row in truth for number in row]
        with precisely():
            found = Exact(plain).visited(PlainProblem(plain), policy).x.ravel()
            for one, number in zip(found, flat, strict=True):
                assert Fraction(at_least(one)) <= number <= Fraction(at_most(one))


def test_infeasible_problems():
    mdp = cm.garnet(6, 3, 3, discount=0.9, seed=1)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 0.99 * least}
    )
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.infeasible
    assert cm.check(certificate, problem, exact=True)
    forged = replace(certificate, slack_bound=2 * certificate.slack_bound)
    assert not cm.check(forged, problem, exact=True)


def test_a_claim_that_rounding_hides_is_refused():
    """One unit in the last place beyond what is true, which error terms of floats could never resolve."""
    mdp = cm.TabularMDP(np.ones((1, 1, 1)), initial=[1.0], discount=0.75, signals={"r": [[0.1]]})
    problem = cm.Problem(mdp, maximize=cm.linear("r"))
    certificate = cm.certify(problem, np.ones((1, 1)))
    truth = 4 * Fraction(0.1)
    best = float(truth)
    assert Fraction(best) == truth
    exact = replace(certificate, upper=best, lower=best)
    assert cm.check(exact, problem, exact=True)
    for name, beyond in (("upper", -math.inf), ("lower", math.inf)):
        assert not cm.check(
            replace(exact, **{name: math.nextafter(best, beyond)}), problem, exact=True
        )


def test_occupancies_hold_the_exact_one():
    """Against Gaussian elimination in fractions, where rows sum to one as they are."""
    random = generator(5)
    rows = random.multinomial(64, np.full(4, 0.25), size=(4, 2)) / 64
    reward = random.normal(size=(4, 2))
    mdp = cm.TabularMDP(rows, initial=[1.0, 0, 0, 0], discount=0.9, signals={"reward": reward})
    policy = random.random((4, 2))
    policy /= policy.sum(axis=1, keepdims=True)
    plain = Lowered(cm.Problem(mdp, maximize=cm.linear("reward"))).plain()
    truth = exact_inner(reward, exact_occupancy(mdp, policy))
    with precisely():
        found = Exact(plain).visited(PlainProblem(plain), policy).x
        value = add_up((balls(reward) * found).ravel())
        assert float(value.rad()) < 1e-35
        assert Fraction(at_least(value)) <= truth <= Fraction(at_most(value))


def test_rounding_is_to_the_safe_side():
    with precisely():
        third = ball(1.0) / 3
        assert Fraction(at_least(third)) <= Fraction(1, 3) <= Fraction(at_most(third))
        assert math.nextafter(at_least(third), 1.0) == at_most(third)
        assert at_least(ball(0.1)) == at_most(ball(0.1)) == 0.1
        assert at_least(ball(0.0, math.inf)) == -math.inf


def test_from_the_command_line(tmp_path):
    problem = cm.Problem(cm.gridworld(3, discount=0.9), maximize=cm.entropy())
    problem.save(tmp_path / "problem")
    cm.certify(problem, cm.solve(problem)).save(tmp_path / "certificate.json")
    command = [sys.executable, "-m", "cvxmdp.checker", "--exact"]
    done = subprocess.run(
        [*command, tmp_path / "certificate.json", tmp_path / "problem"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"Accepted: every claim follows from the problem ({EXACT})." in done.stdout


def test_functions_of_the_users_own_are_computed_in_floats_and_said_so():
    random = generator(4)
    mdp = random_model(random)
    problem = cm.Problem(mdp, maximize=coverage + cm.linear("reward"))
    certificate = cm.certify(problem, cm.solve(problem, cm.ColumnGeneration(1e-3)), exact=True)
    found = cm.check(certificate, problem, exact=True)
    assert found, found.reasons
    assert found.level == certificate.level == EXACT + OWN
    assert "Checked in exact arithmetic, but for functions of the user's own." in str(certificate)
    assert "coverage has the curvature it was declared with" in str(found)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_certified_exactly_passes_exactly(seed):
    """Also where floats are made to claim more than is true: claims are loosened to what is shown."""
    random = generator(200 + seed)
    mdp = random_model(random)
    problem = random_problem(mdp, random, random_policy(mdp, random))
    certificate = cm.certify(problem, cm.solve(problem), exact=True)
    assert certificate.level == EXACT
    assert "Checked in exact arithmetic." in str(certificate)
    size = 1e-3 * (1 + abs(certificate.upper))
    bold = replace(certificate, upper=certificate.upper - size, level=FLOATING)
    if certificate.sense == "maximize":
        assert not cm.check(bold, problem, exact=True)
        sober = loosened(bold, problem)
        assert sober.level == EXACT
        assert bold.upper < sober.upper <= certificate.upper
        assert cm.check(sober, problem, exact=True)


def test_the_level_is_kept_in_files_and_nobody_believes_it(tmp_path):
    problem = cm.Problem(cm.gridworld(2, discount=0.9), maximize=cm.entropy())
    certificate = cm.certify(problem, cm.solve(problem), exact=True)
    assert cm.Certificate.from_json(certificate.to_json()).level == EXACT
    forged = replace(certificate, upper=certificate.upper - 1e-3)
    assert not cm.check(forged, problem)
    old = json.loads(certificate.to_json())
    del old["notes"]["level"]
    assert cm.Certificate.from_json(json.dumps(old)).level == FLOATING


def test_what_would_take_too_long_is_not_begun_and_asks_for_a_limit():
    problem = cm.Problem(cm.gridworld(3, discount=0.9), maximize=cm.entropy())
    certificate = cm.certify(problem, cm.solve(problem))
    found = cm.check(certificate, problem, exact=True, time_limit=1e-9)
    assert not found
    assert not found.reasons
    assert "would take about" in str(found)
    assert "give a longer one" in str(found)
    for wrong in (0, math.nan, "soon"):
        with pytest.raises(cm.ProblemError, match="time_limit"):
            cm.check(certificate, problem, exact=True, time_limit=wrong)


def test_exact_checks_say_where_they_are(capfd):
    problem = cm.Problem(cm.gridworld(3, discount=0.9), maximize=cm.entropy())
    certificate = cm.certify(problem, cm.solve(problem))
    cm.check(certificate, problem, exact=True, progress=True)
    assert "exact arithmetic [" in capfd.readouterr().err


def test_certify_and_check_exactly_from_the_command_line(tmp_path):
    (tmp_path / "problem.toml").write_text(
        'maximize = "entropy()"\n[model]\nkind = "gridworld"\nsize = 2\ndiscount = 0.9\n'
    )
    mdp = cm.gridworld(2, discount=0.9)
    cm.uniform_policy(mdp).save(tmp_path / "policy.csv")
    file = tmp_path / "certificate.json"
    done = Done(
        "certify", tmp_path / "problem.toml", tmp_path / "policy.csv", "-o", file, "--exact"
    )
    assert "Checked in exact arithmetic." in done.out
    words = ("check", file, tmp_path / "problem.toml", "--exact")
    assert Done(*words).code == 0
    late = Done(*words, "--limit", "1e-9")
    assert late.code != 0
    assert "would take about" in late.out


@pytest.mark.parametrize("horizon", [{"discount": 0.9}, {"horizon": 3}, {"average": True}])
@pytest.mark.parametrize("reward", [0.0, 1e300, 1e-300, -5e-324])
def test_one_state_and_extreme_rewards(reward, horizon):
    mdp = cm.TabularMDP(np.ones((1, 1, 1)), [1.0], signals={"r": [[reward]]}, **horizon)
    problem = cm.Problem(mdp, maximize=cm.linear("r"))
    certificate = cm.certify(problem, cm.solve(problem), exact=True)
    assert certificate.level == EXACT
    assert type(certificate.lower) is type(certificate.upper) is float


def test_a_missing_library_is_named(monkeypatch):
    problem = cm.Problem(cm.gridworld(2, discount=0.9), maximize=cm.entropy())
    certificate = cm.certify(problem, cm.solve(problem))
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match=r"cvxmdp\[exact\]"):
        cm.check(certificate, problem, exact=True)


@pytest.mark.long
@pytest.mark.parametrize(("n_states", "curved"), [(1_000, True), (10_000, False)])
def test_large_certificates(n_states, curved):
    mdp = cm.garnet(n_states, 4, 5, discount=0.95, seed=1)
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy() if curved else cm.linear("reward"),
        subject_to={"cost": cm.linear("cost", per="step") <= 0.45},
    )
    solver = cm.ColumnGeneration(tolerance=1e-4 if curved else 1e-6)
    assert cm.check(cm.certify(problem, cm.solve(problem, solver)), problem, exact=True)
