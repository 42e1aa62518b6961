"""Total reward, discount=1: hand-solved chains, exact rational optima, refusals that name the states."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.bounds import PlainProblem
from cvxmdp.problems.lowered import Lowered
from cvxmdp.theory import problem_constants, sample_schedule, softmax_table_constants
from test_near_one import exact_best_within


def ending_model(seed: int, states: int = 4) -> cm.TabularMDP:
    """Every row ends with some probability."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.ones(states + 1), size=(states, 2))[:, :, :states]
    signals = {"reward": random.normal(size=(states, 2)), "cost": random.random((states, 2))}
    return cm.TabularMDP(rows, random.dirichlet(np.ones(states)), 1, signals=signals)


def corridor(discount: float = 1.0) -> cm.TabularMDP:
    """Four places; action 0 goes back, action 1 forward with probability 0.9, from the last one to the end."""
    rows = np.zeros((4, 2, 4))
    for place in range(4):
        rows[place, 0, max(place - 1, 0)] = 1.0
        rows[place, 1, place] = 0.1
        if place < 3:
            rows[place, 1, place + 1] = 0.9
    names = ["start", "mill", "yard", "gate"]
    signals = {"time": np.ones(4), "view": np.array([0.0, 0.0, 1.0, 0.0])}
    return cm.TabularMDP(rows, 0, discount, signals=signals, state_names=names)


def certified(problem: cm.Problem) -> cm.Certificate:
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.status is cm.Status.OPTIMAL
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= 1e-8
    return certificate


@pytest.mark.parametrize("seed", range(6))
def test_random_problems_against_exact_optima(seed: int) -> None:
    mdp = ending_model(seed)
    used = float((mdp.signal("cost") * cm.occupancy_of(mdp, cm.uniform_policy(mdp))).sum())
    within = {"cost": cm.linear("cost") <= used}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=within)
    certificate = certified(problem)
    assert certificate.lower <= exact_best_within(mdp, Fraction(used)) <= certificate.upper
    by_columns = cm.certify(problem, cm.solve(problem, cm.ColumnGeneration()))
    assert by_columns.relative_gap <= 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_concave_problems_close_their_gaps(seed: int) -> None:
    mdp = ending_model(seed)
    uniform = cm.uniform_policy(mdp)
    used = float((mdp.signal("cost") * cm.occupancy_of(mdp, uniform)).sum())
    within = {"cost": cm.linear("cost", per="episode") <= 0.97 * used}
    certified(cm.Problem(mdp, maximize=cm.entropy(), subject_to=within))
    certified(cm.Problem(mdp, minimize=cm.distance(uniform, norm="l2"), subject_to=within))


def test_occupancies_are_visits_of_an_episode() -> None:
    mdp = corridor()
    always = np.tile([0.0, 1.0], (4, 1))
    np.testing.assert_allclose(cm.occupancy_of(mdp, always).sum(axis=1), np.full(4, 1 / 0.9))


def test_the_unit_of_distributions_is_the_longest_stay() -> None:
    mdp = ending_model(0)
    found = cm.solve(cm.Problem(mdp, maximize=cm.linear(np.ones(4))), cm.ConvexProgram())
    assert 1.0 / mdp.scale == pytest.approx(found.objective, rel=1e-12)
    assert cm.state_distribution(mdp, found.occupancy).sum() == pytest.approx(1.0)


def test_staying_is_allowed_where_it_is_charged() -> None:
    problem = cm.Problem(corridor(), minimize=cm.linear("time"))
    certificate = certified(problem)
    assert certificate.lower <= 4 / 0.9 <= certificate.upper


@pytest.mark.parametrize("unit", [1e-12, 1e9])
def test_what_is_charged_has_any_unit(unit: float) -> None:
    """To wait, and two ways out, of which the second is better by a fiftieth."""
    mdp = cm.TabularMDP(np.array([[[1.0], [0.5], [0.49]]]), 0, 1, signals={"time": np.ones(1)})
    certificate = certified(cm.Problem(mdp, minimize=unit * cm.linear("time")))
    assert certificate.lower <= unit / 0.51 <= certificate.upper


def test_a_budget_charges_too() -> None:
    """Steps left over are spent between gate and yard: 1 / 0.9 views for every 1 + 1 / 0.9 steps."""
    within = {"time": cm.linear("time") <= 8.0}
    certificate = certified(cm.Problem(corridor(), maximize=cm.linear("view"), subject_to=within))
    stay = 1 / 0.9
    expected = stay + (8.0 - 4 * stay) / (1 + stay) * stay
    assert certificate.lower <= expected * (1 + 1e-12)
    assert certificate.upper >= expected * (1 - 1e-12)


def test_infeasible_budgets_are_proven() -> None:
    within = {"time": cm.linear("time") <= 4.0}
    problem = cm.Problem(corridor(), maximize=cm.linear("view"), subject_to=within)
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.status is cm.Status.INFEASIBLE
    assert cm.certify(problem, solution).infeasible


