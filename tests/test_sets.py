"""Convex sets: the projection against CVXPY, NumPy against JAX, and what is refused."""

from __future__ import annotations

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings

import cvxmdp as cm
from cvxmdp.base.errors import UtilityError
from cvxmdp.base.precision import double_precision
from strategies import generator, seeds

SHAPE = (4, 2)
SIZE = 8


def project(bound, x):
    """Sets are of occupancies flattened row by row."""
    return bound.project(x.reshape(-1)).reshape(x.shape)


project_under_jit = jax.jit(project)


@pytest.fixture(scope="module")
def mdp():
    return cm.garnet(*SHAPE, 2, seed=0, discount=0.8)


def nearest_by_cvxpy(bound, x: np.ndarray) -> np.ndarray:
    """Exact up to the solver."""
    z = cp.Variable(x.size)
    program = cp.Problem(cp.Minimize(cp.sum_squares(z - x.ravel())), bound.inside(cp, z))
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return z.value.reshape(x.shape)


def random_polytope(random: np.random.Generator, kind: str):
    """Six half-spaces around a point; redundant, parallel, badly scaled, or without interior."""
    rows = random.normal(size=(6, SIZE))
    room = random.random(6)
    inside = random.normal(size=SIZE)
    if kind == "redundant":
        rows[1], rows[2] = 3.0 * rows[0], rows[0]
        rows[3] = 0.0
    if kind == "parallel":
        rows[1] = rows[0] + 1e-2 * random.normal(size=SIZE)
    if kind == "scaled":
        rows *= 10.0 ** random.uniform(-4, 4, size=(6, 1))
    if kind == "slab":
        rows[1] = -rows[0]
        room[:2] = 0.0
    if kind == "cone":
        room[:] = 0.0
    scale = np.linalg.norm(rows, axis=1)
    return cm.polytope(rows, rows @ inside + room * scale), inside.reshape(SHAPE)


KINDS = ["plain", "redundant", "parallel", "scaled", "slab", "cone"]


def assert_is_projection(bound, x: np.ndarray, nearest: np.ndarray, tolerance: float) -> None:
    """The KKT conditions of the nearest point of a polytope; no solver is asked."""
    rows, limits = bound.matrix, bound.bounds
    lengths = np.linalg.norm(rows, axis=1)
    slack = (limits - rows @ nearest.ravel()) / lengths
    assert slack.min() >= -tolerance
    active = rows[slack <= 10 * tolerance] / lengths[slack <= 10 * tolerance, None]
    residual = (x - nearest).ravel()
    if not active.size:
        assert np.abs(residual).max() <= tolerance
        return
    weights = cp.Variable(len(active), nonneg=True)
    miss = cp.Problem(cp.Minimize(cp.norm(active.T @ weights - residual)))
    assert miss.solve(solver=cp.CLARABEL) <= 1e-6 * max(1.0, np.abs(residual).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [0.0, 1e-6, 1.0, 100.0])
def test_projection_on_a_polytope_satisfies_kkt(kind, distance, mdp):
    random = generator(KINDS.index(kind))
    for _ in range(3):
        polytope, inside = random_polytope(random, kind)
        bound = polytope.lower(mdp)
        x = inside + distance * random.normal(size=SHAPE)
        tolerance = 1e-10 * max(1.0, distance)
        assert_is_projection(bound, x, project(bound, x), tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [1e-6, 1.0, 100.0])
def test_projection_on_a_polytope_is_the_same_under_jax(kind, distance, mdp):
    random = generator(KINDS.index(kind))
    with double_precision():
        for _ in range(3):
            polytope, inside = random_polytope(random, kind)
            bound = polytope.lower(mdp)
            x = inside + distance * random.normal(size=SHAPE)
            expected = project(bound, x)
            tolerance = 1e-9 * max(1.0, distance)
            np.testing.assert_allclose(
                project_under_jit(bound, jnp.asarray(x)), expected, atol=tolerance, rtol=0
            )
    np.testing.assert_allclose(
        project(bound, jnp.asarray(x, jnp.float32)), expected, atol=1e-3 * max(1.0, distance)
    )


def test_jax_projection_without_an_answer_is_not_a_number_rather_than_wrong(mdp):
    """Two almost opposite half-spaces: Hildreth's steps take far more than its sweeps."""
    angle = 1e-4
    rows = np.zeros((2, SIZE))
    rows[0, :2] = [np.sin(angle), 1.0]
    rows[1, :2] = [np.sin(angle), -1.0]
    bound = cm.polytope(rows, [0.0, 0.0]).lower(mdp)
    x = np.zeros(SHAPE)
    x[0, 0] = 1.0
    np.testing.assert_allclose(project(bound, x), 0.0, atol=1e-7)
    with double_precision():
        assert np.isnan(project_under_jit(bound, jnp.asarray(x))).any()


