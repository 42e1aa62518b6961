"""Chances and CVaR of an episode's cost: by hand, against enumeration, rounded to the safe side, refusals."""

from __future__ import annotations

import itertools
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

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


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_within_a_cvar_is_the_best_mixture_over_all_thresholds(sense):
    bare = gamble(2)
    lucky = bare.with_signals(won=np.tile([[3.0, 0.0], [1.0, 2.0]], (2, 1)))
    mdp = lucky.with_budget_state("cost", levels=range(15))
    level, limit, sign = 0.7, 5.0, 1.0 if sense == "minimize" else -1.0
    problem = cm.Problem(mdp, **{sense: cm.linear("won")})
    reached, worth = np.flatnonzero(mdp.reachable), mdp.signal("won")
    values, costs = [], []
    for chosen in itertools.product(range(2), repeat=reached.size):
        table = np.eye(2)[np.zeros(mdp.n_states, dtype=int)]
        table[reached] = np.eye(2)[list(chosen)]
        costs.append(distribution(mdp, table))
        values.append(sign * float((cm.occupancy_of(mdp, table) * worth).sum()))
    losses = []
    for t in range(15):  # every policy is a mixture of these
        excess = [t + sum(p * max(c - t, 0) for c, p in one.items()) / (1 - level) for one in costs]
        best = linprog(values, [excess], [limit], np.ones((1, len(values))), [1.0])
        losses.append(best.fun if best.status == 0 else np.inf)
    found = cm.within_cvar(problem, "cost", level, limit)
    assert sign * found.solution.objective == pytest.approx(min(losses), abs=1e-6)
    assert sign * found.bound == pytest.approx(min(losses), abs=1e-5)
    assert sign * found.bound <= min(losses) + 1e-9
    assert found.cvar <= limit
    policy = found.certificate.policy.probabilities()
    assert cvar_of(distribution(mdp, policy), level) <= limit + 1e-9
    assert found.solves < 15
    assert "no policy within the limit" in str(found)
    none = cm.within_cvar(problem, "cost", level, 1.0)
    least = cm.least_cvar(mdp, "cost", level).cvar
    assert none.solution is None
    assert none.cvar == pytest.approx(least)
    assert "No policy has a CVaR of at most 1" in str(none)


# Rigter, Duckworth, Lacerda and Hawes, Planning for Risk-Aversion and Expected Value in MDPs (ICAPS 2022), with
# the numbers that their program is held to: github.com/marc-rigter/plan-risk-expected-value at bda139b. Models:
# src/models/ssp_mdp_examples.cpp and mdp_examples.cpp; numbers: tests-cvar-value-iteration.cpp and
# tests-lexicographic-cvar-value-iteration.cpp in tests/algorithms. Their alpha is the share of worst episodes.


def their_example() -> cm.TabularMDP:
    """From state 0 with 0.8 to state 3, where A, B and C are gambles of 0 or 20, 9 or 1, and a sure 7."""
    rows = [("0", "A", "3", 0.8), ("0", "A", "2", 0.1), ("0", "A", "1", 0.1)]
    rows += [
        ("3", "A", "4", 0.95),
        ("3", "A", "5", 0.05),
        ("3", "B", "6", 0.3),
        ("3", "B", "7", 0.7),
    ]
    dear = {"1": 10.0, "2": 8.0, "4": 0.0, "5": 20.0, "6": 9.0, "7": 1.0}
    table = [(*row, 0.0) for row in rows] + [(s, "A", "end", 1.0, c) for s, c in dear.items()]
    table.append(("3", "C", "end", 1.0, 7.0))
    return from_rows(table, "0").with_budget_state("cost", levels=[0, 1, 7, 8, 9, 10, 20])


def bets(stages: int, win: float, allowed: range) -> cm.TabularMDP:
    """Ten coins, so many bets, each won with this probability; the cost is what the end falls short of 25."""
    rows, reached = [], {10}
    for stage in range(stages):
        for money, bet in itertools.product(sorted(reached), allowed):
            for share, ends in ((win, money + bet), (1 - win, money - bet)):
                rows.append((f"{stage},{money}", f"{bet}", f"{stage + 1},{ends}", share, 0.0))
        reached = {money + sign * bet for money in reached for bet in allowed for sign in (-1, 1)}
    rows += [(f"{stages},{m}", f"{allowed[0]}", "end", 1.0, 25.0 - m) for m in sorted(reached)]
    return from_rows(rows, "0,10").with_budget_state("cost", levels=range(31))


def from_rows(rows: list[tuple[str, str, str, float, float]], initial: str) -> cm.TabularMDP:
    names = ("state", "action", "next_state", "probability", "cost")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return cm.from_table(columns, 1.0, initial=initial, ends=["end"])


def taken(solution: cm.Solution, state: str) -> str:
    chances = solution.policy.probabilities(state)
    assert chances.max() == pytest.approx(1.0, abs=1e-6)
    names = solution.problem.mdp.action_names or range(chances.size)
    return str(names[int(chances.argmax())])


def test_a_published_example_with_several_policies_of_the_least_cvar():
    mdp = their_example()
    found = cm.least_cvar(mdp, "cost", 1 - 0.083298)
    assert found.cvar == pytest.approx(10.0, abs=1e-6)
    assert found.bound == pytest.approx(10.0, abs=1e-5)
    # Of the policies within it, theirs that costs least on average takes B in state 3: 0.8 * 3.4 + 1.8.
    problem = cm.Problem(mdp, minimize=cm.linear("cost"))
    cheap = cm.within_cvar(problem, "cost", 1 - 0.083298, found.cvar + 1e-9)
    assert cheap.solution.objective == pytest.approx(0.8 * 3.4 + 1.8, abs=1e-5)
    assert taken(cheap.solution, "3, cost 0") == "B"


@pytest.mark.parametrize(
    ("share", "theirs"), [(1.0, 13.6), (0.9, 13.0), (0.364159, 8.99), (0.115443, 5.59)]
)
def test_published_tails_of_three_bets_of_three(share, theirs):
    found = cm.least_cvar(bets(3, 0.7, range(3, 4)), "cost", 1 - share)
    assert 25 - found.cvar == pytest.approx(theirs, abs=0.01)  # they print two digits


def test_published_choices_of_bets():
    game = bets(3, 0.8, range(6))
    assert cm.least_cvar(game, "cost", 0.95).cvar == pytest.approx(15.0, abs=1e-6)  # nothing is bet
    half = cm.least_cvar(game, "cost", 0.5).solution
    assert taken(half, "0,10, cost 0") == "5"
