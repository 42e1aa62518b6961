"""What is accepted in exact arithmetic is true of the problem as written, with no word about rounding."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.checker.exact_numbers import add_up, at_least, at_most, ball, balls, precisely
from cvxmdp.checker.proof_arithmetic import EXACT, FLOATING, Exact
from cvxmdp.problems.lowered import Lowered
from strategies import (
    CONCAVE,
    CONVEX,
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
    if certificate.assumes:
        assert "function of the user's own" in str(found)
        return
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
    found = Exact(plain).visited(PlainProblem(plain), policy).x
    truth = exact_inner(reward, exact_occupancy(mdp, policy))
    with precisely():
        value = add_up(balls(reward.ravel()) * found)
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
