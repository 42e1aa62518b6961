"""Every atom keeps the contract of ``Shape``; and each has its closed forms and borders."""

from __future__ import annotations

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from cvxmdp.base.errors import CurvatureError, ModelError, PolicyError, UtilityError
from cvxmdp.base.precision import double_precision
from cvxmdp.problems.conic_statement import OccupancyProgram
from strategies import (
    AFFINE,
    CUSTOM_CONCAVE,
    CUSTOM_CONVEX,
    EVERY_UTILITY,
    generator,
    interior_point,
    random_concave_utility,
    random_constraint,
    random_convex_utility,
    random_model,
    random_occupancy,
    random_policy,
    seeds,
    under_jit,
)

every_utility = pytest.mark.parametrize("kind", list(EVERY_UTILITY))


@pytest.fixture(scope="module", params=["plain", "ragged"])
def mdp(request):
    """Five states and three actions; the ragged one has endings, a mask and an unreachable state."""
    ragged = request.param == "ragged"
    return random_model(
        generator(3),
        n_states=5,
        n_actions=3,
        discount=0.8,
        endings=ragged,
        mask=ragged,
        unreachable=ragged,
    )


def bound(kind: str, mdp: cm.TabularMDP):
    return EVERY_UTILITY[kind](mdp, generator(17)).lower(mdp)


def utility_of(kind: str, mdp: cm.TabularMDP) -> cm.Utility:
    return EVERY_UTILITY[kind](mdp, generator(17))


def pairs_of_occupancies(mdp: cm.TabularMDP, count: int):
    random = generator(5)
    return [(random_occupancy(mdp, random), random_occupancy(mdp, random)) for _ in range(count)]


# The contract.


@every_utility
def test_numpy_stays_float64_whatever_the_flag_of_jax(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(1))
    results = []
    for flag in (False, True):
        with jax.enable_x64(flag):
            value, gradient = function.value(x), function.gradient(x)
        assert np.asarray(value).dtype == np.float64
        assert np.shape(value) == ()
        assert isinstance(gradient, np.ndarray)
        assert gradient.dtype == np.float64
        assert gradient.shape == x.shape
        results.append((float(value), gradient))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


@every_utility
def test_numpy_and_jax_agree_also_under_jit_and_as_pytree(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(1))
    with double_precision():
        point = jnp.asarray(x)
        compiled = under_jit(function, point)
        for value in (function.value(point), compiled[0]):
            np.testing.assert_allclose(value, function.value(x), rtol=1e-10, atol=1e-12)
        for gradient in (function.gradient(point), compiled[1]):
            assert gradient.dtype == jnp.float64
            np.testing.assert_allclose(gradient, function.gradient(x), rtol=1e-9, atol=1e-10)


@every_utility
def test_gradient_is_the_automatic_derivative_of_the_value(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(2))
    with double_precision():
        automatic = under_jit(function, jnp.asarray(x))[2]
    np.testing.assert_allclose(automatic, function.gradient(x), rtol=1e-8, atol=1e-9)


@every_utility
def test_gradient_equals_finite_differences(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(2))
    step = 1e-5
    differences = np.empty_like(x)
    for pair in np.ndindex(*x.shape):
        move = np.zeros_like(x)
        move[pair] = step
        differences[pair] = (function.value(x + move) - function.value(x - move)) / (2 * step)
    gradient = function.gradient(x)
    error = np.abs(gradient - differences).max()
    assert error <= 1e-6 * max(1.0, np.abs(gradient).max())


