"""Chances and CVaR of an episode's cost: by hand, against enumeration, rounded to the safe side, refusals."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from strategies import generator

SUMS = [0, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 19, 21]


def gamble(steps: int) -> cm.TabularMDP:
    """Where a step leads is safe for 2, or for nothing a draw: to a dear state, of cost 5, with chance 0.3."""
    transition = np.zeros((2, 2, 2))
    transition[:, 0] = [0.7, 0.3]
    transition[:, 1] = [1.0, 0.0]
    cost = np.array([[0.0, 2.0], [5.0, 7.0]])
    mdp = cm.TabularMDP(transition, [1.0, 0.0], 0.5, signals={"cost": cost})
    return mdp.unroll(steps).replace(discount=1.0)


def distribution(mdp: cm.TabularMDP, policy: np.ndarray) -> dict[float, float]:
    """Costs of whole episodes and their probabilities, by following all of them."""
    rows = mdp.transition.toarray().reshape(*mdp.actions.shape, -1)
    found: dict[float, float] = {}
    todo = [(s, float(p), 0.0) for s, p in enumerate(mdp.initial) if p > 0]
    while todo:
        state, mass, before = todo.pop()
        for action in np.flatnonzero(policy[state]):
            weight = mass * float(policy[state, action])
            spent = round(before + float(mdp.signal("cost")[state, action]), 9)
            ends = weight * float(mdp.ending[state, action])
            if ends > 0:
                found[spent] = found.get(spent, 0.0) + ends
            row = rows[state, action]
            todo += [(int(t), weight * float(row[t]), spent) for t in np.flatnonzero(row)]
    return found


def cvar_of(costs: dict[float, float], level: float) -> float:
    """The mean of the worst share."""
    left, total = 1.0 - level, 0.0
    for cost in sorted(costs, reverse=True):
        taken = min(left, costs[cost])
        total, left = total + taken * cost, left - taken
    return total / (1.0 - level)


def enumerated(mdp: cm.TabularMDP):
    """The distributions of all deterministic policies."""
    reached = np.flatnonzero(mdp.reachable)
    for chosen in itertools.product(range(2), repeat=reached.size):
        actions = np.zeros(mdp.n_states, dtype=int)
        actions[reached] = chosen
        yield distribution(mdp, np.eye(2)[actions])


@pytest.mark.parametrize("level", [0.0, 0.5, 0.8, 0.95])
def test_the_least_cvar_is_that_of_enumeration(level):
    mdp = gamble(2).with_budget_state("cost", levels=range(15))
    found = cm.least_cvar(mdp, "cost", level)
    best = min(cvar_of(costs, level) for costs in enumerated(mdp))
    assert found.cvar == pytest.approx(best, abs=1e-7)
    assert found.bound == pytest.approx(best, abs=1e-5)
    assert cvar_of(distribution(mdp, found.solution.policy.probabilities()), level) <= best + 1e-7
    assert cm.check(found.certificate, found.solution.problem)


def test_a_chance_constraint_holds_of_whole_episodes():
    mdp = gamble(3).with_budget_state("cost", levels=SUMS)
    limit = {"tail": cm.chance("cost", above=6) <= 0.05}
    solution = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"), subject_to=limit))
    costs = distribution(mdp, solution.policy.probabilities())
    assert sum(p for c, p in costs.items() if c > 6) == pytest.approx(0.05, abs=1e-9)
    assert sum(p * c for c, p in costs.items()) == pytest.approx(solution.objective, rel=1e-9)
    # Without the cost so far in the state no policy is as good.
    blind = [
        sum(c * p for c, p in one.items())
        for one in enumerated(gamble(3))
        if sum(p for c, p in one.items() if c > 6) <= 0.05
    ]
    assert solution.objective < min(blind) - 1e-3


def test_costs_beside_the_grid_are_rounded_to_the_safe_side():
    exact = gamble(2).with_budget_state("cost", levels=range(15))
    coarse = gamble(2).with_budget_state("cost", levels=[0, 3, 6, 9, 12, 15])
    for level in (0.5, 0.9):
        sharp, safe = (cm.least_cvar(one, "cost", level).cvar for one in (exact, coarse))
        assert safe > sharp
    chances = [
        cm.solve(cm.Problem(m, minimize=cm.chance("cost", above=4))) for m in (exact, coarse)
    ]
    assert chances[1].objective >= chances[0].objective - 1e-9


def test_geometric_costs_have_their_closed_form():
    # One unit per step, and the episode ends with probability p after each: P(C > n) = (1 - p)^n.
    p = 0.4
    mdp = cm.TabularMDP(np.full((1, 1, 1), 1 - p), [1.0], 1.0, signals={"cost": [1.0]})
    mdp = mdp.with_budget_state("cost", levels=60)
    for above in (0, 3, 10):
        problem = cm.Problem(mdp, minimize=cm.chance("cost", above=above))
        found = problem.evaluate(cm.uniform_policy(mdp)).objective
        assert found == pytest.approx((1 - p) ** above, rel=1e-9)


def test_what_cannot_be_said_is_refused():
    mdp = gamble(2)
    with pytest.raises(cm.UtilityError, match="with_budget_state"):
        cm.Problem(mdp, minimize=cm.chance("cost", above=3))
    with pytest.raises(cm.UtilityError, match="more than the last level"):
        cm.Problem(mdp.with_budget_state("cost", 4), minimize=cm.cvar("cost", 0.9, 2))
    with pytest.raises(cm.ModelError, match="discount=1"):
        mdp.replace(discount=0.9).with_budget_state("cost", 4)
    with pytest.raises(cm.ModelError, match="increasing"):
        mdp.with_budget_state("cost", [3, 2])
    with pytest.raises(cm.UtilityError, match="less than 1"):
        cm.cvar("cost", 1.0, 2)
    with pytest.raises(cm.ProblemError, match="no budget state"):
        cm.least_cvar(mdp, "cost", 0.9)
    impossible = {"cap": cm.linear("cost") <= -1.0}
    none = cm.least_cvar(mdp.with_budget_state("cost", 20), "cost", 0.9, subject_to=impossible)
    assert "No policy" in str(none)


@pytest.mark.parametrize("seed", range(3))
def test_losses_of_either_sign(seed):
    cost = generator(seed).integers(-2, 4, (2, 2)).astype(float)
    mdp = gamble(2).with_signals(cost=np.tile(cost, (2, 1)))
    mdp = mdp.with_budget_state("cost", levels=range(-4, 8))
    best = min(cvar_of(costs, 0.7) for costs in enumerated(mdp))
    assert cm.least_cvar(mdp, "cost", 0.7).cvar == pytest.approx(best, abs=1e-7)


@pytest.mark.long
def test_ten_thousand_augmented_states(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    mdp = import_module("maintenance_risk").machine().with_budget_state("bill", levels=50)
    assert mdp.n_states > 10_000
    limit = {"bill": cm.chance("bill", above=12) <= 0.05}
    problem = cm.Problem(mdp, maximize=cm.linear("made"), subject_to=limit)
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.relative_gap <= 1e-6
    assert certificate.slack["bill"] >= 0
