"""The algebra of utilities: what can be written, what it means, and what is refused with a fix."""

# ruff: noqa: SIM300 (numbers on the left are what is tested)

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.base.errors import CurvatureError, UtilityError
from strategies import (
    generator,
    random_concave_utility,
    random_convex_utility,
    random_model,
    random_occupancy,
    seeds,
)

numbers = st.floats(-100, 100, allow_subnormal=False)
reward, cost, spread = cm.linear("reward"), cm.linear("cost"), cm.entropy()


def _name(parameter: object) -> str | None:
    """A test's name as the user would write it; functions get a number, the same in every process."""
    return None if callable(parameter) else repr(parameter)


@pytest.fixture(scope="module")
def mdp():
    return random_model(generator(1), n_states=4, n_actions=2, discount=0.9)


@pytest.fixture(scope="module")
def x(mdp):
    return random_occupancy(mdp, generator(2))


def far(norm="l2"):
    return cm.distance(np.full((4, 2), 0.7), norm=norm)


# What expressions mean.


@settings(max_examples=40)
@given(seed=seeds, first=numbers, second=numbers, constant=numbers)
def test_linear_combinations_have_the_combined_value_and_gradient(seed, first, second, constant):
    random = generator(seed)
    mdp = random_model(random)
    u, v = random_concave_utility(mdp, random), random_convex_utility(mdp, random)
    x = random_occupancy(mdp, random)
    combined = (first * u - v * second + constant).lower(mdp)
    f, g = u.lower(mdp), v.lower(mdp)
    value = first * f.value(x) - second * g.value(x) + constant
    assert combined.value(x) == pytest.approx(float(value), rel=1e-9, abs=1e-9)
    gradient = first * f.gradient(x) - second * g.gradient(x)
    np.testing.assert_allclose(combined.gradient(x), gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (reward + cost, lambda r, c: r + c),
        (reward - cost, lambda r, c: r - c),
        (-reward, lambda r, c: -r),
        (reward / 4, lambda r, c: r / 4),
        (3 * reward, lambda r, c: 3 * r),
        (reward * 3, lambda r, c: 3 * r),
        (5 - reward, lambda r, c: 5 - r),
        (reward - 5, lambda r, c: r - 5),
        (5 + reward, lambda r, c: r + 5),
        (-(2 * (reward - 1) - cost) / 2, lambda r, c: 1 - r + c / 2),
        (sum([reward, cost, reward]), lambda r, c: 2 * r + c),
        (Fraction(1, 4) * reward, lambda r, c: r / 4),
        (np.float64(2) * reward, lambda r, c: 2 * r),
        (np.float32(2) * reward, lambda r, c: 2 * r),
        (np.int64(2) * reward, lambda r, c: 2 * r),
        (reward * np.float64(2), lambda r, c: 2 * r),
        (np.array(2.0) * reward, lambda r, c: 2 * r),
        (reward * np.array(2.0), lambda r, c: 2 * r),
        (np.float64(2) + reward, lambda r, c: 2 + r),
        (np.float64(2) - reward, lambda r, c: 2 - r),
        (reward / np.float64(2), lambda r, c: r / 2),
        (0 * reward + 4, lambda r, c: 4),
        (reward - reward, lambda r, c: 0),
    ],
    ids=_name,
)
def test_expressions(expression, expected, mdp, x):
    r, c = (float(u.lower(mdp).value(x)) for u in (reward, cost))
    value = float(expression.lower(mdp).value(x))
    assert value == pytest.approx(expected(r, c), rel=1e-12, abs=1e-12)


def test_a_neutral_operation_leaves_the_atom_itself():
    assert 1 * spread is spread
    assert spread + 0 is spread
    negated = -spread
    assert -negated is spread
    assert spread / 1.0 is spread


@pytest.mark.parametrize(
    ("expression", "curvature"),
    [
        (reward, "AFFINE"),
        (reward - cost, "AFFINE"),
        (spread, "CONCAVE"),
        (-spread, "CONVEX"),
        (spread * 0, "AFFINE"),
        (spread + reward, "CONCAVE"),
        (spread - far(), "CONCAVE"),
        (far() - spread - 3, "CONVEX"),
        (far() - reward, "CONVEX"),
        (spread + far(), "UNKNOWN"),
        (spread - spread, "UNKNOWN"),
        (cm.minimum(reward, cost), "CONCAVE"),
        (-2 * cm.minimum(reward, spread) + far(), "CONVEX"),
        (cm.log_barrier(far() <= 1), "CONCAVE"),
        (cm.quadratic(np.eye(8)), "CONVEX"),
        (-cm.quadratic(np.eye(8)), "CONCAVE"),
        (cm.quadratic(-np.eye(8)), "CONCAVE"),
    ],
    ids=_name,
)
def test_curvature_rules(expression, curvature):
    assert expression.curvature is cm.Curvature[curvature]