@every_utility
def test_float32_under_jax(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(1))
    with jax.enable_x64(False):
        point = jnp.asarray(x, jnp.float32)
        value, gradient, _ = under_jit(function, point)
    assert value.dtype == gradient.dtype == jnp.float32
    np.testing.assert_allclose(value, function.value(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradient, function.gradient(x), rtol=1e-3, atol=1e-3)


@every_utility
def test_flatten_and_unflatten(kind, mdp):
    function, x = bound(kind, mdp), interior_point(mdp, generator(1))
    leaves, structure = jax.tree.flatten(function)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(function)
    assert again.value(x) == function.value(x)
    # Bound anew, the structure is the same one: compiled code is used again, not compiled anew.
    assert jax.tree.structure(utility_of(kind, mdp).lower(mdp)) == structure


@every_utility
def test_curvature_inequality(kind, mdp):
    utility, function = utility_of(kind, mdp), bound(kind, mdp)
    for x, y in pairs_of_occupancies(mdp, 40):
        share = 0.3
        at_mean = function.value((1 - share) * x + share * y)
        mean = (1 - share) * function.value(x) + share * function.value(y)
        if utility.curvature.is_concave:
            assert at_mean >= mean - 1e-10
        if utility.curvature.is_convex:
            assert at_mean <= mean + 1e-10


@every_utility
def test_supergradient_inequality(kind, mdp):
    """The tangent lies above a concave function and below a convex one, also from the border."""
    utility, function = utility_of(kind, mdp), bound(kind, mdp)
    for x, y in pairs_of_occupancies(mdp, 40):
        tangent = function.value(x) + np.vdot(function.gradient(x), y - x)
        if utility.curvature.is_concave:
            assert function.value(y) <= tangent + 1e-10
        if utility.curvature.is_convex:
            assert function.value(y) >= tangent - 1e-10


def value_of_cvxpy_form(function, utility: cm.Utility, mdp: cm.TabularMDP, x: np.ndarray) -> float:
    variable = OccupancyProgram(mdp.reachable_pairs)
    form = function.conic(variable).expression
    if not variable.side_constraints:
        variable.shares.value = x[mdp.reachable_pairs]
        return float(form.value)
    sense = cp.Maximize if utility.curvature.is_concave else cp.Minimize
    fixed = [variable.pairs == x[mdp.reachable_pairs]]
    program = cp.Problem(sense(form), [*fixed, *variable.side_constraints])
    return float(program.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("kind", list(EVERY_UTILITY))
def test_cvxpy_form_has_the_same_value_and_curvature(kind, mdp):
    utility, function = utility_of(kind, mdp), bound(kind, mdp)
    if kind in {**CUSTOM_CONCAVE, **CUSTOM_CONVEX}:
        assert not function.has_conic_form
        return
    form = function.conic(OccupancyProgram(mdp.reachable_pairs)).expression
    assert form.is_concave() if utility.curvature.is_concave else form.is_convex()
    for policy in (cm.uniform_policy(mdp), random_policy(mdp, generator(4))):
        x = cm.occupancy_of(mdp, policy)
        value = value_of_cvxpy_form(function, utility, mdp, x)
        assert value == pytest.approx(float(function.value(x)), rel=1e-5, abs=1e-6)


@every_utility
def test_affine(kind, mdp):
    function = bound(kind, mdp)
    part = function.affine()
    assert (part is not None) == (kind in AFFINE)
    if part is not None:
        x = interior_point(mdp, generator(1))
        value = np.vdot(part.reward, x) + part.offset
        assert part.reward.shape == x.shape
        assert value == pytest.approx(float(function.value(x)), rel=1e-12)


@every_utility
def test_constants_are_bounds(kind, mdp):
    utility, function = utility_of(kind, mdp), bound(kind, mdp)
    constants = function.constants(mdp)
    for x, y in pairs_of_occupancies(mdp, 40):
        values = function.value(x), function.value(y)
        slopes = function.gradient(x), function.gradient(y)
        apart = np.linalg.norm(x - y)
        if constants.lipschitz is not None:
            assert np.linalg.norm(slopes[0]) <= constants.lipschitz * (1 + 1e-12)
            assert abs(values[0] - values[1]) <= constants.lipschitz * apart + 1e-12
        if constants.smoothness is not None:
            assert np.abs(slopes[0] - slopes[1]).max() <= constants.smoothness * apart + 1e-12
        if constants.bound is not None:
            assert abs(values[0]) <= constants.bound * (1 + 1e-12)
        bend = np.vdot(slopes[0], y - x) - (values[1] - values[0])
        bend = bend if utility.curvature.is_concave else -bend
        assert bend >= constants.strength / 2 * apart**2 - 1e-10


WITH_EVERY_CONSTANT = {
    *(kind for kind in AFFINE),
    "l2-squared to occupancy",
    "l2-squared to ball",
    "l2-squared to box",
    "l2-squared to polytope",
    "l2-squared of returns to a ball",
    "chi2 to policy",
    "square",
    "quadratic concave matrix",
    "quadratic concave weights",
    "quadratic convex matrix",
    "quadratic weights per state",
    "quadratic factor",
}
STRONG = {"l2-squared to occupancy", "quadratic concave matrix", "quadratic convex matrix"}


@every_utility
def test_which_constants_are_known(kind, mdp):
    """Theory needs all three; kinks and unbounded gradients must not claim a smoothness."""
    constants = bound(kind, mdp).constants(mdp)
    known = None not in (constants.lipschitz, constants.smoothness, constants.bound)
    assert known == (kind in WITH_EVERY_CONSTANT)
    if kind in STRONG:
        assert constants.strength > 0
    if kind in AFFINE:
        assert constants.strength == 0


@pytest.mark.parametrize("kind", [kind for kind in EVERY_UTILITY if kind != "constant"])
def test_not_a_number_is_never_hidden(kind, mdp):
    """A NaN in the occupancy must show in the value: 0 or -inf in its place would go unnoticed."""
    x = np.full((mdp.n_states, mdp.n_actions), np.nan)
    function = bound(kind, mdp)
    assert np.isnan(function.value(x))
    with double_precision():
        assert np.isnan(under_jit(function, jnp.asarray(x))[0])


def test_numbers_of_a_function_are_leaves_so_budgets_can_be_batched(mdp):
    """What sweeps rest on: one compiled function for many budgets."""
    budgets = jnp.array([0.5, 1.0, 2.0])
    slack = (cm.distance(cm.uniform_policy(mdp)) <= 1.0).slack.lower(mdp)
    x = jnp.asarray(interior_point(mdp, generator(1)), jnp.float32)

    def value(budget):
        return type(slack)(slack.parts, slack.weights, budget).value(x)

    batched = jax.vmap(value)(budgets)
    np.testing.assert_allclose(np.diff(batched), [0.5, 1.0], rtol=1e-5)


@settings(max_examples=60)
@given(seed=seeds)
def test_random_utilities_are_curved_as_they_say(seed):
    random = generator(seed)
    mdp = random_model(random)
    x, y = random_occupancy(mdp, random), random_occupancy(mdp, random)
    for draw, sign in ((random_concave_utility, 1.0), (random_convex_utility, -1.0)):
        function = draw(mdp, random).lower(mdp)
        tangent = function.value(x) + np.vdot(function.gradient(x), y - x)
        assert sign * (tangent - function.value(y)) >= -1e-9
        middle = function.value((x + y) / 2) - (function.value(x) + function.value(y)) / 2
        assert sign * middle >= -1e-9


@settings(max_examples=40)
@given(seed=seeds)
def test_random_constraints_hold_for_the_policy_they_are_made_for(seed):
    random = generator(seed)
    mdp = random_model(random)
    policy = random_policy(mdp, random)
    constraint = random_constraint(mdp, random, policy)
    slack = constraint.slack.lower(mdp).value(cm.occupancy_of(mdp, policy))
    assert 0.04 <= slack <= 0.51


# Closed forms.


@pytest.fixture(scope="module")
def tiny():
    """Two states, one action: from the first to the second, where the episode stays."""
    return cm.TabularMDP(
        [[[0.0, 1.0]], [[0.0, 1.0]]], 0, 0.5, signals={"reward": [3.0, -1.0]}
    )  # its only occupancy is (1, 1)


def test_linear_closed_form(tiny):
    x = np.array([[1.0], [1.0]])
    assert cm.linear("reward").lower(tiny).value(x) == 2.0
    assert cm.linear("reward", per="step").lower(tiny).value(x) == 1.0
    assert cm.linear([1.0, 10.0]).lower(tiny).value(x) == 11.0
    assert cm.linear([[1.0], [10.0]], per="step").lower(tiny).value(x) == 5.5


@pytest.mark.parametrize("of", ["state", "state-action"])
def test_entropy_closed_form(tiny, of):
    value = cm.entropy(of=of).lower(tiny).value(np.array([[1.0], [1.0]]))
    assert value == pytest.approx(np.log(2), rel=1e-14)


@pytest.mark.parametrize(
    ("norm", "value"),
    [
        ("l1", 1.5),
        ("l2", np.sqrt(1.25)),
        ("l2-squared", 1.25),
        # p = (1/2, 1/2), q = (1, 1/4)
        ("kl", 0.5 * np.log(0.5) + 0.5 * np.log(2.0) - 1.0 + 1.25),
    ],
)
def test_distance_closed_form(tiny, norm, value):
    function = cm.distance([[2.0], [0.5]], norm=norm).lower(tiny)
    assert function.value(np.array([[1.0], [1.0]])) == pytest.approx(value, rel=1e-14)


def test_kl_smoothing_mixes_the_uniform_policy_into_the_target():
    mdp = cm.garnet(4, 2, 2, seed=0, discount=0.5)
    policy = cm.TabularPolicy(np.tile([1.0, 0.0], (4, 1)))
    smoothed = cm.distance(policy, norm="kl", smoothing=0.25).lower(mdp)
    mixture = 0.75 * cm.occupancy_of(mdp, policy) + 0.25 * cm.occupancy_of(
        mdp, cm.uniform_policy(mdp)
    )
    assert smoothed.value(mixture) == pytest.approx(0.0, abs=1e-15)


def test_logarithms_closed_form(tiny):
    x = np.array([[1.0], [1.0]])
    barrier = cm.log_barrier(cm.linear("reward") <= 5.0).lower(tiny)
    assert barrier.value(x) == pytest.approx(np.log(3.0))
    both = cm.log_sum("reward", [0.0, 7.0]).lower(tiny)
    assert both.value(x) == pytest.approx(np.log(2.0) + np.log(7.0))


def test_quadratic_closed_forms_agree(tiny):
    x = np.array([[2.0], [3.0]])
    assert cm.quadratic(np.array([[2.0, 1.0], [1.0, 4.0]])).lower(tiny).value(x) == pytest.approx(
        56
    )
    assert cm.quadratic(weights=[2.0, 4.0]).lower(tiny).value(x) == pytest.approx(44.0)
    assert cm.quadratic(weights=[[-2.0], [-4.0]]).lower(tiny).value(x) == pytest.approx(-44.0)
    assert cm.quadratic(factor=[[[1.0], [1.0]]]).lower(tiny).value(x) == pytest.approx(25.0)
    assert cm.quadratic(factor=[[1.0, -1.0], [1.0, 0.0]]).lower(tiny).value(x) == pytest.approx(5.0)
    assert cm.quadratic(np.zeros((2, 2))).lower(tiny).value(x) == 0.0


def test_minimum_takes_the_smallest_and_its_gradient(tiny):
    function = cm.minimum(cm.linear([1.0, 0.0]), cm.linear([0.0, 1.0])).lower(tiny)
    x = np.array([[3.0], [2.0]])
    assert function.value(x) == 2.0
    np.testing.assert_array_equal(function.gradient(x), [[0.0], [1.0]])


@pytest.mark.parametrize("states", [1, 2, 3])
def test_entropy_bound_holds_where_episodes_end(states):
    """Below three cells the largest entropy is not log n: less mass than one has more of it."""
    mass = min(1.0, states / np.e)
    function = cm.entropy().lower(cm.garnet(states, 1, 1, seed=0, discount=0.0))
    worst = function.value(np.full((states, 1), mass / states))
    limit = function.constants(cm.garnet(states, 1, 1, seed=0, discount=0.0)).bound
    assert worst <= limit * (1 + 1e-12)
    assert worst == pytest.approx(limit)


# The border of the domain and beyond.


def with_zeros(mdp: cm.TabularMDP) -> np.ndarray:
    return cm.occupancy_of(mdp, cm.TabularPolicy(np.tile([1.0, 0.0], (mdp.n_states, 1))))


@pytest.fixture(scope="module")
def open_model():
    return cm.garnet(4, 2, 2, seed=0, discount=0.5)


@pytest.mark.parametrize(
    "utility",
    [
        cm.entropy(),
        cm.entropy(of="state-action"),
        cm.distance(cm.TabularPolicy(np.full((4, 2), 0.5)), norm="kl"),
    ],
    ids=repr,
)
def test_zero_occupancy_has_a_finite_value_and_gradient(utility, open_model):
    function, x = utility.lower(open_model), with_zeros(open_model)
    x[3] = 0.0
    nearby = np.maximum(x, 1e-13)
    assert function.value(x) == pytest.approx(float(function.value(nearby)), abs=1e-10)
    assert np.isfinite(function.gradient(x)).all()
    with double_precision():
        point = jnp.asarray(x)
        value, gradient, slope = under_jit(function, point)
        np.testing.assert_allclose(value, function.value(x), rtol=1e-12)
        np.testing.assert_allclose(gradient, function.gradient(x), rtol=1e-12)
        assert np.isfinite(slope).all()


def test_gradient_at_zero_points_strongly_inwards(open_model):
    x = with_zeros(open_model)
    gradient = cm.entropy(of="state-action").lower(open_model).gradient(x)
    assert gradient[:, 1].min() > 100 * np.abs(gradient[:, 0]).max()


@pytest.mark.parametrize(
    ("utility", "outside"),
    [
        (cm.entropy(), -np.inf),
        (cm.entropy(of="state-action"), -np.inf),
        (cm.distance(cm.TabularPolicy(np.full((4, 2), 0.5)), norm="kl"), np.inf),
    ],
    ids=["entropy", "entropy state-action", "kl"],
)
def test_negative_entries_are_outside_the_domain(utility, outside, open_model):
    function = utility.lower(open_model)
    x = with_zeros(open_model)
    x[2] = -0.01
    assert function.value(x) == outside
    with double_precision():
        assert under_jit(function, jnp.asarray(x))[0] == outside


@pytest.mark.parametrize("budget", [0.0, -1.0])
def test_violated_barrier_is_minus_infinity_and_has_no_gradient(budget, open_model):
    x = with_zeros(open_model)
    reached = float(cm.linear("cost").lower(open_model).value(x))
    barrier = cm.log_barrier(cm.linear("cost") - reached <= budget).lower(open_model)
    assert barrier.value(x) == -np.inf
    assert np.isnan(barrier.gradient(x)).all()
    with double_precision():
        assert under_jit(barrier, jnp.asarray(x))[0] == -np.inf


def test_minimum_next_to_a_violated_barrier_keeps_its_gradient(open_model):
    """The barrier is the smallest there; where it is not, its NaN must not leak."""
    x = with_zeros(open_model)
    least = cm.minimum(cm.linear("reward") - 100.0, cm.log_barrier(cm.linear("cost") <= 1e6))
    np.testing.assert_allclose(least.lower(open_model).gradient(x), open_model.signal("reward"))
    broken = cm.minimum(cm.linear("reward"), cm.log_barrier(cm.linear("cost") <= 1e-6))
    assert broken.lower(open_model).value(x) == -np.inf


def test_kl_counts_pairs_without_target_as_empty():
    """Where no policy can go the target is zero, and rounding there must not make kl negative."""
    mdp = random_model(generator(0), n_states=4, n_actions=2, unreachable=True, mask=False)
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    function = cm.distance(x, norm="kl").lower(mdp)
    shifted = x.copy()
    shifted[-1] = 0.3
    assert function.value(x) == pytest.approx(0.0, abs=1e-15)
    assert function.value(shifted) == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_array_equal(function.gradient(shifted)[-1], 0.0)


def test_unreachable_states_add_the_whole_target_to_kl():
    mdp = random_model(generator(0), n_states=4, n_actions=2, unreachable=True, mask=False)
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    target = x.copy()
    target[-1] = 0.7
    function = cm.distance(target, norm="kl").lower(mdp)
    assert function.value(x) == pytest.approx((1 - mdp.discount) * 1.4)


@pytest.mark.parametrize("norm", ["l1", "l2", "l2-squared"])
def test_at_its_target_a_distance_is_zero_with_zero_gradient(norm, open_model):
    x = with_zeros(open_model)
    function = cm.distance(x, norm=norm).lower(open_model)
    assert function.value(x) == 0.0
    np.testing.assert_array_equal(function.gradient(x), 0.0)
    with double_precision():
        np.testing.assert_array_equal(under_jit(function, jnp.asarray(x))[2], 0.0)


def test_whole_numbers_are_occupancies_too(open_model):
    ones = np.ones((4, 2), dtype=int)
    kl = cm.distance(cm.uniform_policy(open_model), norm="kl").lower(open_model)
    assert kl.value(ones) == kl.value(ones.astype(float))


# What is refused, and how.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cm.linear("reward", per="day"), 'per must be "total" or "step" or "episode"'),
        (lambda: cm.linear([[np.nan]]), "NaN or infinity"),
        (lambda: cm.linear(3.0), r"shape \(S,\), \(S, A\) or \(T, S, A\); got shape \(\)"),
        (lambda: cm.linear(["reward", "cost"]), "name of a signal or an array"),
        (lambda: cm.entropy(of="action"), '"state", "state-action" or "actions"'),
        (lambda: cm.distance(np.ones((2, 2)), norm="l2_squared"), "Did you mean 'l2-squared'"),
        (lambda: cm.distance(np.ones((2, 2)), norm="KL"), "Did you mean 'kl'"),
        (lambda: cm.distance(np.ones((2, 2)), norm="cosine"), "Known: 'l1', 'l2'"),
        (lambda: cm.distance(np.ones((2, 2)), norm=2), "unknown norm 2"),
        (lambda: cm.distance("expert"), "an occupancy .* a policy or a solution"),
        (lambda: cm.distance(np.ones(3)), r"finite \(S, A\) array; got shape \(3,\)"),
        (lambda: cm.distance([[np.inf]]), "NaN or infinity"),
        (lambda: cm.distance([[-1.0]], norm="kl"), "negative entries"),
        (lambda: cm.distance([[1.0]], norm="l2", smoothing=0.1), 'only goes with norm="kl"'),
        (lambda: cm.distance([[1.0]], norm="kl", smoothing=1.0), "less than 1"),
        (lambda: cm.distance([[1.0]], norm="kl", smoothing=-0.1), "at least 0"),
        (lambda: cm.distance([[1.0]], norm="kl", smoothing=np.nan), "smoothing is a share"),
        (lambda: cm.distance([[1.0]], norm="kl", smoothing="little"), "smoothing is a share"),
        (lambda: cm.distance(cm.box(0, 1), norm="kl"), "a box is available in l1, l2, l2-squared"),
        (lambda: cm.distance(cm.ball([[1.0]], 1), norm="l1"), "a ball is available in l2"),
        (lambda: cm.log_barrier(cm.linear("cost")), "log_barrier takes a constraint"),
        (lambda: cm.log_sum(), "at least one"),
        (lambda: cm.log_sum(3.0), "linear takes"),
        (lambda: cm.minimum(), "at least one"),
        (lambda: cm.minimum(cm.entropy(), None), "linear takes"),
        (lambda: cm.maximum(cm.linear("cost"), np.nan), "finite number"),
        (lambda: cm.quadratic(), "one of matrix, weights and factor; got none"),
        (lambda: cm.quadratic(np.eye(2), weights=[1.0]), "got matrix and weights"),
        (lambda: cm.quadratic("matrix"), "the matrix of a quadratic must be made of numbers"),
        (lambda: cm.quadratic(weights=[np.nan]), "NaN or infinity"),
        (lambda: cm.quadratic(np.ones((2, 3))), r"\(S\*A, S\*A\); got shape \(2, 3\)"),
        (lambda: cm.quadratic([[1.0, 1.0], [0.0, 1.0]]), "must be symmetric"),
        (lambda: cm.quadratic(weights=1.0), r"weights must be \(S,\) or \(S, A\)"),
        (lambda: cm.quadratic(factor=[1.0]), "factor must be"),
    ],
)
def test_malformed_atoms_are_refused(call, message):
    with pytest.raises(UtilityError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cm.quadratic(np.diag([1.0, -1.0])), "neither convex nor concave"),
        (lambda: cm.quadratic(weights=[1.0, -1.0]), "weights of both signs"),
        (lambda: cm.minimum(cm.distance([[1.0]])), "Convex utilities are minimised"),
        (lambda: cm.log_sum(cm.distance([[1.0]])), "log_sum needs a concave"),
    ],
)
def test_wrong_curvature_is_refused(call, message):
    with pytest.raises(CurvatureError, match=message):
        call()


