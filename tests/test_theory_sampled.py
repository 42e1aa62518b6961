"""Zero violation from samples: the theorem's pessimism by hand, plans, and bound beside measurement."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp import theory
from cvxmdp.base.errors import SettingsError
from cvxmdp.theory.theorem_sample import least_sampled_iterations

SOFTMAX = theory.softmax_table_constants(inverse_lipschitz=0.5, inverse_radius=0.5)


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    """One state, two actions, discount 1/2; x = (2p, 2 - 2p), f = 2p, g = 1 - 2p."""
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), [1.0], 0.5, signals={"reward": [[1.0, 0.0]]})
    limits = {"cost": cm.linear("reward") <= 1.0}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def by_hand(T: int, delta: float, magnitude: float, slack: float) -> float:
    """V(T, delta): lemmas avg_L_sample and obtain_opt_const_sample for linear f and g, gamma = 1/2.

    M_lambda = 1, l_lambda = 0, M_pi1 = 1, M_pi2 = 0, L_lambda = 1/2; C_{0,delta} = 1 + 2 / (1 - delta), because
    the Slater point (p = 0) has f = 0 and slack 1, and f is at most 2.
    """
    D, L, C = 2.0, 0.5, 1.0 + 2.0 / (1.0 - delta)
    eta, eta_mu, H = T**-0.5, T**-0.75, math.ceil(0.5 * math.log2(T) * (1 - 1e-12))
    W = math.exp(2 * H * eta)
    C_w = H * (W + 1) * (8 * H + 2)
    C_lambda = (1 + C_w) * D**2
    mean, square = 4 / 3 * math.sqrt(26 * C_lambda) * T**-0.25, 2 * 26 * C_lambda * T**-0.5
    beta = (32 + 24 * (C_w + 1)) * D**4
    gradient = 4 / 3 * math.sqrt(23 * D**4 + 12 * beta) * T**-0.25
    epsilon = eta / (math.sqrt(2) * L * D)
    l_theta = 8 * D**3 + 2 * D**2
    truncation = math.sqrt(16 * ((H + 1) ** 2 * D**2 + D**4))
    cut = 0.5**H
    g = slack + 1.0  # |g - delta| <= M + xi
    terms = [
        2 * magnitude / (epsilon * T),
        2 * eta * (1 + C) * gradient / epsilon,
        (1 + C) * l_theta * (epsilon * (L * D) ** 2 + 0.5 * eta**2 / epsilon),
        2 * (1 + C) * truncation * eta * cut / epsilon,
        2 * eta_mu * g * (g + cut * D + mean) / epsilon,
        eta_mu * g**2,
        C * cut * D + 2 * eta_mu * (cut * D) ** 2,
        C * mean + 2 * eta_mu * square,
        C**2 / (2 * T * eta_mu),
    ]
    return sum(terms)


def test_the_pessimism_of_a_tiny_model_by_hand(problem):
    constants = theory.problem_constants(problem, SOFTMAX)
    assert constants.margins["cost"] == pytest.approx(1.0)
    harder = constants.pessimistic(0.25)
    assert harder.dual_bound["cost"] == pytest.approx(1 + 2 / 0.75)
    sizes = constants.objective_magnitude, constants.slack_magnitude
    for T, delta in ((10**6, 0.0), (10**20, 0.25), (10**30, 0.5)):
        expected = by_hand(T, delta, *sizes) - delta
        found = theory.sampled_pessimism_equation(constants, T, delta)
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_pessimism_is_the_smallest_root_and_falls_like_the_fourth_root(problem):
    constants = theory.problem_constants(problem, SOFTMAX)
    needed = theory.iterations_for_sampled_zero_violation(constants)
    pessimism = [theory.sampled_pessimism(constants, needed * 10**k) for k in (0, 4, 8)]
    for k, delta in zip((0, 4, 8), pessimism, strict=True):
        T = needed * 10**k
        assert theory.sampled_pessimism_equation(constants, T, delta) <= 0
        assert theory.sampled_pessimism_equation(constants, T, delta * (1 - 1e-9)) >= 0
        inside = np.linspace(0, delta, 20, endpoint=False)
        assert min(theory.sampled_pessimism_equation(constants, T, d) for d in inside) > 0
    assert pessimism[2] / pessimism[1] == pytest.approx(0.1, rel=0.5)  # times a logarithm
    bound = theory.sampled_zero_violation_bound(constants, needed * 10**8)
    harder = theory.sample_bound(constants.pessimistic(pessimism[2]), needed * 10**8)
    loss = 2 * pessimism[2] * constants.objective_magnitude
    assert bound.gap == pytest.approx(harder.gap + loss)
    assert bound.violation == 0


def test_too_few_iterations_are_refused_with_what_it_takes(problem):
    constants = theory.problem_constants(problem, SOFTMAX)
    needed = theory.iterations_for_sampled_zero_violation(constants)
    with pytest.raises(theory.TheoryError, match=r'it needs about .* pessimism="auto"') as caught:
        cm.VRPDPG.theory(problem, 10_000, zero_violation=True, parameterisation=SOFTMAX)
    assert caught.value.iterations_needed == needed
    with pytest.raises(SettingsError, match="softmax_table_constants"):
        cm.VRPDPG.theory(problem, 10_000, zero_violation=True)
    solver = cm.VRPDPG.theory(problem, 2 * needed, zero_violation=True, parameterisation=SOFTMAX)
    delta = theory.sampled_pessimism(constants, 2 * needed)
    assert solver.pessimism == delta
    assert solver.dual_bound["cost"] == pytest.approx(1 + 2 / (1 - delta))


def test_a_discount_of_one_is_refused_in_words_that_fit_it():
    with pytest.raises(theory.TheoryError, match=r"at least 0 and less than 1; got 1\.0"):
        theory.sample_schedule(100, 1.0)


def test_plans_go_from_accuracy_to_samples(problem):
    constants = theory.problem_constants(problem, SOFTMAX)
    rough, fine = (theory.sample_plan(constants, accuracy) for accuracy in (1.0, 0.1))
    for plan in (rough, fine):
        assert max(plan.bound.gap, plan.bound.violation) <= plan.accuracy
        fewer = theory.sample_bound(constants, int(plan.iterations / 1.01))
        assert max(fewer.gap, fewer.violation) > plan.accuracy
        assert plan.samples == plan.iterations * plan.horizon
    assert 1e4 < fine.iterations / rough.iterations < 1e6  # eps^-4, and logarithms
    none = theory.sample_plan(constants, 1.0, zero_violation=True)
    assert none.pessimism > 0
    assert "violation zero" in str(none)
    assert none.iterations >= least_sampled_iterations(constants)


def test_bound_beside_a_sampled_run(problem):
    constants = theory.problem_constants(problem, SOFTMAX)
    found = cm.solve(problem, cm.VRPDPG.theory(problem, 200), seed=0)
    comparison = theory.compare(problem, found, constants, sampled=True, optimum=1.0)
    assert comparison.departures == ()
    assert comparison.holds
    slack = found.history["played_slack"]["cost"]
    assert comparison.slack["cost"] == pytest.approx(slack.mean())
    # f = 1 - g here, at every iterate.
    assert comparison.gap == pytest.approx(slack.mean(), abs=1e-9)
    other = cm.solve(problem, cm.VRPDPG(200, 0.1, 0.3, 0.5, 4, initial_multiplier=1.0), seed=0)
    said = theory.compare(problem, other, constants, sampled=True, optimum=1.0).departures
    assert any("momentum" in one for one in said)
    assert any("starts at 1" in one for one in said)
    with pytest.raises(theory.TheoryError, match="history of a run of VRPDPG"):
        theory.compare(problem, cm.solve(problem), constants, sampled=True)