def test_staying_for_nothing_is_refused_by_name() -> None:
    with pytest.raises(
        cm.CvxmdpError, match=r"stay for ever in 4 states \('start', 'mill'.*ending_at"
    ):
        cm.Problem(corridor(), maximize=cm.linear("view"))
    # Where the view costs, the places without one can still be stayed in for nothing.
    with pytest.raises(cm.CvxmdpError, match=r"in 2 states \('start', 'mill'\)"):
        cm.Problem(corridor(), minimize=cm.linear("view"))
    within = {"time": cm.linear("time") <= 8.0}
    with pytest.raises(cm.CvxmdpError, match="unit="):
        cm.Problem(corridor(), maximize=cm.entropy(), subject_to=within)


def test_the_ways_out_that_a_refusal_names_lead_out() -> None:
    """Two rooms to walk between, and two that nobody leaves: those alone can be ends."""
    rows = np.zeros((4, 2, 4))
    rows[0, 0, 1] = rows[0, 1, 0] = rows[1, 1, 0] = 1.0
    rows[1, 0, 2:] = 0.5
    rows[2, :, 2] = rows[3, :, 3] = 1.0
    signals = {"prize": np.array([0.0, 0.0, 1.0, 0.0]), "other": np.ones(4)}
    names = ["hall", "door", "prize", "pit"]
    mdp = cm.TabularMDP(rows, 0, 1, signals=signals, state_names=names)
    with pytest.raises(cm.ModelError, match=r"or mdp.ending_at\(\['prize', 'pit'\]\), which"):
        cm.Problem(mdp, maximize=cm.linear("prize"))
    ended = mdp.ending_at(["prize", "pit"])
    with pytest.raises(
        cm.ModelError,
        match=r"in 2 states \('hall', 'door'\).*ending_at\(\[...\]\).*mdp.collapsed\(\"prize\"\)",
    ):
        cm.Problem(ended, maximize=cm.linear("prize"))
    certificate = certified(cm.Problem(ended.collapsed("prize"), maximize=cm.linear("prize")))
    assert certificate.lower <= 0.5 <= certificate.upper


def test_a_budget_bounds_what_is_spread_over_a_round() -> None:
    """Every step of it is worth as much as the next: at the best multiplier, slopes cancel all around."""
    rows = np.zeros((3, 2, 3))
    for place in range(3):
        rows[place, 0, (place + 1) % 3] = 1.0
    mdp = cm.TabularMDP(rows, 0, 1, signals={"time": np.ones(3)})
    within = {"time": cm.linear("time") <= 12.0}
    problem = cm.Problem(mdp, maximize=cm.entropy(unit=12.0), subject_to=within)
    certificate = certified(problem)
    assert certificate.lower <= np.log(3) <= certificate.upper
    room = cm.slater(problem)  # without its budget the objective has no bound
    assert room.exists
    assert room.dual_bound is None


def test_units_that_mean_nothing_are_refused() -> None:
    with pytest.raises(cm.CvxmdpError, match='per="episode"'):
        cm.Problem(ending_model(0), maximize=cm.linear("reward", per="step"))
    with pytest.raises(cm.CvxmdpError, match="discount=1"):
        cm.Problem(corridor(0.9), maximize=cm.linear("view", per="episode"))


def test_files_and_checks(tmp_path) -> None:
    problem = cm.Problem(corridor(), minimize=cm.linear("time"))
    certificate = certified(problem)
    certificate.save(tmp_path / "proof.json")
    assert cm.check(tmp_path / "proof.json", problem)
    problem.save(tmp_path / "problem")
    again = cm.load_problem(tmp_path / "problem")
    assert again.mdp.horizon == problem.mdp.horizon
    assert cm.check(tmp_path / "proof.json", again)
    assert "total reward" in repr(again.mdp)


def test_the_checker_refuses_to_bound_what_stays_for_nothing() -> None:
    charged = Lowered(cm.Problem(corridor(), minimize=cm.linear("time"))).plain()
    free = Lowered(cm.Problem(corridor(0.9), maximize=cm.linear("view"))).plain()
    with pytest.raises(CertificateError, match="for ever"):
        PlainProblem({**charged, "objective": free["objective"]})


def test_a_policy_that_never_ends_is_no_policy_of_the_problem() -> None:
    problem = cm.Problem(corridor(), minimize=cm.linear("time"))
    back = np.tile([1.0, 0.0], (4, 1))
    with pytest.raises(cm.CvxmdpError, match="end its episodes"):
        cm.certify(problem, back)