@pytest.mark.parametrize(
    ("utility", "error", "message"),
    [
        (cm.linear("rewrad"), ModelError, "Did you mean 'reward'"),
        (cm.linear(np.ones(5)), UtilityError, r"the model needs \(4,\) or \(4, 2\)"),
        (cm.linear(np.ones((2, 4))), UtilityError, r"shape \(2, 4\)"),
        (cm.distance(np.ones((2, 4))), UtilityError, r"shape \(2, 4\); the model needs \(4, 2\)"),
        (cm.distance(cm.TabularPolicy([[1.0]])), PolicyError, "1 states and 1 actions"),
        (cm.quadratic(weights=np.ones(3)), UtilityError, r"expected \(4,\) or \(4, 2\)"),
        (cm.quadratic(weights=np.ones((2, 4))), UtilityError, "the weights of a quadratic"),
        (cm.quadratic(np.eye(7)), UtilityError, r"S\*A = 8"),
        # The same number of pairs, in the wrong order: silence would be a wrong answer.
        (cm.quadratic(factor=np.ones((1, 2, 4))), UtilityError, r"\(2, 4\) does not fit"),
    ],
    ids=repr,
)
def test_atoms_that_do_not_fit_the_model_are_refused(utility, error, message, open_model):
    with pytest.raises(error, match=message):
        utility.lower(open_model)


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("make", [cm.distance, lambda array: cm.distance(cm.ball(array, 0.1))])
def test_a_policy_given_as_an_array_is_refused_with_the_fix(make, discount):
    """Whatever the discount: the mass of four rows may be more or less than that of an occupancy."""
    mdp = cm.garnet(4, 2, 2, seed=0, discount=discount)
    with pytest.raises(UtilityError, match=r"looks like a policy .* TabularPolicy\(array\)"):
        make(np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [0.3, 0.7]])).lower(mdp)


