"""Storm as a referee: agrees with right answers, disagrees with wrong ones, in rationals and in floats."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError
from strategies import generator, random_model

pytest.importorskip("stormpy")


def problem(seed, endings, budget, sense):
    mdp = random_model(
        generator(seed), n_states=4, n_actions=2, discount=0.75, endings=endings, mask=True
    )
    # The second has rewards of both signs, and an offset.
    wanted = {"maximize": cm.linear("reward"), "minimize": cm.linear("cost") - 2.5}[sense]
    limits = {}
    if budget is not None:
        worst = cm.solve(cm.Problem(mdp, maximize=cm.linear("cost"))).objective
        least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
        limits["cost"] = cm.linear("cost") <= least + budget * (worst - least)
        limits["reward"] = cm.linear("reward", per="step") >= -100.0
    return cm.Problem(mdp, **{sense: wanted}, subject_to=limits)


@pytest.mark.parametrize("endings", [False, True])
@pytest.mark.parametrize("budget", [None, 0.4, -0.1])
@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_right_answers(endings, budget, sense):
    asked = problem(3, endings, budget, sense)
    solution = cm.solve(asked)
    assert solution.has_policy == (budget is None or budget > 0)
    for exact in (True, False):
        checked = cm.cross_check(asked, solution, exact=exact)
        assert checked, str(checked)
        assert checked.exact == exact
        assert checked.difference <= (1e-9 if exact else 1e-6)
        assert "They agree" in str(checked)


def test_wrong_answers():
    asked = problem(5, True, 0.5, "maximize")
    solution = cm.solve(asked)
    wrong = replace(solution, objective=solution.objective * (1 + 1e-4))
    checked = cm.cross_check(asked, wrong)
    assert not checked
    assert "NOT" in str(checked)
    assert checked.difference == pytest.approx(1e-4, rel=1e-2)
    assert cm.cross_check(asked, wrong, tolerance=1e-3)
    tight = cm.Problem(
        asked.mdp, maximize=asked.utility, subject_to={"cost": cm.linear("cost") <= -1e3}
    )
    none = cm.cross_check(tight, solution)  # Storm says that there is no policy
    assert not none
    assert math.isnan(none.storm)


def test_what_a_model_checker_cannot_know():
    mdp = random_model(generator(1), n_states=3, n_actions=2, discount=0.9)
    curved = cm.Problem(mdp, maximize=cm.entropy())
    with pytest.raises(ProblemError, match="linear problems only"):
        cm.cross_check(curved, cm.solve(curved))


def test_first_states_are_drawn_exactly():
    mdp = cm.garnet(5, 2, 2, seed=2).replace(initial=np.array([0.1, 0.2, 0.3, 0.3, 0.1]))
    asked = cm.Problem(mdp, maximize=cm.linear("reward"))
    assert cm.cross_check(asked, cm.solve(asked)).difference <= 1e-12


HORIZONS = {
    "total": {"discount": 1.0},
    "finite": {"horizon": 5},
    "finite and discounted": {"horizon": 5, "discount": 0.8},
    "average": {"average": True},
}


@pytest.mark.parametrize("kind", HORIZONS)
def test_every_horizon(kind):
    made = cm.garnet(4, 2, 2, seed=3, ending=0.3 if kind == "total" else 0.0)
    mdp = cm.TabularMDP(made.transition, made.initial, signals=dict(made.signals), **HORIZONS[kind])
    wanted = cm.linear("reward") - 0.5 * cm.linear("cost")
    free = cm.solve(cm.Problem(mdp, maximize=wanted))
    cost = cm.Problem(mdp, minimize=cm.linear("cost"))
    least, used = cm.solve(cost).objective, cost.evaluate(free.policy).objective
    for limits in ({}, {"cost": cm.linear("cost") <= 0.5 * (least + used)}):
        asked = cm.Problem(mdp, maximize=wanted, subject_to=limits)
        checked = cm.cross_check(asked, cm.solve(asked))
        assert checked, str(checked)
        assert checked.exact == (kind != "average" or not limits)
