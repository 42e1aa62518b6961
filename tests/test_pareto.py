"""Coverage sets: envelopes that hold for every policy and all weights, and policies that reach their points."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp.base.errors import CurvatureError, ProblemError, SettingsError
from cvxmdp.runs.envelopes import farthest, inner_facets, outer_vertices
from strategies import generator, random_model

TOLERANCE = 0.02


def model(seed=11, n_states=5):
    random = generator(seed)
    mdp = random_model(
        random, n_states=n_states, n_actions=2, discount=0.8, endings=False, mask=False
    )
    return mdp.with_signals(third=random.normal(size=(n_states, 2)))


def make(kind):
    mdp = model()
    reward, cost, third = cm.linear("reward"), -cm.linear("cost"), cm.linear("third")
    if kind == "two linear":
        return cm.Problem(mdp, maximize=reward), {"reward": reward, "cost": cost}
    if kind == "three linear, a budget":
        least = cm.solve(cm.Problem(mdp, minimize=cm.linear("third"))).objective
        limit = {"limit": cm.linear("third") <= least + 2.0}
        problem = cm.Problem(mdp, maximize=reward, subject_to=limit)
        return problem, {"reward": reward, "cost": cost, "third": third}
    assert kind == "concave"
    near = -cm.distance(cm.uniform_policy(mdp), norm="l2-squared")
    return cm.Problem(mdp, maximize=reward), {"spread": cm.entropy(), "near": near, "cost": cost}


@pytest.fixture(
    scope="module",
    params=["two linear", "three linear, a budget", "concave"],
    ids=lambda kind: kind,
)
def found(request):
    problem, objectives = make(request.param)
    return cm.pareto(problem, objectives, tolerance=TOLERANCE)


def weighted(front, weights):
    parts = [w * utility for w, utility in zip(weights, front.objectives.values(), strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return cm.Problem(front.problem.mdp, maximize=total, subject_to=dict(front.problem.constraints))


def test_ranges_that_are_rounding_are_no_ranges():
    """What is the same for every policy spans nothing: no distances are said in units of noise."""
    mdp = cm.TabularMDP(np.full((2, 2, 2), 0.5), [0.5, 0.5], 0.9)
    problem = cm.Problem(mdp, maximize=cm.entropy())
    noise = np.array([[0.0, 1e-16], [0.0, 0.0]])
    found = cm.pareto(problem, {"a": cm.linear(1.0 + noise), "b": cm.linear(3.0 - noise)})
    assert found.points == pytest.approx(np.array([[10.0, 30.0]]))
    assert "one policy is best for every objective" in str(found)
    assert "of the ranges" not in str(found)


def test_envelopes_hold_at_weights_that_were_not_solved_and_are_close(found):
    random = generator(3)
    assert found.distance <= TOLERANCE
    for _ in range(5):
        weights = random.dirichlet(np.ones(len(found.objectives))) / found.ranges
        best = cm.solve(weighted(found, weights)).objective
        assert found.lower(weights) - 1e-7 <= best <= found.upper(weights) + 1e-7
    for _ in range(200):
        weights = random.dirichlet(0.3 * np.ones(len(found.objectives))) / found.ranges
        assert 0 <= found.upper(weights) - found.lower(weights) <= found.distance + 1e-8


def test_policies_reach_their_points_and_satisfy_the_constraints(found):
    assert len(found.policies) == len(found.points) >= 3
    for point, policy in zip(found.points, found.policies, strict=True):
        evaluated = found.problem.evaluate(policy)
        assert all(slack >= 0 for slack in evaluated.slack.values())
        for value, utility in zip(point, found.objectives.values(), strict=True):
            reached = cm.Problem(found.problem.mdp, maximize=utility).evaluate(policy).objective
            assert value <= reached <= value + 1e-7 * max(1.0, abs(value))


def test_no_policy_lies_beyond_the_outer_envelope_nor_far_from_the_inner_one(found):
    mdp = found.problem.mdp
    normal = inner_facets((found.points - found.points.max(axis=0)) / found.ranges)
    for actions in itertools.product(range(2), repeat=mdp.n_states):
        table = np.eye(2)[list(actions)]
        if any(slack < 0 for slack in found.problem.evaluate(table).slack.values()):
            continue
        values = np.array(
            [
                cm.Problem(mdp, maximize=one).evaluate(table).objective
                for one in found.objectives.values()
            ]
        )
        assert (found.weights @ values <= found.bounds + 1e-9).all()
        scaled = (values - found.points.max(axis=0)) / found.ranges
        assert farthest(scaled[None], normal)[0][0] <= found.distance + 1e-9


def test_points_between_have_policies_too(found):
    target = found.points[[0, -1]].mean(axis=0)
    policy = found.reaching(target)
    for value, utility in zip(target, found.objectives.values(), strict=True):
        reached = cm.Problem(found.problem.mdp, maximize=utility).evaluate(policy).objective
        assert reached >= value - 1e-7 * max(1.0, abs(value))
    with pytest.raises(ProblemError, match="beyond the inner envelope"):
        found.reaching(found.points.max(axis=0) + found.ranges)


def test_print_and_picture(found, tmp_path):
    text = str(found)
    for name, utility in found.objectives.items():
        assert f"{name}: {utility!r}" in text
    assert "Proven" in text
    assert len(found.rows()) == len(found.points)
    pytest.importorskip("matplotlib")
    found.plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 5_000


def test_saved_solves_are_read_by_the_checker_alone(found, tmp_path):
    found.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(found.solved)
    for place, point in enumerate(found.solved):
        claimed = cm.check(tmp_path / f"{place:02d}" / "certificate.json", point.solution.problem)
        assert claimed
        assert claimed.upper <= found.bounds[place]
    where = tmp_path / f"{len(found.solved) - 1:02d}"
    command = [sys.executable, "-m", "cvxmdp.checker", where / "certificate.json", where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_column_generation_on_a_model_that_is_not_small():
    mdp = cm.garnet(600, 4, 3, seed=1, discount=0.9)
    objectives = {"reward": cm.linear("reward"), "cost": -cm.linear("cost")}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    front = cm.pareto(problem, objectives, tolerance=0.05)
    assert front.distance <= 0.05
    used = {str(point.solution.stats["solver"]).split()[0] for point in front.solved[2:]}
    assert used == {"ColumnGeneration"}


def test_what_does_not_trade_off():
    mdp = model()
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    same = cm.pareto(problem, {"one": cm.linear("reward"), "two": 3.0 * cm.linear("reward")})
    assert same.distance <= same.tolerance
    assert len(same.points) == 1
    silent = cm.Problem(mdp.with_signals(none=np.zeros((5, 2))), maximize=cm.linear("none"))
    nothing = cm.pareto(silent, {"none": cm.linear("none"), "nil": -cm.linear("none")})
    assert nothing.distance <= nothing.tolerance
    assert np.abs(nothing.points).max() <= 1e-9


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_matter(unit):
    mdp = model()
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    plain = {"reward": cm.linear("reward"), "cost": -cm.linear("cost")}
    other = {"reward": unit * cm.linear("reward"), "cost": -cm.linear("cost")}
    first, second = (cm.pareto(problem, one, tolerance=0.05) for one in (plain, other))
    assert second.distance <= 0.05
    assert np.allclose(first.ranges * [unit, 1.0], second.ranges, rtol=1e-6)


def test_a_bound_on_solves_is_kept_and_said():
    problem, objectives = make("concave")
    front = cm.pareto(problem, objectives, tolerance=1e-6, solves=8)
    assert len(front.solved) == 8
    assert front.distance > 1e-6
    assert "more than the tolerance" in str(front)


def test_what_is_refused():
    mdp = model()
    reward, cost = cm.linear("reward"), cm.linear("cost")
    problem = cm.Problem(mdp, maximize=reward)
    with pytest.raises(ProblemError, match="two or more utilities by name"):
        cm.pareto(problem, {"reward": reward})
    with pytest.raises(CurvatureError, match="objectives\\['near'\\]"):
        cm.pareto(
            problem, {"reward": reward, "near": cm.distance(cm.uniform_policy(mdp), norm="l2")}
        )
    with pytest.raises(SettingsError, match="share of the ranges"):
        cm.pareto(problem, {"reward": reward, "cost": -cost}, tolerance=2.0)
    with pytest.raises(ProblemError, match="Problem"):
        cm.pareto(mdp, {"reward": reward, "cost": -cost})
    impossible = cm.Problem(mdp, maximize=reward, subject_to={"cost": cost <= -1e3})
    with pytest.raises(ProblemError, match=r"no policy satisfies 'cost' \(proven\)"):
        cm.pareto(impossible, {"reward": reward, "cost": -cost})
    front = cm.pareto(problem, {"reward": reward, "cost": -cost}, tolerance=0.1)
    with pytest.raises(ProblemError, match="not negative"):
        front.upper([1.0, -1.0])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_geometry_agrees_with_linear_programs(size):
    random = generator(size)
    points = random.normal(size=(12, size))
    facets = inner_facets(points)
    weights = np.vstack([np.eye(size), random.dirichlet(np.ones(size), 10)])
    bounds = (weights @ points.T).max(axis=1) + 0.1 * random.random(len(weights))
    vertices = outer_vertices(weights, bounds, points.min(axis=0) - 1.0)
    assert (vertices @ weights.T <= bounds + 1e-9).all()
    distances, _ = farthest(vertices, facets)
    for vertex, distance in zip(vertices, distances, strict=True):
        assert distance == pytest.approx(step_down(points, vertex), abs=1e-8)
    for _ in range(50):  # the largest of any direction over the outer set is at a vertex
        direction = random.dirichlet(np.ones(size))
        largest = -linprog(-direction, weights, bounds, bounds=(None, None)).fun
        assert (vertices @ direction).max() == pytest.approx(largest, abs=1e-8)


def step_down(points, vertex):
    """The least t such that a mixture of points is at or above vertex - t."""
    count, size = points.shape
    return linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.column_stack([-points.T, -np.ones(size)]),
        b_ub=-vertex,
        A_eq=np.append(np.ones(count), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, 1)] * count + [(None, None)],
    ).fun


@pytest.mark.parametrize("horizon", [{"discount": 1.0}, {"horizon": 4}, {"average": True}])
def test_other_horizons(horizon):
    made = cm.garnet(4, 2, 2, seed=3, ending=0.3 if "discount" in horizon else 0.0)
    mdp = cm.TabularMDP(made.transition, made.initial, signals=dict(made.signals), **horizon)
    objectives = {"reward": cm.linear("reward"), "cost": -cm.linear("cost")}
    front = cm.pareto(cm.Problem(mdp, maximize=cm.linear("reward")), objectives, tolerance=0.05)
    assert front.distance <= 0.05
    best = cm.solve(weighted(front, [1.0, 0.7])).objective
    assert front.lower([1.0, 0.7]) - 1e-7 <= best <= front.upper([1.0, 0.7]) + 1e-7
    target = front.points[[0, -1]].mean(axis=0)
    policy = front.reaching(target)
    reached = [cm.Problem(mdp, maximize=u).evaluate(policy).objective for u in objectives.values()]
    assert (np.array(reached) >= target - 1e-7).all()