def test_an_occupancy_whose_rows_sum_to_one_is_still_an_occupancy():
    stay = cm.TabularMDP(np.eye(2)[:, None, :].repeat(2, axis=1), [0.5, 0.5], 0.5)
    x = cm.occupancy_of(stay, cm.uniform_policy(stay))
    np.testing.assert_allclose(x.sum(axis=1), 1.0)
    assert cm.distance(x).lower(stay).value(x) == 0.0


def test_kl_to_a_target_with_zeros_names_the_pair_and_offers_smoothing(open_model):
    target = cm.TabularPolicy(np.tile([0.0, 1.0], (4, 1)))
    with pytest.raises(
        UtilityError, match=r"state 0, action 0 and at 3 more .*\n?.*smoothing=0.01"
    ):
        cm.distance(target, norm="kl").lower(open_model)
    assert cm.distance(target, norm="kl", smoothing=0.01).lower(open_model) is not None


def test_distance_to_a_solution_means_its_policy(open_model):
    solution = cm.solve(cm.Problem(open_model, maximize=cm.linear("reward")))
    function = cm.distance(solution, norm="l1").lower(open_model)
    assert function.value(solution.occupancy) == pytest.approx(0.0, abs=1e-12)


def test_atoms_keep_their_own_copy_of_arrays(open_model):
    reward = np.ones((4, 2))
    target = np.ones((4, 2)) / 7
    utilities = [cm.linear(reward), cm.distance(target), cm.quadratic(weights=reward)]
    x = with_zeros(open_model)
    before = [float(utility.lower(open_model).value(x)) for utility in utilities]
    reward[:] = target[:] = 5.0
    assert [float(utility.lower(open_model).value(x)) for utility in utilities] == before