def test_gradients_learn_sums_over_episodes() -> None:
    mdp = ending_model(0)
    used = float((mdp.signal("cost") * cm.occupancy_of(mdp, cm.uniform_policy(mdp))).sum())
    within = {"cost": cm.linear("cost") <= used}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=within)
    best = cm.solve(problem, cm.ConvexProgram()).objective
    found = cm.solve(problem, cm.PDPG(iterations=1_000))
    assert found.objective == pytest.approx(best, rel=1e-3)
    steps = {"primal_step": 0.03, "dual_step": 0.05, "momentum": 0.1}
    learned = cm.solve(problem, cm.VRPDPG(iterations=1_000, horizon=60, **steps), seed=0)
    assert learned.objective == pytest.approx(best, rel=0.05)


def test_solvers_that_try_policies_refuse_those_that_never_end() -> None:
    problem = cm.Problem(corridor(), minimize=cm.linear("time"))
    refusing = {
        "A policy gradient": cm.PDPG(iterations=10),
        "ColumnGeneration": cm.ColumnGeneration(),
        "ModelBased": cm.ModelBased(steps=100),
    }
    for who, solver in refusing.items():
        with pytest.raises(cm.CvxmdpError, match=f"{who} tries policies that can stay for ever"):
            cm.solve(problem, solver, seed=0)


def test_evaluation_by_episodes_holds_the_truth() -> None:
    mdp = ending_model(1)
    uniform = cm.uniform_policy(mdp)
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    truth = problem.evaluate(uniform).objective
    found = cm.evaluate(uniform, mdp, episodes=20_000, problem=problem, seed=0).objective
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 2.0


def test_theorems_speak_of_the_longest_stay() -> None:
    mdp = ending_model(0)
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    constants = problem_constants(problem, softmax_table_constants(1.0, 1.0))
    assert 1.0 / (1.0 - constants.discount) == pytest.approx(mdp.flow.longest)
    scheduled = cm.VRPDPG.theory(problem, 100).horizon
    assert scheduled == sample_schedule(100, constants.discount).horizon


def test_pictures_and_records_of_charged_problems(tmp_path) -> None:
    solution = cm.solve(cm.Problem(corridor(), minimize=cm.linear("time")))
    solution.plot(tmp_path / "policy.png")
    cm.report([solution], tmp_path / "report.html")
    assert "linear" in (tmp_path / "report.html").read_text("utf-8")


def test_costs_that_nobody_can_end_are_refused_by_name() -> None:
    """A budget charges for staying; but in the cellar one pays for ever, whatever is done."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[2, :, 2] = 1.0  # the door, or the cellar
    mdp = cm.TabularMDP(
        transition, 0, discount=1, signals={"c": np.ones(3)}, state_names=["hall", "door", "cellar"]
    )
    with pytest.raises(cm.ModelError, match=r"from 1 state \('cellar'\) no policy ends"):
        cm.Problem(mdp, minimize=cm.linear("c"))
    stairs = mdp.replace(actions=np.array([[True, False], [True, True], [True, True]]))
    assert cm.solve(cm.Problem(stairs, minimize=cm.linear("c"))).objective == pytest.approx(2.0)


def ladder(rungs: int) -> cm.TabularMDP:
    """A rung higher with one chance in a hundred, or 0.3; else down to the ground, or the end."""
    transition, top = np.zeros((rungs, 2, rungs)), np.zeros((rungs, 2))
    for rung, (action, chance) in itertools.product(range(rungs), enumerate((0.01, 0.003))):
        if rung + 1 < rungs:
            transition[rung, action, rung + 1] = chance
        else:
            top[rung, action] = chance
        transition[rung, action, 0] += 0.5 * (1 - chance)
    return cm.TabularMDP(transition, 0, discount=1, signals={"top": top})


@pytest.mark.parametrize(("rungs", "sense"), [(4, "minimize"), (4, "maximize"), (20, "maximize")])
def test_rare_events_are_proven_to_their_own_digits(rungs: int, sense: str) -> None:
    """One in 1e40: an error of visits, 1e-16, would hide it."""
    chance = Fraction(*((0.003 if sense == "minimize" else 0.01).as_integer_ratio()))
    stay, half = Fraction(1), Fraction(1, 2)
    for rung in range(rungs):  # V_0 = sum of what leads back to the ground times V_0, and the top
        stay -= chance**rung * half * (1 - chance)
    best = float(chance**rungs / stay)
    problem = cm.Problem(ladder(rungs), **{sense: cm.linear("top")})
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.lower <= best <= certificate.upper
    assert certificate.upper - certificate.lower <= 1e-11 * best
    assert cm.check(certificate, problem).accepted


def test_large_models_prove_what_is_charged() -> None:
    """Waiting is the first action of every place: policies that begin with it never end."""
    places = np.arange(1_600)
    rows = np.concatenate([2 * places, 2 * places[:-1] + 1])
    entries = np.ones(rows.size), (rows, np.append(places, places[1:]))
    transition = sp.csr_array(entries, shape=(2 * places.size, places.size))
    mdp = cm.TabularMDP(transition, 0, 1, signals={"time": np.ones(places.size)})
    certificate = certified(cm.Problem(mdp, minimize=cm.linear("time")))
    assert certificate.lower <= 1_600 <= certificate.upper
