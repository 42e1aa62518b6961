"""Every shape under every map keeps the contract of ``atoms.shapes.shape``, and agrees with the checker."""

from __future__ import annotations

import ast
from pathlib import Path

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.columns.curves import Curve
from cvxmdp.algorithms.columns.pool import Column
from cvxmdp.atoms import Utility, walk
from cvxmdp.atoms.maps import (
    ActionChange,
    DenseMap,
    Entries,
    ExpectedActions,
    FirstRows,
    Map,
    OverTime,
    StateSums,
)
from cvxmdp.atoms.sets import ConvexSet
from cvxmdp.atoms.shapes import (
    CustomShape,
    EntropyShape,
    ExponentialShape,
    HingePowerShape,
    HuberShape,
    LinearShape,
    LogShape,
    MinimumShape,
    NormShape,
    PowerShape,
    RelativeEntropyShape,
    Shape,
    SumShape,
)
from cvxmdp.atoms.shapes.norm_sets import Ball, Box, NormSet, Polytope, Singleton
from cvxmdp.atoms.shapes.shape import Constants
from cvxmdp.base.precision import double_precision
from cvxmdp.checker.arithmetic import ErrorBound
from cvxmdp.checker.composite_forms import FormSetting, read_form
from cvxmdp.problems.conic_statement import OccupancyProgram
from strategies import generator, random_occupancy, random_policy, under_jit

STATES, ACTIONS = 4, 3
SIZE = (STATES, ACTIONS)
MODEL = cm.garnet(STATES, ACTIONS, 2, seed=1, discount=0.8)
SCALE = 1.0 - MODEL.discount


def policy(seed: int) -> np.ndarray:
    return random_policy(MODEL, generator(seed), concentration=3.0).probabilities()


def interior(seed: int) -> np.ndarray:
    """An occupancy with every pair well inside."""
    mixed = 0.5 * policy(seed) + 0.5 / ACTIONS
    return cm.occupancy_of(MODEL, cm.TabularPolicy(mixed))


MAPS: dict[str, Map] = {
    "identity": Entries(None, SIZE),
    "scaled": Entries(SCALE, SIZE),
    "diagonal": Entries(generator(1).random(SIZE) + 0.1, SIZE),
    "state sums": StateSums(SCALE, SIZE),
    "matrix": DenseMap(generator(2).normal(size=(5, STATES * ACTIONS)), SIZE),
    "expected actions": ExpectedActions(policy(3), SCALE, SIZE),
    "action change": ActionChange(policy(4), SCALE, SIZE),
}
NOT_NEGATIVE = ("identity", "scaled", "diagonal", "state sums", "expected actions")


def sets(rows: int) -> dict[str, NormSet]:
    random = generator(5)
    return {
        "zero": Singleton(0.0),
        "point": Singleton(random.random(rows)),
        "ball": Ball(random.random(rows), 0.05),
        "box": Box(np.full(rows, -np.inf), 0.1 * random.random(rows)),
        "polytope": Polytope(random.normal(size=(2, rows)), np.array([-0.3, 0.2])),
    }


def smooth(x):
    return -(jnp.exp(0.3 * x.sum(axis=0)) + (x**2).sum()).sum()