def test_utilities_are_values_to_copy_and_to_use_as_keys(mdp, x):
    again = copy.deepcopy(spread + 0.5 * reward)
    value = (spread + 0.5 * reward).lower(mdp).value(x)
    assert again.lower(mdp).value(x) == value
    assert {spread: 1}[spread] == 1
    assert spread == spread
    assert spread != cm.entropy()


# Constraints.


@pytest.mark.parametrize(
    ("constraint", "slack"),
    [
        (cost <= 3, lambda r, c: 3 - c),
        (cost >= 3, lambda r, c: c - 3),
        (3 >= cost, lambda r, c: 3 - c),
        (3 <= cost, lambda r, c: c - 3),
        (np.float64(3) <= cost, lambda r, c: c - 3),
        (np.float64(3) >= cost, lambda r, c: 3 - c),
        (np.array(3.0) <= cost, lambda r, c: c - 3),
        (cost <= np.float32(3), lambda r, c: 3 - c),
        (cost <= reward, lambda r, c: r - c),
        (cost >= reward + 1, lambda r, c: c - r - 1),
        (cost - 1 <= 2, lambda r, c: 3 - c),
        (2 * cost <= 3, lambda r, c: 3 - 2 * c),
        ((cost <= 3).with_budget(5), lambda r, c: 5 - c),
        ((cost >= 3).with_budget(5), lambda r, c: c - 5),
        (cm.Constraint(cost, "<=", 3.0), lambda r, c: 3 - c),
    ],
    ids=_name,
)
def test_slack_is_positive_where_the_constraint_holds(constraint, slack, mdp, x):
    r, c = (float(u.lower(mdp).value(x)) for u in (reward, cost))
    assert constraint.slack.curvature.is_concave
    value = float(constraint.slack.lower(mdp).value(x))
    assert value == pytest.approx(slack(r, c), rel=1e-12, abs=1e-12)


def test_per_step_is_one_minus_discount_times_the_total(mdp, x):
    total = float(cost.lower(mdp).value(x))
    per_step = cm.linear("cost", per="step") <= 0.3
    assert float(per_step.slack.lower(mdp).value(x)) == pytest.approx(0.3 - 0.1 * total)


def test_curved_constraints_between_two_utilities(mdp, x):
    constraint = far() <= spread
    f, g = far().lower(mdp).value(x), spread.lower(mdp).value(x)
    assert constraint.slack.curvature is cm.Curvature.CONCAVE
    assert float(constraint.slack.lower(mdp).value(x)) == pytest.approx(float(g - f))


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (
            lambda: far() >= 0.1,
            r'distance\(<occupancy>, norm="l2"\) is convex\. .*bounded from above',
        ),
        (lambda: 0.1 <= far(), ">= needs a concave utility"),
        (lambda: spread <= 0.1, r"the term entropy\(\) is concave\. .*bounded from below"),
        (lambda: -2 * spread >= 0.1, r"the term -2 \* entropy\(\) is convex"),
        (lambda: spread + far() <= 1, r"neither .*the term entropy\(\) is concave"),
        (lambda: spread + far() >= 1, r"neither .*the term distance"),
        (lambda: spread <= far(), "<= needs a convex utility"),
        (lambda: cm.minimum(reward, cost) <= 1, r"minimum\(.*\) is concave"),
        (lambda: cm.log_sum("reward") <= 1, "log_sum.* is concave"),
        (lambda: cm.quadratic(np.eye(2)) >= 1, r"quadratic\(<convex>\) is convex"),
        (lambda: spread * spread, r"product of entropy\(\) and entropy\(\)"),
    ],
)
def test_wrong_curvature_names_the_atom_and_the_fix(compare, message):
    with pytest.raises(CurvatureError, match=message):
        compare()


@pytest.mark.parametrize(
    ("utility", "message"),
    [
        (
            far(),
            r"needs a concave utility, but distance.* Convex utilities are minimised \(minimize=\)",
        ),
        (spread + far(), "neither concave nor convex by the rules: the term distance"),
        (reward - spread, r"the term -1 \* entropy\(\) is convex"),
    ],
)
def test_a_problem_refuses_to_maximise_what_is_not_concave(utility, message, mdp):
    with pytest.raises(CurvatureError, match=message):
        cm.Problem(mdp, maximize=utility)