@pytest.mark.parametrize("norm", ["l1", "kl"])
def test_distance_of_actions_by_hand(norm, open_model):
    """sum_s d(s) times the distance of two rows of probabilities, for any two policies."""
    random = generator(8)
    pi, pi_0 = (random_policy(open_model, random, concentration=3.0) for _ in range(2))
    x = cm.occupancy_of(open_model, pi)
    d = (1.0 - open_model.discount) * x.sum(axis=1)
    p, q = pi.probabilities(), pi_0.probabilities()
    rows = np.abs(p - q).sum(axis=1)
    if norm == "kl":
        inside = p > 0
        rows = np.where(
            inside, p * np.log(np.where(inside, p, 1.0) / np.where(inside, q, 1.0)), 0.0
        )
        rows = rows.sum(axis=1)
    function = cm.distance(pi_0, norm=norm, of="actions").lower(open_model)
    assert float(function.value(x)) == pytest.approx(float(d @ rows), rel=1e-12)
    here = cm.distance(pi, norm=norm, of="actions").lower(open_model)
    assert float(here.value(x)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("norm", ["l1", "kl"])
def test_probabilities_are_a_policy_to_the_distance_of_actions(open_model, norm):
    policy = cm.uniform_policy(open_model)
    x = interior_point(open_model, generator(3))
    told = cm.distance(policy, norm=norm, of="actions").lower(open_model)
    for written in (policy.probabilities(), policy.probabilities().tolist()):
        found = cm.distance(written, norm=norm, of="actions").lower(open_model)
        assert float(found.value(x)) == float(told.value(x))


def test_distance_of_actions_refuses_what_is_no_policy(open_model):
    with pytest.raises(PolicyError, match="sum to 2, not to one"):
        cm.distance(np.ones((4, 2)), norm="l1", of="actions")
    with pytest.raises(UtilityError, match="its probabilities as an"):
        cm.distance(cm.ball(np.ones((4, 2)), 1.0), norm="l1", of="actions")
    with pytest.raises(UtilityError, match="available in l1, kl"):
        cm.distance(cm.uniform_policy(open_model), of="actions")
    with pytest.raises(UtilityError, match='"occupancy" or "actions"'):
        cm.distance(cm.uniform_policy(open_model), of="action")
    greedy = cm.TabularPolicy(np.eye(open_model.n_actions)[open_model.actions.argmax(axis=1)])
    with pytest.raises(UtilityError, match="never takes action"):
        cm.distance(greedy, norm="kl", of="actions").lower(open_model)
    assert (
        cm.distance(greedy, norm="kl", smoothing=0.01, of="actions").lower(open_model) is not None
    )


def test_power_closed_forms_and_borders(tiny):
    x = np.array([[1.0], [1.0]])
    reward = cm.linear("reward")
    assert cm.power("reward", 0.25).lower(tiny).value(x) == pytest.approx(2.0**0.25)
    assert cm.sqrt(reward + 7.0).lower(tiny).value(x) == pytest.approx(3.0)
    assert cm.sqrt(reward - 2.0).lower(tiny).value(x) == 0.0
    assert np.isfinite(cm.sqrt(reward - 2.0).lower(tiny).gradient(x)).all()
    assert cm.sqrt(reward - 3.0).lower(tiny).value(x) == -np.inf
    assert np.isnan(cm.sqrt(reward - 3.0).lower(tiny).gradient(x)).all()
    assert repr(cm.power(reward, 0.25)) == 'power(linear("reward"), 0.25)'
    for wrong in (0.0, 1.0, True, "0.5", np.inf):
        with pytest.raises(UtilityError, match="the exponent of a power is"):
            cm.power("reward", wrong)
    with pytest.raises(CurvatureError, match="power needs a concave utility"):
        cm.sqrt(cm.distance(x))