def all_shapes() -> dict[str, Shape]:
    random = generator(6)
    reward = LinearShape(random.normal(size=SIZE))
    gain = SumShape((LinearShape(random.random(SIZE)),), (2.0,), 0.3)
    found: dict[str, Shape] = {"linear": reward}
    for name in NOT_NEGATIVE:
        found[f"entropy, {name}"] = EntropyShape(MAPS[name])
    target = SCALE * interior(7).ravel()
    found["relative entropy, fixed"] = RelativeEntropyShape(MAPS["scaled"], None, target)
    moving = RelativeEntropyShape(MAPS["scaled"], MAPS["expected actions"], None)
    found["relative entropy, moving"] = moving
    found["relative entropy, both"] = RelativeEntropyShape(
        MAPS["scaled"], MAPS["expected actions"], target
    )
    for name, map in MAPS.items():
        for kind, target_set in sets(map.rows).items():
            norms = (
                ("l2", "l2-squared") if kind in ("ball", "polytope") else ("l1", "l2", "l2-squared")
            )
            if name not in ("identity", "action change") and kind not in ("zero", "point"):
                continue
            for norm in norms:
                found[f"{norm} to {kind}, {name}"] = NormShape(map, target_set, norm)
    own = CustomShape(MAPS["identity"], smooth, "smooth", "concave", Constants(None, None, None))
    found["custom"] = own
    entropy = found["entropy, state sums"]
    found["sum"] = SumShape((reward, entropy, moving), (0.5, 2.0, -1.5), 0.7)
    found["log"] = LogShape((gain,))
    found["log of a sum"] = LogShape((SumShape((gain, entropy, moving), (1.0, 1.0, -0.1), 1.0),))
    found["power"] = PowerShape((gain,), 0.3)
    found["power of a sum"] = PowerShape((SumShape((gain, entropy), (1.0, 1.0), 0.5),), 0.7)
    found["power below zero"] = PowerShape((SumShape((gain, entropy), (1.0, 1.0), 0.5),), -1.5)
    square = found["l2-squared to point, state sums"]
    curved = SumShape((square, gain), (0.4, 0.3), 0.1)
    found["growing exponential"] = ExponentialShape((curved,))
    found["growing power"] = HingePowerShape((curved,), 1.7)
    found["growing square of an l2 norm"] = HingePowerShape((found["l2 to point, matrix"],), 2.0)
    found["growing huber"] = HuberShape((curved,), 0.8)
    found["growing huber, beyond"] = HuberShape((SumShape((gain,), (1.0,), 0.0),), 0.05)
    found["minimum"] = MinimumShape((reward, entropy, LogShape((gain,))))
    found["minimum of one"] = MinimumShape((entropy,))
    return found


SHAPES = all_shapes()
every_map = pytest.mark.parametrize("name", MAPS)
every_shape = pytest.mark.parametrize("name", SHAPES)
CONVEX = ("relative entropy", "l1", "l2", "growing")


def sign_of(name: str) -> float:
    """Times the shape: concave."""
    return -1.0 if name.startswith(CONVEX) else 1.0


def slope(function, x: np.ndarray, direction: np.ndarray, step: float = 1e-5) -> float:
    ahead, behind = (float(function(x + sign * step * direction)) for sign in (1.0, -1.0))
    return (ahead - behind) / (2.0 * step)


# Maps


@every_map
def test_a_map_is_its_matrix(name):
    map, random = MAPS[name], generator(0)
    matrix = map.to_sparse().toarray()
    x, u = random.normal(size=SIZE), random.normal(size=map.rows)
    np.testing.assert_allclose(map.apply(x), matrix @ x.ravel(), atol=1e-12)
    np.testing.assert_allclose(map.pull_back(u), (matrix.T @ u).reshape(SIZE), atol=1e-12)
    values = np.linalg.svd(matrix, compute_uv=False)
    largest, least = map.singular()
    assert largest == pytest.approx(values.max())
    full = matrix.shape[0] >= matrix.shape[1]
    assert least == pytest.approx(values.min() if full else 0.0, abs=1e-12)
    absolute, longest = map.column_norms()
    assert absolute == pytest.approx(np.abs(matrix).sum(axis=0).max())
    assert longest == pytest.approx(np.linalg.norm(matrix, axis=0).max())


