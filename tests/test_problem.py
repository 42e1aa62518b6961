"""Problems: what is refused and how, immutability, and what they compute."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from cvxmdp.base.errors import CurvatureError, ModelError, PolicyError, ProblemError, UtilityError
from strategies import (
    generator,
    random_concave_utility,
    random_constraint,
    random_model,
    random_occupancy,
    random_policy,
    seeds,
)

MDP = cm.garnet(6, 3, 3, seed=0, discount=0.9)
SAFE = cm.linear("cost") <= 5.0


def problem(**changes: object) -> cm.Problem:
    return cm.Problem(MDP, maximize=cm.entropy(), subject_to={"cost": SAFE, **changes})


# What is refused


@pytest.mark.parametrize(
    ("objectives", "count"),
    [({}, "neither"), ({"maximize": cm.entropy(), "minimize": cm.linear("cost")}, "both")],
    ids=["neither", "both"],
)
def test_exactly_one_objective(objectives: dict, count: str) -> None:
    with pytest.raises(ProblemError, match=f"exactly one of maximize= and minimize=; got {count}"):
        cm.Problem(MDP, **objectives)


@pytest.mark.parametrize("given_objective", [3.0, "reward", np.ones((6, 3)), SAFE, len])
@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_an_objective_is_a_utility(given_objective: object, sense: str) -> None:
    with pytest.raises(UtilityError, match=f"{sense}= needs a utility such as linear"):
        cm.Problem(MDP, **{sense: given_objective})


def test_a_model_is_a_model() -> None:
    with pytest.raises(ProblemError, match=r"needs a model such as TabularMDP"):
        cm.Problem(MDP.dense_transition(), maximize=cm.entropy())


@pytest.mark.parametrize("subject_to", [[SAFE], (SAFE,), SAFE, "cost <= 1"])
def test_constraints_come_by_name(subject_to: object) -> None:
    with pytest.raises(ProblemError, match=r"subject_to takes constraints by name.*got"):
        cm.Problem(MDP, maximize=cm.entropy(), subject_to=subject_to)


@pytest.mark.parametrize("constraint", [True, 1.0, cm.linear("cost"), None])
def test_a_constraint_is_a_comparison(constraint: object) -> None:
    with pytest.raises(ProblemError, match=r"'budget' must compare a utility with a number"):
        problem(budget=constraint)


@pytest.mark.parametrize("name", [3, "", None, ("a", "b")])
def test_names_are_strings(name: object) -> None:
    with pytest.raises(ProblemError, match="name of a constraint must be a string"):
        cm.Problem(MDP, maximize=cm.entropy(), subject_to={name: SAFE})


def test_maximising_a_convex_utility_names_the_term_and_the_fix() -> None:
    objective = cm.linear("reward") + 2 * cm.distance(cm.uniform_policy(MDP))
    with pytest.raises(CurvatureError, match=r"the term 2 \* distance.*is convex.*minimize="):
        cm.Problem(MDP, maximize=objective)


def test_minimising_a_concave_utility_names_the_term_and_the_fix() -> None:
    with pytest.raises(CurvatureError, match=r"the term entropy\(\) is concave.*maximize="):
        cm.Problem(MDP, minimize=cm.linear("cost") + cm.entropy())


@pytest.mark.parametrize(
    ("constraint", "error"),
    [
        (cm.linear(np.ones((6, 2))) <= 1, UtilityError),
        (cm.distance(np.ones((2, 2))) <= 1, UtilityError),
        (cm.distance(cm.TabularPolicy(np.ones((2, 2)) / 2)) <= 1, PolicyError),
        (cm.quadratic(weights=np.ones(7)) <= 1, UtilityError),
        (cm.distance(cm.box(np.zeros((5, 3)), 1.0)) <= 1, UtilityError),
        (cm.minimum(cm.linear(np.ones(4)), cm.entropy()) >= 1, UtilityError),
    ],
    ids=["linear", "distance", "policy", "quadratic", "box", "minimum"],
)
def test_shapes_that_do_not_fit_name_the_constraint(
    constraint: cm.Constraint, error: type[Exception]
) -> None:
    with pytest.raises(error, match="constraint 'misfit': "):
        problem(misfit=constraint)


def test_unknown_signals_get_a_suggestion() -> None:
    with pytest.raises(ModelError, match=r"no signal 'rewrad'. Did you mean 'reward'\?"):
        cm.Problem(MDP, maximize=cm.linear("rewrad"))
    with pytest.raises(
        ModelError, match=r"constraint 'x': .*no signal 'cots'. Did you mean 'cost'"
    ):
        problem(x=cm.linear("cots") <= 1.0)


# Immutability


def test_nothing_can_be_set_or_deleted() -> None:
    one = problem()
    with pytest.raises(AttributeError, match=r"cannot be changed.*with_budget"):
        one.sense = "minimize"
    with pytest.raises(AttributeError, match="cannot be changed"):
        one.something_new = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        del one.mdp
    with pytest.raises(TypeError):
        one.constraints["cost"] = cm.linear("cost") <= 1.0
    one.budgets["cost"] = 7.0
    assert one.budgets == {"cost": 5.0}


def test_the_given_mapping_and_arrays_may_change_later() -> None:
    constraints, reward = {"cost": SAFE}, np.ones((6, 3))
    one = cm.Problem(MDP, maximize=cm.linear(reward), subject_to=constraints)
    constraints["more"] = SAFE
    reward[:] = 5.0
    assert list(one.constraints) == ["cost"]
    assert one.evaluate(cm.uniform_policy(MDP)).objective == pytest.approx(10.0)


def test_with_budget_makes_another_problem() -> None:
    one = problem(near=cm.distance(cm.uniform_policy(MDP)) <= 1.0, rich=cm.linear("reward") >= 2.0)
    other = one.with_budget("rich", 3.0)
    assert one.budgets == {"cost": 5.0, "near": 1.0, "rich": 2.0}
    assert other.budgets == {"cost": 5.0, "near": 1.0, "rich": 3.0}
    assert other.constraints["rich"].sense == ">="
    assert other.utility is one.utility
    uniform = cm.uniform_policy(MDP)
    change = one.evaluate(uniform).slack["rich"] - other.evaluate(uniform).slack["rich"]
    assert change == pytest.approx(1.0)


def test_with_budget_keeps_the_sense_of_the_objective() -> None:
    one = cm.Problem(MDP, minimize=cm.linear("cost"), subject_to={"e": cm.entropy() >= 1.0})
    assert one.with_budget("e", 0.5).sense == "minimize"


@pytest.mark.parametrize("budget", ["much", None, float("nan"), float("inf"), True])
def test_budgets_are_finite_numbers(budget: object) -> None:
    with pytest.raises(UtilityError, match="expected a"):
        problem().with_budget("cost", budget)


def test_unknown_constraints_get_a_suggestion() -> None:
    with pytest.raises(ProblemError, match=r"no constraint 'csot'. Did you mean 'cost'\?"):
        problem().with_budget("csot", 1.0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_copies_for_other_processes(copied: object, sense: str) -> None:
    one = cm.Problem(MDP, **{sense: cm.linear("reward")}, subject_to={"cost": SAFE})
    other = copied(one)
    assert repr(other) == repr(one)
    policy = random_policy(MDP, generator(0))
    assert other.evaluate(policy).objective == one.evaluate(policy).objective
    assert other.evaluate(policy).slack == one.evaluate(policy).slack


# What they compute


def test_evaluation_in_the_users_sign() -> None:
    uniform = cm.uniform_policy(MDP)
    cost = float(np.vdot(MDP.signal("cost"), cm.occupancy_of(MDP, uniform)))
    up = cm.Problem(MDP, maximize=-cm.linear("cost"), subject_to={"c": cm.linear("cost") <= 1.0})
    down = cm.Problem(MDP, minimize=cm.linear("cost"), subject_to={"c": cm.linear("cost") >= 1.0})
    assert up.evaluate(uniform).objective == pytest.approx(-cost)
    assert down.evaluate(uniform).objective == pytest.approx(cost)
    assert up.evaluate(uniform).slack["c"] == pytest.approx(1.0 - cost)
    assert up.evaluate(uniform).violation["c"] == pytest.approx(cost - 1.0)
    assert down.evaluate(uniform).slack["c"] == pytest.approx(cost - 1.0)
    assert down.evaluate(uniform).violation["c"] == 0.0
    # the Lagrangian is that of the maximised function: f + mu g
    x = cm.occupancy_of(MDP, uniform)
    assert down.lagrangian(x, {"c": 2.0}) == pytest.approx(-cost + 2.0 * (cost - 1.0))


@settings(max_examples=30)
@given(seed=seeds)
def test_the_shadow_reward_is_a_supergradient_of_the_lagrangian(seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    feasible = random_policy(mdp, random, concentration=2.0)
    one = cm.Problem(
        mdp,
        maximize=random_concave_utility(mdp, random),
        subject_to={name: random_constraint(mdp, random, feasible) for name in "ab"},
    )
    multipliers = {"a": float(random.exponential()), "b": float(random.exponential())}
    x = cm.occupancy_of(mdp, random_policy(mdp, random, concentration=2.0))
    reward = one.shadow_reward(x, multipliers)
    assert reward.shape == (mdp.n_states, mdp.n_actions)
    for _ in range(5):
        y = random_occupancy(mdp, random)
        rise = one.lagrangian(y, multipliers) - one.lagrangian(x, multipliers)
        bound = float(np.vdot(reward, y - x))
        assert rise <= bound + 1e-8 * (1.0 + abs(bound) + np.abs(reward).max())


def test_occupancies_are_read_in_double_precision() -> None:
    one = problem()
    x = cm.occupancy_of(MDP, cm.uniform_policy(MDP)).astype(np.float32)
    exact = one.evaluate_occupancy(x.astype(np.float64))
    for same in (x, x.tolist()):
        assert one.evaluate_occupancy(same).objective == exact.objective
        assert one.evaluate_occupancy(same).slack == exact.slack


@pytest.mark.parametrize("wrong", [np.ones((6, 2)), np.ones(18), 1.0])
def test_occupancies_of_another_shape(wrong: object) -> None:
    with pytest.raises(ProblemError, match=r"array of shape \(6, 3\); got shape"):
        problem().evaluate_occupancy(wrong)


def test_without_a_policy_there_is_nothing_to_evaluate() -> None:
    with pytest.raises(ProblemError, match="no policy to evaluate"):
        problem().evaluate(None)
    nothing = cm.Solution.without_policy(problem(), cm.Status.INFEASIBLE)
    with pytest.raises(PolicyError, match="this solution has no policy: No policy satisfies"):
        problem().evaluate(nothing)


def test_printing_a_problem() -> None:
    one = problem(**{"near the expert": cm.distance(cm.uniform_policy(MDP)) <= 0.5})
    lines = repr(one).splitlines()
    assert lines[0] == "maximize   entropy()"
    assert lines[1] == 'subject to cost:            linear("cost") <= 5'
    assert lines[2] == '           near the expert: distance(<policy>, norm="l2") <= 0.5'
    assert lines[3].startswith("over       TabularMDP(6 states")