@settings(max_examples=25)
@given(seed=seeds)
def test_projections_agree_with_cvxpy(seed):
    random = generator(seed)
    mdp = cm.garnet(*SHAPE, 2, seed=0, discount=0.8)
    lower = np.where(random.random(SHAPE) < 0.3, -np.inf, random.normal(size=SHAPE))
    upper = np.where(random.random(SHAPE) < 0.3, np.inf, lower + random.random(SHAPE))
    upper = np.where(np.isfinite(lower), upper, random.normal(size=SHAPE))
    assume(np.isfinite(lower).any() or np.isfinite(upper).any())
    center = random.random(SHAPE) * 1.7
    for given_set in (
        cm.ball(center, float(random.random() + 0.1)),
        cm.box(lower, upper),
        random_polytope(random, "plain")[0],
    ):
        bound = given_set.lower(mdp)
        x = 3.0 * random.normal(size=SHAPE)
        np.testing.assert_allclose(project(bound, x), nearest_by_cvxpy(bound, x), atol=2e-5)


def sets_of_every_kind():
    return {
        "ball": cm.ball(np.full(SHAPE, 0.3), 0.5),
        "point": cm.ball(np.full(SHAPE, 0.3), 0.0),
        "box": cm.box(0.1, np.full(SHAPE, 0.4)),
        "half box": cm.box(-np.inf, 0.2),
        "everything": cm.box(-np.inf, np.inf),
        "single": cm.box(0.25, 0.25),
        "polytope": cm.polytope(np.ones((1, *SHAPE)), [1.0]),
    }


@pytest.mark.parametrize("kind", list(sets_of_every_kind()))
@settings(max_examples=20)
@given(seed=seeds)
def test_projection_laws(kind, seed):
    """Idempotent, firmly non-expansive, and the same under JAX."""
    random = generator(seed)
    bound = sets_of_every_kind()[kind].lower(cm.garnet(*SHAPE, 2, seed=0, discount=0.8))
    x, y = random.normal(size=(2, *SHAPE))
    nearest, other = project(bound, x), project(bound, y)
    np.testing.assert_allclose(project(bound, nearest), nearest, atol=1e-12)
    moved = nearest - other
    assert np.vdot(moved, moved) <= np.vdot(moved, x - y) + 1e-12
    with double_precision():
        under_jax = project_under_jit(bound, jnp.asarray(x))
    np.testing.assert_allclose(under_jax, nearest, atol=1e-12)