@every_map
def test_a_map_is_the_same_under_jax_and_on_taller_arrays(name):
    map, random = MAPS[name], generator(1)
    taller = FirstRows(map, (STATES + 2, ACTIONS))
    x, u = random.normal(size=taller.shape), random.normal(size=map.rows)
    np.testing.assert_allclose(taller.apply(x), map.apply(x[:STATES]))
    np.testing.assert_allclose(taller.pull_back(u)[:STATES], map.pull_back(u))
    assert not taller.pull_back(u)[STATES:].any()
    np.testing.assert_allclose(taller.to_sparse() @ x.ravel(), taller.apply(x), atol=1e-12)
    with double_precision():
        np.testing.assert_allclose(map.apply(jnp.asarray(x[:STATES])), map.apply(x[:STATES]))
        np.testing.assert_allclose(map.pull_back(jnp.asarray(u)), map.pull_back(u))


@every_map
def test_what_a_map_says_of_itself(name):
    map, x = MAPS[name], interior(2)
    some = np.zeros(SIZE, dtype=bool)
    some[1] = True
    moved = np.abs(map.to_sparse().toarray()) @ some.ravel() > 0
    np.testing.assert_array_equal(map.live(some), moved)
    if not map.needs_pairs:
        np.testing.assert_allclose(map.apply(x.sum(axis=1, keepdims=True)), map.apply(x))
    covering = map.covering(generator(3).normal(size=SIZE))
    if covering is not None:
        assert (map.pull_back(covering) >= generator(3).normal(size=SIZE) - 1e-12).all()


# Shapes: values and gradients


@every_shape
def test_the_gradient_is_the_derivative(name):
    shape, random = SHAPES[name], generator(10)
    x = interior(11)
    for _ in range(3):
        direction = random.normal(size=SIZE)
        expected = slope(shape.value, x, direction)
        assert np.vdot(shape.gradient(x), direction) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@every_shape
