"""Functions of one's own: declared, bound, and probed by ``check_utility``."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.atoms import Constants
from cvxmdp.base.errors import UtilityError
from strategies import EVERY_UTILITY, generator, interior_point, random_model


@pytest.fixture(scope="module")
def mdp():
    return random_model(
        generator(8), n_states=4, n_actions=2, endings=True, mask=False, unreachable=False
    )


@pytest.fixture(scope="module")
def ragged():
    return random_model(
        generator(0), n_states=5, n_actions=3, endings=True, mask=True, unreachable=True
    )


def coverage(occupancy):
    return jnp.log(occupancy.sum(axis=1) + 1e-3).mean()


def square(occupancy):
    return (occupancy**2).sum()


# Declaring.


@pytest.mark.parametrize("declare", [cm.concave, cm.concave(), cm.concave(lipschitz=5.0)])
def test_decorator_with_and_without_arguments(declare, mdp):
    declared = declare(coverage)
    x = interior_point(mdp, generator(0))
    assert declared.curvature is cm.Curvature.CONCAVE
    assert repr(declared) == "coverage"
    expected = np.log(x.sum(axis=1) + 1e-3).mean()
    assert declared.lower(mdp).value(x) == pytest.approx(expected, rel=1e-14)


def test_a_declared_function_can_still_be_called():
    assert float(cm.convex(square)(jnp.ones((2, 2)))) == 4.0


def test_constants_are_those_declared(mdp):
    plain, told = cm.convex(square), cm.convex(lipschitz=1.0, smoothness=2.0, bound=3.0)(square)
    assert plain.lower(mdp).constants(mdp) == Constants(None, None, None)
    assert told.lower(mdp).constants(mdp) == Constants(1.0, 2.0, 3.0)


def test_gradient_in_closed_form(mdp):
    x = interior_point(mdp, generator(0))
    np.testing.assert_allclose(cm.convex(square).lower(mdp).gradient(x), 2 * x, rtol=1e-14)


def test_part_of_an_expression(mdp):
    x = interior_point(mdp, generator(0))
    utility = cm.linear("reward") - 0.5 * cm.convex(square)
    assert repr(utility) == 'linear("reward") - 0.5 * square'
    value = np.vdot(mdp.signal("reward"), x) - 0.5 * (x**2).sum()
    assert utility.curvature is cm.Curvature.CONCAVE
    assert utility.lower(mdp).value(x) == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(lambda power, x: (x**power).sum(), 2),
        jax.jit(square),
        type("Callable", (), {"__call__": lambda self, x: (x**2).sum()})(),
        lambda x: 1.0 * (x**2).sum(),
    ],
    ids=["partial", "jitted", "object", "lambda"],
)
def test_any_callable_will_do(function, mdp):
    x = interior_point(mdp, generator(0))
    bound = cm.convex(function).lower(mdp)
    assert bound.value(x) == pytest.approx((x**2).sum(), rel=1e-14)
    assert repr(cm.convex(function))


def test_a_constant_has_gradient_zero(mdp):
    bound = cm.concave(lambda occupancy: 2.0).lower(mdp)
    x = interior_point(mdp, generator(0))
    assert bound.value(x) == 2.0
    np.testing.assert_array_equal(bound.gradient(x), 0.0)


def test_arrays_of_numpy_inside_are_taken_in_either_precision(mdp):
    target = generator(3).random(mdp.shape)
    shape = cm.concave(lambda x: -((x - target) ** 2).sum()).lower(mdp)
    x = generator(4).random(mdp.shape)
    exact = -2 * (x - target)
    for _ in range(2):  # float64, float32 inside a program, and back
        np.testing.assert_allclose(shape.gradient(x), exact, rtol=1e-14)
        rough = jax.jit(lambda y: (shape.value(y), shape.gradient(y)))(x.astype(np.float32))
        assert {part.dtype for part in rough} == {np.dtype(np.float32)}
        np.testing.assert_allclose(rough[1], exact, rtol=1e-5)


def test_two_functions_of_the_same_name_are_not_confused(mdp):
    def make(factor):
        @cm.convex
        def same(occupancy):
            return factor * (occupancy**2).sum()

        return same.lower(mdp)

    x = interior_point(mdp, generator(0))
    assert make(3.0).value(x) == pytest.approx(3.0 * make(1.0).value(x))


# Misuse.


def branches(occupancy):
    return occupancy.sum() if occupancy[0, 0] > 0 else 0.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(axis=1), r"must return a scalar.* it returns \(4,\)"),
        (lambda x: x.sum().reshape(1), r"must return a scalar.* it returns \(1,\)"),
        (lambda x: (x.sum(), 1.0), "must return a scalar"),
        (lambda x: None, "must return a scalar.* None"),
        (lambda x: np.log(x).sum(), r"cannot be traced .*\n?(.*\n)*.*jax\.numpy, without NumPy"),
        (branches, r"branches cannot be traced .*\n?(.*\n)*.*Python branches on values"),
        (lambda x: float(x.sum()), "cannot be traced"),
        (lambda x: x[:, 7].sum() + x.no_such_method(), "no_such_method"),
        (lambda x, y: x.sum(), "cannot be traced"),
        (lambda x: (x > 0.1).sum(), "must return a real number with a gradient; it returns int"),
        (lambda x: (x > 0.1).all(), "it returns bool"),
        (lambda x: x.sum() * 1j, "it returns complex"),
    ],
)
def test_functions_that_cannot_be_used_are_refused_when_bound(function, message, mdp):
    with pytest.raises(UtilityError, match=message):
        cm.concave(function).lower(mdp)
    with pytest.raises(UtilityError, match=message):
        cm.Problem(mdp, maximize=cm.concave(function))


class Unhashable:
    __hash__ = None

    def __call__(self, occupancy):
        return occupancy.sum()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3.0, "@concave goes on a function of the occupancy; got 3.0"),
        ("coverage", "goes on a function"),
        (cm.entropy(), r"goes on a function of the occupancy; got entropy\(\)"),
        (Unhashable(), "can be hashed.* Wrap it"),
    ],
)
def test_only_functions_can_be_declared(given, message):
    with pytest.raises(UtilityError, match=message):
        cm.concave(given)


# check_utility.


def test_a_broken_promise_is_found_printed_and_shown(mdp, capsys):
    result = cm.check_utility(cm.concave(square), mdp)
    assert not result.ok
    assert capsys.readouterr().out == f"{result}\n"
    assert "square is not concave" in str(result)
    x, y, share = result.counterexample
    middle = square((1 - share) * x + share * y)
    assert middle < (1 - share) * square(x) + share * square(y)
    np.testing.assert_allclose(
        x.sum(axis=1), cm.occupancy_of(mdp, cm.policy_of(mdp, x)).sum(axis=1)
    )


def test_concave_declared_convex_is_found(mdp, capsys):
    result = cm.check_utility(cm.convex(coverage), mdp)
    assert not result.ok
    assert "coverage is not convex" in capsys.readouterr().out


def test_a_bump_between_far_points_is_found(mdp):
    """Concave far away, wavy near by."""

    @cm.concave
    def wavy(occupancy):
        return -((occupancy - 1.0) ** 2).sum() + 0.2 * jnp.cos(20.0 * occupancy[0, 0])

    assert not cm.check_utility(wavy, mdp).ok


def test_a_broken_promise_inside_an_expression_is_found(mdp):
    utility = 0.1 * cm.linear("reward") - cm.convex(coverage)
    assert not cm.check_utility(utility, mdp).ok


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_value_that_is_not_finite_is_found(value, mdp, capsys):
    result = cm.check_utility(cm.concave(lambda occupancy: value + 0 * occupancy.sum()), mdp)
    assert not result.ok
    assert result.counterexample is None
    assert "expected a finite number" in capsys.readouterr().out


def test_a_value_that_is_not_finite_only_between_is_found(mdp):
    """NaN compares as neither above nor below, and must not pass for that reason."""
    probed = cm.check_utility(cm.concave(square), mdp, seed=4, probes=1)
    x, y, share = probed.counterexample
    middle = (1 - share) * x + share * y

    @cm.concave
    def hole(occupancy):
        return jnp.where(jnp.abs(occupancy - middle).max() < 1e-9, jnp.nan, 0.0)

    function = hole.lower(mdp)
    assert function.value(x) == function.value(y) == 0.0
    result = cm.check_utility(hole, mdp, seed=4, probes=1)
    assert not result.ok
    assert "hole is nan" in str(result)


def test_a_gradient_that_is_not_finite_is_found_with_its_pair(ragged, capsys):
    """Pairs that no policy takes have occupancy zero, where a root has no slope."""
    roots = cm.concave(lambda occupancy: jnp.sqrt(occupancy).sum())
    result = cm.check_utility(roots, ragged)
    assert not result.ok
    state, action = np.argwhere(~ragged.reachable_pairs)[0]
    printed = capsys.readouterr().out
    assert f"inf at state {state}, action {action}, where the occupancy is 0" in printed
    assert "need a floor" in printed


def test_a_function_that_cannot_be_traced_is_a_finding_not_a_crash(mdp, capsys):
    result = cm.check_utility(cm.concave(branches), mdp)
    assert not result.ok
    assert result.probes == 0
    assert "cannot be traced" in capsys.readouterr().out


@pytest.mark.parametrize("kind", list(EVERY_UTILITY))
def test_honest_utilities_pass_in_silence(kind, ragged, capsys):
    result = cm.check_utility(EVERY_UTILITY[kind](ragged, generator(1)), ragged, probes=60)
    assert result.ok, str(result)
    assert result.probes == 60
    assert str(result) == "no contradiction on 60 random pairs of occupancies"
    assert capsys.readouterr().out == ""


def test_the_same_seed_probes_the_same_pairs(mdp):
    wrong = cm.concave(square)
    first, second, other = (cm.check_utility(wrong, mdp, seed=seed) for seed in (4, 4, 5))
    assert str(first) == str(second)
    np.testing.assert_array_equal(first.counterexample[0], second.counterexample[0])
    assert not np.array_equal(first.counterexample[0], other.counterexample[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (square, "check_utility takes a utility"),
        (cm.entropy() + cm.distance([[1.0]]), "no promise to check"),
    ],
)
def test_what_cannot_be_checked_is_refused(given, message, mdp):
    with pytest.raises(UtilityError, match=message):
        cm.check_utility(given, mdp)


@pytest.mark.parametrize("size", [1e-11, 1.0, 1e11])
def test_a_promise_is_probed_in_the_units_of_the_function(mdp, size):
    assert not cm.check_utility(cm.concave(lambda x: size * (x**2).sum()), mdp).ok
    assert cm.check_utility(cm.concave(lambda x: -size * (x**2).sum()), mdp).ok
