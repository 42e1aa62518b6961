"""Sums in the units people mean: per episode, per step, shares of the steps taken; models that restart."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.runs.record import record_of
from cvxmdp.runs.specs.problem_specs import read_problem


def leaving(discount: float) -> cm.TabularMDP:
    """One place with two ways to wait; each step ends with probability 0.2. The second way is a hazard."""
    rows = np.full((1, 2, 1), 0.8)
    signals = {
        "cost": np.ones((1, 2)),
        "hazard": np.array([[0.0, 1.0]]),
        "fun": np.array([[0.0, 2.0]]),
    }
    return cm.TabularMDP(rows, 0, discount, signals=signals, state_names=["place"])


def test_per_step_says_what_it_means_where_episodes_end() -> None:
    """A cost of 1 at every step is within 0.05 "per step", because most of the 100 steps are never taken."""
    within = {"cost": cm.linear("cost", per="step") <= 0.05}
    solution = cm.solve(cm.Problem(leaving(0.99), maximize=cm.linear("fun"), subject_to=within))
    assert solution.slack["cost"] > 0
    assert "of 100 steps, of which 4.807692 are taken: share of the steps taken 1" in str(solution)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_a_share_is_of_the_steps_taken(discount: float) -> None:
    mdp = leaving(discount)
    problem = cm.Problem(
        mdp, maximize=cm.linear("fun"), subject_to={"hazard": cm.share("hazard") <= 0.25}
    )
    solution = cm.solve(problem, cm.ConvexProgram())
    x = solution.occupancy
    assert x[0, 1] / x.sum() == pytest.approx(0.25, abs=1e-9)
    assert solution.policy.probabilities()[0, 1] == pytest.approx(0.25, abs=1e-9)
    assert 'share("hazard") <= 0.25' in str(solution)
    assert "0.25 " in str(solution)
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= 1e-9
    tighter = cm.solve(problem.with_budget("hazard", 0.1), cm.ConvexProgram())
    assert tighter.objective == pytest.approx(0.4 * solution.objective)


def test_shares_from_below() -> None:
    problem = cm.Problem(
        leaving(0.9), minimize=cm.linear("fun"), subject_to={"hazard": cm.share("hazard") >= 0.5}
    )
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.policy.probabilities()[0, 1] == pytest.approx(0.5, abs=1e-9)


def test_the_price_of_a_share_counts_the_steps_taken() -> None:
    """A hundredth more of ten steps is a tenth more of the signal."""
    mdp = leaving(0.9)
    limit = {"hazard": cm.share("hazard") <= 0.25}
    problem = cm.Problem(mdp, maximize=cm.linear("fun"), subject_to=limit)
    front = cm.frontier(problem, "hazard", [0.2, 0.25])
    more = cm.solve(problem.with_budget("hazard", 0.2 + front.step)).objective
    gained = more - cm.solve(problem.with_budget("hazard", 0.2)).objective
    assert gained > 0
    assert gained <= front.worth(front.points[0].certificate) + 1e-9


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_shares_and_episodes_read_rewards_by_time(discount: float) -> None:
    random, steps = np.random.default_rng(0), 5
    reward, cost = random.random((2, steps, 3, 2))
    transition = random.random((3, 2, 3))
    transition *= 0.9 / transition.sum(axis=2, keepdims=True)
    mdp = cm.TabularMDP(transition, np.ones(3) / 3, discount, horizon=steps)
    limits = {"hazard": cm.share(cost) <= 0.4, "cost": cm.linear(cost, per="step") <= 0.5}
    problem = cm.Problem(mdp, maximize=cm.linear(reward) - cm.linear(cost[0]), subject_to=limits)
    found = cm.solve(problem)
    x = found.measured.reshape(cost.shape)
    assert found.slack["hazard"] == pytest.approx(0.4 * x.sum() - (cost * x).sum())
    assert found.multipliers["hazard"] > 0
    seen = cm.evaluate(found.policy, mdp, 20_000, seed=0, problem=problem)
    for interval, exact in (
        (seen.objective, found.objective),
        *((seen.slack[name], found.slack[name]) for name in limits),
    ):
        assert interval.proven
        assert interval.lower <= exact <= interval.upper
        assert interval.value == pytest.approx(exact, abs=0.02)


def test_shares_are_only_compared() -> None:
    with pytest.raises(cm.CvxmdpError, match="share"):
        cm.Problem(leaving(0.9), maximize=cm.share("hazard"))
    problem = cm.Problem(
        leaving(0.9), maximize=cm.linear("fun"), subject_to={"hazard": cm.share("hazard") <= 0.25}
    )
    with pytest.raises(cm.CvxmdpError, match="Give the budgets to solve"):
        cm.frontier(problem, "hazard")


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("sense", ["<=", ">="])
@pytest.mark.parametrize("seed", range(4))
def test_envelopes_of_a_share_hold_between_the_budgets(
    seed: int, sense: str, discount: float
) -> None:
    """The best objective is not concave in such a budget: plain lines and chords would be wrong."""
    mdp = cm.garnet(8, 3, 3, discount=discount, ending=0.15, seed=seed)
    random = np.random.default_rng(seed)
    cost = random.random((8, 3))
    limit = cm.share(cost) <= 0.4 if sense == "<=" else cm.share(cost) >= 0.5
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"share": limit})
    found = cm.frontier(problem, "share", [0.3, 0.45, 0.6])
    for budget in np.linspace(0.25, 0.65, 9):
        solution = cm.solve(problem.with_budget("share", float(budget)))
        lower, upper = found.envelope(float(budget))
        if solution.status is cm.Status.INFEASIBLE:
            assert not lower > -np.inf
            continue
        assert lower <= solution.objective * (1 + 1e-7) + 1e-9
        assert upper >= solution.objective * (1 - 1e-7) - 1e-9
    assert "binding" in str(found)


def test_runs_with_shares_are_recorded(tmp_path) -> None:
    problem = cm.Problem(
        leaving(0.9), maximize=cm.linear("fun"), subject_to={"hazard": cm.share("hazard") <= 0.25}
    )
    (facts,) = record_of(cm.solve(problem)).constraints
    assert facts.value == pytest.approx(0.25)


def test_shares_in_folders_and_files(tmp_path) -> None:
    problem = cm.Problem(
        leaving(0.9), maximize=cm.linear("fun"), subject_to={"hazard": cm.share("hazard") <= 0.25}
    )
    problem.save(tmp_path / "saved")
    again = cm.load_problem(tmp_path / "saved")
    assert repr(again.constraints["hazard"]) == 'share("hazard") <= 0.25'
    assert fingerprint(again) == fingerprint(problem)


def test_per_episode_is_the_plain_sum() -> None:
    problem = cm.Problem(
        leaving(1),
        maximize=cm.linear("fun"),
        subject_to={"h": cm.linear("hazard", per="episode") <= 1.0},
    )
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.objective == pytest.approx(2.0)
    assert "per episode 1 (budget 1); share of the 5 steps taken 0.2" in str(solution)


def test_units_of_ones_own() -> None:
    mdp = leaving(0.9)
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    d = x.sum() / 5.0
    assert cm.entropy(unit=5.0).lower(mdp).value(x) == pytest.approx(-d * np.log(d))
    assert repr(cm.entropy(of="state-action", unit=5.0)) == 'entropy(of="state-action", unit=5)'
    near = cm.distance(cm.uniform_policy(mdp), norm="kl", unit=5.0)
    assert near.lower(mdp).value(2.0 * x) == pytest.approx(d * (2 * np.log(2) - 1))
    with pytest.raises(cm.CvxmdpError, match="positive number"):
        cm.entropy(unit=0)
    with pytest.raises(cm.CvxmdpError, match="unit only goes"):
        cm.distance(cm.uniform_policy(mdp), norm="l2", unit=5.0)


def test_restarting_begins_the_next_episode_at_once() -> None:
    mdp = leaving(1).restarting(discount=0.9)
    assert not (mdp.ending > 0).any()
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    assert (mdp.signal("ending") * x).sum() == pytest.approx(0.2 * 10)
    # A budget per episode: one hazard for every ending.
    per_episode = cm.linear("hazard") - 1.0 * cm.linear("ending")
    solution = cm.solve(
        cm.Problem(mdp, maximize=cm.linear("fun"), subject_to={"hazard": per_episode <= 0}),
        cm.ConvexProgram(),
    )
    assert solution.policy.probabilities()[0, 1] == pytest.approx(0.2, abs=1e-8)
    with pytest.raises(cm.CvxmdpError, match="'ending'"):
        mdp.restarting()


def test_the_best_share_is_the_average_of_restarting() -> None:
    """Of the steps taken: hazard at every step, however long episodes are."""
    mdp = leaving(1).restarting()
    solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("hazard")), cm.ConvexProgram())
    assert solution.objective == pytest.approx(1.0)


def test_absorbing_states_become_ends() -> None:
    rows = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    signals = {"steps": np.array([[1.0], [0.0]])}
    mdp = cm.TabularMDP(rows, 0, 1, signals=signals, state_names=["road", "home"])
    with pytest.raises(cm.CvxmdpError, match=r"in 1 state \('home'\).*ending_at\(\['home'\]\)"):
        cm.Problem(mdp, minimize=cm.linear("steps"))
    ended = mdp.ending_at(["home"])
    found = cm.solve(cm.Problem(ended, minimize=cm.linear("steps")), cm.ConvexProgram())
    assert found.objective == pytest.approx(2.0)
    with pytest.raises(cm.CvxmdpError, match="is no state"):
        mdp.ending_at(["hom"])
    with pytest.raises(cm.CvxmdpError, match="is no state"):
        mdp.ending_at([7])


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("discount = 1", "total reward"),
        ("horizon = 5", "5"),
        ("average = true", "average"),
        ("horizon = 5\ndiscount = 0.9", "0.9"),
    ],
)
def test_horizons_in_problem_files(keys: str, shown: str, tmp_path) -> None:
    text = 'maximize = "linear(\\"reward\\")"\n[model]\nkind = "garnet"\n'
    text += f"n_states = 4\nn_actions = 2\nbranching = 2\nseed = 0\n{keys}\n"
    if "discount = 1" in keys:
        text += "ending = 0.2\n"
    (tmp_path / "problem.toml").write_text(text, "utf-8")
    assert shown in str(read_problem(tmp_path / "problem.toml").problem.mdp.horizon)