def test_numpy_and_jax_agree(name):
    shape, x = SHAPES[name], interior(12)
    with double_precision():
        value, gradient, automatic = under_jit(shape, jnp.asarray(x))
    assert float(value) == pytest.approx(float(shape.value(x)), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(gradient, shape.gradient(x), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(automatic, shape.gradient(x), rtol=1e-9, atol=1e-11)


@every_shape
def test_the_extension_is_the_same_inside_and_bends_the_same_way_beyond(name):
    shape, random, sign = SHAPES[name], generator(13), sign_of(name)
    extended = shape.extended()
    inside = cm.occupancy_of(MODEL, cm.uniform_policy(MODEL))
    assert float(extended.value(inside)) == pytest.approx(float(shape.value(inside)), rel=1e-9)
    for _ in range(20):
        x, y = (inside + random.normal(size=SIZE) for _ in range(2))
        above = float(extended.value(x)) + np.vdot(extended.gradient(x), y - x)
        assert sign * above >= sign * float(extended.value(y)) - 1e-7


@every_shape
def test_softened_kinks_are_smooth_and_the_rest_stays_itself(name):
    shape, x = SHAPES[name], interior(14)
    smooth_one = shape.softened(interior(15))
    kinked = any(w in name for w in ("l1", "l2 ", "minimum"))
    assert (smooth_one is not shape) == kinked
    with double_precision():
        point, direction = jnp.asarray(x), generator(15).normal(size=SIZE)
        numeric = slope(smooth_one.value, point, direction)
        found = np.vdot(smooth_one.gradient(point), direction)
        assert found == pytest.approx(numeric, rel=1e-5, abs=1e-6)
        moved = smooth_one.followed(point)
        assert jax.tree.structure(moved) == jax.tree.structure(smooth_one)


# Shapes: mixtures, conic programs, tangents


@every_shape
def test_second_derivatives_in_the_weights_of_a_mixture(name):
    curve = Curve(SHAPES[name], np.ones(SIZE, dtype=bool))
    for seed in (16, 17, 18):
        x = interior(seed)
        visits = x.sum(axis=1)
        curve.add(Column(visits, None, x / visits[:, None], 0.0))
    weights, rounding = np.array([0.5, 0.2, 0.3]), 1e-2
    local = curve.local(weights, rounding)
    assert local.value == pytest.approx(curve.value(weights, rounding), rel=1e-12)
    exact = sum(w * interior(seed) for w, seed in zip(weights, (16, 17, 18), strict=True))
    assert curve.value(weights, 0.0) == pytest.approx(float(SHAPES[name].value(exact)), rel=1e-9)
    for k in range(3):
        along = np.eye(3)[k]
        numeric = slope(lambda w: curve.value(w, rounding), weights, along)
        assert local.gradient[k] == pytest.approx(numeric, rel=1e-4, abs=1e-6)
        if not any(
            kind in name for kind in ("ball", "box", "polytope")
        ):  # projections count as fixed
            columns = slope_of_gradient(curve, weights, along, rounding)
            np.testing.assert_allclose(local.hessian[k], columns, rtol=1e-3, atol=1e-5)


def slope_of_gradient(curve: Curve, weights: np.ndarray, along: np.ndarray, rounding: float):
    ahead, behind = (curve.local(weights + s * 1e-5 * along, rounding).gradient for s in (1, -1))
    return (ahead - behind) / 2e-5


@every_shape
def test_the_conic_form_has_the_same_value_and_slope(name):
    shape, x, sign = SHAPES[name], interior(19), sign_of(name)
    if not shape.has_conic_form:
        return
    program = OccupancyProgram(np.ones(SIZE, dtype=bool))
    form = shape.conic(program)
    fixed = program.pairs == x.ravel()
    written = cp.Problem(cp.Maximize(sign * form.expression), [fixed, *program.side_constraints])
    options = {f"tol_{which}": 1e-9 for which in ("gap_abs", "gap_rel", "feas")}
    value = written.solve(solver=cp.CLARABEL, **options)
    assert sign * float(np.sum(value)) == pytest.approx(float(shape.value(x)), rel=1e-6, abs=1e-7)
    tangent = shape.tangent(form.parameters(sign, x))
    there = float(np.vdot(tangent.reward, x)) + tangent.offset
    assert there == pytest.approx(float(shape.value(x)), rel=1e-4, abs=1e-4)


@every_shape
def test_tangents_are_tight_and_on_the_right_side(name):
    shape, sign, random = SHAPES[name], sign_of(name), generator(20)
    points = [random_occupancy(MODEL, random) for _ in range(4)]
    many = [shape.at(interior(seed)) for seed in (21, 22, 23)]
    mean = shape.mean(many, np.array([0.2, 0.5, 0.3]))
    x = interior(21)
    first = shape.tangent(many[0])
    assert np.vdot(first.reward, x) + first.offset == pytest.approx(float(shape.value(x)), rel=1e-9)
    for parameters in (*many, mean):
        tangent = shape.tangent(parameters)
        for y in points:
            bound = float(np.vdot(tangent.reward, y)) + tangent.offset
            assert sign * bound >= sign * float(shape.value(y)) - 1e-9


@every_shape
def test_a_distance_is_zero_where_it_says(name):
    shape, x = SHAPES[name], interior(32)
    closest = shape.closest(x)
    if closest is not None:
        assert float(shape.value(closest)) == pytest.approx(0.0, abs=1e-9)
    known = ("identity", "scaled", "diagonal", "fixed", "moving", "to zero, action change")
    assert (closest is not None) == (name.startswith(CONVEX) and name.endswith(known))


@pytest.mark.parametrize("name", ["entropy, state sums", "relative entropy, fixed"])
def test_a_slope_gives_the_tangent_that_has_it(name):
    shape, x = SHAPES[name], interior(24)
    map = shape.maps()[0]
    wanted = generator(25).uniform(-1.0, 1.0, size=map.rows)
    parameters = shape.from_slope(wanted, np.arange(map.rows), shape.at(x))
    np.testing.assert_allclose(shape.tangent(parameters).reward, map.pull_back(wanted), rtol=1e-9)


# Shapes and the checker's closed forms, side by side


def checked(shape: Shape):
    flow = MODEL.flow
    return read_form(shape.plain(), FormSetting(flow.usable, flow.miss))


@every_shape
def test_the_checker_computes_the_same_values_and_tangents(name):
    shape, random = SHAPES[name], generator(26)
    form = checked(shape)
    for x in (interior(27), random_occupancy(MODEL, random)):
        assert form.value(x) == pytest.approx(float(shape.value(x)), rel=1e-10, abs=1e-12)
        parameters = shape.at(x)
        ours, theirs = shape.tangent(parameters), form.tangent(parameters)
        usable = MODEL.flow.usable
        np.testing.assert_allclose(
            theirs.reward[usable], ours.reward[usable], rtol=1e-9, atol=1e-10
        )
        assert theirs.constant == pytest.approx(ours.offset, rel=1e-9, abs=1e-9)


@every_shape
def test_the_checkers_drift_holds(name):
    shape, random = SHAPES[name], generator(28)
    form, x = checked(shape), interior(29)
    for size in (1e-9, 1e-6, 1e-4):
        step = random.normal(size=SIZE)
        moved = x + size * step / np.abs(step).sum()
        drift = form.drift(x, ErrorBound(size, np.ones(SIZE, dtype=bool)))
        assert abs(float(shape.value(moved)) - form.value(x)) <= drift


# Trees


@every_shape
def test_children_make_the_same_tree_again(name):
    shape, x = SHAPES[name], interior(30)
    again = shape.with_children(shape.children())
    assert float(again.value(x)) == float(shape.value(x))
    steps = list(walk(shape))
    assert steps[0].node is shape
    assert len(shape.factors()) == len(shape.children())
    if shape.children():
        values = [float(part.value(x)) for part in shape.children()]
        assert shape.combined_value(values) == pytest.approx(float(shape.value(x)), rel=1e-12)


@every_shape
def test_functions_of_features_read_the_first_rows(name):
    shape, x = SHAPES[name], interior(31)
    lifted = shape.of_taller((STATES + 1, ACTIONS), FirstRows)
    taller = np.vstack([x, np.full((1, ACTIONS), 7.0)])
    assert float(lifted.value(taller)) == pytest.approx(float(shape.value(x)), rel=1e-12)
    gradient = np.asarray(lifted.gradient(taller))
    np.testing.assert_allclose(gradient[:STATES], shape.gradient(x), rtol=1e-12)
    assert not gradient[STATES:].any()


@every_shape
def test_functions_of_all_times_see_the_sum(name):
    shape, x = SHAPES[name], interior(31)
    lifted = shape.of_taller((3 * STATES, ACTIONS), OverTime)
    stacked = np.vstack([0.5 * x, 0.2 * x, 0.3 * x])
    assert float(lifted.value(stacked)) == pytest.approx(float(shape.value(x)), rel=1e-12)
    gradient = np.tile(np.asarray(shape.gradient(x)), (3, 1))
    np.testing.assert_allclose(np.asarray(lifted.gradient(stacked)), gradient, rtol=1e-9)
    for map in lifted.maps():
        direct = map.to_sparse() @ stacked.ravel()
        np.testing.assert_allclose(np.asarray(map.apply(stacked)), direct, rtol=1e-12, atol=1e-15)


def subclasses(kind: type) -> set[str]:
    return {kind.__name__}.union(*(subclasses(child) for child in kind.__subclasses__()))


def test_only_atoms_ask_what_kind_of_atom_shape_or_set_something_is():
    """Everybody else walks the tree, or asks a face."""
    known = set().union(*(subclasses(kind) for kind in (Utility, Shape, NormSet, ConvexSet, Map)))
    known -= {"Utility"}  # what users give is checked wherever it comes in
    root = Path(cm.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] == "atoms":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            asks = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
            if asks and known & {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}:
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert found == []
