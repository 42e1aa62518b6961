"""Theory: formulas by hand, rates, roots, and constants as upper bounds on what is measured."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import cvxmdp as cm
from cvxmdp.theory import (
    DirectConstants,
    ParameterisationConstants,
    ProblemConstants,
    TheoryError,
    average_lagrangian_bound,
    direct_constants,
    exact_bound,
    exact_schedule,
    iterations_for_zero_violation,
    pessimism_equation,
    problem_constants,
    sample_bound,
    sample_constants,
    sample_schedule,
    softmax_table_constants,
    strong_mixing,
    theory_pessimism,
    zero_violation_bound,
)
from strategies import generator, random_model, random_policy

SEEDS = range(6)


def by_hand(**changes) -> ProblemConstants:
    """Round numbers: M = 2, gamma = 1/2, C_0 = 1 + (1.5 - 0.5) / 0.25 = 5."""
    given = {
        "objective_magnitude": 2.0,
        "slack_magnitude": 2.0,
        "lipschitz": 3.0,
        "smoothness": 4.0,
        "strength": 0.5,
        "discount": 0.5,
        "parameterisation": ParameterisationConstants(1.0, 2.0, 0.1, 0.5),
        "margins": {"only": 0.25},
        "slater_objective": 0.5,
        "objective_bound": 1.5,
    }
    return ProblemConstants(**{**given, **changes})


L_THETA = 4 * 4 * 16 + 8 * 3 * 8 + 2 * 3 * (2 + 1) * 4  # 256 + 192 + 72 = 520


def visits_and_q(mdp, policy, reward):
    """Unnormalised visits (S,) and Q (S, A), by dense linear algebra."""
    transition = mdp.dense_transition()
    chain = np.einsum("sa,sat->st", policy, transition)
    eye = np.eye(mdp.n_states)
    visits = np.linalg.solve(eye - mdp.discount * chain.T, mdp.initial)
    values = np.linalg.solve(eye - mdp.discount * chain, (policy * reward).sum(axis=1))
    return visits, reward + mdp.discount * transition @ values


def policy_gradient(mdp, function, policy):
    """The gradient of f(lambda(pi)) in pi, (S, A): visits * Q of the shadow reward."""
    x = cm.occupancy_of(mdp, policy)
    visits, q = visits_and_q(mdp, policy, np.asarray(function.gradient(x)))
    return np.where(mdp.actions, visits[:, None] * q, 0.0)


def logit_gradient(mdp, function, logits):
    """The gradient of f(lambda(theta)) in the logits of a softmax table."""
    policy = softmax(logits, axis=1)
    slope = policy_gradient(mdp, function, policy)
    return policy * (slope - (policy * slope).sum(axis=1, keepdims=True))


def utilities(mdp, random):
    """One linear, one squared distance, one quadratic, in the sign that is maximised."""
    weights = random.random((mdp.n_states, mdp.n_actions))
    return {
        "linear": cm.linear(random.normal(size=(mdp.n_states, mdp.n_actions))),
        "l2-squared": -cm.distance(random_policy(mdp, random), norm="l2-squared"),
        "quadratic": -cm.quadratic(weights=weights),
    }


def small_problem(seed: int = 0, *, strongly: bool = False, constraints: int = 1) -> cm.Problem:
    random = generator(seed)
    mdp = random_model(
        random, n_states=3, n_actions=2, discount=0.5, endings=False, mask=False, unreachable=False
    )
    start = np.array([0.4, 0.3, 0.3])
    mdp = mdp.replace(initial=start)
    target = cm.uniform_policy(mdp)
    objective = cm.linear("reward")
    if strongly:
        objective = objective - cm.distance(target, norm="l2-squared")
    budgets = {
        "cost": cm.linear("cost") <= 1.6,
        "near": cm.distance(target, norm="l2-squared") <= 0.5,
    }
    kept = dict(itertools.islice(budgets.items(), constraints))
    return cm.Problem(mdp, maximize=objective, subject_to=kept)


# --- Formulas by hand ---------------------------------------------------------------------------


def test_smoothness_of_the_softmax_family() -> None:
    constants = by_hand()
    assert constants.parameter_smoothness == pytest.approx(L_THETA)
    assert constants.dual_bound == {"only": pytest.approx(5.0)}
    assert constants.lagrangian_smoothness == pytest.approx(6 * L_THETA)
    assert constants.bound == 2.0


def test_truncation_of_the_softmax_family() -> None:
    found = ParameterisationConstants(1.0, 2.0, 0.1, 0.5).truncation(3.0, 4.0, 0.5, horizon=4)
    assert found**2 == pytest.approx(8 * 16 * 64 + 16 * 9 * (25 * 4 + 16))


def test_general_concave_bound() -> None:
    bound = exact_bound(by_hand(), 1000)
    curvature = 2 * 6 * L_THETA * 0.01 / 0.25
    gap = (4 + 2) / 100 + curvature / 10 + 8 / 10
    assert bound.gap == pytest.approx(gap)
    assert bound.violation == pytest.approx(gap + 12.5 / 10)
    assert bound.gap_terms["curvature"] == pytest.approx(curvature / 10)


def test_strongly_concave_bound() -> None:
    constants = by_hand()
    mixing = 0.5 / (0.5 + 2 * 6 * L_THETA * 0.01)
    assert strong_mixing(constants) == pytest.approx(mixing)
    bound = exact_bound(constants, 400, strongly_concave=True)
    gap = 7 * 2 / (mixing * 400) + (4 / mixing + 2) / 20
    assert bound.gap == pytest.approx(gap)
    assert bound.violation == pytest.approx(gap + 12.5 / 20)
    weak = by_hand(parameterisation=ParameterisationConstants(1.0, 2.0, 0.1, 1e-4))
    assert strong_mixing(weak) == 1e-4


def test_two_constraints_add_up() -> None:
    constants = by_hand(margins={"a": 0.25, "b": 0.5})  # C = 5 and 3
    assert constants.primal_step == pytest.approx(1 / (9 * L_THETA))
    bound = exact_bound(constants, 1000)
    gap = 4 / 100 + 2 * 9 * L_THETA * 0.04 / 10 + 2 * 2 * 4 / 10 + 2 * 4 / 2 / 100
    assert bound.gap == pytest.approx(gap)
    assert bound.violation - bound.gap == pytest.approx((25 + 9) / 2 / 10)


def test_pessimistic_equation_general() -> None:
    delta, margin = 0.05, 0.25
    dual = 1 + 1 / (margin - delta)
    size = 2 + margin
    expected = (4 + size**2 / 2) / 100
    expected += 2 * (1 + dual) * L_THETA * 0.04 / 10
    expected += (2 * size**2 + dual**2 / 2) / 10 - delta
    assert pessimism_equation(by_hand(), 1000, delta) == pytest.approx(expected)


def test_pessimistic_equation_strongly_concave() -> None:
    delta, margin = 0.05, 0.25
    dual = 1 + 1 / (margin - delta)
    size = 2 + margin
    mixing = 0.5 / (0.5 + 2 * (1 + dual) * L_THETA * 0.01)  # with C_{0,delta}
    expected = (4 + dual * size) / (mixing * 400)
    expected += (size**2 / mixing + (size**2 + dual**2) / 2) / 20 - delta
    found = pessimism_equation(by_hand(), 400, delta, strongly_concave=True)
    assert found == pytest.approx(expected)


def test_sample_schedule() -> None:
    schedule = sample_schedule(10_000, 0.9)
    assert schedule.primal_step == pytest.approx(0.01)
    assert schedule.dual_step == pytest.approx(0.001)
    assert schedule.horizon == math.ceil(0.5 * math.log(10_000) / math.log(1 / 0.9)) == 44
    assert schedule.momentum(3) == 0.5
    np.testing.assert_allclose(schedule.momentum(np.arange(2)), [1.0, 2**-0.5])


@pytest.mark.parametrize(
    ("iterations", "discount", "horizon"),
    [(10_000, 0.1, 2), (1, 0.9, 1), (50, 0.0, 1), (4, 0.5, 1)],
)
def test_the_horizon_is_the_smallest(iterations: int, discount: float, horizon: int) -> None:
    schedule = sample_schedule(iterations, discount)
    assert schedule.horizon == horizon
    assert discount**schedule.horizon <= iterations**-0.5 * (1 + 1e-9)


def test_sample_constants_by_hand() -> None:
    schedule = sample_schedule(16, 0.5)  # H = 2, eta = 1/4
    found = sample_constants(by_hand(), schedule)
    weight = math.exp(2 * 2 * 1 / 4)
    variance = 2 * (weight + 1) * (18 + 4)
    occupancy = (1 + variance) * 4
    inside = 9 * ((1 + variance) + 9) + 16 * occupancy
    assert found.weight_bound == pytest.approx(weight)
    assert found.weight_variance == pytest.approx(variance)
    assert found.occupancy_error == pytest.approx(occupancy)
    expected = 4 * (math.sqrt(inside) + 4 * math.sqrt(occupancy))
    assert found.gradient_error == pytest.approx(expected)


def test_sample_bound_by_hand_without_curvature() -> None:
    """Linear utilities: the terms of the two lemmas, with T = 256, written out."""
    inverse = 2.0
    constants = by_hand(
        smoothness=0.0, parameterisation=ParameterisationConstants(1.0, 0.0, inverse, 0.5)
    )
    T, H, D, C = 256, 4, 2.0, 5.0
    schedule = sample_schedule(T, 0.5)
    assert schedule.horizon == H
    found = sample_constants(constants, schedule)
    epsilon = 1 / (16 * math.sqrt(2) * inverse * D)
    l_theta = 8 * 3 * 8 + 2 * 3 * 4
    truncation = math.sqrt(16 * 9 * (25 * 4 + 16))
    mean = 4 / 3 * math.sqrt(26 * found.occupancy_error) / 4
    beta = (32 * 9 + 24 * 9 * (found.weight_variance + 1)) * 16
    gradient = 4 / 3 * math.sqrt(23 * 9 * 16 + 12 * beta) / 4
    dual_step = 1 / 64
    terms = {
        "start": 4 / (epsilon * T),
        "gradient error": 2 / 16 / epsilon * 6 * gradient,
        "curvature": epsilon * 6 * l_theta * inverse**2 * D**2 + 6 * l_theta / 512 / epsilon,
        "truncated gradient": 6 * 2 * truncation / 16 / 16 / epsilon,
        "dual drift": 2 * dual_step * 2 * (2 + 3 * (D / 16 + mean)) / epsilon,
        "dual step": dual_step * 4,
        "truncated slack": C * 3 * D / 16 + 2 * dual_step * 9 * (D / 16) ** 2,
        "slack error": C * 3 * mean + 2 * dual_step * 9 * 2 * 26 * found.occupancy_error / 16,
    }
    bound = sample_bound(constants, T)
    assert bound.gap_terms == pytest.approx(terms)
    assert bound.violation - bound.gap == pytest.approx(25 / (2 * T * dual_step))
    assert len(bound.assumes) == 1
    assert len(sample_bound(by_hand(), 10_000).assumes) == 2


def test_direct_constants_by_hand() -> None:
    mdp = small_problem().mdp
    found = direct_constants(mdp)
    assert found == DirectConstants(math.sqrt(6.0) / 0.3, 2, 1.0)
    assert found.occupancy_lipschitz(0.5) == pytest.approx(2 + 0.5 * math.sqrt(2) * 4)
    expected = 2 * 0.5 * 2 * 8 * 3 + math.sqrt(2) * 4 * 4 * (2 + 2 * math.sqrt(2))
    assert found.smoothness(3.0, 4.0, 0.5) == pytest.approx(expected)
    assert direct_constants(mdp, visits=0.6).inverse_lipschitz == pytest.approx(
        math.sqrt(6.0) / 0.6
    )


# --- Rates and monotonicity ---------------------------------------------------------------------


def slope(bound, low: float, high: float) -> float:
    first, last = bound(int(low)), bound(int(high))
    assert last < first
    return math.log(last / first) / math.log(high / low)


@pytest.mark.parametrize("part", ["gap", "violation"])
def test_rates_of_the_exact_theorem(part: str) -> None:
    constants = by_hand()

    def general(T: int) -> float:
        return getattr(exact_bound(constants, T), part)

    def strong(T: int) -> float:
        return getattr(exact_bound(constants, T, strongly_concave=True), part)

    assert slope(general, 1e12, 1e15) == pytest.approx(-1 / 3, abs=1e-3)
    assert slope(strong, 1e12, 1e15) == pytest.approx(-1 / 2, abs=1e-3)


def test_rates_of_the_zero_violation_theorem() -> None:
    constants = by_hand()
    for strongly, rate in ((False, -1 / 3), (True, -1 / 2)):
        T = iterations_for_zero_violation(constants, strongly)

        def pessimism(T: int, strongly: bool = strongly) -> float:
            return theory_pessimism(constants, T, strongly)

        def gap(T: int, strongly: bool = strongly) -> float:
            return zero_violation_bound(constants, T, strongly).gap

        assert slope(pessimism, T * 1e9, T * 1e12) == pytest.approx(rate, abs=5e-3)
        assert slope(gap, T * 1e9, T * 1e12) == pytest.approx(rate, abs=5e-3)


def test_rate_of_the_sample_theorem_up_to_its_logarithm() -> None:
    def without_logarithm(T: int) -> float:
        return sample_bound(by_hand(), T).gap / sample_schedule(T, 0.5).horizon

    assert slope(without_logarithm, 1e30, 1e40) == pytest.approx(-1 / 4, abs=2e-3)
    assert slope(lambda T: sample_bound(by_hand(), T).violation, 1e8, 1e12) > -1 / 4


# --- The pessimism ------------------------------------------------------------------------------


@pytest.mark.parametrize("strongly", [False, True])
def test_the_root_is_the_smallest(strongly: bool) -> None:
    constants = by_hand()
    needed = iterations_for_zero_violation(constants, strongly)
    for T in (needed, 2 * needed, 1000 * needed):
        delta = theory_pessimism(constants, T, strongly)
        assert 0 < delta < constants.margin
        value = pessimism_equation(constants, T, delta, strongly)
        assert -1e-9 <= value <= 0  # on the safe side
        before = np.linspace(0, delta * (1 - 1e-9), 200)
        assert all(pessimism_equation(constants, T, point, strongly) > 0 for point in before)


@pytest.mark.parametrize("strongly", [False, True])
def test_too_few_iterations_are_told_how_many(strongly: bool) -> None:
    constants = by_hand()
    needed = iterations_for_zero_violation(constants, strongly)
    few = int(0.99 * needed)
    with pytest.raises(TheoryError, match=f"{float(needed):.4g}".replace("+", r"\+")) as caught:
        theory_pessimism(constants, few, strongly)
    assert caught.value.iterations_needed == needed
    grid = np.linspace(0, constants.margin, 20_000, endpoint=False)
    left = [pessimism_equation(constants, few, point, strongly) for point in grid[::20]]
    assert min(left) > 0
    theory_pessimism(constants, needed, strongly)


def test_an_optimal_slater_point_has_a_constant_dual_bound() -> None:
    constants = by_hand(objective_bound=0.5)  # C_{0,delta} = 1 for every delta
    T = iterations_for_zero_violation(constants)
    delta = theory_pessimism(constants, T)
    assert delta == pytest.approx(exact_bound(constants.pessimistic(0.0), T).violation)


def test_zero_violation_bound_adds_the_loss() -> None:
    constants = by_hand(margins={"a": 0.25, "b": 0.5})
    T = 2 * iterations_for_zero_violation(constants)
    bound = zero_violation_bound(constants, T)
    delta = theory_pessimism(constants, T)
    assert bound.violation == 0.0
    assert bound.gap_terms["pessimism"] == pytest.approx(2 * delta * 2 / 0.25)
    harder = exact_bound(constants.pessimistic(delta), T)
    assert bound.gap == pytest.approx(harder.gap + bound.gap_terms["pessimism"])


def test_schedules() -> None:
    constants = by_hand()
    plain = exact_schedule(constants, 1000)
    assert plain.primal_step == pytest.approx(1 / (6 * L_THETA))
    assert plain.dual_step == pytest.approx(0.01)
    assert plain.dual_bound == {"only": pytest.approx(5.0)}
    assert (plain.iterations, plain.pessimism) == (1000, 0.0)
    assert exact_schedule(constants, 400, strongly_concave=True).dual_step == pytest.approx(0.05)
    T = 2 * iterations_for_zero_violation(constants)
    safe = exact_schedule(constants, T, zero_violation=True)
    dual = 1 + 1 / (0.25 - safe.pessimism)
    assert safe.dual_bound["only"] == pytest.approx(dual)
    assert safe.primal_step == pytest.approx(1 / ((1 + dual) * L_THETA))  # C_{0,delta}, not C_0


# --- Constants of problems ----------------------------------------------------------------------


def test_constants_of_a_problem() -> None:
    problem = small_problem(strongly=True, constraints=2)
    direct = direct_constants(problem.mdp)
    found = problem_constants(problem, direct)
    slater = cm.slater(problem)
    assert found == problem_constants(problem, direct, slater)
    assert found.margins == slater.margins
    assert found.dual_bound == pytest.approx(slater.dual_bound)
    assert (found.n_constraints, found.discount) == (2, 0.5)
    assert (found.smoothness, found.strength) == (2.0, 2.0)
    for seed in SEEDS:
        x = cm.occupancy_of(problem.mdp, random_policy(problem.mdp, generator(seed)))
        values = problem.evaluate_occupancy(x)
        assert abs(values.objective) <= found.objective_magnitude
        assert max(abs(slack) for slack in values.slack.values()) <= found.slack_magnitude
        for function in (problem.objective_function, *problem.slack_functions.values()):
            assert np.linalg.norm(function.gradient(x)) <= found.lipschitz


def test_a_problem_without_constraints() -> None:
    problem = small_problem(constraints=0)
    found = problem_constants(problem, direct_constants(problem.mdp))
    assert found.dual_bound == {}
    assert found.primal_step == pytest.approx(1 / found.parameter_smoothness)
    bound = exact_bound(found, 1000)
    assert bound.violation == bound.gap
    with pytest.raises(TheoryError, match="needs a problem with constraints"):
        theory_pessimism(found, 1000)


REFUSED = {
    "entropy": (cm.entropy(), "unbounded"),
    "kl": (-cm.distance(np.full((3, 2), 1 / 3), norm="kl"), "unbounded"),
    "log": (cm.log_sum(cm.linear("reward")), "unbounded"),
    "l1": (-cm.distance(np.full((3, 2), 1 / 3), norm="l1"), "jumps"),
    "l2": (-cm.distance(np.full((3, 2), 1 / 3), norm="l2"), "jumps"),
    "minimum": (cm.minimum(cm.linear("reward"), cm.linear("cost")), "jumps"),
    "custom": (cm.concave(lambda x: -(x**2).sum()), "declared"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_atoms_without_constants_are_refused(name: str) -> None:
    atom, reason = REFUSED[name]
    mdp = small_problem().mdp
    parameters = softmax_table_constants(1.0, 0.5)
    as_objective = cm.Problem(mdp, maximize=cm.linear("reward") + 0.5 * atom)
    with pytest.raises(TheoryError, match=r"objective.*no .*constant") as caught:
        problem_constants(as_objective, parameters)
    assert reason in str(caught.value)
    as_constraint = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"mine": atom >= -100.0}
    )
    with pytest.raises(TheoryError, match="constraint 'mine'"):
        problem_constants(as_constraint, parameters)


def test_declared_custom_constants_are_taken() -> None:
    @cm.concave(lipschitz=4.0, smoothness=2.0, bound=4.0)
    def mine(x):
        return -(x**2).sum()

    problem = cm.Problem(small_problem().mdp, maximize=mine)
    found = problem_constants(problem, softmax_table_constants(1.0, 0.5))
    assert (found.lipschitz, found.smoothness, found.objective_magnitude) == (4.0, 2.0, 4.0)


# --- Errors -------------------------------------------------------------------------------------


def test_errors() -> None:
    constants = by_hand()
    with pytest.raises(TheoryError, match="= 8 iterations") as caught:
        exact_bound(constants, 7)
    assert caught.value.iterations_needed == 8
    exact_bound(constants, 8)
    with pytest.raises(TheoryError, match="not strongly concave"):
        exact_bound(by_hand(strength=0.0), 100, strongly_concave=True)
    with pytest.raises(TheoryError, match="not strongly concave"):
        exact_schedule(by_hand(strength=0.0), 100, strongly_concave=True)
    with pytest.raises(TheoryError, match="positive integer"):
        exact_bound(constants, 10.5)  # type: ignore[arg-type]
    with pytest.raises(TheoryError, match="at most 1"):
        softmax_table_constants(1.0, 1.5)
    with pytest.raises(TheoryError, match="inverse_lipschitz"):
        softmax_table_constants(0.0, 0.5)
    with pytest.raises(TheoryError, match="less than the smallest margin"):
        constants.pessimistic(0.25)
    with pytest.raises(TheoryError, match="linear in the parameters"):
        _ = by_hand(lipschitz=0.0, smoothness=0.0).primal_step
    with pytest.raises(TheoryError, match="bounded scores"):
        sample_bound(by_hand(parameterisation=DirectConstants(1.0, 2)), 1000)
    with pytest.raises(TheoryError, match="theorem sample holds from") as caught:
        sample_bound(by_hand(), 10)
    assert caught.value.iterations_needed == 50  # ((1/2) / (0.1 * 0.5))^2 / 2
    sample_bound(by_hand(), 50)
    with pytest.raises(TheoryError, match="epsilon"):
        average_lagrangian_bound(constants, 10, 0.1, 0.6)
    with pytest.raises(TypeError):
        softmax_table_constants()  # type: ignore[call-arg]


def test_direct_needs_visits_everywhere() -> None:
    mdp = small_problem().mdp.replace(initial=0)
    with pytest.raises(TheoryError, match="starts in state 1"):
        direct_constants(mdp)
    assert direct_constants(mdp, visits=0.1).n_actions == 2


def test_a_problem_without_slater_point() -> None:
    problem = small_problem().with_budget("cost", 0.01)
    with pytest.raises(TheoryError, match="need a Slater point"):
        problem_constants(problem, softmax_table_constants(1.0, 0.5))


# --- Constants as upper bounds on what is measured ----------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_inverse_map_of_the_direct_parameterisation(seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random, unreachable=False)
    inverse = direct_constants(mdp).inverse_lipschitz
    slope = direct_constants(mdp).occupancy_lipschitz(mdp.discount)
    for _ in range(40):
        first = random_policy(mdp, random).probabilities()
        share = 10.0 ** random.uniform(-4, 0)
        second = (1 - share) * first + share * random_policy(mdp, random).probabilities()
        apart = np.linalg.norm(first - second)
        moved = np.linalg.norm(cm.occupancy_of(mdp, first) - cm.occupancy_of(mdp, second))
        assert apart <= inverse * moved * (1 + 1e-6)
        assert moved <= slope * apart * (1 + 1e-6)


def test_the_inverse_is_almost_as_steep_as_the_lemma_says_in_visits() -> None:
    """With d_0 in visits the bound is within 2 sqrt(1+A) of the truth where every state is rare."""
    states, rare = 3, 1e-3
    transition = np.zeros((states, 2, states))
    transition[:, :, 0] = 1.0  # everything leads to state 0
    initial = np.array([1 - 2 * rare, rare, rare])
    mdp = cm.TabularMDP(transition, initial, 0.9)
    first, second = np.full((states, 2), 0.5), np.full((states, 2), 0.5)
    second[1] = [0.6, 0.4]
    moved = np.linalg.norm(cm.occupancy_of(mdp, first) - cm.occupancy_of(mdp, second))
    steep = np.linalg.norm(first - second) / moved
    inverse = direct_constants(mdp).inverse_lipschitz
    assert steep <= inverse <= 2 * math.sqrt(3.0) * steep
    # The normalised d would be (1-gamma) times as small: a constant ten times too large.
    assert inverse * 10 > 2 * math.sqrt(3.0) * steep


@pytest.mark.parametrize("seed", SEEDS)
def test_smoothness_in_the_policy(seed: int) -> None:
    random = generator(100 + seed)
    mdp = random_model(random, unreachable=False)
    direct = direct_constants(mdp)
    for utility in utilities(mdp, random).values():
        problem = cm.Problem(mdp, maximize=utility)
        limit = problem_constants(problem, direct).parameter_smoothness
        function = problem.objective_function
        for _ in range(20):
            first = random_policy(mdp, random).probabilities()
            share = 10.0 ** random.uniform(-3, 0)
            second = (1 - share) * first + share * random_policy(mdp, random).probabilities()
            change = policy_gradient(mdp, function, first) - policy_gradient(mdp, function, second)
            assert np.linalg.norm(change) <= limit * np.linalg.norm(first - second) * (1 + 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_smoothness_in_the_logits(seed: int) -> None:
    random = generator(200 + seed)
    mdp = random_model(random, mask=False)
    parameters = softmax_table_constants(1.0, 0.5)
    for utility in utilities(mdp, random).values():
        problem = cm.Problem(mdp, maximize=utility)
        limit = problem_constants(problem, parameters).parameter_smoothness
        function = problem.objective_function
        for _ in range(20):
            first = random.normal(size=mdp.actions.shape) * 2
            second = first + random.normal(size=first.shape) * 10.0 ** random.uniform(-4, 0)
            change = logit_gradient(mdp, function, first) - logit_gradient(mdp, function, second)
            assert np.linalg.norm(change) <= limit * np.linalg.norm(first - second) * (1 + 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradients_measured_above_are_gradients(seed: int) -> None:
    random = generator(300 + seed)
    mdp = random_model(random, mask=False)
    for utility in utilities(mdp, random).values():
        function = utility.lower(mdp)

        def value(logits, function=function):
            return float(function.value(cm.occupancy_of(mdp, softmax(logits, axis=1))))

        logits = random.normal(size=mdp.actions.shape)
        direction = random.normal(size=logits.shape)
        step = 1e-5
        slope = (value(logits + step * direction) - value(logits - step * direction)) / (2 * step)
        found = float((logit_gradient(mdp, function, logits) * direction).sum())
        assert found == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_direct_smoothness_is_sharp_up_to_the_number_of_actions() -> None:
    """One state, action 0 stays and pays, action 1 ends: V = p / (1 - gamma p)."""
    discount = 0.9
    mdp = cm.TabularMDP(
        np.array([[[1.0], [0.0]]]), 0, discount, signals={"reward": np.array([[1.0, 0.0]])}
    )
    function = cm.linear("reward").lower(mdp)
    first, second = np.array([[1.0, 0.0]]), np.array([[1 - 1e-6, 1e-6]])
    change = policy_gradient(mdp, function, first) - policy_gradient(mdp, function, second)
    steep = np.linalg.norm(change[0, 0]) / 1e-6
    assert steep == pytest.approx(2 * discount * 1000, rel=1e-3)
    limit = direct_constants(mdp).smoothness(1.0, 0.0, discount)
    assert limit == pytest.approx(2 * steep, rel=1e-3)  # A = 2
    # The occupancy moves almost as fast as K says.
    moved = np.linalg.norm(cm.occupancy_of(mdp, first) - cm.occupancy_of(mdp, second))
    slope = moved / np.linalg.norm(first - second)
    assert slope <= direct_constants(mdp).occupancy_lipschitz(discount) <= 3 * slope


def test_truncated_occupancies_differ_by_the_discounted_tail() -> None:
    """|lambda - lambda_H| is gamma^H / (1 - gamma) with one state and one action, not gamma^H."""
    discount, horizon = 0.9, 5
    mdp = cm.TabularMDP(np.ones((1, 1, 1)), 0, discount)
    whole = float(cm.occupancy_of(mdp, cm.uniform_policy(mdp)).sum())
    cut = sum(discount**k for k in range(horizon))
    assert whole - cut == pytest.approx(discount**horizon / (1 - discount))
    assert whole - cut > discount**horizon


def truncated_gradient(mdp, function, logits, horizon):
    """The gradient of f(lambda_H(theta)) in the logits, by finite differences."""

    def value(logits):
        policy = softmax(logits, axis=1)
        chain = np.einsum("sa,sat->st", policy, mdp.dense_transition())
        now, visits = mdp.initial.copy(), np.zeros(mdp.n_states)
        for k in range(horizon):
            visits += mdp.discount**k * now
            now = now @ chain
        return float(function.value(visits[:, None] * policy))

    gradient, step = np.zeros_like(logits), 1e-5
    for index in np.ndindex(logits.shape):
        moved = np.zeros_like(logits)
        moved[index] = step
        gradient[index] = (value(logits + moved) - value(logits - moved)) / (2 * step)
    return gradient


@pytest.mark.parametrize("horizon", [1, 3, 8])
def test_truncation_of_the_gradient(horizon: int) -> None:
    random = generator(horizon)
    mdp = random_model(random, mask=False, endings=False, discount=0.8)
    parameters = softmax_table_constants(1.0, 0.5)
    for utility in utilities(mdp, random).values():
        problem = cm.Problem(mdp, maximize=utility)
        found = problem_constants(problem, parameters)
        limit = parameters.truncation(found.lipschitz, found.smoothness, 0.8, horizon)
        logits = random.normal(size=mdp.actions.shape)
        whole = logit_gradient(mdp, problem.objective_function, logits)
        cut = truncated_gradient(mdp, problem.objective_function, logits, horizon)
        assert np.linalg.norm(whole - cut) <= limit * 0.8**horizon


@pytest.mark.parametrize("seed", SEEDS)
def test_importance_weights_by_full_enumeration(seed: int) -> None:
    random = generator(seed)
    mdp = random_model(
        random, n_states=3, n_actions=2, endings=False, mask=False, discount=0.5, unreachable=False
    )
    schedule = sample_schedule(64, 0.5)
    assert schedule.horizon == 3
    constants = by_hand(parameterisation=softmax_table_constants(1.0, 0.5))
    found = sample_constants(constants, schedule)
    now = random.normal(size=(3, 2))
    direction = random.normal(size=(3, 2))
    before = now - schedule.primal_step * direction / np.linalg.norm(direction)
    new, old = softmax(now, axis=1), softmax(before, axis=1)
    transition = mdp.dense_transition()
    mean = square = 0.0
    for states in itertools.product(range(3), repeat=3):
        for actions in itertools.product(range(2), repeat=3):
            chance, weight = mdp.initial[states[0]], 1.0
            for k, (state, action) in enumerate(zip(states, actions, strict=True)):
                chance *= new[state, action]
                weight *= old[state, action] / new[state, action]
                if k < 2:
                    chance *= transition[state, action, states[k + 1]]
            assert weight <= found.weight_bound
            mean, square = mean + chance * weight, square + chance * weight**2
    assert mean == pytest.approx(1.0)
    assert 0 < square - 1.0 <= found.weight_variance * schedule.primal_step**2


def test_the_technical_lemma_and_the_sums_that_use_it() -> None:
    start, slope, T = 3.0, 2.0, 4000
    error, errors = start, [start]
    for t in range(1, T):
        error = (1 - (t + 1) ** -0.5) ** 2 * error + slope / (t + 1)
        errors.append(error)
    steps = np.arange(T)
    assert (np.array(errors) <= start / (steps + 1) + 12 * slope / np.sqrt(steps + 2)).all()
    assert ((steps + 2.0) ** -0.25).sum() <= 4 / 3 * T**0.75
    assert ((steps + 1.0) ** -0.25).sum() <= 4 / 3 * T**0.75
    assert ((steps + 2.0) ** -0.5).sum() <= 2 * T**0.5


# --- The theorem itself, on a small problem -----------------------------------------------------


def project(rows: np.ndarray) -> np.ndarray:
    """The Euclidean projection of every row on the simplex."""
    ordered = np.sort(rows, axis=1)[:, ::-1]
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    count = (ordered > excess).sum(axis=1)
    return np.maximum(rows - excess[np.arange(len(rows)), count - 1][:, None], 0.0)


@pytest.mark.parametrize("strongly", [False, True])
def test_projected_pdpg_keeps_the_promise_of_the_theorem(strongly: bool) -> None:
    problem = small_problem(3, strongly=strongly, constraints=2)
    mdp = problem.mdp
    constants = problem_constants(problem, direct_constants(mdp))
    T = 1500
    schedule = exact_schedule(constants, T, strongly_concave=strongly)
    bound = exact_bound(constants, T, strongly_concave=strongly)
    assert bound.assumes == ()
    best = cm.solve(problem)
    policy = np.array(cm.uniform_policy(mdp).probabilities())
    multipliers = dict.fromkeys(problem.constraints, 0.0)
    gaps, slacks = [], []
    for _ in range(T):
        x = cm.occupancy_of(mdp, policy)
        here = problem.evaluate_occupancy(x)
        gaps.append(best.objective - here.objective)
        slacks.append(list(here.slack.values()))
        visits, q = visits_and_q(mdp, policy, problem.shadow_reward(x, multipliers))
        following = project(policy + schedule.primal_step * visits[:, None] * q)
        # The step is short enough: the Lagrangian never falls, and the lemma's recursion holds.
        before = problem.lagrangian(x, multipliers)
        after = problem.lagrangian(cm.occupancy_of(mdp, following), multipliers)
        assert after >= before - 1e-12
        top = problem.lagrangian(best.occupancy, multipliers)
        for epsilon in (0.01, 0.1, 1.0):
            reach = 2 * (constants.parameterisation.inverse_lipschitz / 0.5) ** 2
            lost = epsilon**2 * constants.lagrangian_smoothness * reach
            assert top - after <= (1 - epsilon) * (top - before) + lost + 1e-9
        if strongly:
            assert top - after <= (1 - strong_mixing(constants)) * (top - before) + 1e-9
        multipliers = {
            name: float(
                np.clip(mu - schedule.dual_step * here.slack[name], 0, schedule.dual_bound[name])
            )
            for name, mu in multipliers.items()
        }
        policy = following
    assert np.mean(gaps) <= bound.gap
    assert np.linalg.norm(np.maximum(0, -np.mean(slacks, axis=0))) <= bound.violation


def test_bounds_shrink_with_better_constants() -> None:
    """Every constant that the theorem wants small makes the bound smaller when it is."""
    constants = by_hand()
    for name in ("objective_magnitude", "slack_magnitude", "lipschitz", "smoothness"):
        better = replace(constants, **{name: 0.9 * getattr(constants, name)})
        assert exact_bound(better, 1000).violation < exact_bound(constants, 1000).violation
        assert sample_bound(better, 1000).gap < sample_bound(constants, 1000).gap
    wider = replace(constants, margins={"only": 0.5})
    assert exact_bound(wider, 1000).violation < exact_bound(constants, 1000).violation