# Misuse.


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: 0.1 <= spread <= 0.2, "two-sided chain .* two constraints"),
        (lambda: bool(cost <= 1), "no truth value"),
        (lambda: cost < 1, "write <= or >= instead"),
        (lambda: cost > 1, "write <= or >= instead"),
        (lambda: 1 < cost, "write <= or >= instead"),
        (lambda: np.float64(1) > cost, "write <= or >= instead"),
        (lambda: cost == 1, "equalities are not supported"),
        (lambda: 1 == cost, "equalities are not supported"),
        (lambda: np.float64(1) == cost, "equalities are not supported"),
        (lambda: cost != 1, "equalities are not supported"),
        (lambda: cost * np.nan, r'linear\("cost"\) is multiplied with nan; expected a finite'),
        (lambda: np.inf * cost, "multiplied with inf"),
        (lambda: cost * 10**400, "expected a finite number"),
        (lambda: (1e300 * cost) * 1e300, "too large"),
        (lambda: cost * True, "multiplied with True; expected a number"),
        (lambda: np.True_ * cost, "expected a number"),
        (lambda: cost * np.array(True), "expected a number"),
        (lambda: cost * np.ones(2), "multiplied with array"),
        (lambda: np.ones(2) * cost, "multiplied with array"),
        (lambda: np.ones((4, 2)) + cost, "added to array"),
        (lambda: cost * "2", "multiplied with '2'"),
        (lambda: cost * None, "expected a number"),
        (lambda: cost * 2j, "expected a number"),
        (lambda: cost + "x", "added to 'x'"),
        (lambda: cost - None, "taken from None"),
        (lambda: cost / 0, "divided by zero"),
        (lambda: cost / np.float64(0), "divided by zero"),
        (lambda: cost / np.nan, "divided by nan"),
        (lambda: cost / spread, r"divided by entropy\(\); expected a number"),
        (lambda: cost <= np.nan, "compared with nan"),
        (lambda: cost <= np.inf, "compared with inf"),
        (lambda: cost <= "low", "compared with 'low'"),
        (lambda: np.array([0.1, 0.2]) <= cost, "compared with array"),
        (lambda: (cost <= 1).with_budget(np.nan), "compared with nan"),
        (lambda: cm.Constraint(cost, "<", 1.0), "'<=' or '>='; got '<'"),
        (lambda: cm.Constraint(cost, "==", 1.0), "'<=' or '>='; got '=='"),
    ],
)
def test_misuse_is_refused_with_the_fix(misuse, message):
    with pytest.raises(UtilityError, match=message):
        misuse()


@pytest.mark.parametrize("misuse", [lambda: 2 / cost, lambda: cost**2, lambda: abs(cost)])
def test_what_is_not_defined_is_a_type_error(misuse):
    with pytest.raises(TypeError, match=r"unsupported|bad operand"):
        misuse()


# How it reads.


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (reward, 'linear("reward")'),
        (cm.linear("cost", per="step") <= 0.02, 'linear("cost", per="step") <= 0.02'),
        (cm.linear(np.ones((4, 2))), "linear(<4 x 2 array>)"),
        (cm.linear(np.ones(4)), "linear(<4 array>)"),
        (spread, "entropy()"),
        (cm.entropy(of="state-action"), 'entropy(of="state-action")'),
        (-spread, "-entropy()"),
        (-2 * spread, "-2 * entropy()"),
        (reward + 0.1 * spread, 'linear("reward") + 0.1 * entropy()'),
        (reward - cost - 1, 'linear("reward") - linear("cost") - 1'),
        (0 * reward, "0"),
        (0 * reward - 2, "-2"),
        (3 - reward, '-linear("reward") + 3'),
        (far(), 'distance(<occupancy>, norm="l2")'),
        (
            cm.distance(cm.TabularPolicy([[1.0]]), norm="kl", smoothing=0.1),
            'distance(<policy>, norm="kl", smoothing=0.1)',
        ),
        (cm.distance(cm.box(0, 1), norm="l1"), 'distance(box(...), norm="l1")'),
        (cm.distance(cm.ball([[1.0]], 0.5)), 'distance(ball(..., 0.5), norm="l2")'),
        (
            cm.distance(cm.polytope(np.eye(3), np.ones(3))),
            'distance(polytope(<3 inequalities>), norm="l2")',
        ),
        (cm.log_barrier(cost <= 1), 'log_barrier(linear("cost") <= 1)'),
        (
            cm.log_sum("reward", "cost"),
            'log_sum(linear("reward")) + log_sum(linear("cost"))',
        ),
        (cm.minimum(reward, spread - 1), 'minimum(linear("reward"), entropy() - 1)'),
        (cm.quadratic(-np.eye(2)), "quadratic(<concave>)"),
        (cost <= reward, 'linear("cost") - linear("reward") <= 0'),
        (0.5 <= spread, "entropy() >= 0.5"),
    ],
)
def test_repr_reads_like_what_was_written(written, text):
    assert repr(written) == text


@pytest.mark.parametrize(
    "written",
    [
        reward + 0.1 * spread - 2,
        -3 * cm.minimum(reward, cost - 1) + cm.linear("cost", per="step"),
        cm.log_barrier(cost <= 50) + cm.log_sum("reward", "cost"),
        0 * reward - 2,
    ],
    ids=_name,
)
def test_repr_can_be_evaluated_where_it_holds_no_array(written, mdp, x):
    names = {name: getattr(cm, name) for name in cm.__all__}
    again = eval(repr(written), names)  # our own text
    again = 0 * reward + again if isinstance(again, int) else again
    assert again.lower(mdp).value(x) == written.lower(mdp).value(x)
