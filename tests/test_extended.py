"""Extended functions: the same where they are defined, concave, smooth at the floor, finite everywhere."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from cvxmdp.atoms.shapes.entropy_shape import FLOOR as ENTROPY_FLOOR
from cvxmdp.atoms.shapes.log_shape import FLOOR as LOG_FLOOR
from cvxmdp.atoms.shapes.relative_entropy_shape import FLOOR as KL_FLOOR
from strategies import AFFINE, CONCAVE, CONVEX, generator, interior_point, random_model, seeds

SIGN = {**dict.fromkeys([*AFFINE, *CONCAVE], 1.0), **dict.fromkeys(CONVEX, -1.0)}
MAKERS = {**AFFINE, **CONCAVE, **CONVEX}
# Each has pieces with a floor: entropies, kl, logarithms, and what contains one.
WITH_FLOOR = (
    "entropy",
    "entropy state-action",
    "kl to policy",
    "kl with smoothing",
    "log_barrier",
    "log_barrier of distance",
    "log_sum",
    "minimum",
    "concave sum",
    "convex sum",
)


def made(name: str, seed: int = 0):
    random = generator(seed)
    mdp = random_model(random, n_states=4, n_actions=2, discount=0.8, mask=False, unreachable=False)
    return mdp, random, MAKERS[name](mdp, random).lower(mdp)


def anywhere(mdp: cm.TabularMDP, random: np.random.Generator) -> np.ndarray:
    """A point that is no occupancy: entries of both signs, some of them large."""
    return random.normal(size=mdp.actions.shape) * 10.0 ** random.uniform(-2, 1)


@pytest.mark.parametrize("name", MAKERS)
def test_equal_to_the_function_above_the_floor(name):
    mdp, random, function = made(name)
    x = interior_point(mdp, random)
    extended = function.extended()
    assert extended.value(x) == pytest.approx(float(function.value(x)), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(extended.gradient(x), function.gradient(x), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", WITH_FLOOR)
def test_the_function_itself_is_not_finite_where_its_extension_is(name):
    mdp, random, function = made(name)
    points = [anywhere(mdp, random) for _ in range(30)]
    finite = [
        np.isfinite(function.value(x)) & np.isfinite(function.gradient(x)).all() for x in points
    ]
    assert name.startswith("log_barrier") or not all(finite)
    for x in points:
        assert np.isfinite(function.extended().value(x))
        assert np.isfinite(function.extended().gradient(x)).all()


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=10)
@given(seed=seeds)
def test_gradient_is_a_supergradient_everywhere(name, seed):
    """f(y) <= f(x) + <grad f(x), y - x>: concave (convex with the other sign), and the right gradient."""
    mdp, random, function = made(name, seed)
    extended = function.extended()
    x, y = anywhere(mdp, random), anywhere(mdp, random)
    at, there = float(extended.value(x)), float(extended.value(y))
    rise = float(np.vdot(extended.gradient(x), y - x))
    rounding = 1e-6 * (1.0 + abs(at) + abs(there) + abs(rise))  # polytopes are projected on
    assert SIGN[name] * (at + rise - there) >= -rounding


def crossing(name: str):
    """A function and points on both sides of the floor of its first cell."""
    mdp, random, function = made(name)
    x = interior_point(mdp, random)
    scale = 1.0 - mdp.discount
    if name == "entropy":
        x[0] = ENTROPY_FLOOR / mdp.n_states / scale / 2.0
    elif name == "entropy state-action":
        x[0, 0] = ENTROPY_FLOOR / x.size / scale
    elif name == "kl to policy":
        x[0, 0] = KL_FLOOR * function.base_offset[0] / scale
    else:
        slack = float(function.parts[0].value(x))
        cost = function.parts[0].gradient(x)
        x = x - cost * (slack - LOG_FLOOR) / np.vdot(cost, cost)
    direction = np.zeros_like(x)
    direction[0, 0] = 1.0
    return function, x, direction


@pytest.mark.parametrize("name", ["entropy", "entropy state-action", "kl to policy", "log_barrier"])
def test_continuously_differentiable_at_the_floor(name):
    function, x, direction = crossing(name)
    extended, small = function.extended(), 1e-7
    before, after = x - small * direction, x + small * direction
    np.testing.assert_allclose(
        extended.gradient(before), extended.gradient(after), rtol=1e-3, atol=1e-3
    )
    slope = (extended.value(after) - extended.value(before)) / (2 * small)
    assert slope == pytest.approx(np.vdot(extended.gradient(x), direction), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["entropy", "entropy state-action", "kl to policy", "log_barrier"])
def test_linear_below_the_floor_and_different_from_the_function_there(name):
    function, x, direction = crossing(name)
    extended = function.extended()
    step = 1.0 if name == "log_barrier" else 0.5 * x[0, 0]
    towards = direction * np.sign(np.vdot(extended.gradient(x), direction)) * SIGN[name]
    below = x - step * towards
    promised = extended.value(x) - step * np.vdot(extended.gradient(x), towards)
    assert extended.value(below) == pytest.approx(float(promised), rel=1e-9)
    assert not np.isclose(extended.value(below), function.value(below), rtol=1e-9)


@pytest.mark.parametrize("name", WITH_FLOOR)
def test_float32_agrees_with_float64(name):
    mdp, random, function = made(name)
    x = random.normal(size=mdp.actions.shape)
    extended = function.extended()
    single = jnp.asarray(x, jnp.float32)
    assert float(extended.value(single)) == pytest.approx(float(extended.value(x)), rel=1e-4)
    np.testing.assert_allclose(
        extended.gradient(single), extended.gradient(x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", WITH_FLOOR)
def test_extending_twice_changes_nothing(name):
    mdp, random, function = made(name)
    x = anywhere(mdp, random)
    once = function.extended()
    assert once.extended().value(x) == once.value(x)