@pytest.mark.parametrize("kind", list(sets_of_every_kind()))
def test_points_inside_have_distance_zero(kind, mdp):
    given_set = sets_of_every_kind()[kind]
    inside = project(given_set.lower(mdp), np.full(SHAPE, 0.123))
    for norm in ("l2", "l2-squared"):
        function = cm.distance(given_set, norm=norm).lower(mdp)
        assert float(function.value(inside)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", list(sets_of_every_kind()))
def test_size_is_the_norm_of_a_point_of_the_set(kind, mdp):
    """What the constants rest on: no occupancy is further than its own norm plus this."""
    bound = sets_of_every_kind()[kind].lower(mdp)
    least = np.linalg.norm(project(bound, np.zeros(SHAPE)))
    assert np.isfinite(bound.size())
    assert bound.size() >= least - 1e-12


@pytest.mark.parametrize("norm", ["l1", "l2", "l2-squared"])
def test_distance_to_everything_is_zero(norm, mdp):
    function = cm.distance(cm.box(-np.inf, np.inf), norm=norm).lower(mdp)
    x = generator(0).normal(size=SHAPE)
    assert float(function.value(x)) == 0.0
    np.testing.assert_array_equal(function.gradient(x), 0.0)


def test_distances_to_a_box_by_hand(mdp):
    x = np.zeros(SHAPE)
    x[0, 0], x[3, 1] = 5.0, -2.0
    box = cm.box(-1.0, 2.0)
    values = {norm: cm.distance(box, norm=norm).lower(mdp).value(x) for norm in ("l1", "l2")}
    assert values["l1"] == 4.0
    assert values["l2"] == pytest.approx(np.sqrt(10.0))


def test_ball_around_a_policy_is_around_its_occupancy(mdp):
    policy = cm.uniform_policy(mdp)
    bound = cm.ball(policy, 0.2).lower(mdp)
    np.testing.assert_array_equal(bound.center, cm.occupancy_of(mdp, policy).ravel())


def test_polytope_rows_may_be_flat_or_shaped(mdp):
    rows = generator(0).normal(size=(3, *SHAPE))
    flat, shaped = cm.polytope(rows.reshape(3, -1), np.ones(3)), cm.polytope(rows, np.ones(3))
    x = np.full(SHAPE, 4.0)
    np.testing.assert_array_equal(project(flat.lower(mdp), x), project(shaped.lower(mdp), x))


def test_rows_of_zeros_that_say_nothing_are_left_out(mdp):
    rows = np.vstack([np.zeros(SIZE), np.ones(SIZE), np.zeros(SIZE)])
    bound = cm.polytope(rows, [0.0, 4.0, 2.0]).lower(mdp)
    np.testing.assert_allclose(project(bound, np.ones(SHAPE)), 0.5)
    with double_precision():
        np.testing.assert_allclose(project_under_jit(bound, jnp.ones(SHAPE)), 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cm.ball(np.ones(SHAPE), -1.0), "radius of a ball .* got -1.0"),
        (lambda: cm.ball(np.ones(SHAPE), np.nan), "radius"),
        (lambda: cm.ball(np.ones(SHAPE), np.inf), "radius"),
        (lambda: cm.ball(np.ones(SHAPE), "wide"), "radius .* got 'wide'"),
        (lambda: cm.ball(np.ones((1, 2, 3)), 1.0), r"center must be a finite \(S, A\) array"),
        (lambda: cm.box(1.0, 0.0), "the box is empty: lower is above upper$"),
        (lambda: cm.box(np.eye(2), 0.5), r"empty: lower is above upper at entry \(0, 0\)"),
        (lambda: cm.box(np.inf, np.inf), "the box is empty"),
        (lambda: cm.box(-np.inf, -np.inf), "the box is empty"),
        (lambda: cm.box(np.nan, 1.0), "NaN"),
        (lambda: cm.box("low", 1.0), "lower of a box must be made of numbers"),
        (lambda: cm.box(np.zeros((4, 2)), np.ones((2, 4))), r"got shapes \(4, 2\) and \(2, 4\)"),
        (lambda: cm.box(np.zeros((1, 1, 2)), 1.0), r"numbers or arrays \(S, A\)"),
        (lambda: cm.polytope([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [1, 1, -1]), "row 2 reads 0 <="),
        (lambda: cm.polytope([[1.0], [-1.0]], [0.0, -1.0]), "no point satisfies all"),
        (lambda: cm.polytope(np.zeros((2, 3)), [0, 1]), "contains every point"),
        (lambda: cm.polytope(np.ones((2, 3)), [1.0]), r"got \(2, 3\) and \(1,\)"),
        (lambda: cm.polytope(np.ones(3), [1.0]), "a polytope needs a matrix"),
        (lambda: cm.polytope(np.zeros((0, 3)), []), "a polytope needs a matrix"),
        (lambda: cm.polytope([[1.0]], [np.inf]), "must be finite"),
        (lambda: cm.polytope([["a"]], [1.0]), "must be made of numbers"),
    ],
)
def test_sets_that_are_empty_or_malformed_are_refused(call, message):
    with pytest.raises(UtilityError, match=message):
        call()


@pytest.mark.parametrize(
    ("given_set", "message"),
    [
        (cm.ball(np.ones((2, 4)), 1.0), r"center of the ball has shape \(2, 4\)"),
        (cm.ball(np.ones(3), 1.0), r"center of the ball has shape \(3,\)"),
        # (A,) would broadcast, but (S,) is what a vector means everywhere else.
        (cm.box(np.zeros(2), np.ones(2)), r"the box has bounds of shape .*expected \(4, 2\)"),
        (cm.box(np.zeros((2, 4)), 1.0), r"the box has bounds of shape .*expected \(4, 2\)"),
        (cm.polytope(np.ones((1, 7)), [1.0]), r"expected \(S, A\) = \(4, 2\) or S\*A = 8"),
        (cm.polytope(np.ones((1, 2, 4)), [1.0]), r"rows have shape \(2, 4\)"),
    ],
)
def test_sets_that_do_not_fit_the_model_are_refused(given_set, message, mdp):
    with pytest.raises(UtilityError, match=message):
        cm.distance(given_set).lower(mdp)
